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

static void answer(struct mcp_call *call, const char *text)
{
    mcp_call_add(call, mcp_textf("%s", text));
    mcp_call_finish(call);
}

static bool exists(const struct toolbox *box, const char *owner, const char *name)
{
    struct link *agent;
    return session_link(box->sessions, owner, name, &agent, NULL) != -ENOENT;
}

/* The running service of a client; NULL: none. Owned by the caller. */
static char *running(const struct toolbox *box, const char *owner)
{
    const char *name;
    while ((name = current_find(box->current, owner)) && !exists(box, owner, name)) {
        auto_free char *expired = xstrdup(name);
        (void)current_remove(box->current, owner, expired);
    }
    return name ? xstrdup(name) : NULL;
}

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

/* A call that waits for its sandbox. */
struct start_call {
    struct mcp_call *call;
    const struct toolbox *box;
    struct str_list dependencies; /* the arguments live as long as the call */
};

static void started(struct mcp_call *call, const struct toolbox *box, const char *name)
{
    current_add(box->current, mcp_call_owner(call), name);
    auto_free char *text = xasprintf("Code execution service started with the name: %s", name);
    answer(call, text);
}

/* What could not be made whole is not left behind. */
static void start_fail(struct mcp_call *call, const struct toolbox *box, const char *name,
                       const char *why)
{
    (void)session_close(box->sessions, mcp_call_owner(call), name);
    mcp_call_fail(call, "start_code_executer: dependencies: %s", why);
}

static void on_installed(struct mcp_call *call, const char *session_id,
                         const struct install_result *result, void *data)
{
    if (result->ok)
        started(call, data, session_id);
    else
        start_fail(call, data, session_id, result->error);
}

static void on_open(const char *session_id, const struct err *err, void *data)
{
    const struct start_call start = *(struct start_call *)data;
    struct err why = { 0 };
    free(data);
    if (!session_id) {
        mcp_call_fail(start.call, "start_code_executer: %s", err->msg);
        return;
    }
    auto_free char *name = xstrdup(session_id);
    if (!start.dependencies.count)
        started(start.call, start.box, name);
    else if (packages_install_for_call(start.call, start.box, name, &start.dependencies,
                                       on_installed, &why) < 0)
        start_fail(start.call, start.box, name, why.msg);
}

/* code_executer-YYYYMMDDHHMMSS; a second one in the same second gets a letter. */
static int open_named(struct start_call *start, struct err *err)
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
        r = session_open(start->box->sessions, mcp_call_owner(start->call), &plan, on_open, start,
                         err);
    }
    return r;
}

static void start_service(struct mcp_call *call, const void *arguments, void *data)
{
    const struct start_args *args = arguments;
    const struct toolbox *box = data;
    struct start_call *start = xcalloc(1, sizeof(*start));
    struct err err = { 0 };
    *start = (struct start_call){ call, box, args->dependencies };
    mcp_call_defer(call, NULL, NULL);
    int r = args->dependencies.count
                ? sessions_check_packages(box->sessions, args->dependencies.items,
                                          args->dependencies.count, &err)
                : 0;
    if (r < 0)
        mcp_call_fail(call, "start_code_executer: dependencies: %s", err.msg);
    else if (open_named(start, &err) == 0)
        return;
    else
        mcp_call_fail(call, "start_code_executer: %s", err.msg);
    free(start);
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
    auto_free char *errors = report_stream(run, LINK_STDERR);
    auto_free char *traceback = report_traceback_text(run);
    (void)toolbox_cut(&errors, max_answer / 8);
    bool apart = *errors && errors[strlen(errors) - 1] != '\n';
    return xasprintf("Error: %s%s%s", errors, apart ? "\n" : "",
                     *traceback ? traceback : run->error);
}

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    const struct command *command = data;
    auto_free char *out = report_stream(run, LINK_STDOUT);
    bool cut;
    auto_free char *value = report_value(run, box->max_answer / 8, &cut);
    auto_free char *blocked = report_blocked(run);
    (void)toolbox_cut(&out, box->max_answer / 2);
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
    auto_free char *name = running(box, mcp_call_owner(call));
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
        answer(call, "Failed to connect to the code execution service.");
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
    auto_free char *name = args->name && *args->name ? xstrdup(args->name) : running(box, owner);
    bool ran = name && current_remove(box->current, owner, name);
    bool there = name && exists(box, owner, name);
    if (there && args->delete_service)
        (void)session_close(box->sessions, owner, name);
    if (there && (ran || args->delete_service))
        answer(call, "Code execution service stopped.");
    else
        answer(call, "Code execution service isII  not running."); /* in the original's words */
}

static void reuse_service(struct mcp_call *call, const void *arguments, void *data)
{
    const struct name_args *args = arguments;
    const struct toolbox *box = data;
    const char *owner = mcp_call_owner(call);
    bool there = exists(box, owner, args->name);
    if (there)
        current_add(box->current, owner, args->name);
    answer(call,
           there ? "Code execution service restarted." : "Code execution service is not running.");
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
