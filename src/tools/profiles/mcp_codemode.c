/*
 * mcp-codemode: execute_code in several languages, and files. A client has one workspace, which all
 * of its calls share; each run is a process of its own.
 */
#include "tools/execution.h"
#include "tools/file_job.h"
#include "tools/report.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A client's one session; clients do not see its name, nor each other's. */
static const struct session_plan workspace = { .id = "workspace" };

/*** execute_code ***/

struct execute_args {
    const char *code;
    const char *language;
};
static const struct field execute_fields[] = {
    FIELD_STR(struct execute_args, code, "Source code to execute.", .required = true,
              .max_len = TOOLBOX_CODE_MAX),
    FIELD_STR(struct execute_args, language,
              "Language of the code: python, bash, sh, node or javascript.", .preset_str = "python",
              .max_len = 32),
    FIELD_END,
};
static const struct shape execute_input = SHAPE(struct execute_args, execute_fields);

/* "[stdout]\n…", cut; nothing for an empty stream. `more`: a line of our own. */
static bool add_section(struct buf *text, const struct toolbox *box, const char *name, char *stream,
                        const char *more)
{
    bool cut = box->output_chars && toolbox_cut_chars(stream, box->output_chars);
    if (*stream || more)
        (void)buf_printf(text, "[%s]\n%s%s%s%s\n", name, stream,
                         cut ? "\n... [output truncated]" : "", *stream && more ? "\n" : "",
                         more ? more : "");
    return cut;
}

/* What is not the code's own exit status: a note among its errors, and a status. */
static char *explain(const struct run_result *run, const struct toolbox *box, int *ret_code)
{
    *ret_code = run->has_exit_code ? run->exit_code : 1;
    if (run->outcome == OUTCOME_OK || (run->outcome == OUTCOME_ERROR && run->has_exit_code))
        return NULL;
    if (run->outcome != OUTCOME_TIMEOUT)
        return xasprintf("[%s] %s", outcome_name(run->outcome), run->error);
    *ret_code = -1;
    return xasprintf("Execution timed out after %g seconds", (double)box->run_timeout_ms / 1000);
}

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    bool cut, cut_errors;
    auto_free char *out = report_stream(run, LINK_STDOUT, box->max_answer / 4, &cut);
    auto_free char *errors = report_stream(run, LINK_STDERR, box->max_answer / 4, &cut_errors);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    int code;
    auto_free char *note = explain(run, box, &code);
    (void)data;
    cut |= cut_errors;
    cut |= add_section(&text, box, "stdout", out, NULL);
    cut |= add_section(&text, box, "stderr", errors, note);
    (void)buf_printf(&text, "[exit_code] %d", code);
    if (cut || run->truncated)
        (void)buf_add_str(&text, "\n[note] Output was truncated due to size limits.");
    mcp_call_add(call, mcp_text(text.data, text.len));
    mcp_call_finish(call);
}

/* What runs the code as a plain script: no state of Python or of a shell is kept. NULL: node, or a
 * language that the session will refuse. */
static const char *own_program(const char *language, const struct toolbox *box)
{
    if (strcasecmp(language, "python") == 0)
        return box->python;
    return strcasecmp(language, "bash") == 0 ? "bash"
           : strcasecmp(language, "sh") == 0 ? "sh"
                                             : NULL;
}

static void execute_code(struct mcp_call *call, const void *arguments, void *data)
{
    const struct execute_args *args = arguments;
    const struct toolbox *box = data;
    const char *program = own_program(args->language, box);
    const char *const argv[] = { program, LINK_CODE_PATH, NULL };
    const struct run_spec spec = { .language = args->language,
                                   .argv = program ? argv : NULL,
                                   .code = args->code,
                                   .code_len = strlen(args->code),
                                   .plan = &workspace };
    struct err err = { 0 };
    int r = execution_start(call, box, &spec, on_done, NULL, &err);
    if (r == -EOPNOTSUPP)
        mcp_call_say(call,
                     "[stderr]\nUnsupported language: %s. Supported: python, bash, sh, node, "
                     "javascript\n[exit_code] 1",
                     args->language);
    else if (r < 0)
        mcp_call_fail(call, "execute_code: %s", err.msg);
}

static const struct mcp_tool tool_run = {
    .name = "execute_code",
    .title = "Execute code",
    .description = "Executes code in an isolated sandbox without network, in /workspace, and "
                   "returns what it wrote and its exit code.",
    .input = &execute_input,
    .hints = MCP_DESTRUCTIVE,
    .call = execute_code,
};

/*** Files ***/

struct file_args {
    const char *path;
    const char *content;
};
#define FILE_FIELD                                                                                 \
    FIELD_STR(struct file_args, path,                                                              \
              "File path (relative to /workspace, or absolute within /workspace).",                \
              .required = true, .min_len = 1, .max_len = FILE_JOB_PATH_MAX)

static void file_fail(struct file_job *job, int code, const char *why)
{
    const char *path = job->wish.path; /* the call's own */
    const char *verb = job->task->name;
    auto_free char *words = xstrdup(why);
    bool reads = job->task->on_read != NULL;
    size_t most = job->box->max_write;
    struct mcp_call *call = file_job_end(job);
    if (code == EXDEV)
        mcp_call_fail(call,
                      "Path '%s' resolves outside the sandbox workspace. All paths must be within "
                      "/workspace.",
                      path);
    else if (code == ENOENT && reads)
        mcp_call_fail(call, "File not found in sandbox: %s", path);
    else if (code == EISDIR && reads)
        mcp_call_fail(call, "Path is a directory: %s", path);
    else if (code == EFBIG && !reads)
        mcp_call_fail(call, "sandbox_write_file: content: at most %zu bytes in one call", most);
    else
        mcp_call_fail(call, "Cannot %s path: %s: %s", verb, path, words);
}

static void start(struct mcp_call *call, const void *arguments, void *data,
                  const struct file_task *task)
{
    const struct file_args *args = arguments;
    const struct file_wish wish = { .plan = &workspace,
                                    .path = args->path,
                                    .content = args->content,
                                    .content_len = args->content ? strlen(args->content) : 0 };
    file_job_start(call, data, task, &wish);
}

/*** sandbox_read_file ***/

static const struct field read_fields[] = { FILE_FIELD, FIELD_END };
static const struct shape read_input = SHAPE(struct file_args, read_fields);

static void on_read(struct file_job *job, const char *bytes, size_t len, uint64_t size)
{
    len = file_job_add_text(job, bytes, len);
    if (len < size)
        mcp_call_add(job->call, mcp_textf("[note] only the first %zu of %llu bytes", len,
                                          (unsigned long long)size));
    mcp_call_finish(file_job_end(job));
}

static void read_file(struct mcp_call *call, const void *args, void *data)
{
    static const struct file_task task = { "read", file_fail, .on_read = on_read };
    start(call, args, data, &task);
}

static const struct mcp_tool tool_read = {
    .name = "sandbox_read_file",
    .title = "Read a file",
    .description = "Reads a file from the sandbox's /workspace directory.",
    .input = &read_input,
    .hints = MCP_READ_ONLY,
    .call = read_file,
};

/*** sandbox_write_file ***/

static const struct field write_fields[] = {
    FILE_FIELD,
    FIELD_STR(struct file_args, content, "Text content to write.", .required = true),
    FIELD_END,
};
static const struct shape write_input = SHAPE(struct file_args, write_fields);

static void on_written(struct file_job *job)
{
    auto_free char *path = file_job_absolute(job->wish.path);
    mcp_call_add(job->call, mcp_textf("Wrote %zu bytes to %s", job->wish.content_len, path));
    mcp_call_finish(file_job_end(job));
}

static void write_file(struct mcp_call *call, const void *args, void *data)
{
    static const struct file_task task = { "write", file_fail, .on_written = on_written };
    start(call, args, data, &task);
}

static const struct mcp_tool tool_write = {
    .name = "sandbox_write_file",
    .title = "Write a file",
    .description = "Writes content to a file in the sandbox's /workspace directory; folders are "
                   "made.",
    .input = &write_input,
    .hints = MCP_DESTRUCTIVE | MCP_IDEMPOTENT,
    .call = write_file,
};

/*** sandbox_list_files ***/

static const struct field list_fields[] = {
    FIELD_STR(struct file_args, path, "Directory path (must be within /workspace).",
              .preset_str = "/workspace", .max_len = FILE_JOB_PATH_MAX),
    FIELD_END,
};
static const struct shape list_input = SHAPE(struct file_args, list_fields);

/* `data`: the path as it was asked for; the call's own. */
static void on_listed(struct mcp_call *call, const struct run_result *run,
                      const struct toolbox *box, void *data)
{
    auto_free char *out = report_stream(run, LINK_STDOUT, box->max_answer / 2, NULL);
    auto_free char *errors = report_stream(run, LINK_STDERR, box->max_answer / 8, NULL);
    if (run->outcome == OUTCOME_OK)
        mcp_call_say(call, "%s", out);
    else
        mcp_call_fail(call, "Cannot list path: %s: %s", (const char *)data,
                      *errors ? errors : run->error);
}

/* The path leads into the workspace; the listing itself is the sandbox's own `ls`. */
static void on_found(struct file_job *job)
{
    const char *asked = job->wish.path;
    auto_free char *path = file_job_absolute(asked);
    const char *const argv[] = { "ls", "-la", path, NULL };
    const struct toolbox *box = job->box;
    const struct run_spec spec = { .argv = argv, .plan = &workspace };
    struct mcp_call *call = file_job_end(job);
    struct err err = { 0 };
    if (execution_start(call, box, &spec, on_listed, (void *)asked, &err) < 0)
        mcp_call_fail(call, "Cannot list path: %s: %s", asked, err.msg);
}

static void list_files(struct mcp_call *call, const void *args, void *data)
{
    static const struct file_task task = { "list", file_fail, .on_found = on_found };
    start(call, args, data, &task);
}

static const struct mcp_tool tool_list = {
    .name = "sandbox_list_files",
    .title = "List files",
    .description = "Lists directory contents inside the sandbox.",
    .input = &list_input,
    .hints = MCP_READ_ONLY,
    .call = list_files,
};

/*** The profile ***/

static const struct mcp_tool *const tools[] = { &tool_run, &tool_read, &tool_write, &tool_list,
                                                NULL };

const struct profile profile_mcp_codemode = {
    .name = "mcp-codemode",
    .info = { .name = "mcp-codemode",
              .version = BELLJAR_VERSION,
              .instructions = "Runs code and keeps files in one sandbox without network. Files "
                              "below /workspace stay between calls; variables do not." },
    .tools = tools,
    .over_http = true,
};
