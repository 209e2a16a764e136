#include "agent/capture.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    READS_PER_TURN = 4,
    ROOM_MIN = 4096, /* in the wire, to bother with the head */
};

void capture_init(struct capture *capture, enum frame_stream stream)
{
    capture->fd = -1;
    capture->stream = stream;
}

void capture_begin(struct capture *capture, int fd, uint64_t head_bytes, uint64_t tail_bytes)
{
    capture->fd = fd;
    capture->ended = false;
    capture->head_left = head_bytes;
    capture->total = capture->tail_total = capture->mark = 0;
    capture->tail_max = (size_t)tail_bytes;
    capture->flushing = false;
}

static uint8_t frame_of(const struct capture *capture)
{
    return capture->stream == FRAME_IS_STDOUT ? FRAME_STDOUT : FRAME_STDERR;
}

static bool blocked(const struct capture *capture, struct wire *wire)
{
    return capture->head_left > 0 && wire_room(wire) < ROOM_MIN;
}

void capture_poll(struct capture *capture, struct wire *wire, struct pollset *set, bool all)
{
    bool wanted = all || capture->total < capture->mark;
    wanted &= !capture->ended && !blocked(capture, wire);
    pollset_add(set, capture->fd, wanted ? POLLIN : 0, &capture->ready);
}

static size_t at_most(size_t len, uint64_t most)
{
    return len < most ? len : (size_t)most;
}

static ssize_t read_head(struct capture *capture, struct wire *wire, uint32_t number, uint64_t most)
{
    size_t room = at_most(at_most(wire_room(wire), capture->head_left), most);
    ssize_t n = read(capture->fd, wire_payload(wire), room);
    if (n > 0) {
        wire_commit(wire, frame_of(capture), number, (size_t)n);
        capture->head_left -= (uint64_t)n;
    }
    return n;
}

/* Pages of its own, which most streams never need. Without memory for them there is no tail. */
static void need_ring(struct capture *capture)
{
    if (capture->ring || !capture->tail_max)
        return;
    void *ring =
        mmap(NULL, FRAME_TAIL_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        capture->tail_max = 0;
    else
        capture->ring = ring;
}

/* Over the oldest bytes, up to the ring's end: the next read goes on at its beginning. */
static ssize_t read_tail(struct capture *capture, uint64_t most)
{
    static char nowhere[FRAME_PAYLOAD_MAX];
    need_ring(capture);
    size_t max = capture->tail_max;
    size_t at = max ? (size_t)(capture->tail_total % max) : 0;
    ssize_t n = max ? read(capture->fd, capture->ring + at, at_most(max - at, most))
                    : read(capture->fd, nowhere, at_most(sizeof(nowhere), most));
    if (n > 0)
        capture->tail_total += (uint64_t)n;
    return n;
}

/* Up to `enough` bytes in all. */
static bool drain(struct capture *capture, struct wire *wire, uint32_t number, uint64_t enough)
{
    for (int i = 0; i < READS_PER_TURN && capture->total < enough; i++) {
        if (capture->fd < 0 || capture->ended)
            return true;
        if (blocked(capture, wire)) {
            wire->starved = true;
            return false;
        }
        uint64_t most = enough - capture->total;
        ssize_t n =
            capture->head_left ? read_head(capture, wire, number, most) : read_tail(capture, most);
        if (n < 0)
            return errno != EINTR;
        if (n == 0) {
            capture->ended = true;
            return true;
        }
        capture->total += (uint64_t)n;
    }
    return false;
}

bool capture_drain(struct capture *capture, struct wire *wire, uint32_t number)
{
    return drain(capture, wire, number, UINT64_MAX);
}

void capture_mark(struct capture *capture)
{
    int waiting = 0;
    if (capture->fd >= 0 && ioctl(capture->fd, FIONREAD, &waiting) < 0)
        waiting = 0; /* it is a pipe of ours: cannot be */
    capture->mark = capture->total + (uint64_t)waiting;
}

bool capture_reach(struct capture *capture, struct wire *wire, uint32_t number)
{
    return capture->total >= capture->mark || drain(capture, wire, number, capture->mark) ||
           capture->total >= capture->mark;
}

bool capture_flush(struct capture *capture, struct wire *wire, uint32_t number)
{
    if (!capture->flushing) {
        uint64_t kept =
            capture->tail_total < capture->tail_max ? capture->tail_total : capture->tail_max;
        struct frame_gap gap = { .stream = capture->stream, .bytes = capture->tail_total - kept };
        char payload[FRAME_GAP_SIZE];
        frame_gap_put(payload, &gap);
        if (gap.bytes && !wire_say(wire, FRAME_GAP, number, payload, sizeof(payload)))
            return false;
        capture->flushing = true;
        capture->tail_len = kept;
        capture->tail_sent = 0;
    }
    while (capture->tail_sent < capture->tail_len) {
        size_t max = capture->tail_max;
        size_t at = (size_t)((capture->tail_total - capture->tail_len + capture->tail_sent) % max);
        uint64_t len = capture->tail_len - capture->tail_sent;
        if (len > max - at)
            len = max - at;
        if (len > FRAME_PAYLOAD_MAX)
            len = FRAME_PAYLOAD_MAX;
        if (!wire_say(wire, frame_of(capture), number, capture->ring + at, (size_t)len))
            return false;
        capture->tail_sent += len;
    }
    return true;
}

bool capture_finish(struct capture *capture, struct wire *wire, uint32_t number)
{
    return (capture->flushing || capture_reach(capture, wire, number)) &&
           capture_flush(capture, wire, number);
}

static void give_memory_back(struct capture *capture)
{
    if (capture->ring)
        (void)munmap(capture->ring, FRAME_TAIL_MAX);
    capture->ring = NULL;
}

void capture_again(struct capture *capture, uint64_t head_bytes, uint64_t tail_bytes)
{
    bool ended = capture->ended;
    give_memory_back(capture);
    capture_begin(capture, capture->fd, head_bytes, tail_bytes);
    capture->ended = ended;
}

void capture_end(struct capture *capture)
{
    if (capture->fd >= 0)
        close(capture->fd);
    capture->fd = -1;
    give_memory_back(capture);
}
