#include "tools/resources.h"

#include "base/buf.h"
#include "base/text.h"
#include "tools/mime.h"
#include "tools/session_files.h"
#include "tools/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*** resources/list ***/

/* One page under way: session after session, in the order of their ids. */
struct list_call {
    struct mcp_call *call;
    const struct toolbox *box;
    struct session_ids ids;
    size_t at;                   /* in ids */
    char *after_id, *after_path; /* NULL: from the first */
};

static void list_finish(struct list_call *list)
{
    struct mcp_call *call = list->call;
    session_ids_done(&list->ids);
    free(list->after_id);
    free(list->after_path);
    free(list);
    mcp_call_finish(call);
}

static void list_next(struct list_call *list);

static void on_list(int code, const struct session_file *files, size_t count, bool more, void *data)
{
    struct list_call *list = data;
    const char *id = list->ids.items[list->at];
    const char *after = str_eq(list->after_id, id) ? list->after_path : NULL;
    (void)more; /* a session with more than max_list files shows the first */
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (after && strcmp(files[i].path, after) <= 0)
            continue;
        auto_free char *uri = session_file_uri(id, files[i].path);
        const struct mcp_listing listing = {
            .uri = uri, .name = files[i].path, .mime_type = files[i].type, .size = files[i].size
        };
        if (!mcp_call_add_listing(list->call, &listing)) {
            list_finish(list);
            return;
        }
    }
    list->at++;
    list_next(list);
}

static void list_next(struct list_call *list)
{
    for (; list->at < list->ids.count; list->at++) {
        const char *id = list->ids.items[list->at];
        struct err err = { 0 };
        if (list->after_id && strcmp(id, list->after_id) < 0)
            continue;
        if (session_files(list->box->sessions, mcp_call_owner(list->call), id,
                          /* uses= */ false, list->box->max_list, on_list, list, &err) == 0)
            return;
    }
    list_finish(list);
}

static void list_resources(struct mcp_call *call, const char *after, void *data)
{
    struct list_call *list = xcalloc(1, sizeof(*list));
    list->call = call;
    list->box = data;
    list->ids = session_ids(list->box->sessions, mcp_call_owner(call));
    if (after && !session_file_uri_parse(after, &list->after_id, &list->after_path)) {
        session_ids_done(&list->ids);
        free(list);
        mcp_call_error(call, MCP_INVALID_PARAMS, "cursor: not one that this list gave");
        return;
    }
    mcp_call_defer(call, NULL, NULL); /* short and bounded */
    list_next(list);
}

/*** resources/read ***/

struct read_call {
    struct mcp_call *call;
    const struct toolbox *box;
    char *uri, *path;
};

static struct mcp_call *read_call_free(struct read_call *reading)
{
    struct mcp_call *call = reading->call;
    free(reading->uri);
    free(reading->path);
    free(reading);
    return call;
}

static void read_fail(struct read_call *reading, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void read_fail(struct read_call *reading, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *why = xvasprintf(fmt, args);
    va_end(args);
    mcp_call_error(read_call_free(reading), MCP_INTERNAL_ERROR, "%s", why);
}

static void not_found(struct mcp_call *call, const struct toolbox *box, const char *uri,
                      const char *words)
{
    if (box->names_missing)
        mcp_call_not_found_as(call, uri, words);
    else
        mcp_call_not_found(call, uri);
}

static void read_not_found(struct read_call *reading)
{
    auto_free char *uri = xstrdup(reading->uri);
    auto_free char *words = xasprintf("File not found: %s", reading->path);
    const struct toolbox *box = reading->box;
    not_found(read_call_free(reading), box, uri, words);
}

/* Trouble that is the host's or the moment's; everything else means that there is no such file. */
static bool is_trouble(int code)
{
    return code == ETIMEDOUT || code == EIO || code == ENOMEM || code == EAGAIN || code == EMFILE;
}

/* As text if it is for reading and still fits when it is escaped. */
static bool reads_as_text(const struct read_call *reading, const char *type, const char *bytes,
                          size_t len)
{
    return mime_is_text(type) && !memchr(bytes, '\0', len) && utf8_valid(bytes, len) &&
           json_escaped_len(bytes, len) < reading->box->max_answer / 4 * 3;
}

static void on_read(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct read_call *reading = data;
    size_t blob_max = reading->box->max_answer / 16 * 9; /* as base64: three quarters */
    if (code && !is_trouble(code)) {
        read_not_found(reading);
        return;
    }
    if (code) {
        read_fail(reading, "the file could not be read: %s", strerror(code));
        return;
    }
    const char *type = mime_of(reading->path, bytes, len);
    if (len < size)
        read_fail(reading,
                  "the file has %llu bytes, and one answer holds %zu (max_read): read it in parts "
                  "with the tool sandbox_read_file, offset and length",
                  (unsigned long long)size, reading->box->max_read);
    else if (reads_as_text(reading, type, bytes, len)) {
        mcp_call_add_text(reading->call, reading->uri, type, bytes, len);
        mcp_call_finish(read_call_free(reading));
    } else if (len <= blob_max) {
        mcp_call_add_blob(reading->call, reading->uri, type, bytes, len);
        mcp_call_finish(read_call_free(reading));
    } else
        read_fail(reading,
                  "the file has %zu bytes, which do not fit into one answer (max_answer): read it "
                  "in parts with the tool sandbox_read_file, offset and length",
                  len);
}

static void begin_read(struct link *agent, const struct err *err, void *data)
{
    struct read_call *reading = data;
    struct err why = *err;
    if (!agent)
        read_fail(reading, "%s", why.msg);
    else if (link_file_read(agent, reading->path, /* offset= */ 0, reading->box->max_read, on_read,
                            reading, &why) < 0)
        read_not_found(reading); /* a path that cannot be one */
}

static void read_resource(struct mcp_call *call, const char *uri, const char *const vars[],
                          void *data)
{
    const struct toolbox *box = data;
    struct err err = { 0 };
    struct read_call *reading = xcalloc(1, sizeof(*reading));
    *reading = (struct read_call){
        .call = call, .box = box, .uri = xstrdup(uri), .path = xstrdup(vars[1])
    };
    mcp_call_defer(call, NULL, NULL); /* short and bounded */
    int r = session_reach(box->sessions, mcp_call_owner(call), vars[0], begin_read, reading, &err);
    if (r == -ENOENT) {
        auto_free char *words = toolbox_expired(box, vars[0]), *asked = xstrdup(uri);
        not_found(read_call_free(reading), box, asked, words);
    } else if (r < 0) {
        read_fail(reading, "%s", err.msg);
    }
}

/*** completion/complete ***/

struct path_call {
    struct mcp_call *call;
    char *begin;
};

static void on_paths(int code, const struct session_file *files, size_t count, bool more,
                     void *data)
{
    struct path_call *path = data;
    struct mcp_call *call = path->call;
    (void)more;
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (str_has_prefix(files[i].path, path->begin))
            mcp_call_add_completion(call, files[i].path);
    }
    free(path->begin);
    free(path);
    mcp_call_finish(call);
}

static void complete_path(struct mcp_call *call, const struct toolbox *box, const char *session_id,
                          const char *begin)
{
    struct err err = { 0 };
    struct path_call *path = xcalloc(1, sizeof(*path));
    path->call = call;
    path->begin = xstrdup(begin);
    mcp_call_defer(call, NULL, NULL);
    if (session_files(box->sessions, mcp_call_owner(call), session_id,
                      /* uses= */ false, box->max_list, on_paths, path, &err) < 0)
        on_paths(ENOENT, NULL, 0, false, path);
}

static void complete(struct mcp_call *call, const char *name, const char *value,
                     const json_t *known, void *data)
{
    const struct toolbox *box = data;
    const char *session_id = json_str(known, "session_id");
    struct session_ids ids = session_ids(box->sessions, mcp_call_owner(call));
    if (str_eq(name, "session_id")) {
        for (size_t i = 0; i < ids.count; i++) {
            if (str_has_prefix(ids.items[i], value))
                mcp_call_add_completion(call, ids.items[i]);
        }
        mcp_call_finish(call);
    } else if (session_id || ids.count == 1) { /* the only one need not be named */
        complete_path(call, box, session_id ? session_id : ids.items[0], value);
    } else {
        mcp_call_finish(call);
    }
    session_ids_done(&ids);
}

static const struct mcp_template session_files_template = {
    .uri_template = SESSION_URI_TEMPLATE,
    .name = "session-file",
    .title = "File of a session",
    .description =
        "A file below /workspace of one of your sessions: text as text, anything else as "
        "a blob. The path is relative to /workspace.",
    .read = read_resource,
    .complete = complete,
};

void resources_add(struct mcp_server *server, struct toolbox *box)
{
    mcp_server_add_template(server, &session_files_template, box);
    mcp_server_list_resources(server, list_resources, box);
    watch_add_server(box->watch, server);
}
