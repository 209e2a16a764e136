/*
 * pages: lays the zygote's memory out so that a fork is cheap. Copying a page table costs time for each
 * page of 4 KiB in it; where the same memory lies in huge pages there is one entry for 512 of them.
 *
 *   1. pages_gather()    before the imports: Python's objects go into one range of huge pages, instead of
 *                        being strewn between libraries
 *   2. pages_collapse()  at the end: what else is large and in one piece becomes huge pages too
 *
 * Both do what they can. In a child memory is had in small pages again: it would pay for 2 MiB at each
 * first touch.
 */
#ifndef BELLJAR_ZYGOTE_PAGES_H
#define BELLJAR_ZYGOTE_PAGES_H

void pages_gather(void);
void pages_collapse(void);

#endif
