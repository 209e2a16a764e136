/*
 * setup: what an engine hands to the agent at exec. No code, no allocation; both sides include it.
 *
 *   fd 0, 1, 2   /dev/null, or where the agent may complain before its hello (fd 2)
 *   fd 3         stream socket (or any bidirectional byte stream) to the server
 *   fd 4         the set-up: struct agent_setup, then `n_filter` struct sock_filter, then `env_len`
 *                bytes of environment. A sealed memfd or any readable file, read from offset 0.
 *                Closed by the agent.
 *   fd 5, 6, …   `n_cgroups` descriptors of the guest's cgroup, open for as long as the agent lives
 *   the next     if `has_door`: the agent's end of the door (door.h), through which kernels join that
 *                the engine has forked elsewhere
 *
 * The agent closes every other descriptor. Its own environment is not used and may be empty.
 *
 * In a container an engine has no descriptors to hand over but the usual three. There the agent's first
 * argument is AGENT_STDIO, and it takes these:
 *
 *   fd 0         the set-up, as above, without cgroups and door; behind it, what the server says
 *   fd 1         what the server is told
 *   fd 2         where the agent may complain before its hello
 *
 * Without any set-up it starts only if its first argument is AGENT_DEFAULTS, which is for tests: it runs
 * the guest as its own user, without a filter and without a cgroup.
 *
 * The engine promises:
 *   - The agent is pid 1 of its pid namespace. (Elsewhere it makes itself a child subreaper; that
 *     is for tests.) It sits in a cgroup of its own, so that the guest cannot starve it; it needs
 *     AGENT_MEMORY bytes there at most, plus what is stored in AGENT_RUN_DIR.
 *   - AGENT_WORKSPACE exists and is writable for the guest. AGENT_RUN_DIR exists, is writable for
 *     the agent (not for the guest, where they are different users) and can hold the code of a run and
 *     that of a kernel. /dev/null exists. /proc is welcome; without it the end of a run is also that
 *     of the kernel.
 *   - When guest_uid or guest_gid is not the agent's own, the agent holds CAP_KILL, CAP_SETUID,
 *     CAP_SETGID and CAP_SETPCAP in its user namespace at exec. With the last it empties the bounding set
 *     before the first guest; guests get none.
 *   - The filter does not stand in the way of what the agent does between loading it and the guest's
 *     first instruction: read, chdir, execve, write, exit_group.
 *   - Where guest and agent share a uid, the filter must also keep the guest from prlimit64,
 *     sched_setattr/-affinity/-scheduler, setpriority and ioprio_set on other processes: the kernel
 *     protects pid 1 from signals and, being undumpable, from ptrace, but not from these.
 *
 * A set-up that is malformed or cannot be honoured ends the agent with a line on fd 2 before any
 * guest runs.
 */
#ifndef BELLJAR_AGENT_SETUP_H
#define BELLJAR_AGENT_SETUP_H

#include <stdint.h>

/* Where guests look for programs, if nobody says otherwise. */
#define AGENT_PATH "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"

#define AGENT_WORKSPACE "/workspace"
/* The guest's environment, where the set-up has none: "NAME=value\0…". */
#define AGENT_DEFAULT_ENV                                                                          \
    "PATH=" AGENT_PATH "\0"                                                                        \
    "HOME=/workspace\0"                                                                            \
    "LANG=C.UTF-8\0"                                                                               \
    "TERM=dumb"
#define AGENT_RUN_DIR "/run/belljar" /* holds LINK_CODE_PATH */
#define AGENT_STDIO "--stdio"
#define AGENT_DEFAULTS "--defaults"
#define AGENT_JOIN "--join" /* the helper of stay.h, and nothing else */

enum {
    AGENT_STREAM_FD = 3,
    AGENT_SETUP_FD = 4,
    AGENT_CGROUP_FD = 5, /* the first */
    AGENT_OUT_FD = 4,    /* with AGENT_STDIO: what was descriptor 1 */
};

enum {
    AGENT_SETUP_MAGIC = 0x4a4c4542, /* "BELJ", little endian */
    AGENT_SETUP_VERSION = 2,

    AGENT_CGROUPS_MAX = 8,
    AGENT_FILTER_MAX = 4096, /* instructions: BPF_MAXINSNS */
    AGENT_ENV_MAX = 16 * 1024,
    AGENT_ENV_COUNT_MAX = 256,
    AGENT_MEMORY = 12 * 1024 * 1024,
};

enum agent_cgroup {
    AGENT_CGROUP_NONE = 0,
    AGENT_CGROUP_V1 = 1, /* each fd: a hierarchy's `tasks`, open for writing; "0" is written */
    AGENT_CGROUP_V2 = 2, /* one fd: the guest's directory, for clone3(CLONE_INTO_CGROUP) */
};

/* For a limit: leave what the agent has inherited. Otherwise soft and hard limit are set to the
 * value, or to the inherited hard limit where that is lower. */
#define AGENT_LIMIT_KEEP UINT64_MAX

/* Native byte order and alignment: engine and agent run on the same machine. */
struct agent_setup {
    uint32_t magic, version;
    uint32_t guest_uid, guest_gid; /* inside the agent's user namespace */
    uint32_t cgroup;               /* enum agent_cgroup */
    uint32_t n_cgroups;            /* descriptors from AGENT_CGROUP_FD on */
    uint32_t n_filter;             /* struct sock_filter that follow; 0: none */
    uint32_t env_len;  /* bytes that follow them: "NAME=value\0…"; 0: the default list */
    uint32_t has_door; /* 0 or 1 */
    uint32_t
        no_understudy; /* 0 or 1: a kernel will be first, so nobody waits to become a program */

    /* Limits of each guest process. Core size 0, locked memory, queues and pending signals are the
     * agent's own small constants. */
    uint64_t limit_nofile;
    uint64_t limit_file_bytes;
    uint64_t limit_nproc;         /* counts by uid: only where that uid is this sandbox's alone */
    uint64_t limit_address_space; /* bytes; where no cgroup bounds memory */
    uint64_t limit_stack;
};
_Static_assert(sizeof(struct agent_setup) == 80, "no padding, no surprise");

#endif
