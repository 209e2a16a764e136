#include "agent/pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static void close_both(int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

void pipes_close(struct pipes *pipes)
{
    close_both(pipes->in);
    close_both(pipes->out);
    close_both(pipes->err);
    close_both(pipes->failure);
    close_both(pipes->channel);
}

static int make_pipe(int fds[2], int ours)
{
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    return fcntl(fds[ours], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_channel(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    return fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_all(struct pipes *pipes, unsigned flags)
{
    int r = make_pipe(pipes->out, 0);
    if (r == 0)
        r = make_pipe(pipes->err, 0);
    if (r == 0)
        r = flags & PIPES_ORDERS ? make_channel(pipes->failure) : make_pipe(pipes->failure, 0);
    if (r == 0 && flags & PIPES_CHANNEL)
        r = make_channel(pipes->channel);
    if (r < 0)
        return r;
    if (flags & PIPES_INPUT)
        return make_pipe(pipes->in, 1);
    pipes->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return pipes->in[0] < 0 ? -errno : 0;
}

int pipes_open(struct pipes *ret, unsigned flags)
{
    *ret = (struct pipes){ { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    int r = open_all(ret, flags);
    if (r < 0)
        pipes_close(ret);
    return r;
}
