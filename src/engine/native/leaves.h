/*
 * leaves: cgroups of dead sandboxes that are kept for others (cgroup.h says when they are as new). To make one takes the
 * kernel longer than to look at one that is there.
 *
 *   1. leaves_take()     for a new sandbox: one that was kept, or a new one
 *   2. leaves_names()    what it is called by then
 *   3. leaves_retire()   when the sandbox is dead, until it succeeds
 *
 * In version 2 of cgroups none are kept, and a leaf is called by its sandbox's slot. The number is its sandbox's own all
 * the same, and below `slots`: ids go by it (host.h). The lowest are used first, so that those in use are close together,
 * and what the mould keeps for one is not in another's place (agent/mould.h).
 */
#ifndef BELLJAR_ENGINE_NATIVE_LEAVES_H
#define BELLJAR_ENGINE_NATIVE_LEAVES_H

#include "engine/native/cgroup.h"
#include "engine/native/wire.h"

enum {
    LEAVES_SPARE = 32,      /* that are kept */
    LEAVES_REST_MS = 200,   /* for so long at least, unless there are so many: */
    LEAVES_SPARE_MANY = 16, /* far from all, for sandboxes come and go in rows */
};

/* A sandbox's. */
struct leaf {
    bool made; /* there is one of that number */
    unsigned number;
    bool used; /* before, by a sandbox with these limits */
    struct sandbox_limits before;
};

struct leaves {
    const struct cgroups *cgroups;
    bool own_uids;              /* host.h */
    unsigned slots;             /* as many sandboxes can live */
    bool taken[WIRE_SLOTS_MAX]; /* numbers, by sandboxes and by what is spare */
    size_t n_spare;
    /* The longest unused first: the kernel takes its time to return what dead namespaces held, and that is charged there
     * until then. */
    struct {
        unsigned number;
        uint64_t since_ms;
        struct sandbox_limits limits;
    } spare[LEAVES_SPARE];
};

/* 0 or -errno. */
int leaves_take(struct leaves *leaves, uint64_t now_ms, struct leaf *ret);
struct cgroup_names leaves_names(const struct leaves *leaves, const struct leaf *leaf,
                                 unsigned slot);
/* `limits`: those of the sandbox. 0; or -errno, -EBUSY among them: try again. */
int leaves_retire(struct leaves *leaves, struct leaf *leaf, unsigned slot,
                  const struct sandbox_limits *limits, uint64_t now_ms);

#endif
