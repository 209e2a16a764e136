/* clock: CLOCK_MONOTONIC in nanoseconds. */
#ifndef BELLJAR_AGENT_CLOCK_H
#define BELLJAR_AGENT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

#define NS_PER_MS UINT64_C(1000000)

#endif
