/*
 * Sessions made ahead of need: a sandbox of the default plan, its agent, and a Python kernel that has
 * started and run a cell of ours. A session in the pool is whole but for an owner; giving it away is
 * giving it one. Nothing comes back: a session that is over is destroyed.
 *
 *   making ─(warm-up cell done)─▶ ready ─▶ given away
 *      │                            ├ too old: replaced
 *      └─ failed: a pause, then another; each pause twice as long
 *
 * A kernel that was forked has its modules imported. One that had to be started has not. Where there are no
 * forks, in containers and without a zygote, it imports them by itself, and is between the two until it has:
 *
 *   making ─▶ bare ─(all are there, and nobody else imports)─▶ importing ─▶ ready
 *
 * A bare one is given away if there is none better, one that imports is not: nobody's call waits for that. Imports take
 * a hundred times as long as all the rest, so they begin when there is nothing else to do. Where
 * forks are to be had (not in the first second or two of a server, and not while there is no zygote),
 * started ones are replaced by forked ones, and given away last.
 *
 * What a process touches first it copies, a page at a time, and a first line of pandas touches a thousand pages. So one
 * that has waited for a moment rehearses (`rehearses`): it runs such lines, and forgets them. Where sessions come quickly none
 * does: it would take the processors from those that come next. One does at a time, and only when nothing is to be made or
 * opened; while it does, a call gets another.
 *
 * One that is still being made may be given away, too: its client's run waits behind the warm-up, and
 * begins sooner than in a sandbox that has to be made first.
 *
 * Callers go first: nothing is made while a client's session is opening, and a pool that is at least
 * half full waits a moment after each hand-over, for that is when the processors have work to do. Sandboxes of
 * sessions that end meanwhile wait as long for their end, which takes as much work as they do to make: so a row of
 * short sessions is served without either.
 *
 * How many: `size` as a rule. Each time that none is ready the number doubles, up to `max`, and goes
 * down again one by one while there are always some.
 */
#include "session/internal.h"

#include "base/log.h"

#include <stdlib.h>

enum {
    REFILL_MS = 15,
    ENDING_MAX = 16, /* sandboxes that wait for their end, each 8 MB and more */
    TICK_MS = 1000,
    WARM_UP_MS = 30000,      /* a first Python on a busy machine */
    PRELOAD_MS = 120000,     /* imports from a cold disk take their time */
    REHEARSE_AFTER_MS = 250, /* in which nobody has come */
    REHEARSAL_MS = 10000,    /* it takes about 20 */
    NEARLY_READY_MS = 1000,  /* one in the making for longer than this is not waited for */
    SHRINK_MS = 30 * 1000,   /* without a miss, for one kernel less */
    PAUSE_MIN_MS = 1000,     /* after a failure */
    PAUSE_MAX_MS = 60 * 1000,
};

/* After what did not work; each twice as long as the last. */
struct pause {
    uint64_t length_ms; /* 0: it works */
    uint64_t begin_ms;
};

struct pool {
    struct sessions *sessions;
    size_t size, max, target;
    bool started;
    struct list ready, bare, making; /* struct session_ref, the oldest first */
    size_t n_bare;                   /* counted among those in the making */
    struct session_ref *importing;   /* one of the bare; NULL: none */
    uint64_t import_ms;              /* since when */
    struct session_ref *rehearsing;  /* one of the ready; NULL: none */
    uint64_t rehearsal_ms;           /* since when */
    uint64_t taken_ms;               /* when somebody last came */
    struct list ending; /* struct session_ref that have ended, but for their sandboxes */
    size_t n_ending;
    struct timer *refill, *rehearse, *tick;
    uint64_t changed_ms; /* when the target last rose or fell */
    struct pause failures, no_forks, no_preload, no_rehearsal;
};

static bool is_over(const struct pause *pause)
{
    return !pause->length_ms || clock_ms() - pause->begin_ms >= pause->length_ms;
}

static void pause_again(struct pause *pause)
{
    uint64_t length = pause->length_ms ? pause->length_ms * 2 : PAUSE_MIN_MS;
    pause->length_ms = length < PAUSE_MAX_MS ? length : PAUSE_MAX_MS;
    pause->begin_ms = clock_ms();
}

static struct session_stats *stats_of(const struct pool *pool)
{
    return &pool->sessions->stats;
}

/*** Making ***/

static void on_warm(const struct run_result *result, void *data);

static void make_one(struct pool *pool, bool only_forked)
{
    struct session_ref *session = session_begin(pool->sessions, &(struct session_plan){ 0 });
    list_add_tail(&pool->making, &session->link);
    stats_of(pool)->kernels_making++;
    session->only_forked = only_forked;
    session_warm_up(session, WARM_UP_MS, on_warm, session);
}

static bool may_make(const struct pool *pool)
{
    const struct session_stats *stats = stats_of(pool);
    size_t at_once = pool->sessions->options.pool_max_creations;
    return pool->started && pool->sessions->n_opening == 0 &&
           stats->kernels_ready + stats->kernels_making < pool->target &&
           stats->kernels_making - pool->n_bare < (at_once ? at_once : 1) &&
           is_over(&pool->failures);
}

void pool_pump(struct pool *pool)
{
    if (!pool || timer_active(pool->refill))
        return;
    while (may_make(pool))
        make_one(pool, /* only_forked= */ false);
}

static bool is_half_full(const struct pool *pool)
{
    return stats_of(pool)->kernels_ready * 2 >= pool->target;
}

bool pool_holds_back(struct pool *pool, struct session_ref *session)
{
    if (!pool || !timer_active(pool->refill) || !is_half_full(pool) || pool->n_ending >= ENDING_MAX)
        return false;
    session_hold(session);
    list_add_tail(&pool->ending, &session->link);
    pool->n_ending++;
    return true;
}

static void bury_ended(struct pool *pool)
{
    while (!list_empty(&pool->ending)) {
        struct session_ref *session = list_first(struct session_ref, &pool->ending, link);
        list_remove(&session->link);
        pool->n_ending--;
        session_bury(session);
        session_release(session);
    }
}

static void on_refill(void *data)
{
    bury_ended(data);
    pool_pump(data);
}

/* Said once for a row of failures: a host without Python would fill the log. */
static void note_failure(struct pool *pool)
{
    stats_of(pool)->kernel_failures++;
    if (!pool->failures.length_ms)
        log_warning("a Python kernel made ahead of need has failed; trying again later");
    pause_again(&pool->failures);
}

/* Off the pool's books. */
static void leave(struct pool *pool, struct session_ref *session)
{
    list_remove(&session->link);
    if (session->ahead == AHEAD_READY)
        stats_of(pool)->kernels_ready--;
    else
        stats_of(pool)->kernels_making--;
    if (session->ahead == AHEAD_BARE)
        pool->n_bare--;
    if (pool->importing == session)
        pool->importing = NULL;
    if (pool->rehearsing == session)
        pool->rehearsing = NULL;
}

static void dismiss(struct pool *pool, struct session_ref *session)
{
    leave(pool, session);
    session_end(session, OUTCOME_INTERRUPTED, "it was not needed");
}

/* The oldest, which is the one that has rehearsed, if one has. */
static struct session_ref *find_ready(const struct pool *pool, bool forked)
{
    list_each (struct session_ref, session, &pool->ready, link) {
        if (session->joined == forked && session != pool->rehearsing)
            return session;
    }
    return NULL;
}

/* One after the other, beyond the number that is wanted, until the old one goes. */
static void replace_started(struct pool *pool)
{
    const struct session_ref *started = find_ready(pool, /* forked= */ false);
    if (started && kernel_may_be_forked(started) && stats_of(pool)->kernels_making == 0 &&
        pool->sessions->n_opening == 0 && is_over(&pool->no_forks) && is_over(&pool->failures))
        make_one(pool, /* only_forked= */ true);
}

/* Said once for a row of failures, too. It may be the modules' fault, or that of a small limit of memory: for
 * a while there are kernels without, which is better than none. */
static void note_no_preload(struct pool *pool)
{
    if (!pool->no_preload.length_ms)
        log_warning("a Python kernel was lost while it imported the modules of preload; the next "
                    "are made without them");
    pool->no_preload = (struct pause){ PAUSE_MAX_MS, clock_ms() };
}

static void note_no_rehearsal(struct pool *pool)
{
    if (!pool->no_rehearsal.length_ms)
        log_warning("a Python kernel was lost while it rehearsed; the next do without for a while");
    pool->no_rehearsal = (struct pause){ PAUSE_MAX_MS, clock_ms() };
}

static bool wants_preload(const struct pool *pool, const struct session_ref *session)
{
    return !session->joined && json_array_size(pool->sessions->options.preload) > 0 &&
           is_over(&pool->no_preload);
}

static void be_bare(struct pool *pool, struct session_ref *session)
{
    list_remove(&session->link);
    session->ahead = AHEAD_BARE;
    list_add_tail(&pool->bare, &session->link);
    pool->n_bare++;
}

static void be_ready(struct pool *pool, struct session_ref *session)
{
    leave(pool, session);
    session->ahead = AHEAD_READY;
    session->last_used_ms = clock_ms(); /* its age in the pool */
    list_add_tail(&pool->ready, &session->link);
    stats_of(pool)->kernels_ready++;
    if (session->joined)
        pool->no_forks.length_ms = 0;
    struct session_ref *started = find_ready(pool, /* forked= */ false);
    if (started && started != session && stats_of(pool)->kernels_ready > pool->target)
        dismiss(pool, started);
}

/* Somebody waits, or fewer do than shall. */
static bool is_busy(const struct pool *pool)
{
    return !list_empty(&pool->making) || pool->sessions->n_opening > 0 ||
           timer_active(pool->refill);
}

/* The next one begins to import, if nothing has to be done before. */
static void import_next(struct pool *pool)
{
    struct err err = { 0 };
    if (pool->importing || list_empty(&pool->bare) || is_busy(pool))
        return;
    struct session_ref *session = list_first(struct session_ref, &pool->bare, link);
    if (!wants_preload(pool, session) || kernel_preload(session, &err) < 0) {
        be_ready(pool, session);
        return;
    }
    pool->importing = session;
    pool->import_ms = clock_ms();
}

static struct session_ref *next_to_rehearse(const struct pool *pool)
{
    if (!pool->sessions->options.rehearses || !is_over(&pool->no_rehearsal))
        return NULL;
    list_each (struct session_ref, session, &pool->ready, link) {
        if (!session->rehearsed)
            return session;
    }
    return NULL;
}

/* The next one begins to rehearse, or we look again when it may have waited long enough. */
static void rehearse_next(struct pool *pool)
{
    struct err err = { 0 };
    struct session_ref *session = next_to_rehearse(pool);
    if (!session || pool->rehearsing || pool->importing)
        return;
    uint64_t since =
        session->last_used_ms > pool->taken_ms ? session->last_used_ms : pool->taken_ms;
    uint64_t waited = clock_ms() - since;
    if (waited < REHEARSE_AFTER_MS || is_busy(pool)) {
        timer_start(pool->rehearse, REHEARSE_AFTER_MS - waited % REHEARSE_AFTER_MS);
        return;
    }
    if (kernel_rehearse(session, &err) < 0) {
        session->rehearsed = true; /* its end is under way */
        return;
    }
    pool->rehearsing = session;
    pool->rehearsal_ms = clock_ms();
}

static void on_rehearse(void *data)
{
    rehearse_next(data);
}

/* Something has changed: what is to be done now? */
static void go_on(struct pool *pool)
{
    pool_pump(pool);
    replace_started(pool);
    import_next(pool);
    rehearse_next(pool);
}

void pool_on_rehearsed(struct session_ref *session)
{
    struct pool *pool = session->sessions->pool;
    if (!pool || pool->rehearsing != session)
        return;
    pool->rehearsing = NULL;
    pool->no_rehearsal.length_ms = 0;
    session->rehearsed = true;
    stats_of(pool)->kernel_rehearsals++;
    go_on(pool);
}

void pool_on_preloaded(struct session_ref *session)
{
    struct pool *pool = session->sessions->pool;
    if (!pool || pool->importing != session)
        return;
    pool->no_preload.length_ms = 0;
    be_ready(pool, session);
    go_on(pool);
}

static void on_warm(const struct run_result *result, void *data)
{
    struct session_ref *session = data;
    struct pool *pool = session->sessions->pool;
    if (!pool || session->owner || session->state == SESSION_ENDED)
        return; /* given away meanwhile, or lost */
    if (result->outcome != OUTCOME_OK) {
        log_debug("the warm-up of a kernel ended with %s: %s", outcome_name(result->outcome),
                  result->error);
        session_end(session, OUTCOME_INTERRUPTED, "its warm-up failed");
        return;
    }
    pool->failures.length_ms = 0;
    if (wants_preload(pool, session))
        be_bare(pool, session);
    else
        be_ready(pool, session);
    go_on(pool);
}

/*** Losing ***/

void pool_lost(struct pool *pool, struct session_ref *session)
{
    if (!pool || list_empty(&session->link))
        return; /* dismissed */
    if (pool->importing == session)
        note_no_preload(pool);
    if (pool->rehearsing == session)
        note_no_rehearsal(pool);
    leave(pool, session);
    note_failure(pool);
}

void pool_on_kernel_lost(struct session_ref *session)
{
    session_end(session, OUTCOME_KERNEL_DIED, "its kernel ended in the pool");
}

void pool_on_no_fork(struct session_ref *session)
{
    struct pool *pool = session->sessions->pool;
    if (!pool)
        return;
    pause_again(&pool->no_forks);
    dismiss(pool, session);
}

static bool is_too_old(const struct pool *pool, const struct session_ref *session)
{
    uint64_t max_age = pool->sessions->options.pool_max_age_ms;
    return max_age && clock_ms() - session->last_used_ms >= max_age;
}

static void end_slow(struct pool *pool)
{
    uint64_t now = clock_ms();
    if (pool->importing && now - pool->import_ms >= PRELOAD_MS)
        session_end(pool->importing, OUTCOME_INTERRUPTED, "its imports take too long");
    if (pool->rehearsing && now - pool->rehearsal_ms >= REHEARSAL_MS)
        session_end(pool->rehearsing, OUTCOME_INTERRUPTED, "its rehearsal takes too long");
}

static void on_tick(void *data)
{
    struct pool *pool = data;
    uint64_t now = clock_ms();
    if (pool->target > pool->size && now - pool->changed_ms >= SHRINK_MS) {
        pool->target--;
        pool->changed_ms = now;
    }
    if (!list_empty(&pool->ready)) {
        struct session_ref *oldest = list_first(struct session_ref, &pool->ready, link);
        /* One after the other, so that there is always another. */
        bool others_come = stats_of(pool)->kernels_making > 0;
        if (stats_of(pool)->kernels_ready > pool->target ||
            (is_too_old(pool, oldest) && !others_come))
            dismiss(pool, oldest);
    }
    end_slow(pool);
    go_on(pool);
}

/*** Giving away ***/

static void grow(struct pool *pool)
{
    pool->target = pool->target * 2 < pool->max ? pool->target * 2 : pool->max;
    pool->changed_ms = clock_ms();
}

static struct session_ref *find_best(struct pool *pool)
{
    struct session_ref *forked = find_ready(pool, /* forked= */ true);
    struct session_ref *started = find_ready(pool, /* forked= */ false);
    if (forked || started)
        return forked ? forked : started;
    list_each (struct session_ref, session, &pool->bare, link) {
        if (session != pool->importing)
            return session;
    }
    uint64_t now = clock_ms();
    list_each (struct session_ref, session, &pool->making, link) {
        if (now - session->created_ms < NEARLY_READY_MS)
            return session;
    }
    return NULL;
}

struct session_ref *pool_take(struct pool *pool)
{
    if (!pool)
        return NULL;
    pool_start(pool);
    pool->taken_ms = clock_ms();
    struct session_ref *session = find_best(pool);
    if (session && session->ahead != AHEAD_MAKING) {
        stats_of(pool)->kernel_hits++;
    } else {
        stats_of(pool)->kernel_misses++;
        grow(pool);
    }
    if (session)
        leave(pool, session);
    timer_start(pool->refill, is_half_full(pool) ? REFILL_MS : 0);
    return session;
}

/*** The pool ***/

struct pool *pool_new(struct sessions *sessions)
{
    const struct session_options *options = &sessions->options;
    if (!options->kernel_pool_size)
        return NULL;
    struct pool *pool = xcalloc(1, sizeof(*pool));
    pool->sessions = sessions;
    pool->size = pool->target = options->kernel_pool_size;
    pool->max = options->kernel_pool_max > pool->size ? options->kernel_pool_max : pool->size;
    list_init(&pool->ready);
    list_init(&pool->bare);
    list_init(&pool->making);
    list_init(&pool->ending);
    pool->refill = timer_new(sessions->loop, on_refill, pool);
    pool->rehearse = timer_new(sessions->loop, on_rehearse, pool);
    pool->tick = timer_new(sessions->loop, on_tick, pool);
    return pool;
}

void pool_start(struct pool *pool)
{
    if (!pool || pool->started)
        return;
    pool->started = true;
    timer_repeat(pool->tick, TICK_MS);
    timer_start(pool->refill, REFILL_MS);
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    bury_ended(pool);
    struct list *const lists[] = { &pool->ready, &pool->bare, &pool->making };
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        while (!list_empty(lists[i]))
            dismiss(pool, list_first(struct session_ref, lists[i], link));
    }
    timer_free(pool->refill);
    timer_free(pool->rehearse);
    timer_free(pool->tick);
    free(pool);
}
