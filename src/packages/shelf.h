/*
 * shelf: the directory of package sets that were installed once and are shown, read-only, to every
 * sandbox. Who knows the name of a set can use it; names are keyed hashes, and the directory cannot be
 * listed, so a guest finds what was installed for it and nothing else.
 *
 *   <package_dir>/secret         the key of the names, made once
 *                 sets/NAME/     the packages; `sets` is what sandboxes see at ENGINE_PACKAGES. Its mode
 *                                is 0311: not even its owner, who a guest is where there is only one
 *                                user id, can list it
 *                 index/NAME     the size of a set; its time is that of the last use, its lock says that
 *                                somebody uses it
 *                 stage/ID/      being made, or being removed; locked by whoever does
 *                 copies/        notes of an engine whose sandboxes cannot see `sets` itself
 *
 * Several servers may share one shelf. A set appears and goes by a rename, whole. Functions block on
 * the disk; those marked so are for worker threads.
 */
#ifndef BELLJAR_PACKAGES_SHELF_H
#define BELLJAR_PACKAGES_SHELF_H

#include "base/err.h"
#include "base/text.h"

#include <sys/types.h>

enum { SHELF_NAME_LEN = 43, SHELF_NAME_SIZE = 44 };

struct shelf {
    int dir, sets, index, stage;
    unsigned char secret[32];
};

/* Makes what is missing and removes what killed servers have left. `uid` is who the server will be: as
 * root, what is made is given to it. */
int shelf_open(const char *path, uid_t uid, struct shelf *ret, struct err *err);
void shelf_close(struct shelf *shelf);

void shelf_name(const struct shelf *shelf, const char *text, size_t len,
                char ret[static SHELF_NAME_SIZE]);

/* A descriptor that keeps the set from being removed for as long as it is open; counts as use.
 * -ENOENT: there is none. */
int shelf_hold(const struct shelf *shelf, const char *name);

/* One set in the making. */
struct shelf_stage {
    int dir; /* -1: none */
    char id[RANDOM_ID_SIZE];
};
int shelf_stage(const struct shelf *shelf, struct shelf_stage *ret, struct err *err);
/* Worker. Makes it the set `name`, unless somebody was quicker; returns what shelf_hold() does. */
int shelf_publish(const struct shelf *shelf, struct shelf_stage *stage, const char *name,
                  uint64_t bytes, struct err *err);
/* Worker. Removes it; nothing happens without one. */
void shelf_discard(const struct shelf *shelf, struct shelf_stage *stage);

/* Worker. Removes sets that nobody uses, the longest unused first, until the rest takes at most
 * `max_bytes`. */
void shelf_trim(const struct shelf *shelf, uint64_t max_bytes);

/* Blocks. How many sets there are, and their bytes. */
void shelf_size(const struct shelf *shelf, size_t *ret_sets, uint64_t *ret_bytes);

#endif
