/*
 * sandbox_read_file, sandbox_write_file, sandbox_list_files: files below /workspace. The work is
 * done inside the sandbox, as the guest's user; no path ever names anything on the host.
 */
#include "tools/file_job.h"
#include "tools/icons.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A list's text gets this part of an answer; the same as JSON, escaped, takes up to twice as much. */
enum { LIST_SHARE = 5 };

static const char *const encodings[] = { "text", "base64", NULL };

/* What went wrong with a path, for the one who wrote it. */
static char *explain(const struct file_job *job, int code)
{
    const char *path = job->wish.path;
    switch (code) {
    case ENOENT:
        return xasprintf("path: no such file in the sandbox: %.200s", path);
    case EISDIR:
        return xasprintf("path: is a directory: %.200s", path);
    case ENOTDIR:
        return xasprintf("path: a part of it is not a directory: %.200s", path);
    case EXDEV:
        return xasprintf("path: leads outside /workspace: %.200s", path);
    case EINVAL:
        return xasprintf("path: not a regular file: %.200s", path);
    case EFBIG:
        return xasprintf("path: too large for one call (limit %zu bytes): %.200s",
                         job->wish.content ? job->box->max_write : job->box->max_read, path);
    case ENOSPC:
        return xasprintf("/workspace is full; nothing was written to %.200s", path);
    case ECANCELED:
        return xstrdup("the session ended meanwhile");
    default:
        return xasprintf("path: %s: %.200s", strerror(code), path);
    }
}

static void file_fail(struct file_job *job, int code, const char *why)
{
    const char *tool = job->task->name;
    auto_free char *text = code ? explain(job, code) : xstrdup(why);
    mcp_call_fail(file_job_end(job), "%s: %s", tool, text);
}

/*** sandbox_read_file ***/

struct read_args {
    const char *path;
    const char *session_id;
    const char *encoding;
    int64_t offset, length;
    bool has_length;
};
static const struct field read_fields[] = {
    FIELD_STR(struct read_args, path, "File to read, relative to /workspace or absolute inside it.",
              .required = true, .min_len = 1, .max_len = FILE_JOB_PATH_MAX),
    FIELD_STR(struct read_args, session_id, "Session whose file it is.", .required = true,
              .min_len = 1, .max_len = SESSION_ID_MAX),
    FIELD_STR(struct read_args, encoding,
              "text: bytes that are not UTF-8 are replaced; base64: exactly the bytes.",
              .choices = encodings, .preset_str = "text"),
    FIELD_INT(struct read_args, offset, "First byte to read, for files that are read in parts.",
              RANGE(0, INT64_MAX), PRESET_INT(0)),
    FIELD_INT(struct read_args, length,
              "Most bytes to read; as many as the server's limit allows if left out.",
              RANGE(1, INT64_MAX), HAS_FLAG(struct read_args, has_length)),
    FIELD_END,
};
static const struct shape read_input = SHAPE(struct read_args, read_fields);

struct read_result {
    const char *session_id;
    const char *path;
    const char *encoding;
    int64_t size;
    int64_t offset, length;
    bool truncated;
};
static const struct field read_result_fields[] = {
    FIELD_STR(struct read_result, session_id, "Session of the file.", .required = true),
    FIELD_STR(struct read_result, path, "As asked for.", .required = true),
    FIELD_STR(struct read_result, encoding, "Of the text content.", .required = true,
              .choices = encodings),
    FIELD_INT(struct read_result, size, "Bytes of the whole file.", .required = true),
    FIELD_INT(struct read_result, offset, "Of the first byte that is here.", .required = true),
    FIELD_INT(struct read_result, length, "Bytes of the file that are here.", .required = true),
    FIELD_BOOL(struct read_result, truncated, "There is more behind: go on at offset + length.",
               .required = true),
    FIELD_END,
};
static const struct shape read_output = SHAPE(struct read_result, read_result_fields);

static void on_read(struct file_job *job, const char *bytes, size_t len, uint64_t size)
{
    uint64_t offset = job->wish.offset;
    len = file_job_add_text(job, bytes, len);
    const struct read_result result = { .session_id = job->session_id,
                                        .path = job->wish.path,
                                        .encoding = job->wish.base64 ? "base64" : "text",
                                        .size = (int64_t)size,
                                        .offset = (int64_t)offset,
                                        .length = (int64_t)len,
                                        .truncated = offset + len < size };
    if (result.truncated)
        mcp_call_add(job->call, mcp_textf("[note] only %s%zu of %llu bytes; go on with offset %llu",
                                          offset ? "" : "the first ", len, (unsigned long long)size,
                                          (unsigned long long)offset + (unsigned long long)len));
    mcp_call_structured(job->call, &result);
    mcp_call_finish(file_job_end(job));
}

static void read_file(struct mcp_call *call, const void *arguments, void *data)
{
    static const struct file_task task = { "sandbox_read_file", file_fail, .on_read = on_read };
    const struct read_args *args = arguments;
    const struct file_wish wish = { .session_id = args->session_id,
                                    .path = args->path,
                                    .offset = (uint64_t)args->offset,
                                    .length = args->has_length ? (uint64_t)args->length : 0,
                                    .base64 = str_eq(args->encoding, "base64") };
    file_job_start(call, data, &task, &wish);
}

const struct mcp_tool tool_read_file = {
    .name = "sandbox_read_file",
    .title = "Read a file",
    .description = "Reads a file from /workspace of a session: text, or base64 for anything else. "
                   "A file that is "
                   "too long for one answer is read in parts with offset and length.",
    .input = &read_input,
    .output = &read_output,
    .hints = MCP_READ_ONLY,
    .icons = icon_file,
    .call = read_file,
};

/*** sandbox_write_file ***/

struct write_args {
    const char *path;
    const char *content;
    const char *session_id;
    const char *encoding;
};
static const struct field write_fields[] = {
    FIELD_STR(struct write_args, path,
              "File to write, relative to /workspace or absolute inside it. Folders are made.",
              .required = true, .min_len = 1, .max_len = FILE_JOB_PATH_MAX),
    FIELD_STR(struct write_args, content, "What it shall contain.", .required = true),
    FIELD_STR(struct write_args, session_id,
              "Session to write in. Leave out (or \"\" or \"0\") to start a new session.",
              .max_len = SESSION_ID_MAX),
    FIELD_STR(struct write_args, encoding, "text, or base64 for any bytes.", .choices = encodings,
              .preset_str = "text"),
    FIELD_END,
};
static const struct shape write_input = SHAPE(struct write_args, write_fields);

struct write_result {
    const char *session_id;
    const char *path;
    int64_t size;
};
static const struct field write_result_fields[] = {
    FIELD_STR(struct write_result, session_id, "Use it to go on in this session.",
              .required = true),
    FIELD_STR(struct write_result, path, "As asked for.", .required = true),
    FIELD_INT(struct write_result, size, "Bytes written.", .required = true),
    FIELD_END,
};
static const struct shape write_output = SHAPE(struct write_result, write_result_fields);

static void on_written(struct file_job *job)
{
    const struct file_wish *wish = &job->wish;
    const struct write_result result = { .session_id = job->session_id,
                                         .path = wish->path,
                                         .size = (int64_t)wish->content_len };
    mcp_call_add(job->call, mcp_textf("Wrote %zu bytes to %s\n[session_id] %s\n", wish->content_len,
                                      wish->path, job->session_id));
    mcp_call_structured(job->call, &result);
    mcp_call_finish(file_job_end(job));
}

static void write_file(struct mcp_call *call, const void *arguments, void *data)
{
    static const struct file_task task = { "sandbox_write_file", file_fail,
                                           .on_written = on_written };
    const struct write_args *args = arguments;
    const struct toolbox *box = data;
    bool fresh = !args->session_id || !*args->session_id || str_eq(args->session_id, "0");
    struct file_wish wish = { .session_id = fresh ? NULL : args->session_id,
                              .path = args->path,
                              .content = args->content,
                              .content_len = strlen(args->content) };
    auto_buf bytes = BUF_INIT(BUF_NO_CEILING);
    if (str_eq(args->encoding, "base64")) {
        if (base64_decode(args->content, wish.content_len, &bytes) < 0) {
            mcp_call_fail(call, "sandbox_write_file: content: must be standard base64 when "
                                "encoding is base64");
            return;
        }
        wish.content_len = bytes.len;
        wish.content = wish.made_content = buf_steal(&bytes);
    }
    file_job_start(call, box, &task, &wish);
}

const struct mcp_tool tool_write_file = {
    .name = "sandbox_write_file",
    .title = "Write a file",
    .description =
        "Writes a file in /workspace of a session, whole or not at all; what was there is "
        "replaced, "
        "folders are made. Code of the same session finds it there. Without a session_id it starts "
        "a session and returns its id.",
    .input = &write_input,
    .output = &write_output,
    .hints = MCP_DESTRUCTIVE | MCP_IDEMPOTENT,
    .icons = icon_file,
    .call = write_file,
};

/*** sandbox_list_files ***/

struct list_args {
    const char *path;
    const char *session_id;
    bool recursive;
};
static const struct field list_fields[] = {
    FIELD_STR(struct list_args, path, "Directory, relative to /workspace or absolute inside it.",
              .max_len = FILE_JOB_PATH_MAX, .preset_str = "/workspace"),
    FIELD_STR(struct list_args, session_id, "Session whose files they are.", .required = true,
              .min_len = 1, .max_len = SESSION_ID_MAX),
    FIELD_BOOL(struct list_args, recursive, "Everything below, too.", PRESET_BOOL(false)),
    FIELD_END,
};
static const struct shape list_input = SHAPE(struct list_args, list_fields);

struct list_entry {
    const char *name;
    const char *type;
    int64_t size;
};
static const char *const entry_types[] = { "file", "directory", "symlink", "other", NULL };
static const struct field entry_fields[] = {
    FIELD_STR(struct list_entry, name, "Relative to the listed directory.", .required = true),
    FIELD_STR(struct list_entry, type, "What it is.", .required = true, .choices = entry_types),
    FIELD_INT(struct list_entry, size, "Bytes.", .required = true),
    FIELD_END,
};
static const struct shape entry_shape = SHAPE(struct list_entry, entry_fields);

struct list_result {
    const char *session_id;
    const char *path;
    struct obj_list entries;
    bool truncated;
};
static const struct field list_result_fields[] = {
    FIELD_STR(struct list_result, session_id, "Session of the files.", .required = true),
    FIELD_STR(struct list_result, path, "As asked for.", .required = true),
    FIELD_OBJECTS(struct list_result, entries, "Sorted by name.", &entry_shape, .required = true),
    FIELD_BOOL(struct list_result, truncated, "There are more than are shown.", .required = true),
    FIELD_END,
};
static const struct shape list_output = SHAPE(struct list_result, list_result_fields);

static void on_listed(struct file_job *job, const struct link_entry *entries, size_t count,
                      bool more)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    struct list_entry *items = xcalloc(count, sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct list_entry){ .name = toolbox_line(entries[i].name),
                                        .type = entry_types[entries[i].type],
                                        .size = (int64_t)entries[i].size };
        (void)buf_printf(&text, "%-9s %12lld  %s\n", items[i].type, (long long)items[i].size,
                         items[i].name);
        if (text.len > job->box->max_answer / LIST_SHARE && i + 1 < count) {
            count = i + 1; /* names can be long; they are in the answer twice */
            more = true;
        }
    }
    if (count == 0)
        (void)buf_add_str(&text, "(empty)\n");
    if (more)
        (void)buf_printf(&text, "[note] only the first %zu entries\n", count);
    const struct list_result result = { .session_id = job->session_id,
                                        .path = job->wish.path,
                                        .entries = { .items = items, .count = count },
                                        .truncated = more };
    mcp_call_add(job->call, mcp_text(text.data, text.len));
    mcp_call_structured(job->call, &result);
    for (size_t i = 0; i < count; i++)
        free((char *)items[i].name);
    free(items);
    mcp_call_finish(file_job_end(job));
}

static void list_files(struct mcp_call *call, const void *arguments, void *data)
{
    static const struct file_task task = { "sandbox_list_files", file_fail,
                                           .on_listed = on_listed };
    const struct list_args *args = arguments;
    const struct file_wish wish = { .session_id = args->session_id,
                                    .path = args->path,
                                    .recursive = args->recursive };
    file_job_start(call, data, &task, &wish);
}

const struct mcp_tool tool_list_files = {
    .name = "sandbox_list_files",
    .title = "List files",
    .description = "Lists one directory of /workspace of a session, or all below it: files, "
                   "directories, links, "
                   "with their sizes. For all files with their uris see list_session_files.",
    .input = &list_input,
    .output = &list_output,
    .hints = MCP_READ_ONLY,
    .icons = icon_files,
    .call = list_files,
};
