#include "session/store.h"

#include "agent/path.h"
#include "base/base.h"
#include "base/dir.h"
#include "base/num.h"
#include "base/text.h"
#include "session/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    OWNER_PLAIN_MAX = 16,
    NAME_SIZE = 80,     /* of an owner's or a session's directory */
    PAGE = 4096,        /* what a file takes, on the disk as in memory, is a multiple of this */
    ENTRY_BYTES = 1024, /* what one takes beside its content, roughly */
    DIRECTORY_MODE = 0700,
    HOLD_TRIES = 4,
};

struct store {
    int dir, trash, profile;
    uint64_t max_bytes, max_age_ms;
    atomic_bool stops; /* workers leave the rest for another time */
};

struct stored {
    struct store *store;
    char *way; /* from the profile's directory */
    int dir, info;
};

/*** Names ***/

static bool is_plain_word(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    return len > 0 && len <= OWNER_PLAIN_MAX && !text[len];
}

/* A plain word ("stdio", "token") is itself; nobody else's name begins with '~'. */
static void owner_name(const char *owner, char ret[static NAME_SIZE])
{
    if (is_plain_word(owner)) {
        (void)snprintf(ret, NAME_SIZE, "%s", owner);
        return;
    }
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!EVP_Digest(owner, strlen(owner), hash, &len, EVP_sha256(), NULL))
        OPENSSL_die("SHA-256 is not available", __FILE__, __LINE__);
    auto_free char *text = base64_encode(hash, 32);
    for (char *c = text; *c; c++) /* as in URLs: no slash */
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    (void)snprintf(ret, NAME_SIZE, "~%.43s", text);
}

/* False: no session can have such an id. "." and ".." must not lead anywhere. */
static bool id_name(const char *id, char ret[static NAME_SIZE])
{
    if (!session_id_is_valid(id))
        return false;
    (void)snprintf(ret, NAME_SIZE, "%s%s", id[0] == '.' ? "%2E" : "", id[0] == '.' ? id + 1 : id);
    return true;
}

static char *id_of(const char *name)
{
    return str_has_prefix(name, "%2E") ? xasprintf(".%s", name + 3) : xstrdup(name);
}

/*** Trees ***/

void store_tree_add(struct store_tree *tree, const char *path, const struct store_entry *like)
{
    if ((tree->count & (tree->count - 1)) == 0) { /* a power of two: it is full */
        size_t room = tree->count ? tree->count * 2 : 1;
        tree->items = xrealloc(tree->items, room * sizeof(*tree->items));
    }
    tree->items[tree->count] = *like;
    tree->items[tree->count++].path = xstrdup(path);
}

void store_tree_done(struct store_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        free(tree->items[i].path);
    free(tree->items);
    *tree = (struct store_tree){ 0 };
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct store_entry *)a)->path, ((const struct store_entry *)b)->path);
}

static struct store_entry describe(const struct stat *st)
{
    return (struct store_entry){
        .type = S_ISDIR(st->st_mode)      ? STORE_DIRECTORY
                : !S_ISREG(st->st_mode)   ? STORE_OTHER
                : (st->st_mode & S_ISVTX) ? STORE_LINK
                                          : STORE_FILE,
        .program = S_ISREG(st->st_mode) && (st->st_mode & S_IXUSR),
        .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
    };
}

/* One directory, whose path below the top is `path`. */
static int scan(int top, const char *path, struct store_tree *tree)
{
    int fd = path_open(top, path, O_RDONLY | O_DIRECTORY, PATH_NO_LINKS);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int r = fd < 0 ? fd : -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    int r = 0;
    struct dirent *entry;
    while (r == 0 && (entry = readdir(dir))) {
        struct stat st;
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        auto_free char *whole =
            *path ? xasprintf("%s/%s", path, entry->d_name) : xstrdup(entry->d_name);
        const struct store_entry like = describe(&st);
        if (strlen(whole) >= PATH_BYTES || tree->count >= 2 * STORE_ENTRIES_MAX)
            r = -EFBIG; /* nothing that we have made */
        else
            store_tree_add(tree, whole, &like);
    }
    (void)closedir(dir);
    return r;
}

/* Everything below; what is found is also the queue of directories to look into. */
static int walk(int top, struct store_tree *ret)
{
    int r = scan(top, "", ret);
    for (size_t i = 0; r == 0 && i < ret->count; i++) {
        if (ret->items[i].type != STORE_DIRECTORY)
            continue;
        auto_free char *path = xstrdup(ret->items[i].path); /* the items move */
        r = scan(top, path, ret);
    }
    if (ret->count)
        qsort(ret->items, ret->count, sizeof(*ret->items), by_path);
    return r;
}

static int open_dir(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* The directory that holds the last name of a path below `top`; *ret_name points into the path. */
static int open_parent(int top, const char *path, const char **ret_name)
{
    char dir[PATH_BYTES];
    *ret_name = path_split(path, dir);
    return path_open(top, dir, O_RDONLY | O_DIRECTORY, PATH_NO_LINKS);
}

static int remove_path(int top, const char *path, bool directory)
{
    const char *name;
    auto_fd dir = open_parent(top, path, &name);
    if (dir < 0)
        return dir;
    return unlinkat(dir, name, directory ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* What cannot be removed stays, and is tried again at the next start. */
static void remove_tree(const struct store *store, int parent, const char *name)
{
    struct store_tree tree = { 0 };
    auto_fd top = open_dir(parent, name);
    if (top >= 0)
        (void)walk(top, &tree);
    for (size_t i = tree.count; i > 0 && !store->stops; i--)
        (void)remove_path(top, tree.items[i - 1].path, tree.items[i - 1].type == STORE_DIRECTORY);
    store_tree_done(&tree);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

/*** Opening ***/

static bool is_empty(int fd, const struct stat *st)
{
    if (!S_ISDIR(st->st_mode))
        return st->st_size == 0;
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    bool empty = dir != NULL;
    struct dirent *entry;
    while (dir && empty && (entry = readdir(dir)))
        empty = str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..");
    if (dir)
        (void)closedir(dir);
    else if (again >= 0)
        close(again);
    return empty;
}

/* Belongs to the server's user, and nobody else can write there. As root, what is new and root's is given
 * to that user; a directory with something in it is not: who knows whose it is. */
static int own(int fd, const char *name, uid_t uid, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "workspace_dir: look at %s", name);
    if (geteuid() == 0 && st.st_uid == 0 && uid != 0 && is_empty(fd, &st)) {
        if (fchown(fd, uid, (gid_t)uid) < 0)
            return err_sys(err, errno, "workspace_dir: give %s to the server's user", name);
        st.st_uid = uid;
    }
    if (st.st_uid != uid || (st.st_mode & 022))
        return err_set(err, EPERM,
                       "workspace_dir: %s must belong to user id %u, the server's, and be writable "
                       "for nobody else",
                       name, uid);
    return 0;
}

static int open_own(int parent, const char *name, uid_t uid, struct err *err)
{
    if (mkdirat(parent, name, DIRECTORY_MODE) < 0 && errno != EEXIST)
        return err_sys(err, errno, "workspace_dir: make %s", name);
    auto_fd fd = open_dir(parent, name);
    if (fd < 0)
        return err_sys(err, -fd, "workspace_dir: open %s", name);
    int r = own(fd, name, uid, err);
    return r < 0 ? r : steal_fd(&fd);
}

/* Opened each time: a lock is of the opening, and there are several threads. */
static int open_total(const struct store *store)
{
    int fd = openat(store->dir, "total", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static int open_all(struct store *store, const struct store_options *options, struct err *err)
{
    int r = dir_make(options->dir, DIRECTORY_MODE, "workspace_dir", err);
    if (r < 0)
        return r;
    store->dir = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->dir < 0)
        return err_sys(err, errno, "workspace_dir: open %s", options->dir);
    r = own(store->dir, options->dir, options->uid, err);
    if (r == 0)
        r = store->trash = open_own(store->dir, "trash", options->uid, err);
    if (r >= 0)
        r = store->profile = open_own(store->dir, options->profile, options->uid, err);
    if (r < 0)
        return r;
    auto_fd total = open_total(store);
    if (total < 0)
        return err_sys(err, -total, "workspace_dir: open its file named total");
    return own(total, "total", options->uid, err);
}

int store_open(const struct store_options *options, struct store **ret, struct err *err)
{
    struct store *store = xcalloc(1, sizeof(*store));
    *store = (struct store){ .dir = -1,
                             .trash = -1,
                             .profile = -1,
                             .max_bytes = options->max_bytes,
                             .max_age_ms = options->max_age_ms };
    int r = open_all(store, options, err);
    if (r < 0) {
        store_close(store);
        return r;
    }
    *ret = store;
    return 0;
}

void store_stop(struct store *store)
{
    store->stops = true;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    fd_closep(&store->dir);
    fd_closep(&store->trash);
    fd_closep(&store->profile);
    free(store);
}

/*** The count of all bytes ***/

static uint64_t read_number(int fd)
{
    char text[32] = "";
    int64_t value = 0;
    if (pread(fd, text, sizeof(text) - 1, 0) < 0)
        return 0;
    text[strcspn(text, " \n")] = '\0';
    (void)num_parse_int(text, 0, INT64_MAX, &value); /* nothing yet, or half written: nothing */
    return (uint64_t)value;
}

/* Shorter than a page, so whoever reads finds the old or the new. */
static void write_number(int fd, uint64_t value)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%-20llu\n", (unsigned long long)value);
    ssize_t n = pwrite(fd, text, (size_t)len, 0);
    (void)n; /* at worst it is counted again at the next sweep */
}

/* Worker. A session's bytes become other than they were, if there is room for more. */
static int account(const struct stored *stored, uint64_t bytes, struct err *err)
{
    const struct store *store = stored->store;
    auto_fd fd = open_total(store);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_sys(err, fd < 0 ? -fd : errno, "workspace_dir: lock its count");
    uint64_t before = read_number(stored->info), total = read_number(fd);
    uint64_t others = total > before ? total - before : 0;
    if (bytes > before && others + bytes > store->max_bytes)
        return err_set(err, EDQUOT,
                       "the server's directory for files of sessions is full (workspace_dir_size: "
                       "%llu MiB); end sessions that are not needed with clear_session",
                       (unsigned long long)(store->max_bytes >> 20));
    write_number(fd, others + bytes);
    write_number(stored->info, bytes);
    return 0;
}

/*** Finding ***/

/* "owner/id", owned by the caller; NULL: there can be none. */
static char *way_to(const char *owner, const char *id)
{
    char owner_dir[NAME_SIZE], id_dir[NAME_SIZE];
    owner_name(owner, owner_dir);
    return id_name(id, id_dir) ? xasprintf("%s/%s", owner_dir, id_dir) : NULL;
}

bool store_has(const struct store *store, const char *owner, const char *id)
{
    auto_free char *way = way_to(owner, id);
    struct stat st;
    return way && fstatat(store->profile, way, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

void store_ids(const struct store *store, const char *owner,
               void (*each)(const char *id, void *data), void *data)
{
    char name[NAME_SIZE];
    owner_name(owner, name);
    int fd = open_dir(store->profile, name);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        auto_free char *id = id_of(entry->d_name);
        each(id, data);
    }
    if (dir)
        (void)closedir(dir);
    else if (fd >= 0)
        close(fd);
}

/*** Holding ***/

static void stored_free(struct stored *stored)
{
    fd_closep(&stored->dir);
    fd_closep(&stored->info); /* and its lock */
    free(stored->way);
    free(stored);
}

/* The lock is of the file that was opened; it is ours only if that is still the one in its place. */
bool stored_in_place(const struct stored *stored)
{
    struct stat here, there;
    return fstat(stored->dir, &here) == 0 &&
           fstatat(stored->store->profile, stored->way, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

static int open_or_make(int parent, const char *name, bool make)
{
    int fd = open_dir(parent, name);
    if (fd != -ENOENT || !make)
        return fd;
    if (mkdirat(parent, name, DIRECTORY_MODE) < 0 && errno != EEXIST)
        return -errno;
    return open_dir(parent, name);
}

/* 0; -EAGAIN: it was removed under our hands. */
static int try_hold(struct stored *stored, bool make)
{
    const char *id = strchr(stored->way, '/') + 1;
    auto_free char *owner = xstrndup(stored->way, (size_t)(id - stored->way));
    auto_fd above = open_or_make(stored->store->profile, owner, make);
    if (above < 0)
        return above;
    stored->dir = open_or_make(above, id, make);
    if (stored->dir < 0)
        return stored->dir;
    stored->info = openat(stored->dir, "info", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (stored->info < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (flock(stored->info, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    if (!stored_in_place(stored))
        return -EAGAIN;
    if (mkdirat(stored->dir, "files", DIRECTORY_MODE) < 0 && errno != EEXIST)
        return -errno;
    (void)futimens(stored->info, NULL); /* at worst it goes too early */
    return 0;
}

int store_hold(struct store *store, const char *owner, const char *id, bool make,
               struct stored **ret, struct err *err)
{
    int r = -EAGAIN;
    for (int i = 0; i < HOLD_TRIES && (r == -EAGAIN || (r == -ENOENT && make)); i++) {
        struct stored *stored = xcalloc(1, sizeof(*stored));
        *stored =
            (struct stored){ .store = store, .way = way_to(owner, id), .dir = -1, .info = -1 };
        r = stored->way ? try_hold(stored, make) : -EINVAL;
        if (r == 0) {
            *ret = stored;
            return 0;
        }
        stored_free(stored);
    }
    if (r == -EBUSY)
        return err_set(
            err, EBUSY,
            "session_id: the files of this session are in use by another server; try again later");
    return err_sys(err, -r, "the files of this session on disk");
}

void stored_release(struct stored *stored)
{
    if (!stored)
        return;
    (void)futimens(stored->info, NULL);
    stored_free(stored);
}

void stored_remove(struct stored *stored)
{
    char name[RANDOM_ID_SIZE];
    random_id(name);
    (void)renameat(stored->store->profile, stored->way, stored->store->trash, name);
}

int store_remove(struct store *store, const char *owner, const char *id)
{
    struct stored *stored;
    struct err err;
    int r = store_hold(store, owner, id, /* make= */ false, &stored, &err);
    if (r < 0)
        return r;
    stored_remove(stored);
    stored_release(stored);
    return 0;
}

/*** Sweeping ***/

static bool is_old(const struct store *store, int owner, const char *name)
{
    auto_free char *info = xasprintf("%s/info", name);
    struct stat st;
    struct timespec now;
    if (fstatat(owner, info, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        fstatat(owner, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ms =
        (now.tv_sec - st.st_mtim.tv_sec) * 1000 + (now.tv_nsec - st.st_mtim.tv_nsec) / 1000000;
    return age_ms >= 0 && (uint64_t)age_ms >= store->max_age_ms;
}

/* One that somebody has is in use, however old its time. */
static void remove_old(const struct store *store, int owner, const char *name)
{
    auto_fd dir = open_dir(owner, name);
    auto_fd info =
        dir < 0 ? -1 : openat(dir, "info", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    char id[RANDOM_ID_SIZE];
    random_id(id);
    if (info >= 0 && flock(info, LOCK_EX | LOCK_NB) == 0)
        (void)renameat(owner, name, store->trash, id);
}

/* Every name in a directory, with a descriptor of it. */
static void each_name(int parent, const char *name,
                      void (*each)(const struct store *store, int dir, const char *name,
                                   uint64_t *sum),
                      const struct store *store, uint64_t *sum)
{
    int fd = open_dir(parent, name);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            each(store, dirfd(dir), entry->d_name, sum);
    if (dir)
        (void)closedir(dir);
    else if (fd >= 0)
        close(fd);
}

static void sweep_session(const struct store *store, int owner, const char *name, uint64_t *sum)
{
    (void)sum;
    if (is_old(store, owner, name))
        remove_old(store, owner, name);
}

static void sweep_owner(const struct store *store, int profile, const char *name, uint64_t *sum)
{
    each_name(profile, name, sweep_session, store, sum);
    (void)unlinkat(profile, name, AT_REMOVEDIR); /* if it is empty */
}

static void sweep_trash(const struct store *store, int trash, const char *name, uint64_t *sum)
{
    (void)sum;
    remove_tree(store, trash, name);
}

static void count_session(const struct store *store, int owner, const char *name, uint64_t *sum)
{
    (void)store;
    auto_free char *info = xasprintf("%s/info", name);
    auto_fd fd = openat(owner, info, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    *sum += fd < 0 ? 0 : read_number(fd);
}

static void count_owner(const struct store *store, int profile, const char *name, uint64_t *sum)
{
    each_name(profile, name, count_session, store, sum);
}

static void count_profile(const struct store *store, int dir, const char *name, uint64_t *sum)
{
    if (!str_eq(name, "trash"))
        each_name(dir, name, count_owner, store, sum);
}

void store_clean(const struct store *store)
{
    uint64_t sum = 0;
    each_name(store->profile, ".", sweep_owner, store, &sum);
    each_name(store->dir, "trash", sweep_trash, store, &sum);
    auto_fd fd = open_total(store);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return;
    sum = 0;
    each_name(store->dir, ".", count_profile, store, &sum);
    write_number(fd, sum);
}

/*** What there is ***/

static void drop_others(struct store_tree *tree)
{
    size_t kept = 0;
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->items[i].type == STORE_OTHER)
            free(tree->items[i].path);
        else
            tree->items[kept++] = tree->items[i];
    }
    tree->count = kept;
}

static int list_files(int files, struct store_tree *ret, struct err *err)
{
    int r = walk(files, ret);
    if (r < 0) {
        store_tree_done(ret);
        return err_sys(err, -r, "read the files of this session on disk");
    }
    drop_others(ret);
    return 0;
}

int store_list(const struct store *store, const char *owner, const char *id, struct store_tree *ret,
               struct err *err)
{
    auto_free char *way = way_to(owner, id);
    auto_free char *files = way ? xasprintf("%s/files", way) : NULL;
    *ret = (struct store_tree){ 0 };
    auto_fd fd = files ? open_dir(store->profile, files) : -ENOENT;
    return fd < 0 ? err_sys(err, -fd, "the files of this session on disk")
                  : list_files(fd, ret, err);
}

/* Not held open: there may be many sessions. */
static int open_files(const struct stored *stored, struct err *err)
{
    int fd = open_dir(stored->dir, "files");
    return fd < 0 ? err_sys(err, -fd, "the files of this session on disk") : fd;
}

int stored_list(const struct stored *stored, struct store_tree *ret, struct err *err)
{
    *ret = (struct store_tree){ 0 };
    auto_fd files = open_files(stored, err);
    return files < 0 ? files : list_files(files, ret, err);
}

ssize_t stored_read(const struct stored *stored, const char *path, uint64_t offset, char *to,
                    size_t len, struct err *err)
{
    auto_fd files = open_files(stored, err);
    if (files < 0)
        return files;
    auto_fd fd = path_open(files, path, O_RDONLY, PATH_NO_LINKS);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_sys(err, fd < 0 ? -fd : EIO, "read a file of this session from disk");
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, to + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "read a file of this session from disk");
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/*** Saving ***/

void store_save_done(struct store_save *save)
{
    store_tree_done(&save->wanted);
    store_tree_done(&save->old);
    free(save->fetch);
    free(save->goes);
    free(save->failed);
    *save = (struct store_save){ 0 };
}

static uint64_t whole_pages(uint64_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

static bool is_same(const struct store_entry *a, const struct store_entry *b)
{
    return a->type == b->type &&
           (a->type == STORE_DIRECTORY ||
            (a->size == b->size && a->mtime_ns == b->mtime_ns && a->program == b->program));
}

/* Both are sorted. What is here and shall not be, or is of another type, goes; what is not here, or is
 * not the same, is fetched. */
static void compare(struct store_save *save)
{
    const struct store_tree *old = &save->old, *wanted = &save->wanted;
    size_t i = 0, j = 0;
    save->goes = xcalloc(old->count, sizeof(*save->goes));
    save->failed = xcalloc(wanted->count, sizeof(*save->failed));
    save->fetch = xcalloc(wanted->count, sizeof(*save->fetch));
    while (i < old->count || j < wanted->count) {
        int order = i == old->count      ? 1
                    : j == wanted->count ? -1
                                         : strcmp(old->items[i].path, wanted->items[j].path);
        bool both = order == 0;
        const struct store_entry *new = order >= 0 ? &wanted->items[j] : NULL;
        if (order < 0 ||
            (both && (old->items[i].type == STORE_DIRECTORY) != (new->type == STORE_DIRECTORY)))
            save->goes[i] = true;
        if (new &&new->type != STORE_DIRECTORY && !(both && is_same(&old->items[i], new)))
            save->fetch[save->n_fetch++] = j;
        i += order <= 0;
        j += order >= 0;
    }
}

static int sum_up(struct store_save *save, struct err *err)
{
    uint64_t pages = 0;
    if (save->wanted.count > STORE_ENTRIES_MAX)
        return err_set(err, EFBIG, "there are more than %d files and directories in /workspace",
                       STORE_ENTRIES_MAX);
    for (size_t i = 0; i < save->wanted.count; i++) {
        uint64_t size = save->wanted.items[i].size;
        if (size > save->max_bytes || (pages += whole_pages(size)) > save->max_bytes)
            return err_set(err, EFBIG,
                           "written out, the files in /workspace take more than its %llu MiB (some "
                           "are sparse)",
                           (unsigned long long)(save->max_bytes >> 20));
    }
    save->bytes = pages + ENTRY_BYTES * (uint64_t)save->wanted.count;
    return 0;
}

int stored_plan(struct stored *stored, struct store_save *save, struct err *err)
{
    int r = sum_up(save, err);
    if (r < 0)
        return r;
    auto_fd files = open_files(stored, err);
    if (files < 0)
        return files;
    r = walk(files, &save->old); /* with what is none of ours: that goes, too */
    if (r < 0)
        return err_sys(err, -r, "read the files of this session on disk");
    compare(save);
    remove_tree(stored->store, stored->dir, "new"); /* left by one that was killed */
    if (mkdirat(stored->dir, "new", DIRECTORY_MODE) < 0)
        return err_sys(err, errno, "make a directory for the files of this session");
    /* Room is taken before it is used, and given back after. */
    return save->bytes > read_number(stored->info) ? account(stored, save->bytes, err) : 0;
}

static bool is_zero(const char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static size_t page_end(uint64_t offset, size_t at, size_t len)
{
    size_t end = at + PAGE - (size_t)((offset + at) % PAGE);
    return end < len ? end : len;
}

/* From `at` to the end of the pages that are not zeros. */
static size_t data_end(const char *bytes, size_t len, uint64_t offset, size_t at)
{
    for (size_t end; at < len; at = end) {
        end = page_end(offset, at, len);
        if (is_zero(bytes + at, end - at))
            break;
    }
    return at;
}

/* Pages of zeros are left out, so that a sparse file takes no space here either. */
static int write_sparse(int fd, const char *bytes, size_t len, uint64_t offset)
{
    for (size_t at = 0; at < len;) {
        size_t end = data_end(bytes, len, offset, at);
        if (end == at) {
            at = page_end(offset, at, len);
            continue;
        }
        ssize_t n = pwrite(fd, bytes + at, end - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size < offset + len && ftruncate(fd, (off_t)(offset + len)) < 0 ? -errno
                                                                                           : 0;
}

static char *new_name(size_t index)
{
    return xasprintf("new/%zu", index);
}

int stored_put(struct stored *stored, size_t index, uint64_t offset, const char *bytes, size_t len,
               struct err *err)
{
    auto_free char *name = new_name(index);
    int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (offset ? 0 : O_CREAT | O_EXCL);
    auto_fd fd = openat(stored->dir, name, flags, 0600);
    int r = fd < 0 ? -errno : write_sparse(fd, bytes, len, offset);
    return r < 0 ? err_sys(err, -r, "write a file of this session to disk") : 0;
}

static int make_directory(int files, const char *path)
{
    const char *name;
    auto_fd dir = open_parent(files, path, &name);
    if (dir < 0)
        return dir;
    return mkdirat(dir, name, DIRECTORY_MODE) < 0 && errno != EEXIST ? -errno : 0;
}

/* It gets its times and mode before its name. */
static int take_place(const struct stored *stored, int files, size_t index,
                      const struct store_entry *entry)
{
    auto_free char *new = new_name(index);
    int64_t second = 1000000000, rest = (entry->mtime_ns % second + second) % second;
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
                                       { .tv_sec = (time_t)((entry->mtime_ns - rest) / second),
                                         .tv_nsec = (long)rest } };
    mode_t mode = entry->type == STORE_LINK ? S_ISVTX | 0600 : entry->program ? 0700 : 0600;
    const char *name;
    auto_fd dir = open_parent(files, entry->path, &name);
    if (dir < 0)
        return dir;
    if (fchmodat(stored->dir, new, mode, 0) < 0 || utimensat(stored->dir, new, times, 0) < 0 ||
        renameat(stored->dir, new, dir, name) < 0)
        return -errno;
    return 0;
}

int stored_apply(struct stored *stored, struct store_save *save, struct err *err)
{
    int r = 0;
    auto_fd files = open_files(stored, err);
    if (files < 0)
        return files;
    for (size_t i = save->old.count; r == 0 && i > 0; i--)
        if (save->goes[i - 1])
            r = remove_path(files, save->old.items[i - 1].path,
                            save->old.items[i - 1].type == STORE_DIRECTORY);
    for (size_t i = 0; r == 0 && i < save->wanted.count; i++)
        if (save->wanted.items[i].type == STORE_DIRECTORY)
            r = make_directory(files, save->wanted.items[i].path);
    for (size_t i = 0; r == 0 && i < save->n_fetch; i++)
        if (stored->store->stops)
            r = -ECANCELED;
        else if (!save->failed[save->fetch[i]])
            r = take_place(stored, files, save->fetch[i], &save->wanted.items[save->fetch[i]]);
    if (r < 0)
        return err_sys(err, -r, "put the files of this session in their places on disk");
    if (save->bytes < read_number(stored->info) && account(stored, save->bytes, err) < 0)
        return -err->code;
    (void)futimens(stored->info, NULL);
    (void)unlinkat(stored->dir, "new", AT_REMOVEDIR); /* if it is empty */
    return 0;
}
