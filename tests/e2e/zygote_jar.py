"""A server whose kernels are forked from a warm interpreter, and what tests ask of it. The fixtures are in conftest.py."""

import contextlib
import json
import os
import pathlib
import time

import belljar
import pytest
from belljar import PATIENCE, need
from sandboxes import Jar, ordinary_user

RUNTIME = pathlib.Path(
    os.environ.get("BELLJAR_RUNTIME", pathlib.Path(__file__).parents[2] / ".cache/runtime")
)
WARM = "info Python kernels are kept warm"
COLD = "no Python kernels are kept warm for now"
SLOW = 60  # imports, on a busy machine

zygote_only = pytest.mark.native_only("kernels are started in containers, not forked")

IS_FORKED = "b'zygote.py' in open('/proc/self/cmdline', 'rb').read()"


def wait_for(condition, what, limit=SLOW):
    end = time.monotonic() + limit * PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.02)
    return value


def wait_until_warm(jar, times=1):
    wait_for(lambda: jar.log_text().count(WARM) >= times, f"a zygote:\n{jar.log_text()[-2000:]}")


@contextlib.contextmanager
def open_jar(*flags, user=None, warm=True):
    need(belljar.BIN)
    with Jar(*flags, user=user) as jar:
        if warm and not belljar.IN_CONTAINERS:
            wait_until_warm(jar)
        yield jar


def with_runtime():
    if not (RUNTIME / "stamp").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    return [] if belljar.IN_CONTAINERS else ["--runtime", str(RUNTIME)]


def who(param):
    """The server's user, and flags: another user may not look into this checkout, and gets the system's
    own Python, which has no numpy."""
    if param == "root":
        return None, with_runtime()
    return ordinary_user(), []


def python(jar, code, session=None, **options):
    return jar.execute(code, "python", session=session, wait=SLOW, **options)


def ask(jar, code, session=None):
    """What the code prints as JSON, in a fresh session or this one."""
    run = python(jar, code, session)
    assert run.outcome == "ok", run
    if session is None:
        jar.close_session(run.session)
    return json.loads(run.stdout)


def is_forked(jar, session=None):
    run = python(jar, IS_FORKED, session)
    assert run.outcome == "ok", run
    if session is None:
        jar.close_session(run.session)
    return run.said["result"] == "True"


def wait_until_forked(jar):
    """After a time without a zygote: the pool may hold a kernel that had to be started meanwhile."""
    wait_for(lambda: is_forked(jar), "a forked kernel")


def check_made(jar, session=None):
    """It was forked where there are forks."""
    assert is_forked(jar, session) is not belljar.IN_CONTAINERS


def zygotes(jar):
    """Process ids, on the host, of this server's zygotes. A kernel has its zygote's name for a moment, until
    it takes its own, so that one look is not enough."""
    found = named_as_zygotes(jar)
    while True:
        time.sleep(0.05)
        again = named_as_zygotes(jar)
        if again == found:
            return found
        found = again


def named_as_zygotes(jar):
    return sorted(pid for pid, name in descendants(jar).items() if name == "belljar-zygote")


def descendants(jar):
    """{process id on the host: name} of what this server has started."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                names[int(entry.name)] = name.partition("(")[2]
                parents[int(entry.name)] = int(rest.split()[1])
    found = {}
    for pid, name in names.items():
        parent = parents[pid]
        while parent > 1 and parent != jar.pid:
            parent = parents.get(parent, 0)
        if parent == jar.pid:
            found[pid] = name
    return found
