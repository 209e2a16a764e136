/*
 * The keeper keeps the rights that belljar was started with, and does two things with them: it maps
 * the spawner's ids at the start, and removes this instance's cgroups and file at the end. In between
 * it waits for two processes to die. It reads nothing from anybody.
 */
#include "engine/native/host.h"

#include "base/log.h"
#include "engine/native/plan.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* A spawner that has lost its server ends at once; one that has not after this time is killed. */
enum { GRACE_MS = 2000 };

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void host_close_all_but(const int *fds, size_t n)
{
    int keep[32];
    size_t count = 0;
    keep[count++] = STDERR_FILENO;
    for (size_t i = 0; i < n && count < ARRAY_SIZE(keep); i++)
        if (fds[i] >= 0)
            keep[count++] = fds[i];
    qsort(keep, count, sizeof(keep[0]), by_number);
    unsigned from = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned at = (unsigned)keep[i];
        if (at > from)
            (void)sys_close_range(from, at - 1);
        from = at + 1;
    }
    (void)sys_close_range(from, ~0u);
}

int host_write_proc(pid_t pid, const char *file, const char *text)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int host_keep_capabilities(uint64_t capabilities)
{
    int r = sys_capset(capabilities, capabilities);
    for (int cap = 0; r == 0 && cap < 64; cap++)
        if ((capabilities >> cap & 1) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            r = -errno;
    return r;
}

/* The range of outside ids, as root; else the caller's own under the guest's number. */
static int map_spawner(const struct native_host *host, pid_t pid)
{
    char uids[64], gids[64];
    if (host->own_uids) {
        (void)snprintf(uids, sizeof(uids), "0 %u %u\n", host->uid_base, host->uid_count);
        (void)snprintf(gids, sizeof(gids), "%s", uids);
    } else {
        (void)snprintf(uids, sizeof(uids), "%d %u 1\n", PLAN_GUEST_UID, geteuid());
        (void)snprintf(gids, sizeof(gids), "%d %u 1\n", PLAN_GUEST_UID, getegid());
        /* Without it the kernel refuses an unprivileged map of groups. */
        int r = host_write_proc(pid, "setgroups", "deny");
        if (r < 0)
            return r;
    }
    int r = host_write_proc(pid, "gid_map", gids);
    return r < 0 ? r : host_write_proc(pid, "uid_map", uids);
}

static pid_t clone_spawner(const struct native_host *host, int wire, int *ret_pidfd, int *ret_go)
{
    int go[2];
    if (pipe2(go, O_CLOEXEC) < 0)
        return -errno;
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                 CLONE_NEWUTS | (host->network ? 0 : CLONE_NEWNET),
        .pidfd = (uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };
    if (host->cgroups.kind == CGROUP_V2) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)host->cgroups.trees[0].dir;
    }
    pid_t pid = sys_clone3(&args);
    if (pid == 0) {
        close(go[1]);
        spawner_run(host, wire, go[0]);
    }
    close(go[0]);
    *ret_go = go[1];
    return pid;
}

/* The server waits for a first word; say what went wrong here. */
static void tell_failure(int wire, const char *step, int code)
{
    struct wire_event event = { .kind = WIRE_FAILED, .code = code };
    (void)snprintf(event.step, sizeof(event.step), "%s", step);
    (void)!send(wire, &event, sizeof(event), MSG_NOSIGNAL); /* it may be gone */
}

static void wait_for_end(int server, int spawner)
{
    struct pollfd watched[] = { { .fd = spawner, .events = POLLIN },
                                { .fd = server, .events = POLLIN } };
    while (!watched[0].revents)
        if (poll(watched, 2, -1) > 0 && watched[1].revents && !watched[0].revents) {
            (void)poll(watched, 1, GRACE_MS);
            if (!watched[0].revents)
                (void)sys_pidfd_send_signal(spawner, SIGKILL);
            (void)poll(watched, 1, -1); /* a killed process does die */
        }
    siginfo_t info;
    (void)waitid(P_PIDFD, (id_t)spawner, &info, WEXITED);
}

static void remove_traces(const struct native_host *host, pid_t server)
{
    int r = cgroups_remove(&host->cgroups);
    if (r < 0) {
        log_warning("cgroups of instance %s stay behind: %s", host->instance.id, strerror(-r));
        return; /* the file stays too, for the next start */
    }
    cgroups_go_home(&host->cgroups, server);
    instance_remove(&host->instance);
}

void host_deafen(void)
{
    (void)setsid(); /* a terminal's ^C is the server's business */
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        (void)signal(ignored[i], SIG_IGN);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGCHLD, SIG_DFL);
}

void keeper_run(struct native_host *host, int wire)
{
    pid_t server = getppid();
    host_deafen();
    (void)prctl(PR_SET_NAME, "belljar-keeper");

    int keep[10 + CGROUP_TREES_MAX] = { wire,           host->server,       host->mould,
                                        host->landlock, host->instance.dir, host->instance.lock };
    size_t n = 6;
    for (size_t i = 0; i < host->cgroups.n; i++)
        keep[n++] = host->cgroups.trees[i].dir;
    host_close_all_but(keep, n);

    int spawner = -1, go = -1;
    pid_t pid = clone_spawner(host, wire, &spawner, &go);
    int r = pid < 0 ? 0 : map_spawner(host, pid);
    if (pid < 0)
        tell_failure(wire, "make the spawner's namespaces", -pid);
    else if (r < 0 || write(go, "", 1) != 1)
        tell_failure(wire, "map the spawner's ids", r < 0 ? -r : EPIPE);
    if (pid >= 0) {
        if (r < 0)
            (void)sys_pidfd_send_signal(spawner, SIGKILL);
        int last[] = { host->server, spawner, host->instance.dir, host->instance.lock };
        host_close_all_but(last, ARRAY_SIZE(last));
        wait_for_end(host->server, spawner);
    }
    remove_traces(host, server);
    _exit(0);
}
