"""Sessions whose containers outlive their server, and the next server that goes on with them (docs/engines.md,
"When the server ends")."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import tempfile
import threading
import time

import belljar
import containers
import images
import pytest
from belljar import call_tool, text_of
from sandboxes import LONG, Run, ToolError, make_state, until
from wheels import make_wheel

FEW = ["--kernel-pool-size", "0", "--no-packages-enabled"]
TOKEN = "a-secret-of-enough-characters"


@pytest.fixture
def place():
    state = make_state()
    yield pathlib.Path(state)
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture(scope="module")
def image(docker, make_rootfs):
    make_rootfs(runtime=None)
    return images.base(docker)


@contextlib.contextmanager
def servers(engine, image, place):
    """Servers over one state directory; what they leave in the end goes."""
    begun = []

    def begin(*flags, few=FEW, image=image):
        flags = [*containers.flags(engine, image), "--state-dir", place, *few, *flags]
        begun.append(belljar.Http(*flags))
        return begun[-1]

    yield begin
    for server in begun:
        server.kill()
    for name in containers.names(engine):
        with contextlib.suppress(Exception):
            engine.api.remove_container(name)


@pytest.fixture
def start(docker, image, place):
    with servers(docker, image, place) as begin:
        yield begin


def tool(client, name, **arguments):
    """`client`: a server, as whoever needs no session of the protocol's, or such a session."""
    params = call_tool(name, arguments)
    if isinstance(client, belljar.Http):
        result = client.modern("tools/call", params, timeout=LONG)
    else:
        result = client.call("tools/call", params, timeout=LONG)
    if result.get("isError"):
        raise ToolError(text_of(result))
    return result


def execute(client, code, language="python", session=None, **more):
    more |= {"session_id": session} if session else {}
    return Run(tool(client, "execute_code", code=code, language=language, **more), 0)


def notes(place):
    folder = place / "kept"
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


def no_session(server, session):
    with pytest.raises(ToolError, match="no such session"):
        execute(server, "1", session=session)


def ends(server, how):
    if how == "kill -9":
        server.kill()
    else:
        server.stop()
        assert "1 sessions are left to the next server" in server.log_text()


def agent_of(docker, name):
    return containers.inspect(docker, name)["State"]["Pid"]


# --- what comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
def test_the_next_server_has_the_session_with_all_its_state(docker, start, place, how):
    first = start()
    session = execute(first, "x = [1, 2]; y = x; import json").session
    execute(first, "export WORD=kept; cd /tmp; echo text > /workspace/file", "bash", session)
    before = containers.names(docker)
    ends(first, how)
    second = start()
    assert containers.names(docker) == before
    assert execute(second, "x.append(3); print(y, json.dumps(x))", session=session).stdout == (
        "[1, 2, 3] [1, 2, 3]\n"
    )
    assert execute(second, "echo $WORD $PWD; cat /workspace/file", "bash", session).stdout == (
        "kept /tmp\ntext\n"
    )
    said = tool(second, "sandbox_read_file", session_id=session, path="file")
    assert text_of(said) == "text\n"
    assert agent_of(docker, before[0])
    assert execute(second, "print(1)").session != session
    tool(second, "clear_session", session_id=session)
    until(lambda: before[0] not in containers.names(docker), "the container's end")
    assert session not in {note["id"] for note in notes(place).values()}


def test_the_next_server_has_the_session_with_podman_too(podman, make_rootfs, place):
    make_rootfs(runtime=None)
    with servers(podman, images.base(podman), place) as start:
        server = start()
        session = execute(server, "x = 1").session
        begin(server, "sleep 1000", "bash", session)
        for count in range(2):
            server.kill()
            server = start()
            run = execute(server, "x += 1; x", session=session)
            assert run.said["result"] == str(count + 2), run
        server.stop()
        server = start()
        assert execute(server, "x", session=session).said["result"] == "3"
        tool(server, "clear_session", session_id=session)
        until(lambda: not containers.names(podman), "its end")


def test_it_does_so_again_and_again(docker, start):
    server = start()
    session = execute(server, "x = 0").session
    name = containers.names(docker)
    for count in range(1, 5):
        server.kill()
        server = start()
        assert execute(server, "x += 1; x", session=session).said["result"] == str(count)
        assert containers.names(docker) == name
    server.stop()
    server = start()
    assert execute(server, "x", session=session).said["result"] == "4"
    assert "is not adopted" not in server.log_text()


def test_many_are_adopted(docker, start):
    first = start()
    sessions = [execute(first, f"x = {number}").session for number in range(10)]
    before = containers.names(docker)
    first.kill()
    second = start()
    assert [execute(second, "x", session=id).said["result"] for id in sessions] == [
        str(number) for number in range(10)
    ]
    assert containers.names(docker) == before


def test_a_server_that_could_not_start_costs_nothing(docker, start):
    first = start()
    session = execute(first, "x = 1").session
    first.kill()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AssertionError, match="server ended at start"):
            start("--http", address)
    assert execute(start(), "x", session=session).said["result"] == "1"


def test_limits_and_environment_are_as_they_were(start):
    first = start("--blocked-modules", "xml")
    said = tool(first, "start_session", env={"WORD": "given"}, memory_mib=100, processes=20)
    session = said["structuredContent"]["session_id"]
    execute(first, "true", "bash", session)
    first.kill()
    second = start("--blocked-modules", "xml")
    run = execute(second, "import os; os.environ['WORD']", session=session)
    assert run.said["result"] == "'given'"
    assert "blocked" in execute(second, "import xml", session=session).text
    assert execute(second, "echo $WORD", "bash", session).stdout == "given\n"
    info = tool(second, "session_info", session_id=session)["structuredContent"]
    assert "100" in str(info) and "20" in str(info)


def test_counters_of_before_are_not_held_against_the_next_run(start):
    first = start("--memory-limit", "128m")
    session = execute(first, "x = 1").session
    run = execute(first, "python3 -c 'b = bytearray(300 << 20)'", "bash", session)
    assert run.outcome == "memory_limit", run
    first.kill()
    second = start("--memory-limit", "128m")
    assert execute(second, "exit 3", "bash", session).outcome == "error"


def test_installed_packages_are_there(docker, start):
    try:
        image = images.uv(docker)
    except images.Unavailable as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="belljar-packages-") as folder:
        place = pathlib.Path(folder)
        place.chmod(0o755)
        (place / "wheels").mkdir()
        make_wheel(place / "wheels", "plain", "1.0", {"plain.py": "version = '1.0'\n"})
        flags = ["--package-dir", place / "shelf", "--docker-install-network", "host"]
        flags += ["--package-wheels", place / "wheels", "--package-index", "none"]
        few = ["--kernel-pool-size", "0", *flags]
        first = start(few=few, image=image)
        session = execute(first, "x = 1").session
        tool(first, "install_packages", packages=["plain"], session_id=session)
        execute(first, "import plain", session=session)
        first.kill()
        second = start(few=few, image=image)
        code = "import importlib; print(x, importlib.reload(plain).version)"
        assert execute(second, code, session=session).stdout == "1 1.0\n"
        code = "python3 -c 'import plain; print(plain.version)'"
        assert execute(second, code, "bash", session).stdout == "1.0\n"
        second.kill()
        shutil.rmtree(place / "shelf")
        third = start(few=few, image=image)
        no_session(third, session)
        assert "is not adopted" in third.log_text()


def test_files_on_the_disk_and_in_the_sandbox_are_the_same(start):
    with tempfile.TemporaryDirectory(prefix="belljar-disk-") as folder:
        few = [*FEW, "--workspace", "disk", "--workspace-dir", f"{folder}/sessions"]
        pathlib.Path(folder).chmod(0o711)
        first = start(few=few)
        session = execute(first, "x = 1; open('one', 'w').write('1')").session
        begin(first, "echo 2 > two; sleep 1000", "bash", session)
        until(lambda: "two" in text_of(tool(first, "sandbox_list_files", session_id=session)), "it")
        first.kill()  # before that run has been saved
        second = start(few=few)
        run = execute(second, "import os; print(x, sorted(os.listdir()))", session=session)
        assert run.stdout == "1 ['one', 'two']\n", run
        saved = {path.name for path in pathlib.Path(folder).rglob("files/*")}
        assert saved == {"one", "two"}
        second.stop()
        third = start("--no-docker-adopt", few=few)  # what it has is the disk's
        run = execute(
            third, "import os; print('x' in globals(), sorted(os.listdir()))", session=session
        )
        assert run.stdout == "False ['one', 'two']\n", run


# --- what was under way --------------------------------------------------------------------------


def begin(server, code, language, session):
    """A call that nobody waits for."""

    def call():
        with contextlib.suppress(Exception):
            execute(server, code, language, session)

    threading.Thread(target=call, daemon=True).start()


@pytest.mark.parametrize("language", ["python", "bash"])
def test_a_run_under_way_is_interrupted_and_the_session_stays(start, language):
    first = start()
    session = execute(first, "x = 1").session
    code = {
        "python": "open('began', 'w').close()\nx = 2\nimport time\ntime.sleep(1000)\nx = 3",
        "bash": "touch began; sleep 1000; touch ended",
    }[language]
    begin(first, code, language, session)
    until(lambda: "began" in text_of(tool(first, "sandbox_list_files", session_id=session)), "it")
    first.kill()
    second = start()
    run = execute(second, "import os; print(x, sorted(os.listdir()))", session=session)
    assert run.stdout == f"{2 if language == 'python' else 1} ['began']\n", run
    left = execute(second, "ls -d /proc/[0-9]* | wc -l; pgrep sleep || echo none", "bash", session)
    assert "none" in left.stdout


def test_a_run_that_does_not_heed_it_is_killed_and_said_to_have_cost_the_variables(start):
    first = start()
    session = execute(first, "x = 1").session
    code = "import signal, time\nopen('began', 'w').close()\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2])\n"
    begin(first, code + "while True: time.sleep(1)", "python", session)
    until(lambda: "began" in text_of(tool(first, "sandbox_list_files", session_id=session)), "it")
    first.kill()
    second = start()
    run = execute(second, "import os; print('x' in globals(), os.listdir())", session=session)
    assert run.stdout == "False ['began']\n", run
    assert "gone" in run.text or "lost" in run.text, run.text


def test_output_while_nobody_listens_neither_blocks_nor_confuses(start):
    first = start()
    session = execute(first, "x = 1").session
    code = "import threading, sys\ndef flood():\n    while True: print('y' * 1000)\nthreading.Thread(target=flood, daemon=True).start()"
    execute(first, code, session=session)
    begin(first, "yes", "bash", session)
    time.sleep(0.5)
    first.kill()
    time.sleep(1)
    run = execute(start(), "x", session=session)
    assert run.said["result"] == "1", run


# --- what does not -------------------------------------------------------------------------------


def test_an_owner_who_cannot_come_back_leaves_nothing(docker, start, place):
    first = start()
    gone = execute(first.session(), "x = 1").session
    stays = execute(first, "x = 2").session
    first.kill()
    until(lambda: len(containers.names(docker)) == 1, "the end of the one that nobody returns to")
    assert [note["id"] for note in notes(place).values()] == [stays]
    second = start()
    no_session(second, gone)
    with pytest.raises(ToolError, match="no such session"):
        execute(second.session(), "1", session=stays)
    assert execute(second, "x", session=stays).said["result"] == "2"


def test_whoever_has_the_token_finds_his_and_nobody_elses(start):
    first = start()
    local = execute(first, "x = 'local'").session
    first.kill()
    second = start("--token", TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def ask(server, code, session=None):
        more = {"session_id": session} if session else {}
        arguments = {"code": code, "language": "python", **more}
        params = call_tool("execute_code", arguments)
        result = server.modern("tools/call", params, timeout=LONG, headers=headers)
        return Run(result, 0)

    with pytest.raises(ToolError, match="no such session"):
        ask(second, "x", local)
    mine = ask(second, "x = 'token'").session
    second.kill()
    third = start("--token", TOKEN)
    assert ask(third, "x", mine).said["result"] == "'token'"


def test_what_is_in_the_pools_goes(docker, start):
    flags = ["--pool-enabled", "--pool-size", "2", "--no-packages-enabled"]
    first = start(few=[*flags, "--kernel-pool-size", "1"])
    session = execute(first, "x = 1").session
    until(lambda: len(containers.names(docker)) >= 3, "the pool")
    first.kill()
    second = start()  # which also removes what was never started
    assert execute(second, "x", session=session).said["result"] == "1"
    until(lambda: len(containers.names(docker)) == 1, "the pool's end")


def test_a_run_for_once_leaves_nothing(docker, start, place):
    first = start("--profile", "python-docker-mcp")
    began = threading.Event()

    def call():
        began.set()
        with contextlib.suppress(Exception):
            tool(first, "execute-transient", code="import time; time.sleep(1000)")

    threading.Thread(target=call, daemon=True).start()
    assert began.wait(LONG)
    until(lambda: containers.names(docker), "its container")
    time.sleep(1)
    assert notes(place) == {}
    first.kill()
    until(lambda: not containers.names(docker), "its end")


@pytest.mark.parametrize(
    "flags", [["--no-docker-adopt"], ["--blocked-modules", "json"], ["--memory-limit", "64m"]]
)
def test_a_server_that_would_make_it_otherwise_removes_it(docker, start, place, flags):
    first = start()
    session = execute(first, "x = 1").session
    first.kill()
    second = start(*flags)
    no_session(second, session)
    until(lambda: not containers.names(docker), "its end")


def test_without_the_option_all_ends_with_the_server(docker, start, place):
    first = start("--no-docker-adopt")
    execute(first, "x = 1")
    first.kill()
    until(lambda: not containers.names(docker), "its end")
    assert not (place / "kept").exists()


def test_the_agent_of_another_version_is_not_adopted(docker, start, place):
    first = start()
    session = execute(first, "x = 1").session
    first.kill()
    (path,) = (place / "kept").iterdir()
    note = json.loads(path.read_text())
    note["sandbox"]["agent"] = "belljar-agent-" + "0" * 32
    path.write_text(json.dumps(note))
    second = start()
    no_session(second, session)
    assert "another version" in second.log_text()
    until(lambda: not containers.names(docker), "its end")
    assert notes(place) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', "x" * 300000])
def test_a_note_that_makes_no_sense_is_removed_with_its_container(docker, start, place, text):
    first = start()
    session = execute(first, "x = 1").session
    first.kill()
    (path,) = (place / "kept").iterdir()
    path.write_text(text)
    second = start()
    no_session(second, session)
    until(lambda: not containers.names(docker), "its end")
    assert notes(place) == {}


def test_one_that_does_not_answer_is_removed(docker, start, place):
    first = start()
    session = execute(first, "x = 1").session
    (name,) = containers.names(docker)
    pid = agent_of(docker, name)
    first.kill()
    os.kill(pid, signal.SIGSTOP)
    second = start("--docker-timeout", "3s")
    run = execute(second, "x", session=session)
    assert run.outcome == "sandbox_failed" and "started anew" in run.error, run
    no_session(second, session)
    until(lambda: not containers.names(docker), "its end")
    assert notes(place) == {}


def test_one_that_has_ended_meanwhile_is_forgotten(docker, start, place):
    first = start()
    session = execute(first, "x = 1").session
    (name,) = containers.names(docker)
    first.kill()
    docker.api.remove_container(name)
    second = start()
    no_session(second, session)
    assert notes(place) == {}


def test_without_a_next_server_the_agent_ends_after_the_idle_time(docker, start):
    first = start("--session-timeout", "3s")
    execute(first, "x = 1")
    first.kill()
    time.sleep(1)
    assert len(containers.names(docker)) == 1
    until(lambda: not containers.names(docker), "its end", 10)


def test_the_idle_clock_goes_on_from_server_to_server(docker, start):
    first = start("--session-timeout", "6s")
    session = execute(first, "x = 1").session
    time.sleep(3)
    first.kill()
    second = start("--session-timeout", "6s")
    second.wait_log("has been adopted")
    until(lambda: not containers.names(docker), "its end", 6)
    no_session(second, session)


def test_a_server_on_stdio_neither_takes_nor_removes_them(docker, image, start, place):
    first = start()
    session = execute(first, "x = 1").session
    first.kill()
    with containers.start(docker, image, "--no-pool-enabled", state=str(place)) as jar:
        own = jar.execute("echo own").session
        assert len(containers.names(docker)) == 2
        with pytest.raises(ToolError, match="no such session"):
            jar.execute("echo x", session=session)
        second = start()
        assert execute(second, "x", session=session).said["result"] == "1"
        assert jar.execute("echo still", session=own).stdout == "still\n"
    until(lambda: len(containers.names(docker)) == 1, "the end of the other's")
    assert execute(second, "x", session=session).said["result"] == "1"


def test_guests_can_neither_join_nor_touch_who_joins(docker, start):
    attack = """
import os, signal, socket, glob
def attempt(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__
def connect():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\\0belljar-agent")
        socket.send_fds(client, [b"x"], [0, 1])
        client.settimeout(5)
        return client.recv(1)
def bind():
    socket.socket(socket.AF_UNIX).bind("\\0belljar-agent")
helpers = [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*/cmdline")
           if b"--join" in open(path, "rb").read()]
print(attempt(connect), attempt(bind), len(helpers))
for pid in helpers:
    print(attempt(lambda: os.kill(pid, signal.SIGKILL)), attempt(lambda: os.listdir(f"/proc/{pid}/fd")))
"""
    refused = ("b''", "ConnectionResetError", "BrokenPipeError")
    first = start()
    session = execute(first, "x = 1").session
    run = execute(first, attack, session=session)
    assert run.outcome == "ok", run.text
    said = run.stdout.split()
    assert said[0] in refused and said[1:] == ["OSError", "0"], said
    first.kill()
    second = start()
    said = execute(second, attack, session=session).stdout.split()
    assert said[0] in refused, said
    assert said[1:] == ["OSError", "1", "PermissionError", "PermissionError"], said
    assert execute(second, "x", session=session).said["result"] == "1"
    # What ends with a run is the run's, and the helper is not among it.
    assert execute(second, "sleep 100 & disown; echo ok", "bash", session).stdout == "ok\n"
    assert execute(second, "x", session=session).said["result"] == "1"


def test_kill_9_at_any_moment_leaves_only_what_the_next_start_adopts_or_removes(
    docker, start, place
):
    """Sessions come, run and go while the server is killed; each that was confirmed is there afterwards, and
    nothing is that no session has."""
    chance = random.Random(7)
    alive = {}  # id: the last value that was confirmed
    for _ in range(50 if containers.FULL else 8):
        server = start(
            few=[
                "--no-packages-enabled",
                "--pool-enabled",
                "--pool-size",
                "1",
                "--kernel-pool-size",
                "1",
            ]
        )
        for session, value in list(alive.items()):
            run = execute(server, "x", session=session)
            assert run.outcome == "ok", f"{run}\n{server.log_text()}"
            assert int(run.said["result"]) in (value, value + 1), (run, value)
            alive[session] = int(run.said["result"])
        stop = threading.Timer(chance.uniform(0, 2), server.kill)
        stop.start()
        with contextlib.suppress(Exception):
            while server.alive():
                if len(alive) < 4:
                    alive[execute(server, "x = 0").session] = 0
                session = chance.choice(list(alive))
                if chance.random() < 0.2:
                    del alive[session]  # it may be there or not, from here on
                    tool(server, "clear_session", session_id=session)
                    continue
                execute(server, "x += 1; print('y' * 100000)", session=session)
                alive[session] += 1
        stop.join()
    last = start()
    known = {note["id"] for note in notes(place).values()}
    assert set(alive) <= known
    for session in known:
        try:
            tool(last, "clear_session", session_id=session)
        except ToolError as refusal:
            # One that was being cleared may be found dead, a moment after its note.
            if session in alive or "no such session" not in str(refusal):
                raise
    until(lambda: not containers.names(docker), "the end of all")
    assert notes(place) == {}
