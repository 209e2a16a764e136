#include "tools/execute_code.h"

/*** Arguments ***/

struct execute_args {
    const char *code;
    const char *language;
    const char *session_id;
    double timeout;
    bool has_timeout;
};

static const char *const languages[] = { "python", "bash", "sh", "node", "javascript", NULL };

/* A caller may lower the operator's limit, never raise it; this bounds what can be asked. */
#define TIMEOUT_MIN 0.1
#define TIMEOUT_MAX 300.0

static const struct field execute_fields[] = {
    FIELD_STR(struct execute_args, code, "The code to run.", .required = true, .max_len = 4 << 20),
    FIELD_STR(struct execute_args, language,
              "Language of the code. javascript is another name for node.", .choices = languages,
              .any_case = true, .preset_str = "python"),
    FIELD_STR(struct execute_args, session_id,
              "Session to run in, as returned by an earlier call: variables, imports and files are "
              "still there. Leave out (or \"\" or \"0\") to start a new session.",
              .max_len = 64),
    FIELD_REAL(struct execute_args, timeout,
               "Seconds after which the code is interrupted; at most the server's own limit, "
               "which is also the default.",
               RANGE_REAL(TIMEOUT_MIN, TIMEOUT_MAX), HAS_FLAG(struct execute_args, has_timeout)),
    FIELD_END,
};
static const struct shape execute_input = SHAPE(struct execute_args, execute_fields);

/*** Result ***/

struct output_chunk {
    const char *stream;
    const char *text;
};

static const char *const streams[] = { "stdout", "stderr", NULL };
static const struct field chunk_fields[] = {
    FIELD_STR(struct output_chunk, stream, "Where it was written.", .required = true,
              .choices = streams),
    FIELD_STR(struct output_chunk, text, "What was written.", .required = true),
    FIELD_END,
};
static const struct shape chunk_shape = SHAPE(struct output_chunk, chunk_fields);

struct file_entry {
    const char *uri;
    const char *name;
    const char *mime_type;
    int64_t size;
};

static const struct field file_fields[] = {
    FIELD_STR(struct file_entry, uri, "Resource to read the file by.", .required = true),
    FIELD_STR(struct file_entry, name, "Path below /workspace.", .required = true),
    FIELD_STR(struct file_entry, mime_type, "Type, as far as it is known.", .required = true),
    FIELD_INT(struct file_entry, size, "Bytes.", .required = true),
    FIELD_END,
};
static const struct shape file_shape = SHAPE(struct file_entry, file_fields);

struct execute_result {
    bool success;
    const char *session_id;
    const char *outcome;
    struct obj_list output;
    const char *result;
    const char *error;
    struct str_list traceback;
    struct obj_list files;
    int64_t exit_code;
    bool has_exit_code;
    double duration_ms;
    bool truncated;
};

static const char *const outcomes[] = {
    "ok",           "error",        "timeout",        "interrupted",
    "memory_limit", "output_limit", "process_limit",  "disk_limit",
    "killed",       "kernel_died",  "sandbox_failed", NULL,
};

static const struct field result_fields[] = {
    FIELD_BOOL(struct execute_result, success, "The outcome is ok.", .required = true),
    FIELD_STR(struct execute_result, session_id, "Use it to go on in this session.",
              .required = true),
    FIELD_STR(struct execute_result, outcome, "How the run ended.", .required = true,
              .choices = outcomes),
    FIELD_OBJECTS(struct execute_result, output, "What the code wrote, in order.", &chunk_shape,
                  .required = true),
    FIELD_STR(struct execute_result, result, "Value of the last expression.", .nullable = true,
              .required = true),
    FIELD_STR(struct execute_result, error, "Why the run failed, in one line.", .nullable = true,
              .required = true),
    FIELD_STRS(struct execute_result, traceback, "Where it failed, outermost first.",
               .required = true),
    FIELD_OBJECTS(struct execute_result, files, "Files that the run made or changed.", &file_shape,
                  .required = true),
    FIELD_INT(struct execute_result, exit_code, "Exit status of the process, if it ended.",
              HAS_FLAG(struct execute_result, has_exit_code)),
    FIELD_REAL(struct execute_result, duration_ms, "Wall time of the run.", .required = true),
    FIELD_BOOL(struct execute_result, truncated, "Some output was cut to fit the limits.",
               .required = true),
    FIELD_END,
};
static const struct shape execute_output = SHAPE(struct execute_result, result_fields);

/*** The tool ***/

static void execute_code(struct mcp_call *call, const void *arguments, void *data)
{
    (void)arguments;
    (void)data;
    mcp_call_fail(call, "No sandbox engine is available in this build of belljar, so the code was "
                        "not run.");
}

const struct mcp_tool tool_execute_code = {
    .name = "execute_code",
    .title = "Execute code",
    .description =
        "Runs code in an isolated sandbox and returns what it printed, the value of the last "
        "expression, errors, and the files it made in /workspace. The sandbox has no network. "
        "Every result names a session_id: pass it on to keep variables, imports and files for the "
        "next call. Code that fails or runs out of time is still a successful call; read outcome "
        "and error.",
    .input = &execute_input,
    .output = &execute_output,
    .hints = MCP_DESTRUCTIVE, /* of the session's own files, never of the host's */
    .call = execute_code,
};
