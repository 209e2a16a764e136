#include "engine/native/zygotes.h"

#include "agent/signals.h"
#include "base/log.h"
#include "engine/native/sys.h"
#include "kernel/source.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum {
    BEGIN_MS = 250,      /* a client that only looks at what there is has gone by then */
    WARM_UP_MS = 120000, /* imports from a cold disk take their time */
    ORDER_MS = 2000,
    LEAVE_MS = 10000,
    BURY_MS = 5,
    STEADY_MS = 60000, /* one that has served this long was no failure */
    RETRY_MS = 500,    /* doubled with each failure */
    RETRY_MAX_MS = 300000,
    SOON_MS = 3000, /* what may be waited for */
    /* Far from what sandboxes count through: libraries tell a fork by another pid. */
    FIRST_PID = 30000,
    PIDS = 1000,
};

#define CAP_BIT(capability) (UINT64_C(1) << (capability))
/* To enter the namespaces of a sandbox, and its cgroup, which belongs to its agent. */
#define ZYGOTE_CAPABILITIES (CAP_BIT(CAP_SYS_ADMIN) | CAP_BIT(CAP_DAC_OVERRIDE))

enum { WATCH_CONTROL, WATCH_PIDFD };

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* always there on Linux */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*** The child, up to exec ***/

struct birth {
    const struct native_host *host;
    int control, setup, cgroup; /* cgroup -1: none */
};

static int place_descriptors(const struct birth *birth)
{
    int null = open("/dev/null", O_RDWR);
    int wanted[6] = { null, null, null, birth->control, birth->setup, birth->host->landlock };
    int n = birth->host->landlock < 0 ? 5 : 6;
    for (int i = 0; i < n; i++)
        if ((wanted[i] = fcntl(wanted[i], F_DUPFD, 64)) < 0)
            return -errno;
    for (int i = 0; i < n; i++)
        if (dup2(wanted[i], i) < 0)
            return -errno;
    return sys_close_range((unsigned)n, ~0u);
}

/* Libraries write where they please when they are imported; it is gone with the namespace. */
static int private_tmp(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV,
                                          "mode=1777,size=64m,nr_inodes=4096") < 0)
        return -errno;
    return 0;
}

/* And no others, for good. */
static int keep_capabilities(void)
{
    for (int cap = 0; cap < 64; cap++)
        if (!(ZYGOTE_CAPABILITIES & CAP_BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* past the last one */
            return -errno;
        }
    return host_keep_capabilities(ZYGOTE_CAPABILITIES);
}

/* Its children inherit it, and of what is ours it is the easiest to replace. Only a hint. */
static void prefer_for_oom(void)
{
    auto_fd fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, "1000", 4);
}

static void default_signals(void)
{
    for (int number = 1; number < NSIG; number++)
        (void)signals_default(number); /* KILL and STOP refuse */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As the agent starts a kernel: its own list, then what every kernel gets. */
static int exec_python(const struct zygote_options *options)
{
    static const char agents[] = AGENT_DEFAULT_ENV;
    static const char *const kernels[] = { KERNEL_ENVIRONMENT };
    static const char *env[16 + ARRAY_SIZE(kernels)],
        *argv[3 + 256]; /* outlive us, as environ does */
    size_t n = 0, argc = 0;
    for (const char *at = agents; at < agents + sizeof(agents) && n < 15; at += strlen(at) + 1)
        env[n++] = at;
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
        env[n++] = kernels[i];
    env[n] = NULL;
    argv[argc++] = options->python;
    argv[argc++] = "-u";
    argv[argc++] = ZYGOTE_DIRECTORY "/zygote.py";
    for (size_t i = 0; i < options->n_preload && argc < ARRAY_SIZE(argv) - 1; i++)
        argv[argc++] = options->preload[i];
    argv[argc] = NULL;
    environ = (char **)env; /* whose PATH is the one that counts */
    (void)execvp(options->python, (char *const *)argv);
    return -errno;
}

static int become_zygote(const struct birth *birth, const char **ret_step)
{
    *ret_step = "enter its cgroup";
    if (birth->cgroup >= 0 && birth->host->cgroups.kind == CGROUP_V1 &&
        write(birth->cgroup, "0", 1) != 1)
        return -errno;
    *ret_step = "place descriptors";
    int r = place_descriptors(birth);
    if (r < 0)
        return r;
    *ret_step = "mount /tmp";
    r = private_tmp();
    if (r < 0)
        return r;
    struct rlimit none = { 0, 0 };
    *ret_step = "prepare";
    if (setsid() < 0 || chdir(AGENT_WORKSPACE) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        return -errno;
    prefer_for_oom();
    default_signals();
    *ret_step = "keep capabilities";
    r = keep_capabilities();
    if (r < 0)
        return r;
    *ret_step = "die with the spawner";
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    *ret_step = birth->host->zygote.python;
    return exec_python(&birth->host->zygote);
}

static _Noreturn void child(const struct birth *birth)
{
    const char *step = "";
    int r = become_zygote(birth, &step);
    struct zygote_event event = { .kind = ZYGOTE_UNFIT };
    (void)snprintf(event.text, sizeof(event.text), "%.160s: %s", step, strerror(-r));
    /* 3 once descriptors are placed, its old number before. */
    if (send(ZYGOTE_CONTROL_FD, &event, sizeof(event), MSG_NOSIGNAL) < 0)
        (void)!send(birth->control, &event, sizeof(event), MSG_NOSIGNAL);
    _exit(127);
}

/*** Starting one ***/

static int make_setup(const struct native_host *host)
{
    struct zygote_setup setup = {
        .magic = ZYGOTE_MAGIC,
        .version = ZYGOTE_VERSION,
        .namespaces = (uint32_t)(CLONE_NEWUSER | box_namespaces(host)),
        .other_user = host->own_uids,
        .has_landlock = host->landlock >= 0,
        .huge_pages = host->zygote.huge_pages,
        .freeze = host->zygote.freeze,
        .n_filter = host->guest_filter.len,
    };
    size_t filter_len = host->guest_filter.len * sizeof(struct sock_filter);
    auto_fd fd = memfd_create("zygote", MFD_CLOEXEC);
    struct iovec parts[] = { { &setup, sizeof(setup) }, { host->guest_filter.code, filter_len } };
    if (fd < 0)
        return -errno;
    if (pwritev(fd, parts, 2, 0) != (ssize_t)(sizeof(setup) + filter_len))
        return -ENOSPC;
    return steal_fd(&fd);
}

static pid_t clone_zygote(const struct birth *birth, unsigned generation, int *ret_pidfd)
{
    pid_t wanted = FIRST_PID + (pid_t)(generation % PIDS);
    struct clone_args args = {
        .flags = CLONE_PIDFD,
        .pidfd = (uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .set_tid = (uintptr_t)&wanted,
        .set_tid_size = 1,
    };
    if (birth->cgroup >= 0 && birth->host->cgroups.kind == CGROUP_V2) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)birth->cgroup;
    }
    pid_t pid = sys_clone3(&args);
    if (pid == -EINVAL || pid == -EEXIST || pid == -EPERM) { /* any number, then; children check */
        args.set_tid_size = 0;
        args.set_tid = 0;
        pid = sys_clone3(&args);
    }
    if (pid == 0)
        child(birth);
    return pid;
}

static void complain(struct zygotes *zygotes, const char *why)
{
    if (!zygotes->complained)
        log_warning("no Python kernels are kept warm for now: %s; each is started anew", why);
    zygotes->complained = true;
}

static void retry_later(struct zygotes *zygotes, uint64_t now)
{
    uint64_t pause =
        zygotes->failures < 16 ? (uint64_t)RETRY_MS << zygotes->failures : RETRY_MAX_MS;
    zygotes->failures++;
    zygotes->retry_ms = now + (pause < RETRY_MAX_MS ? pause : RETRY_MAX_MS);
}

static int start(struct zygotes *zygotes, struct zygote_process *process)
{
    const struct native_host *host = zygotes->host;
    unsigned generation = ++zygotes->generation;
    int control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        return -errno;
    auto_fd ours = control[0], theirs = control[1];
    auto_fd setup = make_setup(host);
    if (setup < 0)
        return setup;
    auto_fd cgroup = cgroup_make_zygote(&host->cgroups, generation, host->zygote.memory_bytes);
    if (cgroup < 0 && cgroup != -ENOENT)
        return cgroup;
    const struct birth birth = { host, theirs, setup, cgroup };
    int pidfd = -1;
    pid_t pid = clone_zygote(&birth, generation, &pidfd);
    if (pid < 0) {
        cgroup_remove_zygote(&host->cgroups, generation);
        return pid;
    }
    unsigned what = 2 * (unsigned)(process - zygotes->all);
    *process = (struct zygote_process){ .state = ZYGOTE_WARMING,
                                        .control = steal_fd(&ours),
                                        .pidfd = pidfd,
                                        .pid = pid,
                                        .generation = generation,
                                        .since_ms = now_ms() };
    zygotes->events.watch(process->control, what + WATCH_CONTROL, zygotes->data);
    zygotes->events.watch(process->pidfd, what + WATCH_PIDFD, zygotes->data);
    return 0;
}

/*** Orders ***/

static struct zygote_process *serving(struct zygotes *zygotes)
{
    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        if (zygotes->all[i].state == ZYGOTE_SERVING)
            return &zygotes->all[i];
    return NULL;
}

/* One warms up, or is about to be started. */
static bool is_coming(const struct zygotes *zygotes)
{
    bool coming = zygotes->host->zygote.python[0] && zygotes->retry_ms < now_ms() + SOON_MS;
    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        coming |= zygotes->all[i].state == ZYGOTE_WARMING;
    return coming;
}

bool zygotes_serve(struct zygotes *zygotes)
{
    return serving(zygotes) && zygotes->n_orders < ZYGOTES_ORDERS_MAX;
}

int zygotes_order(struct zygotes *zygotes, unsigned slot, struct zygote_order *order,
                  const int *fds, size_t n_fds)
{
    struct zygote_process *process = serving(zygotes);
    if (!process)
        return is_coming(zygotes) ? -EAGAIN : -ENXIO;
    if (zygotes->n_orders == ZYGOTES_ORDERS_MAX)
        return -EBUSY;
    order->magic = ZYGOTE_MAGIC;
    order->ticket = ++zygotes->ticket;
    _Static_assert((int)ZYGOTE_FDS_MAX <= SYS_FDS_MAX, "all of them");
    int r = sys_send_fds(process->control, order, sizeof(*order), fds, n_fds,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r < 0)
        return r;
    process->forks++;
    size_t at = zygotes->n_orders++;
    zygotes->orders[at].ticket = order->ticket;
    zygotes->orders[at].slot = slot;
    zygotes->orders[at].by = process;
    zygotes->orders[at].since_ms = now_ms();
    return 0;
}

static void end_order(struct zygotes *zygotes, size_t at, int code)
{
    unsigned slot = zygotes->orders[at].slot;
    uint32_t ticket = zygotes->orders[at].ticket;
    zygotes->orders[at] = zygotes->orders[--zygotes->n_orders];
    zygotes->events.on_forked(slot, ticket, code, zygotes->data);
}

static void fail_orders(struct zygotes *zygotes, const struct zygote_process *process)
{
    for (size_t i = zygotes->n_orders; i-- > 0;)
        if (zygotes->orders[i].by == process)
            end_order(zygotes, i, EPIPE);
}

/*** What a zygote says, and its end ***/

static void set_state(struct zygote_process *process, enum zygote_state state)
{
    process->state = state;
    process->since_ms = now_ms();
}

static void take_over(struct zygotes *zygotes, struct zygote_process *process, const char *imported)
{
    struct zygote_process *old = serving(zygotes);
    if (old) { /* it answers what it has been asked, and ends */
        (void)shutdown(old->control, SHUT_WR);
        set_state(old, ZYGOTE_LEAVING);
    }
    set_state(process, ZYGOTE_SERVING);
    zygotes->complained = false;
    if (old)
        log_debug("Python kernels are forked from a new process: %s", imported);
    else
        log_info("Python kernels are kept warm: %s", imported);
}

static void kill_zygote(struct zygote_process *process)
{
    (void)sys_pidfd_send_signal(process->pidfd, SIGKILL); /* dead already: fine */
}

static void on_control(struct zygotes *zygotes, struct zygote_process *process)
{
    struct zygote_event event;
    ssize_t n = recv(process->control, &event, sizeof(event), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof(event)) { /* its end, which the pidfd tells of too */
        zygotes->events.unwatch(&process->control, zygotes->data);
        kill_zygote(process);
        return;
    }
    event.text[sizeof(event.text) - 1] = '\0';
    if (event.kind == ZYGOTE_READY && process->state == ZYGOTE_WARMING) {
        take_over(zygotes, process, event.text);
    } else if (event.kind == ZYGOTE_UNFIT && process->state == ZYGOTE_WARMING) {
        complain(zygotes, event.text);
    } else if (event.kind == ZYGOTE_FORKED) {
        for (size_t i = 0; i < zygotes->n_orders; i++)
            if (zygotes->orders[i].ticket == event.ticket && zygotes->orders[i].by == process) {
                if (event.code)
                    log_debug("no kernel forked: %s", strerror(event.code));
                end_order(zygotes, i, event.code);
                break;
            }
    }
}

/* Reaps what it was forking: in a sandbox's pid namespace, which does not end before. They are in its process group, as
 * nobody else is, whose number is not used again while they are there. */
static void bury(struct zygotes *zygotes, struct zygote_process *process)
{
    for (siginfo_t info = { 0 }; waitid(P_PGID, (id_t)process->pid, &info, WEXITED | WNOHANG) == 0;
         info.si_pid = 0)
        if (!info.si_pid)
            return; /* some live */
    cgroup_remove_zygote(&zygotes->host->cgroups, process->generation);
    process->state = ZYGOTE_NONE;
}

static void on_dead(struct zygotes *zygotes, struct zygote_process *process)
{
    siginfo_t info = { 0 };
    char why[100];
    (void)waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG);
    (void)snprintf(why, sizeof(why), "the process they are forked from has died (%s %d)",
                   info.si_code == CLD_EXITED ? "exit status" : "signal", info.si_status);
    uint64_t now = now_ms();
    enum zygote_state state = process->state;
    if (state == ZYGOTE_SERVING && now - process->since_ms > STEADY_MS)
        zygotes->failures = 0;
    if (state != ZYGOTE_LEAVING) {
        complain(zygotes, why);
        retry_later(zygotes, now);
    }
    if (process->control >= 0)
        zygotes->events.unwatch(&process->control, zygotes->data);
    zygotes->events.unwatch(&process->pidfd, zygotes->data);
    fail_orders(zygotes, process);
    process->state = ZYGOTE_DEAD;
    bury(zygotes, process);
}

void zygotes_ready(struct zygotes *zygotes, unsigned what)
{
    struct zygote_process *process = &zygotes->all[what / 2];
    if (process->state == ZYGOTE_NONE || process->state == ZYGOTE_DEAD)
        return; /* an earlier event of the same round */
    if (what % 2 == WATCH_CONTROL && process->control >= 0)
        on_control(zygotes, process);
    else if (what % 2 == WATCH_PIDFD) {
        while (process->control >= 0 &&
               recv(process->control, (char[1]){ 0 }, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
            on_control(zygotes, process); /* its last words, if this event came first */
        on_dead(zygotes, process);
    }
}

/*** The clock ***/

static bool is_due(const struct zygotes *zygotes, const struct zygote_process *process,
                   uint64_t now)
{
    const struct zygote_options *options = &zygotes->host->zygote;
    return process->forks >= options->max_forks || now - process->since_ms >= options->max_age_ms;
}

/* Starts one where none serves, or the one that does is due, and none is on its way. */
static void see_to_one(struct zygotes *zygotes, uint64_t now)
{
    struct zygote_process *unused = NULL, *process = serving(zygotes);
    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        if (zygotes->all[i].state == ZYGOTE_WARMING)
            return;
        if (zygotes->all[i].state == ZYGOTE_NONE)
            unused = &zygotes->all[i];
    }
    if (!unused || now < zygotes->retry_ms || (process && !is_due(zygotes, process, now)))
        return;
    int r = start(zygotes, unused);
    if (r < 0) {
        complain(zygotes, strerror(-r));
        retry_later(zygotes, now);
    }
}

static void end_late_ones(struct zygotes *zygotes, uint64_t now)
{
    for (size_t i = 0; i < zygotes->n_orders; i++)
        if (now - zygotes->orders[i].since_ms >= ORDER_MS && !zygotes->orders[i].by->told) {
            complain(zygotes, "the process they are forked from does not answer");
            zygotes->orders[i].by->told = true;
            kill_zygote(zygotes->orders[i].by);
        }
    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        struct zygote_process *process = &zygotes->all[i];
        uint64_t age = now - process->since_ms;
        if (process->state == ZYGOTE_DEAD)
            bury(zygotes, process);
        if (process->told)
            continue;
        if (process->state == ZYGOTE_WARMING && age >= WARM_UP_MS)
            complain(zygotes, "the imports take too long");
        else if (process->state != ZYGOTE_LEAVING || age < LEAVE_MS)
            continue;
        process->told = true;
        kill_zygote(process);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t renewal_due(const struct zygotes *zygotes, const struct zygote_process *process)
{
    const struct zygote_options *options = &zygotes->host->zygote;
    uint64_t due =
        process->forks >= options->max_forks ? 0 : process->since_ms + options->max_age_ms;
    return due > zygotes->retry_ms ? due : zygotes->retry_ms;
}

static uint64_t next_due(struct zygotes *zygotes)
{
    uint64_t due = UINT64_MAX;
    bool warming = false, room = false;
    for (size_t i = 0; i < zygotes->n_orders; i++)
        due = earlier(due, zygotes->orders[i].since_ms + ORDER_MS);
    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        const struct zygote_process *process = &zygotes->all[i];
        warming |= process->state == ZYGOTE_WARMING;
        room |= process->state == ZYGOTE_NONE;
        if (process->state == ZYGOTE_DEAD)
            due = earlier(due, now_ms() + BURY_MS);
        if (process->told)
            continue; /* it is being killed */
        if (process->state == ZYGOTE_WARMING)
            due = earlier(due, process->since_ms + WARM_UP_MS);
        if (process->state == ZYGOTE_LEAVING)
            due = earlier(due, process->since_ms + LEAVE_MS);
    }
    const struct zygote_process *process = serving(zygotes);
    if (!warming && room)
        due = earlier(due, process ? renewal_due(zygotes, process) : zygotes->retry_ms);
    return due;
}

int zygotes_tick(struct zygotes *zygotes, uint64_t now)
{
    if (!*zygotes->host->zygote.python)
        return -1;
    end_late_ones(zygotes, now);
    see_to_one(zygotes, now);
    uint64_t due = next_due(zygotes);
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 1 : (int)earlier(due - now, INT32_MAX);
}

void zygotes_init(struct zygotes *zygotes, const struct native_host *host,
                  const struct zygotes_events *events, void *data)
{
    zygotes->host = host;
    zygotes->events = *events;
    zygotes->data = data;
    zygotes->retry_ms = now_ms() + BEGIN_MS;
    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        zygotes->all[i].control = zygotes->all[i].pidfd = -1;
}
