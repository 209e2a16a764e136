/* Lists: one directory or a whole tree, sorted, bounded in number, bytes and time. */
#include "agent/worker_private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What is looked at before sorting. A directory with more is cut where the kernel's order has it. */
enum {
    SCAN_MAX = 250 * 1000,
    NAMES_MAX = 32 * 1024 * 1024,
};

struct found {
    uint32_t at; /* in names */
    uint16_t len;
    bool directory;
};

/* Both are reserved whole and touched as far as they are used. */
static struct found *found;
static char *names;
static size_t n_found, names_len;

static int reserve(void)
{
    enum { PROT = PROT_READ | PROT_WRITE, MAP = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
    found = mmap(NULL, SCAN_MAX * sizeof(*found), PROT, MAP, -1, 0);
    names = mmap(NULL, NAMES_MAX, PROT, MAP, -1, 0);
    return found == MAP_FAILED || names == MAP_FAILED ? -ENOMEM : 0;
}

static const char *name_of(const struct found *one)
{
    return names + one->at;
}

/* False when there is no place left. */
static bool remember(const char *dir, const char *name, bool directory)
{
    size_t dir_len = strlen(dir), len = strlen(name);
    size_t whole = dir_len ? dir_len + 1 + len : len;
    if (whole > FRAME_PATH_MAX)
        return true; /* too deep to be named to anybody; left out */
    if (n_found == SCAN_MAX || names_len + whole + 1 > NAMES_MAX)
        return false;
    char *to = names + names_len;
    if (dir_len) {
        memcpy(to, dir, dir_len);
        to[dir_len] = '/';
        to += dir_len + 1;
    }
    memcpy(to, name, len + 1);
    found[n_found++] =
        (struct found){ .at = (uint32_t)names_len, .len = (uint16_t)whole, .directory = directory };
    names_len += whole + 1;
    return true;
}

static bool is_directory(int dir, const struct sys_dirent *entry)
{
    enum { UNKNOWN = 0, DIRECTORY = 4 }; /* DT_… */
    if (entry->type != UNKNOWN)
        return entry->type == DIRECTORY;
    struct stat info;
    return fstatat(dir, entry->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/* 0; 1: there was more than we can remember or have time for; or -errno. */
static int scan(struct work *work, int dir, const char *dir_name)
{
    struct work_entries entries = { .dir = dir };
    const struct sys_dirent *entry;
    for (;;) {
        int r = work_next_entry(&entries, &entry);
        if (r <= 0)
            return r;
        if (work_late(work) || !remember(dir_name, entry->name, is_directory(dir, entry)))
            return 1;
    }
}

/* What is found is also the queue of directories to look into. One that has gone, or may not be read,
 * is listed and left. */
static int scan_tree(struct work *work, int top)
{
    int r = 0;
    for (size_t i = 0; i < n_found && r == 0; i++) {
        if (!found[i].directory)
            continue;
        int dir = path_open(top, name_of(&found[i]), O_RDONLY | O_DIRECTORY, PATH_NO_LINKS);
        if (dir < 0)
            continue;
        r = scan(work, dir, name_of(&found[i])) == 1;
        close(dir);
    }
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(a), name_of(b));
}

/*** entries ***/

static enum frame_entry_type type_of(mode_t mode)
{
    return S_ISREG(mode)   ? ENTRY_FILE
           : S_ISDIR(mode) ? ENTRY_DIRECTORY
           : S_ISLNK(mode) ? ENTRY_SYMLINK
                           : ENTRY_OTHER;
}

static int64_t in_ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void say_entry(struct work *work, const struct stat *info, const char *name, size_t len)
{
    struct frame_entry entry = {
        .type = type_of(info->st_mode),
        .mode = info->st_mode & 07777,
        .size = (uint64_t)info->st_size,
        .mtime_ns = in_ns(info->st_mtim),
        .ctime_ns = in_ns(info->st_ctim),
        .name = name,
        .name_len = len,
    };
    size_t room;
    char *to = work_room(work, &room);
    if (room < FRAME_ENTRY_SIZE + len) {
        work_flush(work);
        to = work_room(work, &room);
    }
    frame_entry_put(to, &entry);
    work_add(work, FRAME_ENTRY_SIZE + len);
    work->end.size++;
}

static int look(int top, const char *path, struct stat *ret)
{
    int fd = path_open(top, path, O_PATH | O_NOFOLLOW, PATH_NO_LINKS);
    if (fd == -ELOOP) { /* openat2() may not even name a link */
        char dir[PATH_BYTES];
        const char *name = path_split(path, dir);
        fd = path_open(top, dir, O_PATH | O_DIRECTORY, PATH_NO_LINKS);
        if (fd < 0)
            return fd;
        int link = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int code = errno;
        close(fd);
        if (link < 0)
            return -code;
        fd = link;
    }
    if (fd < 0)
        return fd;
    int r = fstat(fd, ret) < 0 ? -errno : 0;
    close(fd);
    return r;
}

int work_list(struct work *work)
{
    int top = path_open(GUEST_WORKSPACE, work->path, O_RDONLY | O_DIRECTORY, PATH_LINKS_BENEATH);
    if (top < 0)
        return top;
    int r = reserve();
    if (r < 0)
        return r;
    r = scan(work, top, "");
    if (r == 0 && work->request->recursive)
        r = scan_tree(work, top);
    if (r < 0)
        return r;
    work->end.more = r == 1;
    qsort(found, n_found, sizeof(*found), by_name);
    size_t bytes = 0;
    for (size_t i = 0; i < n_found; i++) {
        struct stat info = { 0 };
        bytes += FRAME_ENTRY_SIZE + found[i].len;
        if (work->end.size == work->request->max || bytes > FRAME_LIST_MAX || work_late(work)) {
            work->end.more = true;
            break;
        }
        if (look(top, name_of(&found[i]), &info) == 0) /* else it has gone meanwhile */
            say_entry(work, &info, name_of(&found[i]), found[i].len);
    }
    return 0;
}

int work_stat(struct work *work)
{
    struct stat info = { 0 };
    const char *name = ".";
    int dir = work_parent(work->path, false, &name);
    if (dir < 0 && dir != -EBUSY)
        return dir;
    int r = dir < 0 ? look(GUEST_WORKSPACE, "", &info) : look(dir, name, &info);
    if (r < 0)
        return r;
    say_entry(work, &info, name, strlen(name));
    return 0;
}
