# ruff: noqa: F401
# Put before every Python attack.
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NR = dict(
    ioctl=16,
    kill=62,
    ptrace=101,
    syslog=103,
    mknod=133,
    uselib=134,
    personality=135,
    vhangup=153,
    modify_ldt=154,
    pivot_root=155,
    sysctl=156,
    adjtimex=159,
    chroot=161,
    acct=163,
    settimeofday=164,
    mount=165,
    umount2=166,
    swapon=167,
    swapoff=168,
    reboot=169,
    sethostname=170,
    setdomainname=171,
    iopl=172,
    ioperm=173,
    init_module=175,
    delete_module=176,
    quotactl=179,
    io_setup=206,
    lookup_dcookie=212,
    clock_settime=227,
    kexec_load=246,
    add_key=248,
    request_key=249,
    keyctl=250,
    migrate_pages=256,
    mbind=237,
    set_mempolicy=238,
    unshare=272,
    move_pages=279,
    vmsplice=278,
    perf_event_open=298,
    fanotify_init=300,
    name_to_handle_at=303,
    open_by_handle_at=304,
    clock_adjtime=305,
    setns=308,
    process_vm_readv=310,
    process_vm_writev=311,
    kcmp=312,
    finit_module=313,
    seccomp=317,
    kexec_file_load=320,
    bpf=321,
    userfaultfd=323,
    clone=56,
    capset=126,
    pidfd_send_signal=424,
    io_uring_setup=425,
    io_uring_enter=426,
    io_uring_register=427,
    open_tree=428,
    move_mount=429,
    fsopen=430,
    fsconfig=431,
    fsmount=432,
    fspick=433,
    pidfd_open=434,
    clone3=435,
    pidfd_getfd=438,
    process_madvise=440,
    mount_setattr=442,
    quotactl_fd=443,
    landlock_create_ruleset=444,
    memfd_secret=447,
    process_mrelease=448,
    prlimit64=302,
    statmount=457,
    listmount=458,
    shmget=29,
    socket=41,
    setgroups=116,
    mq_open=240,
)  # x86-64


def call(name, *args):
    """(result, name of the error)"""
    ctypes.set_errno(0)
    number = NR.get(name, name)
    result = libc.syscall(
        ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)
    )
    return result, errno.errorcode.get(ctypes.get_errno(), "0") if result == -1 else "ok"


def breach(*what):
    print("BREACH:", *what, flush=True)


def refused(name, *args, errors=("EPERM", "ENOSYS")):
    """The kernel's work must not even begin: any other error means that the call went through."""
    result, error = call(name, *args)
    print(f"{name}: {result} {error}", flush=True)
    if result != -1 or error not in errors:
        breach(name, "was not refused:", result, error)


def show(path, size=4000):
    """Whatever there is to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        print(path, error.strerror)
        return b""
    try:
        data = os.read(fd, size)
    except OSError as error:
        print(path, error.strerror)
        return b""
    finally:
        os.close(fd)
    print(path, data.decode(errors="replace"))
    return data


def in_child(work, limit=5):
    """Runs work() in a child; its wait status, or None when it had to be killed."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("child:", repr(error), flush=True)
        os._exit(0)
    for _ in range(int(limit * 100)):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
