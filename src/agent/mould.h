/*
 * mould: the process that agents of the native engine are cast from. It is an agent that has been started
 * once, up to where one differs from the other; a new one is a clone of it, without an exec. So what a
 * sandbox's pid 1 begins with is this program and nothing of server or spawner: neither their memory nor,
 * after the descriptors have been placed, anything they had open.
 *
 *   spawner ── fork, exec ─▶ mould ── clone (CLONE_PARENT) ─▶ agent, a child of the spawner's
 *      └───── SOCK_SEQPACKET ──┴─────── the same end, until it is pid 1 in full ──┘
 *
 * The mould has the spawner's ids and root, in a user namespace of its own below the spawner's: so it has no right
 * over the spawner, and the spawner and its zygote have every right over agents, whose memory belongs to that
 * namespace for good. It runs nothing of a guest's and reads nothing but orders. It ends when its socket does.
 * All structs are fixed; both sides are of one build.
 *
 *   spawner → mould    struct mould_order; by SCM_RIGHTS perhaps a network namespace to be used again
 *   mould → spawner    MOULD_BORN with the pid and, by SCM_RIGHTS, descriptors: the server's end of the agent's
 *                      stream, the outer end of its door, and its network namespace where it has its own.
 *                      Or MOULD_FAILED with MOULD_UNBORN
 *   child → spawner    MOULD_STARTED: it is the agent; or MOULD_FAILED, and it ends
 *
 * A child's word may come before MOULD_BORN. MOULD_BORN without descriptors: they could not be sent, and the child has been
 * killed.
 *
 * Of a sandbox's namespaces only that of users is its own in every sense: the others belong to the mould's, so that neither
 * a guest nor an agent has a right in the mounts, processes and networks around it, whatever it becomes in its own.
 *
 * User namespaces go with the ids in them: a sandbox has those of its number (`identity`), which no other that lives has,
 * and the last of these namespaces are kept for the next sandbox of the same number. There is nothing in one that
 * could differ then: its maps are written once, and what else it holds takes rights in it that nobody is given.
 *
 * Network namespaces can be used again, too. Whether anybody has used one the spawner knows (engine/native/nets.h); that
 * no socket is left in it the mould looks at when it enters. One that does not pass is left, and a new one made.
 */
#ifndef BELLJAR_AGENT_MOULD_H
#define BELLJAR_AGENT_MOULD_H

#include "agent/setup.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    MOULD_MAGIC = 0x4c554f4d, /* "MOUL", little endian */
    MOULD_CONTROL_FD = 3,
    /* struct mould_setup, then the agents' filter, then the guests'; read once */
    MOULD_SETUP_FD = 4,
    /* `n_trees` directories of cgroups; then, if there is one, the Landlock ruleset */
    MOULD_TREE_FD = 5,
    MOULD_STEP_MAX = 96,
    MOULD_USERS_KEPT = 128, /* user namespaces; one for each rest of a number by it */
    MOULD_BORN_FDS = 3,     /* at most */
};

struct mould_setup {
    uint32_t magic;
    uint32_t own_uids;    /* agent and guest have ids of their own */
    uint32_t bounded;     /* a cgroup bounds memory */
    uint32_t own_network; /* the mould makes and enters it */
    uint32_t has_landlock;
    uint32_t namespaces; /* CLONE_NEW…, of those that the child makes for itself */
    uint32_t n_trees;
    uint32_t agent_leaves; /* bit i: agents have a leaf in tree i */
    uint32_t kept_trees;   /* bit i: guests' leaves there have the agent's number, not the slot's */
    uint32_t n_agent_filter, n_guest_filter;
    uint32_t ptys;
    char hostname[32];
};

/* Where a sandbox has its own memory as files. */
enum mould_place { MOULD_TMP, MOULD_SHM, MOULD_WORKSPACE, MOULD_RUN_DIR, MOULD_PLACES };

struct mould_order {
    uint32_t slot;
    uint32_t birth;                /* told back, for a slot has one sandbox after the other */
    uint32_t leaf;                 /* v2: the slot */
    uint32_t identity;             /* no two that live have the same */
    uint32_t agent_uid, guest_uid; /* of that, as the mould's namespace has them */
    uint64_t memory_bytes;
    struct {
        uint64_t bytes, inodes;
    } places[MOULD_PLACES];
    struct agent_setup setup; /* without filter and environment */
};

enum mould_word { MOULD_BORN = 1, MOULD_STARTED, MOULD_FAILED };
enum { MOULD_UNBORN = -1 };

struct mould_reply {
    uint32_t word;
    uint32_t slot, birth;
    int32_t pid;  /* of MOULD_BORN; of MOULD_FAILED MOULD_UNBORN: there is no process */
    int32_t code; /* of MOULD_FAILED: an errno value */
    char step[MOULD_STEP_MAX];
};

/* "7-guest/tasks" (v1), "7/guest/cgroup.procs" (v2), below a tree's directory; `file` may be "". The number is
 * the slot's; that of leaves which are used again is their own. */
enum mould_leaf { MOULD_GUEST_LEAF, MOULD_KEPT_LEAF /* of guests, used again */, MOULD_AGENT_LEAF };
enum { MOULD_LEAF_NAME_MAX = 80 };
static inline void mould_leaf_name(char out[static MOULD_LEAF_NAME_MAX], enum agent_cgroup kind,
                                   unsigned number, enum mould_leaf leaf, const char *file)
{
    static const char *const names[] = { "guest", "kept", "agent" };
    (void)snprintf(out, MOULD_LEAF_NAME_MAX, "%u%c%s%s%s", number,
                   kind == AGENT_CGROUP_V2 ? '/' : '-', names[leaf], *file ? "/" : "", file);
}

#endif
