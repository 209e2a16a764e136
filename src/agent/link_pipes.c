/* What a kernel that joins is spoken to by, and a stock of it. */
#include "agent/link.h"

#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void link_pipes_close(struct link_pipes *pipes)
{
    fd_closep(&pipes->channel);
    fd_closep(&pipes->said);
    fd_closep(&pipes->out);
    fd_closep(&pipes->err);
    fd_closep(&pipes->unread);
    *pipes = (struct link_pipes)LINK_PIPES_NONE;
}

static int make_pipe(int *ret_ours, int *ret_theirs)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *ret_ours = fds[0];
    *ret_theirs = fds[1];
    return fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* The last quarter is for clients and for sandboxes: a kernel can be had without these. */
static bool are_scarce(int fd)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && (rlim_t)fd >= files.rlim_cur / 4 * 3;
}

int link_pipes_open(struct link_pipes *ret_ours, struct link_pipes *ret_theirs, struct err *err)
{
    int fds[2];
    *ret_ours = *ret_theirs = (struct link_pipes)LINK_PIPES_NONE;
    int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
    if (r == 0) {
        ret_ours->channel = fds[0];
        ret_theirs->channel = fds[1];
        r = shutdown(fds[0], SHUT_RD) < 0 ? -errno : 0;
    }
    if (r == 0)
        r = make_pipe(&ret_ours->said, &ret_theirs->said);
    if (r == 0)
        r = make_pipe(&ret_ours->out, &ret_theirs->out);
    if (r == 0)
        r = make_pipe(&ret_ours->err, &ret_theirs->err);
    if (r == 0 && are_scarce(ret_ours->err))
        r = -EMFILE;
    if (r == 0 && (ret_ours->unread = fcntl(fds[1], F_DUPFD_CLOEXEC, 0)) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    link_pipes_close(ret_ours);
    link_pipes_close(ret_theirs);
    return err_sys(err, -r, "make pipes for a kernel");
}

/*** a stock ***/

enum {
    STOCK = 2,     /* sessions that begin at the same time */
    REFILL_MS = 3, /* by then the kernel that took the last has been asked for */
};

struct link_stock {
    struct timer *timer;
    size_t n;
    struct link_pipes ours[STOCK], theirs[STOCK];
};

static void refill(void *data)
{
    struct link_stock *stock = data;
    struct err err = { 0 };
    while (stock->n < STOCK &&
           link_pipes_open(&stock->ours[stock->n], &stock->theirs[stock->n], &err) == 0)
        stock->n++; /* without, whoever comes hears why */
}

struct link_stock *link_stock_new(uv_loop_t *loop)
{
    struct link_stock *stock = xcalloc(1, sizeof(*stock));
    stock->timer = timer_new(loop, refill, stock);
    return stock;
}

void link_stock_free(struct link_stock *stock)
{
    if (!stock)
        return;
    timer_free(stock->timer);
    while (stock->n > 0) {
        link_pipes_close(&stock->ours[--stock->n]);
        link_pipes_close(&stock->theirs[stock->n]);
    }
    free(stock);
}

int link_stock_take(struct link_stock *stock, struct link_pipes *ret_ours,
                    struct link_pipes *ret_theirs, struct err *err)
{
    if (!timer_active(stock->timer))
        timer_start(stock->timer, REFILL_MS);
    if (stock->n == 0)
        return link_pipes_open(ret_ours, ret_theirs, err);
    *ret_ours = stock->ours[--stock->n];
    *ret_theirs = stock->theirs[stock->n];
    return 0;
}
