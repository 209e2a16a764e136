/*
 * pollset: what one turn of the agent's loop waits for. Each part adds its descriptors, and finds
 * what happened in the place it named.
 */
#ifndef BELLJAR_AGENT_POLLSET_H
#define BELLJAR_AGENT_POLLSET_H

#include <assert.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>

enum { POLLSET_MAX = 48 };

struct pollset {
    struct pollfd fds[POLLSET_MAX];
    short *ret_ready[POLLSET_MAX];
    size_t count;
    uint64_t wake_ns; /* CLOCK_MONOTONIC: go on then at the latest; UINT64_MAX: never */
};

/* *ret_ready becomes what poll() saw, and is 0 until then. A negative fd is left out. */
static inline void pollset_add(struct pollset *set, int fd, short events, short *ret_ready)
{
    *ret_ready = 0;
    if (fd < 0 || !events)
        return;
    assert(set->count < POLLSET_MAX);
    set->fds[set->count] = (struct pollfd){ .fd = fd, .events = events };
    set->ret_ready[set->count++] = ret_ready;
}

static inline void pollset_wake(struct pollset *set, uint64_t at_ns)
{
    if (at_ns < set->wake_ns)
        set->wake_ns = at_ns;
}

#endif
