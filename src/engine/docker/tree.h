/*
 * tree: a directory as a tar, made while it is read; nothing of it is in memory but the piece at hand.
 * Reading blocks. Only plain files and directories are in it, with modes 0644 and 0755.
 */
#ifndef BELLJAR_ENGINE_DOCKER_TREE_H
#define BELLJAR_ENGINE_DOCKER_TREE_H

#include "base/buf.h"
#include "base/err.h"

#include <dirent.h>
#include <sys/types.h>

enum { TREE_DEPTH_MAX = 64 };

/* All borrowed. */
struct tree_plan {
    int root;
    const struct buf *before; /* entries that come first */
    const char *prefix;       /* where it goes; its own entry is the next */
    const char *last;         /* the name of an empty file in it, which comes last */
};

struct tree {
    struct tree_plan plan;
    DIR *open[TREE_DEPTH_MAX];
    size_t depth;
    struct buf path; /* of the innermost */
    struct buf head; /* bytes that come next, from `sent` on */
    size_t sent;
    int file; /* -1: none */
    uint64_t left;
    size_t padding;
    bool begun, ended;
    struct err err; /* code 0: none */
};

void tree_init(struct tree *tree, const struct tree_plan *plan);
void tree_done(struct tree *tree);
/* From the beginning again. */
void tree_rewind(struct tree *tree);
/* The next bytes, at least one; 0 at the end; negative: tree->err says why. */
ssize_t tree_read(struct tree *tree, char *room, size_t size);

#endif
