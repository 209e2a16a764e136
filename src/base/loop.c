#include "base/loop.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/*** The beginning of a loop ***/

int loop_begin(uv_loop_t *loop, struct err *err)
{
    int r = uv_loop_init(loop);
    return r < 0 ? err_sys(err, -r, "make an event loop") : 0;
}

int loop_watch_signals(uv_loop_t *loop, uv_signal_t signals[2], uv_signal_cb fn, void *data,
                       struct err *err)
{
    static const int numbers[2] = { SIGTERM, SIGINT };
    int r = 0;
    for (int i = 0; i < 2 && r == 0; i++) {
        r = uv_signal_init(loop, &signals[i]);
        signals[i].data = data;
        if (r == 0)
            r = uv_signal_start(&signals[i], fn, numbers[i]);
    }
    return r < 0 ? err_sys(err, -r, "watch signals") : 0;
}

/*** Timers ***/

struct timer {
    uv_timer_t handle;
    timer_fn *fn;
    void *data;
    bool dropped; /* freed by its owner while its handle was closing */
    bool closed;  /* by loop_finish(), before its owner freed it */
};

/* Marks a handle as the inside of a struct timer, for loop_finish(), which sees handles only. */
static const char timer_mark;

static void timer_due(uv_timer_t *handle)
{
    struct timer *timer = container_of(handle, struct timer, handle);
    timer->fn(timer->data); /* may free timer: touch nothing after this */
}

static void timer_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct timer, handle));
}

struct timer *timer_new(uv_loop_t *loop, timer_fn *fn, void *data)
{
    struct timer *timer = xcalloc(1, sizeof(*timer));
    (void)uv_timer_init(loop, &timer->handle); /* documented never to fail */
    timer->handle.data = (void *)&timer_mark;
    timer->fn = fn;
    timer->data = data;
    return timer;
}

void timer_free(struct timer *timer)
{
    if (!timer)
        return;
    if (timer->closed)
        free(timer);
    else if (uv_is_closing((uv_handle_t *)&timer->handle))
        timer->dropped = true;
    else
        uv_close((uv_handle_t *)&timer->handle, timer_closed);
}

static void start(struct timer *timer, uint64_t delay_ms, uint64_t period_ms)
{
    /* The loop's cached time may be old by as long as the present callback has run. */
    uv_update_time(timer->handle.loop);
    (void)uv_timer_start(&timer->handle, timer_due, delay_ms, period_ms); /* fails when closing */
}

void timer_start(struct timer *timer, uint64_t delay_ms)
{
    start(timer, delay_ms, /* period_ms= */ 0);
}

void timer_repeat(struct timer *timer, uint64_t period_ms)
{
    assert(period_ms > 0);
    start(timer, period_ms, period_ms);
}

void timer_stop(struct timer *timer)
{
    (void)uv_timer_stop(&timer->handle); /* documented never to fail */
}

bool timer_active(const struct timer *timer)
{
    return uv_is_active((const uv_handle_t *)&timer->handle);
}

uint64_t clock_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* always there on Linux */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*** Looks ***/

struct look {
    uv_idle_t idle; /* while it is active the loop does not sleep */
    uint64_t longest_ns, until_ns;
    struct look_pace *pace; /* for whose answer; NULL: none */
};

static void look_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct look, idle));
}

struct look *look_new(uv_loop_t *loop, uint64_t longest_us)
{
    struct look *look = xcalloc(1, sizeof(*look));
    (void)uv_idle_init(loop, &look->idle); /* documented never to fail */
    look->longest_ns = longest_us * 1000;
    return look;
}

void look_free(struct look *look)
{
    if (look)
        uv_close((uv_handle_t *)&look->idle, look_closed);
}

static void look_stop(struct look *look)
{
    look->pace = NULL;
    (void)uv_idle_stop(&look->idle); /* documented never to fail */
}

static void look_judge(struct look *look, bool in_time)
{
    struct look_pace *pace = look->pace;
    unsigned needs = pace->needs;
    if (!in_time)
        pace->needs = needs * 2 < LOOK_NEEDS_MAX ? needs * 2 : LOOK_NEEDS_MAX;
    else if (++pace->hits % LOOK_FORGIVES == 0)
        pace->needs = needs / 2 > LOOK_NEEDS_MIN ? needs / 2 : LOOK_NEEDS_MIN;
    look_stop(look);
}

static void look_round(uv_idle_t *idle)
{
    struct look *look = container_of(idle, struct look, idle);
    if (uv_hrtime() < look->until_ns)
        return;
    look->pace->asked_ns = look->pace->quick = 0; /* whenever the answer comes */
    look_judge(look, /* in_time= */ false);
}

void look_ask(struct look *look, struct look_pace *pace)
{
    if (!look->longest_ns)
        return;
    pace->asked_ns = uv_hrtime();
    if (!pace->needs)
        pace->needs = LOOK_NEEDS_MIN;
    if (look->pace) {
        look_stop(look);
    } else if (pace->quick >= pace->needs) {
        look->pace = pace;
        look->until_ns = pace->asked_ns + look->longest_ns;
        (void)uv_idle_start(&look->idle, look_round); /* fails only without a callback */
    }
}

void look_answered(struct look *look, struct look_pace *pace)
{
    if (!pace->asked_ns)
        return;
    bool looked = look->pace == pace;
    uint64_t most = looked ? look->longest_ns : look->longest_ns * LOOK_WAKES;
    bool in_time = uv_hrtime() - pace->asked_ns <= most;
    pace->asked_ns = 0;
    pace->quick = in_time ? pace->quick + 1 : 0;
    if (looked)
        look_judge(look, in_time);
}

/*** The end of a loop ***/

/* A timer that its owner still holds must stay valid until the owner frees it. */
static void straggler_closed(uv_handle_t *handle)
{
    if (handle->data != &timer_mark)
        return;
    struct timer *timer = container_of(handle, struct timer, handle);
    if (timer->dropped)
        free(timer);
    else
        timer->closed = true;
}

static void close_straggler(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, straggler_closed);
}

void loop_finish(uv_loop_t *loop)
{
    int r;
    do { /* a close callback may open or leave something new */
        uv_walk(loop, close_straggler, NULL);
        (void)uv_run(loop, UV_RUN_DEFAULT);
        r = uv_loop_close(loop);
    } while (r == UV_EBUSY);
    assert(r == 0);
}
