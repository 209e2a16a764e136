/*
 * The list of system calls: that the manual tells the same as the table, that it stays small, and
 * that the compiled filter does what the table says, in real children.
 *
 *     build/tests/unit/test_seccomp print >docs/syscalls.md
 */
#include "check.h"

#include "engine/native/seccomp.h"
#include "engine/native/seccomp_list.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void manual_is_up_to_date(void **state)
{
    (void)state;
    auto_buf want = BUF_INIT(BUF_NO_CEILING);
    seccomp_document(&want);
    const char *root = getenv("SOURCE_ROOT");
    auto_free char *path = xasprintf("%s/docs/syscalls.md", root ? root : ".");
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = xcalloc(1, want.len + 2);
    size_t len = fread(text, 1, want.len + 1, file);
    (void)fclose(file);
    assert_int_equal(len, want.len);
    assert_string_equal(text, want.data);
    free(text);
}

static void at_most_300_calls(void **state)
{
    (void)state;
    size_t calls = 0;
    const char *last = "";
    for (size_t g = 0; g < n_syscall_groups; g++)
        for (size_t i = 0; i < syscall_groups[g].n_rules; i++) {
            const struct syscall_rule *rule = &syscall_groups[g].rules[i];
            calls += strcmp(rule->name, last) != 0;
            last = rule->name;
            /* A name that libseccomp does not know anywhere is a misspelling. */
            int number = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, rule->name);
            if (number == __NR_SCMP_ERROR)
                fail_msg("there is no system call %s", rule->name);
        }
    assert_in_range(calls, 200, 300);
}

/* As the processes of a sandbox get them, one on top of the other. */
static bool load(const struct seccomp_program *programs, size_t n)
{
    bool all = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    for (size_t i = 0; i < n; i++)
        all = all && sys_seccomp_filter(programs[i].code, programs[i].len) == 0;
    return all;
}

/* The errno value of a call under the filters, 0 when it succeeds, -signal when it kills. */
static int under(enum seccomp_role role, long (*call)(void))
{
    struct seccomp_program programs[3];
    size_t n = 0;
    struct err err;
    for (enum seccomp_role outer = SECCOMP_SPAWNER; outer <= SECCOMP_AGENT && outer < role; outer++)
        assert_int_equal(seccomp_build(outer, &programs[n++], &err), 0);
    assert_int_equal(seccomp_build(role, &programs[n++], &err), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (!load(programs, n))
            _exit(255);
        errno = 0;
        _exit(call() < 0 ? errno : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    while (n > 0)
        seccomp_program_done(&programs[--n]);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static long call_getpid(void)
{
    return syscall(SYS_getpid);
}
static long call_unknown(void)
{
    return syscall(SYSCALL_HIGHEST_KNOWN + 1);
}
static long call_in_gap(void)
{
    return syscall(400);
}
static long call_mount(void)
{
    return syscall(SYS_mount, 0, 0, 0, 0, 0);
}
static long call_unshare(void)
{
    return syscall(SYS_unshare, CLONE_NEWUSER);
}
static long call_clone3(void)
{
    return syscall(SYS_clone3, NULL, 0);
}
static long call_clone_newuser(void)
{
    return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
}
static long call_ptrace(void)
{
    return syscall(SYS_ptrace, 0, 0, 0, 0);
}
static long call_seccomp(void)
{
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &(uint32_t){ SECCOMP_RET_ALLOW });
}
static long call_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}
static long call_packet(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0);
}
static long call_vsock(void)
{
    return socket(AF_VSOCK, SOCK_STREAM, 0);
}
static long call_route(void)
{
    return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}
static long call_audit(void)
{
    return socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
}
static long call_flags(void)
{
    return ioctl(-1, SIOCSIFFLAGS, NULL);
}
static long call_listen(void)
{
    return ioctl(-1, SECCOMP_IOCTL_NOTIF_RECV, NULL);
}
static long call_index(void)
{
    return ioctl(-1, SIOCGIFINDEX, NULL);
}
static long call_tiocsti(void)
{
    return ioctl(0, TIOCSTI, "x");
}
/* The kernel looks at 32 bits of the request only (CVE-2019-10063). */
static long call_tiocsti_64(void)
{
    return syscall(SYS_ioctl, 0, 0x100000000 | TIOCSTI, "x");
}
static long call_limit_self(void)
{
    return syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &(struct rlimit){ 0 });
}
static long call_limit_parent(void)
{
    return syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, NULL, &(struct rlimit){ 0 });
}
static long call_affinity_parent(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    return syscall(SYS_sched_setaffinity, getppid(), 0,
                   &set); /* of length 0: EINVAL if let through */
}
#ifdef __x86_64__
static long call_i386(void)
{
    long r = 20; /* getpid there, writev here */
    __asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
    return r;
}
static long call_x32(void)
{
    return syscall(0x40000000 | SYS_getpid);
}
#endif

static void filter_does_what_the_table_says(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum seccomp_role role;
        long (*call)(void);
        int want;
    } cases[] = {
        { "listed", SECCOMP_GUEST, call_getpid, 0 },
        { "beyond the list", SECCOMP_GUEST, call_unknown, ENOSYS },
        { "in the gap", SECCOMP_GUEST, call_in_gap, ENOSYS },
        { "mount", SECCOMP_GUEST, call_mount, EPERM },
        { "unshare", SECCOMP_GUEST, call_unshare, EPERM },
        { "clone3", SECCOMP_GUEST, call_clone3, ENOSYS },
        { "clone3 of the agent", SECCOMP_AGENT, call_clone3, EINVAL },
        { "clone into a namespace", SECCOMP_GUEST, call_clone_newuser, EPERM },
        { "clone into a namespace, agent", SECCOMP_AGENT, call_clone_newuser, EPERM },
        { "ptrace", SECCOMP_GUEST, call_ptrace, EPERM },
        { "seccomp", SECCOMP_GUEST, call_seccomp, EPERM },
        { "seccomp of the agent", SECCOMP_AGENT, call_seccomp, 0 },
        { "mount of the agent", SECCOMP_AGENT, call_mount, EPERM },
        { "mount of the spawner", SECCOMP_SPAWNER, call_mount, EFAULT },
        { "interface flags", SECCOMP_GUEST, call_flags, EPERM },
        { "calls of others of the agent", SECCOMP_AGENT, call_listen, EPERM },
        { "calls of others", SECCOMP_GUEST, call_listen, EPERM },
        { "interface flags of the spawner", SECCOMP_SPAWNER, call_flags, EBADF },
        { "calls of others of the spawner", SECCOMP_SPAWNER, call_listen, EBADF },
        { "interface index", SECCOMP_GUEST, call_index, EBADF },
        { "AF_UNIX", SECCOMP_GUEST, call_unix, 0 },
        { "AF_PACKET", SECCOMP_GUEST, call_packet, EPERM },
        { "AF_VSOCK", SECCOMP_GUEST, call_vsock, EPERM },
        { "route netlink", SECCOMP_GUEST, call_route, 0 },
        { "audit netlink", SECCOMP_GUEST, call_audit, EPERM },
        { "TIOCSTI", SECCOMP_GUEST, call_tiocsti, EPERM },
        { "TIOCSTI with high bits", SECCOMP_GUEST, call_tiocsti_64, EPERM },
        { "own limits", SECCOMP_GUEST, call_limit_self, 0 },
        { "another's limits", SECCOMP_GUEST, call_limit_parent, EPERM },
        { "another's affinity", SECCOMP_GUEST, call_affinity_parent, EINVAL },
        { "another's affinity, one uid", SECCOMP_GUEST_SHARED, call_affinity_parent, EPERM },
#ifdef __x86_64__
        { "i386", SECCOMP_GUEST, call_i386, -SIGSYS },
        { "x32", SECCOMP_GUEST, call_x32, ENOSYS },
#endif
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_INT(cases[i].name, under(cases[i].role, cases[i].call), cases[i].want);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "print") == 0) {
        auto_buf buf = BUF_INIT(BUF_NO_CEILING);
        seccomp_document(&buf);
        return fputs(buf_str(&buf), stdout) < 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manual_is_up_to_date),
        cmocka_unit_test(at_most_300_calls),
        cmocka_unit_test(filter_does_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
