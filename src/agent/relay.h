/*
 * relay: what a kernel says and prints, made into frames. It reads the channel and the two pipes of one
 * kernel and knows about cells. Two use it: the agent, for kernels that it has started, and the server's link,
 * for those at whose other end the server is itself (link_direct.c). So both follow the same rules.
 *
 * Output belongs to cells. Before bytes of the channel are passed on, everything is that was in the
 * pipes when those bytes were there: so what was printed before a message comes before it. That holds
 * within a cell; outside, output is kept in the captures' rings and begins the next cell.
 *
 *   OUTSIDE → LEADING   a cell has begun: what was written until then is sent, as far as it was kept
 *           → INSIDE    head and tail, as in a run
 *           → CLOSING   the kernel has said its last word, or the server wants the end: up to where the
 *                       pipes are now, the tails, the totals
 *           → OUTSIDE
 *
 * Nothing is read from the channel that the wire has no room for: a relay holds no more than two tails,
 * whatever the kernel does.
 *
 * Most cells are short, and each time somebody wakes up costs as much as what they do. So output of the
 * first moment of a cell is left in the pipes, to be sent with the kernel's last word.
 */
#ifndef BELLJAR_AGENT_RELAY_H
#define BELLJAR_AGENT_RELAY_H

#include "agent/capture.h"

enum relay_cell { CELL_OUTSIDE, CELL_LEADING, CELL_INSIDE, CELL_CLOSING };

struct relay {
    struct wire *wire;
    uint32_t number; /* of the kernel */
    /* Processor time that it has used; NULL: nobody here knows. */
    uint64_t (*cpu_time)(const struct relay *relay);

    enum relay_cell cell;
    struct frame_cell limits; /* of this cell, or of the last */
    bool close_asked;         /* as soon as it is INSIDE */
    bool flooded;             /* more than a cell may; whoever owns the kernel has to end it */
    uint64_t cell_start_ns, cell_cpu_ns;
    uint64_t quiet_ns;           /* until when its output can wait */
    uint64_t kept_out, kept_err; /* bytes from outside that count in this cell */
    struct capture out, err;

    int channel_fd; /* -1: none */
    short channel_ready;
    uint64_t closed_ns;       /* when the other end of the channel went away; 0: it has not */
    size_t said_left;         /* bytes in the channel that may be passed on */
    struct frame_follow said; /* the messages in them */
    bool last_look;           /* relay_finish(): no more than these */
    bool last_mark;           /* and no more output than is marked */
};

void relay_init(struct relay *relay, struct wire *wire);
/* Of a kernel that is about to be; with the limits until its first cell. */
void relay_begin(struct relay *relay, uint32_t number, const struct frame_cell *limits);
/* Takes descriptors, which do not block. */
void relay_open(struct relay *relay, int channel_fd, int out_fd, int err_fd);
/* Closes them, and gives memory back. */
void relay_end(struct relay *relay);

/* 0 or -EPROTO: there is a cell already, or none. */
int relay_cell(struct relay *relay, const struct frame_cell *limits);
int relay_cell_end(struct relay *relay);

void relay_poll(struct relay *relay, struct pollset *set);
/* Moves a bounded amount. More is there while the wire is starved, or poll() says so. */
void relay_step(struct relay *relay);

/* Its process is dead. Some descendant may still hold pipes and channel, so each is looked at once, and what
 * is there then is the last. True when all of it is in the wire, with the bytes since the end of the last
 * cell in *ret. */
void relay_poll_last(struct relay *relay, struct pollset *set);
bool relay_finish(struct relay *relay, struct frame_exit *ret);

/* Without its channel a kernel is of no use to anybody. When to give it up; 0: not at all. */
uint64_t relay_patience(const struct relay *relay);

#endif
