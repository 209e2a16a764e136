/*
 * blocks: the parts of pages.h that are about blocks of memory, the C library's and Python's, and what they need to
 * know of the process. Private to this folder and to the benchmark, which loads it as the zygote does.
 */
#ifndef BELLJAR_ZYGOTE_BLOCKS_H
#define BELLJAR_ZYGOTE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

/* Sets a pointer to the function of that name; NULL: there is none. */
void blocks_look_up(const char *name, void *ret_function);

/* As in glibc's malloc.h, since 2.33. */
struct heap_facts {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

bool blocks_ask_heap(struct heap_facts *ret);

/* Python has got this arena, to make its next pools of. */
void blocks_note_arena(char *begin, size_t size);

#endif
