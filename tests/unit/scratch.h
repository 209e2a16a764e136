/*
 * scratch: directories that tests make and leave nothing of.
 */
#ifndef BELLJAR_TESTS_SCRATCH_H
#define BELLJAR_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
                                     struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* With all below it; links are not followed. 0, or not all is gone. */
static inline int scratch_remove(const char *path)
{
    enum { DESCRIPTORS = 16 };
    return nftw(path, scratch_remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

#endif
