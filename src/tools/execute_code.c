#include "tools/execution.h"
#include "tools/icons.h"
#include "tools/report.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

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
    FIELD_STR(struct execute_args, code, "The code to run.", .required = true,
              .max_len = TOOLBOX_CODE_MAX),
    FIELD_STR(struct execute_args, language,
              "Language of the code. javascript is another name for node.", .choices = languages,
              .any_case = true, .preset_str = "python"),
    FIELD_STR(struct execute_args, session_id,
              "Session to run in, as returned by an earlier call: variables, imports and files are "
              "still there. Leave out (or \"\" or \"0\") to start a new session.",
              .max_len = SESSION_ID_MAX),
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

struct overflow {
    const char *stream;
    const char *uri;
    const char *name;
    int64_t size;
    bool complete;
};

static const struct field overflow_fields[] = {
    FIELD_STR(struct overflow, stream, "Which stream it holds.", .required = true,
              .choices = streams),
    FIELD_STR(struct overflow, uri, "The file as a resource.", .required = true),
    FIELD_STR(struct overflow, name, "Path below /workspace.", .required = true),
    FIELD_INT(struct overflow, size, "Bytes.", .required = true),
    FIELD_BOOL(struct overflow, complete,
               "All that was written; else its middle is missing there, too.", .required = true),
    FIELD_END,
};
static const struct shape overflow_shape = SHAPE(struct overflow, overflow_fields);

struct execute_result {
    bool success;
    const char *session_id;
    const char *outcome;
    struct obj_list output;
    const char *result;
    const char *error;
    struct str_list traceback;
    struct obj_list displays;
    struct obj_list files;
    int64_t exit_code;
    bool has_exit_code;
    double duration_ms;
    bool truncated;
    struct obj_list overflow;
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
    FIELD_OBJECTS(
        struct execute_result, displays,
        "Other forms of what was displayed, the result last, as MIME type and text: HTML, "
        "LaTeX, SVG, Markdown, JSON, plotly; base64 if it is not text. Absent without any. "
        "Plain text is in output and result, images are image content.",
        NULL, .max_len = REPORT_DISPLAYS_MAX),
    FIELD_OBJECTS(struct execute_result, files, "Files that the run made or changed.",
                  &file_entry_shape, .required = true),
    FIELD_INT(struct execute_result, exit_code, "Exit status of the process, if it ended.",
              HAS_FLAG(struct execute_result, has_exit_code)),
    FIELD_REAL(struct execute_result, duration_ms, "Wall time of the run.", .required = true),
    FIELD_BOOL(struct execute_result, truncated, "Some output was cut to fit the limits.",
               .required = true),
    FIELD_OBJECTS(struct execute_result, overflow,
                  "Files that hold the output whole when it is too long to be read here.",
                  &overflow_shape, .required = true),
    FIELD_END,
};
static const struct shape execute_output = SHAPE(struct execute_result, result_fields);

/*** The reply ***/

/* The result struct and what it points to. */
struct reply {
    struct execute_result result;
    struct output_chunk *chunks;
    char *value; /* text of the last expression */
    struct report_displays displays;
    struct report_files files;
    struct overflow *overflow;
};

/* Output within the answer's limit, however much of it needs escaping: each piece gives its share. */
static void fit_output(struct reply *reply, size_t count, size_t budget)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += toolbox_json_len(reply->chunks[i].text);
    for (size_t i = 0; total > budget && i < count; i++) {
        char **text = (char **)&reply->chunks[i].text;
        double share = (double)toolbox_json_len(*text) / (double)total;
        if (toolbox_cut(text, (size_t)(share * (double)budget)))
            reply->result.truncated = true;
    }
}

/*** Bounds ***/

/* The part of an answer that is neither output nor displays; more than the bounds of report.h add up to. */
enum { RESERVE = 1 << 20 };

/* What is left of an answer for the output. */
static size_t output_budget(const struct run_result *run, size_t displays, size_t max_answer)
{
    size_t taken = RESERVE + displays + report_images(run, max_answer, NULL, NULL);
    return max_answer > 2 * taken ? max_answer - taken : max_answer / 4;
}

static void take_overflow(struct reply *reply, const struct run_result *run)
{
    reply->overflow = xcalloc(run->n_kept, sizeof(*reply->overflow));
    for (size_t i = 0; i < run->n_kept; i++) {
        const struct run_kept *kept = &run->kept[i];
        reply->overflow[i] = (struct overflow){
            .stream = kept->stream,
            .uri = session_file_uri(run->session_id, kept->path),
            .name = kept->path,
            .size = (int64_t)kept->size,
            .complete = kept->whole,
        };
    }
    reply->result.overflow =
        (struct obj_list){ .items = reply->overflow, .count = run->session_over ? 0 : run->n_kept };
}

/* What a Python cell has beyond its output. */
static void take_done(struct reply *reply, const struct run_result *run, size_t max_answer)
{
    struct execute_result *result = &reply->result;
    bool cut;
    reply->value = report_value(
        run, max_answer / 8 < REPORT_VALUE_MAX ? max_answer / 8 : REPORT_VALUE_MAX, &cut);
    result->truncated |= cut;
    result->result = reply->value;
    result->traceback = report_traceback(run);
    reply->files = report_files(run);
    result->files = (struct obj_list){ .items = reply->files.items, .count = reply->files.count };
}

static void reply_init(struct reply *reply, const struct run_result *run, size_t max_answer)
{
    *reply = (struct reply){
        .chunks = xcalloc(run->n_output, sizeof(*reply->chunks)),
        .result = { .success = run->outcome == OUTCOME_OK,
                    .session_id = run->session_id,
                    .outcome = outcome_name(run->outcome),
                    .error = run->error,
                    .exit_code = run->exit_code,
                    .has_exit_code = run->has_exit_code,
                    .duration_ms = run->duration_ms,
                    .truncated = run->truncated },
    };
    for (size_t i = 0; i < run->n_output; i++) {
        reply->chunks[i] = (struct output_chunk){
            .stream = run->output[i].stream == LINK_STDOUT ? "stdout" : "stderr",
            .text = report_chunk(&run->output[i]),
        };
    }
    reply->displays = report_displays(run, max_answer);
    reply->result.displays = (struct obj_list){ reply->displays.items, reply->displays.count };
    reply->result.truncated |= reply->displays.left_out > 0;
    fit_output(reply, run->n_output, output_budget(run, reply->displays.bytes, max_answer));
    reply->result.output = (struct obj_list){ .items = reply->chunks, .count = run->n_output };
    take_done(reply, run, max_answer);
    take_overflow(reply, run);
}

static void reply_done(struct reply *reply, const struct run_result *run)
{
    for (size_t i = 0; i < reply->result.output.count; i++)
        free((char *)reply->chunks[i].text);
    toolbox_free_strs(&reply->result.traceback);
    report_displays_done(&reply->displays);
    report_files_done(&reply->files);
    free(reply->chunks);
    free(reply->value);
    for (size_t i = 0; i < run->n_kept; i++)
        free((char *)reply->overflow[i].uri);
    free(reply->overflow);
}

enum { READABLE_MAX = 32 << 10 };

/* Bytes of the output, as JSON, that a reader of the text sees; what is longer goes to a file, too. */
static size_t readable_max(size_t max_answer)
{
    return max_answer / 4 < READABLE_MAX ? max_answer / 4 : READABLE_MAX;
}

/* What was printed, for a reader. The whole is in the structured result: no long payload twice. */
static char *readable_output(const struct reply *reply, size_t max_answer)
{
    const struct execute_result *result = &reply->result;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    const char *last = "stdout";
    for (size_t i = 0; i < result->output.count; i++) {
        const struct output_chunk *chunk = &reply->chunks[i];
        if (!str_eq(chunk->stream, last))
            (void)buf_printf(&text, "%s[%s]\n", text.len ? "\n" : "", chunk->stream);
        (void)buf_add_str(&text, chunk->text);
        last = chunk->stream;
    }
    char *readable = buf_steal(&text);
    (void)toolbox_cut(&readable, readable_max(max_answer));
    return readable;
}

static void add_line_end(struct buf *text)
{
    if (text->len && text->data[text->len - 1] != '\n')
        (void)buf_add_char(text, '\n');
}

static void add_files(struct buf *text, const struct report_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        const struct file_entry *file = &files->items[i];
        auto_free char *name = toolbox_line(file->name);
        (void)buf_printf(text, "[file] %s (%s, %lld bytes)\n", name, file->mime_type,
                         (long long)file->size);
    }
}

static void add_overflow(struct buf *text, const struct reply *reply, const struct run_result *run)
{
    for (size_t i = 0; i < reply->result.overflow.count; i++) {
        const struct overflow *overflow = &reply->overflow[i];
        (void)buf_printf(text, "[note] %s%s is in /workspace/%s (%lld bytes, %s)\n",
                         overflow->complete ? "all of " : "the beginning and the end of ",
                         overflow->stream, overflow->name, (long long)overflow->size,
                         overflow->uri);
    }
    if (run->keep_error && !run->session_over)
        (void)buf_printf(text, "[note] the whole output could not be kept as a file: %s\n",
                         run->keep_error);
}

static void add_notes(struct buf *text, const struct reply *reply, const struct run_result *run)
{
    auto_free char *loss = report_loss(run);
    size_t i;
    json_t *note;
    json_array_foreach(json_object_get(run->done, "notes"), i, note)
    {
        if (i >= 20 || !json_is_string(note))
            continue;
        auto_free char *line = toolbox_line(json_string_value(note)); /* may quote the guest */
        (void)buf_printf(text, "[note] %.500s\n", line);
    }
    if (run->displays_lost)
        (void)buf_printf(text, "[note] %zu × displays beyond display_limit: not sent\n",
                         run->displays_lost);
    if (reply->displays.left_out)
        (void)buf_printf(text, "[note] %zu × forms of displays beyond max_answer: not sent\n",
                         reply->displays.left_out);
    if (loss)
        (void)buf_printf(text, "[note] %s\n", loss);
    if (!run->session_over)
        (void)buf_printf(text, "[session_id] %s\n", run->session_id);
}

static json_t *reply_text(const struct reply *reply, const struct run_result *run,
                          size_t max_answer)
{
    const struct execute_result *result = &reply->result;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    auto_free char *output = readable_output(reply, max_answer);
    auto_free char *value = report_shown(run, READABLE_MAX);
    (void)buf_add_str(&text, output);
    add_line_end(&text);
    (void)buf_add_str(&text, value ? value : "");
    add_line_end(&text);
    for (size_t i = 0; i < result->traceback.count; i++)
        (void)buf_printf(&text, "%s\n", result->traceback.items[i]);
    if (result->error && result->traceback.count == 0)
        (void)buf_printf(&text, "[%s] %s\n", result->outcome, result->error);
    else if (!text.len && !run->displays)
        (void)buf_add_str(&text, "[ok] no output\n");
    add_files(&text, &reply->files);
    add_overflow(&text, reply, run);
    add_notes(&text, reply, run);
    return mcp_text(text.data, text.len);
}

/*** The tool ***/

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    struct reply reply;
    (void)data;
    reply_init(&reply, run, box->max_answer);
    mcp_call_add(call, reply_text(&reply, run, box->max_answer));
    (void)report_images(run, box->max_answer, report_add_image, call);
    mcp_call_structured(call, &reply.result);
    reply_done(&reply, run);
    mcp_call_finish(call);
}

static void execute_code(struct mcp_call *call, const void *arguments, void *data)
{
    const struct execute_args *args = arguments;
    const struct toolbox *box = data;
    const struct run_spec spec = {
        .session_id = args->session_id,
        .language = args->language,
        .code = args->code,
        .code_len = strlen(args->code),
        .timeout_ms = args->has_timeout ? (uint64_t)(args->timeout * 1000) : 0,
        .want_files = true,
        .keep_over = readable_max(box->max_answer),
    };
    struct err err = { 0 };
    if (execution_start(call, box, &spec, on_done, NULL, &err) < 0)
        mcp_call_fail(call, "execute_code: %s", err.msg);
}

const struct mcp_tool tool_execute_code = {
    .name = "execute_code",
    .title = "Execute code",
    .description =
        "Runs code in an isolated sandbox and returns what it printed, the value of the last "
        "expression, plots as images, errors, and the files it made in /workspace. Every result "
        "names a session_id: pass it to the next call to keep variables, imports and files (in "
        "bash and sh: directory, exports and files); without it a new session starts. No "
        "network, no input(). Code that fails or runs out of time is still a successful call: "
        "read outcome, error and traceback, and go on in the same session. Very long output is "
        "cut in the middle; overflow then names the file that holds all of it.",
    .input = &execute_input,
    .output = &execute_output,
    .hints = MCP_DESTRUCTIVE, /* of the session's own files, never of the host's */
    .icons = icon_run,
    .call = execute_code,
};
