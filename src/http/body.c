#include "http/body.h"

#include <assert.h>

enum { SIZE_DIGITS_MAX = 16 }; /* 64 bits */

void body_init(struct body *body, const struct head *head)
{
    *body = (struct body){
        .state = BODY_DATA,
        .chunked = head->chunked,
        .left = head->content_length,
        .max = UINT64_MAX,
    };
    if (head->chunked)
        body->state = BODY_SIZE;
    else if (head->content_length == 0)
        body->state = BODY_DONE;
}

static int too_large(struct fault *ret_fault)
{
    return fault_set(ret_fault, 413, "request body too large");
}

int body_set_max(struct body *body, uint64_t max, struct fault *ret_fault)
{
    body->max = max;
    return !body->chunked && body->left > max ? too_large(ret_fault) : 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static int feed_size(struct body *body, char c, struct fault *ret_fault)
{
    int digit = hex_value(c);
    if (digit >= 0 && body->digits < SIZE_DIGITS_MAX) {
        body->left = body->left << 4 | (uint64_t)digit;
        body->digits++;
        return 0;
    }
    if (c != '\r' || body->digits == 0)
        return fault_set(ret_fault, 400, "malformed chunk size (extensions are not accepted)");
    body->state = BODY_SIZE_LF;
    return 0;
}

static int begin_chunk(struct body *body, struct fault *ret_fault)
{
    if (body->left > body->max - body->total)
        return too_large(ret_fault);
    body->total += body->left;
    body->digits = 0;
    body->state = body->left ? BODY_DATA : BODY_END_CR;
    return 0;
}

/* Line ends must be exactly where they belong. */
static int expect(struct body *body, char c, char want, enum body_state next, const char *why,
                  struct fault *ret_fault)
{
    if (c != want)
        return fault_set(ret_fault, 400, why);
    body->state = next;
    return 0;
}

/* One byte of framing. */
static int feed_frame(struct body *body, char c, struct fault *ret_fault)
{
    int r;
    switch (body->state) {
    case BODY_SIZE:
        return feed_size(body, c, ret_fault);
    case BODY_SIZE_LF:
        r = expect(body, c, '\n', BODY_DATA, "no line feed after a chunk size", ret_fault);
        return r < 0 ? r : begin_chunk(body, ret_fault);
    case BODY_DATA_CR:
        return expect(body, c, '\r', BODY_DATA_LF, "chunk longer than its size", ret_fault);
    case BODY_DATA_LF:
        return expect(body, c, '\n', BODY_SIZE, "no line feed after a chunk", ret_fault);
    case BODY_END_CR:
        return expect(body, c, '\r', BODY_END_LF, "trailers are not accepted", ret_fault);
    case BODY_END_LF:
        return expect(body, c, '\n', BODY_DONE, "no line feed after the last chunk", ret_fault);
    case BODY_DATA:
    case BODY_DONE:
        break;
    }
    assert(!"no framing in this state");
    return 0;
}

static size_t feed_data(struct body *body, const char *in, size_t len, struct buf *out)
{
    size_t n = len < body->left ? len : (size_t)body->left;
    if (out) {
        int r = buf_add(out, in, n);
        assert(r == 0); /* the caller's room is not less than max */
        (void)r;
    }
    body->left -= n;
    if (body->left == 0)
        body->state = body->chunked ? BODY_DATA_CR : BODY_DONE;
    return n;
}

ssize_t body_feed(struct body *body, const char *in, size_t len, struct buf *out,
                  struct fault *ret_fault)
{
    size_t used = 0;
    while (used < len && body->state != BODY_DONE) {
        if (body->state == BODY_DATA) {
            used += feed_data(body, in + used, len - used, out);
            continue;
        }
        int r = feed_frame(body, in[used], ret_fault);
        if (r < 0)
            return r;
        used++;
    }
    return (ssize_t)used;
}
