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

/* CLOCK_MONOTONIC now, not the loop's cached time. */
uint64_t clock_ms(void);

/* Closes every handle that is still open, runs the close callbacks and releases the loop. For the
 * end of a program or a test. */
void loop_finish(uv_loop_t *loop);

#endif
