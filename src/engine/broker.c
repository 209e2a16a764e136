#include "engine/broker.h"

#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILL_MS = 50,    /* before the pool is first filled: the server answers its first client then */
    REST_MS = 5,     /* without a caller: the rush is over */
    SERVE_US = 2000, /* of a processor, for each who came: what a first short program takes */
    RUSH_MAX_MS = 200,
    DISCARD_MS = 2, /* between a few of those at rest and the next few: callers have their turn */
    DISCARD_FEW = 4,
    TICK_MS =
        1000, /* how often the pool's ages are looked at, and a failed filling is tried again */
    PAUSE_MIN_MS = 1000, /* after the pool could not be filled; each pause twice as long */
    PAUSE_MAX_MS = 30 * 1000,
};

struct making {
    struct list link;
    struct sandbox_plan plan;
};

/* A sandbox that is nobody's. */
struct idle {
    struct list link; /* pool or resting */
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
    struct list waiting, settled, makings, pool, resting;
    size_t n_makings;
    uint64_t n_resting;
    struct timer *deliver, *tick, *discard;
    struct timer *rush; /* active while there is one */
    uint64_t rush_began_ms, rush_until_ms;
    size_t rush_taken; /* of the pool */
    uint64_t serve_us; /* SERVE_US, by all processors */
    bool filling;      /* the pool, until it is full or there is a rush */
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

static bool discard_resting(struct broker *broker, size_t count);

static int make(struct broker *broker, const struct sandbox_plan *plan, struct err *err)
{
    int r = broker->maker.make(broker->maker.data, plan, err);
    if (r < 0 && discard_resting(broker, SIZE_MAX)) /* they were in the way */
        r = broker->maker.make(broker->maker.data, plan, err);
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
           stats->pool_ready + makings_for_pool(broker) + broker->n_resting < broker->options.size)
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

static void put_into(struct list *list, struct sandbox *sandbox)
{
    struct idle *idle = xcalloc(1, sizeof(*idle));
    idle->sandbox = sandbox;
    idle->since_ms = clock_ms();
    list_add_tail(list, &idle->link);
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
        put_into(&broker->pool, sandbox);
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

/*** The pool, and those at rest ***/

static struct sandbox *take_out(struct idle *idle, uint64_t *count)
{
    struct sandbox *sandbox = idle->sandbox;
    list_remove(&idle->link);
    free(idle);
    --*count;
    return sandbox;
}

static struct sandbox *take_from_pool(struct broker *broker, struct idle *idle)
{
    return take_out(idle, &stats_of(broker)->pool_ready);
}

static struct idle *find_idle(struct list *list, const struct sandbox *sandbox)
{
    list_each (struct idle, idle, list, link)
        if (idle->sandbox == sandbox)
            return idle;
    return NULL;
}

bool broker_lost(struct broker *broker, const struct sandbox *sandbox)
{
    struct idle *ready = find_idle(&broker->pool, sandbox);
    struct idle *resting = ready ? NULL : find_idle(&broker->resting, sandbox);
    if (ready) {
        (void)take_from_pool(broker, ready);
        pause_filling(broker); /* not in a tight circle */
    }
    if (resting)
        (void)take_out(resting, &broker->n_resting);
    return ready || resting;
}

/* At most so many, the first to rest first. False: there was none. */
static bool discard_resting(struct broker *broker, size_t count)
{
    bool any = false;
    for (; count > 0 && !list_empty(&broker->resting); count--, any = true) {
        struct idle *first = list_first(struct idle, &broker->resting, link);
        broker->maker.discard(take_out(first, &broker->n_resting));
    }
    return any;
}

static void discard_few(void *data)
{
    struct broker *broker = data;
    if (timer_active(broker->rush))
        return; /* its end goes on with this */
    (void)discard_resting(broker, DISCARD_FEW);
    if (!list_empty(&broker->resting))
        timer_start(broker->discard, DISCARD_MS);
    broker_pump(broker);
}

void broker_retire(struct broker *broker, struct sandbox *sandbox)
{
    size_t idle = stats_of(broker)->pool_ready + makings_for_pool(broker) + broker->n_resting;
    if (!broker->options.pooled || !timer_active(broker->rush) || idle >= broker->options.size) {
        broker->maker.discard(sandbox);
        return;
    }
    put_into(&broker->resting, sandbox);
    broker->n_resting++;
}

static void rush_over(void *data)
{
    struct broker *broker = data;
    broker->filling = broker->options.pooled;
    discard_few(broker);
}

/* While more than half are left the rush lasts until nobody comes any more; below that only as long as it
 * takes to serve those who came. It does not become shorter. */
static uint64_t rush_until(const struct broker *broker, bool plenty, uint64_t now)
{
    uint64_t last = broker->rush_began_ms + RUSH_MAX_MS;
    uint64_t until = broker->rush_began_ms + REST_MS + broker->rush_taken * broker->serve_us / 1000;
    if (plenty && until < now + REST_MS)
        until = now + REST_MS;
    if (until > last)
        until = last;
    return until > broker->rush_until_ms ? until : broker->rush_until_ms;
}

/* Somebody has taken one, or found none. A filling that is under way goes on unless there is plenty. */
static void rush(struct broker *broker, bool taken)
{
    uint64_t now = clock_ms();
    bool plenty = stats_of(broker)->pool_ready * 2 > broker->options.size;
    if (plenty)
        broker->filling = false;
    if (broker->filling)
        return;
    if (!timer_active(broker->rush)) {
        broker->rush_began_ms = broker->rush_until_ms = now;
        broker->rush_taken = 0;
    }
    broker->rush_taken += taken;
    broker->rush_until_ms = rush_until(broker, plenty, now);
    uint64_t until = broker->rush_until_ms;
    timer_start(broker->rush, until > now ? until - now : 0);
}

static void on_tick(void *data)
{
    struct broker *broker = data;
    uint64_t now = clock_ms(), age = broker->options.max_age_ms;
    list_each (struct idle, ready, &broker->pool, link)
        if (age && now - ready->since_ms >= age)
            broker->maker.discard(take_from_pool(broker, ready));
    if (!timer_active(broker->rush))
        broker->filling = broker->options.pooled;
    broker_pump(broker);
}

static void discard_all(struct broker *broker)
{
    (void)discard_resting(broker, SIZE_MAX);
    while (!list_empty(&broker->pool)) {
        struct idle *first = list_first(struct idle, &broker->pool, link);
        broker->maker.discard(take_from_pool(broker, first));
    }
}

void broker_shut(struct broker *broker, const struct err *err)
{
    broker->shut = *err;
    while (!list_empty(&broker->waiting))
        refuse(broker, list_first(struct pending, &broker->waiting, link), err);
    discard_all(broker);
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
    struct list *lists[] = { &broker->waiting, &broker->settled, &broker->makings, &broker->pool,
                             &broker->resting };
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        list_init(lists[i]);
    broker->deliver = timer_new(loop, deliver, broker);
    broker->tick = timer_new(loop, on_tick, broker);
    broker->discard = timer_new(loop, discard_few, broker);
    broker->rush = timer_new(loop, rush_over, broker);
    timer_repeat(broker->tick, TICK_MS);
    broker->serve_us = SERVE_US / uv_available_parallelism();
    broker->rush_began_ms = clock_ms(); /* of the first clients, whoever they are */
    broker->rush_until_ms = broker->rush_began_ms + FILL_MS;
    timer_start(broker->rush, FILL_MS);
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
    discard_all(broker);
    timer_free(broker->deliver);
    timer_free(broker->tick);
    timer_free(broker->discard);
    timer_free(broker->rush);
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
    bool hit = pooled && !list_empty(&broker->pool);
    if (hit) {
        stats_of(broker)->pool_hits++;
        struct idle *oldest = list_first(struct idle, &broker->pool, link);
        hand_over(broker, pending, take_from_pool(broker, oldest));
    } else {
        stats_of(broker)->pool_misses += broker->options.pooled;
    }
    rush(broker, hit);
    broker_pump(broker);
    return &pending->base;
}

bool broker_hurries(const struct broker *broker)
{
    return !list_empty(&broker->waiting);
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
