/*
 * From clone to exec: what turns a child of the spawner into pid 1 of a sandbox. The order of the
 * steps is the security argument; each says why it stands where it does. A step that fails ends the
 * child, and with it the sandbox: nothing runs with a layer missing.
 *
 * Here nothing allocates, locks or logs.
 */
#include "engine/native/host.h"

#include "agent/setup.h"
#include "engine/native/plan.h"
#include "engine/native/root.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define CAP_BIT(capability) (UINT64_C(1) << (capability))
#define AGENT_CAPABILITIES                                                                         \
    (CAP_BIT(CAP_KILL) | CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETPCAP))

typedef int step_fn(struct inside *inside, const char **ret_detail);

static int join_cgroup(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    /* v2: born there. */
    for (int i = 0; inside->host->cgroups.kind == CGROUP_V1 && i < inside->n_agent_cgroups; i++)
        if (write(inside->agent_cgroups[i], "0", 1) < 0)
            return -errno;
    return 0;
}

static int new_namespaces(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    return unshare(box_namespaces(inside->host)) < 0 ? -errno : 0;
}

static int wait_for_ids(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    char byte;
    return read(inside->go, &byte, 1) == 1 ? 0 : -EPIPE;
}

static int become_agent(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    if (!inside->host->own_uids)
        return getuid() == PLAN_GUEST_UID ? 0 : -EPERM; /* as mapped; groups cannot be changed */
    if (setgroups(0, NULL) < 0 || setresgid(PLAN_AGENT_UID, PLAN_AGENT_UID, PLAN_AGENT_UID) < 0 ||
        setresuid(PLAN_AGENT_UID, PLAN_AGENT_UID, PLAN_AGENT_UID) < 0)
        return -errno;
    return 0;
}

static int open_guest_cgroup(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    int n = cgroup_open_guest(&inside->host->cgroups, inside->start->slot, inside->guest_cgroups);
    inside->n_guest_cgroups = n;
    return n < 0 ? n : 0;
}

static int name_host(struct inside *inside, const char **ret_detail)
{
    (void)inside, (void)ret_detail;
    return sethostname(PLAN_HOSTNAME, strlen(PLAN_HOSTNAME)) < 0 ? -errno : 0;
}

static int loopback_up(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    if (inside->host->network)
        return 0; /* the host's, and not ours to change */
    auto_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int private_root(struct inside *inside, const char **ret_detail)
{
    return root_private(&inside->start->limits,
                        inside->host->own_uids ? PLAN_AGENT_UID : PLAN_GUEST_UID, ret_detail);
}

static int limit_resources(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    struct rlimit none = { 0, 0 };
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return -errno;
    if (inside->host->cgroups.controllers & CGROUP_MEMORY)
        return 0;
    /* No cgroup bounds the sum, and the operator accepts that: bound each process at least. */
    struct rlimit data = { inside->start->limits.memory_bytes, inside->start->limits.memory_bytes };
    return setrlimit(RLIMIT_DATA, &data) < 0 ? -errno : 0;
}

/* 0-2 null, 3 stream, 4 set-up, 5… the guest's cgroups, the door; then what the last steps need, closed
 * by exec; nothing else. */
static int place_descriptors(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    int wanted[AGENT_CGROUP_FD + CGROUP_TREES_MAX + 4], n = 0, null = open("/dev/null", O_RDWR);
    if (null < 0)
        return -errno;
    wanted[n++] = null, wanted[n++] = null, wanted[n++] = null;
    wanted[n++] = inside->stream;
    wanted[n++] = inside->setup;
    for (int i = 0; i < inside->n_guest_cgroups; i++)
        wanted[n++] = inside->guest_cgroups[i];
    wanted[n++] = inside->door;
    int kept = n;
    wanted[n++] = inside->status;
    wanted[n++] = inside->host->agent;
    if (inside->host->landlock >= 0)
        wanted[n++] = inside->host->landlock;

    /* Out of the way first, so that no dup2() below closes what is still to be moved. */
    for (int i = 0; i < n; i++)
        if ((wanted[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 64)) < 0)
            return -errno;
    for (int i = 0; i < n; i++)
        if (dup3(wanted[i], i, i < kept ? 0 : O_CLOEXEC) < 0)
            return -errno;
    inside->status = kept;
    return sys_close_range((unsigned)n, ~0u);
}

/* The bounding set is empty: not even the agent's exec, as uid 0, brings anything back but what is
 * marked as inheritable. */
static int drop_capabilities(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    uint64_t keep = inside->host->own_uids ? AGENT_CAPABILITIES : 0;
    int r = sys_capset(keep | CAP_BIT(CAP_SETPCAP), keep);
    for (int cap = 0; r == 0 && cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            r = errno == EINVAL ? 1 : -errno; /* EINVAL: past the last one */
    return r < 0 ? r : sys_capset(keep, keep);
}

static int no_way_back(struct inside *inside, const char **ret_detail)
{
    (void)inside, (void)ret_detail;
    /* Changes of credentials clear the death signal, so it comes after the last of them. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return 0;
}

static int landlock(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    return inside->host->landlock < 0 ? 0 : sys_landlock_restrict_self(inside->status + 2);
}

static int seccomp(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    return sys_seccomp_filter(inside->host->agent_filter.code, inside->host->agent_filter.len);
}

static int exec_agent(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    char name[] = "belljar-agent", *argv[] = { name, NULL }, *envp[] = { NULL };
    return sys_exec_fd(inside->status + 1, argv, envp);
}

static const struct step {
    const char *name;
    step_fn *run;
} steps[] = {
    /* First: all that follows is charged there, and only the spawner's uid may do it (v1). */
    { "enter the agent's cgroup", join_cgroup },
    { "make namespaces", new_namespaces },       /* owned by this sandbox's own user namespace */
    { "wait for the id maps", wait_for_ids },    /* the spawner writes them meanwhile */
    { "become the agent's user", become_agent }, /* before files are made: they get its uid */
    { "open the guest's cgroup", open_guest_cgroup }, /* as that user, or v1 refuses the entry */
    { "set the host name", name_host },
    { "bring loopback up", loopback_up },
    { "private mounts", private_root },
    { "limit resources", limit_resources },
    { "place descriptors", place_descriptors }, /* after the last step that opens something */
    { "drop capabilities", drop_capabilities }, /* after the last step that needs one */
    { "no new privileges", no_way_back },
    { "landlock", landlock },
    { "seccomp", seccomp }, /* last: it forbids most of the steps above */
    { "exec the agent", exec_agent },
};

void inside_run(struct inside *inside)
{
    struct box_failure failure = { 0 };
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        const char *detail = NULL;
        int r = steps[i].run(inside, &detail);
        if (r >= 0)
            continue;
        failure.code = -r;
        (void)snprintf(failure.step, sizeof(failure.step), "%s%s%s", steps[i].name,
                       detail ? ": " : "", detail ? detail : "");
        break;
    }
    (void)!write(inside->status, &failure, sizeof(failure)); /* else: "died while starting" */
    _exit(1);
}
