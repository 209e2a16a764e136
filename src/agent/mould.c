#include "agent/mould.h"
#include "agent/agent.h"
#include "agent/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static struct mould mould;

static _Noreturn void die(const char *what, int code)
{
    (void)dprintf(STDERR_FILENO, "belljar mould: %s: %s\n", what, strerror(code));
    _exit(1);
}

/*** the set-up ***/

static void read_exactly(void *ret, size_t len)
{
    ssize_t n = read(MOULD_SETUP_FD, ret, len);
    if (n != (ssize_t)len)
        die("set-up", n < 0 ? errno : EINVAL);
}

static void read_setup(void)
{
    static struct sys_filter guest_filter[AGENT_FILTER_MAX];
    struct mould_setup *setup = &mould.setup;
    read_exactly(setup, sizeof(*setup));
    if (setup->magic != MOULD_MAGIC || setup->n_trees > AGENT_CGROUPS_MAX ||
        setup->n_agent_filter > AGENT_FILTER_MAX || setup->n_guest_filter > AGENT_FILTER_MAX ||
        setup->hostname[sizeof(setup->hostname) - 1])
        die("set-up", EINVAL);
    read_exactly(mould.agent_filter, setup->n_agent_filter * sizeof(guest_filter[0]));
    read_exactly(guest_filter, setup->n_guest_filter * sizeof(guest_filter[0]));
    close(MOULD_SETUP_FD);
    mould.landlock = setup->has_landlock ? MOULD_TREE_FD + (int)setup->n_trees : -1;
    int r = agent_cast(guest_filter, setup->n_guest_filter);
    if (r < 0)
        die("cast", -r);
}

/*** words ***/

/* `fds` of MOULD_BORN, two; or NULL. */
static void tell(const struct mould_reply *reply, const int *fds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control = { 0 };
    struct iovec part = { (void *)(uintptr_t)reply, sizeof(*reply) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (fds) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.space);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(2 * sizeof(int));
        memcpy(CMSG_DATA(header), fds, 2 * sizeof(int));
    }
    while (sendmsg(MOULD_CONTROL_FD, &message, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            _exit(0); /* the spawner is gone */
}

/* `pid`: MOULD_UNBORN, or who is born and will not start. */
static void tell_failed(const struct mould_order *order, pid_t pid, const char *step, int code)
{
    struct mould_reply reply = {
        .word = MOULD_FAILED, .slot = order->slot, .birth = order->birth, .pid = pid, .code = code
    };
    (void)snprintf(reply.step, sizeof(reply.step), "%s", step);
    tell(&reply, NULL);
}

/*** one sandbox ***/

static int write_map(pid_t pid, const char *file, const char *map)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int r = fd < 0 || write(fd, map, strlen(map)) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return r;
}

/* Two ids of this slot's own: the agent's, which sees itself as 0, and the guest's; or the one there is. */
static int map_ids(const struct mould_order *order, pid_t pid)
{
    char map[96];
    unsigned guest = order->setup.guest_uid;
    if (mould.setup.own_uids)
        (void)snprintf(map, sizeof(map), "0 %u 1\n%u %u 1\n", order->agent_uid, guest,
                       order->guest_uid);
    else
        (void)snprintf(map, sizeof(map), "%u %u 1\n", guest, guest);
    int r = write_map(pid, "gid_map", map);
    return r < 0 ? r : write_map(pid, "uid_map", map);
}

/* v2: the leaf that a child is born in. -1: elsewhere it enters by itself. */
static int open_birthplace(const struct mould_order *order)
{
    char name[MOULD_LEAF_NAME_MAX];
    if (order->setup.cgroup != AGENT_CGROUP_V2)
        return -1;
    mould_leaf_name(name, AGENT_CGROUP_V2, order->leaf, MOULD_AGENT_LEAF, "");
    int fd = openat(MOULD_TREE_FD, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Whoever is born belongs to the spawner. */
static pid_t clone_child(struct inside *inside)
{
    bool v2 = inside->order->setup.cgroup == AGENT_CGROUP_V2;
    int place = open_birthplace(inside->order);
    if (v2 && place < 0)
        return place;
    uint64_t flags = CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWPID;
    pid_t pid =
        sys_clone(flags | (v2 ? SYS_CLONE_INTO_CGROUP : 0), /* exit_signal= */ 0, v2 ? place : 0);
    if (pid == 0)
        inside_run(inside);
    if (v2)
        close(place);
    return pid;
}

static void bear(const struct mould_order *order, const int stream[2], const int door[2])
{
    struct inside inside = { .mould = &mould,
                             .order = order,
                             .stream = stream[1],
                             .door = door[1],
                             .control = MOULD_CONTROL_FD };
    pid_t pid = clone_child(&inside);
    if (pid < 0) {
        tell_failed(order, MOULD_UNBORN, "clone", -pid);
        return;
    }
    int r = map_ids(order, pid);
    if (r < 0) /* not reaped: nobody knows it yet */
        (void)kill(pid, SIGKILL);
    const int outer[] = { stream[0], door[0] };
    const struct mould_reply born = {
        .word = MOULD_BORN, .slot = order->slot, .birth = order->birth, .pid = pid
    };
    tell(&born, outer);
    if (r < 0)
        tell_failed(order, pid, "map ids", -r);
    else
        (void)!send(door[0], "", 1, MSG_NOSIGNAL); /* it goes on, or is dead */
}

static void obey(const struct mould_order *order)
{
    int fds[4] = { -1, -1, -1, -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, &fds[0]) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, &fds[2]) < 0)
        tell_failed(order, MOULD_UNBORN, "make the agent's sockets", errno);
    else
        bear(order, &fds[0], &fds[2]);
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

int main(void)
{
    (void)prctl(PR_SET_NAME, "belljar-mould");
    read_setup();
    if (dup2(STDIN_FILENO, STDERR_FILENO) < 0) /* agents have nobody to complain to */
        die("standard error", errno);
    for (;;) {
        static struct mould_order order;
        ssize_t n = recv(MOULD_CONTROL_FD, &order, sizeof(order), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof(order) || order.setup.n_cgroups > mould.setup.n_trees)
            _exit(0); /* the spawner has gone */
        obey(&order);
    }
}
