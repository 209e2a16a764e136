/*
 * The spawner: pid 1 of a pid namespace that holds every sandbox, root of a user namespace that is
 * nobody outside, in a file system that has nothing of the host's but programs. It takes fixed
 * structs from the server and makes, counts and ends sandboxes. One thread, one epoll.
 *
 * A box goes FREE → STARTING → LIVE → DEAD → REMOVING → FREE. It is dead when the kernel says so
 * (its pidfd), which is after everything in its pid namespace has died; its cgroups are empty then.
 * Mounts go with their namespace; a network namespace that nobody has used is kept (nets.h).
 *
 * Their agents are cast by the mould (agent/mould.h), whose children are the spawner's; with it the spawner ends.
 *
 * Beside the boxes there is a zygote, of which kernels are forked into them (zygotes.h). What such a process
 * speaks with the server by comes with the request and is passed on. A box whose first guest will be a kernel gets a
 * stand-in for it (zygote/stand_in.h) before the server has the box; with that the server speaks itself.
 *
 * The spawner never waits for a sandbox. When the server goes away it just ends: the kernel kills all
 * that lives in a pid namespace with its first process, and the keeper removes the cgroups.
 */
#include "engine/native/host.h"

#include "agent/mould.h"
#include "base/log.h"
#include "engine/native/leaves.h"
#include "engine/native/nets.h"
#include "engine/native/root.h"
#include "engine/native/sys.h"
#include "engine/native/zygotes.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    START_MS = 10000, /* a start that takes longer has failed */
    WARN_MS = 5000,   /* an end that takes longer is logged */
    TICK_MS = 20,     /* how often what is overdue is looked at */
    UNBORN_TICKS = START_MS / TICK_MS,
    EVENTS = 64,
    ADDED_MS = 3,   /* in which a kernel answers: the server hears of it then */
    ADDED_MAX = 16, /* kernels of which it is not told yet */
};

enum box_state { BOX_FREE, BOX_STARTING, BOX_LIVE, BOX_DEAD, BOX_REMOVING };

struct box {
    enum box_state state;
    bool doomed; /* the server wants it gone, or its start has failed */
    bool failed; /* `failure` is to be told when it is dead */
    bool warned;
    struct leaf leaf;
    uint32_t birth;  /* which, of all there ever were */
    uint32_t ticket; /* of the kernel that has been ordered; 0: none has */
    unsigned unborn_ticks;
    bool wants_stand_in;
    bool started; /* its agent, of whose birth we still have to hear */
    int pidfd, stream, door;
    int lane;      /* the server's end of the stand-in's, until it has it */
    int net;       /* its network namespace; -1: none of its own, or none is kept */
    ino_t net_ino; /* of that */
    bool net_used;
    struct sandbox_limits limits;
    uint64_t since_ms; /* of STARTING, and of being doomed */
    struct box_failure failure;
};

struct spawner {
    const struct native_host *host;
    int wire, epoll, mould;
    size_t pending; /* boxes that the tick must look at */
    uint32_t births;
    struct leaves leaves;
    struct zygotes zygotes;
    struct nets nets;
    bool nets_muted; /* until the next millisecond */
    /* Slots that have got a kernel, of which the server is still to be told. */
    unsigned added[ADDED_MAX];
    size_t n_added;
    uint64_t added_ms; /* since when */
    struct box boxes[WIRE_SLOTS_MAX];
};

/* What an epoll event is about. */
#define WATCH_WIRE UINT64_MAX
#define WATCH_MOULD (UINT64_MAX - 1)
#define WATCH_NETS (UINT64_MAX - 2)
#define WATCH_ZYGOTE (UINT64_MAX - 2 - ZYGOTES_WATCHES) /* the first of so many */
/* Less: a slot, whose pidfd it is. */

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* always there on Linux */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static unsigned slot_of(const struct spawner *spawner, const struct box *box)
{
    return (unsigned)(box - spawner->boxes);
}

static struct cgroup_names names_of(const struct spawner *spawner, const struct box *box)
{
    return leaves_names(&spawner->leaves, &box->leaf, slot_of(spawner, box));
}

static void watch(struct spawner *spawner, int fd, uint64_t what)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = what };
    if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        log_error("spawner: epoll: %s", strerror(errno));
        _exit(1);
    }
}

/* Closing would not do: a child that has not reached its exec yet holds a copy of every descriptor,
 * and epoll goes on telling of what is open anywhere, under a slot that may be another's by then. */
static void unwatch(struct spawner *spawner, int *fd)
{
    if (*fd < 0)
        return;
    (void)epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, *fd, NULL); /* it is there */
    close(steal_fd(fd));
}

/*** To the server ***/

static int say(struct spawner *spawner, const struct wire_event *event, const int *fds,
               size_t n_fds)
{
    int r;
    while ((r = sys_send_fds(spawner->wire, event, sizeof(*event), fds, n_fds, MSG_NOSIGNAL)) < 0)
        if (r == -ETOOMANYREFS && n_fds)
            return r;
        else if (r != -EINTR)
            _exit(0); /* the server is gone */
    return 0;
}

/* Nobody waits for this, and whoever is woken up for it takes a processor from the kernel that it is about. */
static void tell_added(struct spawner *spawner)
{
    for (size_t i = 0; i < spawner->n_added; i++)
        (void)say(spawner,
                  &(struct wire_event){ .kind = WIRE_KERNEL_ADDED, .slot = spawner->added[i] },
                  NULL, 0);
    spawner->n_added = 0;
}

/* Waits if the server is slow to read: it never waits for us. With descriptors this fails where guests who share our
 * uid have too many on their way. */
static int tell_with(struct spawner *spawner, const struct wire_event *event, const int *fds,
                     size_t n_fds)
{
    tell_added(spawner); /* before its slot can be another's */
    return say(spawner, event, fds, n_fds);
}

static void tell(struct spawner *spawner, const struct wire_event *event)
{
    (void)tell_with(spawner, event, NULL, 0);
}

static int tell_about(struct spawner *spawner, const struct box *box, enum wire_event_kind kind)
{
    struct wire_event event = { .kind = kind, .slot = slot_of(spawner, box) };
    if (kind == WIRE_FAILED) {
        event.code = box->failure.code;
        _Static_assert(sizeof(event.step) == sizeof(box->failure.step), "copied whole");
        memcpy(event.step, box->failure.step, sizeof(event.step));
    }
    const int fds[WIRE_CREATED_FDS] = { box->stream, box->lane };
    return tell_with(spawner, &event, fds, kind != WIRE_CREATED ? 0 : box->lane < 0 ? 1 : 2);
}

/*** Network namespaces ***/

static void hold_net(struct spawner *spawner, struct box *box, int net)
{
    struct stat st;
    if (net >= 0 && (spawner->nets.listener < 0 || fstat(net, &st) < 0)) {
        close(net);
        net = -1;
    }
    box->net = net;
    box->net_ino = net < 0 ? 0 : st.st_ino;
}

static void retire_net(struct spawner *spawner, struct box *box)
{
    if (box->net >= 0 && !box->net_used && !box->failed)
        nets_keep(&spawner->nets, steal_fd(&box->net));
    fd_closep(&box->net);
    box->net = -1;
}

/* Whoever cannot be told apart is everybody. */
static void note_use(struct spawner *spawner, ino_t net)
{
    bool known = net && net == spawner->nets.home;
    for (unsigned slot = 0; slot < spawner->host->slots && !known; slot++) {
        struct box *box = &spawner->boxes[slot];
        known = net && box->state != BOX_FREE && box->net_ino == net;
        box->net_used |= known;
    }
    for (unsigned slot = 0; slot < spawner->host->slots && !known; slot++)
        spawner->boxes[slot].net_used = true;
}

static void listen_to_guests(struct spawner *spawner, bool on)
{
    struct epoll_event event = { .events = on ? EPOLLIN : 0, .data.u64 = WATCH_NETS };
    (void)epoll_ctl(spawner->epoll, EPOLL_CTL_MOD, spawner->nets.listener,
                    &event); /* it is there */
    spawner->nets_muted = !on;
}

static void on_socket(struct spawner *spawner)
{
    struct net_call call;
    int r = nets_hear(&spawner->nets, now_ms(), &call);
    if (r == 0) {
        note_use(spawner, call.net);
        nets_answer(&spawner->nets, &call);
    } else if (r != -EAGAIN) { /* or guests would wait for ever */
        log_error("spawner: cannot hear who makes sockets: %s", strerror(-r));
        _exit(1);
    }
    if (nets_weary(&spawner->nets, now_ms()))
        listen_to_guests(spawner, false);
}

/*** The life of a box ***/

static void doom(struct spawner *spawner, struct box *box)
{
    if (!box->doomed && box->state != BOX_STARTING)
        spawner->pending++;
    box->doomed = true;
    box->since_ms = now_ms();
    if (box->pidfd >= 0)
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL); /* dead already: fine */
}

static void remove_box(struct spawner *spawner, struct box *box)
{
    if (leaves_retire(&spawner->leaves, &box->leaf, slot_of(spawner, box), &box->limits, now_ms()) <
        0) { /* the tick tries again */
        box->state = BOX_REMOVING;
        return;
    }
    retire_net(spawner, box);
    spawner->pending--;
    box->state = BOX_FREE;
    (void)tell_about(spawner, box, WIRE_GONE);
}

static void fail_start(struct spawner *spawner, struct box *box, const char *step, int code)
{
    if (!box->failed) {
        box->failed = true;
        box->failure.code = code;
        (void)snprintf(box->failure.step, sizeof(box->failure.step), "%s", step);
    }
    doom(spawner, box);
}

static void close_ends(struct box *box)
{
    fd_closep(&box->stream);
    fd_closep(&box->door);
    fd_closep(&box->lane);
    box->stream = box->door = box->lane = -1;
}

/* There is nobody to die. */
static void on_unborn(struct spawner *spawner, struct box *box)
{
    (void)tell_about(spawner, box, WIRE_FAILED);
    remove_box(spawner, box);
}

static void on_started(struct spawner *spawner, struct box *box);

/* Takes what came with the pid. Who was doomed meanwhile, or failed faster, is killed now. */
static void on_born(struct spawner *spawner, struct box *box, pid_t pid,
                    const int fds[MOULD_BORN_FDS])
{
    siginfo_t info;
    int code = fds[0] < 0 || fds[1] < 0 ? EMFILE : 0; /* there was no room for them */
    box->stream = fds[0];
    box->door = fds[1];
    hold_net(spawner, box, fds[2]);
    box->pidfd = sys_pidfd_open(pid); /* our child, and not reaped yet */
    if (box->pidfd < 0)
        code = -box->pidfd;
    if (box->pidfd >= 0)
        watch(spawner, box->pidfd, slot_of(spawner, box));
    if (code)
        fail_start(spawner, box, "hold an agent", code);
    else if (box->doomed)
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
    else if (box->started)
        on_started(spawner, box);
    if (box->pidfd >= 0)
        return;
    box->pidfd = -1;
    (void)kill(pid, SIGKILL);
    (void)waitid(P_PID, (id_t)pid, &info, WEXITED); /* it has run nothing but our own steps */
    close_ends(box);
    on_unborn(spawner, box);
}

/*** What is asked of the zygote ***/

static int order_of_zygote(struct spawner *spawner, struct box *box, struct zygote_order *order,
                           const int *with, size_t n_with)
{
    const struct native_host *host = spawner->host;
    bool bounded = host->cgroups.controllers & CGROUP_MEMORY;
    order->limit_data = bounded ? AGENT_LIMIT_KEEP : box->limits.memory_bytes;
    box_setup(host, &box->limits, &order->setup);
    int fds[ZYGOTE_FDS_MAX] = { box->pidfd, box->door };
    memcpy(&fds[2], with, n_with * sizeof(int));
    int *own = &fds[2 + n_with];
    int n = cgroup_open_guest(&host->cgroups, names_of(spawner, box), own);
    if (n < 0)
        return n;
    int r =
        zygotes_order(&spawner->zygotes, slot_of(spawner, box), order, fds, 2 + n_with + (size_t)n);
    box->ticket = r < 0 ? 0 : order->ticket;
    for (int i = 0; i < n; i++)
        close(own[i]);
    return r;
}

/* 0: on_forked() follows. */
static int order_stand_in(struct spawner *spawner, struct box *box)
{
    struct zygote_order order = { .stand_in = 1 };
    int lane[2];
    if (!zygotes_serve(&spawner->zygotes))
        return -ENXIO;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lane) < 0)
        return -errno;
    int r = order_of_zygote(spawner, box, &order, &lane[1], 1);
    close(lane[1]);
    if (r < 0)
        close(lane[0]);
    else
        box->lane = lane[0];
    return r;
}

/*** The life of a box, continued ***/

/* It is whole. */
static void hand_over(struct spawner *spawner, struct box *box)
{
    int r = box->doomed ? 0 : tell_about(spawner, box, WIRE_CREATED);
    if (r < 0) {
        fail_start(spawner, box, "hand over the agent's stream", -r);
    } else if (!box->doomed) {
        box->state = BOX_LIVE;
        spawner->pending--;
    }
    fd_closep(&box->stream);
    fd_closep(&box->lane);
    box->stream = box->lane = -1;
}

/* Without a stand-in it is as good, but its first kernel slower. */
static void on_started(struct spawner *spawner, struct box *box)
{
    box->started = true;
    if (box->pidfd < 0)
        return; /* on_born() comes back to it */
    if (box->doomed || !box->wants_stand_in || order_stand_in(spawner, box) < 0)
        hand_over(spawner, box);
}

/* Takes the descriptors. What is about a start that has been given up is too late. */
static void on_reply(struct spawner *spawner, struct mould_reply *reply,
                     const int fds[MOULD_BORN_FDS])
{
    struct box *box = reply->slot < spawner->host->slots ? &spawner->boxes[reply->slot] : NULL;
    if (!box || box->state != BOX_STARTING || box->birth != reply->birth) {
        for (int i = 0; i < MOULD_BORN_FDS; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        return;
    }
    reply->step[sizeof(reply->step) - 1] = '\0';
    if (reply->word == MOULD_BORN) {
        on_born(spawner, box, reply->pid, fds);
    } else if (reply->word == MOULD_STARTED) {
        on_started(spawner, box);
    } else {
        fail_start(spawner, box, reply->step, reply->code);
        if (reply->pid == MOULD_UNBORN)
            on_unborn(spawner, box);
    }
}

/* False: there is none now. */
static bool hear_mould(struct spawner *spawner)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(MOULD_BORN_FDS * sizeof(int))];
    } control;
    struct mould_reply reply;
    struct iovec part = { &reply, sizeof(reply) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(spawner->mould, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n != (ssize_t)sizeof(reply)) {
        log_error("spawner: the mould of agents has died");
        _exit(1);
    }
    int fds[MOULD_BORN_FDS] = { -1, -1, -1 };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len <= CMSG_LEN(sizeof(fds)))
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    on_reply(spawner, &reply, fds);
    return true;
}

static void on_dead(struct spawner *spawner, struct box *box)
{
    while (box->state == BOX_STARTING && hear_mould(spawner))
        ; /* its last words, if this event came first */
    siginfo_t info;
    (void)waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED | WNOHANG);
    unwatch(spawner, &box->pidfd);
    close_ends(box);
    if (box->state == BOX_STARTING && !box->doomed)
        fail_start(spawner, box, "died while starting", 0);
    if (box->failed)
        (void)tell_about(spawner, box, WIRE_FAILED);
    if (box->doomed) {
        remove_box(spawner, box);
        return;
    }
    box->state = BOX_DEAD; /* counters stay readable until the server has seen enough */
    (void)tell_about(spawner, box, WIRE_DIED);
}

static void create(struct spawner *spawner, struct box *box, const struct wire_request *request)
{
    *box = (struct box){ .state = BOX_STARTING,
                         .pidfd = -1,
                         .stream = -1,
                         .door = -1,
                         .lane = -1,
                         .net = -1,
                         .wants_stand_in = request->stand_in != 0,
                         .birth = ++spawner->births,
                         .limits = request->limits,
                         .since_ms = now_ms() };
    spawner->pending++;
    int r = leaves_take(&spawner->leaves, box->since_ms, &box->leaf);
    auto_fd net = nets_take(&spawner->nets);
    const struct box_start start = { .names = names_of(spawner, box),
                                     .identity = box->leaf.number,
                                     .birth = box->birth,
                                     .for_kernel = request->for_kernel != 0,
                                     .net = net,
                                     .limits = request->limits };
    if (r < 0)
        box->failure = (struct box_failure){ .code = -r, .step = "make leaves of cgroups" };
    else
        r = box_start(spawner->host, spawner->mould, &start, &box->failure);
    if (r < 0) {
        box->doomed = true;
        box->limits = (struct sandbox_limits){ 0 }; /* nobody knows what its leaves have now */
        on_unborn(spawner, box);
    }
}

static void destroy(struct spawner *spawner, struct box *box)
{
    bool was_dead = box->state == BOX_DEAD;
    doom(spawner, box);
    if (was_dead)
        remove_box(spawner, box);
}

static void report_usage(struct spawner *spawner, const struct box *box)
{
    struct wire_event event = { .kind = WIRE_USED, .slot = slot_of(spawner, box) };
    event.known = cgroup_usage(&spawner->host->cgroups, names_of(spawner, box), &event.usage);
    tell(spawner, &event);
}

static void hand_counters(struct spawner *spawner, const struct box *box)
{
    for (int which = 0; which < CGROUP_COUNTERS; which++) {
        struct wire_event event = { .kind = WIRE_COUNTER,
                                    .slot = slot_of(spawner, box),
                                    .code = which };
        auto_fd fd = cgroup_open_counter(&spawner->host->cgroups, names_of(spawner, box),
                                         (enum cgroup_counter)which);
        if (fd >= 0)
            (void)tell_with(spawner, &event, &fd, 1); /* the server can do without */
    }
}

/*** Kernels ***/

static void tell_failed(struct spawner *spawner, const struct box *box, int code)
{
    struct wire_event event = { .kind = WIRE_KERNEL_FAILED,
                                .slot = slot_of(spawner, box),
                                .code = code };
    tell(spawner, &event);
}

static int order_kernel(struct spawner *spawner, struct box *box, uint32_t number, const int *fds,
                        size_t n_fds)
{
    struct zygote_order order = { .number = number };
    if (box->state != BOX_LIVE || box->doomed || box->ticket)
        return -EBUSY;
    if (n_fds != WIRE_KERNEL_FDS)
        return -EMFILE; /* there was no room for all of them */
    _Static_assert((int)WIRE_KERNEL_FDS == ZYGOTE_KERNEL_FDS, "passed on as they are");
    return order_of_zygote(spawner, box, &order, fds, n_fds);
}

static void add_kernel(struct spawner *spawner, struct box *box, uint32_t number, const int *fds,
                       size_t n_fds)
{
    int r = order_kernel(spawner, box, number, fds, n_fds);
    if (r < 0)
        tell_failed(spawner, box, -r);
}

/* The slot may have become another's: then nobody waits for this. */
static void on_forked(unsigned slot, uint32_t ticket, int code, void *data)
{
    struct spawner *spawner = data;
    struct box *box = &spawner->boxes[slot];
    if (box->ticket != ticket)
        return;
    box->ticket = 0;
    if (box->state == BOX_STARTING) {
        if (code) { /* there is no stand-in */
            fd_closep(&box->lane);
            box->lane = -1;
        }
        hand_over(spawner, box);
        return;
    }
    if (code) {
        tell_failed(spawner, box, code);
        return;
    }
    if (spawner->n_added == ADDED_MAX)
        tell_added(spawner);
    if (spawner->n_added == 0)
        spawner->added_ms = now_ms();
    spawner->added[spawner->n_added++] = slot;
}

static void watch_zygote(int fd, unsigned what, void *data)
{
    watch(data, fd, WATCH_ZYGOTE + what);
}

static void unwatch_zygote(int *fd, void *data)
{
    unwatch(data, fd);
}

/*** Events ***/

/* A server that asks for what cannot be is broken or taken over; its sandboxes end with it. */
static void obey(struct spawner *spawner, const struct wire_request *request, const int *fds,
                 size_t n_fds)
{
    struct box *box = request->slot < spawner->host->slots ? &spawner->boxes[request->slot] : NULL;
    bool is_free = box && box->state == BOX_FREE;
    if (box && is_free && request->kind == WIRE_CREATE)
        create(spawner, box, request);
    else if (box && !is_free && request->kind == WIRE_USAGE)
        report_usage(spawner, box);
    else if (box && !is_free && request->kind == WIRE_COUNTERS)
        hand_counters(spawner, box);
    else if (box && !is_free && request->kind == WIRE_KERNEL)
        add_kernel(spawner, box, request->number, fds, n_fds);
    else if (box && !is_free && !box->doomed && request->kind == WIRE_DESTROY)
        destroy(spawner, box);
    else if (!box || request->kind != WIRE_DESTROY) { /* a destroy may cross a failure */
        log_error("spawner: impossible request %u for slot %u", request->kind, request->slot);
        _exit(1);
    }
}

/* One request, so that sandboxes get their turn between two. */
static void on_wire(struct spawner *spawner)
{
    struct wire_request request;
    int fds[WIRE_KERNEL_FDS];
    union {
        struct cmsghdr header;
        char space[CMSG_LEN(sizeof(fds))]; /* without what could be taken for one more */
    } control;
    struct iovec part = { &request, sizeof(request) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(spawner->wire, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof(request) || (message.msg_flags & MSG_TRUNC))
        _exit(0); /* the server has gone */
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    size_t n_fds = 0;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int)); /* no more than there was room for */
    }
    obey(spawner, &request, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

static void tick(struct spawner *spawner)
{
    uint64_t now = now_ms();
    for (unsigned slot = 0; slot < spawner->host->slots; slot++) {
        struct box *box = &spawner->boxes[slot];
        bool late = box->doomed && now - box->since_ms > WARN_MS;
        /* Not by the clock: all of us may have been stopped. */
        if (box->state == BOX_STARTING && box->pidfd < 0 && ++box->unborn_ticks > UNBORN_TICKS) {
            log_error("spawner: the mould of agents does not answer");
            _exit(1);
        }
        if (box->state == BOX_STARTING && !box->doomed && now - box->since_ms > START_MS)
            fail_start(spawner, box, "start", ETIMEDOUT);
        else if (box->state != BOX_FREE && late && !box->warned) {
            log_warning("sandbox in slot %u does not end; still waiting", slot);
            box->warned = true;
        }
        if (box->state == BOX_REMOVING)
            remove_box(spawner, box);
    }
}

static void dispatch(struct spawner *spawner, uint64_t what)
{
    if (what == WATCH_WIRE) {
        on_wire(spawner);
        return;
    }
    if (what == WATCH_MOULD) {
        (void)hear_mould(spawner);
        return;
    }
    if (what == WATCH_NETS) {
        on_socket(spawner);
        return;
    }
    if (what >= WATCH_ZYGOTE) {
        zygotes_ready(&spawner->zygotes, (unsigned)(what - WATCH_ZYGOTE));
        return;
    }
    struct box *box = &spawner->boxes[what];
    /* An earlier event of the same round may have closed what this one is about. */
    if (box->pidfd >= 0)
        on_dead(spawner, box);
}

static _Noreturn void loop(struct spawner *spawner)
{
    uint64_t ticked = now_ms();
    for (;;) {
        struct epoll_event events[EVENTS];
        int wait = zygotes_tick(&spawner->zygotes, now_ms());
        if (spawner->pending && (wait < 0 || wait > TICK_MS))
            wait = TICK_MS;
        if (spawner->n_added && (wait < 0 || wait > ADDED_MS))
            wait = ADDED_MS;
        if (spawner->nets_muted)
            wait = 1;
        int n = epoll_wait(spawner->epoll, events, EVENTS, wait);
        for (int i = 0; i < n; i++)
            dispatch(spawner, events[i].data.u64);
        if (spawner->n_added && now_ms() - spawner->added_ms >= ADDED_MS)
            tell_added(spawner);
        if (spawner->nets_muted && !nets_weary(&spawner->nets, now_ms()))
            listen_to_guests(spawner, true);
        if (spawner->pending && now_ms() - ticked >= TICK_MS) {
            tick(spawner);
            ticked = now_ms();
        }
    }
}

/*** Start ***/

static int become_root_of_namespace(const struct native_host *host, struct err *err)
{
    if (host->own_uids &&
        (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
        return err_sys(err, errno, "become uid %u", host->uid_base);
    /* The change of credentials has hidden /proc/<child>/uid_map from ourselves, and cleared the
     * death signal. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "prctl");
    return 0;
}

static int prepare(struct spawner *spawner, struct err *err)
{
    const struct native_host *host = spawner->host;
    (void)prctl(PR_SET_NAME, "belljar-spawner");
    int r = become_root_of_namespace(host, err);
    if (r < 0)
        return r;
    if (host->cgroups.kind == CGROUP_V2) {
        if (unshare(CLONE_NEWCGROUP) < 0)
            return err_sys(err, errno, "make a cgroup namespace");
        r = cgroups_enter(&host->cgroups);
        if (r < 0)
            return err_sys(err, -r, "pass cgroup controllers on");
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a few for each sandbox */
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    const struct root_plan root = { .rootfs = host->rootfs,
                                    .runtime = &host->runtime,
                                    .packages = host->packages,
                                    .network = host->network,
                                    .with_zygote = *host->zygote.python != '\0' };
    r = root_template(&root, err);
    if (r < 0)
        return r;
    /* Last. What this forbids, no sandbox will ever do; they inherit it. */
    r = sys_seccomp_filter(host->spawner_filter.code, host->spawner_filter.len);
    if (r < 0)
        return err_sys(err, -r, "load the seccomp filter");
    nets_init(&spawner->nets);
    r = host->network ? 0 : nets_listen(&spawner->nets);
    return r < 0 ? err_sys(err, -r, "load the filter that tells of sockets") : 0;
}

static int begin(struct spawner *spawner, struct err *err)
{
    spawner->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (spawner->epoll < 0)
        return err_sys(err, errno, "epoll");
    spawner->mould = mould_start(spawner->host);
    if (spawner->mould < 0)
        return err_sys(err, -spawner->mould, "start the mould of agents");
    watch(spawner, spawner->wire, WATCH_WIRE);
    watch(spawner, spawner->mould, WATCH_MOULD);
    if (spawner->nets.listener >= 0)
        watch(spawner, spawner->nets.listener, WATCH_NETS);
    return 0;
}

void spawner_run(const struct native_host *host, int wire, int go)
{
    int keep[8 + CGROUP_TREES_MAX] = { wire, go, host->mould, host->landlock, host->instance.lock };
    size_t n = 5;
    for (size_t i = 0; i < host->cgroups.n; i++)
        keep[n++] = host->cgroups.trees[i].dir;
    host_close_all_but(keep, n);
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(1);
    close(go);

    static struct spawner spawner;
    spawner.host = host;
    spawner.leaves.cgroups = &host->cgroups;
    spawner.leaves.own_uids = host->own_uids;
    spawner.leaves.slots = host->slots;
    spawner.wire = wire;
    struct err err = { 0 };
    struct wire_event first = { .kind = WIRE_READY };
    if (prepare(&spawner, &err) < 0 || begin(&spawner, &err) < 0) {
        first.kind = WIRE_FAILED; /* the message has its own words */
        (void)snprintf(first.step, sizeof(first.step), "%.*s", (int)sizeof(first.step) - 1,
                       err.msg);
        tell(&spawner, &first);
        _exit(1);
    }
    tell(&spawner, &first);
    static const struct zygotes_events zygotes = { .on_forked = on_forked,
                                                   .watch = watch_zygote,
                                                   .unwatch = unwatch_zygote };
    zygotes_init(&spawner.zygotes, spawner.host, &zygotes, &spawner);
    loop(&spawner);
}
