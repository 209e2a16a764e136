/*
 * One sandbox from the spawner's side: its cgroups, and the order for its pid 1. The expensive part runs in that
 * process, beside spawner and mould.
 */
#include "engine/native/host.h"

#include "agent/mould.h"
#include "engine/native/plan.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int fail(struct box_failure *failure, const char *step, int code)
{
    failure->code = code;
    (void)snprintf(failure->step, sizeof(failure->step), "%s", step);
    return -code;
}

static enum agent_cgroup agent_cgroup(const struct cgroups *cgroups)
{
    return cgroups->kind == CGROUP_V1   ? AGENT_CGROUP_V1
           : cgroups->kind == CGROUP_V2 ? AGENT_CGROUP_V2
                                        : AGENT_CGROUP_NONE;
}

int box_namespaces(const struct native_host *host)
{
    /* v2: the spawner's, made once, whose root is this instance's directory. A process may only be
     * put into a cgroup that its cgroup namespace shows, and the guest's leaf is not below ours. */
    int cgroup = host->cgroups.kind == CGROUP_V2 ? 0 : CLONE_NEWCGROUP;
    int network = host->network ? 0 : CLONE_NEWNET;
    return CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | network | cgroup;
}

void box_setup(const struct native_host *host, const struct sandbox_limits *limits,
               struct agent_setup *ret)
{
    const struct cgroups *cgroups = &host->cgroups;
    bool count_by_uid = host->own_uids && !(cgroups->controllers & CGROUP_PIDS);
    *ret = (struct agent_setup){
        .magic = AGENT_SETUP_MAGIC,
        .version = AGENT_SETUP_VERSION,
        .guest_uid = PLAN_GUEST_UID,
        .guest_gid = PLAN_GUEST_UID,
        .cgroup = agent_cgroup(cgroups),
        .n_cgroups = (uint32_t)cgroups->n,
        .n_filter = host->guest_filter.len,
        .has_door = 1,
        .limit_nofile = limits->nofile,
        .limit_file_bytes = limits->file_bytes,
        .limit_nproc = count_by_uid ? limits->pids : AGENT_LIMIT_KEEP,
        .limit_address_space = AGENT_LIMIT_KEEP,
        .limit_stack = AGENT_LIMIT_KEEP,
    };
}

/*** The mould ***/

/* To make network namespaces and enter them, with their loopback. Where it is root it has all. */
#define MOULD_CAPABILITIES (UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_NET_ADMIN)

static int make_setup(const struct native_host *host)
{
    const struct mould_setup setup = {
        .magic = MOULD_MAGIC,
        .own_uids = host->own_uids,
        .bounded = (host->cgroups.controllers & CGROUP_MEMORY) != 0,
        .own_network = !host->network,
        .has_landlock = host->landlock >= 0,
        .namespaces = (uint32_t)(box_namespaces(host) & ~CLONE_NEWNET),
        .n_trees = (uint32_t)host->cgroups.n,
        .agent_leaves = cgroup_agent_leaves(&host->cgroups),
        .kept_trees = cgroup_kept_trees(&host->cgroups),
        .n_agent_filter = host->agent_filter.len,
        .n_guest_filter = host->guest_filter.len,
        .ptys = PLAN_PTYS,
        .hostname = PLAN_HOSTNAME,
    };
    struct iovec parts[] = {
        { (void *)&setup, sizeof(setup) },
        { host->agent_filter.code, host->agent_filter.len * sizeof(struct sock_filter) },
        { host->guest_filter.code, host->guest_filter.len * sizeof(struct sock_filter) },
    };
    auto_fd fd = memfd_create("mould", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (pwritev(fd, parts, 3, 0) !=
        (ssize_t)(parts[0].iov_len + parts[1].iov_len + parts[2].iov_len))
        return -ENOSPC;
    return steal_fd(&fd);
}

/* Descriptors as mould.h has them, and standard error; nothing else but the program, closed by exec. */
static int place_descriptors(const struct native_host *host, int control, int setup)
{
    int wanted[MOULD_TREE_FD + CGROUP_TREES_MAX + 2], n = 0, null = open("/dev/null", O_RDWR);
    if (null < 0)
        return -errno;
    wanted[n++] = null, wanted[n++] = null, wanted[n++] = STDERR_FILENO;
    wanted[n++] = control, wanted[n++] = setup;
    for (size_t i = 0; i < host->cgroups.n; i++)
        wanted[n++] = host->cgroups.trees[i].dir;
    if (host->landlock >= 0)
        wanted[n++] = host->landlock;
    int kept = n;
    wanted[n++] = host->mould;

    /* Out of the way first, so that no dup3() below closes what is still to be moved. */
    for (int i = 0; i < n; i++)
        if ((wanted[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 64)) < 0)
            return -errno;
    for (int i = 0; i < n; i++)
        if (dup3(wanted[i], i, i < kept ? 0 : O_CLOEXEC) < 0)
            return -errno;
    int r = sys_close_range((unsigned)n, ~0u);
    return r < 0 ? r : kept;
}

static _Noreturn void become_mould(const struct native_host *host, int control, int setup)
{
    char byte;
    if (recv(control, &byte, 1, 0) != 1) /* its ids are mapped */
        _exit(127);
    char name[] = "belljar-mould", *argv[] = { name, NULL }, *envp[] = { NULL };
    int program = place_descriptors(host, control, setup);
    if (program >= 0 && (host->own_uids || host_keep_capabilities(MOULD_CAPABILITIES) == 0) &&
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0)
        (void)sys_exec_fd(program, argv, envp);
    _exit(127); /* its socket tells */
}

/* All ids that the spawner has, under the same numbers. */
static int map_mould(const struct native_host *host, pid_t pid)
{
    char map[64];
    if (host->own_uids)
        (void)snprintf(map, sizeof(map), "0 0 %u\n", host->uid_count);
    else
        (void)snprintf(map, sizeof(map), "%d %d 1\n", PLAN_GUEST_UID, PLAN_GUEST_UID);
    int r = host_write_proc(pid, "gid_map", map);
    return r < 0 ? r : host_write_proc(pid, "uid_map", map);
}

int mould_start(const struct native_host *host)
{
    int control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        return -errno;
    auto_fd ours = control[0], theirs = control[1];
    auto_fd setup = make_setup(host);
    if (setup < 0)
        return setup;
    struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        become_mould(host, theirs, setup);
    int r = pid < 0 ? pid : map_mould(host, pid);
    if (r == 0 && send(ours, "", 1, MSG_NOSIGNAL) != 1)
        r = -errno;
    return r < 0 ? r : steal_fd(&ours); /* without ours it ends */
}

/*** Orders ***/

static void make_order(const struct native_host *host, const struct box_start *start,
                       struct mould_order *ret)
{
    const struct sandbox_limits *limits = &start->limits;
    *ret = (struct mould_order){
        .slot = start->names.slot,
        .leaf = start->names.leaf,
        .birth = start->birth,
        .identity = start->identity,
        .agent_uid = host_agent_uid(start->identity),
        .guest_uid = host_guest_uid(start->identity),
        .memory_bytes = limits->memory_bytes,
        .places = { [MOULD_TMP] = { limits->tmp_bytes, limits->tmp_inodes },
                    [MOULD_SHM] = { limits->shm_bytes, PLAN_SHM_INODES },
                    [MOULD_WORKSPACE] = { limits->workspace_bytes, limits->workspace_inodes },
                    [MOULD_RUN_DIR] = { PLAN_RUN_DIR_BYTES, PLAN_RUN_DIR_INODES } },
    };
    box_setup(host, limits, &ret->setup);
    ret->setup.no_understudy = start->for_kernel;
}

int box_start(const struct native_host *host, int mould, const struct box_start *start,
              struct box_failure *ret_failure)
{
    int r = cgroup_make(&host->cgroups, start->names, &start->limits,
                        host->own_uids ? host_agent_uid(start->identity) : (uid_t)-1);
    if (r < 0)
        return fail(ret_failure, "make cgroups", -r);
    struct mould_order order;
    make_order(host, start, &order);
    /* Never waits: the mould may be waiting for us. */
    r = sys_send_fds(mould, &order, sizeof(order), &start->net, start->net >= 0,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    if (r < 0) {
        r = fail(ret_failure, "order an agent", -r);
        (void)cgroup_remove(&host->cgroups, start->names.slot); /* empty again */
        return r;
    }
    return 0;
}
