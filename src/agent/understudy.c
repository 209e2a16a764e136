#include "agent/understudy.h"
#include "agent/guest.h"
#include "agent/pipes.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const struct process nobody = { .in_fd = -1, .out_fd = -1, .err_fd = -1, .channel_fd = -1 };

void understudy_init(struct understudy *understudy)
{
    *understudy = (struct understudy){ .order_fd = -1, .process = nobody };
}

/*** the process ***/

static int hear(int fd, void *ret, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)ret + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        done += (size_t)n;
    }
    return 0;
}

/* What understudy_send() sends. The code has been written by the agent. */
static int hear_order(int fd, struct order *order)
{
    int r = hear(fd, &order->spec, sizeof(order->spec));
    if (r < 0)
        return r;
    if (order->spec.args_len > UNDERSTUDY_ARGS_MAX)
        return -EPROTO;
    order->args_len = order->spec.args_len;
    order->code_len = order->spec.code_len;
    r = hear(fd, order->args, order->args_len);
    return r < 0 ? r : order_complete(order);
}

static _Noreturn void wait_for_order(struct order *order, struct guest_fds *fds)
{
    const char *step = "";
    int r = guest_prepare(order->config, fds, &step);
    if (r == 0) {
        step = "hear the order";
        r = hear_order(fds->failure_fd, order);
    }
    if (r == 0) {
        const struct guest_program program = { order->argv, order->env, order->cwd };
        r = guest_execute(&program, &step);
    }
    guest_fail(fds->failure_fd, -r, step);
}

/*** the agent ***/

void understudy_make(struct understudy *understudy, struct order *order)
{
    struct pipes pipes;
    if (pipes_open(&pipes, PIPES_ORDERS) < 0)
        return;
    pid_t pid = guest_fork(order->config);
    if (pid == 0) {
        struct guest_fds fds = {
            .stdio = { pipes.in[0], pipes.out[1], pipes.err[1] },
            .channel_fd = -1,
            .failure_fd = pipes.failure[1],
        };
        wait_for_order(order, &fds);
    }
    if (pid > 0) {
        understudy->order_fd = pipes.failure[0];
        understudy->process = nobody;
        understudy->process.pid = pid;
        understudy->process.out_fd = pipes.out[0];
        understudy->process.err_fd = pipes.err[0];
        pipes.failure[0] = pipes.out[0] = pipes.err[0] = -1;
    }
    pipes_close(&pipes);
}

bool understudy_send(struct understudy *understudy, struct order *order, struct process *ret)
{
    struct iovec parts[] = { { &order->spec, sizeof(order->spec) },
                             { order->args, order->args_len } };
    const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    size_t len = parts[0].iov_len + parts[1].iov_len;
    bool fits = !order->spec.input_len && order->args_len <= UNDERSTUDY_ARGS_MAX;
    if (!understudy->process.pid || !fits ||
        sendmsg(understudy->order_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len) {
        understudy_dismiss(understudy);
        return false;
    }
    *ret = understudy->process;
    order->failure_fd = understudy->order_fd;
    understudy_init(understudy);
    return true;
}

static void drop(struct understudy *understudy)
{
    if (understudy->order_fd < 0)
        return;
    close(understudy->order_fd);
    close(understudy->process.out_fd);
    close(understudy->process.err_fd);
    understudy_init(understudy);
}

void understudy_dismiss(struct understudy *understudy)
{
    if (understudy->process.pid)
        (void)kill(understudy->process.pid, SIGKILL); /* not reaped: the number is still its own */
    drop(understudy);
}

bool understudy_reaped(struct understudy *understudy, pid_t pid)
{
    bool was_it = understudy->process.pid == pid;
    if (was_it)
        drop(understudy);
    return was_it;
}
