"""Which system calls a guest can make, against the list that is documented."""

import platform
import re

import pytest
from belljar import ROOT

PAGE = ROOT / "docs/syscalls.md"
HIGHEST = 600
MOST = 300

# uretprobe and uprobe: since Linux 6.13 the kernel answers them without asking any filter. They only
# take a process back from a tracer's probe, and without one they fail.
UNFILTERED = {335, 336}

# Every number once, with junk, in a child. A call that is let through may do anything to the child:
# end it, stop it, block it. One that is refused answers with EPERM or ENOSYS, always.
PROBE = r"""
import ctypes, os, select, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
arguments = [ctypes.c_long(a) for a in (-1, -1, -1, -1, -1, -1)]

def probe(number):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        signal.alarm(2)
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *arguments)
        os.write(writer, b"%d" % (ctypes.get_errno() if result == -1 else 0))
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], 1)
    data = os.read(reader, 100) if ready else b""
    os.close(reader)
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
    os.waitpid(pid, 0)
    return data.decode() or "reached"

for number in range(0, LAST + 1):
    print(number, probe(number), flush=True)
"""


def documented():
    """Names that a guest may call, each with whether only certain arguments are let through."""
    assert PAGE.exists(), "docs/syscalls.md is missing: the list must be committed"
    names = {}
    not_for_guests = False
    for group in PAGE.read_text().split("\n\n"):
        if not group.startswith("`"):
            not_for_guests = group.startswith("Only for")
            continue
        if not_for_guests:
            continue
        for name, words in re.findall(r"`(\w+)`(?: \((.*?)\))?(?:, |$)", group):
            names[name] = bool(words)
    return names


def numbers():
    """Names of this machine's calls by number, from the headers that the compiler has."""
    import subprocess

    text = subprocess.run(
        ["cc", "-E", "-dM", "-include", "asm/unistd.h", "-"],
        input="",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"#define __NR_(\w+) (\d+)", text)
    return {int(number): name for name, number in found}


@pytest.fixture(scope="module")
def answers(arena):
    if platform.machine() != "x86_64":
        pytest.skip("numbers are those of x86-64")
    run = arena.jar.python(PROBE.replace("LAST", str(HIGHEST)), timeout=60)
    assert run.outcome == "ok", run
    arena.jar.close_session(run.session)
    found = {}
    for line in run.stdout.splitlines():
        number, what = line.split()
        found[int(number)] = what
    assert len(found) == HIGHEST + 1, run
    return found


EPERM, ENOSYS = "1", "38"


def test_exactly_the_documented_calls_can_be_made(answers):
    names = numbers()
    reachable = {n for n, what in answers.items() if what not in (EPERM, ENOSYS)}
    allowed = documented()
    listed = {n for n, name in names.items() if name in allowed} | UNFILTERED
    surprising = {n: (names.get(n, "?"), answers[n]) for n in reachable - listed}
    assert not surprising, f"reachable, but not in the list: {surprising}"
    # Junk is no argument that a conditional call would let through; and these answer EPERM themselves.
    own_answer = {
        "setsid",
        "futex",
        "kill",
        "setuid",
        "setgid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
    }
    absent = {
        n: (names[n], answers[n])
        for n in listed - reachable
        if n not in UNFILTERED and not allowed[names[n]] and names[n] not in own_answer
    }
    assert not absent, f"in the list, but refused: {absent}"


def test_few_calls_can_be_made(answers):
    reachable = [n for n, what in answers.items() if what not in (EPERM, ENOSYS)]
    assert len(reachable) <= MOST, len(reachable)
    assert len(reachable) > 100, "the probe itself does not work"


def test_unknown_numbers_look_like_an_old_kernel(answers):
    wrong = {n: answers[n] for n in range(500, HIGHEST + 1) if answers[n] != ENOSYS}
    assert not wrong, wrong


def test_conditional_calls_work_with_what_is_allowed(arena):
    """The other half of the list: these are refused with junk, and must work when meant well."""
    code = """
import fcntl, os, socket, resource, struct, pty
socket.socket(socket.AF_UNIX); socket.socket(socket.AF_INET); socket.socket(socket.AF_INET6)
socket.socket(16, socket.SOCK_RAW, 0); socket.socketpair()
fcntl.fcntl(1, fcntl.F_GETFL); fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
fcntl.ioctl(pty.openpty()[0], 0x5413, b"x" * 8)
resource.prlimit(0, resource.RLIMIT_NOFILE); os.sched_setaffinity(0, os.sched_getaffinity(0))
os.setpriority(os.PRIO_PROCESS, 0, 19); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
import threading; thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print("fine")
"""
    run = arena.jar.python(code)
    assert run.stdout == "thread\nfine\n", run
    arena.jar.close_session(run.session)
