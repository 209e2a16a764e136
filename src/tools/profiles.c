#include "tools/icons.h"
#include "tools/resources.h"
#include "tools/tools.h"

static const struct mcp_tool *const default_tools[] = {
    &tool_execute_code,       &tool_read_file,
    &tool_write_file,         &tool_list_files,
    &tool_list_session_files, &tool_start_session,
    &tool_install_packages,   &tool_session_info,
    &tool_clear_session,      NULL,
};

static const struct mcp_prompt *const default_prompts[] = { &prompt_run_code, NULL };

static const struct profile profile_default = {
    .name = "default",
    .info = {
        .name = "belljar",
        .version = BELLJAR_VERSION,
        .title = "belljar",
        .description = "Runs code that agents wrote, in sandboxes.",
        .icons = icon_belljar,
        .instructions =
            "belljar runs Python, bash, sh and node code in isolated sandboxes. Call "
            "execute_code; keep the session_id of its first result and pass it to every later "
            "call of the same task: variables, imports and files in /workspace persist. "
            "Without it each call gets a new, empty session. There is no network inside; Python "
            "packages come by install_packages or %pip install. The "
            "value of the last Python expression, plots and new files are returned by "
            "themselves. Failed code is a normal result: read outcome, error and traceback, "
            "then go on in the same session. Output that is too long is cut in the middle and "
            "kept whole in a file that the result names. Files are also resources: "
            "kernel://SESSION_ID/PATH. Sessions that are not used end by themselves, with "
            "their files; clear_session ends one at once.",
    },
    .tools = default_tools,
    .prompts = default_prompts,
    .resources = true,
};

static const struct profile *const profiles[] = {
    &profile_default,           &profile_mcp_pyexec,
    &profile_code_executer,     &profile_python_interpreter,
    &profile_python_docker_mcp, &profile_mcp_codemode,
};

const struct profile *tools_find_profile(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        if (str_eq(profiles[i]->name, name))
            return profiles[i];
    }
    return NULL;
}

const struct profile *tools_profile_at(size_t index)
{
    return index < ARRAY_SIZE(profiles) ? profiles[index] : NULL;
}

struct mcp_server *tools_new_server(uv_loop_t *loop, const struct profile *profile,
                                    const struct mcp_limits *limits, struct toolbox *box)
{
    struct mcp_server *server =
        mcp_server_new(loop, &profile->info, limits,
                       profile->capabilities | (profile->resources ? RESOURCES_CAPABILITIES : 0));
    for (const struct mcp_tool *const *tool = profile->tools; *tool; tool++)
        mcp_server_add_tool(server, *tool, box);
    for (const struct mcp_prompt *const *prompt = profile->prompts; prompt && *prompt; prompt++)
        mcp_server_add_prompt(server, *prompt, box);
    box->names_missing = profile->names_missing;
    if (profile->resources)
        resources_add(server, box);
    return server;
}
