#include "packages/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[] = "BJPKG1\n";
enum { MAGIC_LEN = 7, HEAD_LEN = 1 + 2 + 8 };

void unpack_init(struct unpack *unpack, int root, uint64_t max_bytes, uint64_t max_files)
{
    *unpack = (struct unpack){
        .root = root,
        .max_bytes = max_bytes,
        .max_files = max_files,
        .head = BUF_INIT(HEAD_LEN + UNPACK_PATH_MAX),
        .file = -1,
    };
}

void unpack_done(struct unpack *unpack)
{
    buf_done(&unpack->head);
    fd_closep(&unpack->file);
    unpack->file = -1;
}

static int malformed(struct err *err)
{
    return err_set(err, EBADMSG, "the installer's result is malformed");
}

static uint64_t number(const char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | (unsigned char)at[i - 1];
    return value;
}

/* Whatever the umask: guests may have another user id. */
static int make_directory(int dir, const char *name, struct err *err)
{
    if (mkdirat(dir, name, 0755) < 0)
        return errno == EEXIST ? 0 : err_sys(err, errno, "unpack: make a directory");
    return fchmodat(dir, name, 0755, 0) < 0 ? err_sys(err, errno, "unpack: make a directory") : 0;
}

/* The last part of `path`, and the directory that holds it, made if need be; or NULL and err. The path is
 * cut into its parts. Nothing but what was made here is ever in the way, so no link can lead elsewhere. */
static const char *open_parent(int root, char *path, int *ret_dir, struct err *err)
{
    auto_fd dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    size_t depth = 0;
    for (char *slash; dir >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        *slash = '\0';
        if (!*path || str_eq(path, ".") || str_eq(path, "..") || ++depth > UNPACK_DEPTH_MAX) {
            (void)malformed(err);
            return NULL;
        }
        if (make_directory(dir, path, err) < 0)
            return NULL;
        int below = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int code = errno;
        close(dir);
        dir = below;
        errno = code;
    }
    if (dir < 0)
        (void)err_sys(err, errno, "unpack: open a directory");
    else if (!*path || str_eq(path, ".") || str_eq(path, ".."))
        (void)malformed(err);
    else
        *ret_dir = steal_fd(&dir);
    return *ret_dir < 0 ? NULL : path;
}

static int begin_entry(struct unpack *unpack, char kind, char *path, uint64_t size, struct err *err)
{
    auto_fd dir = -1;
    const char *name = open_parent(unpack->root, path, &dir, err);
    if (!name)
        return -err->code;
    if (kind == 'd')
        return make_directory(dir, name, err);
    unpack->file = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (unpack->file < 0 || fchmod(unpack->file, kind == 'x' ? 0755 : 0644) < 0)
        return err_sys(err, errno, "unpack: make a file");
    unpack->left = size;
    return 0;
}

/* A head is complete. */
static int on_head(struct unpack *unpack, struct err *err)
{
    char *head = unpack->head.data;
    char kind = head[0];
    uint64_t size = number(head + 3, 8);
    size_t path_len = unpack->head.len - HEAD_LEN;
    if (kind == 'e') {
        unpack->ended = true;
        return 0;
    }
    if ((kind != 'd' && kind != 'f' && kind != 'x') || (kind == 'd' && size) || !path_len ||
        memchr(head + HEAD_LEN, '\0', path_len))
        return malformed(err);
    if (++unpack->files > unpack->max_files)
        return err_set(err, E2BIG,
                       "the packages have more than %llu files, the limit (package_max_files)",
                       (unsigned long long)unpack->max_files);
    if (size > unpack->max_bytes - unpack->bytes)
        return err_set(err, E2BIG,
                       "the packages take more than %llu bytes, the limit (package_max_bytes)",
                       (unsigned long long)unpack->max_bytes);
    unpack->bytes += size;
    return begin_entry(unpack, kind, head + HEAD_LEN, size, err);
}

/* How many bytes the head that has begun still lacks; -1: it can be no head. */
static ssize_t head_lacks(const struct unpack *unpack)
{
    const struct buf *head = &unpack->head;
    if (!unpack->begun)
        return (ssize_t)(MAGIC_LEN - head->len);
    if (head->len < HEAD_LEN)
        return (ssize_t)(HEAD_LEN - head->len);
    uint64_t path_len = number(head->data + 1, 2);
    return path_len > UNPACK_PATH_MAX ? -1 : (ssize_t)(HEAD_LEN + path_len - head->len);
}

static int feed_head(struct unpack *unpack, const char *bytes, size_t len, size_t *ret_used,
                     struct err *err)
{
    ssize_t lacks = head_lacks(unpack);
    size_t take = lacks > 0 && (size_t)lacks < len ? (size_t)lacks : len;
    if (lacks < 0 || unpack->ended || buf_add(&unpack->head, bytes, take) < 0)
        return malformed(err);
    *ret_used = take;
    if (head_lacks(unpack) != 0)
        return 0;
    int r = 0;
    if (unpack->begun)
        r = on_head(unpack, err);
    else if (memcmp(unpack->head.data, MAGIC, MAGIC_LEN) != 0)
        r = malformed(err);
    unpack->begun = true;
    buf_clear(&unpack->head);
    return r;
}

static int feed_file(struct unpack *unpack, const char *bytes, size_t len, size_t *ret_used,
                     struct err *err)
{
    size_t want = unpack->left < len ? (size_t)unpack->left : len;
    ssize_t n = want ? write(unpack->file, bytes, want) : 0;
    if (n < 0 && errno != EINTR)
        return err_sys(err, errno, "unpack: write");
    *ret_used = n > 0 ? (size_t)n : 0;
    unpack->left -= *ret_used;
    return 0;
}

int unpack_feed(struct unpack *unpack, const char *bytes, size_t len, struct err *err)
{
    while (len > 0) {
        size_t used = 0;
        int r = unpack->file >= 0 ? feed_file(unpack, bytes, len, &used, err)
                                  : feed_head(unpack, bytes, len, &used, err);
        if (r < 0)
            return r;
        if (unpack->file >= 0 && unpack->left == 0)
            close(steal_fd(&unpack->file));
        bytes += used;
        len -= used;
    }
    return 0;
}

int unpack_end(const struct unpack *unpack, struct err *err)
{
    return unpack->ended && unpack->head.len == 0 && unpack->file < 0 ? 0 : malformed(err);
}
