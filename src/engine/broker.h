/*
 * broker: between those who want a sandbox and an engine that makes them: a queue of callers, a pool of
 * sandboxes made ahead of need, a bound on how many are made at once.
 *
 * A making belongs to a plan, not to a caller: what is made goes to the first who waits for such a plan,
 * else into the pool, else it is discarded. So nobody waits for a start of his own while another is nearly
 * done, and who gives up leaves his to the next. Nothing comes back into the pool.
 *
 * Several who come at once are a rush. Until they are served the processors are theirs: no successors are made
 * for what they took, and sandboxes that have come to rest meanwhile keep their places and are discarded later,
 * a few at a time. A rush is over when nobody has come for some milliseconds and those who came had time for
 * a short program, or after RUSH_MAX_MS (broker.c). Whoever finds the pool empty does not wait for that. There
 * are never more sandboxes that are nobody's than `size`: those at rest are in the places of those taken.
 */
#ifndef BELLJAR_ENGINE_BROKER_H
#define BELLJAR_ENGINE_BROKER_H

#include "engine/ops.h"

struct broker;

struct broker_maker {
    void *data;
    /* Begins one: broker_made() or broker_failed() follows, not from in here. -EBUSY: there is no place now,
     * and broker_pump() will be called when there is; else negative and err: there will be none. */
    int (*make)(void *data, const struct sandbox_plan *plan, struct err *err);
    /* One that nobody wants. */
    void (*discard)(struct sandbox *sandbox);
};

struct broker_options {
    bool pooled;
    struct sandbox_plan plan; /* of what is made ahead */
    size_t size;
    size_t max_makings;  /* at once */
    uint64_t max_age_ms; /* in the pool; 0: any */
};

/* Counts in engine->stats: pool, failures, open and all sandboxes. */
struct broker *broker_new(uv_loop_t *loop, struct engine *engine,
                          const struct broker_options *options, const struct broker_maker *maker);
/* Callers are forgotten, what is nobody's is discarded. NULL is fine. */
void broker_free(struct broker *broker);

/* One for the pool, before anybody asks; as broker_maker.make() says. */
int broker_make(struct broker *broker, struct err *err);

struct engine_pending *broker_start(struct broker *broker, const struct sandbox_plan *plan,
                                    engine_started_fn *on_started, void *data);
void broker_cancel(struct broker *broker, struct engine_pending *pending);

void broker_made(struct broker *broker, const struct sandbox_plan *plan, struct sandbox *sandbox);
void broker_failed(struct broker *broker, const struct sandbox_plan *plan, const struct err *err);
/* Somebody waits for one that is being made. */
bool broker_hurries(const struct broker *broker);
/* There may be a place for another now. */
void broker_pump(struct broker *broker);
/* There will be no more: whoever waits or comes hears why; what is nobody's is discarded. */
void broker_shut(struct broker *broker, const struct err *err);
/* Its owner is done with it, and nothing runs in it: it is discarded, now or after the rush. */
void broker_retire(struct broker *broker, struct sandbox *sandbox);
/* It has died. True: it was in the pool or at rest, and the broker has let go of it; false: it is somebody's. */
bool broker_lost(struct broker *broker, const struct sandbox *sandbox);

#endif
