#include "engine/broker.h"

#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILL_MS = 50,  /* before the pool is first filled: the server answers its first client then */
    REFILL_MS = 5, /* before it is filled again: the processors are for whoever has just come */
    TICK_MS =
        1000, /* how often the pool's ages are looked at, and a failed filling is tried again */
    PAUSE_MIN_MS = 1000, /* after the pool could not be filled; each pause twice as long */
    PAUSE_MAX_MS = 30 * 1000,
};

struct making {
    struct list link;
    struct sandbox_plan plan;
};

struct ready {
    struct list link;
    struct sandbox *sandbox;
    uint64_t since_ms;
};

struct pending {
    struct engine_pending base;
    struct list link; /* waiting or settled */
    struct sandbox_plan plan;
    struct sandbox *sandbox; /* settled: what it gets, or NULL and err */
    struct err err;
};

struct broker {
    struct engine *engine;
    struct broker_options options;
    struct broker_maker maker;
    struct list waiting, settled, makings, pool;
    size_t n_makings;
    struct timer *deliver, *tick, *refill;
    bool filling; /* the pool, until it is full or who comes has time */
    uint64_t not_before_ms, pause_ms;
    struct err shut; /* code 0: it is not */
};

static bool same_plan(const struct sandbox_plan *a, const struct sandbox_plan *b)
{
    _Static_assert(sizeof(*a) == 11 * sizeof(uint64_t), "no padding to compare");
    return memcmp(a, b, sizeof(*a)) == 0;
}

static struct engine_stats *stats_of(struct broker *broker)
{
    return &broker->engine->stats;
}

/*** Those who wait ***/

/* Told from the loop, never from inside a call. */
static void settle(struct broker *broker, struct pending *pending)
{
    list_remove(&pending->link);
    list_add_tail(&broker->settled, &pending->link);
    timer_start(broker->deliver, 0);
}

static void hand_over(struct broker *broker, struct pending *pending, struct sandbox *sandbox)
{
    pending->sandbox = sandbox;
    stats_of(broker)->sandboxes_open++;
    settle(broker, pending);
}

static void refuse(struct broker *broker, struct pending *pending, const struct err *err)
{
    pending->err = *err;
    stats_of(broker)->failures_total++;
    settle(broker, pending);
}

/* Only as many as there were: a caller that starts again at once must not keep the loop. */
static void deliver(void *data)
{
    struct broker *broker = data;
    struct list now = LIST_INIT(now);
    while (!list_empty(&broker->settled)) {
        struct list *link = broker->settled.next;
        list_remove(link);
        list_add_tail(&now, link);
    }
    while (!list_empty(&now)) {
        struct pending *pending = list_first(struct pending, &now, link);
        struct pending done = *pending;
        list_remove(&pending->link);
        free(pending);
        done.base.on_started(done.sandbox, done.sandbox ? NULL : &done.err, done.base.data);
    }
}

static struct pending *first_waiting(struct broker *broker, const struct sandbox_plan *plan)
{
    list_each (struct pending, pending, &broker->waiting, link)
        if (same_plan(&pending->plan, plan))
            return pending;
    return NULL;
}

/* Whether a making under way is meant for this caller: as many as wait before it are not. */
static bool is_served(const struct broker *broker, const struct pending *pending)
{
    size_t before = 0, under_way = 0;
    list_each (struct pending, other, &broker->waiting, link) {
        if (other == pending)
            break;
        before += same_plan(&other->plan, &pending->plan);
    }
    list_each (struct making, making, &broker->makings, link)
        under_way += same_plan(&making->plan, &pending->plan);
    return before < under_way;
}

/*** Making ***/

static int make(struct broker *broker, const struct sandbox_plan *plan, struct err *err)
{
    int r = broker->maker.make(broker->maker.data, plan, err);
    if (r < 0)
        return r;
    struct making *making = xcalloc(1, sizeof(*making));
    making->plan = *plan;
    list_add_tail(&broker->makings, &making->link);
    broker->n_makings++;
    return 0;
}

static void unmake(struct broker *broker, const struct sandbox_plan *plan)
{
    list_each (struct making, making, &broker->makings, link) {
        if (!same_plan(&making->plan, plan))
            continue;
        list_remove(&making->link);
        free(making);
        broker->n_makings--;
        return;
    }
}

static size_t makings_for_pool(const struct broker *broker)
{
    size_t count = 0;
    list_each (struct making, making, &broker->makings, link)
        count += same_plan(&making->plan, &broker->options.plan);
    return count;
}

static void fill_pool(struct broker *broker)
{
    const struct engine_stats *stats = stats_of(broker);
    struct err err;
    if (!broker->filling || clock_ms() < broker->not_before_ms)
        return;
    while (broker->n_makings < broker->options.max_makings &&
           stats->pool_ready + makings_for_pool(broker) < broker->options.size)
        if (make(broker, &broker->options.plan, &err) < 0)
            return;
    broker->filling = stats->pool_ready < broker->options.size;
}

/* Callers first, then the pool. */
void broker_pump(struct broker *broker)
{
    list_each (struct pending, pending, &broker->waiting, link) {
        struct err err;
        if (broker->shut.code || broker->n_makings >= broker->options.max_makings)
            return;
        int r = is_served(broker, pending) ? 0 : make(broker, &pending->plan, &err);
        if (r == -EBUSY)
            return;
        if (r < 0)
            refuse(broker, pending, &err);
    }
    if (!broker->shut.code)
        fill_pool(broker);
}

int broker_make(struct broker *broker, struct err *err)
{
    return make(broker, &broker->options.plan, err);
}

void broker_made(struct broker *broker, const struct sandbox_plan *plan, struct sandbox *sandbox)
{
    stats_of(broker)->sandboxes_total++;
    unmake(broker, plan);
    broker->pause_ms = 0;
    struct pending *pending = first_waiting(broker, plan);
    bool for_pool = broker->options.pooled && same_plan(plan, &broker->options.plan) &&
                    stats_of(broker)->pool_ready < broker->options.size;
    if (pending) {
        broker->not_before_ms = 0; /* all is well again */
        hand_over(broker, pending, sandbox);
    } else if (for_pool) {
        struct ready *ready = xcalloc(1, sizeof(*ready));
        ready->sandbox = sandbox;
        ready->since_ms = clock_ms();
        list_add_tail(&broker->pool, &ready->link);
        stats_of(broker)->pool_ready++;
    } else {
        broker->maker.discard(sandbox);
    }
    broker_pump(broker);
}

static void pause_filling(struct broker *broker)
{
    uint64_t pause = broker->pause_ms ? broker->pause_ms * 2 : PAUSE_MIN_MS;
    broker->pause_ms = pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
    broker->not_before_ms = clock_ms() + broker->pause_ms;
}

void broker_failed(struct broker *broker, const struct sandbox_plan *plan, const struct err *err)
{
    unmake(broker, plan);
    struct pending *pending = first_waiting(broker, plan);
    if (pending) {
        refuse(broker, pending, err);
    } else {
        if (!broker->pause_ms) /* once for a row of failures */
            log_warning("filling the pool: %s", err->msg);
        stats_of(broker)->failures_total++;
    }
    pause_filling(broker);
    broker_pump(broker);
}

/*** The pool ***/

static struct sandbox *take_out(struct broker *broker, struct ready *ready)
{
    struct sandbox *sandbox = ready->sandbox;
    list_remove(&ready->link);
    free(ready);
    stats_of(broker)->pool_ready--;
    return sandbox;
}

bool broker_lost(struct broker *broker, const struct sandbox *sandbox)
{
    list_each (struct ready, ready, &broker->pool, link) {
        if (ready->sandbox != sandbox)
            continue;
        (void)take_out(broker, ready);
        pause_filling(broker); /* not in a tight circle */
        return true;
    }
    return false;
}

static void refill(void *data)
{
    struct broker *broker = data;
    broker->filling = broker->options.pooled;
    broker_pump(broker);
}

/* Somebody has taken one, or found none. While more than half are left each of them puts the filling off, so
 * that several who come at once are served first; below that the first of them has set the time. */
static void refill_later(struct broker *broker)
{
    bool plenty = stats_of(broker)->pool_ready * 2 > broker->options.size;
    if (plenty)
        broker->filling = false;
    if (plenty || (!broker->filling && !timer_active(broker->refill)))
        timer_start(broker->refill, REFILL_MS);
}

static void on_tick(void *data)
{
    struct broker *broker = data;
    uint64_t now = clock_ms(), age = broker->options.max_age_ms;
    list_each (struct ready, ready, &broker->pool, link)
        if (age && now - ready->since_ms >= age)
            broker->maker.discard(take_out(broker, ready));
    if (!timer_active(broker->refill))
        broker->filling = broker->options.pooled;
    broker_pump(broker);
}

static void empty_pool(struct broker *broker)
{
    while (!list_empty(&broker->pool))
        broker->maker.discard(take_out(broker, list_first(struct ready, &broker->pool, link)));
}

void broker_shut(struct broker *broker, const struct err *err)
{
    broker->shut = *err;
    while (!list_empty(&broker->waiting))
        refuse(broker, list_first(struct pending, &broker->waiting, link), err);
    empty_pool(broker);
}

/*** For the engine ***/

struct broker *broker_new(uv_loop_t *loop, struct engine *engine,
                          const struct broker_options *options, const struct broker_maker *maker)
{
    struct broker *broker = xcalloc(1, sizeof(*broker));
    broker->engine = engine;
    broker->options = *options;
    if (!broker->options.max_makings)
        broker->options.max_makings = 1;
    broker->maker = *maker;
    struct list *lists[] = { &broker->waiting, &broker->settled, &broker->makings, &broker->pool };
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        list_init(lists[i]);
    broker->deliver = timer_new(loop, deliver, broker);
    broker->tick = timer_new(loop, on_tick, broker);
    broker->refill = timer_new(loop, refill, broker);
    timer_repeat(broker->tick, TICK_MS);
    timer_start(broker->refill, FILL_MS);
    return broker;
}

void broker_free(struct broker *broker)
{
    if (!broker)
        return;
    list_each (struct pending, pending, &broker->waiting, link)
        free(pending);
    list_each (struct pending, pending, &broker->settled, link)
        free(pending);
    list_each (struct making, making, &broker->makings, link)
        free(making);
    empty_pool(broker);
    timer_free(broker->deliver);
    timer_free(broker->tick);
    timer_free(broker->refill);
    free(broker);
}

struct engine_pending *broker_start(struct broker *broker, const struct sandbox_plan *plan,
                                    engine_started_fn *on_started, void *data)
{
    struct pending *pending = xcalloc(1, sizeof(*pending));
    pending->base = (struct engine_pending){ broker->engine, on_started, data };
    pending->plan = *plan;
    list_add_tail(&broker->waiting, &pending->link);
    if (broker->shut.code) {
        refuse(broker, pending, &broker->shut);
        return &pending->base;
    }
    bool pooled = broker->options.pooled && same_plan(plan, &broker->options.plan);
    if (pooled && !list_empty(&broker->pool)) {
        stats_of(broker)->pool_hits++;
        struct ready *oldest = list_first(struct ready, &broker->pool, link);
        hand_over(broker, pending, take_out(broker, oldest));
    } else {
        stats_of(broker)->pool_misses += broker->options.pooled;
    }
    refill_later(broker);
    broker_pump(broker);
    return &pending->base;
}

void broker_cancel(struct broker *broker, struct engine_pending *base)
{
    struct pending *pending = container_of(base, struct pending, base);
    list_remove(&pending->link);
    if (pending->sandbox) {
        stats_of(broker)->sandboxes_open--;
        broker->maker.discard(pending->sandbox);
    }
    free(pending);
}
