"""A server whose kernels are forked from a warm interpreter, and what tests ask of it. The fixtures are in conftest.py."""

import contextlib
import functools
import json
import pathlib
import time

import belljar
import processes
import pytest
from belljar import need
from python_jar import SLOW, with_runtime
from sandboxes import Jar, ordinary_user, until

WARM = "info Python kernels are kept warm"
COLD = "no Python kernels are kept warm for now"

zygote_only = pytest.mark.native_only("kernels are started in containers, not forked")

IS_FORKED = "b'zygote.py' in open('/proc/self/cmdline', 'rb').read()"

wait_for = functools.partial(until, seconds=SLOW)


def wait_until_warm(jar, times=1):
    wait_for(lambda: jar.log_text().count(WARM) >= times, f"a zygote:\n{jar.log_text()[-2000:]}")


@contextlib.contextmanager
def open_jar(*flags, user=None, warm=True):
    need(belljar.BIN)
    with Jar(*flags, user=user) as jar:
        if warm and not belljar.IN_CONTAINERS:
            wait_until_warm(jar)
        yield jar


def who(param):
    """The server's user, and flags: another user may not look into this checkout, and gets the system's
    own Python, which has no numpy."""
    if param == "root":
        return None, with_runtime()
    return ordinary_user(), []


def python(jar, code, session=None, **options):
    return jar.execute(code, "python", session=session, wait=SLOW, **options)


def run_well(jar, code, session):
    """In a fresh session, for None, or this one."""
    run = python(jar, code, session)
    assert run.outcome == "ok", run
    if session is None:
        jar.close_session(run.session)
    return run


def ask(jar, code, session=None):
    """What the code prints as JSON."""
    return json.loads(run_well(jar, code, session).stdout)


def is_forked(jar, session=None):
    return run_well(jar, IS_FORKED, session).said["result"] == "True"


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
    found = {}
    for pid in processes.descendants(jar.pid):
        with contextlib.suppress(OSError):  # it has just ended
            found[pid] = pathlib.Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return found
