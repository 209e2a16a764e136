/*
 * What this host can do, as a table of questions. What only an attempt can answer is tried in a
 * child that ends at once.
 */
#include "engine/native/open.h"

#include "base/log.h"
#include "engine/native/cgroup.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include <sys/wait.h>

typedef void check_fn(const struct engine_options *options, struct engine_check *ret);

static void set(struct engine_check *check, enum engine_verdict verdict, const char *detail,
                const char *remedy)
{
    check->verdict = verdict;
    (void)snprintf(check->detail, sizeof(check->detail), "%s", detail);
    (void)snprintf(check->remedy, sizeof(check->remedy), "%s", remedy);
}

/* A number from /proc/sys, or -1. */
static long sysctl_value(const char *path)
{
    char text[32] = "";
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    return n > 0 ? strtol(text, NULL, 10) : -1;
}

static void check_kernel(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    struct utsname name;
    char *end;
    (void)uname(&name);
    long major = strtol(name.release, &end, 10),
         minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (major > 5 || (major == 5 && minor >= 14))
        set(ret, ENGINE_OK, name.release, "");
    else
        set(ret, ENGINE_PROBLEM, name.release, "Linux 5.14 or later is needed.");
}

/* Runs `attempt` in a child with these new namespaces; 0 or the errno value. */
static int try_in_child(uint64_t namespaces, int (*attempt)(void))
{
    struct clone_args args = { .flags = namespaces, .exit_signal = SIGCHLD };
    pid_t pid = sys_clone3(&args);
    if (pid < 0)
        return -pid;
    if (pid == 0)
        _exit(attempt ? attempt() : 0);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static int mount_something(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? errno : 0;
}

static void check_user_namespaces(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    int code = try_in_child(CLONE_NEWUSER | CLONE_NEWNS, mount_something);
    if (code == 0) {
        set(ret, ENGINE_OK, "can be made", "");
        return;
    }
    set(ret, ENGINE_PROBLEM, strerror(code), "");
    const char *remedy =
        sysctl_value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1
            ? "AppArmor restricts them (Ubuntu 23.10 and later): install belljar's AppArmor "
              "profile, "
              "or as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        : sysctl_value("/proc/sys/kernel/unprivileged_userns_clone") == 0
            ? "As root: sysctl -w kernel.unprivileged_userns_clone=1"
        : sysctl_value("/proc/sys/user/max_user_namespaces") == 0
            ? "As root: sysctl -w user.max_user_namespaces=10000"
            : "In a container: allow clone and mount (docker run --security-opt seccomp=unconfined "
              "--security-opt apparmor=unconfined --security-opt systempaths=unconfined).";
    (void)snprintf(ret->remedy, sizeof(ret->remedy), "%s", remedy);
}

static int mount_proc(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno;
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0;
}

static void check_proc(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    int code = try_in_child(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, mount_proc);
    if (code == 0)
        set(ret, ENGINE_OK, "can be mounted afresh", "");
    else
        set(ret, ENGINE_PROBLEM, strerror(code),
            "Parts of /proc are hidden, as in a container: docker run --security-opt "
            "systempaths=unconfined.");
}

static int make_namespaces(void)
{
    return unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0
               ? errno
               : 0;
}

static void check_namespaces(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    int code = try_in_child(CLONE_NEWUSER | CLONE_NEWNS, make_namespaces);
    if (code == 0)
        set(ret, ENGINE_OK, "mount, pid, network, ipc, uts, cgroup", "");
    else
        set(ret, ENGINE_PROBLEM, strerror(code),
            "The kernel must be built with all namespaces, and user.max_*_namespaces must not be "
            "0.");
}

/* Makes and removes this instance's directories under a name of its own. */
static void check_cgroups(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    struct cgroups cgroups;
    char name[32];
    (void)snprintf(name, sizeof(name), "check-%d", (int)getpid());
    cgroups_open(&cgroups, name, geteuid());
    unsigned have = cgroups.controllers;
    const char *kind = cgroups.kind == CGROUP_V2 ? "v2" : cgroups.kind == CGROUP_V1 ? "v1" : "none";
    cgroups_close(&cgroups);
    (void)cgroups_remove(&cgroups); /* empty: it succeeds */
    cgroups_go_home(&cgroups, getpid());
    char detail[sizeof(ret->detail)];
    (void)snprintf(detail, sizeof(detail), "%s:%s%s%s%s%.150s", kind,
                   have & CGROUP_MEMORY ? " memory" : "", have & CGROUP_PIDS ? " pids" : "",
                   have & CGROUP_CPU ? " cpu" : "", *cgroups.missing ? "; missing: " : "",
                   cgroups.missing);
    bool all = (have & CGROUP_MEMORY) && (have & CGROUP_PIDS) && (have & CGROUP_CPU);
    set(ret, all ? ENGINE_OK : ENGINE_WARNING, detail,
        all ? ""
            : "Run as root, or delegate a cgroup: systemd-run --user --scope -p Delegate=yes "
              "belljar …, "
              "or Delegate=yes in the unit. Without it memory, pids and cpu are not limited, and "
              "belljar starts only if allow_missing says so.");
}

static void check_seccomp(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    int r = sys_result(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    if (r == 0)
        set(ret, ENGINE_OK, "filters can be loaded", "");
    else
        set(ret, ENGINE_PROBLEM, strerror(-r),
            "The kernel must be built with CONFIG_SECCOMP_FILTER.");
}

static void check_landlock(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    int abi = sys_landlock_abi();
    char detail[64];
    (void)snprintf(detail, sizeof(detail), "interface %d", abi);
    if (abi >= 6)
        set(ret, ENGINE_OK, detail, "");
    else
        set(ret, ENGINE_WARNING, abi > 0 ? detail : "not available",
            "Linux 6.12 or later gives a second wall behind the namespaces; belljar works "
            "without.");
}

static void check_uids(const struct engine_options *options, struct engine_check *ret)
{
    char detail[sizeof(ret->detail)];
    if (geteuid() != 0) {
        (void)snprintf(detail, sizeof(detail), "all sandboxes run as uid %u", geteuid());
        set(ret, ENGINE_WARNING, detail, "As root each sandbox gets a uid of its own.");
        return;
    }
    uint64_t first = options->uid_base, end = first + options->uid_count;
    (void)snprintf(detail, sizeof(detail), "%llu to %llu", (unsigned long long)first,
                   (unsigned long long)end - 1);
    set(ret, ENGINE_OK, detail, "");
    setpwent();
    // cppcheck-suppress getpwentCalled
    for (const struct passwd *user = getpwent(); user; user = getpwent())
        if (user->pw_uid >= first && user->pw_uid < end && ret->verdict == ENGINE_OK) {
            (void)snprintf(detail, sizeof(detail), "user %.64s has uid %u, inside the range",
                           user->pw_name, user->pw_uid);
            set(ret, ENGINE_PROBLEM, detail, "Choose another range with uid_base and uid_count.");
        }
    endpwent();
}

static void check_overlay(const struct engine_options *options, struct engine_check *ret)
{
    (void)options;
    FILE *file = fopen("/proc/filesystems", "re");
    char line[128];
    bool found = false;
    while (file && fgets(line, sizeof(line), file))
        found |= strstr(line, "\toverlay\n") != NULL;
    if (file)
        (void)fclose(file);
    set(ret, found ? ENGINE_OK : ENGINE_WARNING, found ? "known to the kernel" : "not loaded",
        found ? "" : "modprobe overlay; the native engine does not need it.");
}

static void check_runtime(const struct engine_options *options, struct engine_check *ret)
{
    struct runtime runtime;
    struct err err = { 0 };
    if (runtime_find(options->runtime, options->rootfs, &runtime, &err) < 0) {
        set(ret, ENGINE_PROBLEM, err.msg, "see runtime in docs/configuration.md");
        return;
    }
    char detail[sizeof(ret->detail)];
    (void)snprintf(detail, sizeof(detail), "%.100s%s%.80s",
                   runtime.dir ? runtime.dir : "none; the system's python3 is used",
                   runtime.n_bases ? ", its interpreter in " : "",
                   runtime.n_bases ? runtime.bases[0] : "");
    if (runtime.dir && runtime_is_hidden(runtime.dir))
        set(ret, ENGINE_WARNING, detail,
            "Sandboxes have files of their own there: scripts of the environment that name its "
            "path, such as pip, do not start. Make it elsewhere.");
    else
        set(ret, ENGINE_OK, detail, "");
    runtime_done(&runtime);
}

static const struct {
    const char *name;
    check_fn *run;
} checks[] = {
    { "kernel", check_kernel },
    { "user namespaces", check_user_namespaces },
    { "other namespaces", check_namespaces },
    { "proc", check_proc },
    { "cgroups", check_cgroups },
    { "seccomp", check_seccomp },
    { "landlock", check_landlock },
    { "uids", check_uids },
    { "overlay", check_overlay },
    { "runtime", check_runtime },
};
_Static_assert(ARRAY_SIZE(checks) <= ENGINE_CHECKS_MAX, "all fit");

size_t native_checks(const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX])
{
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        ret[i] = (struct engine_check){ .name = checks[i].name };
        checks[i].run(options, &ret[i]);
    }
    return ARRAY_SIZE(checks);
}
