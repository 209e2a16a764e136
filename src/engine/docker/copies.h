/*
 * copies: which sets of packages have been copied where, in the notes of the directory that they come from
 * (struct engine_packages). The volume has numbered places; a place holds one set, or nothing:
 *
 *   <copies>/7               "NAME.EDITION", or nothing: the place is free
 *   in the volume: 7/        mode 0711, so that who does not know the name below finds nothing
 *                  7/NAME.EDITION/
 *
 * An edition is the time at which the set was made: a set that has gone and was made anew is another. A note
 * is written before the copy is made, so whatever may be in the volume is known, and who finds a note still
 * has to look whether the copy is there and whole. What the notes say of sets that are not there any more
 * goes when the next one is copied. So there are never more places than there were sets at one time.
 *
 * Several servers may share one directory: copies_lock() is held around all else.
 */
#ifndef BELLJAR_ENGINE_DOCKER_COPIES_H
#define BELLJAR_ENGINE_DOCKER_COPIES_H

#include "engine/engine.h"

#include <stdatomic.h>

enum { COPIES_SET_MAX = 128, COPIES_PLACES_MAX = 1000000 };

struct copies {
    int sets, notes; /* directories */
};

int copies_open(const struct engine_packages *packages, struct copies *ret, struct err *err);
void copies_close(struct copies *copies); /* and lets go of the lock */

/* Waits for others, until `deadline_ms` of clock_ms(). -ETIMEDOUT, -ECANCELED. */
int copies_lock(const struct copies *copies, uint64_t deadline_ms, const atomic_bool *cancelled,
                struct err *err);

struct copies_plan {
    char set[COPIES_SET_MAX]; /* "NAME.EDITION" */
    unsigned place;           /* where it is, or is to be */
    bool noted;               /* it may be there */
    unsigned *stale;          /* places of sets that have gone; owned */
    size_t n_stale;
};
/* -ENOENT: there is no such set. */
int copies_plan(const struct copies *copies, const char *name, struct copies_plan *ret,
                struct err *err);
void copies_plan_done(struct copies_plan *plan);

/* Writes what is in a place; "" : nothing. */
int copies_note(const struct copies *copies, unsigned place, const char *set, struct err *err);

#endif
