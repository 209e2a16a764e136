/*
 * unpack: what an installer made, from the bytes that it packed (installer.py) into a directory of
 * ours. The bytes are hostile: a package that is built from source runs its own code where they are
 * made. Only plain files and directories come out of them, below the directory, with modes that we
 * choose, within limits that are checked before anything is written.
 *
 *   "BJPKG1\n", then for each entry: kind (1 byte: 'd' directory, 'f' file, 'x' program), u16 length of
 *   the path, u64 size (little endian both), the path, the bytes; at the end one entry 'e', 0, 0.
 */
#ifndef BELLJAR_PACKAGES_UNPACK_H
#define BELLJAR_PACKAGES_UNPACK_H

#include "base/buf.h"
#include "base/err.h"

enum { UNPACK_PATH_MAX = 1024, UNPACK_DEPTH_MAX = 32 };

struct unpack {
    int root; /* borrowed: where it goes */
    uint64_t max_bytes, max_files;
    uint64_t bytes, files; /* so far */
    struct buf head;       /* of the entry that is being read */
    int file;              /* being written, or -1 */
    uint64_t left;         /* of it */
    bool begun, ended;
};

void unpack_init(struct unpack *unpack, int root, uint64_t max_bytes, uint64_t max_files);
void unpack_done(struct unpack *unpack);
/* The next bytes. -E2BIG: beyond a limit. -EBADMSG: not of that form. Other: the disk's. */
int unpack_feed(struct unpack *unpack, const char *bytes, size_t len, struct err *err);
/* Whether what was fed is whole. */
int unpack_end(const struct unpack *unpack, struct err *err);

#endif
