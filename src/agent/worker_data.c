/* Content: reading a part of a file, and replacing a file as a whole. */
#include "agent/worker_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*** read ***/

int work_open_regular(const char *clean, enum path_links links, struct stat *ret)
{
    int fd = path_open(GUEST_WORKSPACE, clean, O_RDONLY, links);
    if (fd < 0)
        return fd == -ENXIO ? -EINVAL : fd; /* a socket cannot even be opened */
    int r = fstat(fd, ret) < 0 ? -errno : 0;
    if (r == 0 && !S_ISREG(ret->st_mode))
        r = S_ISDIR(ret->st_mode) ? -EISDIR : -EINVAL;
    if (r < 0)
        close(fd);
    return r < 0 ? r : fd;
}

int work_read(struct work *work)
{
    struct stat info;
    int fd = work_open_regular(work->path, PATH_LINKS_BENEATH, &info);
    if (fd < 0)
        return fd;
    uint64_t offset = work->request->offset, left = work->request->max;
    if (offset > INT64_MAX - left)
        left = offset > INT64_MAX ? 0 : INT64_MAX - offset;
    while (left) {
        size_t room;
        char *to = work_room(work, &room);
        ssize_t n = pread(fd, to, room < left ? room : (size_t)left, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        work_add(work, (size_t)n);
        offset += (uint64_t)n;
        left -= (uint64_t)n;
        if (work_late(work))
            return -ETIMEDOUT;
    }
    work->end.size = (uint64_t)info.st_size;
    return 0;
}

/*** write ***/

int work_write_all(int fd, const char *bytes, size_t len, off_t offset)
{
    while (len) {
        ssize_t n = pwrite(fd, bytes, len, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        bytes += n;
        offset += n;
        len -= (size_t)n;
    }
    return 0;
}

static int copy_content(struct work *work, int fd)
{
    off_t at = 0;
    for (uint64_t left = work->request->len; left;) {
        size_t room;
        char *buf = work_room(work, &room);
        ssize_t n = read(GUEST_IN, buf, room < left ? room : (size_t)left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECANCELED;
        int r = work_write_all(fd, buf, (size_t)n, at);
        if (r < 0)
            return r;
        at += n;
        left -= (uint64_t)n;
        if (work_late(work))
            return -ETIMEDOUT;
    }
    return 0;
}

/* The name is of this write alone; if it exists, an earlier attempt was killed. */
static int make_temporary(int dir, const char *name)
{
    for (int i = 0; i < 2; i++) {
        int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST || unlinkat(dir, name, 0) < 0)
            return -errno;
    }
    return -EEXIST;
}

/* The old file's mode goes to the new one. */
static mode_t mode_for(int dir, const char *name)
{
    struct stat old;
    if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode))
        return old.st_mode & 0777;
    return 0644;
}

/* A new file beside the old one takes over its name: readers see one or the other, whole. The name
 * itself is replaced, so a link that stands there is not followed. */
int work_write(struct work *work)
{
    const char *name;
    int dir = work_parent(work->path, true, &name);
    if (dir < 0)
        return dir == -EBUSY ? -EISDIR : dir;
    char temporary[48];
    (void)snprintf(temporary, sizeof(temporary), ".belljar-%llu.tmp",
                   (unsigned long long)work->request->offset);
    int fd = make_temporary(dir, temporary);
    if (fd < 0)
        return fd;
    int r = copy_content(work, fd);
    if (r == 0 && fchmod(fd, mode_for(dir, name)) < 0)
        r = -errno;
    if (r == 0 && renameat(dir, temporary, dir, name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dir, temporary, 0);
    return r;
}
