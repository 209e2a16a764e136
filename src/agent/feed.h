/*
 * feed: bytes from the server on their way into a pipe, one chunk at a time: standard input of a run,
 * content of a file. The server sends the next chunk when asked, so one buffer is enough however
 * slowly the other end reads.
 */
#ifndef BELLJAR_AGENT_FEED_H
#define BELLJAR_AGENT_FEED_H

#include "agent/frame.h"
#include "agent/wire.h"

struct feed {
    bool open;
    int fd; /* -1: none yet */
    short ready;
    uint64_t left; /* bytes that the server still has */
    bool ask;      /* the server waits to be asked */
    bool full;     /* the last chunk was as long as one can be */
    size_t at, len;
    char buf[FRAME_PAYLOAD_MAX];
};

void feed_init(struct feed *feed);
/* The server has `total` bytes. The first chunk is welcome before there is a pipe. */
void feed_begin(struct feed *feed, uint64_t total);
/* Takes `fd`, the writing end (-1: nobody reads); it is closed when all bytes have gone through, or
 * nobody reads any more. */
void feed_connect(struct feed *feed, int fd);
void feed_end(struct feed *feed);

/* 0; or -EPROTO: more than was announced, or not asked for. What comes after the end is dropped. */
int feed_take(struct feed *feed, const char *bytes, size_t len);
void feed_poll(struct feed *feed, struct pollset *set);
/* Moves what it can. */
void feed_push(struct feed *feed);
/* If it is time to ask: with a frame of this type and number. */
void feed_ask(struct feed *feed, struct wire *wire, uint8_t more_type, uint32_t number);
/* Both. */
void feed_step(struct feed *feed, struct wire *wire, uint8_t more_type, uint32_t number);

#endif
