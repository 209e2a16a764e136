"""mcp-pyexec: execute_python."""

import base64
import json
import os
import pathlib
import subprocess

import belljar
import pytest
from lines import line
from processes import sandboxes
from profiles_client import LONG, commands, end_sandbox, runtime_flags, wait_until

NAME = "mcp-pyexec"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def server(shared):
    return shared(NAME)


def run(server, code, **more):
    return server.text("execute_python", code=code, **more)


def begin(server, code):
    """A call whose sandbox is there, and which still runs."""
    running = server.submit("tools/call", belljar.call_tool("execute_python", {"code": code}))
    wait_until(lambda: any(sandboxes(server).values()))
    return running


def images(result):
    return [block for block in result["content"] if block["type"] == "image"]


@line("S0.1", "execute_python")
def test_the_tool_takes_code_and_a_session(server):
    schema = server.schema("execute_python")
    assert set(schema["properties"]) == {"code", "session_id"} and schema["required"] == ["code"]
    assert run(server, "print('hello')") == "hello"


@line("S0.2", "Flow")
def test_each_call_has_a_fresh_sandbox(server):
    assert run(server, "x = 5\nopen('/workspace/left', 'w').close()") == (
        "✓ Execution successful (no output)"
    )
    assert "NameError" in run(server, "print(x)")
    assert run(server, "import os\nprint(os.listdir('/workspace'))") == "[]"


@line("S0.2", "Flow")
def test_code_runs_in_ipython(server):
    assert run(server, "!echo from the shell") == "from the shell"
    assert run(server, "%who_ls\n") == "[]"
    assert run(server, "type(get_ipython()).__mro__[1].__name__").endswith("Shell")


@line("S0.2", "Flow")
@line("S0.4", "Limits")
def test_the_sandbox_of_a_call_is_gone_afterwards(start):
    server = start(NAME)
    wait_until(lambda: not sandboxes(server))
    running = begin(server, "import time\ntime.sleep(2)")
    running.result(LONG)
    wait_until(lambda: not sandboxes(server))
    instances = pathlib.Path(server.state) / (
        "containers" if belljar.IN_CONTAINERS else "instances"
    )
    assert os.listdir(instances)
    server.stop()
    # That of containers goes with the next start: the server may not write there any more.
    if not belljar.IN_CONTAINERS and instances.exists():
        assert not os.listdir(instances)


@line("S0.3", "Sessions")
def test_variables_and_files_of_a_session_persist(server):
    run(server, "x = 41\nopen('notes', 'w').write('kept')", session_id="mine")
    assert run(server, "x + 1", session_id="mine") == "42"
    assert run(server, "print(open('/home/user/session/notes').read())", session_id="mine") == (
        "kept"
    )


@line("S0.3", "Sessions")
def test_a_session_has_its_folder_that_outlives_the_process(start, tmp_path):
    folder = tmp_path / "sessions"
    flags = ["--workspace", "disk", "--workspace-dir", folder]
    server = start(NAME, *flags)
    run(server, "open('notes', 'w').write('kept')", session_id="mine")
    run(server, "open('elsewhere', 'w').close()")  # no session: nothing is kept
    server.stop()
    assert [path.name for path in (folder / NAME / "stdio").iterdir()] == ["mine"]
    assert (folder / NAME / "stdio/mine/files/notes").read_text() == "kept"
    server = start(NAME, *flags)
    assert run(server, "print(open('notes').read())", session_id="mine") == "kept"
    assert run(server, "import os\nprint(os.listdir('.'))", session_id="other") == "[]"


@line("S0.3", "Sessions")
def test_sessions_do_not_share_anything(server):
    run(server, "y = 1\nopen('only-here', 'w').close()", session_id="one")
    assert "NameError" in run(server, "y", session_id="two")
    assert run(server, "import os\nprint(os.listdir('.'))", session_id="two") == "[]"


@line("S0.4", "Limits")
def test_there_is_no_network(server):
    said = run(server, "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)")
    assert "OSError" in said and "unreachable" in said


@line("S0.4", "Limits")
def test_the_defaults_are_those_of_the_original(config):
    values = config(NAME)
    assert values["memory_limit"] == 512 << 20 and values["cpu_limit"] == 0.5
    assert values["run_timeout"] == 30 and values["output_limit"] == 1 << 20


@line("S0.4", "Limits")
def test_code_is_not_root(server):
    assert run(server, "import os\nprint(os.getuid() != 0)") == "True"


@line("S0.4", "Limits")
@line("S0.7", "Texts")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_more_than_a_megabyte_on_a_stream_is_told(server, stream):
    code = f"import sys\nsys.{stream}.write('x' * (1 << 20))"
    assert "maximum limit" not in run(server, code)
    result = server.tool("execute_python", code=code.replace("<< 20", "<< 21"))
    assert result["content"][0]["text"] == "Error: Output size exceeds maximum limit"


@line("S0.4", "Limits")
def test_memory_ends_at_512_mb(server):
    assert run(server, "x = bytearray(400 << 20)\nprint('fits')") == "fits"
    said = run(server, "x = bytearray(600 << 20)\nprint('fits')")
    assert "out of memory: the sandbox may use 512 MiB" in said


@line("S0.4", "Limits")
def test_half_a_processor_is_all(server):
    code = (
        "import time\nbegin = time.monotonic()\nwhile time.monotonic() < begin + 2: pass\n"
        "print(time.process_time() / (time.monotonic() - begin))"
    )
    assert float(run(server, code)) < 0.75


@line("S0.5", "Output items")
def test_value_output_errors_come_in_order(server):
    said = run(server, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n'value'")
    assert said == "value\nout\nERROR: err"


@line("S0.5", "Output items")
@line("S0.6", "MCP result")
def test_all_plots_are_captured_as_png(server):
    code = "import matplotlib.pyplot as plt\nfor n in 1, 2:\n    plt.figure()\n    plt.plot([n, 2])"
    result = server.tool("execute_python", code=code)
    assert [block["mimeType"] for block in images(result)] == ["image/png"] * 2
    assert all(base64.b64decode(block["data"]).startswith(PNG) for block in images(result))


@line("S0.6", "MCP result")
def test_text_comes_before_images_and_is_stripped(server):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('  a plot\\n\\n')\nplt.show()"
    result = server.tool("execute_python", code=code)
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["content"][0]["text"] == "a plot"


@line("S0.6", "MCP result")
@line("S0.12", "Source defects")
def test_an_exception_is_told_once(server):
    result = server.tool("execute_python", code="print('before')\n1 / 0")
    said = belljar.text_of(result)
    assert said.startswith("before\nERROR: Traceback") and not result.get("isError")
    assert said.count("ZeroDivisionError: division by zero") == 1


@line("S0.7", "Texts")
@pytest.mark.parametrize("code", ["", "  \n\t"])
def test_no_code(server, code):
    assert run(server, code) == "Error: No Python code provided"


@line("S0.7", "Texts")
def test_no_output(server):
    assert run(server, "x = 1") == "✓ Execution successful (no output)"


@line("S0.7", "Texts")
def test_output_that_looks_like_anything_is_only_text(server):
    assert run(server, "print('not JSON: [{]')") == "not JSON: [{]"


@line("S0.7", "Texts")
def test_a_dead_interpreter(server):
    said = run(server, "import os\nos.kill(os.getpid(), 9)")
    assert said.startswith("✗ Docker execution failed:\n\n```\n") and said.endswith("\n```")


@line("S0.7", "Texts")
@line("S0.12", "Source defects")
def test_a_timeout_ends_the_run_and_what_it_started(start):
    server = start(NAME, "--run-timeout", "1s")
    code = "import subprocess, time\nsubprocess.Popen(['sleep', '61616'])\nprint('so far')\ntime.sleep(60)"
    result = server.tool("execute_python", code=code)
    assert result["content"][0]["text"] == "✗ Execution timed out after 1 seconds"
    assert result["content"][1]["text"].startswith("so far")  # what it had said is not lost
    assert "isError" not in result
    wait_until(lambda: "61616" not in commands())


@line("S0.7", "Texts")
def test_a_sandbox_that_fails(start):
    server = start(NAME)
    running = begin(server, "import time\ntime.sleep(60)")
    end_sandbox(server)
    said = belljar.text_of(running.result(LONG))
    assert said.startswith("✗ Error executing code: ")
    assert run(server, "print('goes on')") == "goes on"


@line("S0.7", "Texts")
def test_errors_around_the_run(server):
    said = run(server, "1", session_id="not/a name")
    assert said.startswith("✗ Error: session_id: ")


@line("S0.5", "Output items")
@line("S0.8", "Wrapper by hand")
def test_items_from_the_command_line():
    argv = [belljar.need(belljar.BIN), "run", "--items", *runtime_flags(), "-"]
    done = subprocess.run(
        argv, input="print('hello')\n", capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [{"type": "text", "data": "hello\n"}]


@line("S0.5", "Output items")
@line("S0.8", "Wrapper by hand")
def test_items_of_a_plot_and_an_error():
    code = (
        "import sys\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
        "print('err', file=sys.stderr)\nprint('out')\n1 / 0\n"
    )
    argv = [belljar.need(belljar.BIN), "run", "--items", *runtime_flags(), "-"]
    done = subprocess.run(argv, input=code, capture_output=True, text=True, timeout=60, check=False)
    items = json.loads(done.stdout)
    assert [set(item) for item in items] == [{"type", "data"}] * 4
    assert [item["type"] for item in items] == ["text", "error", "image", "error"]
    assert items[0]["data"] == "out\n" and items[1]["data"] == "err\n"
    assert base64.b64decode(items[2]["data"]).startswith(PNG)
    assert items[3]["data"].startswith("Traceback")
    assert items[3]["data"].endswith("ZeroDivisionError: division by zero")


@line("S0.9", "Start")
def test_the_server_is_called_as_before(start):
    assert start(NAME).opening["serverInfo"]["name"] == "ipython-executor"


@line("S0.10", "Preinstalled")
@pytest.mark.parametrize(
    "module",
    "IPython matplotlib numpy pandas sklearn seaborn scipy statsmodels plotly mpl_toolkits.basemap "
    "yfinance duckdb imageio nbformat".split(),
)
def test_a_library_is_there(server, module):
    assert run(server, f"import {module}\nprint('ok')", session_id="imports").endswith("ok")


@line("S0.11", "Later upstream only")
def test_tokens_are_asked_for_and_not_logged(serve):
    token = "a-token-of-the-test-1234"
    server = serve(belljar.Http, "--profile", NAME, "--token", token, "--log-level", "debug")
    ask = belljar.stateless("tools/list")
    assert server.post(ask).status == 401
    assert server.post(ask, {"Authorization": f"Bearer {token}"}).status == 200
    assert server.post(ask, {"Authorization": "Bearer something-else-5678"}).status == 401
    assert token not in server.log_text() and "something-else" not in server.log_text()
