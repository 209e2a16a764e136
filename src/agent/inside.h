/*
 * inside: the way of the mould's child from clone to pid 1 of a sandbox. Private to the mould (mould.h).
 */
#ifndef BELLJAR_AGENT_INSIDE_H
#define BELLJAR_AGENT_INSIDE_H

#include "agent/mould.h"
#include "agent/sys.h"

/* What the mould knows. */
struct mould {
    struct mould_setup setup;
    struct sys_filter agent_filter[AGENT_FILTER_MAX];
    int landlock; /* a ruleset, or -1 */
};

struct inside {
    const struct mould *mould;
    const struct mould_order *order;
    int stream, door; /* the agent's ends */
    int users;        /* its user namespace */
    int control;
    int guest_cgroups[AGENT_CGROUPS_MAX];
    int n_guest_cgroups;
};
/* Never returns: the agent serves, or the child ends and has said why. */
_Noreturn void inside_run(struct inside *inside);

/* places.c: what must be private in the copy of the template: fresh /proc with its masks, /tmp, /dev/shm, /dev/pts,
 * /workspace, /run/belljar. With the mould's rights, and ids as it has them. Returns 0 or -errno, and which mount it was. */
int places_mount(const struct mould *mould, const struct mould_order *order, const char **ret_step);

#endif
