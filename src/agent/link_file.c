/*
 * Work on files, as the server sees it. At most FRAME_FILES_MAX pieces are with the agent, the others
 * wait in order. A piece that the end of a run cut off (EAGAIN) is asked for again from the beginning,
 * unless asking twice could do harm.
 */
#include "agent/link_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct link_file {
    struct list link;
    uint32_t number, first_number;
    unsigned tries;
    uint64_t sent_ms;
    struct frame_file request; /* its paths are ours */
    char *path, *target;
    char *content;
    size_t content_sent;
    bool content_asked;

    struct buf got; /* content, or entries as they came */
    size_t n_entries;

    link_done_fn *on_done;
    link_data_fn *on_data;
    link_list_fn *on_list;
    void *data;
};

static void file_free(struct link_file *file)
{
    list_remove(&file->link);
    free(file->path);
    free(file->target);
    free(file->content);
    buf_done(&file->got);
    free(file);
}

/*** asking ***/

static void send_content(struct link_file *file, struct buf *out)
{
    size_t left = (size_t)file->request.len - file->content_sent;
    if (!file->content_asked || !left)
        return;
    size_t len = left < FRAME_PAYLOAD_MAX ? left : FRAME_PAYLOAD_MAX;
    link_add_frame(out, FRAME_FILE_PUT, file->number, file->content + file->content_sent, len);
    file->content_sent += len;
    file->content_asked = false;
}

static void send_file(struct link *link, struct link_file *file)
{
    file->number = ++link->file_number;
    if (!file->tries++)
        file->first_number = file->number;
    if (file->request.op == FILE_WRITE)
        file->request.offset = file->first_number;
    file->sent_ms = clock_ms();
    file->content_sent = 0;
    file->content_asked = true;
    char payload[FRAME_FILE_SIZE + 2 * FRAME_PATH_MAX];
    frame_file_put(payload, &file->request);
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_frame(&out, FRAME_FILE, file->number, payload,
                   FRAME_FILE_SIZE + file->request.path_len + file->request.target_len);
    send_content(file, &out);
    link_write(link, &out);
}

static void send_next(struct link *link)
{
    while (link->n_files < FRAME_FILES_MAX && !list_empty(&link->files_waiting)) {
        struct link_file *file = list_first(struct link_file, &link->files_waiting, link);
        list_remove(&file->link);
        link->n_waiting--;
        list_add_tail(&link->files, &file->link);
        link->n_files++;
        send_file(link, file);
    }
}

static int add_file(struct link *link, const struct frame_file *request, const char *path,
                    const char *target, struct link_file **ret, struct err *err)
{
    if (!link->stream)
        return err_set(err, EPIPE, "the sandbox is gone");
    if (strlen(path) > FRAME_PATH_MAX || strlen(target) > FRAME_PATH_MAX)
        return err_sys(err, ENAMETOOLONG, "path");
    if (link->n_waiting == LINK_FILES_QUEUE)
        return err_set(err, EBUSY, "too much file work is waiting");
    struct link_file *file = xcalloc(1, sizeof(*file));
    file->request = *request;
    file->request.path = file->path = xstrdup(path);
    file->request.path_len = strlen(path);
    file->request.target = file->target = xstrdup(target);
    file->request.target_len = strlen(target);
    file->got = BUF_INIT(0);
    list_add_tail(&link->files_waiting, &file->link);
    link->n_waiting++;
    *ret = file;
    return 0;
}

int link_file_read(struct link *link, const char *path, uint64_t offset, uint64_t max,
                   link_data_fn *on_data, void *data, struct err *err)
{
    struct link_file *file;
    struct frame_file request = { .op = FILE_READ, .offset = offset, .max = max };
    if (max > BUF_NO_CEILING)
        return err_sys(err, EFBIG, "read");
    int r = add_file(link, &request, path, "", &file, err);
    if (r < 0)
        return r;
    file->got.max = (size_t)max;
    file->on_data = on_data;
    file->data = data;
    send_next(link);
    return 0;
}

/* Work with content: what it is about is in it, or in the path. */
static int add_content(struct link *link, enum frame_file_op op, const char *path,
                       const char *bytes, size_t len, struct link_file **ret, struct err *err)
{
    struct frame_file request = { .op = op, .len = len };
    int r = add_file(link, &request, path, "", ret, err);
    if (r < 0)
        return r;
    (*ret)->content = xmalloc(len);
    if (len)
        memcpy((*ret)->content, bytes, len);
    return 0;
}

/* Its content goes there, and all that comes back is that it is done. */
static int put_content(struct link *link, enum frame_file_op op, const char *path,
                       const char *bytes, size_t len, link_done_fn *on_done, void *data,
                       struct err *err)
{
    struct link_file *file;
    int r = add_content(link, op, path, bytes, len, &file, err);
    if (r < 0)
        return r;
    file->on_done = on_done;
    file->data = data;
    send_next(link);
    return 0;
}

int link_file_write(struct link *link, const char *path, const char *bytes, size_t len,
                    link_done_fn *on_done, void *data, struct err *err)
{
    return put_content(link, FILE_WRITE, path, bytes, len, on_done, data, err);
}

int link_file_pack(struct link *link, const char *content, size_t len, uint64_t max,
                   link_data_fn *on_data, void *data, struct err *err)
{
    struct link_file *file;
    if (max > BUF_NO_CEILING)
        return err_sys(err, EFBIG, "pack");
    int r = add_content(link, FILE_PACK, "", content, len, &file, err);
    if (r < 0)
        return r;
    file->got.max = (size_t)max;
    file->on_data = on_data;
    file->data = data;
    send_next(link);
    return 0;
}

int link_file_unpack(struct link *link, const char *content, size_t len, link_done_fn *on_done,
                     void *data, struct err *err)
{
    return put_content(link, FILE_UNPACK, "", content, len, on_done, data, err);
}

static int add_list(struct link *link, const struct frame_file *request, const char *path,
                    link_list_fn *on_list, void *data, struct err *err)
{
    struct link_file *file;
    int r = add_file(link, request, path, "", &file, err);
    if (r < 0)
        return r;
    file->got.max = FRAME_LIST_MAX;
    file->on_list = on_list;
    file->data = data;
    send_next(link);
    return 0;
}

int link_file_list(struct link *link, const char *path, bool recursive, size_t max_entries,
                   link_list_fn *on_list, void *data, struct err *err)
{
    size_t max = max_entries < FRAME_ENTRIES_MAX ? max_entries : FRAME_ENTRIES_MAX;
    struct frame_file request = { .op = FILE_LIST, .recursive = recursive, .max = max };
    return add_list(link, &request, path, on_list, data, err);
}

int link_file_stat(struct link *link, const char *path, link_list_fn *on_list, void *data,
                   struct err *err)
{
    struct frame_file request = { .op = FILE_STAT, .max = 1 };
    return add_list(link, &request, path, on_list, data, err);
}

static int add_plain(struct link *link, const struct frame_file *request, const char *path,
                     const char *target, link_done_fn *on_done, void *data, struct err *err)
{
    struct link_file *file;
    int r = add_file(link, request, path, target, &file, err);
    if (r < 0)
        return r;
    file->on_done = on_done;
    file->data = data;
    send_next(link);
    return 0;
}

int link_file_delete(struct link *link, const char *path, bool recursive, link_done_fn *on_done,
                     void *data, struct err *err)
{
    struct frame_file request = { .op = FILE_DELETE, .recursive = recursive };
    return add_plain(link, &request, path, "", on_done, data, err);
}

int link_file_move(struct link *link, const char *from, const char *to, link_done_fn *on_done,
                   void *data, struct err *err)
{
    struct frame_file request = { .op = FILE_MOVE };
    return add_plain(link, &request, from, to, on_done, data, err);
}

int link_file_space(struct link *link, link_data_fn *on_data, void *data, struct err *err)
{
    struct link_file *file;
    struct frame_file request = { .op = FILE_SPACE };
    int r = add_file(link, &request, "", "", &file, err);
    if (r < 0)
        return r;
    file->on_data = on_data;
    file->data = data;
    send_next(link);
    return 0;
}

/*** lists ***/

/* Names below the listed directory: no way up, no way to the top, nothing empty. */
static bool name_ok(const struct link_file *file, const struct frame_entry *entry)
{
    if (file->request.op == FILE_STAT && entry->name_len == 1 && entry->name[0] == '.')
        return true;
    for (size_t at = 0; at <= entry->name_len;) {
        const char *part = entry->name + at;
        const char *slash = memchr(part, '/', entry->name_len - at);
        size_t len = slash ? (size_t)(slash - part) : entry->name_len - at;
        if (!len || len > FRAME_NAME_MAX || (len == 1 && part[0] == '.') ||
            (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        at += len + 1;
    }
    return !memchr(entry->name, '/', entry->name_len) || file->request.recursive;
}

static const char *take_entries(struct link_file *file, const struct frame *frame)
{
    for (size_t at = 0; at < frame->len;) {
        struct frame_entry entry;
        int n = frame_entry_get(frame->payload + at, frame->len - at, &entry);
        if (n < 0 || !name_ok(file, &entry))
            return "the agent sent a list that is none";
        if (++file->n_entries > file->request.max)
            return "the agent sent a longer list than asked for";
        at += (size_t)n;
    }
    return buf_add(&file->got, frame->payload, frame->len) < 0 ? "the agent sent too long a list"
                                                               : NULL;
}

static int compare_names(const struct frame_entry *a, const struct frame_entry *b)
{
    size_t len = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, len);
    return order ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

/* The entries have been checked when they came; what is left is their order. The bytes become the
 * names: each is moved down over what stood before it, which leaves place for its NUL. */
static bool unpack(struct link_file *file, struct link_entry *entries)
{
    struct frame_entry last = { .name = "" };
    char *to = file->got.data;
    for (size_t at = 0, i = 0; i < file->n_entries; i++) {
        struct frame_entry entry;
        int n = frame_entry_get(file->got.data + at, file->got.len - at, &entry);
        assert(n > 0);
        at += (size_t)n;
        if (compare_names(&last, &entry) >= 0)
            return false;
        memmove(to, entry.name, entry.name_len);
        to[entry.name_len] = '\0';
        entries[i] = (struct link_entry){
            .name = to,
            .type = (enum link_file_type)entry.type,
            .size = entry.size,
            .mtime_ns = entry.mtime_ns,
            .ctime_ns = entry.ctime_ns,
            .mode = entry.mode,
        };
        last = (struct frame_entry){ .name = to, .name_len = entry.name_len };
        to += entry.name_len + 1;
    }
    return true;
}
_Static_assert((int)LINK_OTHER == (int)ENTRY_OTHER, "the two lists of types are one");

/*** answers ***/

/* Tells who asked, and forgets it. The callback may ask for more, or free the link. */
static void finish(struct link *link, struct link_file *file, const struct frame_file_end *end,
                   const struct link_entry *entries)
{
    list_remove(&file->link);
    int code = (int)end->code;
    if (file->on_done)
        file->on_done(code, file->data);
    if (file->on_list)
        file->on_list(code, code ? NULL : entries, code ? 0 : file->n_entries, end->more,
                      file->data);
    if (file->on_data && file->request.op == FILE_SPACE)
        file->on_data(code, NULL, (size_t)end->extra, end->size, file->data);
    else if (file->on_data)
        file->on_data(code, code ? NULL : buf_str(&file->got), code ? 0 : file->got.len, end->size,
                      file->data);
    file_free(file);
    if (link->stream)
        send_next(link);
}

static bool try_again(const struct link_file *file, const struct frame_file_end *end)
{
    return end->code == EAGAIN && file->tries < LINK_FILE_TRIES &&
           file->request.op != FILE_DELETE && file->request.op != FILE_MOVE;
}

static const char *take_end(struct link *link, struct link_file *file, const struct frame *frame)
{
    struct frame_file_end end;
    if (frame_file_end_get(frame, &end) < 0)
        return "the agent sent an end that is none";
    if (try_again(file, &end)) {
        buf_clear(&file->got);
        file->n_entries = 0;
        send_file(link, file);
        return NULL;
    }
    auto_free struct link_entry *entries = NULL;
    if (file->on_list && end.code == 0) {
        entries = xcalloc(file->n_entries, sizeof(*entries));
        if (end.size != file->n_entries || (file->request.op == FILE_STAT && end.size != 1) ||
            !unpack(file, entries))
            return "the agent sent a list that is none";
    }
    if (end.code == 0 && file->content_sent < file->request.len)
        return "the agent claims to have written what it has not got";
    link->n_files--;
    finish(link, file, &end, entries);
    return NULL;
}

static const char *take_data(struct link_file *file, const struct frame *frame)
{
    if (!frame->len)
        return "the agent sent an empty piece of a file";
    if (file->on_list)
        return take_entries(file, frame);
    return buf_add(&file->got, frame->payload, frame->len) < 0
               ? "the agent sent more of a file than asked for"
               : NULL;
}

static const char *take_more(struct link *link, struct link_file *file, const struct frame *frame)
{
    if (frame->len || file->content_asked || file->content_sent == file->request.len)
        return "the agent asked for content that there is not";
    file->content_asked = true;
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    send_content(file, &out);
    link_write(link, &out);
    return NULL;
}

const char *link_file_take(struct link *link, const struct frame *frame)
{
    struct link_file *file = NULL;
    list_each (struct link_file, one, &link->files, link)
        if (one->number == frame->number)
            file = one;
    if (!file)
        return "the agent spoke of file work that is not";
    switch (frame->type) {
    case FRAME_FILE_DATA:
        return take_data(file, frame);
    case FRAME_FILE_MORE:
        return take_more(link, file, frame);
    default:
        return take_end(link, file, frame);
    }
}

static void end_all(struct link *link, struct list *list, int code)
{
    struct frame_file_end end = { .code = (uint32_t)code };
    while (!list_empty(list))
        finish(link, list_first(struct link_file, list, link), &end, NULL);
}

void link_file_broken(struct link *link, int code)
{
    link->n_files = link->n_waiting = 0;
    end_all(link, &link->files, code);
    end_all(link, &link->files_waiting, code);
}

bool link_file_overdue(const struct link *link)
{
    uint64_t now = clock_ms();
    list_each (struct link_file, file, &link->files, link)
        if (now - file->sent_ms > LINK_PATIENCE_MS)
            return true;
    return false;
}
