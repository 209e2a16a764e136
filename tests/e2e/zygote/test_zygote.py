"""The life of the process that kernels are forked from: when it dies, is stopped, grows, cannot be started or is
replaced, no call fails, and it is told once."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from belljar import PATIENCE
from python_jar import SLOW, with_runtime
from zygote_jar import (
    COLD,
    WARM,
    descendants,
    is_forked,
    open_jar,
    python,
    wait_for,
    wait_until_forked,
    wait_until_warm,
    who,
    zygote_only,
    zygotes,
)

pytestmark = pytest.mark.python_only


@pytest.mark.parametrize("param", ["root", "user"])
@zygote_only
def test_a_killed_zygote_fails_no_call_is_told_once_and_replaced(param):
    user, flags = who(param)
    with open_jar(*flags, user=user) as jar:
        (first,) = zygotes(jar)
        os.kill(first, signal.SIGKILL)
        sessions = []
        for n in range(10):
            run = python(jar, f"{n} + 1")
            assert run.said["result"] == str(n + 1)
            sessions.append(run.session)
        wait_until_warm(jar, times=2)
        assert jar.log_text().count(COLD) == 1
        assert zygotes(jar) != [first]
        wait_until_forked(jar)
        assert all(python(jar, "'alive'", one).said["result"] == "'alive'" for one in sessions)


def is_zombie(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


@pytest.mark.parametrize("param", ["root", "user"])
@zygote_only
def test_a_zygote_killed_while_it_forks_fails_no_call_and_leaves_nobody_behind(param):
    user, flags = who(param)
    with open_jar(*flags, "--kernel-pool-size", "0", user=user) as jar:
        for kill in range(1, 5):
            (pid,) = zygotes(jar)
            waiting = [jar.begin(f"{n} + 1", "python") for n in range(12)]
            time.sleep(kill * 0.01)
            os.kill(pid, signal.SIGKILL)
            runs = [one.run(SLOW) for one in waiting]
            assert [run.said["result"] for run in runs] == [str(n + 1) for n in range(12)]
            for run in runs:
                jar.close_session(run.session)
            wait_until_warm(jar, times=kill + 1)
            assert jar.log_text().count(COLD) == kill
        wait_for(
            lambda: not [pid for pid in descendants(jar) if is_zombie(pid)],
            "no zombies",
            seconds=10,
        )
        assert "does not end" not in jar.log_text()


@zygote_only
def test_kernels_outlive_their_zygote(data_jar):
    session = python(data_jar, "x = 42").session
    warm = data_jar.log_text().count(WARM)
    for pid in zygotes(data_jar):
        os.kill(pid, signal.SIGKILL)
    assert python(data_jar, "x", session).said["result"] == "42"
    wait_until_warm(data_jar, warm + 1)
    data_jar.close_session(session)


@zygote_only
def test_a_stopped_zygote_is_given_up(data_jar):
    (pid,) = zygotes(data_jar)
    warm = data_jar.log_text().count(WARM)
    os.kill(pid, signal.SIGSTOP)
    run = python(data_jar, "6 * 7")
    assert run.said["result"] == "42"
    wait_until_warm(data_jar, warm + 1)
    assert pid not in zygotes(data_jar)
    wait_until_forked(data_jar)


@zygote_only
def test_it_is_renewed_after_so_many_forks():
    with open_jar("--zygote-max-forks", "3", "--log-level", "debug") as jar:
        seen = set()
        for n in range(200):
            seen.update(zygotes(jar))
            run = python(jar, f"{n}")
            assert run.said["result"] == str(n)
            jar.close_session(run.session)
            if len(seen) > 2:
                break
        assert len(seen) > 2
        assert COLD not in jar.log_text()
        wait_for(lambda: len(zygotes(jar)) == 1, "the old ones to leave")


@pytest.fixture
def place():
    """A directory that the spawner, who is nobody outside, can look into."""
    with tempfile.TemporaryDirectory(prefix="belljar-runtime-") as made:
        os.chmod(made, 0o755)
        yield pathlib.Path(made)


def make_interpreter(place, as_zygote):
    """A runtime whose Python does this when it is to be a zygote."""
    (place / "bin").mkdir()
    script = place / "bin/python3"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *zygote.py*) {as_zygote} ;; esac\nexec /usr/bin/python3 "$@"\n'
    )
    script.chmod(0o755)
    return ["--runtime", str(place)]


@pytest.mark.parametrize(
    "as_zygote, words",
    [
        ("exit 3", "exit status 3"),
        ("kill -SEGV $$", "signal 11"),
        ("exec /nothing/there", "exit status 127"),
        (
            'exec /usr/bin/python3 -c \'import sys, runpy; sys.modules["ctypes"] = None; '
            'sys.argv = sys.argv[3:]; runpy.run_path("/run/belljar/zygote.py", run_name="__main__")\''
            ' x -u "$@"',
            "ctypes",
        ),
    ],
)
@zygote_only
def test_an_interpreter_that_cannot_be_one_is_told_once(place, as_zygote, words):
    with open_jar(*make_interpreter(place, as_zygote), warm=False) as jar:
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        for n in range(3):
            assert python(jar, f"{n}").said["result"] == str(n)
        assert not is_forked(jar)
        assert jar.log_text().count(COLD) == 1 and words in jar.log_text()


@zygote_only
def test_slow_imports_delay_nobody(place):
    with open_jar(*make_interpreter(place, "sleep 600"), warm=False) as jar:
        run = python(jar, "1 + 1")
        assert run.said["result"] == "2" and not is_forked(jar)
        assert COLD not in jar.log_text()


@zygote_only
def test_an_interpreter_that_is_replaced_fails_no_call(place):
    flags = make_interpreter(place, ":")
    with open_jar(*flags) as jar:
        assert is_forked(jar)
        (place / "bin/python3").rename(place / "bin/old")
        (place / "bin/python3").write_text('#!/bin/sh\nexec /usr/bin/python3 -X dev "$@"\n')
        (place / "bin/python3").chmod(0o755)
        for pid in zygotes(jar):
            os.kill(pid, signal.SIGKILL)
        for n in range(5):
            assert python(jar, f"{n}").said["result"] == str(n)
        wait_until_warm(jar, times=2)
        assert python(jar, "import sys; sys.flags.dev_mode").said["result"] == "True"


@zygote_only
def test_an_interpreter_that_is_replaced_by_a_broken_one_is_told_once(place):
    flags = make_interpreter(place, ":")
    with open_jar(*flags, "--zygote-max-forks", "3") as jar:
        (place / "bin/new").write_text(
            '#!/bin/sh\ncase "$*" in *zygote.py*) exit 3 ;; esac\nexec /usr/bin/python3 "$@"\n'
        )
        (place / "bin/new").chmod(0o755)
        (place / "bin/new").rename(place / "bin/python3")
        for n in range(12):
            run = python(jar, f"{n}")
            assert run.said["result"] == str(n)
            jar.close_session(run.session)
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        assert is_forked(jar)  # of the one that serves
        assert jar.log_text().count(COLD) == 1 and "exit status 3" in jar.log_text()


def memory_cgroup(pid):
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for root in ["/sys/fs/cgroup/memory"] if names == "memory" else ["/sys/fs/cgroup"]:
            found = pathlib.Path(root + path)
            if "zygote-" in path and (found / "cgroup.procs").exists():
                return found
    return None


HOG = """
import sys, time
with open(sys.argv[1], "w") as file:
    file.write("0")
kept = []
for _ in range(100):
    kept.append(b"x" * (8 << 20))
time.sleep(60)
"""


@zygote_only
def test_a_serving_zygote_whose_cgroup_is_full_is_replaced_and_fails_no_call():
    if os.geteuid() != 0:
        pytest.skip("only root can put a process there")
    with open_jar(*with_runtime(), "--zygote-memory", "512m") as jar:
        (pid,) = zygotes(jar)
        cgroup = memory_cgroup(pid)
        if not cgroup:
            pytest.skip("a zygote has no cgroup of its own here")
        waiting = [(n, jar.begin(f"{n} + 1", "python")) for n in range(10)]
        hog = subprocess.Popen([sys.executable, "-c", HOG, str(cgroup / "cgroup.procs")])
        try:
            end = time.monotonic() + SLOW * PATIENCE
            while waiting or pathlib.Path(f"/proc/{pid}").exists():
                assert time.monotonic() < end, "it lives"
                n, one = waiting.pop() if waiting else (7, jar.begin("7 + 1", "python"))
                run = one.run(SLOW)
                assert run.said["result"] == str(n + 1)
                jar.close_session(run.session)
        finally:
            hog.kill()
            hog.wait()
        wait_until_warm(jar, times=2)
        wait_until_forked(jar)
        assert jar.log_text().count(COLD) == 1 and "signal 9" in jar.log_text()


@zygote_only
def test_a_zygote_that_fills_its_memory_is_replaced_and_fails_no_call(data_jar):
    if "memory_limit" not in data_jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    with open_jar(*with_runtime(), "--zygote-memory", "64m", warm=False) as jar:
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        for n in range(3):
            assert python(jar, f"{n}").said["result"] == str(n)
        assert jar.log_text().count(COLD) == 1


@zygote_only
def test_modules_that_are_not_there_are_left_out():
    with open_jar("--preload", "json,no_such_module") as jar:
        assert "json" in jar.log_text() and "not there: no_such_module" in jar.log_text()
        assert python(jar, "import sys; 'json' in sys.modules").said["result"] == "True"
        assert is_forked(jar)


@zygote_only
def test_nothing_of_it_stays_behind():
    with open_jar() as jar:
        (pid,) = zygotes(jar)
        assert is_forked(jar)
    assert not pathlib.Path(f"/proc/{pid}").exists()
