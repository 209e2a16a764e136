/*
 * counts: what the kernel has counted against this sandbox, as its own cgroup shows it inside: for
 * engines whose host does not tell.
 */
#ifndef BELLJAR_AGENT_COUNTS_H
#define BELLJAR_AGENT_COUNTS_H

#include "agent/frame.h"

void counts_read(struct frame_counts *ret);

#endif
