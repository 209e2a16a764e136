/*
 * pages: lays the zygote's memory out so that forks and children are cheap. Copying a page table costs time for
 * each page of 4 KiB in it, and a child pays for each page that it writes to.
 *
 *   1. pages_gather()     before the imports: Python's objects go into one range, the C library's blocks into
 *                         one heap, instead of being strewn between libraries
 *   2. pages_fill()       after them, once and again: what is free between blocks is taken, so that new ones are
 *                         side by side in an arena of their own, and what a child gets there goes upwards
 *   3. pages_side_by_side()  after the first of these: blocks next to each other whatever their size, for objects
 *                         that children write to
 *   4. pages_freeze()     at the end: range, heap, text and data of libraries, hundreds of mappings, become a few
 *                         that hold the same bytes at the same addresses: private mappings of a file in memory,
 *                         of which a fork copies nothing. A child maps a huge page of it with one fault, has
 *                         page tables for what it touches only, and copies each small page that it writes to.
 *                         Nobody can write to the file, by its seals. Libraries lose their names in
 *                         /proc/self/maps, and text can be written to: both are the guest's own business.
 *                         What the kernel empties for children, where generators keep their state, is left out
 *   5. pages_collapse()   then: what is large, in one piece and not in the file becomes huge pages
 *   6. pages_settle()     when it has served for a while: what the zygote itself writes to leaves the file. A fork copies the
 *                         page tables of a whole mapping, most of a thousand entries, if one page of it was written to
 *   7. pages_learn()      from a child that has done what each will do first: what it has copied by then is what they
 *                         will copy
 *   8. pages_copy()       in each of the others, at its beginning: those pages, one after the other. Else it would read one
 *                         first, get a huge page for that, write to it, and lose the huge page again
 *   9. pages_give_back()  in a child, when it is idle: most counts of references that it has written are what they
 *                         were by then, so that a page is a copy of the file's again, and can be had from there.
 *                         What is mapped of the file around such pages goes as well
 *
 * Each does what it can. In a child memory is had in small pages again: it would pay for 2 MiB at each
 * first touch.
 */
#ifndef BELLJAR_ZYGOTE_PAGES_H
#define BELLJAR_ZYGOTE_PAGES_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* For what is written to while the zygote serves: all of it in one page. */
#define PAGES_TOGETHER __attribute__((section(".data.together")))

void pages_gather(void);
/* After a collection of garbage, which empties Python's own lists of free objects. */
void pages_fill(void);
/* While it is on, Python gets blocks of the C library. Whenever one is freed it finds its way back: Python asks of each
 * address whether it is in one of its arenas. Nothing happens where that is not what frees blocks. */
void pages_side_by_side(bool on);
/* `huge`: the file in huge pages. One thread only. */
void pages_freeze(bool huge);
void pages_collapse(void);
/* Beside processes that share our memory and only run what is in the file. */
void pages_settle(void);
/* Where pages are that children write to. Whoever forks them has it on its stack: more memory that it has written to would
 * be more mappings for each fork to copy. */
enum { PAGES_WRITTEN_MAX = 512 };
struct pages_written {
    size_t n;
    uintptr_t at[PAGES_WRITTEN_MAX];
};
/* `child` waits, and has every mapping that we have. Nothing is learnt where that cannot be seen. */
void pages_learn(pid_t child, struct pages_written *ret);
void pages_copy(const struct pages_written *written);
/* With signals blocked. Then it waits, until `until` can be read or a signal comes that is not in `mask`: on the way to
 * a wait elsewhere much of it would be mapped again. Beside other threads nothing happens. The page of `kept`, and those
 * next to it, stay: the thread's own memory, to which the kernel writes at any time (rseq(2)). */
void pages_give_back(const void *kept, int until, const sigset_t *mask);

#endif
