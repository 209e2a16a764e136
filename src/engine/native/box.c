/*
 * One sandbox from the spawner's side: its cgroups, its ids, its child. The expensive part of the
 * child's life (a network namespace costs more than all else) runs in the child, beside the spawner.
 */
#include "engine/native/host.h"

#include "agent/setup.h"
#include "engine/native/plan.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

static int fail(struct box_failure *failure, const char *step, int code)
{
    failure->code = code;
    (void)snprintf(failure->step, sizeof(failure->step), "%s", step);
    return -code;
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
        .cgroup = cgroups->kind == CGROUP_V1   ? AGENT_CGROUP_V1
                  : cgroups->kind == CGROUP_V2 ? AGENT_CGROUP_V2
                                               : AGENT_CGROUP_NONE,
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

/* In memory that the agent reads once. */
static int make_setup(const struct native_host *host, const struct sandbox_limits *limits)
{
    struct agent_setup setup;
    box_setup(host, limits, &setup);
    size_t filter_len = host->guest_filter.len * sizeof(struct sock_filter);
    auto_fd fd = memfd_create("setup", MFD_CLOEXEC);
    struct iovec parts[] = { { &setup, sizeof(setup) }, { host->guest_filter.code, filter_len } };
    if (fd < 0)
        return -errno;
    if (pwritev(fd, parts, 2, 0) != (ssize_t)(sizeof(setup) + filter_len))
        return -ENOSPC;
    return steal_fd(&fd);
}

static int write_map(pid_t pid, const char *file, const char *map)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, map, strlen(map)) < 0 ? -errno : 0;
}

/* Two ids of this slot's own: the agent's and the guest's; or the one there is. */
static int map_ids(const struct native_host *host, unsigned slot, pid_t pid)
{
    char map[96];
    if (host->own_uids)
        (void)snprintf(map, sizeof(map), "%d %u 1\n%d %u 1\n", PLAN_AGENT_UID, host_agent_uid(slot),
                       PLAN_GUEST_UID, host_guest_uid(slot));
    else
        (void)snprintf(map, sizeof(map), "%d %d 1\n", PLAN_GUEST_UID, PLAN_GUEST_UID);
    int r = write_map(pid, "gid_map", map);
    return r < 0 ? r : write_map(pid, "uid_map", map);
}

static int clone_child(const struct native_host *host, struct inside *inside, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWPID,
        .pidfd = (uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };
    if (host->cgroups.kind == CGROUP_V2) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)inside->agent_cgroups[0];
    }
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        inside_run(inside);
    return pid;
}

static void kill_and_reap(int pidfd)
{
    siginfo_t info;
    (void)sys_pidfd_send_signal(pidfd, SIGKILL);
    (void)waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED);
    close(pidfd);
}

/* With cgroups made: pipes, set-up, child, ids. */
static int start_child(const struct native_host *host, const struct box_start *start,
                       struct inside *inside, struct box_started *ret, struct box_failure *failure)
{
    int stream[2], door[2], go[2], status[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) < 0)
        return fail(failure, "make the agent's stream", errno);
    auto_fd ours = stream[0], theirs = stream[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) < 0)
        return fail(failure, "make the agent's door", errno);
    auto_fd outside = door[0], at_agent = door[1];
    if (pipe2(go, O_CLOEXEC) < 0)
        return fail(failure, "make a pipe", errno);
    auto_fd go_read = go[0], go_write = go[1];
    if (pipe2(status, O_CLOEXEC) < 0)
        return fail(failure, "make a pipe", errno);
    auto_fd status_read = status[0], status_write = status[1];
    auto_fd setup = make_setup(host, &start->limits);
    if (setup < 0)
        return fail(failure, "make the agent's set-up", -setup);

    inside->stream = theirs;
    inside->setup = setup;
    inside->door = at_agent;
    inside->go = go_read;
    inside->status = status_write;
    int pidfd = -1;
    pid_t pid = clone_child(host, inside, &pidfd);
    if (pid < 0)
        return fail(failure, "clone", -pid);
    int r = map_ids(host, start->slot, pid);
    if (r < 0 || write(go_write, "", 1) != 1) {
        kill_and_reap(pidfd);
        return fail(failure, "map ids", r < 0 ? -r : EPIPE);
    }
    *ret = (struct box_started){ .pidfd = pidfd,
                                 .stream = steal_fd(&ours),
                                 .status = steal_fd(&status_read),
                                 .door = steal_fd(&outside) };
    return 0;
}

int box_start(const struct native_host *host, const struct box_start *start,
              struct box_started *ret, struct box_failure *ret_failure)
{
    int r = cgroup_make(&host->cgroups, start->slot, &start->limits,
                        host->own_uids ? host_agent_uid(start->slot) : (uid_t)-1);
    if (r < 0)
        return fail(ret_failure, "make cgroups", -r);
    struct inside inside = { .host = host, .start = start };
    inside.n_agent_cgroups =
        cgroup_open_agent(&host->cgroups, start->slot, start->agent_leaf, inside.agent_cgroups);
    r = inside.n_agent_cgroups < 0
            ? fail(ret_failure, "open the agent's cgroup", -inside.n_agent_cgroups)
            : start_child(host, start, &inside, ret, ret_failure);
    for (int i = 0; i < inside.n_agent_cgroups; i++)
        close(inside.agent_cgroups[i]);
    if (r < 0)
        (void)cgroup_remove(&host->cgroups, start->slot); /* empty again */
    return r;
}
