/*
 * zygote: a Python interpreter that has imported everything, in which nothing of a guest's ever runs, and
 * of which kernels are forked into live sandboxes. It is a child of the engine's spawner; this header is
 * what the two say to each other. No code.
 *
 *   zygote.py   imports and warms up (with kernel.py), then calls zygote_serve() and never again runs a
 *               line of Python, except in children
 *   zygote.c    that function, in a shared object: waits for orders, forks, and makes each child a guest
 *               of its sandbox by the agent's own code (agent/guest.h)
 *   stand_in.c  children that are made before there is anything to do for them
 *
 * All of it is embedded in belljar and lies at ZYGOTE_DIRECTORY of the template root, where sandboxes
 * mount something else. The zygote is started as `python -u ZYGOTE_DIRECTORY/zygote.py MODULE…` with
 *
 *   fd 0, 1, 2   /dev/null
 *   fd 3         SOCK_SEQPACKET to the spawner: struct zygote_order in, struct zygote_event out
 *   fd 4         struct zygote_setup, then the guest's filter; read once
 *   fd 5         a Landlock ruleset for children, if `has_landlock`
 *
 * and with CAP_SYS_ADMIN and CAP_DAC_OVERRIDE in the spawner's user namespace, to enter those of sandboxes.
 *
 * One order, one child:
 *
 *   zygote ─ setns(agent's pidfd, NEWPID) ─ vfork ─▶ C1 ─ clone3 ─▶ C2 ─▶ guest ─▶ note at the door ─▶ kernel
 *     │                                              └─ exits: C2 is a child of the sandbox's pid 1 now
 *     └─ event: C2 is there, or why not
 *
 * C1 shares the zygote's memory and does nothing but fork, so the price is that of one fork.
 *
 * A stand-in (stand_in.h) is a C1 that becomes the guest itself, while nobody waits, and forks when it is told to. Its order
 * comes with a *lane*, a SOCK_SEQPACKET whose other end the server gets with the sandbox:
 *
 *   server → stand-in   struct zygote_call, and by SCM_RIGHTS what becomes descriptors 1 to 4 of the kernel
 *   stand-in → server   int32_t: 0, there is one; or an errno value. Then it ends
 *
 * It ends without a word when the zygote does. Whoever finds the lane closed orders a kernel of the zygote that is there.
 */
#ifndef BELLJAR_ZYGOTE_H
#define BELLJAR_ZYGOTE_H

#include "agent/setup.h"

#define ZYGOTE_DIRECTORY "/run/belljar"

enum {
    ZYGOTE_CONTROL_FD = 3,
    ZYGOTE_SETUP_FD = 4,
    ZYGOTE_LANDLOCK_FD = 5,
};

enum { ZYGOTE_MAGIC = 0x4547595a, ZYGOTE_VERSION = 3, ZYGOTE_TEXT_MAX = 244 };

struct zygote_setup {
    uint32_t magic, version;
    uint32_t namespaces; /* of a sandbox, for setns(2), beside its pid namespace */
    uint32_t other_user; /* 1: a guest has a uid of its own; 0: the one there is */
    uint32_t has_landlock;
    uint32_t huge_pages; /* 1: lay memory out so that a fork is cheap (pages.h) */
    uint32_t freeze;     /* 1: libraries too */
    uint32_t n_filter;   /* struct sock_filter that follow */
};

/* With it, by SCM_RIGHTS: a pidfd of the agent, the sandbox's end of the door, what becomes descriptors 1 to 4
 * of the kernel or the stand-in's end of its lane, and as many descriptors of the guest's cgroup as setup.n_cgroups
 * says, opened by the spawner. */
struct zygote_order {
    uint32_t magic;
    uint32_t ticket;          /* comes back with the answer */
    uint32_t stand_in;        /* 1: that; 0: a kernel */
    uint32_t number;          /* of the kernel, for its note at the door */
    struct agent_setup setup; /* as the agent got it; n_filter, env_len and has_door do not count */
    uint64_t limit_data; /* RLIMIT_DATA, where no cgroup bounds memory; else AGENT_LIMIT_KEEP */
};
enum { ZYGOTE_KERNEL_FDS = 4, ZYGOTE_FDS_MAX = 2 + ZYGOTE_KERNEL_FDS + AGENT_CGROUPS_MAX };

struct zygote_call {
    uint32_t magic;
    uint32_t number;
};

enum zygote_event_kind {
    ZYGOTE_READY = 1, /* the first event; text: what was imported */
    ZYGOTE_UNFIT,     /* instead, and the last: this interpreter cannot be one; text: why */
    ZYGOTE_FORKED,    /* ticket, code: 0 or errno; a stand-in waits by then */
};

struct zygote_event {
    uint32_t kind, ticket;
    int32_t code;
    char text[ZYGOTE_TEXT_MAX];
};

#endif
