/* The Python kernel's source, embedded at build time (embed.S). */
#ifndef BELLJAR_KERNEL_SOURCE_H
#define BELLJAR_KERNEL_SOURCE_H

#include <stddef.h>

extern const char kernel_source[];
extern const size_t kernel_source_len;

/* Environment of every kernel beyond the agent's own list, as elements of an array. */
#define KERNEL_ENVIRONMENT                                                                         \
    "PYTHONDONTWRITEBYTECODE=1", "MPLBACKEND=agg", "MPLCONFIGDIR=/tmp/.matplotlib"

#endif
