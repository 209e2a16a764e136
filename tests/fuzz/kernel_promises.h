/*
 * kernel_promises: what a link promises of a kernel, whoever is hostile: checked in each callback, with
 * abort(). Output keeps within what a cell may write, messages are whole, bytes are counted, a cell ends
 * only when asked to, the end comes once and last. A message that begins with "e" asks for the end of the
 * cell; when that has come another begins.
 */
#ifndef BELLJAR_FUZZ_KERNEL_PROMISES_H
#define BELLJAR_FUZZ_KERNEL_PROMISES_H

#include "agent/link.h"

/* Limits of each cell. */
enum { KERNEL_HEAD = 50, KERNEL_TAIL = 20, KERNEL_FLOOD = 1000 };

extern const struct link_kernel_events kernel_events;

/* Not assert(): the promise is checked in every build. */
void must(bool promise);

/* Forgets the last kernel. This link is about to have one. */
void kernel_promises_begin(struct link *link);
/* The first cell, after which they follow by themselves. */
void kernel_promises_cell(void);
/* Its end has been told. */
bool kernel_promises_ended(void);

#endif
