/*
 * outlet: where the messages of one exchange go. The protocol side writes to outlets and knows no
 * transport; stdio has one outlet for all, HTTP one per POST and one per standing stream.
 *
 * Outlets are shared by the calls that answer through them: ref/unref.
 */
#ifndef BELLJAR_MCP_OUTLET_H
#define BELLJAR_MCP_OUTLET_H

#include "base/base.h"

enum outlet_kind {
    OUTLET_HINT,         /* progress, log: may be dropped when the client reads slowly */
    OUTLET_NOTIFICATION, /* must arrive while the outlet lives */
    OUTLET_REQUEST,      /* the server asks; an answer is expected by another way */
    OUTLET_RESPONSE,     /* the answer: the last message of an exchange */
};

struct outlet;
struct outlet_ops {
    /* One message. `status` is what HTTP should say when this answer is the first thing sent. */
    void (*send)(struct outlet *outlet, const char *text, size_t len, enum outlet_kind kind,
                 int status);
    /* The response will not come (the request was cancelled). */
    void (*abandon)(struct outlet *outlet);
    /* Can messages be sent before the response? */
    bool (*can_push)(const struct outlet *outlet);
    /* Ends the connection, not the exchange; NULL where that has no meaning. */
    void (*hang_up)(struct outlet *outlet, uint64_t retry_ms);
    void (*free)(struct outlet *outlet);
};

struct outlet {
    const struct outlet_ops *ops;
    unsigned refs;
};

static inline struct outlet *outlet_ref(struct outlet *outlet)
{
    outlet->refs++;
    return outlet;
}

static inline void outlet_unref(struct outlet *outlet)
{
    if (outlet && --outlet->refs == 0)
        outlet->ops->free(outlet);
}

/* An outlet that gathers `count` responses (or abandonments) and passes them on to `inner` as one
 * JSON array: the answer to a batch. Other messages pass straight through. Holds its own reference
 * to `inner`. */
struct outlet *outlet_new_batch(struct outlet *inner, size_t count);

#endif
