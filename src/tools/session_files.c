#include "tools/session_files.h"

#include "base/buf.h"
#include "base/text.h"
#include "mcp/uri_template.h"
#include "tools/mime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Looked at before what is not shown is left out. */
enum { SCAN_MAX = 20000 };

static const struct field entry_fields[] = {
    FIELD_STR(struct file_entry, uri,
              "The file as a resource: resources/read gives its contents, and so does "
              "sandbox_read_file by name.",
              .required = true),
    FIELD_STR(struct file_entry, name, "Path below /workspace.", .required = true),
    FIELD_STR(struct file_entry, mime_type, "Type, as far as it is known.", .required = true),
    FIELD_INT(struct file_entry, size, "Bytes.", .required = true),
    FIELD_END,
};
const struct shape file_entry_shape = SHAPE(struct file_entry, entry_fields);

/*** URIs ***/

char *session_file_uri(const char *session_id, const char *path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    auto_buf uri = BUF_INIT(BUF_NO_CEILING);
    (void)buf_printf(&uri, "kernel://%s/", session_id);
    for (; *path; path++) {
        if (strchr(plain, *path))
            (void)buf_add_char(&uri, *path);
        else
            (void)buf_printf(&uri, "%%%02X", (unsigned char)*path);
    }
    return buf_steal(&uri);
}

bool session_file_uri_parse(const char *uri, char **ret_session_id, char **ret_path)
{
    struct uri_match match;
    if (uri_template_match(SESSION_URI_TEMPLATE, uri, &match) < 0)
        return false;
    *ret_session_id = steal_ptr(&match.values[0]);
    *ret_path = steal_ptr(&match.values[1]);
    uri_match_done(&match);
    return true;
}

/*** Lists ***/

struct listing {
    size_t max;
    session_files_fn *on_files;
    void *data;
};

static bool is_private(const char *name, size_t len)
{
    static const char *const names[] = { "__pycache__", "node_modules", "site-packages" };
    if (name[0] == '.')
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return true;
    }
    return false;
}

static bool in_private_directory(const char *path)
{
    const char *slash;
    for (; (slash = strchr(path, '/')); path = slash + 1) {
        if (is_private(path, (size_t)(slash - path)))
            return true;
    }
    return false;
}

bool session_file_is_shown(const char *path)
{
    enum { ESCAPED = 3, ROOM_FOR_ID = 128 };
    size_t len = strlen(path);
    return !in_private_directory(path) && ESCAPED * len + ROOM_FOR_ID < URI_MAX &&
           utf8_valid(path, len);
}

static void on_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    struct listing *listing = data;
    size_t shown = 0;
    auto_free struct session_file *files = xcalloc(count, sizeof(*files));
    for (size_t i = 0; i < count; i++) {
        if (entries[i].type != LINK_FILE || !session_file_is_shown(entries[i].name))
            continue;
        if (shown == listing->max) {
            more = true;
            break;
        }
        const char *type = mime_of_name(entries[i].name);
        files[shown++] = (struct session_file){ .path = entries[i].name,
                                                .type = type ? type : "application/octet-stream",
                                                .size = (int64_t)entries[i].size,
                                                .mtime_ns = entries[i].mtime_ns };
    }
    session_files_fn *on_files = listing->on_files;
    void *their_data = listing->data;
    free(listing);
    on_files(code, files, shown, more, their_data);
}

int session_files(struct sessions *sessions, const char *owner, const char *session_id, bool uses,
                  size_t max, session_files_fn *on_files, void *data, struct err *err)
{
    struct listing *listing = xcalloc(1, sizeof(*listing));
    *listing = (struct listing){ .max = max, .on_files = on_files, .data = data };
    int r = session_list(sessions, owner, session_id, uses, SCAN_MAX, on_list, listing, err);
    if (r < 0)
        free(listing);
    return r;
}

/*** For a call ***/

struct list_call {
    struct mcp_call *call;
    const struct toolbox *box;
    const char *session_id;
    session_listed_fn *on_listed;
};

static void list_fail(const struct list_call *list, int code, const char *why)
{
    const struct session_listing listing = { .session_id = list->session_id,
                                             .code = code,
                                             .error = why };
    list->on_listed(list->call, list->box, &listing);
}

static void on_files(int code, const struct session_file *files, size_t count, bool more,
                     void *data)
{
    const struct list_call list = *(struct list_call *)data;
    free(data);
    if (code) {
        list_fail(&list, code, code == ECANCELED ? "the session ended meanwhile" : strerror(code));
        return;
    }
    struct file_entry *entries = xcalloc(count, sizeof(*entries));
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct file_entry){ .uri = session_file_uri(list.session_id, files[i].path),
                                          .name = files[i].path,
                                          .mime_type = files[i].type,
                                          .size = files[i].size };
    const struct session_listing listing = {
        .session_id = list.session_id, .files = entries, .count = count, .more = more
    };
    list.on_listed(list.call, list.box, &listing);
    for (size_t i = 0; i < count; i++)
        free((char *)entries[i].uri);
    free(entries);
}

void session_list_for_call(struct mcp_call *call, const struct toolbox *box, const char *session_id,
                           session_listed_fn *on_listed)
{
    struct list_call *list = xcalloc(1, sizeof(*list));
    struct err err = { 0 };
    *list = (struct list_call){ call, box, session_id, on_listed };
    mcp_call_defer(call, NULL, NULL); /* file work is short and bounded */
    if (session_files(box->sessions, mcp_call_owner(call), session_id,
                      /* uses= */ true, box->max_list, on_files, list, &err) < 0) {
        list_fail(list, err.code, err.msg);
        free(list);
    }
}
