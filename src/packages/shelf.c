#include "packages/shelf.h"

#include "base/dir.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REMOVE_DEPTH = 64 };

/*** Removing ***/

static DIR *open_dir(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* What stays, for want of a right or of disk, is tried again at the next start. */
static void remove_tree(int parent, const char *name, int depth)
{
    if (unlinkat(parent, name, 0) == 0 || depth == 0)
        return;
    DIR *dir = open_dir(parent, name);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
            remove_tree(dirfd(dir), entry->d_name, depth - 1);
    if (dir)
        (void)closedir(dir);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

/* Left by a server that was killed, if nobody holds its lock. */
static void remove_stale(int stage, const char *name)
{
    auto_fd fd = openat(stage, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_tree(stage, name, REMOVE_DEPTH);
}

static void clean_stage(const struct shelf *shelf)
{
    DIR *dir = open_dir(shelf->dir, "stage");
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            remove_stale(shelf->stage, entry->d_name);
    if (dir)
        (void)closedir(dir);
}

/*** Opening ***/

/* Opens a directory and sees to it that it belongs to the server and nobody else can write there. */
static int open_own(int parent, const char *name, uid_t uid, mode_t mode, struct err *err)
{
    if (parent >= 0 && mkdirat(parent, name, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "package_dir: make %s", name);
    auto_fd fd = openat(parent >= 0 ? parent : AT_FDCWD, name,
                        O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "package_dir: open %s", name);
    if (st.st_uid == geteuid() && geteuid() == 0 && fchownat(fd, "", uid, uid, AT_EMPTY_PATH) == 0)
        st.st_uid = uid;
    if (st.st_uid != uid || (st.st_mode & 022))
        return err_set(err, EPERM,
                       "package_dir: %s must belong to user id %u, the server's, and be writable "
                       "for nobody else",
                       name, uid);
    char self[64];
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd); /* the mode may forbid reading */
    if (chmod(self, mode) < 0)
        return err_sys(err, errno, "package_dir: change the mode of %s", name);
    return steal_fd(&fd);
}

/* Made whole under another name first: two servers that start at once use the same. */
static int make_secret(int dir, uid_t uid, struct err *err)
{
    unsigned char secret[32];
    char name[RANDOM_ID_SIZE];
    random_bytes(secret, sizeof(secret));
    random_id(name);
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, secret, sizeof(secret)) != (ssize_t)sizeof(secret) ||
        (geteuid() == 0 && fchown(fd, uid, uid) < 0) ||
        (linkat(dir, name, dir, "secret", 0) < 0 && errno != EEXIST)) {
        int r = err_sys(err, errno, "package_dir: make a secret");
        (void)unlinkat(dir, name, 0);
        return r;
    }
    (void)unlinkat(dir, name, 0);
    return 0;
}

static int read_secret(struct shelf *shelf, uid_t uid, struct err *err)
{
    if (faccessat(shelf->dir, "secret", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        int r = make_secret(shelf->dir, uid, err);
        if (r < 0)
            return r;
    }
    auto_fd fd = openat(shelf->dir, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "package_dir: open its secret");
    if (read(fd, shelf->secret, sizeof(shelf->secret)) != (ssize_t)sizeof(shelf->secret))
        return err_set(err, EIO, "package_dir: its file named secret is too short; remove it");
    return 0;
}

int shelf_open(const char *path, uid_t uid, struct shelf *ret, struct err *err)
{
    struct shelf shelf = { -1, -1, -1, -1, { 0 } };
    int r = dir_make(path, 0711, "package_dir", err); /* ours alone to write to */
    if (r == 0)
        r = shelf.dir = open_own(-1, path, uid, 0711, err);
    if (r >= 0)
        r = shelf.sets = open_own(shelf.dir, "sets", uid, 0311, err);
    if (r >= 0)
        r = shelf.index = open_own(shelf.dir, "index", uid, 0700, err);
    if (r >= 0)
        r = shelf.stage = open_own(shelf.dir, "stage", uid, 0700, err);
    auto_fd copies = r < 0 ? -1 : open_own(shelf.dir, "copies", uid, 0700, err);
    if (r >= 0)
        r = copies;
    if (r >= 0)
        r = read_secret(&shelf, uid, err);
    if (r < 0) {
        shelf_close(&shelf);
        return r;
    }
    clean_stage(&shelf);
    *ret = shelf;
    return 0;
}

void shelf_close(struct shelf *shelf)
{
    int *fds[] = { &shelf->dir, &shelf->sets, &shelf->index, &shelf->stage };
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fd_closep(fds[i]);
        *fds[i] = -1;
    }
}

/*** Sets ***/

void shelf_name(const struct shelf *shelf, const char *text, size_t len,
                char ret[static SHELF_NAME_SIZE])
{
    unsigned char mac[32];
    unsigned mac_len = sizeof(mac);
    if (!HMAC(EVP_sha256(), shelf->secret, sizeof(shelf->secret), (const unsigned char *)text, len,
              mac, &mac_len))
        OPENSSL_die("HMAC-SHA256 is not available", __FILE__, __LINE__);
    auto_free char *name = base64_encode(mac, sizeof(mac));
    for (size_t i = 0; i < SHELF_NAME_LEN; i++) /* as in URLs: no slash */
        ret[i] = name[i] == '+' ? '-' : name[i] == '/' ? '_' : name[i];
    ret[SHELF_NAME_LEN] = '\0';
}

int shelf_hold(const struct shelf *shelf, const char *name)
{
    auto_fd fd = openat(shelf->index, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0 ||
        fstatat(shelf->sets, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return -ENOENT;       /* or on its way out */
    (void)futimens(fd, NULL); /* at worst it goes too early */
    return steal_fd(&fd);
}

int shelf_stage(const struct shelf *shelf, struct shelf_stage *ret, struct err *err)
{
    struct shelf_stage stage = { .dir = -1 };
    random_id(stage.id);
    if (mkdirat(shelf->stage, stage.id, 0755) < 0)
        return err_sys(err, errno, "package_dir: make a directory");
    stage.dir = openat(shelf->stage, stage.id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage.dir < 0 || fchmod(stage.dir, 0755) < 0 || flock(stage.dir, LOCK_EX | LOCK_NB) < 0) {
        int r = err_sys(err, errno, "package_dir: open a directory");
        shelf_discard(shelf, &stage);
        return r;
    }
    *ret = stage;
    return 0;
}

void shelf_discard(const struct shelf *shelf, struct shelf_stage *stage)
{
    if (stage->id[0])
        remove_tree(shelf->stage, stage->id, REMOVE_DEPTH);
    fd_closep(&stage->dir);
    *stage = (struct shelf_stage){ .dir = -1 };
}

/* The index first: a set that no index knows would never be removed. */
static int write_index(const struct shelf *shelf, const char *name, uint64_t bytes, struct err *err)
{
    auto_fd fd = openat(shelf->index, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 0) < 0 || dprintf(fd, "%llu\n", (unsigned long long)bytes) < 0)
        return err_sys(err, errno, "package_dir: note a set");
    return 0;
}

int shelf_publish(const struct shelf *shelf, struct shelf_stage *stage, const char *name,
                  uint64_t bytes, struct err *err)
{
    int r = write_index(shelf, name, bytes, err);
    if (r == 0 && renameat(shelf->stage, stage->id, shelf->sets, name) == 0)
        stage->id[0] = '\0'; /* nothing to remove any more */
    else if (r == 0 && errno != ENOTEMPTY && errno != EEXIST)
        r = err_sys(err, errno, "package_dir: put a set in its place");
    shelf_discard(shelf, stage);
    if (r < 0)
        return r;
    r = shelf_hold(shelf, name);
    return r < 0 ? err_set(err, EAGAIN, "the packages were removed at once; try again") : r;
}

/*** Making room ***/

struct entry {
    char name[SHELF_NAME_SIZE];
    uint64_t bytes;
    struct timespec used;
};

static bool read_entry(const struct shelf *shelf, const char *name, struct entry *ret)
{
    char text[32] = "";
    struct stat st;
    auto_fd fd = openat(shelf->index, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int64_t bytes = 0;
    if (fd < 0 || fstat(fd, &st) < 0 || read(fd, text, sizeof(text) - 1) < 0)
        return false;
    text[strcspn(text, "\n")] = '\0';
    (void)num_parse_int(text, 0, INT64_MAX, &bytes); /* half written: counts as nothing */
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
    ret->bytes = (uint64_t)bytes;
    ret->used = st.st_mtim;
    return true;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used;
    const struct timespec *y = &((const struct entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* False: somebody uses it. It goes from sight by a rename; who opened its index before sees that the
 * file has lost its name. */
static bool remove_set(const struct shelf *shelf, const char *name)
{
    auto_fd fd = openat(shelf->index, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return false;
    char id[RANDOM_ID_SIZE];
    random_id(id);
    bool moved = renameat(shelf->sets, name, shelf->stage, id) == 0;
    if (!moved && errno != ENOENT)
        return false;
    (void)unlinkat(shelf->index, name, 0);
    if (moved)
        remove_tree(shelf->stage, id, REMOVE_DEPTH);
    return true;
}

/* The sets there are; the caller frees them. Returns their number. */
static size_t read_index(const struct shelf *shelf, struct entry **ret, uint64_t *ret_total)
{
    struct entry *entries = NULL;
    size_t count = 0;
    uint64_t total = 0;
    DIR *dir = open_dir(shelf->dir, "index");
    struct dirent *found;
    while (dir && (found = readdir(dir))) {
        if (strlen(found->d_name) != SHELF_NAME_LEN)
            continue;
        entries = xrealloc(entries, (count + 1) * sizeof(*entries));
        if (read_entry(shelf, found->d_name, &entries[count]))
            total += entries[count++].bytes;
    }
    if (dir)
        (void)closedir(dir);
    *ret = entries;
    *ret_total = total;
    return count;
}

void shelf_size(const struct shelf *shelf, size_t *ret_sets, uint64_t *ret_bytes)
{
    auto_free struct entry *entries = NULL;
    *ret_sets = read_index(shelf, &entries, ret_bytes);
}

void shelf_trim(const struct shelf *shelf, uint64_t max_bytes)
{
    auto_free struct entry *entries = NULL;
    uint64_t total;
    size_t count = read_index(shelf, &entries, &total);
    if (count)
        qsort(entries, count, sizeof(*entries), by_use);
    for (size_t i = 0; i < count && total > max_bytes; i++)
        if (remove_set(shelf, entries[i].name))
            total -= entries[i].bytes;
}
