#include "mcp/outlet.h"

#include "base/buf.h"

#include <stdlib.h>

struct batch {
    struct outlet outlet;
    struct outlet *inner;
    size_t waiting;
    struct buf array;
};

static void batch_one_less(struct batch *batch)
{
    if (--batch->waiting > 0)
        return;
    if (batch->array.len == 0) {
        batch->inner->ops->abandon(batch->inner);
        return;
    }
    (void)buf_add_char(&batch->array, ']');
    batch->inner->ops->send(batch->inner, batch->array.data, batch->array.len, OUTLET_RESPONSE,
                            200);
}

static void batch_send(struct outlet *outlet, const char *text, size_t len, enum outlet_kind kind,
                       int status)
{
    struct batch *batch = container_of(outlet, struct batch, outlet);
    if (kind != OUTLET_RESPONSE) {
        batch->inner->ops->send(batch->inner, text, len, kind, status);
        return;
    }
    (void)buf_add_char(&batch->array, batch->array.len ? ',' : '[');
    (void)buf_add(&batch->array, text, len); /* each answer is bounded, and so is their number */
    batch_one_less(batch);
}

static void batch_abandon(struct outlet *outlet)
{
    batch_one_less(container_of(outlet, struct batch, outlet));
}

static bool batch_can_push(const struct outlet *outlet)
{
    const struct batch *batch = container_of(outlet, struct batch, outlet);
    return batch->inner->ops->can_push(batch->inner);
}

static void batch_free(struct outlet *outlet)
{
    struct batch *batch = container_of(outlet, struct batch, outlet);
    outlet_unref(batch->inner);
    buf_done(&batch->array);
    free(batch);
}

static const struct outlet_ops batch_ops = {
    .send = batch_send,
    .abandon = batch_abandon,
    .can_push = batch_can_push,
    .free = batch_free,
};

struct outlet *outlet_new_batch(struct outlet *inner, size_t count)
{
    struct batch *batch = xcalloc(1, sizeof(*batch));
    batch->outlet = (struct outlet){ .ops = &batch_ops, .refs = 1 };
    batch->inner = outlet_ref(inner);
    batch->waiting = count;
    batch->array = BUF_INIT(BUF_NO_CEILING);
    return &batch->outlet;
}
