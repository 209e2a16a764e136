/*
 * python-interpreter: cells in sessions with 16-character ids. Every answer is one JSON object; what
 * cells draw is saved as files of the session, which are read as kernel:// resources.
 */
#include "tools/execution.h"
#include "tools/report.h"
#include "tools/saving.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ID_LEN = 16 };

/*** execute_code ***/

struct execute_args {
    const char *code;
    const char *session_id;
};
static const struct field execute_fields[] = {
    FIELD_STR(struct execute_args, code, "Python code to execute (multi-line supported).",
              .required = true, .max_len = TOOLBOX_CODE_MAX),
    FIELD_STR(struct execute_args, session_id,
              "Session identifier; empty or \"0\" for a new session.", .preset_str = "",
              .max_len = SESSION_ID_MAX),
    FIELD_END,
};
static const struct shape execute_input = SHAPE(struct execute_args, execute_fields);

struct session_view {
    const char *session_id;
    const char *instructions;
};
static const struct field session_fields[] = {
    FIELD_STR(struct session_view, session_id, "Use it in subsequent requests.", .required = true),
    FIELD_STR(struct session_view, instructions, "What to do with it.", .required = true),
    FIELD_END,
};
static const struct shape session_shape = SHAPE(struct session_view, session_fields);

struct execute_result {
    bool success;
    struct str_list output;
    const char *result;
    const char *error;
    struct str_list traceback;
    struct obj_list files;
    struct session_view session_info;
    bool is_new;
};
static const struct field result_fields[] = {
    FIELD_BOOL(struct execute_result, success, "Execution status.", .required = true),
    FIELD_STRS(struct execute_result, output, "stdout and stderr text.", .required = true),
    FIELD_STR(struct execute_result, result, "Last expression value.", .nullable = true,
              .required = true),
    FIELD_STR(struct execute_result, error, "Error message if failed.", .nullable = true,
              .required = true),
    FIELD_STRS(struct execute_result, traceback, "Full traceback if error.", .required = true),
    FIELD_OBJECTS(struct execute_result, files, "Files that were made, with URIs.",
                  &file_entry_shape, .required = true),
    FIELD_OBJECT(struct execute_result, session_info, "For new sessions.", &session_shape,
                 .nullable = true, HAS_FLAG(struct execute_result, is_new)),
    FIELD_END,
};
static const struct shape execute_output = SHAPE(struct execute_result, result_fields);

/* An answer in the making: it outlives the run while files are saved. Owns what it points to. */
struct reply {
    struct mcp_call *call;
    struct execute_result result;
    struct report_files files;
    char *value, *error, *session_id, *instructions;
};

static void reply_say(struct reply *reply, char *text)
{
    toolbox_add_str(&reply->result.output, text);
}

static void reply_end(void *data)
{
    struct reply *reply = data;
    struct execute_result *result = &reply->result;
    for (size_t i = 0; i < reply->files.count; i++) {
        const struct file_entry *file = &reply->files.items[i];
        auto_free char *name = toolbox_line(file->name);
        reply_say(reply, xasprintf("📊 File created: %s (%s, %lld bytes)", name, file->mime_type,
                                   (long long)file->size));
    }
    result->files = (struct obj_list){ .items = reply->files.items, .count = reply->files.count };
    result->result = reply->value;
    result->error = reply->error;
    result->session_info = (struct session_view){ reply->session_id, reply->instructions };
    mcp_call_structured(reply->call, result);
    struct mcp_call *call = reply->call;
    toolbox_free_strs(&result->output);
    toolbox_free_strs(&result->traceback);
    report_files_done(&reply->files);
    free(reply->value);
    free(reply->error);
    free(reply->session_id);
    free(reply->instructions);
    free(reply);
    mcp_call_finish(call);
}

/* "ExecutionError: …", by what went wrong; the code's own errors as they are. */
static char *error_of(const struct run_result *run)
{
    switch (run->outcome) {
    case OUTCOME_OK:
        return NULL;
    case OUTCOME_ERROR:
        return xstrdup(run->error);
    case OUTCOME_TIMEOUT:
    case OUTCOME_INTERRUPTED:
    case OUTCOME_OUTPUT_LIMIT:
        return xasprintf("ExecutionError: %s", run->error);
    case OUTCOME_SANDBOX_FAILED:
        return xasprintf("InitializationError: %s", run->error);
    default:
        return xasprintf("KernelError: %s", run->error);
    }
}

/* A figure has become a file. */
static void on_saved(const char *name, const char *mime_type, size_t size, bool plotly, void *data)
{
    struct reply *reply = data;
    report_add_file(&reply->files, reply->session_id, name, mime_type, (int64_t)size);
    if (plotly)
        reply_say(reply, xasprintf("Plotly figure saved as %s\n", name));
}

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    struct reply *reply = xcalloc(1, sizeof(*reply));
    auto_free char *loss = report_loss(run);
    reply->call = call;
    reply->session_id = xstrdup(run->session_id);
    reply->instructions =
        xasprintf("Use this `session_id` in subsequent requests to maintain state. Session will "
                  "expire after %g minutes of inactivity.",
                  (double)box->session_timeout_ms / 60000);
    for (size_t i = 0; i < run->n_output; i++) {
        char *chunk = report_chunk(&run->output[i]);
        (void)toolbox_cut(&chunk, box->max_answer / 4 / run->n_output);
        reply_say(reply, chunk);
    }
    reply->value = report_value(run, box->max_answer / 16, NULL);
    reply->error = error_of(run);
    reply->result.success = run->outcome == OUTCOME_OK;
    reply->result.is_new = data != NULL && !run->session_over;
    reply->result.traceback = report_traceback(run);
    reply->files = report_files(run);
    if (loss)
        reply_say(reply, xasprintf("%s\n", loss));
    static const struct saving_events events = { on_saved, reply_end };
    saving_start(box, mcp_call_owner(call), run, &events, reply);
}

static void fail(struct mcp_call *call, const char *kind, const char *why)
{
    struct reply *reply = xcalloc(1, sizeof(*reply));
    reply->call = call;
    reply->error = xasprintf("%s: %s", kind, why);
    reply_end(reply);
}

static const bool is_fresh; /* its address says so */

static void execute_code(struct mcp_call *call, const void *arguments, void *data)
{
    const struct execute_args *args = arguments;
    const struct toolbox *box = data;
    auto_json *env = json_object();
    json_put_str(env, "JUPYTER_PLATFORM_DIRS", "1");
    const struct session_plan plan = { .id_len = ID_LEN, .env = env };
    bool fresh = !*args->session_id || str_eq(args->session_id, "0");
    const struct run_spec spec = { .session_id = args->session_id,
                                   .language = "python",
                                   .code = args->code,
                                   .code_len = strlen(args->code),
                                   .plan = &plan };
    struct err err = { 0 };
    int r = execution_start(call, box, &spec, on_done, fresh ? (void *)&is_fresh : NULL, &err);
    auto_free char *expired = r == -ENOENT ? toolbox_expired(box, args->session_id) : NULL;
    if (expired)
        fail(call, "SessionExpiredError", expired);
    else if (r < 0)
        fail(call, "ServerError", err.msg);
}

static const struct mcp_tool tool_execute = {
    .name = "execute_code",
    .description =
        "Execute Python code in a persistent kernel. Leave session_id empty to start a session and "
        "keep the id that is returned. Figures are saved as files, which are read as resources.",
    .input = &execute_input,
    .output = &execute_output,
    .hints = MCP_DESTRUCTIVE,
    .call = execute_code,
};

/*** list_session_files ***/

struct list_result {
    const char *session_id;
    struct obj_list files;
    const char *error;
};
static const struct field list_fields[] = {
    FIELD_STR(struct list_result, session_id, "The session ID.", .required = true),
    FIELD_OBJECTS(struct list_result, files, "All files of the session.", &file_entry_shape,
                  .required = true),
    FIELD_STR(struct list_result, error, "Why there are none."),
    FIELD_END,
};
static const struct shape list_output = SHAPE(struct list_result, list_fields);

static void on_listed(struct mcp_call *call, const struct toolbox *box,
                      const struct session_listing *listing)
{
    auto_free char *expired =
        listing->code == ENOENT ? toolbox_expired(box, listing->session_id) : NULL;
    const struct list_result result = { .session_id = listing->session_id,
                                        .files = { .items = listing->files,
                                                   .count = listing->count },
                                        .error = expired ? expired : listing->error };
    mcp_call_structured(call, &result);
    mcp_call_finish(call);
}

static void list_session_files(struct mcp_call *call, const void *arguments, void *data)
{
    const struct session_arg *args = arguments;
    session_list_for_call(call, data, args->session_id, on_listed);
}

static const struct mcp_tool tool_list = {
    .name = "list_session_files",
    .description = "List all files generated in a session.",
    .input = &session_arg_input,
    .output = &list_output,
    .hints = MCP_READ_ONLY,
    .call = list_session_files,
};

/*** clear_session ***/

static void clear_session(struct mcp_call *call, const void *arguments, void *data)
{
    const struct session_arg *args = arguments;
    const struct toolbox *box = data;
    bool done = session_close(box->sessions, mcp_call_owner(call), args->session_id) == 0;
    auto_free char *message =
        xasprintf(done ? "Session %s cleared and all files deleted" : "Session %s not found",
                  args->session_id);
    const struct session_cleared result = { .success = done, .message = message };
    mcp_call_structured(call, &result);
    mcp_call_finish(call);
}

static const struct mcp_tool tool_clear = {
    .name = "clear_session",
    .description = "Clear a session: its kernel is shut down and its files are deleted.",
    .input = &session_arg_input,
    .output = &session_cleared_output,
    .hints = MCP_DESTRUCTIVE,
    .call = clear_session,
};

/*** The profile ***/

static const struct mcp_tool *const tools[] = { &tool_execute, &tool_list, &tool_clear, NULL };

const struct profile profile_python_interpreter = {
    .name = "python-interpreter",
    .info = { .name = "Python Code Interpreter",
              .version = BELLJAR_VERSION,
              .instructions =
                  "Stateful Python execution. The first execute_code, without a session_id, starts "
                  "a "
                  "session and returns its id in session_info; pass it on in later calls, and "
                  "variables, imports and files are still there. A session expires after 30 "
                  "minutes "
                  "of inactivity. Figures of matplotlib, seaborn and Plotly are saved as files; "
                  "read "
                  "files as resources kernel://{session_id}/{filename}. numpy, pandas, matplotlib, "
                  "seaborn, plotly and sympy are there; install others with !pip install." },
    .tools = tools,
    .resources = true,
    .names_missing = true,
    .over_http = true,
};
