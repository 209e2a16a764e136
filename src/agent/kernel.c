#include "agent/kernel.h"
#include "agent/clock.h"
#include "agent/door.h"
#include "agent/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

enum {
    ROOM_MIN = 4096, /* in the wire, to bother with the channel */
    CLOSED_MS =
        1000, /* to end after closing the channel: processes that exit do it in this order */
    OUTPUT_LATE_MS = 3, /* of a cell, in which its output can wait in the pipes */
    ASK_LATE_MS = 3,    /* before the server is woken up for nothing else */
};

void kernel_init(struct kernel *kernel, const struct config *config, struct wire *wire)
{
    kernel->wire = wire;
    kernel->state = KERNEL_NONE;
    kernel->channel_fd = -1;
    order_init(&kernel->order, config, "kernel.py"); /* LINK_KERNEL_PATH */
    capture_init(&kernel->out, FRAME_IS_STDOUT);
    capture_init(&kernel->err, FRAME_IS_STDERR);
    feed_init(&kernel->talk);
}

/*** start ***/

int kernel_announce(struct kernel *kernel, uint32_t number, const struct frame_run *spec)
{
    if (kernel->state != KERNEL_NONE || spec->input_len || spec->code_len > FRAME_SOURCE_MAX)
        return -EPROTO;
    kernel->number = number;
    kernel->kill_early = kernel->flooded = kernel->close_asked = false;
    kernel->last_look = kernel->last_mark = kernel->interrupt_later = false;
    kernel->join_ns = 0;
    kernel->door_ready = 0;
    kernel->pid = kernel->session = 0;
    kernel->status = 0;
    kernel->wall_ns = kernel->cpu_ns = kernel->closed_ns = 0;
    kernel->said_left = 0;
    kernel->said = (struct frame_follow){ 0 };
    kernel->ask_soon = false;
    kernel->cell = CELL_OUTSIDE;
    kernel->limits = (struct frame_cell){ .head_bytes = spec->head_bytes,
                                          .tail_bytes = spec->tail_bytes,
                                          .flood_bytes = spec->flood_bytes };
    kernel->kept_out = kernel->kept_err = 0;
    capture_begin(&kernel->out, -1, 0, 0);
    capture_begin(&kernel->err, -1, 0, 0);
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

static void launch(struct kernel *kernel)
{
    struct process process;
    kernel->start_ns = clock_ns();
    bool joined = kernel->order.spec.joined;
    if (!(joined ? order_join(&kernel->order, kernel->number, &process)
                 : order_launch(&kernel->order, /* with_channel= */ true, &process)))
        return;
    if (joined)
        kernel->join_ns = kernel->start_ns + DOOR_JOIN_MS * NS_PER_MS;
    else
        kernel->pid = kernel->session = process.pid;
    kernel->channel_fd = process.channel_fd;
    capture_begin(&kernel->out, process.out_fd, 0, kernel->limits.tail_bytes);
    capture_begin(&kernel->err, process.err_fd, 0, kernel->limits.tail_bytes);
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
    if (!kernel->order.failure_code)
        launch(kernel);
    kernel->state = kernel->order.failure_code ? KERNEL_ENDING : KERNEL_GOING;
    return 0;
}

/*** while it goes ***/

int kernel_talk(struct kernel *kernel, const char *bytes, size_t len)
{
    return kernel->state == KERNEL_TAKING ? -EPROTO : feed_take(&kernel->talk, bytes, len);
}

/* Nanoseconds of the process, and in ticks those of the children it has waited for. */
static uint64_t cpu_time(const struct kernel *kernel)
{
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

int kernel_cell(struct kernel *kernel, const struct frame_cell *limits)
{
    if (kernel->state == KERNEL_TAKING)
        return -EPROTO;
    if (kernel->state != KERNEL_GOING)
        return 0; /* its end is under way to the server */
    if (kernel->cell != CELL_OUTSIDE)
        return -EPROTO;
    kernel->cell = CELL_LEADING;
    kernel->limits = *limits;
    kernel->ask_soon = kernel->talk.len || kernel->talk.ask; /* what to do comes then */
    capture_mark(&kernel->out);
    capture_mark(&kernel->err);
    kernel->cell_start_ns = clock_ns();
    kernel->quiet_ns = kernel->cell_start_ns + OUTPUT_LATE_MS * NS_PER_MS;
    kernel->cell_cpu_ns = cpu_time(kernel);
    return 0;
}

int kernel_cell_end(struct kernel *kernel)
{
    if (kernel->state == KERNEL_TAKING)
        return -EPROTO;
    if (kernel->state != KERNEL_GOING)
        return 0;
    if (kernel->cell != CELL_LEADING && kernel->cell != CELL_INSIDE)
        return -EPROTO;
    kernel->close_asked = true;
    return 0;
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

static void step_door(struct kernel *kernel)
{
    if (!kernel->join_ns)
        return;
    pid_t pid = kernel->door_ready ? order_joined(&kernel->order, kernel->number) : 0;
    if (pid == 0 && clock_ns() >= kernel->join_ns)
        order_absent(&kernel->order, ETIMEDOUT, "wait at the door");
    if (kernel->order.failure_code)
        kernel_kill(kernel);
    if (pid <= 0 && !kernel->order.failure_code)
        return;
    kernel->join_ns = 0;
    if (pid <= 0)
        return;
    kernel->pid = kernel->session = pid;
    kernel->quiet_ns = clock_ns() + OUTPUT_LATE_MS * NS_PER_MS;
    if (kernel->interrupt_later)
        kernel_interrupt(kernel);
}

/*** cells ***/

static bool finish_captures(struct kernel *kernel)
{
    return capture_finish(&kernel->out, kernel->wire, kernel->number) &&
           capture_finish(&kernel->err, kernel->wire, kernel->number);
}

static void begin_cell(struct kernel *kernel)
{
    if (!finish_captures(kernel))
        return;
    kernel->kept_out = kernel->out.total;
    kernel->kept_err = kernel->err.total;
    capture_again(&kernel->out, kernel->limits.head_bytes, kernel->limits.tail_bytes);
    capture_again(&kernel->err, kernel->limits.head_bytes, kernel->limits.tail_bytes);
    kernel->cell = CELL_INSIDE;
}

static void end_cell(struct kernel *kernel)
{
    if (!finish_captures(kernel))
        return;
    uint64_t cpu_ns = cpu_time(kernel);
    struct frame_exit totals = {
        .wall_ns = clock_ns() - kernel->cell_start_ns,
        .cpu_ns = cpu_ns > kernel->cell_cpu_ns ? cpu_ns - kernel->cell_cpu_ns : 0,
        .stdout_bytes = kernel->kept_out + kernel->out.total,
        .stderr_bytes = kernel->kept_err + kernel->err.total,
    };
    char payload[FRAME_EXIT_SIZE];
    frame_exit_put(payload, &totals);
    if (!wire_send(kernel->wire, FRAME_CELL_DONE, kernel->number, payload, sizeof(payload)))
        return;
    kernel->kept_out = kernel->kept_err = 0;
    capture_again(&kernel->out, 0, kernel->limits.tail_bytes);
    capture_again(&kernel->err, 0, kernel->limits.tail_bytes);
    kernel->cell = CELL_OUTSIDE;
}

static void step_cell(struct kernel *kernel)
{
    if (kernel->cell == CELL_LEADING)
        begin_cell(kernel);
    if (kernel->cell == CELL_INSIDE && kernel->close_asked) {
        kernel->close_asked = false;
        kernel->cell = CELL_CLOSING;
        capture_mark(&kernel->out);
        capture_mark(&kernel->err);
    }
    if (kernel->cell == CELL_CLOSING)
        end_cell(kernel);
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

/* Its last word will tell. Not without a channel: there will be none. */
static bool output_can_wait(const struct kernel *kernel)
{
    return kernel->state == KERNEL_GOING && kernel->cell == CELL_INSIDE &&
           kernel->channel_fd >= 0 && clock_ns() < kernel->quiet_ns;
}

/* More than the last flood_bytes outside of cells is not read: no reason to kill, and none to work. */
static bool may_capture(const struct kernel *kernel, const struct capture *capture)
{
    return kernel->cell == CELL_INSIDE ||
           (kernel->cell == CELL_OUTSIDE && capture->total < kernel->limits.flood_bytes);
}

static void step_output(struct kernel *kernel)
{
    if (kernel->out.ready && may_capture(kernel, &kernel->out))
        (void)capture_drain(&kernel->out, kernel->wire, kernel->number);
    if (kernel->err.ready && may_capture(kernel, &kernel->err))
        (void)capture_drain(&kernel->err, kernel->wire, kernel->number);
    if (kernel->cell == CELL_INSIDE && (kernel->out.total > kernel->limits.flood_bytes ||
                                        kernel->err.total > kernel->limits.flood_bytes)) {
        kernel->flooded = true;
        kernel_kill(kernel);
    }
}

static void close_channel(struct kernel *kernel)
{
    close(kernel->channel_fd);
    kernel->channel_fd = -1;
    kernel->said_left = 0;
    kernel->closed_ns = clock_ns();
}

/* Looks at the channel first and at the pipes then, so that what is counted here was written after
 * everything that the marks cover. */
static void look_at_channel(struct kernel *kernel)
{
    int waiting = 0;
    if (ioctl(kernel->channel_fd, FIONREAD, &waiting) < 0)
        waiting = 0;
    kernel->said_left = (size_t)waiting;
    if (kernel->cell == CELL_INSIDE) {
        capture_mark(&kernel->out);
        capture_mark(&kernel->err);
    }
}

/* Looks for the end of the kernel's last word in a cell. Nobody but the kernel suffers if it lies. */
static void follow(struct kernel *kernel, const char *bytes, size_t len)
{
    uint32_t head;
    while (frame_follow(&kernel->said, &bytes, &len, &head))
        if ((head & FRAME_MESSAGE_LAST) && kernel->cell == CELL_INSIDE)
            kernel->close_asked = true;
}

/* Passes on a bounded amount of what was seen there. True when all of that is in the wire. */
static bool pass_said(struct kernel *kernel)
{
    if (!kernel->said_left)
        return true;
    if (kernel->cell == CELL_INSIDE &&
        (!capture_reach(&kernel->out, kernel->wire, kernel->number) ||
         !capture_reach(&kernel->err, kernel->wire, kernel->number)))
        return false;
    size_t room = wire_room(kernel->wire);
    if (room < ROOM_MIN) {
        kernel->wire->starved = true;
        return false;
    }
    size_t len = kernel->said_left < room ? kernel->said_left : room;
    ssize_t n = read(kernel->channel_fd, wire_payload(kernel->wire), len);
    if (n > 0) {
        follow(kernel, wire_payload(kernel->wire), (size_t)n);
        wire_commit(kernel->wire, FRAME_SAID, kernel->number, (size_t)n);
        kernel->said_left -= (size_t)n;
    } else if (n == 0 || errno != EINTR) {
        kernel->said_left = 0; /* a promise that was none: the next look tells */
    }
    return !kernel->said_left;
}

static void step_channel(struct kernel *kernel)
{
    if (kernel->channel_fd < 0 || (!kernel->said_left && !kernel->channel_ready) ||
        (kernel->cell != CELL_INSIDE && kernel->cell != CELL_OUTSIDE))
        return;
    if (!kernel->said_left)
        look_at_channel(kernel);
    char byte;
    if (!kernel->said_left && recv(kernel->channel_fd, &byte, 1, MSG_PEEK) == 0)
        close_channel(kernel);
    else
        (void)pass_said(kernel);
}

/* Without its channel it is of no use to anybody. */
static void watch_channel(struct kernel *kernel)
{
    if (kernel->state == KERNEL_GOING && kernel->closed_ns &&
        clock_ns() >= kernel->closed_ns + CLOSED_MS * NS_PER_MS)
        kernel_give_up(kernel, EPIPE, "the kernel has closed its channel");
}

/*** the end ***/

/* Some descendant may still hold pipes and channel where a run is going on, which keeps us from killing
 * everybody; so each is looked at once, and what is there then is the last. */
static void finish(struct kernel *kernel)
{
    step_cell(kernel);
    if (kernel->cell != CELL_INSIDE && kernel->cell != CELL_OUTSIDE)
        return;
    if (!kernel->last_look && kernel->channel_fd >= 0)
        look_at_channel(kernel);
    kernel->last_look = true;
    if (!pass_said(kernel))
        return;
    if (!kernel->last_mark) {
        capture_mark(&kernel->out);
        capture_mark(&kernel->err);
    }
    kernel->last_mark = true;
    if (!finish_captures(kernel))
        return;
    struct frame_exit exit = {
        .flooded = kernel->flooded,
        .wall_ns = kernel->wall_ns,
        .cpu_ns = kernel->cpu_ns,
        .stdout_bytes = kernel->kept_out + kernel->out.total,
        .stderr_bytes = kernel->kept_err + kernel->err.total,
    };
    if (!order_send_exit(&kernel->order, kernel->wire, kernel->number, kernel->status, &exit))
        return;
    capture_end(&kernel->out);
    capture_end(&kernel->err);
    if (kernel->channel_fd >= 0)
        close_channel(kernel);
    order_end(&kernel->order);
    kernel->state = KERNEL_NONE;
}

/*** in the loop ***/

void kernel_poll(struct kernel *kernel, struct pollset *set)
{
    if (kernel->state != KERNEL_GOING && kernel->state != KERNEL_FLUSHING)
        return;
    bool flushing = kernel->state == KERNEL_FLUSHING, later = output_can_wait(kernel);
    bool now = !flushing && !later;
    capture_poll(&kernel->out, kernel->wire, set, now && may_capture(kernel, &kernel->out));
    capture_poll(&kernel->err, kernel->wire, set, now && may_capture(kernel, &kernel->err));
    if (later)
        pollset_wake(set, kernel->quiet_ns);
    feed_poll(&kernel->talk, set);
    if (kernel->talk.ask && !wire_pending(kernel->wire))
        pollset_wake(set, kernel->ask_ns);

    bool listen = flushing ? kernel->said_left > 0
                           : kernel->cell == CELL_INSIDE || kernel->cell == CELL_OUTSIDE;
    bool room = wire_room(kernel->wire) >= ROOM_MIN;
    pollset_add(set, kernel->channel_fd, listen && room ? POLLIN : 0, &kernel->channel_ready);
    if (!flushing && kernel->join_ns) {
        pollset_add(set, kernel->order.config->door_fd, POLLIN, &kernel->door_ready);
        pollset_wake(set, kernel->join_ns);
    }
    if (!flushing && kernel->closed_ns)
        pollset_wake(set, kernel->closed_ns + CLOSED_MS * NS_PER_MS);
}

void kernel_step(struct kernel *kernel)
{
    /* Not while it is being ended: who is about to die may wait for a full pipe until then. */
    if (kernel->state == KERNEL_GOING)
        step_door(kernel);
    if (kernel->state == KERNEL_GOING) {
        step_cell(kernel);
        step_output(kernel);
        step_channel(kernel);
        step_cell(kernel); /* it may have said its last word */
        step_talk(kernel);
        watch_channel(kernel);
    }
    if (kernel->state == KERNEL_FLUSHING)
        finish(kernel);
}
