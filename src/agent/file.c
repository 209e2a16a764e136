#include "agent/file.h"
#include "agent/clock.h"
#include "agent/guest.h"
#include "agent/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

void files_init(struct files *files, const struct config *config, struct wire *wire)
{
    files->config = config;
    files->wire = wire;
    for (size_t i = 0; i < FILE_SLOTS; i++) {
        files->slots[i].fd = -1;
        feed_init(&files->slots[i].content);
    }
}

/*** one piece of work ***/

static void answer(struct file *file, int code)
{
    if (!file->said_it)
        file->end = (struct frame_file_end){ .code = (uint32_t)code };
    file->state = FILE_ANSWERED;
    feed_end(&file->content);
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    if (file->pid)
        (void)kill(file->pid, SIGKILL); /* it may have been stopped before it could exit */
}

static int open_pipes(int from[2], int to[2], bool with_content)
{
    if (pipe2(from, O_CLOEXEC) < 0 || fcntl(from[0], F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    if (with_content && (pipe2(to, O_CLOEXEC) < 0 || fcntl(to[1], F_SETFL, O_NONBLOCK) < 0))
        return -errno;
    return 0;
}

static void close_pipes(int from[2], int to[2])
{
    for (int i = 0; i < 2; i++) {
        if (from[i] >= 0)
            close(from[i]);
        if (to[i] >= 0)
            close(to[i]);
    }
}

static void start(struct files *files, struct file *file)
{
    if (files->n_dying + FILE_SLOTS > FILE_DYING) {
        answer(file, EBUSY); /* they cannot even die: the disk hangs */
        return;
    }
    int from[2] = { -1, -1 }, to[2] = { -1, -1 };
    bool with_content = file->request.len > 0;
    int r = open_pipes(from, to, with_content);
    pid_t pid = r < 0 ? r : guest_fork(files->config);
    if (pid == 0)
        worker_main(files->config, file->number, &file->request, to[0], from[1]);
    if (pid < 0) {
        close_pipes(from, to);
        answer(file, -pid);
        return;
    }
    file->state = FILE_WORKING;
    file->pid = pid;
    file->fd = from[0];
    file->deadline_ns = clock_ns() + FRAME_FILE_MS * NS_PER_MS;
    feed_connect(&file->content, to[1]);
    from[0] = to[1] = -1;
    close_pipes(from, to);
}

int files_request(struct files *files, uint32_t number, const struct frame_file *request)
{
    if (number <= files->last_number)
        return -EPROTO;
    files->last_number = number;
    struct file *file = NULL;
    for (size_t i = 0; i < FILE_SLOTS && !file; i++)
        if (files->slots[i].state == FILE_FREE)
            file = &files->slots[i];
    if (!file)
        return -EPROTO; /* asked for more at once than it may */
    file->state = FILE_WAITING;
    file->number = number;
    file->pid = 0;
    file->why = EIO;
    file->said_it = false;
    file->in_len = 0;
    file->request = *request;
    memcpy(file->paths, request->path, request->path_len + request->target_len);
    file->request.path = file->paths;
    file->request.target = file->paths + request->path_len;
    feed_begin(&file->content, request->len);
    return 0;
}

int files_put(struct files *files, uint32_t number, const char *bytes, size_t len)
{
    for (size_t i = 0; i < FILE_SLOTS; i++) {
        struct file *file = &files->slots[i];
        if (file->number == number && (file->state == FILE_WAITING || file->state == FILE_WORKING))
            return feed_take(&file->content, bytes, len);
    }
    return number <= files->last_number ? 0 : -EPROTO; /* late: the answer has crossed it */
}

/*** what workers say ***/

/* The frames that are whole. True when no such is left; false when there is no room for the next one,
 * or the work is over. */
static bool pass_on(struct files *files, struct file *file)
{
    struct frame frame;
    int n;
    while ((n = frame_parse(file->in, file->in_len, &frame)) != 0) {
        bool ours = n > 0 && frame.number == file->number;
        if (!ours || frame.type != FRAME_FILE_DATA) {
            file->said_it =
                ours && frame.type == FRAME_FILE_END && frame_file_end_get(&frame, &file->end) > 0;
            answer(file, EIO);
            return false;
        }
        if (!wire_say(files->wire, frame.type, frame.number, frame.payload, frame.len))
            return false;
        file->in_len -= (size_t)n;
        memmove(file->in, file->in + n, file->in_len);
    }
    return true;
}

static void listen_to(struct files *files, struct file *file)
{
    if (!pass_on(files, file) || !file->ready)
        return;
    ssize_t n = read(file->fd, file->in + file->in_len, sizeof(file->in) - file->in_len);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        answer(file, file->why);
        return;
    }
    if (n > 0)
        file->in_len += (size_t)n;
    (void)pass_on(files, file);
}

static void finish(struct files *files, struct file *file)
{
    char payload[FRAME_FILE_END_SIZE];
    frame_file_end_put(payload, &file->end);
    if (!wire_say(files->wire, FRAME_FILE_END, file->number, payload, sizeof(payload)))
        return;
    if (file->pid)
        files->dying[files->n_dying++] = file->pid; /* start() has seen to the room */
    file->pid = 0;
    file->state = FILE_FREE;
}

/*** in the loop ***/

bool files_reaped(struct files *files, pid_t pid)
{
    for (size_t i = 0; i < FILE_SLOTS; i++)
        if (files->slots[i].pid == pid) {
            files->slots[i].pid = 0;
            return true;
        }
    for (size_t i = 0; i < files->n_dying; i++)
        if (files->dying[i] == pid) {
            files->dying[i] = files->dying[--files->n_dying];
            return true;
        }
    return false;
}

bool files_working(const struct files *files)
{
    for (size_t i = 0; i < FILE_SLOTS; i++)
        if (files->slots[i].state == FILE_WORKING)
            return true;
    return false;
}

void files_cut(struct files *files)
{
    for (size_t i = 0; i < FILE_SLOTS; i++)
        if (files->slots[i].state == FILE_WORKING)
            files->slots[i].why = EAGAIN;
}

void files_poll(struct files *files, struct pollset *set)
{
    for (size_t i = 0; i < FILE_SLOTS; i++) {
        struct file *file = &files->slots[i];
        if (file->state != FILE_WORKING)
            continue;
        pollset_add(set, file->fd, file->in_len < sizeof(file->in) ? POLLIN : 0, &file->ready);
        feed_poll(&file->content, set);
        pollset_wake(set, file->deadline_ns);
    }
}

void files_step(struct files *files, bool may_start)
{
    uint64_t now = clock_ns();
    for (size_t i = 0; i < FILE_SLOTS; i++) {
        struct file *file = &files->slots[i];
        if (file->state == FILE_WAITING && may_start)
            start(files, file);
        if (file->state == FILE_WORKING) {
            listen_to(files, file);
            feed_step(&file->content, files->wire, FRAME_FILE_MORE, file->number);
        }
        if (file->state == FILE_WORKING && now >= file->deadline_ns)
            answer(file, ETIMEDOUT);
        if (file->state == FILE_ANSWERED)
            finish(files, file);
    }
}
