/*
 * The start of the native engine, with whatever rights belljar was given: what is on the host is
 * looked at, the instance's file and cgroups are made, the keeper is forked and, by it, the spawner.
 * After native_host_open() the server needs its rights no more.
 */
#include "engine/native/open.h"

#include "agent/image.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3 */
#endif

enum { FIRST_WORD_MS = 15000 };

/* Layers that every sandbox gets or none starts: the spawner's first sandbox is the test. */
enum {
    ALWAYS = LAYER_USER_NS | LAYER_MOUNT_NS | LAYER_PID_NS | LAYER_NET_NS | LAYER_IPC_NS |
             LAYER_UTS_NS | LAYER_CGROUP_NS | LAYER_SECCOMP,
    LIMITS = LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT,
};

static int make_mould(struct err *err)
{
    auto_fd fd = memfd_create("belljar-mould", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("belljar-mould", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || write(fd, mould_image, mould_image_len) != (ssize_t)mould_image_len)
        return err_sys(err, errno, "put the agent into memory");
    /* Nobody, not even a guest that finds it in /proc, may change what the next sandbox runs. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return err_sys(err, errno, "seal the agent");
    return steal_fd(&fd);
}

/* A second wall behind the network namespace: no abstract socket across the border (Linux 6.12). Where the
 * kernel is older there is just the first. Signals are left to the pid namespace: a kernel that has been
 * forked into the sandbox cannot be in the agent's domain, which is inherited only, and neither the agent
 * nor a run could end it then. With the host's network no kernel is forked, and TCP goes to the ports that
 * are needed (6.7). */
static int make_landlock(const struct engine_network *network)
{
    int abi = sys_landlock_abi();
    struct landlock_ruleset_6 ruleset = { 0 };
    if (abi >= 6)
        ruleset.scoped = LANDLOCK_6_SCOPE_ABSTRACT_UNIX_SOCKET;
    if (abi >= 6 && network)
        ruleset.scoped |= LANDLOCK_6_SCOPE_SIGNAL;
    if (abi >= 4 && network)
        ruleset.handled_access_net = LANDLOCK_4_BIND_TCP | LANDLOCK_4_CONNECT_TCP;
    if (!ruleset.scoped && !ruleset.handled_access_net)
        return -1;
    auto_fd fd = sys_landlock_create(&ruleset);
    size_t n_ports = network && ruleset.handled_access_net ? network->n_ports : 0;
    for (size_t i = 0; fd >= 0 && i < n_ports; i++)
        if (sys_landlock_allow_port(fd, LANDLOCK_4_CONNECT_TCP, network->ports[i]) < 0)
            return -1;
    return fd < 0 ? -1 : steal_fd(&fd);
}

static unsigned limit_layers(const struct cgroups *cgroups)
{
    return (cgroups->controllers & CGROUP_MEMORY ? LAYER_MEMORY_LIMIT : 0) |
           (cgroups->controllers & CGROUP_PIDS ? LAYER_PIDS_LIMIT : 0) |
           (cgroups->controllers & CGROUP_CPU ? LAYER_CPU_LIMIT : 0);
}

static int check_layers(const struct native_host *host, unsigned active, unsigned allowed,
                        struct err *err)
{
    unsigned missing = LIMITS & ~active & ~allowed;
    if (!missing)
        return 0;
    char names[128] = "";
    for (unsigned bit = 1; bit <= LAYER_LANDLOCK; bit <<= 1)
        if (missing & bit)
            (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                           *names ? ", " : "", engine_layer_name(bit));
    return err_set(
        err, ENOTSUP,
        "cannot enforce %s: %s. Run as root, or in a delegated cgroup (systemd-run --user "
        "--scope -p Delegate=yes), or name them in allow_missing",
        names, host->cgroups.missing);
}

static int check_range(const struct engine_options *options, struct err *err)
{
    uint64_t end = (uint64_t)options->uid_base + options->uid_count;
    bool holds_server = options->uid_base <= ENGINE_DEFAULT_UID && end > ENGINE_DEFAULT_UID;
    if (options->uid_base < 1000 || end > UINT32_MAX - 1 || options->uid_count < 3 || holds_server)
        return err_set(
            err, EINVAL,
            "uid range %u+%u: it must start at 1000 or above, hold at least 3 ids, and not "
            "%d, which the server takes",
            options->uid_base, options->uid_count, ENGINE_DEFAULT_UID);
    return 0;
}

static int fill(struct native_host *host, const struct engine_options *options, pid_t server,
                unsigned *ret_layers, struct err *err)
{
    *host = (struct native_host){
        .rootfs = options->rootfs ? options->rootfs : "",
        .packages = options->packages.dir ? options->packages.dir : "",
        .network = options->network,
        .zygote = { .python = options->kernels.python ? options->kernels.python : "",
                    .preload = options->kernels.preload,
                    .n_preload = options->kernels.n_preload,
                    .memory_bytes = options->kernels.memory_bytes,
                    .max_forks = options->kernels.max_forks,
                    .max_age_ms = options->kernels.max_age_ms,
                    .huge_pages = options->kernels.huge_pages,
                    .freeze = options->kernels.freeze },
        .own_uids = geteuid() == 0,
        .uid_base = options->uid_base,
        .uid_count = options->uid_count,
        .slots = WIRE_SLOTS_MAX,
        .instance = { -1, -1, "" },
        .mould = -1,
        .landlock = -1,
        .server = -1
    };
    int r = host->own_uids ? check_range(options, err) : 0;
    if (r == 0)
        r = runtime_find(options->runtime, options->rootfs, &host->runtime, err);
    if (host->own_uids && (options->uid_count - 1) / 2 < host->slots)
        host->slots = (options->uid_count - 1) / 2;
    if (r == 0)
        r = seccomp_build(SECCOMP_SPAWNER, &host->spawner_filter, err);
    if (r == 0)
        r = seccomp_build(host->network ? SECCOMP_AGENT_NETWORK : SECCOMP_AGENT,
                          &host->agent_filter, err);
    if (r == 0)
        r = seccomp_build(host->own_uids ? SECCOMP_GUEST : SECCOMP_GUEST_SHARED,
                          &host->guest_filter, err);
    if (r == 0)
        r = host->mould = make_mould(err);
    if (r >= 0 && (r = host->server = sys_pidfd_open(server)) < 0)
        r = err_sys(err, -r, "pidfd_open");
    if (r >= 0)
        r = instance_open(options->state_dir, INSTANCES_NATIVE, options->instance, &host->instance,
                          err);
    if (r >= 0)
        r = instance_note(&host->instance, err);
    if (r < 0)
        return r;
    host->landlock = make_landlock(host->network);
    instance_clean_others(&host->instance);
    cgroups_open(&host->cgroups, options->instance, host->own_uids ? options->uid_base : geteuid());
    unsigned always = host->network ? ALWAYS & ~LAYER_NET_NS : ALWAYS;
    *ret_layers = always | limit_layers(&host->cgroups) | (host->own_uids ? LAYER_OWN_UID : 0) |
                  (host->landlock >= 0 ? LAYER_LANDLOCK : 0);
    return check_layers(host, *ret_layers, options->allow_missing, err);
}

/* Descriptors and memory; what the keeper removes stays. */
static void host_done(struct native_host *host)
{
    runtime_done(&host->runtime);
    cgroups_close(&host->cgroups);
    instance_close(&host->instance);
    fd_closep(&host->mould);
    fd_closep(&host->landlock);
    fd_closep(&host->server);
    seccomp_program_done(&host->spawner_filter);
    seccomp_program_done(&host->agent_filter);
    seccomp_program_done(&host->guest_filter);
}

static void undo(struct native_host *host)
{
    (void)cgroups_remove(&host->cgroups); /* empty: nothing was started */
    cgroups_go_home(&host->cgroups, getpid());
    if (host->instance.dir >= 0)
        instance_remove(&host->instance);
    host_done(host);
}

/*** Until there is a keeper ***/

/* A server that is killed after it has made the instance's file and before the keeper is there would
 * leave it behind. This child waits for a byte, the sign that it is not needed any more; the end of
 * the pipe without one means that the server is dead. */
struct guard {
    pid_t pid;
    int done;
};

static int guard_start(const struct engine_options *options, struct guard *ret, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        host_deafen();
        host_close_all_but(fds, 1);
        if (read(fds[0], &byte, 1) == 0)
            instance_clean_dead(options->state_dir, options->instance);
        _exit(0);
    }
    close(fds[0]);
    *ret = (struct guard){ .pid = pid, .done = fds[1] };
    if (pid < 0) {
        close(fds[1]);
        return err_sys(err, errno, "fork");
    }
    return 0;
}

static void guard_end(struct guard *guard)
{
    if (write(guard->done, "", 1) != 1)
        (void)kill(guard->pid, SIGKILL); /* else it would take us for dead, and wait for that */
    close(guard->done);
    (void)waitpid(guard->pid, NULL, 0);
}

static const char *userns_hint(int code)
{
    return code == EPERM || code == ENOSPC || code == EACCES
               ? ". User namespaces seem to be switched off: see kernel.unprivileged_userns_clone, "
                 "user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns; "
                 "`belljar "
                 "doctor` tells which"
               : "";
}

/* The keeper of an engine that nobody waits for: all that takes time is done beside the server. Its
 * first word, good or bad, comes to the server's loop like all others. */
static _Noreturn void keep_later(const struct engine_options *options, int wire)
{
    struct native_host host;
    struct err err = { 0 };
    unsigned layers;
    host_deafen(); /* before there is something to leave behind */
    if (fill(&host, options, getppid(), &layers, &err) == 0)
        keeper_run(&host, wire);
    undo(&host);
    struct wire_event failed = { .kind = WIRE_FAILED };
    (void)snprintf(failed.step, sizeof(failed.step), "%.*s", (int)sizeof(failed.step) - 1, err.msg);
    (void)!send(wire, &failed, sizeof(failed), MSG_NOSIGNAL); /* it may be gone */
    _exit(1);
}

static int open_later(const struct engine_options *options, struct native_started *ret,
                      struct err *err)
{
    int wires[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) < 0)
        return err_sys(err, errno, "make the spawner's socket");
    bool own_uids = geteuid() == 0;
    uint32_t slots = own_uids ? (options->uid_count - 1) / 2 : WIRE_SLOTS_MAX;
    pid_t keeper = fork();
    if (keeper == 0) {
        close(wires[0]);
        keep_later(options, wires[1]);
    }
    close(wires[1]);
    if (keeper < 0) {
        close(wires[0]);
        return err_sys(err, errno, "fork");
    }
    *ret = (struct native_started){ .wire = wires[0],
                                    .keeper = keeper,
                                    .slots = slots < WIRE_SLOTS_MAX ? slots : WIRE_SLOTS_MAX,
                                    .own_uids = own_uids };
    return 0;
}

int native_host_open(const struct engine_options *options, struct native_started *ret,
                     struct err *err)
{
    if (options->network)
        return open_later(options, ret, err);
    struct native_host host;
    struct native_started started = { .wire = -1 };
    struct guard guard = { .pid = -1, .done = -1 };
    int r = guard_start(options, &guard, err), wires[2] = { -1, -1 };
    if (r < 0)
        return r;
    r = fill(&host, options, getpid(), &started.layers, err);
    if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) < 0)
        r = err_sys(err, errno, "make the spawner's socket");
    if (r < 0) {
        undo(&host);
        guard_end(&guard);
        return r;
    }
    started.cgroup = host.cgroups.kind;
    started.slots = host.slots;
    started.own_uids = host.own_uids;
    (void)snprintf(started.missing, sizeof(started.missing), "%s", host.cgroups.missing);

    pid_t keeper = fork();
    if (keeper == 0)
        keeper_run(&host, wires[1]);
    close(wires[1]);
    auto_fd wire = wires[0];
    if (keeper < 0) {
        r = err_sys(err, errno, "fork");
        undo(&host);
        guard_end(&guard);
        return r;
    }
    guard_end(&guard);
    host_done(&host);

    struct wire_event first;
    struct pollfd watched = { .fd = wire, .events = POLLIN };
    ssize_t n = poll(&watched, 1, FIRST_WORD_MS) == 1 ? recv(wire, &first, sizeof(first), 0) : -1;
    if (n == (ssize_t)sizeof(first) && first.kind == WIRE_READY) {
        started.wire = steal_fd(&wire);
        started.keeper = keeper;
        *ret = started;
        return 0;
    }
    if (n != (ssize_t)sizeof(first))
        r = err_set(err, EIO, "the spawner died at its start");
    else if (first.code)
        r = err_set(err, first.code, "%s: %s%s", first.step, strerror(first.code),
                    userns_hint(first.code));
    else
        r = err_set(err, EIO, "%s", first.step);
    close(steal_fd(&wire));
    (void)waitpid(keeper, NULL, 0);
    return r;
}
