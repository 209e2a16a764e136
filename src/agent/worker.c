#include "agent/worker.h"
#include "agent/clock.h"
#include "agent/worker_private.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/*** talking ***/

/* The agent has gone: nobody left to tell. */
static void write_all(const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(GUEST_OUT, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(1);
        bytes += n;
        len -= (size_t)n;
    }
}

char *work_room(struct work *work, size_t *ret_len)
{
    *ret_len = FRAME_PAYLOAD_MAX - work->out_len;
    return work->out + FRAME_HEADER + work->out_len;
}

void work_add(struct work *work, size_t len)
{
    work->out_len += len;
    if (work->out_len == FRAME_PAYLOAD_MAX)
        work_flush(work);
}

void work_flush(struct work *work)
{
    if (!work->out_len)
        return;
    frame_put_header(work->out, FRAME_FILE_DATA, work->number, work->out_len);
    write_all(work->out, FRAME_HEADER + work->out_len);
    work->out_len = 0;
}

bool work_late(const struct work *work)
{
    return clock_ns() > work->give_up_ns;
}

int work_next_entry(struct work_entries *entries, const struct sys_dirent **ret)
{
    _Alignas(struct sys_dirent) static char bytes[32 * 1024];
    for (;;) {
        if (entries->at >= entries->len) {
            entries->len = sys_getdents64(entries->dir, bytes, sizeof(bytes));
            entries->at = 0;
            if (entries->len <= 0)
                return (int)entries->len;
        }
        *ret = (const void *)(bytes + entries->at);
        entries->at += (*ret)->reclen;
        if (strcmp((*ret)->name, ".") != 0 && strcmp((*ret)->name, "..") != 0)
            return 1;
    }
}

static void say_end(struct work *work, int r)
{
    char frame[FRAME_HEADER + FRAME_FILE_END_SIZE];
    if (r < 0)
        work->end = (struct frame_file_end){ .code = (uint32_t)-r };
    work_flush(work);
    frame_put_header(frame, FRAME_FILE_END, work->number, FRAME_FILE_END_SIZE);
    frame_file_end_put(frame + FRAME_HEADER, &work->end);
    write_all(frame, sizeof(frame));
}

/*** directories ***/

int work_parent(const char *clean, bool make, const char **ret_name)
{
    char dir[PATH_BYTES];
    if (!*clean)
        return -EBUSY;
    *ret_name = path_split(clean, dir);
    enum { FLAGS = O_PATH | O_DIRECTORY };
    int fd = path_open(GUEST_WORKSPACE, dir, FLAGS, PATH_LINKS_BENEATH);
    if (fd != -ENOENT || !make)
        return fd;

    /* From the top, one name at a time; each prefix is resolved afresh, for it may hold links. */
    fd = path_open(GUEST_WORKSPACE, "", FLAGS, PATH_LINKS_BENEATH);
    for (char *end = dir; fd >= 0;) {
        char *name = end;
        end += strcspn(end, "/");
        bool last = *end == '\0';
        *end = '\0';
        int next = path_open(GUEST_WORKSPACE, dir, FLAGS, PATH_LINKS_BENEATH);
        if (next == -ENOENT) {
            next = mkdirat(fd, name, 0755) < 0 && errno != EEXIST
                       ? -errno
                       : path_open(GUEST_WORKSPACE, dir, FLAGS, PATH_LINKS_BENEATH);
        }
        close(fd);
        fd = next;
        if (last)
            break;
        *end++ = '/';
    }
    return fd;
}

/*** one piece of work ***/

static int (*const ops[])(struct work *work) = {
    [FILE_READ] = work_read,   [FILE_WRITE] = work_write,   [FILE_LIST] = work_list,
    [FILE_STAT] = work_stat,   [FILE_DELETE] = work_delete, [FILE_MOVE] = work_move,
    [FILE_SPACE] = work_space, [FILE_PACK] = work_pack,     [FILE_UNPACK] = work_unpack,
};

static int do_work(const struct config *config, struct work *work)
{
    const struct frame_file *request = work->request;
    int r = path_clean(config->workspace, request->path, request->path_len, work->path);
    if (r < 0)
        return r;
    r = path_clean(config->workspace, request->target, request->target_len, work->target);
    if (r < 0)
        return r;
    return ops[request->op](work);
}

_Noreturn void worker_main(const struct config *config, uint32_t number,
                           const struct frame_file *request, int in_fd, int out_fd)
{
    static struct work work;
    work.number = number;
    work.request = request;
    work.give_up_ns = clock_ns() + (FRAME_FILE_MS - 1000) * NS_PER_MS;
    int r = guest_enter(config, in_fd, out_fd);
    if (r < 0)
        _exit(1); /* not the guest: not a step further, and no word with its authority */
    /* A file over its limit is an error to report, not a death. */
    (void)signal(SIGXFSZ, SIG_IGN);
    umask(022);
    say_end(&work, do_work(config, &work));
    _exit(0);
}
