#include "agent/mould.h"
#include "agent/agent.h"
#include "agent/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct mould mould;
static int home = -1; /* a network namespace for the mould itself, where sandboxes have their own */

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

/* `fds` of MOULD_BORN. Fails only with such: guests who share our uid can have too many on their way. */
static int tell(const struct mould_reply *reply, const int *fds, size_t n_fds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(MOULD_BORN_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec part = { (void *)(uintptr_t)reply, sizeof(*reply) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (n_fds) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    while (sendmsg(MOULD_CONTROL_FD, &message, MSG_NOSIGNAL) < 0) {
        if (errno == EINTR)
            continue;
        if (!n_fds || errno == EPIPE || errno == ECONNRESET)
            _exit(0); /* the spawner is gone, or will see that we are */
        return -errno;
    }
    return 0;
}

/* `pid`: MOULD_UNBORN, or who is born and will not start. */
static void tell_failed(const struct mould_order *order, pid_t pid, const char *step, int code)
{
    struct mould_reply reply = {
        .word = MOULD_FAILED, .slot = order->slot, .birth = order->birth, .pid = pid, .code = code
    };
    (void)snprintf(reply.step, sizeof(reply.step), "%s", step);
    (void)tell(&reply, NULL, 0);
}

/* False: the spawner has gone. `*ret_net` is a namespace that came with it, or -1. */
static bool hear(struct mould_order *ret, int *ret_net)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = { ret, sizeof(*ret) };
    struct msghdr message;
    ssize_t n;
    do {
        message = (struct msghdr){ .msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof(control.space) };
        n = recvmsg(MOULD_CONTROL_FD, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(*ret) || ret->setup.n_cgroups > mould.setup.n_trees)
        return false;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *ret_net = -1;
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(*ret_net)))
        memcpy(ret_net, CMSG_DATA(header), sizeof(*ret_net));
    return true;
}

/*** the network ***/

/* Sockets on their way in others outlive their processes; the kernel finds them later. The network namespace that
 * we are in is meant: this file counts sockets of every family there. */
static bool without_sockets(void)
{
    static const char none[] = "sockets: used 0\n";
    char text[sizeof(none) - 1];
    int fd = open("/proc/self/net/sockstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)sizeof(text) && memcmp(text, none, sizeof(text)) == 0;
}

/* A socket of any family can be asked this, and those of this one nobody has to be told of (engine/native/nets.h). */
static int loopback_up(void)
{
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return r;
}

/* Enters a new one; its descriptor. */
static int make_network(void)
{
    int r = unshare(CLONE_NEWNET) < 0 ? -errno : loopback_up();
    if (r < 0)
        return r;
    int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return net < 0 ? -errno : net;
}

/* For the next child, which is born where we are. Takes `spare`, or -1; the descriptor of what was entered. */
static int enter_network(int spare)
{
    if (spare >= 0 && setns(spare, CLONE_NEWNET) == 0 && without_sockets())
        return spare;
    if (spare >= 0)
        close(spare);
    return make_network();
}

/* Not where we come from: the spawner's is not ours to enter. Tried once, so that a start fails and not a sandbox. */
static void make_home(void)
{
    home = make_network();
    if (home < 0 || setns(home, CLONE_NEWNET) < 0)
        die("network namespace", home < 0 ? -home : errno);
}

/* The mould's own sockets must never be in a sandbox's. If it cannot leave it ends, and with it who was born there
 * (or -1): that one holds a copy of our socket, and waits for us. */
static void leave_network(pid_t born)
{
    if (setns(home, CLONE_NEWNET) == 0)
        return;
    if (born > 0)
        (void)kill(born, SIGKILL); /* not reaped: nobody knows it yet */
    _exit(1);
}

/*** ids ***/

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

/* Two ids of its own: the agent's, which sees itself as 0, and the guest's; or the one there is. */
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

/* It has a copy of our socket, which tells the spawner that we live. */
static _Noreturn void live_in_users(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        (void)poll(NULL, 0, -1);
}

/* By a child that does nothing but live in it until its ids are mapped. */
static int make_users(const struct mould_order *order)
{
    pid_t pid = sys_clone(CLONE_NEWUSER, SIGCHLD, 0);
    if (pid < 0)
        return pid;
    if (pid == 0)
        live_in_users();
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    int users = open(path, O_RDONLY | O_CLOEXEC);
    int r = users < 0 ? -errno : map_ids(order, pid);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (r < 0 && users >= 0)
        close(users);
    return r < 0 ? r : users;
}

/* Stays ours. */
static int find_users(const struct mould_order *order)
{
    static struct {
        int fd; /* 0: none */
        uint32_t identity;
    } kept[MOULD_USERS_KEPT], *found;
    found = &kept[order->identity % MOULD_USERS_KEPT];
    if (found->fd && found->identity == order->identity)
        return found->fd;
    int users = make_users(order);
    if (users < 0)
        return users;
    if (found->fd)
        close(found->fd);
    found->fd = users;
    found->identity = order->identity;
    return users;
}

/*** one sandbox ***/

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
    uint64_t flags = CLONE_PARENT | CLONE_NEWPID;
    pid_t pid =
        sys_clone(flags | (v2 ? SYS_CLONE_INTO_CGROUP : 0), /* exit_signal= */ 0, v2 ? place : 0);
    if (pid == 0)
        inside_run(inside);
    if (v2)
        close(place);
    return pid;
}

/* `net`: what the child is to be born in and we are in now, or -1. `users`: what it enters later. */
static void bear(const struct mould_order *order, const int stream[2], const int door[2], int net,
                 int users)
{
    struct inside inside = { .mould = &mould,
                             .order = order,
                             .stream = stream[1],
                             .door = door[1],
                             .users = users,
                             .control = MOULD_CONTROL_FD };
    pid_t pid = clone_child(&inside);
    if (net >= 0)
        leave_network(pid);
    if (pid < 0) {
        tell_failed(order, MOULD_UNBORN, "clone", -pid);
        return;
    }
    const int outer[MOULD_BORN_FDS] = { stream[0], door[0], net };
    const struct mould_reply born = {
        .word = MOULD_BORN, .slot = order->slot, .birth = order->birth, .pid = pid
    };
    int told = tell(&born, outer, net < 0 ? 2 : 3);
    if (told < 0) { /* the spawner reaps it */
        (void)kill(pid, SIGKILL);
        tell_failed(order, pid, "hand over the agent's sockets", -told);
        (void)tell(&born, NULL, 0);
    }
}

/* Takes `spare`. */
static void bear_in_network(const struct mould_order *order, const int stream[2], const int door[2],
                            int users, int spare)
{
    if (!mould.setup.own_network) {
        bear(order, stream, door, -1, users);
        return;
    }
    int net = enter_network(spare);
    if (net >= 0) {
        bear(order, stream, door, net, users);
        close(net);
        return;
    }
    leave_network(MOULD_UNBORN);
    tell_failed(order, MOULD_UNBORN, "make a network namespace", -net);
}

/* Takes `spare`. */
static void obey(const struct mould_order *order, int spare)
{
    int fds[4] = { -1, -1, -1, -1 }, users = find_users(order);
    if (users < 0) {
        tell_failed(order, MOULD_UNBORN, "make a user namespace", -users);
    } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, &fds[0]) < 0 ||
               socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, &fds[2]) < 0) {
        tell_failed(order, MOULD_UNBORN, "make the agent's sockets", errno);
    } else {
        bear_in_network(order, &fds[0], &fds[2], users, spare);
        spare = -1;
    }
    if (spare >= 0)
        close(spare);
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

int main(void)
{
    (void)prctl(PR_SET_NAME, "belljar-mould");
    read_setup();
    if (mould.setup.own_network)
        make_home();
    if (dup2(STDIN_FILENO, STDERR_FILENO) < 0) /* agents have nobody to complain to */
        die("standard error", errno);
    static struct mould_order order;
    int spare;
    while (hear(&order, &spare))
        obey(&order, spare);
    _exit(0);
}
