#include "zygote/trial.h"

#include "agent/frame.h"
#include "agent/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ANSWER_SECONDS = 5 }; /* it takes milliseconds */

static bool skip(int channel, size_t len)
{
    char block[1024];
    while (len > 0) {
        ssize_t n = recv(channel, block, len < sizeof(block) ? len : sizeof(block), 0);
        if (n <= 0)
            return false;
        len -= (size_t)n;
    }
    return true;
}

/* Up to its last word. */
static bool hear_answer(int channel)
{
    const struct timeval longest = { .tv_sec = ANSWER_SECONDS };
    uint32_t head = 0;
    if (setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)) < 0)
        return false;
    while (!(head & FRAME_MESSAGE_LAST))
        if (recv(channel, &head, sizeof(head), MSG_WAITALL) != (ssize_t)sizeof(head) ||
            !skip(channel, head & ~FRAME_MESSAGE_LAST))
            return false;
    return true;
}

static void watch(pid_t kernel, int channel, const struct trial *trial, struct pages_written *ret)
{
    ssize_t len = (ssize_t)trial->request_len;
    if (send(channel, trial->request, trial->request_len, MSG_NOSIGNAL) == len &&
        hear_answer(channel))
        pages_learn(kernel, ret);
    (void)kill(kernel, SIGKILL);
    while (waitpid(kernel, NULL, 0) < 0 && errno == EINTR)
        ;
}

int trial_fork(const struct trial *trial, struct pages_written *ret)
{
    int ends[2];
    ret->n = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    pid_t pid = sys_fork_with_tid(trial->tid_address, -1);
    if (pid == 0)
        return ends[1]; /* the other is closed with all that kernels do not have */
    close(ends[1]);
    if (pid > 0)
        watch(pid, ends[0], trial, ret);
    close(ends[0]);
    return -1;
}
