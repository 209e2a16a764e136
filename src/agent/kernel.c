#include "agent/kernel.h"
#include "agent/clock.h"
#include "agent/door.h"
#include "agent/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

enum {
    ASK_LATE_MS = 3, /* before the server is woken up for nothing else */
    YIELDS = 100,    /* to somebody who has nothing left to do but end */
};

/* Nanoseconds of the process, and in ticks those of the children it has waited for. */
static uint64_t cpu_time(const struct relay *relay)
{
    const struct kernel *kernel =
        (const struct kernel *)((const char *)relay - offsetof(struct kernel, relay));
    clockid_t id;
    struct timespec own = { 0 };
    struct proc proc;
    if (!kernel->pid)
        return 0;
    if (clock_getcpuclockid(kernel->pid, &id) == 0)
        (void)clock_gettime(id, &own);
    uint64_t children = proc_read(kernel->pid, &proc) ? proc.child_cpu_ns : 0;
    return (uint64_t)own.tv_sec * 1000000000U + (uint64_t)own.tv_nsec + children;
}

void kernel_init(struct kernel *kernel, const struct config *config, struct wire *wire)
{
    kernel->wire = wire;
    kernel->state = KERNEL_NONE;
    order_init(&kernel->order, config, "kernel.py"); /* LINK_KERNEL_PATH */
    relay_init(&kernel->relay, wire);
    kernel->relay.cpu_time = cpu_time;
    feed_init(&kernel->talk);
}

/*** start ***/

int kernel_announce(struct kernel *kernel, uint32_t number, const struct frame_run *spec)
{
    if (kernel->state != KERNEL_NONE || spec->input_len || spec->code_len > FRAME_SOURCE_MAX)
        return -EPROTO;
    kernel->number = number;
    kernel->kill_early = kernel->interrupt_later = kernel->ask_soon = false;
    kernel->join_ns = 0;
    kernel->pid = kernel->session = 0;
    kernel->status = 0;
    kernel->wall_ns = kernel->cpu_ns = 0;
    relay_begin(&kernel->relay, number,
                &(struct frame_cell){ .head_bytes = spec->head_bytes,
                                      .tail_bytes = spec->tail_bytes,
                                      .flood_bytes = spec->flood_bytes });
    kernel->state = KERNEL_TAKING;
    order_begin(&kernel->order, spec);
    return 0;
}

int kernel_args(struct kernel *kernel, const char *bytes, size_t len)
{
    return kernel->state != KERNEL_TAKING ? -EPROTO : order_args(&kernel->order, bytes, len);
}

int kernel_code(struct kernel *kernel, const char *bytes, size_t len)
{
    return kernel->state != KERNEL_TAKING ? -EPROTO : order_code(&kernel->order, bytes, len);
}

static void await(struct kernel *kernel)
{
    if (kernel->order.config->door_fd < 0)
        order_absent(&kernel->order, ENOTCONN, "open the door");
    else
        kernel->join_ns = kernel->start_ns + DOOR_JOIN_MS * NS_PER_MS;
}

static void launch(struct kernel *kernel)
{
    struct process process;
    kernel_dismiss_stand_in(kernel);
    if (!order_launch(&kernel->order, /* with_channel= */ true, &process))
        return;
    kernel->pid = kernel->session = process.pid;
    relay_open(&kernel->relay, process.channel_fd, process.out_fd, process.err_fd);
    feed_begin(&kernel->talk, UINT64_MAX);
    feed_connect(&kernel->talk, fcntl(process.channel_fd, F_DUPFD_CLOEXEC, 0));
    if (kernel->talk.fd < 0)
        kernel_give_up(kernel, EMFILE, "open the channel");
}

int kernel_start(struct kernel *kernel)
{
    if (kernel->state != KERNEL_TAKING)
        return -EPROTO;
    int r = order_complete(&kernel->order);
    if (r < 0)
        return r;
    if (kernel->kill_early)
        order_fail(&kernel->order, ECANCELED, "killed before the start");
    kernel->start_ns = clock_ns();
    if (!kernel->order.failure_code && kernel->order.spec.joined)
        await(kernel);
    else if (!kernel->order.failure_code)
        launch(kernel);
    kernel->state = kernel->order.failure_code ? KERNEL_ENDING : KERNEL_GOING;
    return 0;
}

/*** while it goes ***/

/* Only of one that we have started, and whose end is not under way to the server. */
static bool talks(const struct kernel *kernel, int *ret)
{
    *ret = kernel->state == KERNEL_TAKING || kernel->order.spec.joined ? -EPROTO : 0;
    return *ret == 0 && kernel->state == KERNEL_GOING;
}

int kernel_talk(struct kernel *kernel, const char *bytes, size_t len)
{
    int r;
    (void)talks(kernel, &r); /* what comes too late is dropped by the feed */
    return r < 0 ? r : feed_take(&kernel->talk, bytes, len);
}

int kernel_cell(struct kernel *kernel, const struct frame_cell *limits)
{
    int r;
    if (!talks(kernel, &r))
        return r;
    kernel->ask_soon = kernel->talk.len || kernel->talk.ask; /* what to do comes then */
    return relay_cell(&kernel->relay, limits);
}

int kernel_cell_end(struct kernel *kernel)
{
    int r;
    return talks(kernel, &r) ? relay_cell_end(&kernel->relay) : r;
}

void kernel_interrupt(struct kernel *kernel)
{
    if (kernel->state == KERNEL_GOING && kernel->pid)
        (void)kill(kernel->pid, SIGINT); /* it may just have died; it is not reaped */
    else if (kernel->state == KERNEL_GOING)
        kernel->interrupt_later = true;
}

void kernel_kill(struct kernel *kernel)
{
    if (kernel->state == KERNEL_TAKING)
        kernel->kill_early = true;
    if (kernel->state == KERNEL_GOING)
        kernel->state = KERNEL_ENDING;
}

void kernel_give_up(struct kernel *kernel, int code, const char *why)
{
    order_fail(&kernel->order, code, why);
    kernel_kill(kernel);
}

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_usec * 1000U;
}

bool kernel_reaped(struct kernel *kernel, pid_t pid, int status, const struct rusage *usage)
{
    if (!kernel->pid || pid != kernel->pid)
        return false;
    kernel->pid = 0;
    kernel->status = status;
    kernel->wall_ns = clock_ns() - kernel->start_ns;
    kernel->cpu_ns = timeval_ns(usage->ru_utime) + timeval_ns(usage->ru_stime);
    kernel->state = KERNEL_ENDING;
    return true;
}

void kernel_alone(struct kernel *kernel)
{
    kernel->state = KERNEL_FLUSHING;
    feed_end(&kernel->talk);
    order_check_child(&kernel->order);
}

/*** somebody at the door ***/

static void take_in(struct kernel *kernel, pid_t pid)
{
    kernel->join_ns = 0;
    kernel->stand_in = 0; /* it has gone before its child came */
    kernel->pid = kernel->session = pid;
    if (kernel->interrupt_later)
        kernel_interrupt(kernel);
}

static void judge(struct kernel *kernel, const struct visitor *visitor)
{
    if (order_joined(&kernel->order, visitor))
        take_in(kernel, visitor->pid);
    if (kernel->order.failure_code)
        kernel_kill(kernel);
}

static bool is_awaited(const struct kernel *kernel)
{
    return kernel->state == KERNEL_GOING && kernel->join_ns;
}

/* One kernel ahead of its frames, at most. */
static bool is_early(const struct kernel *kernel, const struct visitor *visitor)
{
    return visitor->number > kernel->number ||
           (visitor->number == kernel->number && kernel->state == KERNEL_TAKING);
}

/* Whoever comes to an order that was given up finds nobody at its channel, and must not find work there
 * either. */
static void turn_away(const struct kernel *kernel, const struct visitor *visitor)
{
    if (visitor->pid != kernel->pid && order_is_child(visitor->pid))
        (void)kill(visitor->pid, SIGKILL);
}

static void look_at_door(struct kernel *kernel)
{
    struct visitor visitor;
    while (order_hear(&kernel->order, &visitor)) {
        if (visitor.stand_in)
            kernel->stand_in = visitor.stand_in;
        else if (is_early(kernel, &visitor))
            kernel->early = visitor;
        else if (is_awaited(kernel) && (visitor.number == kernel->number || !visitor.number))
            judge(kernel, &visitor);
        else
            turn_away(kernel, &visitor);
    }
    if (is_awaited(kernel) && kernel->early.number == kernel->number)
        judge(kernel, &kernel->early);
}

/* It waits for a word, or has one; it runs nothing of a guest's, and whoever is to be the kernel in its place has not come
 * either. No number has been used twice yet. */
void kernel_dismiss_stand_in(struct kernel *kernel)
{
    if (kernel->order.config->door_fd < 0)
        return;
    look_at_door(kernel);
    for (int i = 0; kernel->stand_in > 1 && kill(kernel->stand_in, SIGKILL) == 0; i++)
        (void)(i < YIELDS ? sched_yield() : poll(NULL, 0, 1));
    kernel->stand_in = 0;
}

bool kernel_may_know(struct kernel *kernel, pid_t pid)
{
    if (kernel->order.config->door_fd < 0)
        return false;
    look_at_door(kernel);
    return pid == kernel->early.pid && is_early(kernel, &kernel->early);
}

static void step_door(struct kernel *kernel)
{
    if (kernel->door_ready || is_awaited(kernel))
        look_at_door(kernel);
    if (is_awaited(kernel) && clock_ns() >= kernel->join_ns) {
        order_absent(&kernel->order, ETIMEDOUT, "wait at the door");
        kernel_kill(kernel);
    }
}

/*** what it is told ***/

static void step_talk(struct kernel *kernel)
{
    struct feed *talk = &kernel->talk;
    bool asking = talk->ask;
    feed_push(talk);
    if (!talk->ask)
        return;
    if (!asking)
        kernel->ask_ns = clock_ns() + ASK_LATE_MS * NS_PER_MS;
    if (!talk->full && !kernel->ask_soon && !wire_pending(kernel->wire) &&
        clock_ns() < kernel->ask_ns)
        return;
    feed_ask(talk, kernel->wire, FRAME_TALK_MORE, kernel->number);
    kernel->ask_soon = kernel->ask_soon && talk->ask;
}

/*** what it says ***/

static void step_relay(struct kernel *kernel)
{
    relay_step(&kernel->relay);
    uint64_t patience = relay_patience(&kernel->relay);
    if (kernel->relay.flooded)
        kernel_kill(kernel);
    else if (patience && clock_ns() >= patience)
        kernel_give_up(kernel, EPIPE, "the kernel has closed its channel");
}

/*** the end ***/

static void finish(struct kernel *kernel)
{
    if (!kernel->session && kernel->early.number == kernel->number)
        turn_away(kernel, &kernel->early); /* it was killed before it was let in */
    struct frame_exit exit = { .wall_ns = kernel->wall_ns, .cpu_ns = kernel->cpu_ns };
    if (!relay_finish(&kernel->relay, &exit))
        return;
    exit.flooded = kernel->relay.flooded;
    if (!order_send_exit(&kernel->order, kernel->wire, kernel->number, kernel->status, &exit))
        return;
    relay_end(&kernel->relay);
    order_end(&kernel->order);
    kernel->state = KERNEL_NONE;
}

/*** in the loop ***/

void kernel_poll(struct kernel *kernel, struct pollset *set)
{
    /* Not when the engine has closed it: poll() would tell that again and again. Nor before there was a kernel: of a
     * stand-in it is enough to know when somebody is about to start something. */
    kernel->door_shut |= kernel->door_ready & (POLLHUP | POLLERR);
    bool watched = kernel->number && !kernel->door_shut;
    pollset_add(set, kernel->order.config->door_fd, watched ? POLLIN : 0, &kernel->door_ready);
    if (kernel->state == KERNEL_FLUSHING)
        relay_poll_last(&kernel->relay, set);
    if (kernel->state != KERNEL_GOING)
        return;
    relay_poll(&kernel->relay, set);
    feed_poll(&kernel->talk, set);
    if (kernel->talk.ask && !wire_pending(kernel->wire))
        pollset_wake(set, kernel->ask_ns);
    if (kernel->join_ns)
        pollset_wake(set, kernel->join_ns);
    if (relay_patience(&kernel->relay))
        pollset_wake(set, relay_patience(&kernel->relay));
}

void kernel_step(struct kernel *kernel)
{
    step_door(kernel);
    /* Not while it is being ended: who is about to die may wait for a full pipe until then. */
    if (kernel->state == KERNEL_GOING && !kernel->order.spec.joined) {
        step_relay(kernel);
        step_talk(kernel);
    }
    if (kernel->state == KERNEL_FLUSHING)
        finish(kernel);
}
