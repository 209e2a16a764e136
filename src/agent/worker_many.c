/* Many files in one piece of work: parts of them out, and parts of them in. */
#include "agent/worker_private.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*** what the server says ***/

/* The next bytes of the content, all of them. */
static int take(struct work *work, uint64_t *left, void *to, size_t len)
{
    char *at = to;
    if (len > *left)
        return -EPROTO;
    *left -= len;
    while (len) {
        ssize_t n = read(GUEST_IN, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECANCELED;
        at += n;
        len -= (size_t)n;
    }
    return work_late(work) ? -ETIMEDOUT : 0;
}

/* Into work->path, clean. */
static int take_path(struct work *work, uint64_t *left, size_t len)
{
    char path[FRAME_PATH_MAX];
    int r = take(work, left, path, len);
    if (r == 0 && memchr(path, '\0', len))
        r = -EPROTO;
    return r < 0 ? r : path_clean("/", path, len, work->path);
}

/*** pack ***/

static void say(struct work *work, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len) {
        size_t room;
        char *to = work_room(work, &room);
        size_t n = len < room ? len : room;
        memcpy(to, at, n);
        work_add(work, n);
        at += n;
        len -= n;
    }
}

static void say_number(struct work *work, uint32_t number)
{
    const unsigned char bytes[4] = { (unsigned char)number, (unsigned char)(number >> 8),
                                     (unsigned char)(number >> 16), (unsigned char)(number >> 24) };
    say(work, bytes, sizeof(bytes));
}

static void say_piece(struct work *work, const char *bytes, size_t len)
{
    say_number(work, (uint32_t)len);
    say(work, bytes, len);
}

static char piece[FRAME_PIECE_MAX];

static int pack_file(struct work *work, int fd, const struct frame_pick *pick)
{
    uint64_t offset = pick->offset;
    for (uint32_t left = pick->max; left;) {
        ssize_t n = pread(fd, piece, left < sizeof(piece) ? left : sizeof(piece), (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        say_piece(work, piece, (size_t)n);
        offset += (uint64_t)n;
        left -= (uint32_t)n;
        if (work_late(work))
            return -ETIMEDOUT;
    }
    return 0;
}

static int pack_link(struct work *work, const struct frame_pick *pick)
{
    char dir[PATH_BYTES];
    const char *name = path_split(work->path, dir);
    int fd = path_open(GUEST_WORKSPACE, dir, O_PATH | O_DIRECTORY, PATH_NO_LINKS);
    if (fd < 0)
        return fd;
    ssize_t n = readlinkat(fd, name, piece, sizeof(piece) < pick->max ? sizeof(piece) : pick->max);
    int code = errno;
    close(fd);
    if (n < 0)
        return -code;
    if (n > 0)
        say_piece(work, piece, (size_t)n);
    return 0;
}

static int pack_one(struct work *work, const struct frame_pick *pick)
{
    struct stat info;
    int fd = work_open_regular(work->path, PATH_NO_LINKS, &info);
    if (fd == -ELOOP)
        return pick->max ? pack_link(work, pick) : 0;
    if (fd < 0)
        return fd;
    int r = pack_file(work, fd, pick);
    close(fd);
    return r;
}

int work_pack(struct work *work)
{
    for (uint64_t left = work->request->len; left;) {
        char head[FRAME_PICK_SIZE];
        struct frame_pick pick = { 0 };
        int r = take(work, &left, head, sizeof(head));
        if (r == 0)
            r = frame_pick_get(head, &pick);
        if (r == 0)
            r = take_path(work, &left, pick.path_len);
        if (r < 0)
            return r;
        r = pack_one(work, &pick);
        if (r == -ETIMEDOUT)
            return r;
        say_number(work, 0);
        say_number(work, (uint32_t)-r);
    }
    return 0;
}

/*** unpack ***/

static void times_of(const struct frame_part *part, struct timespec ret[2])
{
    int64_t second = 1000000000, part_ns = (part->mtime_ns % second + second) % second;
    ret[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
    ret[1] = (struct timespec){ .tv_sec = (time_t)((part->mtime_ns - part_ns) / second),
                                .tv_nsec = (long)part_ns };
}

static int unpack_directory(struct work *work)
{
    const char *name;
    int dir = work_parent(work->path, true, &name);
    if (dir < 0)
        return dir;
    int r = mkdirat(dir, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
    close(dir);
    return r;
}

static int unpack_link(struct work *work, uint64_t *left, const struct frame_part *part)
{
    const char *name;
    char target[PATH_BYTES];
    if (part->len >= sizeof(target))
        return -EPROTO;
    int r = take(work, left, target, part->len);
    target[part->len] = '\0';
    int dir = r < 0 ? r : work_parent(work->path, true, &name);
    if (dir < 0)
        return dir;
    struct timespec times[2];
    times_of(part, times);
    (void)unlinkat(dir, name, 0); /* of an attempt that was cut off */
    if (symlinkat(target, dir, name) < 0 || utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    close(dir);
    return r;
}

static int open_part(struct work *work, const struct frame_part *part)
{
    const char *name;
    int dir = work_parent(work->path, true, &name);
    if (dir < 0)
        return dir;
    int flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (part->offset ? 0 : O_CREAT);
    int fd = openat(dir, name, flags, 0600);
    int code = errno;
    close(dir);
    return fd < 0 ? -code : fd;
}

static int unpack_file(struct work *work, uint64_t *left, const struct frame_part *part)
{
    int fd = open_part(work, part);
    if (fd < 0)
        return fd;
    int r = 0;
    uint64_t offset = part->offset;
    for (uint32_t rest = part->len; r == 0 && rest;) {
        size_t n = rest < sizeof(piece) ? rest : sizeof(piece);
        r = take(work, left, piece, n);
        if (r == 0)
            r = work_write_all(fd, piece, n, (off_t)offset);
        offset += n;
        rest -= (uint32_t)n;
    }
    struct timespec times[2];
    times_of(part, times);
    if (r == 0 && part->last &&
        (fchmod(fd, part->program ? 0755 : 0644) < 0 || futimens(fd, times) < 0))
        r = -errno;
    close(fd);
    return r;
}

int work_unpack(struct work *work)
{
    for (uint64_t left = work->request->len; left;) {
        char head[FRAME_PART_SIZE];
        struct frame_part part = { 0 };
        int r = take(work, &left, head, sizeof(head));
        if (r == 0)
            r = frame_part_get(head, &part);
        if (r == 0)
            r = take_path(work, &left, part.path_len);
        if (r == 0)
            r = part.type == ENTRY_DIRECTORY ? unpack_directory(work)
                : part.type == ENTRY_SYMLINK ? unpack_link(work, &left, &part)
                                             : unpack_file(work, &left, &part);
        if (r < 0)
            return r;
    }
    return 0;
}
