/*
 * sys: system calls that the C library does not wrap, one thin function each. They return a
 * non-negative result or -errno, and hold no policy.
 */
#ifndef BELLJAR_ENGINE_NATIVE_SYS_H
#define BELLJAR_ENGINE_NATIVE_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline int sys_result(long r)
{
    return r < 0 ? -errno : (int)r;
}

/* sendmsg(2) with descriptors, at most SYS_FDS_MAX; there may be none. */
enum { SYS_FDS_MAX = 16 };
static inline int sys_send_fds(int socket, const void *bytes, size_t len, const int *fds,
                               size_t n_fds, int flags)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(SYS_FDS_MAX * sizeof(int))];
    } control = { 0 };
    struct iovec part = { (void *)(uintptr_t)bytes, len };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (n_fds > SYS_FDS_MAX)
        return -EINVAL;
    if (n_fds) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    return sys_result(sendmsg(socket, &message, flags));
}

/* clone3(2), Linux 5.3. Returns twice, like fork(); the child goes on in a copy of this memory. */
static inline pid_t sys_clone3(const struct clone_args *args)
{
    return (pid_t)sys_result(syscall(SYS_clone3, args, sizeof(*args)));
}

/* pidfd_open(2), Linux 5.3. */
static inline int sys_pidfd_open(pid_t pid)
{
    return sys_result(syscall(SYS_pidfd_open, pid, 0));
}

/* pidfd_send_signal(2), Linux 5.1. */
static inline int sys_pidfd_send_signal(int pidfd, int signal)
{
    return sys_result(syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0));
}

/* close_range(2), Linux 5.9. */
static inline int sys_close_range(unsigned first, unsigned last)
{
    return sys_result(syscall(SYS_close_range, first, last, 0));
}

/* pivot_root(2). */
static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return sys_result(syscall(SYS_pivot_root, new_root, put_old));
}

/* open_tree(2), Linux 5.2: a detached copy of what is mounted at `path` and below. */
static inline int sys_clone_tree(int dir, const char *path)
{
    return sys_result(
        syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
}

/* move_mount(2), Linux 5.2: attaches a detached tree at `path`. */
static inline int sys_attach_tree(int tree, int dir, const char *path)
{
    return sys_result(syscall(SYS_move_mount, tree, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH));
}

/* mount_setattr(2), Linux 5.12: adds attributes to the mount at `path` (flags AT_RECURSIVE,
 * AT_EMPTY_PATH). */
static inline int sys_mount_restrict(int dir, const char *path, unsigned flags, uint64_t attributes)
{
    struct mount_attr attr = { .attr_set = attributes };
    return sys_result(syscall(SYS_mount_setattr, dir, path, flags, &attr, sizeof(attr)));
}

/* execveat(2), Linux 3.19: the program is the descriptor itself. */
static inline int sys_exec_fd(int fd, char *const argv[], char *const envp[])
{
    return sys_result(syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH));
}

/* capset(2): the same set of the first 64 capabilities as effective and permitted, and `inheritable`. */
static inline int sys_capset(uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        data[i].effective = data[i].permitted = (uint32_t)(permitted >> (32 * i));
        data[i].inheritable = (uint32_t)(inheritable >> (32 * i));
    }
    return sys_result(syscall(SYS_capset, &header, data));
}

/* seccomp(2), Linux 3.17. */
static inline int sys_seccomp_filter(const struct sock_filter *code, unsigned short len)
{
    struct sock_fprog prog = { .len = len, .filter = (struct sock_filter *)code };
    return sys_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
}

/* seccomp(2), Linux 5.0. */
static inline int sys_seccomp_notif_sizes(struct seccomp_notif_sizes *ret)
{
    return sys_result(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, ret));
}

/* Headers older than Linux 5.19 lack this. */
enum { SECCOMP_5_19_WAIT_KILLABLE_RECV = 1 << 5 };

/* A filter whose SECCOMP_RET_USER_NOTIF is told by the descriptor returned, Linux 5.5. A signal that is not deadly does
 * not disturb a call that has been told of, where the kernel can do so. */
static inline int sys_seccomp_listener(const struct sock_filter *code, unsigned short len)
{
    struct sock_fprog prog = { .len = len, .filter = (struct sock_filter *)code };
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int r = sys_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                               flags | SECCOMP_5_19_WAIT_KILLABLE_RECV, &prog));
    return r == -EINVAL ? sys_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog))
                        : r;
}

/* landlock_create_ruleset(2), Linux 5.13: the version of the interface, or -errno. */
static inline int sys_landlock_abi(void)
{
    return sys_result(
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION));
}

/* Headers older than interface 6 (Linux 6.12) lack the third member and its bits. */
struct landlock_ruleset_6 {
    uint64_t handled_access_fs, handled_access_net, scoped;
};
enum { LANDLOCK_6_SCOPE_ABSTRACT_UNIX_SOCKET = 1, LANDLOCK_6_SCOPE_SIGNAL = 2 };

static inline int sys_landlock_create(const struct landlock_ruleset_6 *ruleset)
{
    return sys_result(syscall(SYS_landlock_create_ruleset, ruleset, sizeof(*ruleset), 0));
}

/* Headers older than interface 4 (Linux 6.7) lack these. */
enum { LANDLOCK_4_BIND_TCP = 1, LANDLOCK_4_CONNECT_TCP = 2, LANDLOCK_4_RULE_NET_PORT = 2 };

static inline int sys_landlock_allow_port(int ruleset, uint64_t access, uint16_t port)
{
    const struct {
        uint64_t allowed_access, port;
    } rule = { access, port };
    return sys_result(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_4_RULE_NET_PORT, &rule, 0));
}

/* Headers older than interfaces 2 (Linux 5.19) and 3 (6.2) lack these. */
enum { LANDLOCK_2_REFER = 1 << 13, LANDLOCK_3_TRUNCATE = 1 << 14 };

/* All below `dir`. */
static inline int sys_landlock_allow_path(int ruleset, uint64_t access, int dir)
{
    const struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = dir };
    return sys_result(
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
}

static inline int sys_landlock_restrict_self(int ruleset)
{
    return sys_result(syscall(SYS_landlock_restrict_self, ruleset, 0));
}

#endif
