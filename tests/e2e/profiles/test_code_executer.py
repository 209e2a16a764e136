"""code-executer: a service that is started, used and stopped."""

import re

import belljar
import pytest
from lines import line
from processes import sandboxes
from profiles_client import LONG, Profile, end_sandbox, wait_until

NAME = "code-executer"
STARTED = r"Code execution service started with the name: (code_executer-\d{14}[a-z]?)"
STOPPED = "Code execution service stopped."
NOT_STOPPED = "Code execution service isII  not running."
NOTHING = "Failed to connect to the code execution service."


@pytest.fixture
def server(shared):
    """Without any service."""
    server = shared(NAME)
    while server.text("stop_code_executer") == STOPPED:
        pass
    return server


def begin(server, **arguments):
    return re.fullmatch(STARTED, server.text("start_code_executer", **arguments))[1]


def run(server, code, **more):
    return server.text("execute_code", code=code, **more)


@line("S1.1", "start_code_executer")
def test_a_service_has_a_name_of_its_own(server):
    assert begin(server) != begin(server)
    assert begin(server, dependencies=[]) and begin(server, dependencies=None)


@line("S1.1", "start_code_executer")
def test_dependencies_are_there_at_once(wheels):
    with Profile(NAME, wheels=wheels) as server:
        begin(server, dependencies=["demo==1.0"])
        assert run(server, "import demo\ndemo.version") == "1.0"


@line("S1.1", "start_code_executer")
@line("S1.9", "Requirements stated")
def test_what_cannot_be_installed_starts_nothing(wheels):
    with Profile(NAME, wheels=wheels) as server:
        for name in "no-such-package", "--index-url=x":
            said = server.refused("start_code_executer", dependencies=[name])
            assert said.startswith("start_code_executer: dependencies: ") and name in said
        assert run(server, "1") == NOTHING
        wait_until(lambda: not sandboxes(server))


@line("S1.1", "start_code_executer")
def test_uv_installs(wheels):
    with Profile(NAME, wheels=wheels) as server:
        said = server.refused("start_code_executer", dependencies=["no-such-package"])
        assert "No solution found when resolving dependencies" in said  # the words are uv's


@line("S1.1", "start_code_executer")
def test_app_is_the_place_to_be(server):
    begin(server)
    assert run(server, "open('/app/f', 'w').write('x')\nprint(open('f').read(), end='')") == "x"


@line("S1.2", "execute_code")
def test_the_examples_of_the_readme(server):
    begin(server)
    assert run(server, "print('Hello, World!')") == "Hello, World!\n"
    assert run(server, "import numpy as np; print(np.array([1, 2, 3]))") == "[1 2 3]\n"


@line("S1.2", "execute_code")
def test_output_is_followed_by_the_value(server):
    begin(server)
    assert run(server, "'a' + 'b'") == "ab"  # as str() has it
    assert run(server, "print('x') or 5") == "x\n5"
    assert run(server, "None") == "No output returned."
    assert run(server, "x = 1") == "No output returned."


@line("S1.2", "execute_code")
def test_errors_have_stderr_and_traceback(server):
    begin(server)
    said = run(server, "import sys\nprint('note', file=sys.stderr)\n1 / 0")
    assert said.startswith("Error: note\nTraceback") and "ZeroDivisionError" in said


@line("S1.2", "execute_code")
def test_nothing_is_started(server):
    assert run(server, "1") == NOTHING


@line("S1.2", "execute_code")
def test_a_sandbox_that_fails(start):
    server = start(NAME)
    begin(server)
    wait_until(lambda: len(sandboxes(server)) == 1)
    running = server.submit(
        "tools/call", belljar.call_tool("execute_code", {"code": "import time\ntime.sleep(60)"})
    )
    end_sandbox(server)
    said = belljar.text_of(running.result(LONG))
    assert said.splitlines()[0] == "Error executing code."
    assert run(server, "1") == NOTHING


@line("S1.3", "Inner protocol")
def test_clear_exit_and_nothing(server):
    begin(server)
    run(server, "x = 1")
    assert run(server, "clear") == "Globals cleared"
    assert "NameError" in run(server, "x")
    run(server, "x = 1")
    assert run(server, " exit\n") == "Goodbye!"
    assert "NameError" in run(server, "x") and run(server, "") == "No output returned."


@line("S1.3", "Inner protocol")
def test_what_was_printed_before_an_error_is_not_lost(server):
    begin(server)
    result = server.tool("execute_code", code="print('before')\n1 / 0")
    assert [block["text"] for block in result["content"]][1] == "before\n"


@line("S1.4", "stop_code_executer")
def test_stopping_the_running_one(server):
    begin(server)
    assert server.text("stop_code_executer") == STOPPED
    assert run(server, "1") == NOTHING
    assert server.text("stop_code_executer") == NOT_STOPPED


@line("S1.4", "stop_code_executer")
def test_stopping_by_name(server):
    name, other = begin(server), begin(server)
    assert server.text("stop_code_executer", name=name) == STOPPED
    assert server.text("stop_code_executer", name=name) == NOT_STOPPED
    assert run(server, "1") == "1"
    assert server.text("stop_code_executer", name=other) == STOPPED
    assert server.text("stop_code_executer", name="code_executer-1") == NOT_STOPPED
    properties = server.schema("stop_code_executer")["properties"]
    assert properties["delete_service"]["default"] is True


@line("S1.4", "stop_code_executer")
@line("S1.6", "Source-only extras")
def test_a_stopped_service_can_be_kept_and_reused(server):
    name = begin(server)
    run(server, "x = 7")
    assert server.text("stop_code_executer", name=name, delete_service=False) == STOPPED
    assert run(server, "x") == NOTHING
    again = server.text("reuse_code_executer", name=name)
    assert again == "Code execution service restarted." and run(server, "x") == "7"
    assert server.text("stop_code_executer", name=name) == STOPPED
    assert server.text("reuse_code_executer", name=name) == "Code execution service is not running."


@line("S1.6", "Source-only extras")
def test_a_service_on_disk_is_reused_after_a_restart(start, tmp_path):
    flags = ["--workspace", "disk", "--workspace-dir", tmp_path / "disk"]
    server = start(NAME, *flags)
    name = begin(server)
    run(server, "open('f', 'w').write('kept')")
    server.stop()
    server = start(NAME, *flags)
    assert run(server, "1") == NOTHING
    assert server.text("reuse_code_executer", name=name) == "Code execution service restarted."
    assert run(server, "print(open('f').read())") == "kept\n"
    server.text("stop_code_executer", delete_service=False)
    server.stop()
    server = start(NAME, *flags)
    assert server.text("stop_code_executer", name=name) == STOPPED
    assert server.text("reuse_code_executer", name=name) == "Code execution service is not running."
    assert not (tmp_path / "disk" / NAME / "stdio" / name).exists()


@line("S1.5", "README")
def test_variables_and_imports_persist(server):
    begin(server)
    run(server, "import math\ndef area(r):\n    return math.pi * r ** 2")
    assert run(server, "round(area(2), 3)") == "12.566"


@line("S1.6", "Source-only extras")
def test_the_prompt(server):
    (prompt,) = server.submit("prompts/list").result()["prompts"]
    assert prompt["name"] == "math_evaluation" and prompt["title"] == "Mathematics Solver"
    assert [argument["name"] for argument in prompt["arguments"]] == ["expression"]
    params = {"name": "math_evaluation", "arguments": {"expression": "2 ** 10"}}
    (message,) = server.submit("prompts/get", params).result()["messages"]
    assert "2 ** 10" in message["content"]["text"]


@line("S1.7", "Source-only deny list")
def test_nothing_is_denied_by_itself(server):
    begin(server)
    code = (
        "import os, sys, subprocess, shutil, socket, threading, multiprocessing, requests, base64\n"
    )
    assert run(server, code + "exec('x = eval(\"1 + 1\")')\nwith open('f', 'w'): pass\nx") == "2"


@line("S1.7", "Source-only deny list")
def test_an_operator_may_deny(start):
    server = start(NAME, "--blocked-modules", "os,subprocess")
    begin(server)
    said = run(server, "import os")
    assert said.startswith(
        "Error: The code contains dangerous operations and cannot be executed.\n"
        "Import 'os' is blocked for security reasons"
    )
    assert run(server, "import json\n1") == "1"


@line("S1.8", "Source limits")
def test_long_replies_and_long_code(server):
    begin(server)
    assert len(run(server, "print('x' * 500_000)")) == 500_001
    assert run(server, "y = 1\n" + "# comment\n" * 20_000 + "y") == "1"


@line("S1.8", "Source limits")
def test_a_start_spares_what_was_kept(server):
    kept = begin(server)
    run(server, "x = 'kept'")
    server.text("stop_code_executer", delete_service=False)
    begin(server)
    server.text("reuse_code_executer", name=kept)
    assert run(server, "x") == "kept"


@line("S1.8", "Source limits")
def test_several_services_and_clients_at_once(serve):
    from profiles_client import runtime_flags

    server = serve(belljar.Http, "--profile", NAME, *runtime_flags())

    def call(session, tool, **arguments):
        reply = session.call("tools/call", belljar.call_tool(tool, arguments), timeout=60)
        return belljar.text_of(reply)

    one, two = server.session(), server.session()
    call(one, "start_code_executer")
    assert call(two, "execute_code", code="1") == NOTHING
    call(two, "start_code_executer")
    call(one, "execute_code", code="x = 'of one'")
    assert "NameError" in call(two, "execute_code", code="x")
    name = re.search(r"code_executer-\d+", call(one, "start_code_executer"))[0]
    assert call(two, "stop_code_executer", name=name) in (NOT_STOPPED, STOPPED)
    assert call(one, "execute_code", code="1") == "1"  # two has stopped its own at the most


@line("S1.9", "Requirements stated")
def test_the_server_is_called_as_before(start):
    assert start(NAME).opening["serverInfo"]["name"] == "Code Execution Service"
