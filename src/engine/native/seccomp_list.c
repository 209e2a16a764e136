/*
 * What a guest may ask of the kernel. A call is here because ordinary programs (shells, Python with
 * numpy, node, compilers) fail without it, and because it reaches nothing outside the sandbox. What
 * is not here is refused; the last comment names what was left out on purpose.
 */
#include "engine/native/seccomp_list.h"

#include "base/base.h"

#include <asm-generic/ioctls.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <linux/netlink.h>

#define CALL(call)                                                                                 \
    {                                                                                              \
        .name = #call                                                                              \
    }
#define PID1(call)                                                                                 \
    {                                                                                              \
        .name = #call, .who = CALL_AGENT                                                           \
    }
#define MAKE(call)                                                                                 \
    {                                                                                              \
        .name = #call, .who = CALL_SETUP                                                           \
    }
/* Only on the caller itself where agent and guest share a uid, on anybody otherwise: with a uid of
 * its own the guest has no right over the agent. */
#define SELF(call, argument)                                                                       \
    { .name = #call, .who = CALL_OWN_UID },                                                        \
    {                                                                                              \
        .name = #call, .who = CALL_SHARED_UID, .n_tests = 1,                                       \
        .tests = { { argument, INT_BITS, 0 } },                                                    \
        .words = "of the caller itself, where agent and guest share a uid"                         \
    }
/* The kernel reads 32 bits of these arguments; so do we. */
#define INT_BITS 0xffffffffu
#define WITH(call, argument, bits, wanted, text)                                                   \
    {                                                                                              \
        .name = #call, .n_tests = 1, .tests = { { argument, bits, wanted } }, .words = text        \
    }
#define IOCTL(request) WITH(ioctl, 1, INT_BITS, (uint32_t)(request), #request)
#define MAKE_IOCTL(request)                                                                        \
    {                                                                                              \
        .name = "ioctl", .who = CALL_SETUP, .n_tests = 1,                                          \
        .tests = { { 1, INT_BITS, (uint32_t)(request) } }, .words = #request                       \
    }
#define FCNTL(command) WITH(fcntl, 1, INT_BITS, command, #command)

/* The kernel takes the lower half of clone's flags; an exit signal shares it with CLONE_NEWTIME. */
#define NEW_NAMESPACES                                                                             \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

static const struct syscall_rule processes[] = {
    WITH(clone, 0, NEW_NAMESPACES, 0, "without new namespaces"),
    CALL(fork),
    CALL(vfork),
    CALL(execve),
    CALL(execveat),
    CALL(exit),
    CALL(exit_group),
    CALL(wait4),
    CALL(waitid),
    CALL(getpid),
    CALL(getppid),
    CALL(gettid),
    CALL(getpgid),
    CALL(getpgrp),
    CALL(getsid),
    CALL(setpgid),
    CALL(setsid),
    CALL(set_tid_address),
    CALL(set_robust_list),
    CALL(get_robust_list),
    CALL(rseq),
    CALL(prctl),
    CALL(arch_prctl),
    CALL(pidfd_open),
    CALL(pidfd_send_signal),
    CALL(restart_syscall),
    CALL(membarrier),
    WITH(personality, 0, INT_BITS, 0, "PER_LINUX"),
    WITH(personality, 0, INT_BITS, 0xffffffffu, "to ask"),
};

static const struct syscall_rule identity[] = {
    CALL(getuid),    CALL(geteuid),   CALL(getgid),    CALL(getegid), CALL(getresuid),
    CALL(getresgid), CALL(getgroups), CALL(setuid),    CALL(setgid),  CALL(setreuid),
    CALL(setregid),  CALL(setresuid), CALL(setresgid), CALL(capget),
};

static const struct syscall_rule signals[] = {
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(rt_sigreturn),
    CALL(rt_sigpending),
    CALL(rt_sigtimedwait),
    CALL(rt_sigqueueinfo),
    CALL(rt_tgsigqueueinfo),
    CALL(rt_sigsuspend),
    CALL(sigaltstack),
    CALL(kill),
    CALL(tkill),
    CALL(tgkill),
    CALL(pause),
    CALL(alarm),
    CALL(signalfd),
    CALL(signalfd4),
};

static const struct syscall_rule memory[] = {
    CALL(brk),       CALL(mmap),          CALL(munmap),        CALL(mremap),       CALL(mprotect),
    CALL(madvise),   CALL(msync),         CALL(mincore),       CALL(mlock),        CALL(mlock2),
    CALL(munlock),   CALL(mlockall),      CALL(munlockall),    CALL(memfd_create), CALL(pkey_alloc),
    CALL(pkey_free), CALL(pkey_mprotect), CALL(get_mempolicy),
};

static const struct syscall_rule files[] = {
    CALL(open),
    CALL(openat),
    CALL(openat2),
    CALL(creat),
    CALL(close),
    CALL(close_range),
    CALL(read),
    CALL(write),
    CALL(pread64),
    CALL(pwrite64),
    CALL(readv),
    CALL(writev),
    CALL(preadv),
    CALL(pwritev),
    CALL(preadv2),
    CALL(pwritev2),
    CALL(lseek),
    CALL(dup),
    CALL(dup2),
    CALL(dup3),
    CALL(flock),
    CALL(fsync),
    CALL(fdatasync),
    CALL(sync_file_range),
    CALL(truncate),
    CALL(ftruncate),
    CALL(fallocate),
    CALL(fadvise64),
    CALL(readahead),
    CALL(sendfile),
    CALL(copy_file_range),
    CALL(splice),
    CALL(tee),
    CALL(pipe),
    CALL(pipe2),
    CALL(stat),
    CALL(fstat),
    CALL(lstat),
    CALL(newfstatat),
    CALL(statx),
    CALL(statfs),
    CALL(fstatfs),
    CALL(access),
    CALL(faccessat),
    CALL(faccessat2),
    CALL(readlink),
    CALL(readlinkat),
    CALL(getdents),
    CALL(getdents64),
    CALL(getcwd),
    CALL(chdir),
    CALL(fchdir),
    CALL(mkdir),
    CALL(mkdirat),
    CALL(rmdir),
    CALL(unlink),
    CALL(unlinkat),
    CALL(rename),
    CALL(renameat),
    CALL(renameat2),
    CALL(link),
    CALL(linkat),
    CALL(symlink),
    CALL(symlinkat),
    CALL(mknod),
    CALL(mknodat),
    CALL(chmod),
    CALL(fchmod),
    CALL(fchmodat),
    CALL(chown),
    CALL(fchown),
    CALL(lchown),
    CALL(fchownat),
    CALL(umask),
    CALL(utime),
    CALL(utimes),
    CALL(futimesat),
    CALL(utimensat),
    CALL(getxattr),
    CALL(lgetxattr),
    CALL(fgetxattr),
    CALL(listxattr),
    CALL(llistxattr),
    CALL(flistxattr),
    CALL(setxattr),
    CALL(lsetxattr),
    CALL(fsetxattr),
    CALL(removexattr),
    CALL(lremovexattr),
    CALL(fremovexattr),
    CALL(inotify_init),
    CALL(inotify_init1),
    CALL(inotify_add_watch),
    CALL(inotify_rm_watch),
};

/* Without leases, which let the owner of a file stall everybody who opens it for 45 seconds: with one
 * uid for all sandboxes a guest owns the files that all share. Without F_NOTIFY, which tells what
 * others do with a directory. */
static const struct syscall_rule descriptors[] = {
    FCNTL(F_DUPFD),     FCNTL(F_DUPFD_CLOEXEC), FCNTL(F_GETFD),      FCNTL(F_SETFD),
    FCNTL(F_GETFL),     FCNTL(F_SETFL),         FCNTL(F_GETLK),      FCNTL(F_SETLK),
    FCNTL(F_SETLKW),    FCNTL(F_OFD_GETLK),     FCNTL(F_OFD_SETLK),  FCNTL(F_OFD_SETLKW),
    FCNTL(F_GETOWN),    FCNTL(F_SETOWN),        FCNTL(F_GETOWN_EX),  FCNTL(F_SETOWN_EX),
    FCNTL(F_GETSIG),    FCNTL(F_SETSIG),        FCNTL(F_GETPIPE_SZ), FCNTL(F_SETPIPE_SZ),
    FCNTL(F_GET_SEALS), FCNTL(F_ADD_SEALS),
};

/* An allow list: each driver's own requests, TIOCSTI and TIOCLINUX (typing into a terminal) and
 * TIOCSETD (loading line disciplines) stay out. */
static const struct syscall_rule controls[] = {
    IOCTL(TCGETS),         IOCTL(TCSETS),       IOCTL(TCSETSW),         IOCTL(TCSETSF),
    IOCTL(TCSBRK),         IOCTL(TCXONC),       IOCTL(TCFLSH),          IOCTL(TIOCGWINSZ),
    IOCTL(TIOCSWINSZ),     IOCTL(TIOCGPGRP),    IOCTL(TIOCSPGRP),       IOCTL(TIOCSCTTY),
    IOCTL(TIOCNOTTY),      IOCTL(TIOCGSID),     IOCTL(TIOCGPTN),        IOCTL(TIOCSPTLCK),
    IOCTL(TIOCGPTPEER),    IOCTL(TIOCOUTQ),     IOCTL(FIONREAD),        IOCTL(FIONBIO),
    IOCTL(FIOASYNC),       IOCTL(FIOCLEX),      IOCTL(FIONCLEX),        IOCTL(FIOQSIZE),
    IOCTL(FICLONE),        IOCTL(FICLONERANGE), IOCTL(FS_IOC_GETFLAGS), IOCTL(SIOCGIFNAME),
    IOCTL(SIOCGIFCONF),    IOCTL(SIOCGIFFLAGS), IOCTL(SIOCGIFADDR),     IOCTL(SIOCGIFBRDADDR),
    IOCTL(SIOCGIFNETMASK), IOCTL(SIOCGIFMTU),   IOCTL(SIOCGIFHWADDR),   IOCTL(SIOCGIFINDEX),
    IOCTL(SIOCGIFTXQLEN),  IOCTL(SIOCGSTAMP),   IOCTL(SIOCATMARK),
};

static const struct syscall_rule waiting[] = {
    CALL(select),          CALL(pselect6),         CALL(poll),
    CALL(ppoll),           CALL(epoll_create),     CALL(epoll_create1),
    CALL(epoll_ctl),       CALL(epoll_wait),       CALL(epoll_pwait),
    CALL(epoll_pwait2),    CALL(eventfd),          CALL(eventfd2),
    CALL(futex),           CALL(futex_waitv),      CALL(nanosleep),
    CALL(clock_nanosleep), CALL(timer_create),     CALL(timer_settime),
    CALL(timer_gettime),   CALL(timer_getoverrun), CALL(timer_delete),
    CALL(timerfd_create),  CALL(timerfd_settime),  CALL(timerfd_gettime),
    CALL(getitimer),       CALL(setitimer),
};

static const struct syscall_rule sockets[] = {
    WITH(socket, 0, INT_BITS, AF_UNIX, "AF_UNIX"),
    WITH(socket, 0, INT_BITS, AF_INET, "AF_INET"),
    WITH(socket, 0, INT_BITS, AF_INET6, "AF_INET6"),
    { .name = "socket",
      .n_tests = 2,
      .tests = { { 0, INT_BITS, AF_NETLINK }, { 2, INT_BITS, NETLINK_ROUTE } },
      .words = "AF_NETLINK with NETLINK_ROUTE" },
    WITH(socketpair, 0, INT_BITS, AF_UNIX, "AF_UNIX"),
    CALL(bind),
    CALL(listen),
    CALL(accept),
    CALL(accept4),
    CALL(connect),
    CALL(shutdown),
    CALL(getsockname),
    CALL(getpeername),
    CALL(getsockopt),
    CALL(setsockopt),
    CALL(sendto),
    CALL(recvfrom),
    CALL(sendmsg),
    CALL(recvmsg),
    CALL(sendmmsg),
    CALL(recvmmsg),
};

static const struct syscall_rule ipc[] = {
    CALL(shmget),    CALL(shmat),         CALL(shmdt),        CALL(shmctl),
    CALL(semget),    CALL(semop),         CALL(semtimedop),   CALL(semctl),
    CALL(msgget),    CALL(msgsnd),        CALL(msgrcv),       CALL(msgctl),
    CALL(mq_open),   CALL(mq_unlink),     CALL(mq_timedsend), CALL(mq_timedreceive),
    CALL(mq_notify), CALL(mq_getsetattr),
};

static const struct syscall_rule facts[] = {
    CALL(uname),     CALL(sysinfo), CALL(times),        CALL(getrusage),     CALL(getcpu),
    CALL(getrandom), CALL(time),    CALL(gettimeofday), CALL(clock_gettime), CALL(clock_getres),
};

static const struct syscall_rule scheduling[] = {
    CALL(sched_yield),
    CALL(sched_getaffinity),
    CALL(sched_getscheduler),
    CALL(sched_getparam),
    CALL(sched_getattr),
    CALL(sched_get_priority_max),
    CALL(sched_get_priority_min),
    CALL(sched_rr_get_interval),
    CALL(getpriority),
    CALL(ioprio_get),
    CALL(getrlimit),
    CALL(setrlimit),
    SELF(sched_setaffinity, 0),
    SELF(sched_setscheduler, 0),
    SELF(sched_setparam, 0),
    SELF(sched_setattr, 0),
    SELF(setpriority, 1),
    SELF(ioprio_set, 1),
    WITH(prlimit64, 0, INT_BITS, 0, "of the caller itself"),
};

static const struct syscall_rule agent[] = {
    PID1(seccomp), PID1(clone3), PID1(capset), PID1(setgroups), PID1(prlimit64),
};

static const struct syscall_rule setup[] = {
    MAKE(mount),
    MAKE(unshare),
    MAKE(setns),
    MAKE(sethostname),
    MAKE(landlock_restrict_self),
    MAKE_IOCTL(SIOCSIFFLAGS),
    MAKE_IOCTL(SECCOMP_IOCTL_NOTIF_RECV),
    MAKE_IOCTL(SECCOMP_IOCTL_NOTIF_SEND),
};

#define GROUP(rules_, reason_)                                                                     \
    {                                                                                              \
        reason_, rules_, ARRAY_SIZE(rules_)                                                        \
    }
const struct syscall_group syscall_groups[] = {
    GROUP(processes, "Processes and threads. They stay in the sandbox's pid namespace and cgroup."),
    GROUP(identity, "Who am I. Without capabilities a process can only become what it is."),
    GROUP(signals, "Signals reach the sandbox's own processes; pid 1 is immune."),
    GROUP(memory, "Memory, bounded by the cgroup."),
    GROUP(files, "Files. What is visible is decided by the mounts: read-only but for the private "
                 "tmpfs; device nodes cannot be made without a capability."),
    GROUP(descriptors,
          "What can be asked of a descriptor: everything but leases and notifications."),
    GROUP(controls, "Requests that terminals, pipes, sockets and copies of files need, by name."),
    GROUP(waiting, "Waiting and timers."),
    GROUP(sockets, "Sockets of four families; the only interface is a loopback of its own."),
    GROUP(ipc, "Shared memory, semaphores and queues, in an IPC namespace of its own."),
    GROUP(facts, "What time, which machine, how much of it."),
    GROUP(scheduling, "Scheduling and limits; lowering needs no right, raising has none."),
    GROUP(agent, "Only for belljar's own pid 1, before it becomes a guest."),
    GROUP(setup, "Only for the spawner, for its child until that becomes pid 1, and for the "
                 "zygote and its child until that becomes a guest."),
};
const size_t n_syscall_groups = ARRAY_SIZE(syscall_groups);

/*
 * Left out on purpose, or taken away before a guest runs: mount and its family, pivot_root, chroot,
 * setns, unshare (other views of the host); ptrace, process_vm_*, kcmp, pidfd_getfd, process_madvise (other processes); bpf,
 * perf_event_open, io_uring_*, io_submit and its family, userfaultfd, vmsplice, fanotify_*,
 * landlock_*, seccomp (large or young kernel code); keyctl and its family (not namespaced);
 * open_by_handle_at and name_to_handle_at (around the mounts); modules, kexec, reboot, swap, quota,
 * accounting, syslog, clocks, host names, sync and syncfs (the host's disks), iopl, ioperm,
 * modify_ldt (the machine itself); mbind, move_pages and their family (placement on nodes).
 */
