/*
 * code-executer: a client starts a service (a session with packages), runs code in it, stops it. The
 * service that was started or reused last and still runs is "the running one"; a stopped one can be
 * kept for reuse.
 */
#include "tools/current.h"
#include "tools/execution.h"
#include "tools/packages.h"
#include "tools/report.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*** start_code_executer ***/

struct start_args {
    struct str_list dependencies;
};
static const struct field start_fields[] = {
    FIELD_STRS(struct start_args, dependencies, "Python packages to install before the start.",
               .max_len = PACKAGES_MAX, .item_max_len = PACKAGE_LEN_MAX),
    FIELD_END,
};
static const struct shape start_input = SHAPE(struct start_args, start_fields);

static void on_started(struct mcp_call *call, const char *name, const struct install_result *result,
                       void *data)
{
    const struct toolbox *box = data;
    if (!result->ok) {
        mcp_call_fail(call, "start_code_executer: %s%s", name ? "dependencies: " : "",
                      result->error);
        return;
    }
    current_add(box->current, mcp_call_owner(call), name);
    mcp_call_say(call, "Code execution service started with the name: %s", name);
}

/* code_executer-YYYYMMDDHHMMSS; a second one in the same second gets a letter. */
static int start_named(struct mcp_call *call, const struct toolbox *box,
                       const struct str_list *dependencies, struct err *err)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y%m%d%H%M%S", &tm);
    int r = -EEXIST;
    for (char letter = 'a' - 1; r == -EEXIST && letter <= 'z'; letter++) {
        auto_free char *name = letter < 'a' ? xasprintf("code_executer-%s", stamp)
                                            : xasprintf("code_executer-%s%c", stamp, letter);
        const struct session_plan plan = { .id = name };
        r = packages_install_with_session(call, box, &plan, dependencies, PACKAGES_KEEP_WHOLE,
                                          on_started, err);
    }
    return r;
}

static void start_service(struct mcp_call *call, const void *arguments, void *data)
{
    const struct start_args *args = arguments;
    struct err err = { 0 };
    if (packages_can_install(data, &args->dependencies, &err) < 0)
        mcp_call_fail(call, "start_code_executer: dependencies: %s", err.msg);
    else if (start_named(call, data, &args->dependencies, &err) < 0)
        mcp_call_fail(call, "start_code_executer: %s", err.msg);
}

/*** execute_code ***/

struct execute_args {
    const char *code;
};
static const struct field execute_fields[] = {
    FIELD_STR(struct execute_args, code, "Python code to execute.", .required = true,
              .max_len = TOOLBOX_CODE_MAX),
    FIELD_END,
};
static const struct shape execute_input = SHAPE(struct execute_args, execute_fields);

/* Code that is a command to the service, not Python. */
static const struct command {
    const char *code, *answer;
} commands[] = { { "clear", "Globals cleared" }, { "exit", "Goodbye!" } };
static const char CLEAR[] = "for _name in [n for n in globals() if n[0] != '_' and n not in "
                            "('In', 'Out', 'get_ipython')]:\n    del globals()[_name]\n";

static const struct command *find_command(const char *code)
{
    const struct buf text = { .data = (char *)code, .len = strlen(code) };
    auto_free char *word = toolbox_strip(&text);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (str_eq(word, commands[i].code))
            return &commands[i];
    return NULL;
}

/* Errors and traceback, or what else there is to say. */
static char *error_text(const struct run_result *run, size_t max_answer)
{
    auto_free char *errors = report_stream(run, LINK_STDERR, max_answer / 8, NULL);
    auto_free char *traceback = report_traceback_text(run);
    bool apart = *errors && errors[strlen(errors) - 1] != '\n';
    return xasprintf("Error: %s%s%s", errors, apart ? "\n" : "",
                     *traceback ? traceback : run->error);
}

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    const struct command *command = data;
    auto_free char *out = report_stream(run, LINK_STDOUT, box->max_answer / 2, NULL);
    auto_free char *value = report_value(run, box->max_answer / 8, NULL);
    auto_free char *blocked = report_blocked(run);
    auto_free char *text = NULL;
    if (command && run->outcome == OUTCOME_OK)
        text = xstrdup(command->answer);
    else if (blocked)
        text = xasprintf(
            "Error: The code contains dangerous operations and cannot be executed.\n%s", blocked);
    else if (run->outcome == OUTCOME_SANDBOX_FAILED)
        text = xasprintf("Error executing code.\n%s", run->error);
    else if (run->outcome != OUTCOME_OK)
        text = error_text(run, box->max_answer);
    else
        text = xasprintf("%s%s", out, value ? value : "");
    mcp_call_add(call, mcp_textf("%s", *text ? text : "No output returned."));
    if (run->outcome != OUTCOME_OK && *out)
        mcp_call_add(call, mcp_text(out, strlen(out))); /* what it had said by then */
    mcp_call_finish(call);
}

static void execute_code(struct mcp_call *call, const void *arguments, void *data)
{
    const struct execute_args *args = arguments;
    const struct toolbox *box = data;
    const struct command *command = find_command(args->code);
    const char *name = current_find(box->current, box->sessions, mcp_call_owner(call));
    const char *code = command ? CLEAR : args->code;
    const struct run_spec spec = {
        .session_id = name,
        .language = "python",
        .code = code,
        .code_len = strlen(code),
        .str_value = true,
    };
    struct err err = { 0 };
    if (!name)
        mcp_call_say(call, "Failed to connect to the code execution service.");
    else if (execution_start(call, box, &spec, on_done, (void *)command, &err) < 0)
        mcp_call_fail(call, "execute_code: %s", err.msg);
}

/*** stop_code_executer, reuse_code_executer ***/

struct name_args {
    const char *name;
    bool delete_service;
};
static const struct field stop_fields[] = {
    FIELD_STR(struct name_args, name, "The service. Leave out for the running one.",
              .max_len = SESSION_ID_MAX),
    FIELD_BOOL(struct name_args, delete_service,
               "false: keep it, with its variables and files, for reuse_code_executer.",
               PRESET_BOOL(true)),
    FIELD_END,
};
static const struct shape stop_input = SHAPE(struct name_args, stop_fields);

static const struct field reuse_fields[] = {
    FIELD_STR(struct name_args, name, "The service, as start_code_executer named it.",
              .required = true, .min_len = 1, .max_len = SESSION_ID_MAX),
    FIELD_END,
};
static const struct shape reuse_input = SHAPE(struct name_args, reuse_fields);

static void stop_service(struct mcp_call *call, const void *arguments, void *data)
{
    const struct name_args *args = arguments;
    const struct toolbox *box = data;
    const char *owner = mcp_call_owner(call);
    const char *current = current_find(box->current, box->sessions, owner);
    const char *asked = args->name && *args->name ? args->name : current;
    auto_free char *name = asked ? xstrdup(asked) : NULL;
    bool ran = name && current_remove(box->current, owner, name);
    bool there = name && session_is_there(box->sessions, owner, name);
    if (there && args->delete_service)
        (void)session_close(box->sessions, owner, name);
    if (there && (ran || args->delete_service))
        mcp_call_say(call, "Code execution service stopped.");
    else
        mcp_call_say(call,
                     "Code execution service isII  not running."); /* in the original's words */
}

static void reuse_service(struct mcp_call *call, const void *arguments, void *data)
{
    const struct name_args *args = arguments;
    const struct toolbox *box = data;
    const char *owner = mcp_call_owner(call);
    bool there = session_is_there(box->sessions, owner, args->name);
    if (there)
        current_add(box->current, owner, args->name);
    mcp_call_say(call, "%s",
                 there ? "Code execution service restarted."
                       : "Code execution service is not running.");
}

/*** math_evaluation ***/

static void math_prompt(struct mcp_call *call, const json_t *args, void *data)
{
    (void)data;
    mcp_call_add_message(call, "user",
                         mcp_textf("Evaluate this mathematical expression by running Python code "
                                   "with the code execution service, and tell me the result: %s",
                                   json_str(args, "expression")));
    mcp_call_finish(call);
}

static const struct mcp_prompt_arg math_args[] = {
    { .name = "expression", .description = "What to evaluate.", .required = true }, { 0 }
};
static const struct mcp_prompt prompt_math = {
    .name = "math_evaluation",
    .title = "Mathematics Solver",
    .description = "Solves a mathematical expression with Python.",
    .args = math_args,
    .get = math_prompt,
};

/*** The profile ***/

static const struct mcp_tool tool_start = {
    .name = "start_code_executer",
    .description = "Starts a code execution service in a sandbox, with packages if wanted.",
    .input = &start_input,
    .hints = MCP_OPEN_WORLD,
    .call = start_service,
};
static const struct mcp_tool tool_execute = {
    .name = "execute_code",
    .description = "Executes Python code in the running service. Variables and imports persist.",
    .input = &execute_input,
    .hints = MCP_DESTRUCTIVE,
    .call = execute_code,
};
static const struct mcp_tool tool_stop = {
    .name = "stop_code_executer",
    .description = "Stops and removes the code execution service.",
    .input = &stop_input,
    .hints = MCP_DESTRUCTIVE,
    .call = stop_service,
};
static const struct mcp_tool tool_reuse = {
    .name = "reuse_code_executer",
    .description = "Goes on with a service that was stopped and kept.",
    .input = &reuse_input,
    .call = reuse_service,
};
static const struct mcp_tool *const tools[] = { &tool_start, &tool_execute, &tool_stop, &tool_reuse,
                                                NULL };
static const struct mcp_prompt *const prompts[] = { &prompt_math, NULL };

const struct profile profile_code_executer = {
    .name = "code-executer",
    .info = { .name = "Code Execution Service",
              .version = BELLJAR_VERSION,
              .instructions = "Call start_code_executer, with the packages that are needed, then "
                              "execute_code as often as wanted, then stop_code_executer." },
    .tools = tools,
    .prompts = prompts,
};
