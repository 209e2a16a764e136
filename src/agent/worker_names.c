/* Names: delete, move; and how much space there is for new ones. */
#include "agent/worker_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

/*** delete ***/

/* Removes what it can in one directory. 0: empty; 1: the name of a directory that is not, in
 * ret_name; or -errno. */
static int sweep(struct work *work, int dir, char ret_name[FRAME_NAME_MAX + 1])
{
    struct work_entries entries = { .dir = dir };
    const struct sys_dirent *entry;
    for (;;) {
        int r = work_next_entry(&entries, &entry);
        if (r <= 0)
            return r;
        if (work_late(work))
            return -ETIMEDOUT;
        if (unlinkat(dir, entry->name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            return -errno;
        if (unlinkat(dir, entry->name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            continue;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return -errno;
        (void)snprintf(ret_name, FRAME_NAME_MAX + 1, "%s", entry->name);
        return 1;
    }
}

/* Down into the first directory that is not empty, up again when it is. One descriptor at a time,
 * each opened from the top of the tree without links: a guest that moves directories about meanwhile
 * leads nowhere else. */
static int delete_tree(struct work *work, int parent, const char *name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s", name);
    size_t top = strlen(path);
    for (;;) {
        if (work_late(work))
            return -ETIMEDOUT;
        int dir = path_open(parent, path, O_RDONLY | O_DIRECTORY, PATH_NO_LINKS);
        if (dir < 0)
            return dir;
        char inner[FRAME_NAME_MAX + 1];
        int r = sweep(work, dir, inner);
        close(dir);
        if (r < 0)
            return r;
        if (r == 1) {
            size_t len = strlen(path);
            if (len + 1 + strlen(inner) >= sizeof(path))
                return -ENAMETOOLONG;
            (void)snprintf(path + len, sizeof(path) - len, "/%s", inner);
            continue;
        }
        if (strlen(path) == top)
            return unlinkat(parent, path, AT_REMOVEDIR) < 0 ? -errno : 0;
        *strrchr(path, '/') = '\0'; /* its parent's sweep removes it */
    }
}

int work_delete(struct work *work)
{
    const char *name;
    int dir = work_parent(work->path, false, &name);
    if (dir < 0)
        return dir;
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !work->request->recursive)
        return -errno;
    return delete_tree(work, dir, name);
}

/*** move ***/

int work_move(struct work *work)
{
    const char *from_name, *to_name;
    int from = work_parent(work->path, false, &from_name);
    if (from < 0)
        return from;
    struct stat info; /* before parents are made for nothing */
    if (fstatat(from, from_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    int to = work_parent(work->target, true, &to_name);
    if (to < 0)
        return to;
    return renameat(from, from_name, to, to_name) < 0 ? -errno : 0;
}

/*** space ***/

int work_space(struct work *work)
{
    struct statfs info;
    if (fstatfs(GUEST_WORKSPACE, &info) < 0)
        return -errno;
    work->end.size = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
    work->end.extra = (uint64_t)info.f_ffree;
    return 0;
}
