/*
 * tar: archives as the engine takes them. Pure. Everything in them is root's.
 */
#ifndef BELLJAR_ENGINE_DOCKER_TAR_H
#define BELLJAR_ENGINE_DOCKER_TAR_H

#include "base/buf.h"

enum { TAR_BLOCK = 512 };

/* An archive of one file that everybody may execute. */
void tar_program(struct buf *ret, const char *name, const void *bytes, size_t len);

/* What stands before an entry's content. A directory ('5') has none; that of a file ('0') is filled up to
 * whole blocks, and tar_padding() says with how many zeros. */
struct tar_entry {
    const char *name; /* of any length */
    char type;        /* '0', '5' */
    unsigned mode;
    uint64_t size;
    int64_t mtime; /* seconds; before 1970: 1970 */
};
void tar_head(struct buf *ret, const struct tar_entry *entry);
size_t tar_padding(uint64_t size);
void tar_end(struct buf *ret);

#endif
