/*
 * body: takes a request body out of its framing, by length or chunked, however the bytes are cut.
 * Pure but for growing the buffer it is given.
 *
 *   1. body_init()      from the head
 *   2. body_set_max()   how much is welcome; refuses a longer Content-Length before any byte
 *   3. body_feed()      until body_done()
 *
 * Chunks are sizes in hexadecimal and nothing else: extensions and trailers are refused.
 */
#ifndef BELLJAR_HTTP_BODY_H
#define BELLJAR_HTTP_BODY_H

#include "base/buf.h"
#include "http/head.h"

enum body_state {
    BODY_DATA,
    BODY_SIZE, /* hexadecimal digits, or the CR after them */
    BODY_SIZE_LF,
    BODY_DATA_CR, /* CR LF after the data of a chunk */
    BODY_DATA_LF,
    BODY_END_CR, /* CR LF after the last chunk, where trailers would stand */
    BODY_END_LF,
    BODY_DONE,
};

struct body {
    enum body_state state;
    bool chunked;
    unsigned digits; /* of the present chunk size */
    uint64_t left;   /* data bytes still to come: of the body, or of the present chunk */
    uint64_t total;  /* data bytes of the chunks up to the present one */
    uint64_t max;
};

/* A request with neither length nor coding has an empty body, which is done at once. */
void body_init(struct body *body, const struct head *head);

/* 0, or -EBADMSG and a 413. Without this call there is no limit. */
int body_set_max(struct body *body, uint64_t max, struct fault *ret_fault);

static inline bool body_done(const struct body *body)
{
    return body->state == BODY_DONE;
}

/* Appends the data in `in` to `out`, or drops it when `out` is NULL. Returns how many bytes belong
 * to this body, all of them unless it ends before, or -EBADMSG. `out` must have room for `max`. */
ssize_t body_feed(struct body *body, const char *in, size_t len, struct buf *out,
                  struct fault *ret_fault);

#endif
