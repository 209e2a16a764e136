/*
 * loop: what libuv leaves to its users. libuv handles must outlive their close callback; these
 * wrappers own that rule, so that an object can drop its timer in its destructor and be gone.
 */
#ifndef BELLJAR_BASE_LOOP_H
#define BELLJAR_BASE_LOOP_H

#include "base/err.h"

#include <uv.h>

/* 0, or -errno and why there is none: there may be no descriptors. */
int loop_begin(uv_loop_t *loop, struct err *err);
/* Both ways to ask a program to end, SIGTERM and SIGINT: fn(handle with this data, number). */
int loop_watch_signals(uv_loop_t *loop, uv_signal_t signals[2], uv_signal_cb fn, void *data,
                       struct err *err);

/* One timer. The callback may free the timer, restart it, or free the object that owns it. */
struct timer;
typedef void timer_fn(void *data);
struct timer *timer_new(uv_loop_t *loop, timer_fn *fn, void *data);
void timer_free(struct timer *timer); /* NULL is fine; no callback afterwards */

/* Once, `delay_ms` from now; replaces what was set before. */
void timer_start(struct timer *timer, uint64_t delay_ms);
/* Every `period_ms`. */
void timer_repeat(struct timer *timer, uint64_t period_ms);
void timer_stop(struct timer *timer);
bool timer_active(const struct timer *timer);

/*
 * A look: an answer that comes within microseconds is not slept for. To wake up a processor that has gone idle
 * takes longer than many an answer, so for a moment after a question the loop goes round without sleeping.
 * Whatever else there is on the loop goes on meanwhile.
 *
 * Its price is processor time, and bounded: a look is for one question at a time (where there are more, there is other work
 * for the processors), and only for those whose last answers came within that moment. A look in vain, or one
 * that was slowed down by others who want the processor, doubles the number of quick answers that it takes until
 * the next look; LOOK_FORGIVES good ones halve it. So looks go on where fewer than one of so many is in vain.
 */
struct look;
enum { LOOK_NEEDS_MIN = 2, LOOK_NEEDS_MAX = 64, LOOK_FORGIVES = 64 };
enum { LOOK_WAKES = 2 }; /* an answer that was slept for may take so many times as long */
/* How quickly somebody answers; all 0 in the beginning. */
struct look_pace {
    uint64_t asked_ns; /* 0: not asked */
    unsigned quick;    /* answers in a row */
    unsigned needs;    /* so many of them for a look; 0: LOOK_NEEDS_MIN */
    unsigned hits;     /* looks that were not in vain */
};
/* For up to `longest_us` after a question; 0: never. To be freed before loop_finish(). */
struct look *look_new(uv_loop_t *loop, uint64_t longest_us);
void look_free(struct look *look); /* NULL is fine */
/* One who answers at this pace is asked now. */
void look_ask(struct look *look, struct look_pace *pace);
/* He has answered, or will not. Nothing without a question. To be called before *pace goes. */
void look_answered(struct look *look, struct look_pace *pace);

/* CLOCK_MONOTONIC now, not the loop's cached time. */
uint64_t clock_ms(void);

/* Closes every handle that is still open, runs the close callbacks and releases the loop. For the
 * end of a program or a test. */
void loop_finish(uv_loop_t *loop);

#endif
