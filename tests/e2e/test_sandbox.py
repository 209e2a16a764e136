"""Ordinary life of sandboxes: runs, sessions, limits, streaming, cancellation."""

import contextlib
import json
import os
import pathlib
import signal
import threading
import time

import belljar
import processes
import pytest
from belljar import PATIENCE, call_tool, need, notification, stateless, text_of
from sandboxes import Jar, Run, ToolError, until


@pytest.fixture(scope="module")
def jar():
    need(belljar.BIN)
    with Jar() as made:
        yield made


@pytest.fixture
def start():
    """Servers with flags of their own."""
    made = []

    def begin(*flags, **options):
        made.append(Jar(*flags, **options))
        return made[-1]

    yield begin
    for jar in made:
        if jar.alive():
            jar.stop()


# --- one run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "language, code, stdout, exit_code",
    [
        ("bash", "echo hi", "hi\n", 0),
        ("bash", "exit 7", "", 7),
        ("bash", "a=(1 2 3); echo ${#a[@]} $BASH_VERSION | cut -c1-3; false", "3 5\n", 1),
        ("BASH", "echo hi", "hi\n", 0),
        ("sh", "echo hi; exit 255", "hi\n", 255),
        ("sh", "echo ${0##*/}", "code\n", 0),
        ("node", "console.log(1 + 1)", "2\n", 0),
        ("javascript", "console.log('hi'); process.exit(3)", "hi\n", 3),
        (
            "node",
            "console.log(require('path').basename(__filename), process.argv.length)",
            "code.js 2\n",
            0,
        ),
        ("bash", "", "", 0),
        ("bash", "no-such-command 2>/dev/null", "", 127),
        ("node", "throw new Error('x')", "", 1),
    ],
)
def test_code_runs(jar, language, code, stdout, exit_code):
    run = jar.execute(code, language)
    assert (run.stdout, run.exit_code) == (stdout, exit_code), run
    assert run.outcome == ("ok" if exit_code == 0 else "error"), run
    assert run.said["success"] is (exit_code == 0)
    assert (run.error is None) == (exit_code == 0), run
    assert not run.truncated
    jar.close_session(run.session)


def test_streams_are_kept_apart(jar):
    run = jar.execute("echo out; echo err >&2; sleep 0.1; echo out2; sleep 0.1; echo err2 >&2")
    assert (run.stdout, run.stderr) == ("out\nout2\n", "err\nerr2\n"), run
    assert [piece["stream"] for piece in run.said["output"]][:1] == ["stdout"]
    assert "[stderr]" in run.text and f"[session_id] {run.session}" in run.text


@pytest.mark.parametrize(
    "number, name", [(9, "Killed"), (11, "Segmentation"), (15, "Terminated"), (6, "Aborted")]
)
def test_death_by_signal_is_told(jar, number, name):
    run = jar.execute(f"echo last; kill -{number} $$")
    assert run.outcome == "killed" and run.exit_code == 128 + number, run
    assert name in run.error and run.stdout == "last\n", run


ODD = r"printf 'a\0b\377\xc3\xa4\xf0\x9f\x94\x94\r\nlast'"


def test_bytes_come_back_as_valid_text(jar):
    assert jar.execute(ODD).stdout == "a\ufffdb\ufffdä🔔\nlast"


def test_line_ends_come_back_as_they_were_if_so_wished(start):
    assert start("--no-strip-ansi").execute(ODD).stdout == "a\ufffdb\ufffdä🔔\r\nlast"


def test_code_that_begins_like_an_option_is_code(jar):
    assert jar.execute("-c 'echo no'").exit_code == 127
    assert jar.execute("#!/bin/false\necho yes").stdout == "yes\n"


def test_large_code_runs(jar):
    code = "#" + "x" * (3 << 20) + "\necho end"
    assert jar.execute(code).stdout == "end\n"


def test_standard_input_is_empty(jar):
    assert jar.execute("cat; echo end").stdout == "end\n"


def test_an_unknown_language_is_refused_with_the_known_ones(jar):
    with pytest.raises((ToolError, belljar.RpcError)) as caught:
        jar.execute("x", "cobol")
    assert "bash" in str(caught.value)


def test_an_unknown_language_is_refused_by_name(jar):
    with pytest.raises(ToolError) as caught:
        jar.execute("print(1)", "ruby")
    assert "language" in str(caught.value) and "bash" in str(caught.value)


def test_ordinary_programs_work(jar):
    """What people expect of a machine."""
    code = """
        set -e
        cd "$(mktemp -d)"; date >/dev/null; id; hostname
        python3 -c 'import json, sqlite3, ssl, threading, multiprocessing as m, socket; print(m.Pool(2).map(abs, [-1, -2]))'
        printf 'int main(void){return 0;}' >a.c; if command -v cc >/dev/null; then cc a.c -o a && ./a; fi
        python3 - <<'E'
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].send(b"lo works")).start()
print(socket.create_connection(server.getsockname()).recv(100).decode())
E
        seq 1 1000 | sort -rn | head -1; tar czf x.tgz a.c; find / -maxdepth 1 >/dev/null
        python3 -c 'import pty; pty.spawn(["echo", "terminal"])' | tr -d '\\r'
        locale >/dev/null; ls -la ~ >/dev/null; echo done
    """
    run = jar.execute(code)
    assert run.outcome == "ok", run
    for line in ("[1, 2]", "lo works", "1000", "terminal", "done"):
        assert line in run.stdout.splitlines(), run


@pytest.mark.native_only("the image's /etc/passwd does not know the guest's uid")
def test_the_guest_has_a_name(jar):
    run = jar.execute('id -un; getent passwd "$(id -u)" | cut -d: -f1')
    assert run.stdout == "guest\nguest\n", run


# --- sessions -------------------------------------------------------------------------------------------


def test_a_session_keeps_files_directory_and_exports_but_no_processes(jar):
    first = jar.execute("echo kept >notes; export KEPT=1; GONE=1; cd /tmp; sleep 100 & echo $!")
    again = jar.execute(
        'cat /workspace/notes; pwd; echo "[$KEPT][$GONE]"; jobs; pgrep -f sleep.100',
        session=first.session,
    )
    assert again.session == first.session
    assert again.stdout == "kept\n/tmp\n[1][]\n", again
    other = jar.execute("cat notes")
    assert other.session != first.session and other.exit_code == 1, other


@pytest.mark.parametrize("id", ["", "0"])
def test_no_id_is_a_new_session(jar, id):
    one = jar.submit(
        "tools/call", call_tool("execute_code", {"code": "pwd", "language": "sh", "session_id": id})
    )
    run = one.run()
    assert len(run.session) == 22 and run.stdout == "/workspace\n", run
    jar.close_session(run.session)


@pytest.mark.parametrize("id", ["nobody", "A" * 22, "../../x", "x" * 64])
def test_an_unknown_session_is_refused(jar, id):
    for name, more in (
        ("execute_code", {"code": "x", "language": "sh"}),
        ("session_info", {}),
        ("clear_session", {}),
        ("sandbox_read_file", {"path": "x"}),
        ("sandbox_write_file", {"path": "x", "content": ""}),
        ("sandbox_list_files", {}),
    ):
        with pytest.raises((ToolError, belljar.RpcError)) as caught:
            jar.tool(name, session_id=id, **more)
        assert "session" in str(caught.value), (name, caught.value)


def test_session_ids_do_not_repeat(jar):
    ids = {jar.tool("start_session")["session_id"] for _ in range(20)}
    assert len(ids) == 20
    for id in ids:
        jar.close_session(id)


def test_clear_session_ends_it(jar):
    run = jar.execute("echo x >x")
    said = jar.close_session(run.session)
    assert said["success"] is True and run.session in said["text"]
    with pytest.raises(ToolError):
        jar.execute("echo", session=run.session)
    with pytest.raises(ToolError):
        jar.close_session(run.session)


def test_clear_session_ends_what_runs_and_waits(jar):
    session = jar.tool("start_session")["session_id"]
    running = jar.begin("echo begun; sleep 100", session=session)
    queued = jar.begin("echo never", session=session)
    time.sleep(0.3)
    jar.close_session(session)
    for waiting in (running, queued):
        run = waiting.run(5)
        assert run.outcome == "interrupted", run
    assert running.run().stdout == "begun\n"


def test_session_info_tells_what_there_is(jar):
    session = jar.tool("start_session")["session_id"]
    info = jar.info(session)
    assert info["session_id"] == session and info["busy"] is False
    assert (info["runs"], info["waiting"]) == (0, 0), info
    assert 0 <= info["age_seconds"] < 10 and 1700 < info["idle_seconds_left"] <= 1800, info
    limits = info["limits"]
    assert limits["memory_bytes"] == 512 << 20 and limits["processes"] == 128, limits
    assert limits["cpus"] == 1 and limits["open_files"] == 1024, limits
    assert limits["workspace_bytes"] == 256 << 20 and limits["file_bytes"] == 256 << 20, limits
    if not belljar.IN_CONTAINERS:  # there it is the engine's to give
        assert "user_namespace" in info["enforced"], info["enforced"]
    for layer in ("mount_ns", "pid_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns", "seccomp"):
        assert any(layer.split("_")[0] in name for name in info["enforced"]), (
            layer,
            info["enforced"],
        )

    waiting = jar.begin(
        "head -c 60M /dev/zero >/workspace/x; (while :; do :; done) & sleep 1.2", session=session
    )
    time.sleep(0.9)
    info = jar.info(session)
    assert info["busy"] is True and info["waiting"] == 1 and info["runs"] == 1, info
    waiting.run()
    if "usage" in info:
        assert info["usage"]["processes"] >= 2, info
        assert info["usage"]["memory_bytes"] > 50 << 20, info
        after = jar.info(session)
        assert after["usage"]["cpu_seconds"] > 0.3, after
        assert after["usage"]["memory_peak_bytes"] >= info["usage"]["memory_bytes"] // 2, after
    jar.close_session(session)


def test_limits_can_be_lowered(jar):
    session = jar.tool("start_session", memory_mib=64, processes=20, cpus=0.5, workspace_mib=8)[
        "session_id"
    ]
    limits = jar.info(session)["limits"]
    assert limits["memory_bytes"] == 64 << 20 and limits["processes"] == 20, limits
    assert limits["cpus"] == 0.5 and limits["workspace_bytes"] == 8 << 20, limits
    run = jar.execute("head -c 20M /dev/zero >/workspace/x", session=session)
    assert run.outcome == "disk_limit" and "8 MiB" in run.error, run
    enforced = jar.info(session)["enforced"]
    if "memory_limit" in enforced:
        run = jar.execute("rm -f x; python3 -c 'x = bytearray(200 << 20)'", session=session)
        assert run.outcome == "memory_limit" and "64 MiB" in run.error, run
    if "pids_limit" in enforced:
        run = jar.execute("for i in $(seq 50); do sleep 5 & done; wait", session=session)
        assert run.outcome == "process_limit" and "20" in run.error, run
    jar.close_session(session)


@pytest.mark.parametrize(
    "limit", [{"memory_mib": 513}, {"processes": 129}, {"cpus": 1.5}, {"workspace_mib": 257}]
)
def test_limits_cannot_be_raised(jar, limit):
    with pytest.raises(ToolError) as caught:
        jar.tool("start_session", **limit)
    assert next(iter(limit)) in str(caught.value), caught.value


@pytest.mark.parametrize(
    "limit",
    [{"memory_mib": 0}, {"processes": -1}, {"cpus": 0}, {"workspace_mib": "x"}, {"swap": 1}],
)
def test_senseless_limits_are_refused(jar, limit):
    with pytest.raises((ToolError, belljar.RpcError)) as caught:
        jar.tool("start_session", **limit)
    assert next(iter(limit)) in str(caught.value), caught.value


def test_an_idle_session_ends(start):
    jar = start("--session-timeout", "1s")
    run = jar.execute("echo x")
    busy = jar.begin("sleep 3; echo done")
    deadline = time.monotonic() + 4 * PATIENCE
    while True:
        time.sleep(1.5)  # asking is using
        try:
            jar.info(run.session)
        except ToolError as error:
            assert "session" in str(error)
            break
        assert time.monotonic() < deadline, "still there"
    assert busy.run().stdout == "done\n", "a session that runs is not idle"


@pytest.mark.native_only("it stops the process that makes sandboxes")
def test_a_session_that_takes_long_to_open_is_not_idle(start):
    jar = start("--session-timeout", "1s")
    spawner = min(filter(is_spawner, processes.below(jar)))  # others begin as its copies
    os.kill(spawner, signal.SIGSTOP)
    go_on = threading.Timer(2.5, os.kill, (spawner, signal.SIGCONT))
    go_on.start()
    try:
        assert jar.tool("start_session", memory_mib=123)["session_id"]  # no such one waits
    finally:
        go_on.join()


def is_spawner(pid):
    return is_called(pid, "belljar-spawner")


def is_called(pid, name):
    with contextlib.suppress(OSError):  # it has just ended
        return pathlib.Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
    return False


def begin_with_stopped_agent(jar):
    """(session with a file, a run in it whose time will be up, the agent that is to end it)"""
    run = jar.execute("echo kept >file")
    waiting = jar.begin("echo begun; sleep 60", session=run.session)
    until(lambda: [pid for pid in processes.below(jar) if is_called(pid, "sleep")], "the run")
    (agent,) = [pid for pid in processes.below(jar) if is_called(pid, "belljar-agent")]
    os.kill(agent, signal.SIGSTOP)
    return run.session, waiting, agent


@pytest.mark.native_only("it stops an agent")
def test_a_run_that_cannot_be_killed_ends_with_its_session(start):
    jar = start("--no-pool-enabled", "--run-timeout=1s", "--kill-grace=300ms")
    session, waiting, agent = begin_with_stopped_agent(jar)
    run = waiting.run()
    assert run.outcome == "timeout" and "destroyed" in run.error, run.said
    until(lambda: agent not in processes.below(jar), "the end of the sandbox")
    with pytest.raises(ToolError):
        jar.execute("cat file", session=session)
    assert jar.execute("echo another").stdout == "another\n"


@pytest.mark.native_only("it stops an agent")
def test_a_run_that_is_slow_to_die_costs_no_session(start):
    jar = start("--no-pool-enabled", "--run-timeout=1s", "--kill-grace=1m")
    session, waiting, agent = begin_with_stopped_agent(jar)
    go_on = threading.Timer(3.5, os.kill, (agent, signal.SIGCONT))
    go_on.start()
    try:
        run = waiting.run()
    finally:
        go_on.join()
    assert run.outcome == "timeout", run.said
    assert jar.execute("cat file", session=session).stdout == "kept\n"


def test_the_number_of_sessions_is_limited(start):
    jar = start("--max-sessions-per-client", "3", "--max-sessions", "5")
    sessions = [jar.tool("start_session")["session_id"] for _ in range(3)]
    with pytest.raises(ToolError) as caught:
        jar.execute("echo one more")
    assert "3" in str(caught.value) and "clear_session" in str(caught.value)
    jar.close_session(sessions[0])
    assert jar.execute("echo one more").stdout == "one more\n"


# --- queue ----------------------------------------------------------------------------------------------


def test_runs_of_a_session_keep_their_order(jar):
    session = jar.tool("start_session")["session_id"]
    waiting = [
        jar.begin(f"sleep 0.05; echo {i} >>log; cat log | wc -l", session=session)
        for i in range(10)
    ]
    seen = [int(one.run().stdout) for one in waiting]
    assert seen == list(range(1, 11)), seen
    assert (
        jar.execute("tr '\\n' ' ' <log", session=session).stdout
        == " ".join(map(str, range(10))) + " "
    )
    jar.close_session(session)


def test_a_full_queue_is_busy(start):
    jar = start("--max-queue", "2")
    session = jar.tool("start_session")["session_id"]
    waiting = [jar.begin("sleep 0.5; echo ran", session=session) for _ in range(3)]
    with pytest.raises(ToolError) as caught:
        jar.begin("echo one too many", session=session).run()
    assert "busy" in str(caught.value), caught.value
    assert [one.run().stdout for one in waiting] == ["ran\n"] * 3
    assert jar.execute("echo now", session=session).stdout == "now\n"


def test_sessions_run_side_by_side(jar):
    began = time.monotonic()
    runs = [one.run() for one in [jar.begin("sleep 1; echo x") for _ in range(8)]]
    assert all(run.stdout == "x\n" for run in runs)
    assert time.monotonic() - began < 4 * PATIENCE
    for run in runs:
        jar.close_session(run.session)


def test_files_can_be_read_beside_a_run(jar):
    session = jar.tool("start_session")["session_id"]
    waiting = jar.begin("echo now >live; sleep 3; echo end", session=session)
    time.sleep(0.5)
    began = time.monotonic()
    assert jar.tool("sandbox_read_file", session_id=session, path="live")["text"] == "now\n"
    assert time.monotonic() - began < 1 * PATIENCE
    assert waiting.run().stdout == "end\n"
    jar.close_session(session)


# --- time -----------------------------------------------------------------------------------------------


def test_a_timeout_keeps_the_session_and_what_was_printed(jar):
    run = jar.execute("echo before; echo kept >file; sleep 50; echo never", timeout=0.7)
    assert run.outcome == "timeout" and run.stdout == "before\n", run
    assert "0.7" in run.error, run
    assert 0.7 <= run.took < 1.7 * PATIENCE, run.took
    assert jar.execute("cat file", session=run.session).stdout == "kept\n"


def test_a_program_may_end_itself_when_interrupted(jar):
    run = jar.execute(
        "trap 'echo cleaned up; exit 0' INT; echo begun; while :; do sleep 0.05; done", timeout=0.5
    )
    assert run.outcome == "timeout" and run.stdout == "begun\ncleaned up\n", run
    assert run.took < 1.5 * PATIENCE


def test_the_default_limit_is_the_server_s(start):
    jar = start("--run-timeout", "1s", "--run-timeout-max", "2s")
    assert 0.9 < jar.execute("sleep 60").duration < 2 * PATIENCE
    long = jar.execute("sleep 60", timeout=100)
    assert long.outcome == "timeout" and 1.9 < long.duration < 3 * PATIENCE, long


@pytest.mark.parametrize("timeout", [0, -1, 301, "soon", 1e9])
def test_senseless_timeouts_are_refused(jar, timeout):
    with pytest.raises((ToolError, belljar.RpcError)) as caught:
        jar.execute("echo", timeout=timeout, wait=5)
    assert "timeout" in str(caught.value)


# --- output ---------------------------------------------------------------------------------------------


def test_long_output_keeps_head_and_tail(jar):
    run = jar.execute("echo FIRST; seq 1 600000; echo LAST; echo err >&2")
    assert run.outcome == "ok" and run.truncated, run
    assert run.stdout.startswith("FIRST\n1\n2\n") and run.stdout.endswith("600000\nLAST\n")
    assert "bytes left out" in run.stdout and run.stderr == "err\n"
    left_out = int(run.stdout.split("bytes left out")[0].rsplit("… ", 1)[1])
    total = len("FIRST\nLAST\n") + sum(len(f"{i}\n") for i in range(1, 600001))
    kept = len(run.stdout) - len(f"\n[… {left_out} bytes left out …]\n")
    assert kept + left_out == total, (kept, left_out, total)
    assert abs(kept - (1 << 20)) < 4096, kept


def test_output_is_byte_exact_up_to_the_limit(jar):
    run = jar.execute("seq 1 100000")
    assert run.stdout == "".join(f"{i}\n" for i in range(1, 100001))
    assert not run.truncated


def test_an_answer_is_never_over_its_cap(start):
    jar = start("--max-answer", "64k", "--output-limit", "1m")
    for code in (
        "yes | head -c 2M",
        "head -c 1M /dev/zero",
        "tr '\\0' '\\1' </dev/zero | head -c 3M",
    ):
        before = len(jar.received)
        run = jar.execute(code)
        assert run.truncated, run
        assert len(jar.received) - before < 80 << 10


def test_a_flood_is_stopped_and_named(start):
    jar = start("--output-flood", "4m")
    run = jar.execute("echo head; yes")
    assert run.outcome == "output_limit" and "4 MiB" in run.error, run
    assert run.stdout.startswith("head\ny\n") and run.truncated


# --- progress and cancellation ----------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_output_streams_while_the_code_runs(start, era):
    jar = start(era=era)
    waiting = jar.begin("for i in 1 2 3 4; do echo line $i; sleep 0.4; done", progress=True)
    run = waiting.run()
    texts = [text for _, text in waiting.progress]
    assert "".join(texts) == "line 1\nline 2\nline 3\nline 4\n" or "line 3" in "".join(texts), texts
    assert len(texts) >= 3, texts
    assert waiting.progress[0][0] < waiting.took - 0.8, "the first message came late"
    assert run.stdout == "line 1\nline 2\nline 3\nline 4\n"
    numbers = [
        m["params"]["progress"] for m in jar.notes if m.get("method") == "notifications/progress"
    ]
    assert numbers == sorted(set(numbers)), numbers


def test_a_flood_of_progress_is_thinned(jar):
    waiting = jar.begin("for i in $(seq 20000); do echo $i; done; sleep 0.5", progress=True)
    waiting.run()
    assert 1 <= len(waiting.progress) <= 12 * (waiting.took + 1), len(waiting.progress)


def test_no_progress_unasked(jar):
    before = len(jar.notes)
    jar.execute("echo x; sleep 0.3; echo y")
    assert len(jar.notes) == before


def test_cancel_ends_the_run_and_keeps_the_session(jar):
    session = jar.tool("start_session")["session_id"]
    waiting = jar.begin("echo begun >file; sleep 100", session=session)
    time.sleep(0.4)
    waiting.cancel()
    began = time.monotonic()
    assert jar.execute("cat file; ls -d /proc/[0-9]* | wc -l", session=session).stdout.startswith(
        "begun\n"
    )
    assert time.monotonic() - began < 1.6 * PATIENCE
    assert not waiting.future.done(), "a cancelled call is not answered"
    jar.close_session(session)


def test_cancel_of_a_stubborn_run(jar):
    session = jar.tool("start_session")["session_id"]
    waiting = jar.begin("trap '' INT TERM; while :; do :; done", session=session)
    time.sleep(0.4)
    waiting.cancel()
    began = time.monotonic()
    assert jar.execute("echo free", session=session).stdout == "free\n"
    assert time.monotonic() - began < 1.6 * PATIENCE


def test_cancel_of_a_waiting_run_leaves_the_others(jar):
    session = jar.tool("start_session")["session_id"]
    first = jar.begin("sleep 1; echo first", session=session)
    second = jar.begin("echo second >>mark", session=session)
    third = jar.begin("ls; echo third", session=session)
    second.cancel()
    assert first.run().stdout == "first\n"
    assert third.run().stdout == "third\n"
    assert not second.future.done()


def test_cancel_in_the_stateless_era(start):
    jar = start(era="stateless")
    session = jar.tool("start_session")["session_id"]
    waiting = jar.begin("sleep 100", session=session)
    time.sleep(0.4)
    waiting.cancel(meta=belljar.envelope())
    began = time.monotonic()
    assert jar.execute("echo free", session=session).stdout == "free\n"
    assert time.monotonic() - began < 1.6 * PATIENCE


# --- over HTTP --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def web():
    need(belljar.BIN)
    with belljar.Http() as server:
        yield server


def http_run(session, code, id=None, timeout=30, **more):
    arguments = {"code": code, "language": "bash", **({"session_id": id} if id else {}), **more}
    began = time.monotonic()
    result = session.call("tools/call", call_tool("execute_code", arguments), timeout=timeout)
    return Run(result, time.monotonic() - began)


def http_tool(session, name, **arguments):
    result = session.call("tools/call", call_tool(name, arguments), timeout=20)
    if result.get("isError"):
        raise ToolError(text_of(result))
    return result["structuredContent"]


def test_a_session_belongs_to_who_made_it(web):
    one, two = web.session(), web.session()
    run = http_run(one, "echo mine >file")
    for name, more in (
        ("execute_code", {"code": "cat file", "language": "bash"}),
        ("session_info", {}),
        ("clear_session", {}),
        ("sandbox_read_file", {"path": "file"}),
        ("sandbox_write_file", {"path": "file", "content": "yours"}),
        ("sandbox_list_files", {}),
    ):
        stranger = two.call("tools/call", call_tool(name, {"session_id": run.session, **more}))
        nobody = two.call("tools/call", call_tool(name, {"session_id": "A" * 22, **more}))
        assert stranger["isError"] and text_of(stranger) == text_of(nobody), stranger
    assert http_run(one, "cat file", run.session).stdout == "mine\n"
    one.delete()
    two.delete()


def test_the_stateless_era_is_one_local_user(web):
    result = web.modern(
        "tools/call", call_tool("execute_code", {"code": "echo x >f", "language": "sh"})
    )
    id = result["structuredContent"]["session_id"]
    again = web.modern(
        "tools/call",
        call_tool("execute_code", {"code": "cat f", "language": "sh", "session_id": id}),
    )
    assert again["structuredContent"]["output"] == [{"stream": "stdout", "text": "x\n"}]
    stranger = web.session()
    with pytest.raises(ToolError):
        http_run(stranger, "cat f", id)


def test_http_streams_progress(web):
    session = web.session()
    message = belljar.request(
        "tools/call",
        {
            **call_tool(
                "execute_code", {"code": "echo one; sleep 1; echo two", "language": "bash"}
            ),
            "_meta": {"progressToken": "p"},
        },
        5,
    )
    with session.open(message, timeout=10) as conn:
        times, texts = [], []
        while (event := conn.event(10)) is not None:
            if not event.data:
                continue
            said = json.loads(event.data)
            times.append(time.monotonic())
            if said.get("method") == "notifications/progress":
                texts.append(said["params"]["message"])
            elif "result" in said:
                break
    assert "".join(texts).startswith("one\n"), texts
    assert times[-1] - times[0] > 0.7


def test_http_cancel_by_notification(web):
    session = web.session()
    id = http_tool(session, "start_session")["session_id"]
    arguments = {"code": "echo x >f; sleep 100", "language": "bash", "session_id": id}
    body = belljar.encode(belljar.request("tools/call", call_tool("execute_code", arguments), 77))
    with web.connect() as conn:
        conn.send(web.head("POST", "/mcp", session.headers, len(body)) + body)
        until(
            lambda: http_tool(session, "sandbox_list_files", session_id=id)["entries"], "its file"
        )
        cancel = notification("notifications/cancelled", {"requestId": 77})
        assert session.post(cancel).status == 202
        run = http_run(session, "cat f; echo free", id)
    assert run.stdout == "x\nfree\n" and run.took < 1.6 * PATIENCE, (run, run.took)


def test_http_cancel_by_disconnect_in_the_stateless_era(web):
    result = web.modern("tools/call", call_tool("start_session"))
    id = result["structuredContent"]["session_id"]
    arguments = {"code": "echo x >f; sleep 100", "language": "bash", "session_id": id}
    body = belljar.encode(stateless("tools/call", call_tool("execute_code", arguments)))
    conn = web.connect()
    conn.send(web.head("POST", "/mcp", belljar.mirror(json.loads(body)), len(body)) + body)
    look = call_tool("sandbox_list_files", {"session_id": id})
    until(lambda: web.modern("tools/call", look)["structuredContent"]["entries"], "its file")
    conn.close()
    began = time.monotonic()
    arguments = {"code": "cat f; echo free", "language": "bash", "session_id": id}
    result = web.modern("tools/call", call_tool("execute_code", arguments), timeout=20)
    assert result["structuredContent"]["output"] == [{"stream": "stdout", "text": "x\nfree\n"}], (
        result
    )
    assert time.monotonic() - began < 1.6 * PATIENCE


def test_many_http_clients_at_once(web):
    outputs = {}

    def work(number):
        session = web.session()
        outputs[number] = http_run(session, f"echo {number}; sleep 0.5").stdout
        session.delete()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {n: f"{n}\n" for n in range(20)}


def test_sandboxes_end_with_the_server(start):
    jar = start()
    waiting = jar.begin("echo begun; sleep 100")
    time.sleep(0.5)
    began = time.monotonic()
    jar.stop()
    assert time.monotonic() - began < 5 * PATIENCE
    assert waiting.future.done() or not jar.alive()


@pytest.mark.parametrize(
    "code",
    ["sleep 100", "trap '' INT TERM; while :; do sleep 0.1; done"],
    ids=["obeys", "resists"],
)
def test_a_server_that_is_told_to_stop_answers_what_still_runs(code):
    with belljar.Http("--shutdown-grace", "200ms") as server:
        runs = []
        start = server.modern("tools/call", call_tool("start_session", {}))
        id = {"session_id": start["structuredContent"]["session_id"]}
        run = {"code": f"echo begun; touch begun; {code}", "language": "bash", **id}
        caller = threading.Thread(
            target=lambda: runs.append(server.modern("tools/call", call_tool("execute_code", run)))
        )
        caller.start()
        look = call_tool("sandbox_list_files", id)
        deadline = time.monotonic() + 20 * PATIENCE
        while not server.modern("tools/call", look)["structuredContent"]["entries"]:
            assert time.monotonic() < deadline, "it does not begin"
        server.terminate()
        caller.join(30 * PATIENCE)
        assert runs[0]["structuredContent"]["outcome"] == "interrupted"
        assert Run(runs[0], 0).stdout == "begun\n"
        server.finish()
