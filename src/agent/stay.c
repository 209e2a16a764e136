#include "agent/stay.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char name[] = "\0belljar-agent"; /* abstract: the first byte is part of it */
enum { NAME_LEN = sizeof(name) - 1, STREAMS = 2 };

static socklen_t make_address(struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(ret->sun_path, name, NAME_LEN);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + NAME_LEN);
}

static bool peer_of(int fd, struct ucred *ret)
{
    socklen_t len = sizeof(*ret);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &len) == 0 && len == sizeof(*ret);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/*** pid 1 ***/

static const struct candidate nobody = { .fd = -1, .in_fd = -1, .out_fd = -1 };

void stay_init(struct stay *stay)
{
    stay->listen_fd = stay->helper_fd = -1;
    for (size_t i = 0; i < STAY_CANDIDATES; i++)
        stay->candidates[i] = nobody;
}

void stay_keep(struct stay *stay, const struct frame_keep *keep)
{
    struct sockaddr_un address;
    socklen_t len = make_address(&address);
    stay->keep = *keep;
    if (stay->listen_fd < 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 4) < 0))
            close_fd(&fd);
        stay->listen_fd = fd;
    }
    stay->wanted = stay->listen_fd >= 0;
}

void stay_poll(struct stay *stay, struct pollset *set)
{
    pollset_add(set, stay->listen_fd, POLLIN, &stay->listen_ready);
    pollset_add(set, stay->helper_fd, POLLIN, &stay->helper_ready);
    for (size_t i = 0; i < STAY_CANDIDATES; i++) {
        struct candidate *candidate = &stay->candidates[i];
        pollset_add(set, candidate->fd, POLLIN, &candidate->ready);
        pollset_add(set, candidate->in_fd, POLLIN, &candidate->in_ready);
    }
}

void stay_dismiss(struct stay *stay)
{
    close_fd(&stay->helper_fd);
    stay->helper_ready = 0;
}

/* A helper never says anything more. */
bool stay_lost(struct stay *stay)
{
    if (stay->helper_fd < 0 || !stay->helper_ready)
        return false;
    stay_dismiss(stay);
    return true;
}

static void drop(struct candidate *candidate)
{
    close_fd(&candidate->fd);
    close_fd(&candidate->in_fd);
    close_fd(&candidate->out_fd);
    *candidate = nobody;
}

/* If there are too many, the oldest goes: its server is dead, or will be. */
static void let_in(struct stay *stay, const struct config *config)
{
    struct ucred peer;
    struct sockaddr_un unused;
    socklen_t len = sizeof(unused);
    int fd =
        accept4(stay->listen_fd, (struct sockaddr *)&unused, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && (!peer_of(fd, &peer) || peer.uid == config->setup.guest_uid))
        close_fd(&fd);
    if (fd < 0)
        return;
    struct candidate *last = &stay->candidates[STAY_CANDIDATES - 1];
    drop(&stay->candidates[0]);
    memmove(stay->candidates, stay->candidates + 1, sizeof(*last) * (STAY_CANDIDATES - 1));
    *last = nobody;
    last->fd = fd;
}

/* False: something else has come than two descriptors, which are closed then. */
static bool read_streams(int fd, int ret[STREAMS])
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(STREAMS * sizeof(int))];
    } control;
    char byte;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1)
        return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
        return false;
    int count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int)), fds[STREAMS] = { -1, -1 };
    memcpy(fds, CMSG_DATA(head), (size_t)count * sizeof(int));
    if (count != STREAMS) {
        close_fd(&fds[0]);
        return false;
    }
    memcpy(ret, fds, sizeof(fds));
    return true;
}

static bool greet(const struct candidate *candidate)
{
    char frame[FRAME_HEADER + FRAME_HELLO_SIZE];
    const struct frame_hello hello = { .magic = FRAME_MAGIC, .version = FRAME_VERSION };
    frame_put_header(frame, FRAME_READY, 0, FRAME_HELLO_SIZE);
    frame_hello_put(frame + FRAME_HEADER, &hello);
    return write(candidate->out_fd, frame, sizeof(frame)) == (ssize_t)sizeof(frame);
}

/* Its server has said something, and not merely gone. */
static bool is_alive(const struct candidate *candidate)
{
    int waiting = 0;
    return ioctl(candidate->in_fd, FIONREAD, &waiting) == 0 && waiting > 0;
}

/* True: it is the next stream. */
static bool listen_to(struct candidate *candidate)
{
    int fds[STREAMS];
    if (candidate->in_fd >= 0) {
        if (candidate->in_ready && is_alive(candidate))
            return true;
        if (candidate->in_ready || candidate->ready)
            drop(candidate);
        return false;
    }
    if (!candidate->ready)
        return false;
    if (!read_streams(candidate->fd, fds)) {
        drop(candidate);
        return false;
    }
    candidate->in_fd = fds[0];
    candidate->out_fd = fds[1];
    if (!greet(candidate))
        drop(candidate);
    return false;
}

bool stay_step(struct stay *stay, const struct config *config, int *ret_in, int *ret_out)
{
    for (size_t i = 0; i < STAY_CANDIDATES; i++) {
        struct candidate *candidate = &stay->candidates[i];
        if (candidate->fd < 0 || !listen_to(candidate))
            continue;
        stay_dismiss(stay);
        stay->helper_fd = candidate->fd;
        *ret_in = candidate->in_fd;
        *ret_out = candidate->out_fd;
        *candidate = nobody;
        return true;
    }
    if (stay->listen_ready)
        let_in(stay, config);
    return false;
}

/*** The helper ***/

static int complain(const char *what)
{
    (void)fprintf(stderr, "belljar agent: join: %s: %s\n", what, strerror(errno));
    return 1;
}

static ssize_t send_streams(int fd)
{
    static const int fds[STREAMS] = { STDIN_FILENO, STDOUT_FILENO };
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control = { 0 };
    char byte = 0;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(head), fds, sizeof(fds));
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

int stay_help(void)
{
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t len = make_address(&address);
    char byte;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || fd < 0)
        return complain("begin");
    if (connect(fd, (struct sockaddr *)&address, len) < 0)
        return complain("nobody waits");
    errno = EPERM;
    if (!peer_of(fd, &peer) || peer.pid != 1)
        return complain("somebody else waits");
    if (send_streams(fd) < 0)
        return complain("hand over");
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    return 0;
}
