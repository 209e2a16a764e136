#include "session/roster.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A note that is being written. */
#define NEW_SUFFIX ".new"
enum { WRITE_TRIES = 100 };

struct roster {
    int dir;
};

int roster_open(const char *state_dir, bool make, uid_t uid, struct roster **ret, struct err *err)
{
    auto_free char *path = xasprintf("%s/kept", state_dir);
    struct stat st;
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "state_dir: make %s", path);
    auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0)
        return err_sys(err, errno, "state_dir: open %s", path);
    if (geteuid() == 0 && st.st_uid != uid && fchown(dir, uid, (gid_t)uid) < 0)
        return err_sys(err, errno, "state_dir: give %s to the server's user", path);
    if ((geteuid() != 0 && st.st_uid != uid) || (st.st_mode & 077))
        return err_set(err, EPERM, "state_dir: %s must belong to user id %u, with mode 700", path,
                       uid);
    struct roster *roster = xcalloc(1, sizeof(*roster));
    roster->dir = steal_fd(&dir);
    *ret = roster;
    return 0;
}

void roster_close(struct roster *roster)
{
    if (!roster)
        return;
    fd_closep(&roster->dir);
    free(roster);
}

/*** Reading ***/

static uint64_t age_ms(const struct timespec *then)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t ms = (now.tv_sec - then->tv_sec) * 1000 + (now.tv_nsec - then->tv_nsec) / 1000000;
    return ms > 0 ? (uint64_t)ms : 0;
}

/* NULL: it is none. *ret_lost: it could not even be looked at, which says nothing about what it is. */
static json_t *read_one(const struct roster *roster, const char *name, bool *ret_lost)
{
    static const struct json_limits limits = { .depth = 16, .digits = 32, .nodes = 20000 };
    struct err err;
    struct stat st;
    auto_json *json = NULL;
    auto_fd fd = openat(roster->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *ret_lost = fd < 0 && errno != ELOOP; /* a link is none of ours */
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > ROSTER_FILE_MAX)
        return NULL;
    auto_free char *text = xmalloc((size_t)st.st_size + 1);
    ssize_t len = read(fd, text, (size_t)st.st_size);
    if (len <= 0 || json_read(text, (size_t)len, &limits, &json, &err) < 0 || !json_is_object(json))
        return NULL;
    json_put(json, "unused", json_integer((json_int_t)age_ms(&st.st_mtim)));
    return steal_ptr(&json);
}

static bool is_new(const char *name)
{
    size_t len = strlen(name), suffix = strlen(NEW_SUFFIX);
    return len >= suffix && strcmp(name + len - suffix, NEW_SUFFIX) == 0;
}

json_t *roster_read(const struct roster *roster)
{
    json_t *all = json_object();
    int fd = openat(roster->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir && json_object_size(all) < ROSTER_MAX && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        bool lost = false;
        json_t *note = is_new(entry->d_name) ? NULL : read_one(roster, entry->d_name, &lost);
        if (note)
            json_put(all, entry->d_name, note);
        else if (!lost)
            roster_remove(roster, entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    return all;
}

/*** Writing ***/

static int set_age(int fd, uint64_t ms)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
    (void)clock_gettime(CLOCK_REALTIME, &times[1]);
    times[1].tv_sec -= (time_t)(ms / 1000);
    return futimens(fd, times) < 0 ? -errno : 0;
}

static int write_whole(int dir, const char *name, const struct buf *text, uint64_t unused_ms)
{
    auto_fd fd =
        openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, (mode_t)0600);
    if (fd < 0)
        return -errno;
    for (size_t at = 0; at < text->len;) {
        ssize_t n = write(fd, text->data + at, text->len - at);
        if (n < 0)
            return -errno;
        at += (size_t)n;
    }
    return set_age(fd, unused_ms);
}

/* A server that begins takes a new file for one whose writer was killed, and removes it: then it is written again. */
static int replace(int dir, const char *name, const char *new, const struct buf *text,
                   uint64_t unused_ms)
{
    for (int tries = 1;; tries++) {
        int r = write_whole(dir, new, text, unused_ms);
        if (r < 0)
            return r;
        if (renameat(dir, new, dir, name) == 0)
            return 0;
        if (errno != ENOENT || tries == WRITE_TRIES)
            return -errno;
    }
}

int roster_write(const struct roster *roster, const char *name, const json_t *note,
                 uint64_t unused_ms)
{
    auto_buf text = BUF_INIT(ROSTER_FILE_MAX);
    auto_free char *new = xasprintf("%s" NEW_SUFFIX, name);
    int r = json_write(&text, note);
    if (r == 0)
        r = replace(roster->dir, name, new, &text, unused_ms);
    if (r < 0) {
        log_warning("state_dir: a session cannot be kept for the next server: %s", strerror(-r));
        (void)unlinkat(roster->dir, new, 0);
    }
    return r;
}

void roster_remove(const struct roster *roster, const char *name)
{
    (void)unlinkat(roster->dir, name, 0); /* what it was of is gone: nothing is adopted for it */
}

void roster_touch(const struct roster *roster, const char *name)
{
    (void)utimensat(roster->dir, name, NULL, AT_SYMLINK_NOFOLLOW);
}
