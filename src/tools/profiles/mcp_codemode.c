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
    auto_free char *out = report_stream(run, LINK_STDOUT);
    auto_free char *errors = report_stream(run, LINK_STDERR);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    int code;
    auto_free char *note = explain(run, box, &code);
    (void)data;
    bool cut = toolbox_cut(&out, box->max_answer / 4);
    cut = toolbox_cut(&errors, box->max_answer / 4) || cut;
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
    if (r == -EOPNOTSUPP) {
        mcp_call_add(call, mcp_textf("[stderr]\nUnsupported language: %s. Supported: python, bash, "
                                     "sh, node, javascript\n[exit_code] 1",
                                     args->language));
        mcp_call_finish(call);
    } else if (r < 0) {
        mcp_call_fail(call, "execute_code: %s", err.msg);
    }
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

static void file_fail(struct file_job *job, int code, const char *why)
{
    auto_free char *path = xstrdup(job->path), *words = xstrdup(why);
    struct mcp_call *call = file_job_end(job);
    if (code == EXDEV)
        mcp_call_fail(call,
                      "Path '%s' resolves outside the sandbox workspace. All paths must be within "
                      "/workspace.",
                      path);
    else
        mcp_call_fail(call, "%s", words);
}

/* Fails with `words`, a format for the path and what the system says. */
static void file_refuse(struct file_job *job, int code, const char *words)
{
    auto_free char *why = xasprintf("%s %s: %s", words, job->path, strerror(code));
    file_fail(job, code, why);
}

static void start_job(struct mcp_call *call, const struct toolbox *box,
                      const struct file_args *args, const struct file_job_ops *ops)
{
    file_job_start(call, box, &workspace, args->path, args->content, ops);
}

/*** sandbox_read_file ***/

static const struct field read_fields[] = {
    FIELD_STR(struct file_args, path,
              "File path (relative to /workspace, or absolute within /workspace).",
              .required = true, .min_len = 1, .max_len = FILE_JOB_PATH_MAX),
    FIELD_END,
};
static const struct shape read_input = SHAPE(struct file_args, read_fields);

static void on_read(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct file_job *job = data;
    auto_free char *why = code == EISDIR   ? xasprintf("Path is a directory: %s", job->path)
                          : code == ENOENT ? xasprintf("File not found in sandbox: %s", job->path)
                                           : NULL;
    if (why) {
        file_fail(job, code, why);
        return;
    }
    if (code) {
        file_refuse(job, code, "Cannot read path:");
        return;
    }
    file_job_add_text(job, bytes, len, size);
    mcp_call_finish(file_job_end(job));
}

static int begin_read(struct file_job *job, struct link *agent, struct err *err)
{
    return link_file_read(agent, job->path, /* offset= */ 0, job->box->max_read, on_read, job, err);
}

static void read_file(struct mcp_call *call, const void *args, void *data)
{
    static const struct file_job_ops ops = { begin_read, file_fail };
    start_job(call, data, args, &ops);
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
    FIELD_STR(struct file_args, path,
              "File path (relative to /workspace, or absolute within /workspace).",
              .required = true, .min_len = 1, .max_len = FILE_JOB_PATH_MAX),
    FIELD_STR(struct file_args, content, "Text content to write.", .required = true),
    FIELD_END,
};
static const struct shape write_input = SHAPE(struct file_args, write_fields);

static void on_saved(const char *error, void *data)
{
    struct file_job *job = data;
    auto_free char *path = file_job_absolute(job->path);
    mcp_call_add(job->call, mcp_textf("Wrote %zu bytes to %s", strlen(job->content), path));
    if (error)
        mcp_call_add(job->call, mcp_textf(TOOLBOX_NOT_SAVED, error));
    mcp_call_finish(file_job_end(job));
}

static void on_written(int code, void *data)
{
    struct file_job *job = data;
    if (code)
        file_refuse(job, code, "Cannot write path:");
    else
        session_save(job->box->sessions, mcp_call_owner(job->call), job->session_id, on_saved, job);
}

static int begin_write(struct file_job *job, struct link *agent, struct err *err)
{
    return link_file_write(agent, job->path, job->content, strlen(job->content), on_written, job,
                           err);
}

static void write_file(struct mcp_call *call, const void *arguments, void *data)
{
    static const struct file_job_ops ops = { begin_write, file_fail };
    const struct file_args *args = arguments;
    const struct toolbox *box = data;
    if (strlen(args->content) > box->max_write)
        mcp_call_fail(call, "sandbox_write_file: content: at most %zu bytes in one call",
                      box->max_write);
    else
        start_job(call, data, args, &ops);
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

static void on_listed(struct mcp_call *call, const struct run_result *run,
                      const struct toolbox *box, void *data)
{
    auto_free char *path = data;
    auto_free char *out = report_stream(run, LINK_STDOUT);
    auto_free char *errors = report_stream(run, LINK_STDERR);
    (void)toolbox_cut(&out, box->max_answer / 2);
    if (run->outcome != OUTCOME_OK) {
        mcp_call_fail(call, "Cannot list path: %s: %s", path, *errors ? errors : run->error);
        return;
    }
    mcp_call_add(call, mcp_text(out, strlen(out)));
    mcp_call_finish(call);
}

/* The path leads into the workspace; the listing itself is the sandbox's own `ls`. */
static void on_checked(int code, const struct link_entry *entries, size_t count, bool more,
                       void *data)
{
    struct file_job *job = data;
    (void)entries, (void)count, (void)more;
    if (code) {
        file_refuse(job, code, "Cannot list path:");
        return;
    }
    auto_free char *path = file_job_absolute(job->path);
    const char *const argv[] = { "ls", "-la", path, NULL };
    char *asked = xstrdup(job->path);
    const struct toolbox *box = job->box;
    const struct run_spec spec = { .argv = argv, .plan = &workspace };
    struct mcp_call *call = file_job_end(job);
    struct err err = { 0 };
    if (execution_start(call, box, &spec, on_listed, asked, &err) < 0) {
        mcp_call_fail(call, "Cannot list path: %s: %s", asked, err.msg);
        free(asked);
    }
}

static int begin_list(struct file_job *job, struct link *agent, struct err *err)
{
    return link_file_stat(agent, job->path, on_checked, job, err);
}

static void list_files(struct mcp_call *call, const void *args, void *data)
{
    static const struct file_job_ops ops = { begin_list, file_fail };
    start_job(call, data, args, &ops);
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
