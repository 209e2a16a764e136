"""Another process, made to do what somebody could who has taken it over: system calls of ours in its name.

    with Possessed(pid) as it:
        it.call(OPENAT, AT_FDCWD, "/etc/passwd", os.O_RDONLY)    # what the kernel answered: a number, or -errno

It is stopped at a system call by ptrace, which has to be one that it goes back to when it is let go. Only for
x86-64, and for root.
"""

import contextlib
import ctypes
import os
import platform
import struct

import pytest
from sandboxes import until

CLOSE, SOCKET, CONNECT, EXECVE, KILL, OPENAT = 3, 41, 42, 59, 62, 257
AT_FDCWD = -100

ATTACH, DETACH, STEP, GETREGS, SETREGS = 16, 17, 9, 12, 13
WALL = 0x40000000
SYSCALL = b"\x0f\x05"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in (
            "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
            "fs_base gs_base ds es fs gs"
        ).split()
    ]


def need():
    if platform.machine() != "x86_64" or os.geteuid() != 0:
        pytest.skip("taking a process over needs x86-64 and root")


class Possessed(contextlib.AbstractContextManager):
    def __init__(self, pid):
        self.pid = pid
        self.memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        until(self.seize, "a process in a system call")

    def __exit__(self, *_):
        os.close(self.memory)
        self.ptrace(SETREGS, ctypes.byref(self.saved))
        self.ptrace(DETACH)

    def seize(self):
        self.ptrace(ATTACH)
        self.wait()
        self.saved = self.registers()
        if os.pread(self.memory, len(SYSCALL), self.saved.rip - len(SYSCALL)) == SYSCALL:
            return True
        self.ptrace(DETACH)
        return False

    def ptrace(self, request, data=None):
        if libc.ptrace(request, self.pid, None, data) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request} of {self.pid}")

    def wait(self):
        _, status = os.waitpid(self.pid, WALL)
        assert os.WIFSTOPPED(status), f"process {self.pid} ended: {status:#x}"

    def registers(self):
        found = Registers()
        self.ptrace(GETREGS, ctypes.byref(found))
        return found

    def call(self, number, *arguments):
        place = (self.saved.rsp - 4096) & ~15  # of its stack, below what it uses
        words = []
        for each in arguments:
            if isinstance(each, str):
                each = each.encode() + b"\0"
            if isinstance(each, bytes):
                os.pwrite(self.memory, each, place)
                words.append(place)
                place += (len(each) + 15) & ~15
            else:
                words.append(each & (1 << 64) - 1)
        regs = Registers.from_buffer_copy(self.saved)
        regs.rip, regs.rax = self.saved.rip - len(SYSCALL), number
        regs.orig_rax = (1 << 64) - 1  # nothing is to be begun again
        for name, word in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), words, strict=False):
            setattr(regs, name, word)
        self.ptrace(SETREGS, ctypes.byref(regs))
        self.ptrace(STEP)
        self.wait()
        return struct.unpack("<q", struct.pack("<Q", self.registers().rax))[0]
