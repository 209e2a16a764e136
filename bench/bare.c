/*
 * Stands in for the zygote's library (src/zygote/zygote.c) in the benchmark: the same interpreter, the same layout of
 * memory, the same fork, but into no sandbox. What a fresh sandbox takes longer than this is the price of isolation.
 *
 * Loaded by zygote.py as it is. fd 3 is a SOCK_SEQPACKET to bench/python/rivals.py: a byte comes with two descriptors, the
 * child's standard output and its channel; a message goes when everything is imported.
 */
#include "agent/sys.h"
#include "zygote/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *zygote_open(void);
EXPORT void zygote_seed(uint32_t *random_state, uint32_t *numpy_state);
EXPORT void zygote_fill(void);
EXPORT void zygote_side_by_side(int on);
EXPORT void zygote_prepare(const char *imported, const char *request, int request_len);
EXPORT int zygote_serve(void);
EXPORT void zygote_give_back(void);

enum { CONTROL = 3, HIDDEN = 1000, MT_WORDS = 624, MT_BYTES = 4 * MT_WORDS };
enum { OUTPUT, CHANNEL, N_FDS };
enum { SETTLED_AFTER = 2 }; /* orders: zygote.c */

static int *tid_address;
static const char *words;  /* what was imported */
static uint32_t *seeds[2]; /* of random and numpy.random; NULL: none */
static struct trial trial;

const char *zygote_open(void)
{
    if (prctl(PR_GET_TID_ADDRESS, &tid_address) < 0)
        return "the kernel does not tell where the C library keeps its thread id";
    pages_gather();
    return NULL;
}

void zygote_seed(uint32_t *random_state, uint32_t *numpy_state)
{
    seeds[0] = random_state;
    seeds[1] = numpy_state;
}

void zygote_prepare(const char *imported, const char *request, int request_len)
{
    words = imported;
    trial = (struct trial){ request, (size_t)request_len, tid_address };
    pages_fill();
}

void zygote_fill(void)
{
    pages_fill();
}

void zygote_side_by_side(int on)
{
    pages_side_by_side(on != 0);
}

/* Its children do not live long enough. */
void zygote_give_back(void)
{
}

/* A position and words, and words and a position. */
static void seed_generators(void)
{
    for (size_t i = 0; i < 2; i++) {
        if (!seeds[i] || getrandom(seeds[i] + (i == 0), MT_BYTES, 0) != MT_BYTES)
            continue;
        seeds[i][i == 0 ? 0 : MT_WORDS] = MT_WORDS;
    }
}

/* 0: nobody asks any more. */
static int next_order(int fds[N_FDS])
{
    char byte;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(N_FDS * sizeof(int))];
    } control;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    if (recvmsg(CONTROL, &message, 0) != 1 ||
        message.msg_controllen < CMSG_LEN(N_FDS * sizeof(int)))
        return 0;
    memcpy(fds, CMSG_DATA(&control.header), N_FDS * sizeof(int));
    return 1;
}

static void be_kernel(const int fds[N_FDS], const struct pages_written *written)
{
    pages_copy(written);
    (void)dup2(fds[OUTPUT], 1);
    (void)dup2(fds[OUTPUT], 2);
    (void)dup3(fds[CHANNEL], HIDDEN + 3, O_CLOEXEC); /* one socket, to ask by and to answer by */
    (void)dup3(fds[CHANNEL], HIDDEN + 4, O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup3(fd, HIDDEN + fd, O_CLOEXEC);
    (void)close_range(3, HIDDEN - 1, 0);
    seed_generators();
}

/* Returns in children only, and 0: there is nothing more for them to do. */
int zygote_serve(void)
{
    int fds[N_FDS];
    struct pages_written written;
    pages_freeze(/* huge= */ true);
    pages_collapse();
    int channel = trial_fork(&trial, &written);
    if (channel >= 0) {
        be_kernel((int[N_FDS]){ STDOUT_FILENO, channel }, &written);
        return 0;
    }
    (void)send(CONTROL, words, strlen(words), MSG_NOSIGNAL);
    for (unsigned orders = 1; next_order(fds); orders++) {
        if (sys_fork_with_tid(tid_address, -1) == 0) {
            be_kernel(fds, &written);
            return 0;
        }
        if (orders == SETTLED_AFTER)
            pages_settle();
        for (int i = 0; i < N_FDS; i++)
            close(fds[i]);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    _exit(0);
}
