/*
 * A kernel that joins has the server at the other end of its channel and pipes: no byte of a cell goes
 * through the agent, which wakes up for its beginning and its end alone. What comes is read by the agent's own
 * code (relay.h) and made into the frames that an agent would send, which link_kernel.c takes; so there
 * is one set of rules, and one set of checks.
 *
 * The guest has the other ends. What it can write to are pipes: a socket could bring descriptors, and whoever
 * drops the last copy of one waits for whatever its owner wants (SO_LINGER). Nothing here waits for a guest, and
 * nothing grows with what it does but the tails of its output.
 *
 * The frames stand in one wire for all links: it is emptied before anything else can happen.
 */
#include "agent/clock.h"
#include "agent/link_private.h"
#include "agent/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TURNS = 16,         /* of one kernel, before others get theirs */
    FIRST_LATE_MS = 12, /* that a process needs to come, in which its output can wait as well */
    REST_MS = 20, /* after a cell, in which the next often comes: pipes are not watched for that */
    DEAF_MAX = 100,  /* events in a row of which nothing could be read */
    PIECE = 1 << 20, /* of a message, in one call: more than a socket takes */
};

enum { SAID, OUT, ERR, CHANNEL, WATCHES };

static struct wire wire;

struct watched {
    uv_poll_t poll;
    bool open;
    int events; /* UV_READABLE, … ; 0: stopped */
};

struct link_direct {
    struct link *link; /* NULL: it has let go */
    struct relay relay;
    int channel_fd; /* to it */
    int unread_fd;  /* its own end, while it is not known whether it comes; -1 */
    bool sent;
    struct watched watched[WATCHES];
    unsigned handles; /* not closed yet; never 0 */
    struct timer *timer;
    bool stopped;      /* it is being ended: nothing is read until it is dead */
    bool taking;       /* frames, whose callbacks may ask for more */
    bool watches_late; /* watch() when what is held has been sent */
    unsigned cells, deaf;
    uint64_t rest_ns;
};

/*** watching ***/

static void on_poll(uv_poll_t *poll, int status, int events);

static int fd_of(const struct link_direct *direct, int which)
{
    const struct relay *relay = &direct->relay;
    return which == CHANNEL ? direct->channel_fd
           : which == SAID  ? relay->channel_fd
           : which == OUT   ? relay->out.fd
                            : relay->err.fd;
}

static short *ready_of(struct link_direct *direct, int which)
{
    struct relay *relay = &direct->relay;
    return which == SAID  ? &relay->channel_ready
           : which == OUT ? &relay->out.ready
                          : &relay->err.ready;
}

static int open_watch(struct link_direct *direct, int which)
{
    struct watched *watched = &direct->watched[which];
    int r = uv_poll_init(direct->link->loop, &watched->poll, fd_of(direct, which));
    if (r < 0)
        return r;
    watched->open = true;
    watched->poll.data = direct;
    direct->handles++;
    return 0;
}

/* Each change is a system call or two, so there is none without need. */
static int set_watch(struct link_direct *direct, int which, int events)
{
    struct watched *watched = &direct->watched[which];
    if (events == watched->events)
        return 0;
    int r = watched->open ? 0 : open_watch(direct, which);
    if (r < 0)
        return r;
    watched->events = events;
    return events ? uv_poll_start(&watched->poll, events, on_poll) : uv_poll_stop(&watched->poll);
}

static bool rests(const struct link_direct *direct)
{
    return direct->relay.cell == CELL_OUTSIDE && clock_ns() < direct->rest_ns;
}

static uint64_t ms_until(uint64_t ns)
{
    uint64_t now = clock_ns();
    return ns <= now ? 0 : (ns - now + NS_PER_MS - 1) / NS_PER_MS;
}

/* From what the relay wants to what the loop does. */
static void watch(struct link_direct *direct)
{
    struct pollset set = { .wake_ns = UINT64_MAX };
    int wanted[WATCHES] = { 0 };
    bool resting = rests(direct);
    direct->watches_late = false;
    if (!direct->stopped) {
        relay_poll(&direct->relay, &set);
        if (relay_patience(&direct->relay))
            pollset_wake(&set, relay_patience(&direct->relay));
        if (direct->relay.cell == CELL_LEADING)
            pollset_wake(&set, 0); /* what was kept goes first, and no event tells of it */
        if (direct->link->kernel.talk.len > direct->link->kernel.talk_at)
            wanted[CHANNEL] = UV_WRITABLE;
    }
    for (size_t i = 0; i < set.count; i++)
        for (int which = 0; which < WATCHES; which++)
            if (set.fds[i].fd == fd_of(direct, which) && (which == SAID || !resting))
                wanted[which] |= UV_READABLE;
    if (resting && !direct->stopped)
        pollset_wake(&set, direct->rest_ns);
    int r = 0;
    for (int which = 0; which < WATCHES && r == 0; which++)
        r = set_watch(direct, which, wanted[which]);
    if (r < 0)
        link_kernel_break(direct->link, "the kernel cannot be listened to");
    else if (set.wake_ns != UINT64_MAX)
        timer_start(direct->timer, ms_until(set.wake_ns));
    else
        timer_stop(direct->timer);
}

/*** reading ***/

/* What is in the wire. Callbacks may end the kernel, or the link. */
static void take_frames(struct link_direct *direct)
{
    struct frame frame;
    size_t at = 0;
    int n;
    direct->taking = true;
    while (direct->link && (n = frame_parse(wire.out + at, wire.out_len - at, &frame)) > 0) {
        const char *why = link_kernel_take(direct->link, &frame);
        at += (size_t)n;
        if (why)
            link_break(direct->link, why);
    }
    direct->taking = false;
    wire.out_at = wire.out_len = 0;
}

/* Whatever a guest does to its pipes, it does not keep us awake. */
static bool is_deaf(struct link_direct *direct, uint64_t before)
{
    const struct relay *relay = &direct->relay;
    bool moved = wire.out_len || relay->closed_ns || relay->out.total + relay->err.total != before;
    direct->deaf = moved ? 0 : direct->deaf + 1;
    return direct->deaf > DEAF_MAX;
}

/* Until nothing is left that would not be told of. */
static void pump(struct link_direct *direct, bool event)
{
    struct relay *relay = &direct->relay;
    bool more = true;
    for (int i = 0; i < TURNS && more && direct->link && !direct->stopped; i++) {
        uint64_t before = relay->out.total + relay->err.total;
        enum relay_cell cell = relay->cell;
        wire.starved = false;
        relay_step(relay);
        if (cell != CELL_OUTSIDE && relay->cell == CELL_OUTSIDE)
            direct->rest_ns = clock_ns() + REST_MS * NS_PER_MS;
        more = wire.starved;
        bool deaf = i == 0 && event && is_deaf(direct, before);
        take_frames(direct);
        more |= relay->close_asked;
        if (deaf && direct->link)
            link_kernel_break(direct->link, "the kernel's channel cannot be read");
    }
    if (!direct->link)
        return;
    uint64_t patience = relay_patience(relay);
    if (relay->flooded && !direct->stopped)
        link_kernel_kill(direct->link);
    else if (patience && clock_ns() >= patience && !direct->stopped)
        link_kernel_break(direct->link, "the kernel has closed its channel: Broken pipe");
    if (direct->link)
        watch(direct);
    if (direct->link && more && !direct->stopped)
        timer_start(direct->timer, 0);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct link_direct *direct = poll->data;
    struct link *link = direct->link;
    int which = (int)(container_of(poll, struct watched, poll) - direct->watched);
    if (!link)
        return;
    link_enter(link);
    if (status < 0)
        direct->watched[which].events = 0; /* libuv has stopped it */
    if (which == CHANNEL)
        link_direct_send(link); /* or it fails, and nothing is left to send */
    else if (status < 0 || (events & UV_READABLE))
        *ready_of(direct, which) = POLLIN;
    pump(direct, /* event= */ which != CHANNEL);
    link_leave(link);
}

static void on_timer(void *data)
{
    struct link_direct *direct = data;
    struct link *link = direct->link;
    link_enter(link);
    pump(direct, /* event= */ false);
    link_leave(link);
}

/*** writing ***/

void link_direct_send(struct link *link)
{
    struct link_kernel_state *kernel = &link->kernel;
    int fd = kernel->direct->channel_fd;
    if (link->holding)
        return;
    while (kernel->talk_at < kernel->talk.len) {
        size_t left = kernel->talk.len - kernel->talk_at;
        ssize_t n = send(fd, kernel->talk.data + kernel->talk_at, left < PIECE ? left : PIECE,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            watch(kernel->direct);
            return;
        }
        kernel->direct->sent |= n > 0;
        /* Who does not read any more is heard of by what is read. */
        kernel->talk_at = n < 0 ? kernel->talk.len : kernel->talk_at + (size_t)n;
    }
    link_kernel_sent(link);
    if (kernel->direct->watches_late)
        watch(kernel->direct);
}

/* Whoever reads it first has it, they or we. Nobody begins with a part of it. */
bool link_direct_take_back(struct link *link)
{
    struct link_direct *direct = link->kernel.direct;
    bool left = !direct->sent || link->kernel.talk.len > link->kernel.talk_at;
    char bytes[4096];
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR); left |= n > 0)
        n = recv(direct->unread_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    return left;
}

void link_direct_comes(struct link *link)
{
    struct link_direct *direct = link->kernel.direct;
    fd_closep(&direct->unread_fd);
    direct->unread_fd = -1;
}

/*** cells ***/

void link_direct_cell(struct link *link, const struct frame_cell *limits)
{
    struct link_direct *direct = link->kernel.direct;
    (void)relay_cell(&direct->relay, limits); /* there is no other: the link has counted */
    if (!direct->cells++)
        direct->relay.quiet_ns += FIRST_LATE_MS * NS_PER_MS;
    if (direct->taking)
        return; /* pump() sees to it */
    if (link->holding)
        direct->watches_late = true; /* the kernel begins meanwhile */
    else
        watch(direct);
}

void link_direct_cell_end(struct link *link)
{
    struct link_direct *direct = link->kernel.direct;
    if (direct->stopped)
        return; /* its end is under way */
    (void)relay_cell_end(&direct->relay);
    if (!direct->taking)
        timer_start(direct->timer, 0);
}

void link_direct_stop(struct link *link)
{
    link->kernel.direct->stopped = true;
    if (!link->kernel.direct->taking)
        watch(link->kernel.direct);
}

/*** the beginning and the end ***/

static void close_ends(struct link_direct *direct)
{
    relay_end(&direct->relay);
    close(direct->channel_fd);
    fd_closep(&direct->unread_fd);
}

int link_direct_begin(struct link *link, const struct link_pipes *ours, struct err *err)
{
    struct link_direct *direct = xcalloc(1, sizeof(*direct));
    direct->link = link;
    relay_init(&direct->relay, &wire);
    const struct frame_cell limits = { .tail_bytes = LINK_KERNEL_KEPT,
                                       .flood_bytes = LINK_KERNEL_FLOOD };
    relay_begin(&direct->relay, link->kernel.number, &limits);
    relay_open(&direct->relay, ours->said, ours->out, ours->err);
    direct->channel_fd = ours->channel;
    direct->unread_fd = ours->unread;
    int r = open_watch(direct, SAID); /* with whose end, if not before, this is freed */
    if (r < 0) {
        close_ends(direct);
        free(direct);
        return err_set(err, -r, "listen to a kernel: %s", uv_strerror(r));
    }
    direct->timer = timer_new(link->loop, on_timer, direct);
    direct->rest_ns = clock_ns() + REST_MS * NS_PER_MS; /* a cell follows */
    link->kernel.direct = direct;
    watch(direct);
    return 0;
}

static void poll_closed(uv_handle_t *handle)
{
    struct link_direct *direct = handle->data;
    if (--direct->handles == 0)
        free(direct);
}

void link_direct_free(struct link *link)
{
    struct link_direct *direct = steal_ptr(&link->kernel.direct);
    if (!direct)
        return;
    direct->link = NULL;
    timer_free(direct->timer);
    for (int which = 0; which < WATCHES; which++)
        if (direct->watched[which].open)
            uv_close((uv_handle_t *)&direct->watched[which].poll, poll_closed);
    close_ends(direct); /* behind that: a number that is free is another's */
}

bool link_direct_finish(struct link *link, struct frame_exit *ret)
{
    struct link_direct *direct = link->kernel.direct;
    struct frame_exit totals = { 0 };
    direct->stopped = true;
    for (bool done = false; !done && direct->link;) {
        done = relay_finish(&direct->relay, &totals);
        take_frames(direct);
    }
    ret->stdout_bytes = totals.stdout_bytes;
    ret->stderr_bytes = totals.stderr_bytes;
    if (!direct->link)
        return false;
    ret->flooded |= direct->relay.flooded;
    return true;
}
