/*
 * capture: one output stream of a run or a cell. The first bytes go to the server at once; what comes
 * after them is read and forgotten but for the last bytes, kept in a ring and sent at the end, with a
 * notice of how much is missing in between. The pipe is always drained, or its writer waits for the server.
 */
#ifndef BELLJAR_AGENT_CAPTURE_H
#define BELLJAR_AGENT_CAPTURE_H

#include "agent/frame.h"
#include "agent/wire.h"

struct capture {
    int fd;     /* the reading end; -1: not begun */
    bool ended; /* nobody has the other end any more */
    short ready;
    enum frame_stream stream;
    uint64_t head_left;
    uint64_t total;               /* bytes written by the run */
    uint64_t tail_total;          /* of these, behind the head */
    size_t tail_max;              /* of `ring` in use */
    uint64_t mark;                /* see capture_mark() */
    uint64_t tail_sent, tail_len; /* while flushing */
    bool flushing;
    char *ring; /* NULL: not needed yet */
};

void capture_init(struct capture *capture, enum frame_stream stream);
/* Takes `fd`, non-blocking. */
void capture_begin(struct capture *capture, int fd, uint64_t head_bytes, uint64_t tail_bytes);
/* `all`: or only up to the mark. */
void capture_poll(struct capture *capture, struct wire *wire, struct pollset *set, bool all);

/* Reads a bounded amount. True when nothing is there now, or the stream has ended; false when there
 * may be more, or the wire is full. */
bool capture_drain(struct capture *capture, struct wire *wire, uint32_t number);

/* Notes how much is in the pipe now. */
void capture_mark(struct capture *capture);
/* Reads a bounded amount, up to the mark. True when that has been reached. */
bool capture_reach(struct capture *capture, struct wire *wire, uint32_t number);

/* Sends gap and tail; nothing may be read meanwhile. True when all of it is in the wire. */
bool capture_flush(struct capture *capture, struct wire *wire, uint32_t number);
/* capture_reach(), then capture_flush(). */
bool capture_finish(struct capture *capture, struct wire *wire, uint32_t number);
/* All counts anew; the pipe stays. Gives the ring back. */
void capture_again(struct capture *capture, uint64_t head_bytes, uint64_t tail_bytes);
/* Closes, and gives the ring back. */
void capture_end(struct capture *capture);

#endif
