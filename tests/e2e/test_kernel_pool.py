"""Python kernels made ahead of need: each serves one session, and nobody can tell that it waited."""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time

import belljar
import pytest
from belljar import PATIENCE, Http, call_tool, need, text_of
from processes import below, sandboxes
from python_jar import with_runtime
from sandboxes import Jar, Run, ToolError, ordinary_user, until

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/kernel"))
from traces import DRAW, TRACES  # noqa: E402

SLOW = 30  # a kernel's start, on a busy machine

# What a first cell can see of the life of its kernel before it.
PROBE = """
import linecache as _linecache, os as _os
{
    "names": sorted(name for name in globals() if name not in ("_linecache", "_os")),
    "In": len(In), "Out": dict(Out), "unders": (_, __, ___), "i": (_i, _ii, _iii),
    "cells": [name for name in _linecache.cache if name.startswith("<cell")],
    "directory": (_os.getcwd(), _dh),
    "workspace": _os.listdir("/workspace"), "tmp": _os.listdir("/tmp"),
    "descriptors": sorted(map(int, _os.listdir("/proc/self/fd")))[:3],
}
"""


class Pool(Http):
    """A server over HTTP whose pool can be watched. One that is ready does not rehearse unless the flags say so:
    tests count on those that are ready."""

    def __init__(self, *flags, **options):
        super().__init__("--pool-enabled", "--kernel-rehearsal", "cell", *flags, **options)
        self.client = self.session()

    def metrics(self, *names):
        """Of one moment."""
        text = self.request("GET", "/metrics").body.decode()
        found = [re.search(rf"^belljar_kernel_pool_{name} (\S+)$", text, re.M) for name in names]
        return [int(float(match[1])) for match in found]

    def metric(self, name):
        return self.metrics(name)[0]

    def wait_ready(self, count):
        until(lambda: self.metric("ready") >= count, f"{count} kernels ready")

    def tool(self, name, client=None, **arguments):
        params = call_tool(name, arguments)
        result = (client or self.client).call("tools/call", params, timeout=SLOW)
        if result.get("isError"):
            raise ToolError(text_of(result))
        return result

    def execute(self, code, id=None, language="python", client=None):
        more = {"session_id": id} if id else {}
        return Run(self.tool("execute_code", client, code=code, language=language, **more), 0)


@pytest.fixture
def start():
    need(belljar.BIN)
    made = []

    def begin(*flags, kind=Pool, **options):
        made.append(kind(*flags, **options))
        return made[-1]

    yield begin
    for server in made:
        if server.alive():
            server.stop()


def wait_gone(pids):
    until(lambda: not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], "all gone")


def kernels(server):
    return {pid for others in sandboxes(server).values() for pid in others}


# --- giving away ----------------------------------------------------------------------------------


def test_a_new_session_gets_a_kernel_that_waited_and_another_takes_its_place(start):
    server = start()
    server.wait_ready(2)
    for taken in (1, 2, 3):
        assert server.execute("6 * 7").said["result"] == "42"
        assert (server.metric("hits_total"), server.metric("misses_total")) == (taken, 0)
        server.wait_ready(2)


def test_a_kernel_serves_one_session_only(start):
    server = start()
    ids = []
    for _ in range(5):
        server.wait_ready(2)
        run = server.execute(
            "import os; assert 'mine' not in globals() and not os.listdir()\n"
            "mine = open('mine', 'w').write('x'); open('/tmp/mine', 'w').close()"
        )
        assert run.outcome == "ok", run
        ids.append(run.session)
        server.tool("clear_session", session_id=run.session)
    assert server.metric("hits_total") == 5 and len(set(ids)) == 5


def test_sessions_from_the_pool_do_not_share(start):
    server = start("--kernel-pool-size", "4")
    server.wait_ready(4)
    runs = [server.execute(f"x = {i}; open('f', 'w').write('{i}')") for i in range(4)]
    assert server.metric("hits_total") == 4
    for i, run in enumerate(runs):
        assert server.execute("x, open('f').read()", run.session).said["result"] == f"({i}, '{i}')"
    assert len({run.session for run in runs}) == 4
    stranger = server.session()
    with pytest.raises(ToolError, match="no such session"):
        server.execute("x", runs[0].session, client=stranger)


def test_a_kernel_that_waited_looks_like_a_new_one(start):
    pooled, plain = start(), start("--kernel-pool-size", "0")
    pooled.wait_ready(2)
    seen = [server.execute(PROBE) for server in (pooled, plain)]
    assert pooled.metric("hits_total") == 1 and plain.metric("hits_total") == 0
    assert seen[0].outcome == "ok" and seen[0].said["result"] == seen[1].said["result"]
    assert "'In': 2" in seen[0].said["result"] and "'Out': {}" in seen[0].said["result"]
    for run in seen:
        assert (run.stdout, run.stderr, run.said["files"]) == ("", "", [])


def test_the_first_cell_is_number_one(start):
    server = start()
    server.wait_ready(2)
    run = server.execute("1 / 0")
    assert any("<cell 1>" in line for line in run.said["traceback"]), run
    again = server.execute("print(_i1, In[1]); Out", run.session)
    assert (again.stdout, again.said["result"]) == ("1 / 0 1 / 0\n", "{}")


def test_a_session_counts_from_when_it_was_given_away(start):
    server = start()
    server.wait_ready(2)
    time.sleep(1.5)  # it must be older than what its session may seem
    run = server.execute("raise SystemExit(3)")
    assert run.outcome == "error", run  # no limit was hit, whatever the sandbox counted before
    info = server.tool("session_info", session_id=run.session)["structuredContent"]
    assert info["runs"] == 1 and info["waiting"] == 0 and not info["busy"], info
    assert info["age_seconds"] < 1.4 * PATIENCE, info
    assert info["usage"]["out_of_memory_kills"] == 0


def test_limits_are_told_apart_from_what_was_before(start):
    server = start()
    server.wait_ready(2)
    run = server.execute("b'x' * (4 << 30)")
    assert run.outcome in ("memory_limit", "error"), run
    # The counter of the sandbox has risen; the next failure is not blamed on memory.
    assert server.execute("1 / 0", run.session).outcome == "error"


def test_only_python_with_the_usual_limits_comes_from_the_pool(start):
    server = start()
    server.wait_ready(2)
    bash = server.execute("echo hi", language="bash")
    assert bash.stdout == "hi\n"
    lower = server.tool("start_session", memory_mib=300)["structuredContent"]["session_id"]
    assert server.execute("1", lower).said["result"] == "1"
    assert (server.metric("hits_total"), server.metric("misses_total")) == (0, 0)
    assert server.metric("ready") == 2
    info = server.tool("session_info", session_id=lower)["structuredContent"]
    assert info["limits"]["memory_bytes"] == 300 << 20


def test_a_kernel_that_waited_has_the_server_s_environment_and_policy(start):
    server = start("--env", "GREETING=hello", "--allowed-modules", "math,os")
    server.wait_ready(2)
    run = server.execute("import os, math; os.environ['GREETING']")
    assert run.said["result"] == "'hello'", run
    assert "ImportError" in server.execute("import socket", run.session).error
    assert server.metric("hits_total") == 1


def test_kernels_in_the_pool_are_no_sessions(start):
    server = start("--max-sessions", "2", "--kernel-pool-size", "4")
    server.wait_ready(4)
    for _ in range(2):
        server.execute("1")
    with pytest.raises(ToolError, match="limit"):
        server.execute("1")


# --- what they have imported ---------------------------------------------------------------------

# Where kernels are started, not forked, each imports by itself.
STARTED = [] if belljar.IN_CONTAINERS else ["--no-zygote"]
IMPORTED = "import sys; [name for name in ('tabnanny', 'this', 'json.tool') if name in sys.modules]"


def test_a_kernel_that_was_started_ahead_has_its_modules(start):
    server = start(*STARTED, "--preload", "tabnanny,no_such_module,this,json.tool")
    server.wait_ready(2)
    run = server.execute(IMPORTED)
    assert run.said["result"] == "['tabnanny', 'this', 'json.tool']", run
    assert (run.stdout, run.stderr) == ("", ""), "this prints a poem when it is imported"
    assert server.metric("hits_total") == 1 and server.metric("failures_total") == 0
    # Nobody has imported anything for one that is started for a call.
    plain = start(*STARTED, "--preload", "this", "--kernel-pool-size", "0")
    assert plain.execute(IMPORTED).said["result"] == "[]"


def importing(command, *modules):
    """Flags for a kernel that runs this command when it imports its first module."""
    flags = ["--env", f"BROWSER={command} %s", "--preload", ",".join(["antigravity", *modules])]
    return [*STARTED, *flags, "--kernel-pool-size", "1"]


def test_no_call_waits_for_an_import(start):
    server = start(*importing("sh -c 'sleep 600'"), "--kernel-pool-size", "2")
    until(lambda: any(map(is_asleep, kernels(server))), "a kernel that imports")
    # Another waits that has not begun; after it there are only new ones.
    for number in range(4):
        assert server.execute(f"{number} + 1").said["result"] == str(number + 1)
    assert server.metric("hits_total") > 0 and server.metric("ready") == 0


def is_asleep(pid):
    try:
        return b"sleep" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_kernel_that_is_lost_over_its_imports_is_followed_by_one_without(start):
    server = start(*importing("sh -c 'kill -9 $PPID'"))
    server.wait_ready(1)
    assert server.metric("failures_total") >= 1
    assert server.execute("6 * 7").said["result"] == "42"
    assert server.log_text().count("while it imported the modules of preload") == 1


# --- rehearsals ------------------------------------------------------------------------------------


def wait_rehearsed(server, count):
    until(lambda: server.metric("rehearsals_total") >= count, f"{count} rehearsals", 2 * SLOW)


def wait_tried(server, count):
    """Until all that wait have rehearsed. Those that had to be started at first have nothing to, and go."""
    wait_rehearsed(server, count)
    if not belljar.IN_CONTAINERS:
        until(
            lambda: len(pids := kernels(server)) == count and all(map(has_tried, pids)),
            f"{count} forked kernels that have tried pandas",
            2 * SLOW,
        )


def has_tried(pid):
    """A forked one has had five times as many page faults then."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return is_forked(pid) and int(fields[7]) > 1200


def wait_forked(server):
    """Until those that had to be started at first are gone."""
    if not belljar.IN_CONTAINERS:
        until(lambda: (pids := kernels(server)) and all(map(is_forked, pids)), "forked kernels")
    server.wait_ready(2)


@pytest.mark.python_only
def test_nobody_can_tell_that_a_kernel_has_rehearsed(start):
    """Names, numbers of cells, modules, files, descriptors, threads, warnings, garbage, figures, output."""
    seen = []
    for how in ("cell", "data"):
        server = start(*with_runtime(), "--kernel-rehearsal", how)
        wait_forked(server)
        if how == "data":
            wait_tried(server, 2)
        run = server.execute(TRACES)
        assert run.outcome == "ok" and run.stderr == "" and run.said["files"] == [], run
        assert server.metric("hits_total") == 1
        seen.append(json.loads(run.stdout))
        server.stop()
    plain, tried = (set(traces.pop("modules")) for traces in seen)
    assert "pandas" in plain
    if belljar.IN_CONTAINERS:  # libraries import some of their own when they are first used
        assert plain <= tried
    else:  # the zygote has used them
        assert plain == tried
    assert seen[0] == seen[1]
    assert seen[1]["threads"][1] == 1


def test_kernels_that_have_rehearsed_draw_their_own_numbers(start):
    server = start(*with_runtime(), "--kernel-rehearsal", "data", "--kernel-pool-size", "4")
    wait_tried(server, 4)
    words = []
    for _ in range(8):
        words += server.execute(DRAW).stdout.split()
    # Four each, and two of numpy's where it is imported: not in a container that was made for the call.
    assert len(words) == len(set(words)) >= 8 * 4


def test_a_kernel_rehearses_once_it_has_waited_and_only_if_it_is_to(start):
    server, plain = start("--kernel-rehearsal", "data"), start("--kernel-rehearsal", "cell")
    wait_rehearsed(server, 2)
    plain.wait_ready(2)
    for taken in range(1, 4):
        assert server.execute("6 * 7").said["result"] == "42"
        wait_rehearsed(server, 2 + taken)
    assert server.metric("hits_total") == 3 and server.metric("failures_total") == 0
    time.sleep(0.5)  # longer than it has to wait
    assert plain.metric("rehearsals_total") == 0


def test_none_rehearses_while_sessions_come(start):
    """It would take the processors from the next."""
    server = start("--kernel-rehearsal", "data", "--kernel-pool-size", "4")
    wait_rehearsed(server, 4)
    before, last = server.metric("rehearsals_total"), time.monotonic()
    for _ in range(12):  # for longer than one waits
        assert server.execute("6 * 7").said["result"] == "42"
        apart, last = time.monotonic() - last, time.monotonic()
        if apart > 0.2:
            pytest.skip(f"this machine is too slow for it: {apart:.2f} s for one call")
        time.sleep(0.05)
    assert server.metric("rehearsals_total") == before
    wait_rehearsed(server, before + 4)


def test_a_policy_for_imports_does_not_hinder_a_rehearsal(start):
    flags = ["--allowed-modules", "math", "--kernel-rehearsal", "data"]
    server = start(*with_runtime(), *flags)
    wait_rehearsed(server, 2)
    run = server.execute("import pandas")
    assert "not in the allowed list" in run.error and run.stdout == "", run
    assert server.metric("failures_total") == 0


@pytest.fixture
def broken_numpy():
    """Flags for kernels, started and not forked, in which numpy's first function does something else."""
    with tempfile.TemporaryDirectory(prefix="belljar-runtime-") as made:
        place = pathlib.Path(made)
        place.chmod(0o755)
        for folder in ("bin", "modules"):
            (place / folder).mkdir()

        def make(what):
            script = place / "bin/python3"
            script.write_text(
                '#!/bin/sh\nexport PYTHONPATH="${0%/bin/*}/modules"\nexec /usr/bin/python3 "$@"\n'
            )
            script.chmod(0o755)
            (place / "modules/numpy.py").write_text(f"def arange(*_):\n    {what}\n")
            flags = ["--runtime", str(place), "--no-zygote", "--preload", "numpy"]
            return [*flags, "--kernel-rehearsal", "data"]

        yield make


@pytest.mark.native_only("the interpreter is the image's")
def test_a_kernel_that_dies_of_its_rehearsal_is_followed_by_one_without(start, broken_numpy):
    server = start(*broken_numpy("__import__('os').abort()"))
    until(lambda: server.metric("failures_total") >= 1, "a rehearsal")
    server.wait_ready(2)
    assert server.execute("6 * 7").said["result"] == "42"
    server.wait_ready(2)
    assert server.metric("failures_total") == 1 and server.metric("rehearsals_total") == 0
    server.wait_log("was lost while it rehearsed")
    assert server.log_text().count("was lost while it rehearsed") == 1, server.log_text()


@pytest.mark.python_only
@pytest.mark.native_only("the interpreter is the image's")
def test_no_call_waits_for_a_rehearsal_and_one_without_end_is_ended(start, broken_numpy):
    server = start(*broken_numpy("__import__('time').sleep(600)"))
    server.wait_ready(2)
    time.sleep(1)  # one of them rehearses by now
    for number in range(4):
        assert server.execute(f"{number} + 1").said["result"] == str(number + 1)
    assert server.metric("hits_total") > 0
    until(lambda: server.metric("failures_total") == 1, "the end of it")
    server.wait_ready(2)
    assert server.metric("rehearsals_total") == 0
    server.wait_log("was lost while it rehearsed")
    assert server.log_text().count("was lost while it rehearsed") == 1, server.log_text()


LEAVES_A_CHILD = "import subprocess\nsubprocess.Popen(['sleep', '600']).pid"


def end_in_a_row(server, count):
    """Sessions from the pool that end at once, with something that still runs."""
    for _ in range(count):
        run = server.execute(LEAVES_A_CHILD)
        assert run.outcome == "ok", run
        server.tool("clear_session", session_id=run.session)


def sleepers(server):
    def words(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
        except OSError:
            return None

    return [pid for pid in below(server) if words(pid) == [b"sleep", b"600"]]


def test_sessions_that_end_while_others_come_are_gone_soon_after(start):
    server = start("--kernel-pool-size", "6", "--pool-size", "8")
    for _ in range(2):
        server.wait_ready(6)
        end_in_a_row(server, 4)
        until(lambda: not sleepers(server), "what they have left has ended", seconds=2)
    server.wait_ready(6)
    assert (server.metric("hits_total"), server.metric("failures_total")) == (8, 0)


def test_a_server_ends_those_that_have_not_gone_yet(start):
    server = start("--kernel-pool-size", "6", "--pool-size", "8")
    server.wait_ready(6)
    end_in_a_row(server, 3)
    pids = below(server)
    server.stop()
    wait_gone(pids)


# --- how many --------------------------------------------------------------------------------------


def test_a_burst_larger_than_the_pool_is_served(start):
    server = start("--pool-size", "4", "--max-sessions-per-client", "64")
    server.wait_ready(2)
    results, most = {}, []

    def work(number):
        client = server.session()
        run = server.execute(f"import os\nx = {number}\nx, os.listdir()", client=client)
        again = server.execute("x", run.session, client=client)
        results[number] = (run.said["result"], again.said["result"])
        most.append(sum(server.metrics("ready", "making")))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: (f"({n}, [])", str(n)) for n in range(20)}
    assert server.metric("hits_total") + server.metric("misses_total") == 20
    assert server.metric("misses_total") > 0
    # It has grown with the demand, and no further than allowed.
    server.wait_ready(4)
    assert max(most) <= 4, most


@pytest.mark.parametrize("flags", [("--no-pool-enabled",), ("--kernel-pool-size", "0")])
def test_without_a_pool_python_works(start, flags):
    server = start(*flags)
    assert server.execute("6 * 7").said["result"] == "42"
    for name in ("ready", "making", "hits_total", "misses_total", "failures_total"):
        assert server.metric(name) == 0, name


def test_one_kernel_is_enough_for_a_pool(start):
    server = start("--kernel-pool-size", "1", "--pool-size", "1", "--pool-max-creations", "1")
    for number in range(3):
        server.wait_ready(1)
        assert server.execute(str(number)).said["result"] == str(number)
    assert server.metric("hits_total") == 3


# --- age, death, failure -----------------------------------------------------------------------------


def test_a_kernel_that_waited_too_long_is_replaced(start):
    server = start("--pool-max-age", "1s")
    server.wait_ready(2)
    old = kernels(server)
    assert old
    until(lambda: not old & kernels(server), "the first kernels gone")
    server.wait_ready(2)
    assert server.metric("failures_total") == 0
    assert server.execute("6 * 7").said["result"] == "42"


def test_a_sandbox_that_dies_in_the_pool_is_never_given_away(start):
    server = start("--pool-max-age", "1h")
    server.wait_ready(2)
    for agent, others in sandboxes(server).items():
        if others:
            os.kill(agent, signal.SIGKILL)
    until(lambda: server.metric("failures_total") >= 2, "both deaths noted")
    assert server.execute("6 * 7").said["result"] == "42"
    server.wait_ready(2)
    assert server.log_text().count("made ahead of need has failed") == 1


def test_a_kernel_that_dies_in_the_pool_is_never_given_away(start):
    server = start("--pool-max-age", "1h")
    server.wait_ready(2)
    for pid in kernels(server):
        os.kill(pid, signal.SIGKILL)
    until(lambda: server.metric("failures_total") >= 2, "both deaths noted")
    run = server.execute("6 * 7")
    assert run.said["result"] == "42" and "restarted" not in run.text
    server.wait_ready(2)


def test_where_there_is_no_python_the_pool_gives_up_for_longer_and_longer(start):
    server = start("--python", "/no/such/python")
    until(lambda: server.metric("failures_total") >= 2, "two tries")
    assert server.execute("echo hi", language="bash").stdout == "hi\n"
    run = server.execute("1")
    assert run.outcome == "kernel_died" and "could not" in run.error, run
    assert server.log_text().count("made ahead of need has failed") == 1
    assert server.metric("failures_total") <= 12  # two at a time, after 0, 1, 3, 7 … seconds


def is_forked(pid):
    try:
        return b"zygote.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.native_only("kernels are started in containers, not forked")
def test_kernels_that_had_to_be_started_are_replaced_by_forked_ones(start):
    # At first there is no zygote, and a kernel that had to be started is better than none.
    server = start("--pool-max-age", "1h")
    until(
        lambda: len(pids := kernels(server)) == 2 and all(map(is_forked, pids)),
        "two forked kernels",
    )
    server.wait_ready(2)
    assert server.metric("failures_total") == 0
    assert server.execute("6 * 7").said["result"] == "42"


def test_without_a_zygote_kernels_that_had_to_be_started_stay(start):
    server = start("--pool-max-age", "1h", "--no-zygote")
    server.wait_ready(2)
    first = kernels(server)
    time.sleep(3)  # several times as long as it takes to look for better ones
    assert kernels(server) == first and not any(map(is_forked, first))


# --- the beginning and the end --------------------------------------------------------------------------


def test_on_stdio_nothing_is_made_before_the_first_answer(start):
    server = start("--pool-enabled", "--pool-size=3", kind=belljar.Stdio)
    until(lambda: len(sandboxes(server)) >= 3, "the sandboxes without kernels")
    assert not kernels(server)
    server.initialize()
    until(lambda: len(kernels(server)) >= 2, "two kernels")


def test_on_stdio_an_ordinary_user_has_a_pool(start):
    need(belljar.BIN)
    user = ordinary_user()
    jar = start(kind=Jar, user=user)
    until(lambda: len(kernels(jar)) >= 2, "two kernels")
    before = kernels(jar)
    run = jar.execute("import os; x = 1; os.listdir()", "python")
    assert run.said["result"] == "[]"
    assert before & kernels(jar), "it was one of those that waited"
    assert jar.execute("x", "python", session=run.session).said["result"] == "1"
    other = jar.execute("'x' in globals()", "python")
    assert other.said["result"] == "False" and other.session != run.session


def test_the_pool_ends_with_the_server(start):
    server = start()
    server.wait_ready(2)
    server.execute("1")
    pids = below(server)
    assert len(pids) > 4
    server.stop()
    wait_gone(pids)


def test_a_server_may_be_stopped_while_its_pool_is_being_made(start):
    for _ in range(3):
        server = start("--kernel-pool-size", "8", "--pool-max-creations", "8")
        pids = below(server)
        server.stop()
        wait_gone(pids)
