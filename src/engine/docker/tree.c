#include "engine/docker/tree.h"

#include "engine/docker/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096 };

void tree_init(struct tree *tree, const struct tree_plan *plan)
{
    *tree = (struct tree){ .plan = *plan,
                           .path = BUF_INIT(PATH_BYTES_MAX),
                           .head = BUF_INIT(BUF_NO_CEILING),
                           .file = -1 };
}

void tree_done(struct tree *tree)
{
    while (tree->depth)
        (void)closedir(tree->open[--tree->depth]);
    fd_closep(&tree->file);
    tree->file = -1;
    buf_done(&tree->path);
    buf_done(&tree->head);
}

void tree_rewind(struct tree *tree)
{
    const struct tree_plan plan = tree->plan;
    tree_done(tree);
    tree_init(tree, &plan);
}

/*** Entries ***/

static int enter(struct tree *tree, int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *open = fd < 0 ? NULL : fdopendir(fd);
    if (open && tree->depth < TREE_DEPTH_MAX) {
        tree->open[tree->depth++] = open;
        return 0;
    }
    int code = open ? ELOOP : errno;
    if (open)
        (void)closedir(open);
    else if (fd >= 0)
        close(fd);
    return err_sys(&tree->err, code, "read %s", tree->path.data);
}

static void put(struct tree *tree, char type, unsigned mode, const struct stat *st)
{
    tar_head(&tree->head, &(struct tar_entry){ .name = buf_str(&tree->path),
                                               .type = type,
                                               .mode = mode,
                                               .size = type == '0' ? (uint64_t)st->st_size : 0,
                                               .mtime = st->st_mtim.tv_sec });
}

static int begin(struct tree *tree)
{
    struct stat st;
    tree->begun = true;
    (void)buf_add(&tree->head, tree->plan.before->data, tree->plan.before->len);
    (void)buf_add_str(&tree->path, tree->plan.prefix);
    if (fstat(tree->plan.root, &st) < 0)
        return err_sys(&tree->err, errno, "read %s", tree->plan.prefix);
    put(tree, '5', 0755, &st);
    return enter(tree, tree->plan.root, ".");
}

/* One level up; the last is the end of all. */
static void leave(struct tree *tree)
{
    const char *slash = strrchr(tree->path.data, '/');
    (void)closedir(tree->open[--tree->depth]);
    if (tree->depth) {
        buf_cut(&tree->path, (size_t)(slash - tree->path.data));
        return;
    }
    const struct stat st = { 0 };
    (void)buf_printf(&tree->path, "/%s", tree->plan.last);
    put(tree, '0', 0444, &st);
    tar_end(&tree->head);
    tree->ended = true;
}

static int add_file(struct tree *tree, int dir, const char *name, const struct stat *st)
{
    put(tree, '0', st->st_mode & 0100 ? 0755 : 0644, st);
    tree->file = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (tree->file < 0)
        return err_sys(&tree->err, errno, "read %s", tree->path.data);
    tree->left = (uint64_t)st->st_size;
    tree->padding = tar_padding(tree->left);
    return 0;
}

static int next(struct tree *tree)
{
    DIR *open = tree->open[tree->depth - 1];
    errno = 0;
    const struct dirent *entry = readdir(open);
    struct stat st;
    if (!entry && errno)
        return err_sys(&tree->err, errno, "read %s", tree->path.data);
    if (!entry) {
        leave(tree);
        return 0;
    }
    if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
        return 0;
    size_t len = tree->path.len;
    if (buf_printf(&tree->path, "/%s", entry->d_name) < 0)
        return err_set(&tree->err, ENAMETOOLONG, "a path is longer than %d bytes", PATH_BYTES_MAX);
    int r = 0;
    if (fstatat(dirfd(open), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(&tree->err, errno, "read %s", tree->path.data);
    if (S_ISDIR(st.st_mode)) {
        put(tree, '5', 0755, &st);
        return enter(tree, dirfd(open), entry->d_name);
    }
    if (S_ISREG(st.st_mode))
        r = add_file(tree, dirfd(open), entry->d_name, &st);
    buf_cut(&tree->path, len);
    return r;
}

/*** Bytes ***/

static ssize_t read_head(struct tree *tree, char *room, size_t size)
{
    size_t left = tree->head.len - tree->sent, take = left < size ? left : size;
    memcpy(room, tree->head.data + tree->sent, take);
    tree->sent += take;
    if (tree->sent == tree->head.len) {
        buf_clear(&tree->head);
        tree->sent = 0;
    }
    return (ssize_t)take;
}

static ssize_t read_file(struct tree *tree, char *room, size_t size)
{
    ssize_t n;
    do
        n = read(tree->file, room, tree->left < size ? (size_t)tree->left : size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(&tree->err, errno, "read a file of a package");
    if (n == 0)
        return err_set(&tree->err, EIO, "a file of a package became shorter while it was read");
    tree->left -= (uint64_t)n;
    return n;
}

static void end_file(struct tree *tree)
{
    static const char zeros[TAR_BLOCK];
    close(steal_fd(&tree->file));
    (void)buf_add(&tree->head, zeros, tree->padding);
}

ssize_t tree_read(struct tree *tree, char *room, size_t size)
{
    for (;;) {
        int r = 0;
        if (tree->err.code)
            return -tree->err.code;
        if (tree->sent < tree->head.len)
            return read_head(tree, room, size);
        if (tree->file >= 0 && tree->left)
            return read_file(tree, room, size);
        if (tree->file >= 0)
            end_file(tree);
        else if (tree->ended)
            return 0;
        else
            r = tree->begun ? next(tree) : begin(tree);
        if (r < 0)
            return r;
    }
}
