"""Which system calls a guest can make, against the list that is documented."""

import platform
import re

import pytest
from belljar import ROOT

PAGE = ROOT / "docs/syscalls.md"
HIGHEST = 600
MOST = 300

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
    """Names in the list, and which of them only with certain arguments."""
    if not PAGE.exists():
        pytest.fail("docs/syscalls.md is missing: the list must be committed")
    names = {}
    for line in PAGE.read_text().splitlines():
        for name, rest in re.findall(r"^\|\s*`?([a-z0-9_]+)`?\s*\|(.*)$", line):
            names.setdefault(name, []).append(rest)
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
    always = {n for n, name in names.items() if name in allowed}
    surprising = {n: (names.get(n, "?"), answers[n]) for n in reachable - always}
    assert not surprising, f"reachable, but not in the list: {surprising}"
    # A call that is allowed only with certain arguments refuses junk, and some refuse it themselves.
    conditional = {
        n
        for n in always
        if any("only" in r or "`" in r or r.strip(" |") for r in allowed[names[n]])
    }
    own_eperm = {
        "kill",
        "tkill",
        "tgkill",
        "setuid",
        "setgid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
    }
    absent = {
        n: (names[n], answers[n])
        for n in always - reachable - conditional
        if n <= HIGHEST and names[n] not in own_eperm and n < 451
    }
    assert not absent, f"in the list, but refused: {absent}"


def test_few_calls_can_be_made(answers):
    reachable = [n for n, what in answers.items() if what not in (EPERM, ENOSYS)]
    assert len(reachable) <= MOST, len(reachable)
    assert len(reachable) > 100, "the probe itself does not work"


def test_unknown_numbers_look_like_an_old_kernel(answers):
    wrong = {n: answers[n] for n in range(500, HIGHEST + 1) if answers[n] != ENOSYS}
    assert not wrong, wrong


def test_the_committed_list_is_the_generated_one():
    """The page says how it is made; the sources' own names must all be there."""
    listed = documented()
    sources = (ROOT / "src/engine/native/seccomp_list.c").read_text()
    named = set(re.findall(r"\b(?:CALL|SELF|WITH)\((\w+)", sources)) - {"call"}
    assert named <= set(listed), f"not in docs/syscalls.md: {sorted(named - set(listed))}"
