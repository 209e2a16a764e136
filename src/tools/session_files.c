#include "tools/session_files.h"

#include "base/buf.h"
#include "base/text.h"
#include "mcp/uri_template.h"
#include "tools/mime.h"

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

struct file_entry *session_file_entries(const char *session_id, const struct session_file *files,
                                        size_t count)
{
    struct file_entry *entries = xcalloc(count, sizeof(*entries));
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct file_entry){ .uri = session_file_uri(session_id, files[i].path),
                                          .name = files[i].path,
                                          .mime_type = files[i].type,
                                          .size = files[i].size };
    return entries;
}

void session_file_entries_free(struct file_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((char *)entries[i].uri);
    free(entries);
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

static bool is_shown(const struct link_entry *entry)
{
    enum { ESCAPED = 3, ROOM_FOR_ID = 128 };
    size_t len = strlen(entry->name);
    return entry->type == LINK_FILE && !in_private_directory(entry->name) &&
           ESCAPED * len + ROOM_FOR_ID < URI_MAX && utf8_valid(entry->name, len);
}

static void on_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    struct listing *listing = data;
    size_t shown = 0;
    auto_free struct session_file *files = xcalloc(count, sizeof(*files));
    for (size_t i = 0; i < count; i++) {
        if (!is_shown(&entries[i]))
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
