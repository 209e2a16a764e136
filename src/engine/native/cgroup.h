/*
 * cgroup: the limits that bound the sum over all processes of a sandbox, and its counters.
 *
 *   1. cgroups_open()     start-up, with all the privilege there is: finds what the host offers and
 *                         makes this instance's directory in each hierarchy
 *   2. cgroup_make() …    the spawner, one pair of leaves per sandbox: `guest` with the plan's limits,
 *                         `agent` with its own, so that the guest's out-of-memory never hits pid 1.
 *                         A guest's leaf is made and removed with its sandbox, so no counter and no
 *                         charge is ever another's; or, in v1, it is used again when it is as new:
 *                         nobody is in it, its limits were never reached, nothing is charged there any
 *                         more, and highest use and processor time are set back. Leaves for agents are
 *                         used again, too: nothing is read from them, and their limits are all the same
 *   3. cgroups_remove()   the keeper, after everything else has ended
 *
 * v1: a process enters by writing "0" into a leaf's `tasks`; writing a pid into cgroup.procs costs
 * milliseconds (it waits for an RCU grace period). v1 also wants the opener of `tasks` to have the
 * uid of the process that enters, so the guest's leaf is opened by the agent's own user.
 * v2: a process is born in its leaf (CLONE_INTO_CGROUP), which needs write access to cgroup.procs of
 * the leaf and of the nearest common ancestor; that is why v2 has a directory per sandbox.
 */
#ifndef BELLJAR_ENGINE_NATIVE_CGROUP_H
#define BELLJAR_ENGINE_NATIVE_CGROUP_H

#include "engine/engine.h"

#include <sys/types.h>

enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };

enum cgroup_controller {
    CGROUP_MEMORY = 1 << 0,
    CGROUP_PIDS = 1 << 1,
    CGROUP_CPU = 1 << 2,
    CGROUP_CPUACCT = 1 << 3, /* v1: a hierarchy of its own on some hosts; counts, limits nothing */
};

enum { CGROUP_TREES_MAX = 4, CGROUP_PATH_MAX = 1024 };

struct cgroup_tree {
    unsigned controllers;
    int dir;                    /* the instance's directory, or -1 */
    char path[CGROUP_PATH_MAX]; /* the same by name */
};

struct cgroups {
    enum cgroup_kind kind;
    unsigned controllers;
    size_t n;
    struct cgroup_tree trees[CGROUP_TREES_MAX];
    /* v2 only: where this process came from, when it had to make room for controllers. */
    char home[CGROUP_PATH_MAX];
    char server_leaf[CGROUP_PATH_MAX];
    char missing[256]; /* in words: which controllers are not there, and what would help */
};

/* --- start-up and end (cgroup_host.c) ---------------------------------------------------------- */

/* What there is, without touching anything. */
void cgroups_find(struct cgroups *ret);
/* v2: the directory above; false when there is none in sight. */
bool cgroup_go_up(char *dir);
/* Makes the directories and gives them to `owner`. What is not to be had is left out, and `missing`
 * says why. */
void cgroups_open(struct cgroups *ret, const char *instance, uid_t owner);
void cgroups_close(struct cgroups *cgroups); /* descriptors only */
/* v2: called by the spawner in the instance's directory; goes into a leaf and passes controllers on. */
int cgroups_enter(const struct cgroups *cgroups);
/* Kills what is inside and removes the directories; -EBUSY when some stay. */
int cgroups_remove(const struct cgroups *cgroups);
/* The same for one directory left by an earlier instance. */
int cgroup_remove_path(const char *path);
/* v2: back to where the server came from. */
void cgroups_go_home(const struct cgroups *cgroups, pid_t server);

/* --- one sandbox (cgroup.c) -------------------------------------------------------------------- */

/* What the leaves of one sandbox are called by. */
struct cgroup_names {
    unsigned slot;
    unsigned leaf; /* cgroup_make_leaf(); v2: the slot */
    /* Those that cgroup_make() gave the leaves of that number last; NULL: they have never been used. */
    const struct sandbox_limits *before;
};
/* Makes the guest's leaf, and in v2 the agent's. `agent_uid` (in the caller's namespace) may let processes
 * into the guest's; (uid_t)-1: nobody else. On failure nothing stays. */
int cgroup_make(const struct cgroups *cgroups, struct cgroup_names names,
                const struct sandbox_limits *limits, uid_t agent_uid);
/* v1: leaves that are used again, with a number of their own: the agent's, and the guest's but that of memory,
 * which joins them when its sandbox has ended. `agent_uid` is the same for every sandbox that it serves. In v2 these do
 * nothing. */
int cgroup_make_leaf(const struct cgroups *cgroups, unsigned leaf, uid_t agent_uid);
/* Nobody is in it. -errno: something stays, which the keeper removes at last. */
int cgroup_remove_leaf(const struct cgroups *cgroups, unsigned leaf);
/* 0: it is as new. -EBUSY: try again. -ESTALE: it cannot be made so. */
int cgroup_renew_leaf(const struct cgroups *cgroups, unsigned leaf);
/* Instead of cgroup_remove(), when the others are as new: cgroup_make() with that number looks at it again. */
int cgroup_keep(const struct cgroups *cgroups, struct cgroup_names names);
/* Bit i: the guests' leaves in tree i are such. */
uint32_t cgroup_kept_trees(const struct cgroups *cgroups);
/* Bit i: agents have a leaf in tree i. */
uint32_t cgroup_agent_leaves(const struct cgroups *cgroups);
/* v1: descriptors to enter the guest's leaf, at most CGROUP_TREES_MAX; v2: one, its directory. Returns their
 * number. */
int cgroup_open_guest(const struct cgroups *cgroups, struct cgroup_names names,
                      int ret_fds[CGROUP_TREES_MAX]);
/* 0, or -EBUSY: try again. */
int cgroup_remove(const struct cgroups *cgroups, unsigned slot);
/* Bounds the memory of a zygote: makes a directory for it and returns what its process needs to be in it,
 * as for a guest's leaf. -ENOENT where memory is not bounded. */
int cgroup_make_zygote(const struct cgroups *cgroups, unsigned generation, uint64_t bytes);
void cgroup_remove_zygote(const struct cgroups *cgroups, unsigned generation); /* when it is dead */
/* Counters that a run is judged by. One can be read as often as one likes, by whoever has the descriptor, and
 * tells nothing more when the directory is gone. */
enum cgroup_counter { CGROUP_OOM_KILLS, CGROUP_PIDS_DENIED, CGROUP_COUNTERS };
int cgroup_open_counter(const struct cgroups *cgroups, struct cgroup_names names,
                        enum cgroup_counter which);
bool cgroup_read_counter(int fd, enum cgroup_counter which, uint64_t *ret);
/* false when nothing counts. */
bool cgroup_usage(const struct cgroups *cgroups, struct cgroup_names names,
                  struct sandbox_usage *ret);

#endif
