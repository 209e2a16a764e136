/*
 * python-docker-mcp: execute-transient in a fresh sandbox with state handed in and out,
 * execute-persistent in a session of any name, install-package, cleanup-session. Errors of a call are
 * "Error executing TOOL: why".
 */
#include "tools/execution.h"
#include "tools/packages.h"
#include "tools/report.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void fail(struct mcp_call *call, const char *tool, const char *why)
{
    mcp_call_fail(call, "Error executing %s: %s", tool, why);
}

/*** Arguments ***/

struct tool_args {
    const char *code;
    const json_t *state;
    const char *session_id;
    const char *package_name;
};

#define CODE_FIELD                                                                                 \
    FIELD_STR(struct tool_args, code, "Python code to execute", .required = true, .min_len = 1,    \
              .max_len = TOOLBOX_CODE_MAX)
#define SESSION_FIELD(help_, ...)                                                                  \
    FIELD_STR(struct tool_args, session_id, help_, .max_len = SESSION_ID_MAX, __VA_ARGS__)

static const struct field transient_fields[] = {
    CODE_FIELD,
    FIELD_JSON(struct tool_args, state,
               "Optional state dictionary: each member is a variable of the code"),
    FIELD_END,
};
static const struct shape transient_input = SHAPE(struct tool_args, transient_fields);

static const struct field persistent_fields[] = {
    CODE_FIELD,
    SESSION_FIELD("Session identifier: one that was returned, or any name for a new session"),
    FIELD_END,
};
static const struct shape persistent_input = SHAPE(struct tool_args, persistent_fields);

static const struct field install_fields[] = {
    FIELD_STR(struct tool_args, package_name, "Package name, with a version if wanted",
              .required = true, .min_len = 1, .max_len = PACKAGE_LEN_MAX),
    SESSION_FIELD("Optional session identifier; without it the package is only tried"),
    FIELD_END,
};
static const struct shape install_input = SHAPE(struct tool_args, install_fields);

static const struct field cleanup_fields[] = {
    SESSION_FIELD("Session identifier", .required = true, .min_len = 1),
    FIELD_END,
};
static const struct shape cleanup_input = SHAPE(struct tool_args, cleanup_fields);

/* What the shape says, led by the words that clients of this program know. */
static void refuse(struct mcp_call *call, const char *tool, const char *why)
{
    static const struct {
        const char *field, *words;
    } missing[] = { { "code", "Missing code" },
                    { "package_name", "Missing package name" },
                    { "session_id", "Missing session ID" } };
    const json_t *args = mcp_call_arguments(call);
    const char *lead = json_object_size(args) ? NULL : "Missing arguments";
    for (size_t i = 0; !lead && i < ARRAY_SIZE(missing); i++) {
        const json_t *value = json_object_get(args, missing[i].field);
        if (str_has_prefix(why, missing[i].field) && (!value || !json_string_length(value)) &&
            (!value || json_is_string(value) || json_is_null(value)))
            lead = missing[i].words;
    }
    auto_free char *text = lead ? xasprintf("%s (%s)", lead, why) : xstrdup(why);
    fail(call, tool, text);
}

/*** Results ***/

/* "\n\nState: {…}", and the names of what could not be a part of it. */
static void add_state(struct buf *text, const struct run_result *run, size_t max_answer)
{
    if (!run->state)
        return;
    auto_free char *json = json_text(run->state);
    if (toolbox_json_len(json) > max_answer / 4)
        (void)buf_add_str(text, "\n\nState: too large to be returned");
    else
        (void)buf_printf(text, "\n\nState: %s", json);
    size_t i;
    json_t *name;
    json_array_foreach(run->state_skipped, i, name)
    {
        if (i < 100 && json_is_string(name))
            (void)buf_printf(text, "%s%.100s",
                             i ? ", " : "\n\nNot part of the state: ", json_string_value(name));
    }
}

static void add_section(struct buf *text, const char *title, const char *body)
{
    if (body && *body)
        (void)buf_printf(text, "\n\n%s%s", title, body);
}

/* `data`: the id to show, owned; NULL for a transient run. */
static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    auto_free char *id = data;
    auto_free char *out = report_stream(run, LINK_STDOUT, box->max_answer / 4, NULL);
    auto_free char *errors = report_stream(run, LINK_STDERR, box->max_answer / 8, NULL);
    auto_free char *traceback = report_traceback_text(run);
    auto_free char *blocked = report_blocked(run);
    auto_free char *loss = report_loss(run);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    if (id)
        (void)buf_printf(&text, "Session ID: %s\n\n", id);
    (void)buf_printf(&text, "Execution Result:\n\n%s", out);
    add_section(&text, "Standard Error:\n", errors);
    if (blocked)
        add_section(&text, "Error: Validation error: ", blocked);
    else if (run->outcome != OUTCOME_OK)
        add_section(&text, "Error: ", *traceback ? traceback : run->error);
    add_state(&text, run, box->max_answer);
    if (id)
        add_section(&text, "", loss);
    mcp_call_add(call, mcp_text(text.data, text.len));
    mcp_call_finish(call);
}

/*** execute-transient, execute-persistent ***/

static void execute_transient(struct mcp_call *call, const void *arguments, void *data)
{
    const struct tool_args *args = arguments;
    const struct toolbox *box = data;
    const struct run_spec spec = { .language = "python",
                                   .code = args->code,
                                   .code_len = strlen(args->code),
                                   .state = args->state,
                                   .want_state = true,
                                   .transient = true };
    struct err err = { 0 };
    if (execution_start(call, box, &spec, on_done, NULL, &err) < 0)
        fail(call, "execute-transient", err.msg);
}

static void execute_persistent(struct mcp_call *call, const void *arguments, void *data)
{
    const struct tool_args *args = arguments;
    const struct toolbox *box = data;
    char uuid[TOOLBOX_UUID_SIZE];
    toolbox_uuid(uuid);
    const struct session_plan plan = {
        .id = args->session_id && *args->session_id ? args->session_id : uuid,
    };
    const struct run_spec spec = {
        .language = "python", .code = args->code, .code_len = strlen(args->code), .plan = &plan
    };
    struct err err = { 0 };
    char *id = xstrdup(plan.id);
    if (execution_start(call, box, &spec, on_done, id, &err) < 0) {
        free(id);
        fail(call, "execute-persistent", err.msg);
    }
}

/*** install-package ***/

static void on_installed(struct mcp_call *call, const char *session_id,
                         const struct install_result *result, void *data)
{
    (void)data;
    auto_free char *why = xasprintf("%s%s", session_id ? "Failed to install package: " : "",
                                    result->ok ? "" : result->error);
    if (result->ok)
        mcp_call_say(call, "Package installation result:\n\n%.*s", (int)result->output_len,
                     result->output);
    else
        fail(call, "install-package", why);
}

static void install_package(struct mcp_call *call, const void *arguments, void *data)
{
    const struct tool_args *args = arguments;
    const struct str_list packages = { .items = (const char **)&args->package_name, .count = 1 };
    bool named = args->session_id && *args->session_id;
    const struct session_plan plan = { .id = named ? args->session_id : NULL };
    struct err err = { 0 };
    if (packages_can_install(data, &packages, &err) < 0) {
        auto_free char *why =
            xasprintf("Invalid package name: %s (package_name: %s)", args->package_name, err.msg);
        fail(call, "install-package", why);
    } else if (packages_install_with_session(call, data, &plan, &packages,
                                             named ? PACKAGES_KEEP : PACKAGES_KEEP_NONE,
                                             on_installed, &err) < 0) {
        fail(call, "install-package", err.msg);
    }
}

/*** cleanup-session ***/

static void cleanup_session(struct mcp_call *call, const void *arguments, void *data)
{
    const struct tool_args *args = arguments;
    const struct toolbox *box = data;
    (void)session_close(box->sessions, mcp_call_owner(call), args->session_id);
    mcp_call_say(call, "Session %s cleaned up successfully", args->session_id);
}

/*** The profile ***/

static const struct mcp_tool tool_transient = {
    .name = "execute-transient",
    .description = "Execute Python code in a fresh sandbox. State is passed in explicitly and the "
                   "updated state is returned.",
    .input = &transient_input,
    .refuse = refuse,
    .call = execute_transient,
};
static const struct mcp_tool tool_persistent = {
    .name = "execute-persistent",
    .description = "Execute Python code in a persistent sandbox: variables and functions of a "
                   "session are there in its next call.",
    .input = &persistent_input,
    .hints = MCP_DESTRUCTIVE,
    .refuse = refuse,
    .call = execute_persistent,
};
static const struct mcp_tool tool_install = {
    .name = "install-package",
    .description = "Install a Python package in a session.",
    .input = &install_input,
    .hints = MCP_OPEN_WORLD,
    .refuse = refuse,
    .call = install_package,
};
static const struct mcp_tool tool_cleanup = {
    .name = "cleanup-session",
    .description = "Clean up a persistent session: its sandbox and files are removed.",
    .input = &cleanup_input,
    .hints = MCP_DESTRUCTIVE | MCP_IDEMPOTENT,
    .refuse = refuse,
    .call = cleanup_session,
};
static const struct mcp_tool *const tools[] = { &tool_transient, &tool_persistent, &tool_install,
                                                &tool_cleanup, NULL };

const struct profile profile_python_docker_mcp = {
    .name = "python-docker-mcp",
    .info = { .name = "python-docker-mcp",
              .version = BELLJAR_VERSION,
              .instructions = "Runs Python in isolated sandboxes without network: transient, with "
                              "explicit state, or persistent, with a session_id. Packages are "
                              "installed with install-package." },
    .tools = tools,
    .capabilities = MCP_RESOURCES | MCP_PROMPTS,
};
