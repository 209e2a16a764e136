/*
 * sys: the system calls that musl has no function for, one thin wrapper each, returning -errno. The
 * structures are written out here because musl's headers come without the kernel's.
 */
#ifndef BELLJAR_AGENT_SYS_H
#define BELLJAR_AGENT_SYS_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/*** openat2(2), Linux 5.6 ***/

enum {
    SYS_RESOLVE_NO_MAGICLINKS = 0x02,
    SYS_RESOLVE_NO_SYMLINKS = 0x04,
    SYS_RESOLVE_BENEATH = 0x08
};

static inline int sys_openat2(int dir, const char *path, int flags, uint64_t resolve)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = { .flags = (uint64_t)(unsigned)flags, .resolve = resolve };
    long r = syscall(SYS_openat2, dir, path, &how, sizeof(how));
    return r < 0 ? -errno : (int)r;
}

/*** close_range(2), Linux 5.9 ***/

static inline int sys_close_range(unsigned first, unsigned last)
{
    return syscall(SYS_close_range, first, last, 0) < 0 ? -errno : 0;
}

/*** clone3(2), Linux 5.3; SYS_CLONE_INTO_CGROUP (5.7): born in the cgroup of a v2 directory ***/

#define SYS_CLONE_INTO_CGROUP UINT64_C(0x200000000)

struct sys_birth {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
};

/* Like fork(), but the C library does not learn of it. */
static inline pid_t sys_clone(uint64_t flags, int exit_signal, int cgroup_fd)
{
    const struct sys_birth birth = { .flags = flags,
                                     .exit_signal = (uint64_t)exit_signal,
                                     .cgroup = (uint64_t)cgroup_fd };
    long r = syscall(SYS_clone3, &birth, sizeof(birth));
    return r < 0 ? -errno : (pid_t)r;
}

/* As fork() leaves it: the C library of the child finds its thread id at this address. cgroup_fd: -1, or of v2. */
static inline pid_t sys_fork_with_tid(const int *tid_address, int cgroup_fd)
{
    const struct sys_birth birth = { .flags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID |
                                              (cgroup_fd < 0 ? 0 : SYS_CLONE_INTO_CGROUP),
                                     .child_tid = (uintptr_t)tid_address,
                                     .exit_signal = SIGCHLD,
                                     .cgroup = cgroup_fd < 0 ? 0 : (uint64_t)cgroup_fd };
    long r = syscall(SYS_clone3, &birth, sizeof(birth));
    return r < 0 ? -errno : (pid_t)r;
}

static inline pid_t sys_fork_into(int cgroup_fd)
{
    return sys_clone(SYS_CLONE_INTO_CGROUP, SIGCHLD, cgroup_fd);
}

/*** capset(2), capget(2), version 3 ***/

enum { SYS_CAP_KILL = 5, SYS_CAP_SETGID = 6, SYS_CAP_SETUID = 7, SYS_CAP_SETPCAP = 8 };

struct sys_caps {
    struct {
        uint32_t effective, permitted, inheritable;
    } word[2];
};

static inline int sys_capset(const struct sys_caps *caps)
{
    struct {
        uint32_t version;
        int pid;
    } head = { .version = 0x20080522 };
    return syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
}

static inline int sys_capget(struct sys_caps *caps)
{
    struct {
        uint32_t version;
        int pid;
    } head = { .version = 0x20080522 };
    return syscall(SYS_capget, &head, caps) < 0 ? -errno : 0;
}

/*** getdents64(2) ***/

struct sys_dirent {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

static inline ssize_t sys_getdents64(int fd, void *buf, size_t len)
{
    long r = syscall(SYS_getdents64, fd, buf, len);
    return r < 0 ? -errno : r;
}

/*** seccomp filters ***/

struct sys_filter {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

struct sys_program {
    uint16_t len;
    const struct sys_filter *filter;
};

static inline int sys_seccomp_filter(const struct sys_program *program)
{
    return syscall(SYS_seccomp, /* SECCOMP_SET_MODE_FILTER */ 1, 0, program) < 0 ? -errno : 0;
}

/*** landlock_restrict_self(2), Linux 5.13 ***/

static inline int sys_landlock_restrict_self(int ruleset)
{
    return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}

#endif
