"""What if a system call fails that never does: while a sandbox is made, each of them, the n-th of each process.

strace makes it fail. Whatever belljar does about it: it does not crash or hang, it runs no code with a layer
less than always, and the next run finds nothing in its way and leaves nothing behind.

BELLJAR_FULL=1 tries every call; else as many as there is time for, others each time (the seed is printed)."""

import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import types

import belljar
import host
import pytest

MODES = ["root"]  # who can follow all processes

CALLS = """clone clone3 fork vfork unshare setns mount umount2 pivot_root mount_setattr move_mount fsopen fsmount
    open_tree openat mkdirat mkdir mknodat symlinkat fchownat chown fchown fchmod fchmodat memfd_create pipe2
    socketpair sendmsg recvmsg write pwrite64 pwritev prctl capset capget setresuid setresgid setgroups seccomp
    landlock_create_ruleset landlock_add_rule landlock_restrict_self prlimit64 dup2 dup3 fcntl chdir fchdir
    sethostname execveat epoll_create1 eventfd2 ioctl close_range setsid unlinkat rmdir fstat newfstatat
    mprotect""".split()
ERRORS = {"mprotect": "ENOMEM", "openat": "EMFILE", "write": "ENOSPC"}
# libuv aborts where it cannot watch signals at all.
NOT_OURS = {("pipe2", 1), ("write", 1)}

# Of the others a few are tried, each time others. A limit that could not be set would be missed by nobody else.
ALWAYS = {"prlimit64"}

# Whatever layers show of themselves inside. Names of namespaces come last: they are always others. A command of
# these that is hit itself ends it all.
LOOK = r"""
set -euo pipefail
cat /proc/self/limits
grep -E '^(NoNewPrivs|Seccomp|Cap|Groups|Uid|Gid)' /proc/self/status
awk '{ print $5, $6 }' /proc/self/mountinfo | sort
env | sort
ls /proc/self/fd /dev
cat /proc/net/dev | wc -l
python3 -c '
import os, signal
n = 0
try:
    while n < 100:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError:
    print("limited")
'
echo namespaces
for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done
echo end
"""


class Workbench:
    """Runs `belljar run` below a cgroup of its own, in which nothing may stay."""

    def __init__(self):
        self.state = tempfile.mkdtemp(prefix="belljar-state-")
        self.trace = pathlib.Path(self.state + ".trace")
        self.cgroups = host.Delegation(types.SimpleNamespace(uid=0, gid=0))
        self.traces = host.Traces()

    def run(self, *before):
        words = [
            belljar.need(belljar.BIN),
            "run",
            "--state-dir",
            self.state,
            "--process-limit",
            "40",
        ]
        words += ["--require-limits", "true", "--no-packages-enabled", "--language", "bash", "-"]
        return subprocess.run(
            [*self.cgroups.before(), *before, *words],
            input=LOOK,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120 * belljar.PATIENCE,
            env={"PATH": os.environ["PATH"]},
        )

    def count(self):
        """{call: how many of them the busiest process makes}"""
        calls = ",".join("?" + call for call in CALLS)
        done = self.run("strace", "-f", "-qq", "-o", self.trace, "-e", f"trace={calls}")
        if done.returncode:
            pytest.skip(f"strace cannot follow processes here: {done.stderr[-300:]}")
        found = collections.Counter(
            re.findall(r"^(\d+) +(\w+)\(", self.trace.read_text(), re.MULTILINE)
        )
        most = {}
        for (_, call), count in found.items():
            most[call] = max(most.get(call, 0), count)
        return most

    def break_one(self, call, number):
        error = ERRORS.get(call, "EPERM")
        rule = f"inject={call}:error={error}:when={number}"
        return self.run("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", rule)

    def close(self):
        left = self.cgroups.remove()
        shutil.rmtree(self.state)
        self.trace.unlink(missing_ok=True)
        assert not left, f"cgroups are left: {left}"


@pytest.fixture
def bench(mode):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    made = Workbench()
    yield made
    made.close()


def layers(done):
    """(what can be seen, names of namespaces), or None where the program did not get to its end."""
    if not done.stdout.endswith("end\n"):
        return None
    seen, _, names = done.stdout.removesuffix("end\n").partition("namespaces\n")
    return seen, names.split()


def judge(done, whole):
    assert done.returncode >= 0, f"belljar was ended by a signal: {done}"
    if seen := layers(done):
        assert seen[0] == whole, f"code ran with other layers: {seen[0]}"
        ours = [os.readlink(f"/proc/self/ns/{name}") for name in host.NAMESPACES]
        assert len(seen[1]) == 7 and not set(seen[1]) & set(ours), f"namespaces: {seen[1]}"


def try_one(bench, call, number, whole):
    """Whether the code ran all the same."""
    done = bench.break_one(call, number)
    judge(done, whole)
    # The words may be what could not be written.
    assert done.returncode == 0 or done.stderr.strip() or call == "write", f"no word of it: {done}"
    again = bench.run()
    assert layers(again) and layers(again)[0] == whole, f"the next run: {again}"
    left = bench.traces.wait_clean(bench.state)
    assert not left, f"left behind: {left}"
    return layers(done) is not None


@pytest.mark.timeout(7200)
def test_no_call_that_fails_takes_a_layer_away(bench, capsys):
    clean = bench.run()
    whole = layers(clean)
    assert whole and "limited" in whole[0], clean
    cases = [(call, n) for call, most in bench.count().items() for n in range(1, most + 1)]
    cases = [case for case in cases if case not in NOT_OURS]
    seed = int(os.environ.get("BELLJAR_SEED", random.randrange(1000)))
    if not host.FULL:
        chosen = random.Random(seed).sample(cases, 20)
        cases = [case for case in cases if case in chosen or case[0] in ALWAYS]
    ran, faults = 0, []
    for call, number in cases:
        try:
            ran += try_one(bench, call, number, whole[0])
        except (AssertionError, subprocess.TimeoutExpired) as fault:
            faults.append(f"{call} {number}: {fault}")
    assert not faults, "\n".join(faults)
    assert ran < len(cases), "nothing was ever refused"
    with capsys.disabled():
        print(f"\n{len(cases)} failing calls (seed {seed}): {ran} did not matter")
