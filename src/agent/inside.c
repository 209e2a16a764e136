/*
 * From clone to serving: what turns a child of the mould into pid 1 of a sandbox. The order of the steps is
 * the security argument; each says why it stands where it does. A step that fails ends the child, and
 * with it the sandbox: nothing runs with a layer missing.
 *
 * There is no exec, and nothing is lost by that: the memory that the child begins with is the mould's, which
 * is this program and its filters; descriptors are closed by number, not by a flag; the bounding set
 * is emptied before the first guest (guest_fork()); signals are as the mould has set them. What an exec would have reset
 * besides, the steps set themselves. All agents of a server have their memory at the same addresses, as
 * kernels of one zygote have.
 */
#include "agent/inside.h"
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define CAP_BIT(capability) (UINT32_C(1) << (capability))
#define AGENT_CAPABILITIES                                                                         \
    (CAP_BIT(SYS_CAP_KILL) | CAP_BIT(SYS_CAP_SETUID) | CAP_BIT(SYS_CAP_SETGID) |                   \
     CAP_BIT(SYS_CAP_SETPCAP))

/* The agent's own id as it sees itself, where it has one. */
enum { AGENT_UID = 0 };

typedef int step_fn(struct inside *inside, const char **ret_detail);

static enum agent_cgroup cgroup_kind(const struct inside *inside)
{
    return (enum agent_cgroup)inside->order->setup.cgroup;
}

static int join_cgroup(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    const struct mould_setup *setup = &inside->mould->setup;
    char name[MOULD_LEAF_NAME_MAX];
    if (cgroup_kind(inside) != AGENT_CGROUP_V1)
        return 0; /* v2: born there */
    mould_leaf_name(name, AGENT_CGROUP_V1, inside->order->leaf, MOULD_AGENT_LEAF, "tasks");
    for (uint32_t i = 0; i < setup->n_trees; i++) {
        if (!(setup->agent_leaves & UINT32_C(1) << i))
            continue;
        int fd = openat(MOULD_TREE_FD + (int)i, name, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) < 0)
            return -errno;
        close(fd);
    }
    return 0;
}

static int new_namespaces(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    return unshare((int)inside->mould->setup.namespaces) < 0 ? -errno : 0;
}

static int enter_users(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    return setns(inside->users, CLONE_NEWUSER) < 0 ? -errno : 0;
}

static int become_agent(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    if (!inside->mould->setup.own_uids) /* as mapped; groups cannot be changed */
        return getuid() == inside->order->setup.guest_uid ? 0 : -EPERM;
    if (setgroups(0, NULL) < 0 || setresgid(AGENT_UID, AGENT_UID, AGENT_UID) < 0 ||
        setresuid(AGENT_UID, AGENT_UID, AGENT_UID) < 0)
        return -errno;
    return 0;
}

static int open_guest_cgroup(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    const struct mould_order *order = inside->order;
    bool v2 = cgroup_kind(inside) == AGENT_CGROUP_V2;
    for (uint32_t i = 0; i < order->setup.n_cgroups; i++) {
        bool kept = inside->mould->setup.kept_trees & UINT32_C(1) << i;
        char name[MOULD_LEAF_NAME_MAX];
        mould_leaf_name(name, cgroup_kind(inside), kept ? order->leaf : order->slot,
                        kept ? MOULD_KEPT_LEAF : MOULD_GUEST_LEAF, v2 ? "" : "tasks");
        int fd = openat(MOULD_TREE_FD + (int)i, name,
                        (v2 ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        inside->guest_cgroups[inside->n_guest_cgroups++] = fd;
    }
    return 0;
}

static int name_host(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    const char *name = inside->mould->setup.hostname;
    return sethostname(name, strlen(name)) < 0 ? -errno : 0;
}

static int private_places(struct inside *inside, const char **ret_detail)
{
    return places_mount(inside->mould, inside->order, ret_detail);
}

static int limit_resources(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    struct rlimit none = { 0, 0 };
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return -errno;
    if (inside->mould->setup.bounded)
        return 0;
    /* No cgroup bounds the sum, and the operator accepts that: bound each process at least. */
    struct rlimit data = { inside->order->memory_bytes, inside->order->memory_bytes };
    return setrlimit(RLIMIT_DATA, &data) < 0 ? -errno : 0;
}

/* 0-2 null already; 3 stream, 5… the guest's cgroups, the door; then what the last steps need, 4 and behind
 * the door; nothing else. All are closed by exec, which only guests do. */
static int place_descriptors(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    int wanted[AGENT_CGROUP_FD + AGENT_CGROUPS_MAX + 2], n = AGENT_STREAM_FD;
    wanted[n++] = inside->stream;
    wanted[n++] = inside->control;
    for (int i = 0; i < inside->n_guest_cgroups; i++)
        wanted[n++] = inside->guest_cgroups[i];
    wanted[n++] = inside->door;
    if (inside->mould->landlock >= 0)
        wanted[n++] = inside->mould->landlock;

    /* Out of the way first, so that no dup3() below closes what is still to be moved. */
    for (int i = AGENT_STREAM_FD; i < n; i++)
        if ((wanted[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 64)) < 0)
            return -errno;
    for (int i = AGENT_STREAM_FD; i < n; i++)
        if (dup3(wanted[i], i, O_CLOEXEC) < 0)
            return -errno;
    inside->control = AGENT_SETUP_FD;
    return sys_close_range((unsigned)n, ~0U);
}

static int drop_capabilities(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    uint32_t keep = inside->mould->setup.own_uids ? AGENT_CAPABILITIES : CAP_BIT(SYS_CAP_SETPCAP);
    struct sys_caps caps = { 0 };
    caps.word[0].effective = caps.word[0].permitted = keep;
    return sys_capset(&caps);
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
    int ruleset = AGENT_CGROUP_FD + inside->n_guest_cgroups + 1;
    return inside->mould->landlock < 0 ? 0 : sys_landlock_restrict_self(ruleset);
}

static int seccomp(struct inside *inside, const char **ret_detail)
{
    (void)ret_detail;
    const struct mould *mould = inside->mould;
    const struct sys_program program = { (uint16_t)mould->setup.n_agent_filter,
                                         mould->agent_filter };
    return sys_seccomp_filter(&program);
}

static int begin(struct inside *inside, const char **ret_detail)
{
    (void)prctl(PR_SET_NAME, "belljar-agent");
    return agent_begin(&inside->order->setup, ret_detail);
}

static const struct step {
    const char *name;
    step_fn *run;
} steps[] = {
    /* First: all that follows is charged there, and only the spawner's uid may do it (v1). */
    { "enter the agent's cgroup", join_cgroup },
    { "make namespaces", new_namespaces }, /* owned by the mould's user namespace… */
    { "set the host name", name_host },
    { "private mounts", private_places },
    { "enter the user namespace", enter_users }, /* …in which nobody has a right from here on */
    { "become the agent's user", become_agent },
    { "open the guest's cgroup", open_guest_cgroup }, /* as that user, or v1 refuses the entry */
    { "limit resources", limit_resources },
    { "place descriptors", place_descriptors }, /* after the last step that opens something */
    { "drop capabilities", drop_capabilities }, /* after the last step that needs one */
    { "no new privileges", no_way_back },
    { "landlock", landlock },
    { "seccomp", seccomp }, /* it forbids most of the steps above */
    { "begin", begin },     /* as any agent does, within all of that */
};

static void tell(const struct inside *inside, const struct mould_reply *reply)
{
    /* Else: "died while starting". */
    (void)!send(inside->control, reply, sizeof(*reply), MSG_NOSIGNAL);
}

void inside_run(struct inside *inside)
{
    struct mould_reply reply = { .word = MOULD_STARTED,
                                 .slot = inside->order->slot,
                                 .birth = inside->order->birth };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const char *detail = NULL;
        int r = steps[i].run(inside, &detail);
        if (r >= 0)
            continue;
        reply.word = MOULD_FAILED;
        reply.code = -r;
        (void)snprintf(reply.step, sizeof(reply.step), "%s%s%s", steps[i].name, detail ? ": " : "",
                       detail ? detail : "");
        tell(inside, &reply);
        _exit(1);
    }
    tell(inside, &reply);
    close(inside->control);
    agent_serve();
}
