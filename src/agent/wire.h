/*
 * wire: the agent's end of the stream to the server. Two buffers made at the start; nothing is ever
 * blocked on. Whoever has something to say asks for room, and tries again in a later turn if there
 * is none: that is how a server that reads slowly slows its guest and not the agent.
 */
#ifndef BELLJAR_AGENT_WIRE_H
#define BELLJAR_AGENT_WIRE_H

#include "agent/frame.h"
#include "agent/pollset.h"

enum { WIRE_OUT = 4 * FRAME_MAX };

struct wire {
    int fd, out_fd; /* one descriptor, or two; -1: nobody listens, and what is said is dropped */
    short ready, out_ready;
    bool muted;           /* what is said is dropped, for now */
    bool starved;         /* somebody was refused room since the last turn */
    size_t in_at, in_len; /* in[in_at … in_len) is not parsed yet */
    size_t out_at, out_len;
    char in[FRAME_MAX];
    char out[WIRE_OUT];
};

/* They become non-blocking. */
int wire_init(struct wire *wire, int fd, int out_fd);
/* The server is gone: closes them, and forgets what was said by either side. */
void wire_close(struct wire *wire);
/* From here on, and no more: what is said is for nobody's ears. */
void wire_mute(struct wire *wire, bool muted);
void wire_poll(struct wire *wire, struct pollset *set);

/* Is something left to write? */
static inline bool wire_pending(const struct wire *wire)
{
    return wire->out_len > wire->out_at;
}

/* Reads once. 0, or -EPIPE when the server is gone, or -errno. */
int wire_read(struct wire *wire);
/* The next whole frame: 1 and *ret, valid until the next call; 0: none; or -errno. */
int wire_next(struct wire *wire, struct frame *ret);

/* Writes what it can. 0 or -errno. */
int wire_flush(struct wire *wire);

/*** wire_out.c ***/

/* Bytes of payload that a frame could carry now. Who goes without says so in `starved`. */
size_t wire_room(struct wire *wire);
/* True, or false when there is no room. */
bool wire_say(struct wire *wire, uint8_t type, uint32_t number, const char *payload, size_t len);
/* To read straight into a frame: wire_room() bytes to fill, then say what they are. */
char *wire_payload(struct wire *wire);
void wire_commit(struct wire *wire, uint8_t type, uint32_t number, size_t len);

#endif
