/*
 * host: what the privileged processes are started with. Made by native_open() in the server, before
 * it forks, and never changed afterwards.
 *
 *   server ── fork ─▶ keeper ── clone, new user, pid, mount, net, ipc, uts namespaces ─▶ spawner (pid 1)
 *     │                 │ waits for the spawner's end, then removes         │
 *     │                 │ cgroups and the instance's file                   ├─▶ zygote (zygotes.h)
 *     │                 │                                                   ├─▶ mould (agent/mould.h)
 *     │                 │                                                   ├─▶ sandbox: agent (pid 1)
 *     └──────────────── one socket pair: wire.h ────────────────────────────┘    └─▶ guests
 *
 * Who dies with whom: every sandbox is inside the spawner's pid namespace, so the kernel ends all of
 * them with the spawner. The spawner ends when its socket does, that is with the server, and the
 * kernel kills it if the keeper dies. The keeper watches the server too, and kills a spawner that
 * has not noticed. What even then stays (the keeper killed as well) are empty cgroup directories; the
 * next start finds them by the instance's file, whose lock no living process holds.
 */
#ifndef BELLJAR_ENGINE_NATIVE_HOST_H
#define BELLJAR_ENGINE_NATIVE_HOST_H

#include "engine/engine.h"
#include "engine/native/cgroup.h"
#include "engine/native/instance.h"
#include "engine/native/runtime.h"
#include "engine/native/seccomp.h"
#include "engine/native/wire.h"

struct zygote_options {
    const char *python; /* "" : none is wanted */
    const char *const *preload;
    size_t n_preload;
    uint64_t memory_bytes, max_forks, max_age_ms;
    bool huge_pages, freeze;
};

struct native_host {
    const char *rootfs;
    struct runtime runtime;
    const char *packages;                 /* "" : none */
    const struct engine_network *network; /* NULL: none */
    struct zygote_options zygote;
    bool own_uids;     /* one outside uid per sandbox, from a range; else everybody is the caller */
    uint32_t uid_base; /* outside: the spawner; the sandboxes' follow */
    uint32_t uid_count;
    uint32_t slots;
    struct cgroups cgroups;
    struct instance instance;
    struct seccomp_program spawner_filter, agent_filter, guest_filter;
    int mould;    /* the program that agents are cast from, a sealed memfd */
    int landlock; /* a ruleset, or -1 */
    int server;   /* pidfd */
};

/* The outside ids of a sandbox, as the spawner's namespace sees them: 0 is the spawner itself. They go by the number of its
 * leaf (leaves.h), for a leaf that is used again belongs to them. */
static inline uint32_t host_agent_uid(unsigned identity)
{
    return 1 + 2 * identity;
}
static inline uint32_t host_guest_uid(unsigned identity)
{
    return 2 + 2 * identity;
}

/* Closes every descriptor but these and stderr. */
void host_close_all_but(const int *fds, size_t n);

/* `text` to a file of that process in /proc. 0 or -errno. */
int host_write_proc(pid_t pid, const char *file, const char *text);

/* These through an exec without being root, where need be; bits as in capset(2). */
int host_keep_capabilities(uint64_t capabilities);

/* For a process that must outlive the server by a moment: no terminal, no signal but SIGKILL. */
void host_deafen(void);

/* keeper.c: never returns. `wire` is the spawner's end. */
_Noreturn void keeper_run(struct native_host *host, int wire);

/* spawner.c: never returns. Reads one byte from `go` when its ids are mapped. */
_Noreturn void spawner_run(const struct native_host *host, int wire, int go);

/* box.c: the mould (agent/mould.h), and orders for it. Starts one; the spawner's end of its socket, or -errno. */
int mould_start(const struct native_host *host);

struct box_start {
    struct cgroup_names names;
    uint32_t identity;
    uint32_t birth; /* for mould_order */
    bool for_kernel;
    int net; /* a network namespace to be used again, or -1; stays the caller's */
    struct sandbox_limits limits;
};
struct box_failure {
    int code;
    char step[WIRE_STEP_MAX];
};
/* Makes cgroups and orders an agent; the mould tells the rest. Returns 0; or -errno, nothing is left, and
 * ret_failure says at which step. */
int box_start(const struct native_host *host, int mould, const struct box_start *start,
              struct box_failure *ret_failure);

/* What setup.h describes, for this host and these limits. */
struct agent_setup;
void box_setup(const struct native_host *host, const struct sandbox_limits *limits,
               struct agent_setup *ret);
/* Namespaces of a sandbox, beside those of users and processes. */
int box_namespaces(const struct native_host *host);

#endif
