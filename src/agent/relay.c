#include "agent/relay.h"
#include "agent/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    ROOM_MIN = 4096, /* in the wire, to bother with the channel */
    CLOSED_MS =
        1000, /* to end after closing the channel: processes that exit do it in this order */
    OUTPUT_LATE_MS = 3, /* of a cell, in which its output can wait in the pipes */
};

void relay_init(struct relay *relay, struct wire *wire)
{
    *relay = (struct relay){ .wire = wire, .channel_fd = -1 };
    capture_init(&relay->out, FRAME_IS_STDOUT);
    capture_init(&relay->err, FRAME_IS_STDERR);
}

void relay_begin(struct relay *relay, uint32_t number, const struct frame_cell *limits)
{
    relay->number = number;
    relay->cell = CELL_OUTSIDE;
    relay->limits = *limits;
    relay->close_asked = relay->flooded = relay->last_look = relay->last_mark = false;
    relay->kept_out = relay->kept_err = 0;
    relay->closed_ns = 0;
    relay->said_left = 0;
    relay->said = (struct frame_follow){ 0 };
    capture_begin(&relay->out, -1, 0, 0);
    capture_begin(&relay->err, -1, 0, 0);
}

void relay_open(struct relay *relay, int channel_fd, int out_fd, int err_fd)
{
    relay->channel_fd = channel_fd;
    capture_begin(&relay->out, out_fd, 0, relay->limits.tail_bytes);
    capture_begin(&relay->err, err_fd, 0, relay->limits.tail_bytes);
}

void relay_end(struct relay *relay)
{
    capture_end(&relay->out);
    capture_end(&relay->err);
    if (relay->channel_fd >= 0)
        close(relay->channel_fd);
    relay->channel_fd = -1;
}

/*** cells ***/

static uint64_t cpu_time(const struct relay *relay)
{
    return relay->cpu_time ? relay->cpu_time(relay) : 0;
}

static void mark(struct relay *relay)
{
    capture_mark(&relay->out);
    capture_mark(&relay->err);
}

int relay_cell_end(struct relay *relay)
{
    if (relay->cell != CELL_LEADING && relay->cell != CELL_INSIDE)
        return -EPROTO;
    relay->close_asked = true;
    return 0;
}

static bool finish_captures(struct relay *relay)
{
    return capture_finish(&relay->out, relay->wire, relay->number) &&
           capture_finish(&relay->err, relay->wire, relay->number);
}

static void begin_cell(struct relay *relay)
{
    if (!finish_captures(relay))
        return;
    relay->kept_out = relay->out.total;
    relay->kept_err = relay->err.total;
    capture_again(&relay->out, relay->limits.head_bytes, relay->limits.tail_bytes);
    capture_again(&relay->err, relay->limits.head_bytes, relay->limits.tail_bytes);
    relay->cell = CELL_INSIDE;
}

int relay_cell(struct relay *relay, const struct frame_cell *limits)
{
    if (relay->cell != CELL_OUTSIDE)
        return -EPROTO;
    relay->cell = CELL_LEADING;
    relay->limits = *limits;
    mark(relay);
    relay->cell_start_ns = clock_ns();
    relay->quiet_ns = relay->cell_start_ns + OUTPUT_LATE_MS * NS_PER_MS;
    relay->cell_cpu_ns = cpu_time(relay);
    if (!relay->out.mark && !relay->err.mark)
        begin_cell(relay); /* nothing leads */
    return 0;
}

static void end_cell(struct relay *relay)
{
    if (!finish_captures(relay))
        return;
    uint64_t cpu_ns = cpu_time(relay);
    struct frame_exit totals = {
        .wall_ns = clock_ns() - relay->cell_start_ns,
        .cpu_ns = cpu_ns > relay->cell_cpu_ns ? cpu_ns - relay->cell_cpu_ns : 0,
        .stdout_bytes = relay->kept_out + relay->out.total,
        .stderr_bytes = relay->kept_err + relay->err.total,
    };
    char payload[FRAME_EXIT_SIZE];
    frame_exit_put(payload, &totals);
    if (!wire_say(relay->wire, FRAME_CELL_DONE, relay->number, payload, sizeof(payload)))
        return;
    relay->kept_out = relay->kept_err = 0;
    capture_again(&relay->out, 0, relay->limits.tail_bytes);
    capture_again(&relay->err, 0, relay->limits.tail_bytes);
    relay->cell = CELL_OUTSIDE;
}

static void step_cell(struct relay *relay)
{
    if (relay->cell == CELL_LEADING)
        begin_cell(relay);
    if (relay->cell == CELL_INSIDE && relay->close_asked) {
        relay->close_asked = false;
        relay->cell = CELL_CLOSING;
        mark(relay);
    }
    if (relay->cell == CELL_CLOSING)
        end_cell(relay);
}

/*** output ***/

/* Its last word will tell. Not without a channel: there will be none. */
static bool output_can_wait(const struct relay *relay)
{
    return relay->cell == CELL_INSIDE && !relay->closed_ns && clock_ns() < relay->quiet_ns;
}

/* More than the last flood_bytes outside of cells is not read: no reason to kill, and none to work. */
static bool may_capture(const struct relay *relay, const struct capture *capture)
{
    return relay->cell == CELL_INSIDE ||
           (relay->cell == CELL_OUTSIDE && capture->total < relay->limits.flood_bytes);
}

static void step_output(struct relay *relay)
{
    if (relay->out.ready && may_capture(relay, &relay->out))
        (void)capture_drain(&relay->out, relay->wire, relay->number);
    if (relay->err.ready && may_capture(relay, &relay->err))
        (void)capture_drain(&relay->err, relay->wire, relay->number);
    relay->flooded |= relay->cell == CELL_INSIDE && (relay->out.total > relay->limits.flood_bytes ||
                                                     relay->err.total > relay->limits.flood_bytes);
}

/*** the channel ***/

/* Looks at the channel first and at the pipes then, so that what is counted here was written after
 * everything that the marks cover. */
static void look_at_channel(struct relay *relay)
{
    int waiting = 0;
    if (ioctl(relay->channel_fd, FIONREAD, &waiting) < 0)
        waiting = 0;
    relay->said_left = (size_t)waiting;
    if (relay->cell == CELL_INSIDE)
        mark(relay);
}

/* Looks for the end of the kernel's last word in a cell. Nobody but the kernel suffers if it lies. */
static void follow(struct relay *relay, const char *bytes, size_t len)
{
    uint32_t head;
    while (frame_follow(&relay->said, &bytes, &len, &head))
        if ((head & FRAME_MESSAGE_LAST) && relay->cell == CELL_INSIDE)
            relay->close_asked = true;
}

/* Passes on a bounded amount of what was seen there. True when all of that is in the wire. */
static bool pass_said(struct relay *relay)
{
    if (!relay->said_left)
        return true;
    if (relay->cell == CELL_INSIDE && (!capture_reach(&relay->out, relay->wire, relay->number) ||
                                       !capture_reach(&relay->err, relay->wire, relay->number)))
        return false;
    size_t room = wire_room(relay->wire);
    if (room < ROOM_MIN) {
        relay->wire->starved = true;
        return false;
    }
    size_t len = relay->said_left < room ? relay->said_left : room;
    ssize_t n = read(relay->channel_fd, wire_payload(relay->wire), len);
    if (n > 0) {
        follow(relay, wire_payload(relay->wire), (size_t)n);
        wire_commit(relay->wire, FRAME_SAID, relay->number, (size_t)n);
        relay->said_left -= (size_t)n;
    } else if (n == 0 || errno != EINTR) {
        relay->said_left = 0; /* a promise that was none: the next look tells */
    }
    return !relay->said_left;
}

static bool listens(const struct relay *relay)
{
    return !relay->closed_ns && (relay->cell == CELL_INSIDE || relay->cell == CELL_OUTSIDE);
}

/* Of a socket or a pipe, in which nothing was just now. Behind the end nothing can come. */
static bool has_ended(int fd)
{
    struct pollfd other = { .fd = fd, .events = POLLRDHUP };
    int waiting;
    return poll(&other, 1, 0) == 1 && (other.revents & (POLLHUP | POLLRDHUP)) &&
           ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 0;
}

static void step_channel(struct relay *relay)
{
    if (!listens(relay) || (!relay->said_left && !relay->channel_ready))
        return;
    if (!relay->said_left)
        look_at_channel(relay);
    if (!relay->said_left && has_ended(relay->channel_fd))
        relay->closed_ns = clock_ns();
    else
        (void)pass_said(relay);
}

uint64_t relay_patience(const struct relay *relay)
{
    return relay->closed_ns ? relay->closed_ns + CLOSED_MS * NS_PER_MS : 0;
}

/*** the end ***/

bool relay_finish(struct relay *relay, struct frame_exit *ret)
{
    step_cell(relay);
    if (relay->cell != CELL_INSIDE && relay->cell != CELL_OUTSIDE)
        return false;
    if (!relay->last_look && relay->channel_fd >= 0)
        look_at_channel(relay);
    relay->last_look = true;
    if (!pass_said(relay))
        return false;
    if (!relay->last_mark)
        mark(relay);
    relay->last_mark = true;
    if (!finish_captures(relay))
        return false;
    ret->stdout_bytes = relay->kept_out + relay->out.total;
    ret->stderr_bytes = relay->kept_err + relay->err.total;
    return true;
}

/*** in a loop ***/

void relay_poll(struct relay *relay, struct pollset *set)
{
    bool later = output_can_wait(relay);
    capture_poll(&relay->out, relay->wire, set, !later && may_capture(relay, &relay->out));
    capture_poll(&relay->err, relay->wire, set, !later && may_capture(relay, &relay->err));
    if (later)
        pollset_wake(set, relay->quiet_ns);
    bool room = wire_room(relay->wire) >= ROOM_MIN;
    pollset_add(set, relay->channel_fd, listens(relay) && room ? POLLIN : 0, &relay->channel_ready);
}

void relay_poll_last(struct relay *relay, struct pollset *set)
{
    capture_poll(&relay->out, relay->wire, set, /* all= */ false);
    capture_poll(&relay->err, relay->wire, set, /* all= */ false);
    bool wanted = relay->said_left && wire_room(relay->wire) >= ROOM_MIN;
    pollset_add(set, relay->channel_fd, wanted ? POLLIN : 0, &relay->channel_ready);
}

void relay_step(struct relay *relay)
{
    step_cell(relay);
    step_output(relay);
    step_channel(relay);
    step_cell(relay); /* it may have said its last word */
}
