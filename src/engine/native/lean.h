/*
 * lean: what the spawner does not copy into its children. It began as a copy of the server, with libraries
 * and a heap that a child on its way to exec never looks at; but a fork copies their page tables, and the
 * exec takes them down again, which together is a good part of what a sandbox costs.
 *
 * A child that is cloned after lean_begin() has none of that memory. It may use the spawner's stack, its
 * static data and the C library, as long as that does not allocate.
 */
#ifndef BELLJAR_ENGINE_NATIVE_LEAN_H
#define BELLJAR_ENGINE_NATIVE_LEAN_H

#include <stdbool.h>

/* Needs /proc. What it cannot do is only dearer. */
void lean_begin(void);
/* For children that need the heap: true before the clone, false after it. */
void lean_heap(bool copied);

#endif
