#include "agent/guest.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* `may`: we hold CAP_SETPCAP, so a failure counts. */
static int empty_set(bool may)
{
    /* Asking is cheaper than dropping what an engine has dropped already, but a new user namespace's is full. */
    bool ask = prctl(PR_CAPBSET_READ, 0) != 1;
    for (int cap = 0; cap < 64; cap++) {
        if ((ask && prctl(PR_CAPBSET_READ, cap) == 0) || prctl(PR_CAPBSET_DROP, cap) == 0)
            continue;
        if (errno == EINVAL)
            break; /* the kernel has no more */
        if (may)
            return -errno;
        break; /* no_new_privs makes the set a formality */
    }
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* empty where there is none */
    return 0;
}

/* Nothing that a guest executes gets a capability: they inherit our bounding set, and it takes nothing from us, who execute
 * nothing. Not before the first of them: it is 41 calls, and a kernel from outside does it for itself. */
static int bound_guests(const struct config *config)
{
    static bool bounded;
    int r = bounded ? 0 : empty_set(config->may_bound);
    bounded = r == 0;
    return r;
}

pid_t guest_fork(const struct config *config)
{
    int r = bound_guests(config);
    if (r < 0)
        return r;
    if (config->setup.cgroup == AGENT_CGROUP_V2)
        return sys_fork_into(AGENT_CGROUP_FD);
    pid_t pid = fork();
    return pid < 0 ? -errno : pid;
}

/*** steps ***/

/* "0" into `tasks` moves the writer and takes no lock that waits for other processors, unlike
 * cgroup.procs. In v2 the child was born where it belongs. */
static int join_cgroup(const struct config *config)
{
    if (config->setup.cgroup != AGENT_CGROUP_V1)
        return 0;
    for (uint32_t i = 0; i < config->setup.n_cgroups; i++)
        if (write(AGENT_CGROUP_FD + (int)i, "0", 1) != 1)
            return -errno;
    return 0;
}

/* What is higher than the limit that there is stays as it is: that, and nothing else, may be refused. */
static int set_limit(int resource, uint64_t value)
{
    struct rlimit limit = { .rlim_cur = value, .rlim_max = value };
    if (value == AGENT_LIMIT_KEEP || setrlimit((unsigned)resource, &limit) == 0)
        return 0;
    if (errno != EPERM || getrlimit((unsigned)resource, &limit) < 0)
        return -errno;
    if (limit.rlim_max >= value)
        return -EPERM;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit((unsigned)resource, &limit) < 0 ? -errno : 0;
}

static int set_limits(const struct config *config)
{
    const struct {
        int resource;
        uint64_t value;
    } limits[] = {
        { RLIMIT_CORE, 0 },
        { RLIMIT_MEMLOCK, 64 * 1024 },
        { RLIMIT_MSGQUEUE, 0 },
        { RLIMIT_SIGPENDING, 1024 },
        { RLIMIT_NICE, 0 },
        { RLIMIT_RTPRIO, 0 },
        { RLIMIT_NOFILE, config->setup.limit_nofile },
        { RLIMIT_FSIZE, config->setup.limit_file_bytes },
        { RLIMIT_NPROC, config->setup.limit_nproc },
        { RLIMIT_AS, config->setup.limit_address_space },
        { RLIMIT_STACK, config->setup.limit_stack },
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        int r = set_limit(limits[i].resource, limits[i].value);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The guest dies of a full memory before anything of ours. Only a hint, and /proc may be missing; our
 * own files there are root's while we are undumpable, so be dumpable for a moment: by now nothing is
 * open that a guest could steal. */
static void prefer_for_oom(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1000", 4);
        close(fd);
    }
}

static int become_guest(const struct config *config)
{
    uid_t uid = config->setup.guest_uid;
    gid_t gid = config->setup.guest_gid;
    /* In a user namespace made without privilege nobody may do this; it holds nothing to drop
     * that is mapped there. */
    if (setgroups(0, NULL) < 0 && (config->other_user || errno != EPERM))
        return -errno;
    if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    return 0;
}

static int empty_bounding_set(const struct config *config)
{
    (void)config;
    return empty_set(/* may= */ true);
}

static int drop_capabilities(const struct config *config)
{
    (void)config;
    static const struct sys_caps none;
    return sys_capset(&none);
}

/* After the change of user, which clears it. */
static int die_with_agent(const struct config *config)
{
    (void)config;
    return prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;
}

/* What the agent itself has changed (set_signals() in agent.c). SIGINT stays blocked where guest_fork()
 * was called so. */
static int default_signals(const struct config *config)
{
    (void)config;
    sigset_t now, mask;
    sigemptyset(&mask);
    if (signal(SIGPIPE, SIG_DFL) == SIG_ERR || sigprocmask(SIG_BLOCK, NULL, &now) < 0)
        return -errno;
    if (sigismember(&now, SIGINT))
        sigaddset(&mask, SIGINT);
    return sigprocmask(SIG_SETMASK, &mask, NULL) < 0 ? -errno : 0;
}

static int load_filter(const struct config *config)
{
    if (!config->program.len)
        return 0;
    return prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, &config->program) < 0 ? -errno : 0;
}

static int lead_session(const struct config *config)
{
    (void)config;
    return setsid() < 0 ? -errno : 0;
}

static int keep_orphans(const struct config *config)
{
    (void)config;
    return prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ? -errno : 0;
}

static int enter_workspace(const struct config *config)
{
    return chdir(config->workspace) < 0 ? -errno : 0;
}

/* Until exec: a way to the agent is still open (the door, the pipe for failures), and a guest with our
 * uid may be about. */
static int be_undumpable(const struct config *config)
{
    (void)config;
    return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}

struct step {
    const char *name;
    int (*run)(const struct config *config);
};

/* The order is the argument: what needs privilege comes before it is gone, and nothing that a guest
 * could use is open when the process becomes the guest's. Bounding set and no_new_privs are inherited:
 * guest_fork() and config_load() have seen to them. */
static const struct step before_descriptors[] = {
    { "join cgroup", join_cgroup }, /* first: what the child uses from here on is the guest's */
    { "lead session", lead_session },
};
static const struct step to_guest[] = {
    { "limits", set_limits },
    { "become guest", become_guest },
    { "drop capabilities", drop_capabilities }, /* also where the user stays the same */
    { "die with agent", die_with_agent },
    { "default signals", default_signals },
    { "become undumpable", be_undumpable },
};
/* From outside: entering the user namespace has filled the bounding set again. An interpreter has set up
 * its signals as it wants them, and dies with pid 1 as everybody does; a death signal would come when its
 * first parent, which is nobody, exits. */
static const struct step to_joined[] = {
    { "limits", set_limits },
    { "empty bounding set", empty_bounding_set },
    { "become guest", become_guest },
    { "drop capabilities", drop_capabilities },
    { "become undumpable", be_undumpable },
    { "enter directory", enter_workspace },
    { "load filter", load_filter },
};
/* What is a process's own and no child's. */
static const struct step to_leader[] = {
    { "lead session", lead_session },
    { "become subreaper", keep_orphans },
};

static int run_steps(const struct config *config, const struct step *steps, size_t count,
                     const char **ret_step)
{
    for (size_t i = 0; i < count; i++) {
        *ret_step = steps[i].name;
        int r = steps[i].run(config);
        if (r < 0)
            return r;
    }
    return 0;
}
#define RUN_STEPS(config, steps, ret_step)                                                         \
    run_steps(config, steps, sizeof(steps) / sizeof((steps)[0]), ret_step)

/*** descriptors ***/

int guest_place(const int *fds, int count, int first)
{
    int moved[GUEST_PLACES_MAX];
    for (int i = 0; i < count; i++) {
        moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, 64);
        if (fds[i] >= 0 && moved[i] < 0)
            return -errno;
    }
    for (int i = 0; i < count; i++) {
        if (moved[i] >= 0 && dup2(moved[i], first + i) < 0)
            return -errno;
        if (moved[i] < 0)
            close(first + i);
    }
    return sys_close_range((unsigned)(first + count), ~0U);
}

/*** programs ***/

static const char *search_path(const char *const *env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/bin:/bin";
}

/* As execvpe(), without its shell for files that are no programs. */
static int exec_in_path(const char *const *argv, const char *const *env)
{
    char *const *args = (char *const *)(uintptr_t)argv;
    char *const *vars = (char *const *)(uintptr_t)env;
    if (strchr(argv[0], '/')) {
        execve(argv[0], args, vars);
        return -errno;
    }
    int code = ENOENT;
    for (const char *dir = search_path(env);;) {
        size_t len = strcspn(dir, ":");
        static char path[4096];
        int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)len, dir, len ? "/" : "", argv[0]);
        if (n > 0 && (size_t)n < sizeof(path)) {
            execve(path, args, vars);
            if (errno != ENOENT && errno != ENOTDIR)
                code = errno;
        }
        if (!dir[len])
            return -code;
        dir += len + 1;
    }
}

/*** the whole way ***/

static int place(struct guest_fds *fds)
{
    bool channel = fds->channel_fd >= 0;
    const int with_channel[] = { fds->stdio[0], fds->stdio[1], fds->stdio[2], fds->channel_fd,
                                 fds->failure_fd };
    const int without[] = { fds->stdio[0], fds->stdio[1], fds->stdio[2], fds->failure_fd };
    int r = guest_place(channel ? with_channel : without, channel ? 5 : 4, 0);
    if (r < 0)
        return r;
    fds->failure_fd = channel ? 4 : 3;
    return fcntl(fds->failure_fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

int guest_prepare(const struct config *config, struct guest_fds *fds, const char **ret_step)
{
    int r = RUN_STEPS(config, before_descriptors, ret_step);
    if (r < 0)
        return r;
    *ret_step = "descriptors";
    r = place(fds);
    if (r < 0)
        return r;
    prefer_for_oom();
    *ret_step = "become subreaper";
    r = fds->channel_fd >= 0 ? keep_orphans(config) : 0;
    if (r == 0)
        r = RUN_STEPS(config, to_guest, ret_step);
    if (r < 0)
        return r;
    *ret_step = "enter directory";
    r = enter_workspace(config);
    if (r < 0)
        return r;
    *ret_step = "load filter"; /* last: it forbids most of the above */
    return load_filter(config);
}

int guest_execute(const struct guest_program *program, const char **ret_step)
{
    *ret_step = "enter directory";
    if (*program->cwd && chdir(program->cwd) < 0)
        return -errno;
    *ret_step = program->argv[0];
    return exec_in_path(program->argv, program->env);
}

_Noreturn void guest_fail(int failure_fd, int code, const char *step)
{
    struct guest_failure failure = { .code = code };
    (void)snprintf(failure.step, sizeof(failure.step), "%s", step);
    (void)!write(failure_fd, &failure, sizeof(failure)); /* exit status 127 says it too */
    _exit(127);
}

_Noreturn void guest_exec(const struct config *config, struct guest_fds *fds,
                          const struct guest_program *program)
{
    const char *step = "";
    int r = guest_prepare(config, fds, &step);
    if (r == 0)
        r = guest_execute(program, &step);
    guest_fail(fds->failure_fd, -r, step);
}

int guest_enter(const struct config *config, int in_fd, int out_fd)
{
    const char *step;
    int r = RUN_STEPS(config, before_descriptors, &step);
    if (r < 0)
        return r;
    const int fds[] = { in_fd, out_fd, config->workspace_fd };
    r = guest_place(fds, 3, GUEST_IN);
    if (r < 0)
        return r;
    return RUN_STEPS(config, to_guest, &step);
}

int guest_join(const struct config *config, const char **ret_step)
{
    return RUN_STEPS(config, to_joined, ret_step);
}

int guest_lead(const struct config *config, const char **ret_step)
{
    return RUN_STEPS(config, to_leader, ret_step);
}
