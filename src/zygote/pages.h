/*
 * pages: lays the zygote's memory out so that a fork is cheap. Copying a page table costs time for each
 * page of 4 KiB in it; where the same memory lies in huge pages there is one entry for 512 of them.
 *
 *   1. pages_gather()    before the imports: Python's objects go into one range of huge pages, instead of
 *                        being strewn between libraries
 *   2. pages_freeze()    at the end: libraries, whose text and data are hundreds of small mappings, become a
 *                        few large ones that hold the same bytes at the same addresses. They lose their
 *                        names in /proc/self/maps, and text can be written to: both are the guest's own
 *                        business
 *   3. pages_collapse()  then: what is large and in one piece becomes huge pages
 *
 * Each does what it can. In a child memory is had in small pages again: it would pay for 2 MiB at each
 * first touch.
 */
#ifndef BELLJAR_ZYGOTE_PAGES_H
#define BELLJAR_ZYGOTE_PAGES_H

void pages_gather(void);
/* Leaves the mapping alone that `keep` is in. One thread only. */
void pages_freeze(const void *keep);
void pages_collapse(void);

#endif
