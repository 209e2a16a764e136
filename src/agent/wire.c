#include "agent/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int prepare(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    return 0;
}

int wire_init(struct wire *wire, int fd, int out_fd)
{
    wire->fd = fd;
    wire->out_fd = out_fd;
    int r = prepare(fd);
    return r < 0 ? r : prepare(out_fd);
}

void wire_close(struct wire *wire)
{
    if (wire->out_fd >= 0 && wire->out_fd != wire->fd)
        close(wire->out_fd);
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = wire->out_fd = -1;
    wire->ready = wire->out_ready = 0;
    wire->in_at = wire->in_len = wire->out_at = wire->out_len = 0;
}

void wire_mute(struct wire *wire, bool muted)
{
    if (wire->muted)
        wire->out_at = wire->out_len = 0;
    wire->muted = muted;
}

void wire_poll(struct wire *wire, struct pollset *set)
{
    bool pending = wire_pending(wire), both = wire->fd == wire->out_fd;
    pollset_add(set, wire->fd, both && pending ? POLLIN | POLLOUT : POLLIN, &wire->ready);
    /* Not without need: of a pipe that nobody reads poll() would tell again and again. */
    pollset_add(set, wire->out_fd, !both && pending ? POLLOUT : 0, &wire->out_ready);
    /* The room they missed is there by now, and no event would tell them. */
    if (wire->starved && !pending)
        pollset_wake(set, 0);
    wire->starved = false;
}

int wire_read(struct wire *wire)
{
    memmove(wire->in, wire->in + wire->in_at, wire->in_len - wire->in_at);
    wire->in_len -= wire->in_at;
    wire->in_at = 0;
    ssize_t n = read(wire->fd, wire->in + wire->in_len, sizeof(wire->in) - wire->in_len);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    wire->in_len += (size_t)n;
    return 0;
}

int wire_next(struct wire *wire, struct frame *ret)
{
    int n = frame_parse(wire->in + wire->in_at, wire->in_len - wire->in_at, ret);
    if (n <= 0)
        return n;
    wire->in_at += (size_t)n;
    return 1;
}

int wire_flush(struct wire *wire)
{
    if (wire->out_fd < 0 || wire->muted)
        wire->out_at = wire->out_len = 0;
    while (wire->out_at < wire->out_len) {
        ssize_t n = write(wire->out_fd, wire->out + wire->out_at, wire->out_len - wire->out_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        wire->out_at += (size_t)n;
    }
    return 0;
}
