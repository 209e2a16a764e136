"""What is left when a server dies, when many sandboxes come and go, and when the host refuses."""

import http.client
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import belljar
import host
import pytest
import sandboxes
from belljar import PATIENCE
from sandboxes import Jar, ToolError

LEFT_AFTER = 5  # seconds

BUSY = [
    "sleep 1000",
    "for i in $(seq 1 20); do setsid sleep 1000 & done; wait",
    "trap '' INT TERM HUP; while :; do :; done",
    "yes >/dev/null",
    "yes",
    "kill -STOP $$",
    "while :; do (true); done",
    "head -c 50M /dev/zero >/workspace/x; sleep 1000",
]


# --- kill -9 ------------------------------------------------------------------------------------------


@pytest.mark.timeout(3600)
def test_kill_9_at_any_moment_leaves_nothing(user, start, new_traces, numbers, settle):
    """Of creation, execution, file work or clean-up."""
    chance = random.Random(20)
    for number in range(numbers.kills):
        state = sandboxes.make_state(user)
        traces = new_traces()
        try:
            # Its first answer is not waited for: it may be killed while it starts.
            jar = start(state=state, era="stateless")
            stop_at = (
                time.monotonic()
                + chance.choice([0, 0.002, 0.01, 0.05, 0.2, 0.5]) * chance.random() * 2
            )
            try:
                busy(jar, chance, stop_at)
            except (OSError, EOFError, AssertionError):
                pass
            traces.note(jar.pid)
            jar.process.kill()
            jar.process.wait()
            settle(state)
            left = traces.wait_clean(state, LEFT_AFTER)
            assert not left, f"kill {number}: left after {LEFT_AFTER} s: {left}"
        finally:
            shutil.rmtree(state, ignore_errors=True)


def busy(jar, chance, stop_at):
    sessions = []
    while time.monotonic() < stop_at:
        what = chance.randrange(5)
        if what <= 1 or not sessions:
            waiting = jar.submit("tools/call", belljar.call_tool("start_session"))
            if what == 0:
                sessions.append(waiting.result(5)["structuredContent"]["session_id"])
        elif what == 2:
            jar.begin(chance.choice(BUSY), session=chance.choice(sessions), timeout=60)
        elif what == 3:
            arguments = {
                "session_id": chance.choice(sessions),
                "path": "a/b/c",
                "content": "x" * 100000,
            }
            jar.submit("tools/call", belljar.call_tool("sandbox_write_file", arguments))
        else:
            jar.submit(
                "tools/call", belljar.call_tool("clear_session", {"session_id": sessions.pop()})
            )
        time.sleep(chance.random() * 0.02)


def test_kill_9_of_an_http_server_leaves_nothing(user):
    belljar.need(belljar.BIN)
    state = sandboxes.make_state(user)
    traces = host.Traces()
    words = [*sandboxes.as_user(user), sandboxes.binary_for(user), "serve", "--http", "127.0.0.1:0"]
    words += ["--state-dir", state, "--require-limits", "false"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(user), cwd="/") as process:
        try:
            for line in process.stderr:
                if found := re.search(rb"http://127\.0\.0\.1:(\d+)/", line):
                    break
            connections = []  # kept: in this era a disconnect cancels
            for code in BUSY[:3]:
                arguments = {"code": code, "language": "bash"}
                message = belljar.stateless(
                    "tools/call", belljar.call_tool("execute_code", arguments)
                )
                body = belljar.encode(message)
                headers = {"Content-Type": "application/json", "Accept": belljar.BOTH}
                connections.append(http.client.HTTPConnection("127.0.0.1", int(found[1])))
                connections[-1].request("POST", "/mcp", body, headers | belljar.mirror(message))
            assert host.wait_for(lambda: len(host.guests(process.pid)) >= 3, 10)
            traces.note(process.pid)
        finally:
            process.kill()
    left = traces.wait_clean(state, LEFT_AFTER)
    shutil.rmtree(state, ignore_errors=True)
    assert not left, left


@pytest.mark.parametrize("way", ["end of input", "SIGTERM", "SIGINT", "SIGHUP"])
def test_every_other_end_leaves_nothing_too(user, start, new_traces, settle, way):
    state = sandboxes.make_state(user)
    traces = new_traces()
    jar = start(state=state)
    for code in BUSY[:4]:
        jar.begin(code, timeout=60)
    assert host.wait_for(lambda: len(host.guests(jar.guests_below)) >= 4, 10)
    traces.note(jar.pid)
    if way == "end of input":
        jar.close_input()
    else:
        jar.process.send_signal(getattr(signal, way))
    try:
        status = jar.wait_exit(LEFT_AFTER)
    finally:
        jar.process.kill()
    left = traces.wait_clean(state, LEFT_AFTER)
    settle(state)
    shutil.rmtree(state, ignore_errors=True)
    assert not left, left
    if way != "SIGHUP":
        assert status == 0, (status, jar.log_text()[-2000:])


def test_the_parts_of_the_engine_may_die_too(user):
    """Any one of the server's processes is killed: the server says so, or goes on; nothing is left,
    at the latest after the next start."""
    belljar.need(belljar.BIN)
    ours = host.link("/proc/self/ns/pid")
    for number in range(8):
        state = sandboxes.make_state(user)
        traces = host.Traces()
        jar = Jar(user=user, state=state)
        try:
            session = jar.execute("echo begun").session
            traces.note(jar.pid)
            family = sorted(host.below(jar.pid), key=lambda task: task.pid)
            parts = [task for task in family if task.pid_namespace == ours or task.inner_pid == 1]
            if number >= len(parts):
                break
            victim = parts[number]
            os.kill(victim.pid, signal.SIGKILL)
            try:
                run = jar.execute("echo after", timeout=5, wait=10)
                assert run.stdout == "after\n" or run.error, run
                run = jar.execute("echo again", session=session, timeout=5, wait=10)
                assert run.stdout == "again\n" or run.error, run
            except (ToolError, EOFError, OSError):
                pass  # a clear answer, too
            try:
                jar.close_input()
            except OSError:
                pass
            jar.wait_exit(LEFT_AFTER)
        finally:
            jar.process.kill()
            jar.process.wait()
        if traces.wait_clean(state, LEFT_AFTER):
            with Jar(user=user, state=state) as second:
                assert second.execute("echo next").stdout == "next\n"
        left = traces.wait_clean(state, LEFT_AFTER)
        shutil.rmtree(state, ignore_errors=True)
        assert not left, f"after the death of {victim}: {left}"


# --- many ---------------------------------------------------------------------------------------------

KEPT_CGROUPS = 32  # SPARE_LEAVES of spawner.c


@pytest.mark.timeout(1200)
def test_many_in_sequence_leave_no_trace(user, start, new_traces, numbers):
    state = sandboxes.make_state(user)
    traces = new_traces()
    with start(state=state) as jar:
        marks = []
        for number in range(numbers.in_sequence):
            run = jar.execute(f"echo {number}; echo x >/workspace/x; (setsid sleep 100 &)")
            assert run.stdout == f"{number}\n", run
            jar.close_session(run.session)
            if number in (numbers.in_sequence // 3, numbers.in_sequence - 1):
                time.sleep(0.5)  # for the pool to come to rest
                marks.append(counters(jar))
        traces.note(jar.pid)
        assert not host.wait_gone(lambda: host.guests(jar.guests_below), 3)
        before, after = marks
        assert abs(after["descriptors"] - before["descriptors"]) <= 5, marks
        assert after["processes"] - before["processes"] <= 2, marks
        assert after["cgroups"] - before["cgroups"] <= 4, marks
        assert after["kept"] <= KEPT_CGROUPS + after["cgroups"], marks
        assert after["memory"] - before["memory"] < 4 << 20, marks
    left = traces.wait_clean(state, LEFT_AFTER)
    shutil.rmtree(state, ignore_errors=True)
    assert not left, left


def counters(jar):
    family = [host.Task(jar.pid), *host.below(jar.pid)]
    ours = host.link("/proc/self/ns/pid")
    own = [task for task in family if task.pid_namespace == ours or task.parent == jar.pid]
    tops = host.owned_cgroups(jar.pid)
    cgroups = [name for top in tops for _, names, _ in os.walk(top) for name in names]
    kept = {name.partition("-")[0] for name in cgroups if name.endswith("-agent")}
    return {
        "descriptors": sum(len(os.listdir(f"/proc/{task.pid}/fd")) for task in own),
        "processes": len(family),
        "memory": sum(int((task.status("VmRSS") or ["0"])[0]) * 1024 for task in own),
        "cgroups": sum(not name.endswith(("-kept", "-agent")) for name in cgroups),
        "kept": len(kept),  # numbers of leaves that are used again, by living sandboxes or the next
    }


@pytest.mark.timeout(600)
def test_many_at_once_are_kept_apart_and_leave_no_trace(user, start, new_traces, numbers):
    state = sandboxes.make_state(user)
    traces = new_traces()
    flags = ["--max-sessions-per-client", "1000", "--max-requests-per-client", "1000"]
    with start(*flags, state=state) as jar:
        jar.execute("echo warm")
        time.sleep(1)  # for the pool to be full
        before = jar.fds()
        waiting = [
            jar.begin(
                f"echo {i} >/workspace/n; echo {i} >/tmp/n; sleep 1; cat /workspace/n /tmp/n",
                timeout=60,
            )
            for i in range(numbers.at_once)
        ]
        runs = [one.run(60) for one in waiting]
        for i, run in enumerate(runs):
            assert run.stdout == f"{i}\n{i}\n", f"mixed up: {run}"
        assert len({run.session for run in runs}) == numbers.at_once
        traces.note(jar.pid)
        for run in runs:
            jar.close_session(run.session)
        most = before + 5 + numbers.connections
        assert host.wait_for(lambda: jar.fds() <= most, 5), (before, jar.fds())
        assert not host.wait_gone(lambda: host.guests(jar.guests_below), 3)
    left = traces.wait_clean(state, LEFT_AFTER)
    shutil.rmtree(state, ignore_errors=True)
    assert not left, left


# --- a host that refuses --------------------------------------------------------------------------------


def environment(user):
    return {"PATH": os.environ["PATH"], "HOME": user.home if user else "/nonexistent"}


def one_call(*flags, user=None, before=(), state):
    """Starts a server and asks it to run something: its exit status, and all that it said. Nothing may
    be left of it."""
    traces = host.Traces()
    words = [*before, *sandboxes.as_user(user), sandboxes.binary_for(user), "serve", "--stdio"]
    process = subprocess.Popen(
        [*words, "--state-dir", state, *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(user),
        cwd="/",
    )
    watchdog = threading.Timer(20 * PATIENCE, process.kill)
    watchdog.start()
    arguments = {"code": "echo r''an", "language": "bash"}
    call = belljar.stateless("tools/call", belljar.call_tool("execute_code", arguments))
    try:
        process.stdin.write(belljar.encode(call) + b"\n")
        process.stdin.flush()
        first = process.stdout.readline()  # the end of input would interrupt the run
    except BrokenPipeError:
        first = b""
    out, err = process.communicate()
    watchdog.cancel()
    left = traces.wait_clean("/nonexistent", LEFT_AFTER)
    assert not left, left
    return process.returncode, (first + out).decode(), err.decode()


def start_and_fail(*flags, user=None, before=(), state=None):
    place = state or sandboxes.make_state(user)
    try:
        said = one_call(*flags, user=user, before=before, state=place)
        assert state or not host.Traces().left(place), os.listdir(place)
        return said
    finally:
        if state is None:
            shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--engine", "nothing"], "engine"),
        (["--rootfs", "/nonexistent/root"], "rootfs"),
        (["--rootfs", "/etc/passwd"], "rootfs"),
        (["--allow-missing", "no_such_layer"], "no_such_layer"),
        (["--memory-limit", "1"], "memory_limit"),
        (["--process-limit", "0"], "process_limit"),
        (["--uid-base", "1"], "uid_base"),
        (["--pool-size", "-1"], "pool_size"),
        (["--state-dir", "/nonexistent/a/b"], "state_dir"),
        (["--state-dir", "/etc/passwd"], "state_dir"),
    ],
)
def test_a_bad_option_is_named(user, flags, words):
    status, out, err = start_and_fail(*flags, user=user)
    assert status not in (0, None) and status > 0, (status, err)
    assert words in err, err
    assert out == "", out


def test_a_state_directory_of_somebody_else_is_refused(user, place):
    state = place / "state"
    state.mkdir()
    state.chmod(0o777)
    status, _, err = start_and_fail(user=user, state=str(state))
    assert status > 0 and "state_dir" in err, err


CALLS = {
    "mount": [165],
    "pivot_root": [155],
    "unshare": [272],
    "clone3 and unshare": [435, 272],
    "seccomp": [317],
    "prctl": [157],
    "setns": [308],
    "memfd_create": [319],
    "open_tree": [428],
    "socketpair": [53],
    "mount_setattr": [442],
}


@pytest.mark.parametrize("what", CALLS, ids=lambda what: what.replace(" ", "-"))
def test_a_kernel_that_refuses_a_layer_stops_the_start(user, what):
    """Or is not needed: then the layer must be in force all the same."""
    before = sandboxes.refusing(*CALLS[what])
    status, out, err = start_and_fail(user=user, before=before)
    if '"outcome":"ok"' in out:
        check_layers(user, before)
        return
    assert "ran" not in out and status > 0, (status, out, err)
    assert len(err) > 20, f"no words: {err}"


def check_layers(user, before):
    with Jar(user=user, before=before) as jar:
        run = jar.execute(
            "cat /proc/self/status; ls -l /proc/self/ns; mount 2>&1; touch /usr/x 2>&1"
        )
        assert "NoNewPrivs:\t1" in run.stdout and "Seccomp:\t2" in run.stdout, run
        deepest = max(host.below(jar.pid), key=lambda task: len(task.status("NSpid") or []))
        ours = host.Task(os.getpid()).namespaces()
        same = [kind for kind, ns in deepest.namespaces().items() if ns == ours[kind]]
        assert not same, f"not separate: {same}"


def test_no_user_namespaces_left(user, mode):
    """user.max_user_namespaces = 0, set in a user namespace around the server."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is missing")
    inner = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    before = ["unshare", "--user", "--map-root-user", "sh", "-c", inner, "sh"]
    if user:
        # as the user: the namespace is made by setpriv's child
        before = [*sandboxes.as_user(user), *before]
    done = subprocess.run([*before, "true"], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot make such a host here: {done.stderr.decode()}")
    place = sandboxes.make_state(user)
    try:
        process = subprocess.run(
            [
                *before,
                sandboxes.binary_for(user),
                "run",
                "--state-dir",
                place,
                "--language",
                "bash",
                "-",
            ],
            input=b"echo ran",
            capture_output=True,
            env=environment(user),
            timeout=20 * PATIENCE,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert process.returncode != 0 and b"ran" not in process.stdout, process
    assert b"namespace" in process.stderr, process.stderr


@pytest.fixture
def small_disk(place, user):
    """A state directory on a file system that is full."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small tmpfs")
    disk = place / "small"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=32,mode=0700", "small", disk],
        check=True,
    )
    if user:
        os.chown(disk, user.uid, user.gid)
    state = disk / "state"
    state.mkdir(mode=0o700)
    if user:
        os.chown(state, user.uid, user.gid)
    yield state
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_full_disk_is_said_and_survived(user, small_disk, what):
    if what == "bytes":
        try:
            (small_disk.parent / "fill").write_bytes(b"x" * (1 << 20))
        except OSError:
            pass
    else:
        try:
            for i in range(100):
                (small_disk.parent / f"f{i}").touch()
        except OSError:
            pass
    status, out, err = one_call(user=user, state=str(small_disk))
    if "ran" not in out:  # it may well work without writing there
        assert status > 0 and "No space left" in err, (status, out, err)


def test_no_descriptors_left(start, numbers):
    """EMFILE in the server: an error, and later all is well again."""
    code = "import os, resource, sys; n = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)); os.execvp(sys.argv[2], sys.argv[2:])"
    before = [sys.executable, "-c", code, str(numbers.descriptors)]
    with start(before=before) as jar:
        sessions, failures = [], []
        for _ in range(64):
            try:
                sessions.append(jar.tool("start_session")["session_id"])
            except ToolError as error:
                failures.append(str(error))
                break
        jar.ping()
        for session in sessions:
            jar.close_session(session)
        assert not host.wait_gone(lambda: host.guests(jar.guests_below), 3)

        def works():
            try:
                return jar.execute("echo well", timeout=5).stdout == "well\n"
            except ToolError:
                return False

        assert host.wait_for(works, 5, step=0.2), failures
        assert all(len(failure) > 20 for failure in failures), failures
