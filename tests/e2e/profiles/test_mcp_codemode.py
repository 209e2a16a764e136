"""mcp-codemode: execute_code and files of one workspace."""

import pathlib
import threading

import belljar
import pytest
from lines import line
from processes import below, sandboxes
from profiles_client import runtime_flags, wait_until

NAME = "mcp-codemode"
OUTSIDE = "Path '{}' resolves outside the sandbox workspace. All paths must be within /workspace."


@pytest.fixture
def server(shared):
    return shared(NAME)


def run(server, code, language=None, **more):
    arguments = {"code": code, **({"language": language} if language else {})}
    return server.text("execute_code", **arguments, **more)


# --- S4.1, S4.2: where it is, and its variables ---------------------------------------------------


@line("S4.1", "Streamable HTTP")
def test_it_is_at_mcp_and_answers_json(serve):
    server = serve(belljar.Http, "--profile", NAME)
    session = server.session()
    assert session.result["serverInfo"]["name"] == NAME
    answer = server.post(belljar.stateless("tools/list"))
    assert answer.headers["content-type"] == "application/json"
    names = [tool["name"] for tool in answer.message()["result"]["tools"]]
    assert names == [
        "execute_code",
        "sandbox_read_file",
        "sandbox_write_file",
        "sandbox_list_files",
    ]
    beside = server.post(belljar.stateless("tools/list"), path=f"/mcp/{NAME}").message()
    assert [tool["name"] for tool in beside["result"]["tools"]] == names


@line("S4.1", "Streamable HTTP")
@line("S4.10", "Differences in source")
@pytest.mark.parametrize("host", [None, "127.0.0.2"])
def test_without_a_client_on_stdin_it_serves_http(config, host):
    assert config(NAME)["http"] == ""  # then serve decides: no pipe on standard input, so HTTP
    argv = [belljar.need(belljar.BIN), "serve", "--profile", NAME, "--no-pool-enabled"]
    port = free_port()
    env = {"MCP_PORT": str(port), **({"MCP_HOST": host} if host else {})}
    process = belljar.Process(argv, belljar.DEVNULL, belljar.PIPE, belljar.STDOUT, env)
    said = process.wait_log(r"listening on http://([0-9.]+):(\d+)/mcp")
    assert said[1] == (host or "127.0.0.1") and int(said[2]) == port
    process.terminate()
    process.finish()


def free_port():
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@line("S4.2", "Env")
def test_the_defaults(config):
    values = config(NAME)
    assert values["pool_size"] == 2 and values["run_timeout"] == 30
    assert values["output_chars"] == 50000 and values["memory_limit"] == 256 << 20
    assert values["cpu_limit"] == 1.0


@line("S4.2", "Env")
@pytest.mark.parametrize(
    "variable, text, option, value",
    [
        ("POOL_SIZE", "5", "pool_size", 5),
        ("EXEC_TIMEOUT", "7", "run_timeout", 7),
        ("MAX_OUTPUT_SIZE", "123", "output_chars", 123),
        ("MCP_PORT", "9000", "http", "127.0.0.1:9000"),
        ("MCP_HOST", "127.0.0.2", "http", "127.0.0.2:8000"),
        ("CONTAINER_MEMORY_LIMIT", "300m", "memory_limit", 300 << 20),
        ("CONTAINER_CPU_LIMIT", "0.25", "cpu_limit", 0.25),
    ],
)
def test_a_variable_counts_in_this_profile_only(config, variable, text, option, value):
    assert config(NAME, {variable: text})[option] == value
    assert config("default", {variable: text})[option] == config("default")[option]


@line("S4.2", "Env")
def test_all_addresses_only_behind_a_token(config):
    token = {"BELLJAR_TOKEN": "a-token-of-16-characters"}
    assert config(NAME, {"MCP_PORT": "9", **token})["http"] == "0.0.0.0:9"
    assert config(NAME, {"MCP_PORT": "9"})["http"] == "127.0.0.1:9"
    assert config(NAME, {"MCP_HOST": "::1"})["http"] == "[::1]:8000"


@line("S4.2", "Env")
@pytest.mark.parametrize(
    "variable", ["POOL_SIZE", "EXEC_TIMEOUT", "MAX_OUTPUT_SIZE", "CONTAINER_MEMORY_LIMIT",
                 "CONTAINER_CPU_LIMIT", "MCP_PORT"]
)  # fmt: skip
def test_a_bad_value_stops_the_start_and_is_named(config, variable):
    with pytest.raises(AssertionError, match=variable):
        config(NAME, {variable: "nonsense"})
    config("default", {variable: "nonsense"})


@line("S4.2", "Env")
def test_another_image_is_told_to_be_of_no_use(config):
    config(NAME, {"SANDBOX_IMAGE": "python:3.12-slim"})
    assert "SANDBOX_IMAGE" not in config.log
    config(NAME, {"SANDBOX_IMAGE": "mine:latest"})
    assert 'SANDBOX_IMAGE: "mine:latest" is not used' in config.log


# --- S4.3: execute_code ---------------------------------------------------------------------------


@line("S4.3", "execute_code")
def test_sections(server):
    assert run(server, "print('a')") == "[stdout]\na\n\n[exit_code] 0"
    assert run(server, "pass") == "[exit_code] 0"
    said = run(server, "echo out; echo err >&2; exit 3", "bash")
    assert said == "[stdout]\nout\n\n[stderr]\nerr\n\n[exit_code] 3"


@line("S4.3", "execute_code")
@pytest.mark.parametrize(
    "language, code",
    [
        (None, "print(6 * 7)"),
        ("python", "print(6 * 7)"),
        ("Python", "print(6 * 7)"),
        ("bash", "echo $((6 * 7))"),
        ("sh", "echo $((6 * 7))"),
        ("node", "console.log(6 * 7)"),
        ("javascript", "console.log(6 * 7)"),
        ("BASH", "echo $((6 * 7))"),
    ],
)
def test_languages(server, language, code):
    assert run(server, code, language) == "[stdout]\n42\n\n[exit_code] 0"


@line("S4.3", "execute_code")
def test_a_language_that_is_not_there(server):
    assert run(server, "x", "cobol") == (
        "[stderr]\nUnsupported language: cobol. Supported: python, bash, sh, node, javascript\n"
        "[exit_code] 1"
    )


@line("S4.3", "execute_code")
def test_an_exception_is_on_stderr(server):
    said = run(server, "1 / 0")
    assert said.startswith("[stderr]\nTraceback") and said.endswith(
        "ZeroDivisionError: division by zero\n\n[exit_code] 1"
    )


@line("S4.3", "execute_code")
def test_the_cut_is_at_50000_characters(server):
    assert run(server, "print('é' * 50000, end='')") == (
        "[stdout]\n" + "é" * 50000 + "\n[exit_code] 0"
    )
    said = run(server, "import sys\nprint('é' * 50001)\nprint('e' * 50001, file=sys.stderr)")
    assert said == (
        "[stdout]\n" + "é" * 50000 + "\n... [output truncated]\n"
        "[stderr]\n" + "e" * 50000 + "\n... [output truncated]\n"
        "[exit_code] 0\n[note] Output was truncated due to size limits."
    )


@line("S4.2", "Env")
@line("S4.3", "execute_code")
def test_timeout_and_output_size_from_the_environment(start):
    server = start(NAME, env={"EXEC_TIMEOUT": "1", "MAX_OUTPUT_SIZE": "10"})
    said = run(server, "echo begun; exec sleep 60", "sh")
    assert said.endswith("[stderr]\nExecution timed out after 1 seconds\n[exit_code] -1")
    assert said.startswith("[stdout]\nbegun\n")  # what it had said is not lost
    assert run(server, "print('x' * 11)").startswith("[stdout]\n" + "x" * 10 + "\n... [output")


@line("S4.3", "execute_code")
def test_code_runs_in_the_workspace_each_time(server):
    for _ in range(2):
        assert "[stdout]\n/workspace\n" in run(server, "pwd; cd /tmp; export X=1", "bash")
    assert "[stdout]\n[]\n" in run(server, 'echo "[$X]"', "bash")
    run(server, "kept = 1")
    assert "NameError" in run(server, "kept")


# --- S4.4 to S4.7: files --------------------------------------------------------------------------


@line("S4.4", "sandbox_read_file")
def test_reading(server):
    run(server, "open('b', 'wb').write(b'a\\xffb')\nimport os\nos.makedirs('d', exist_ok=True)")
    assert server.text("sandbox_read_file", path="b") == "a\ufffdb"
    assert server.text("sandbox_read_file", path="/workspace/b") == "a\ufffdb"
    assert server.refused("sandbox_read_file", path="no") == "File not found in sandbox: no"
    assert server.refused("sandbox_read_file", path="d") == "Path is a directory: d"


@line("S4.5", "sandbox_write_file")
def test_writing(server):
    said = server.text("sandbox_write_file", path="new/deep/f.txt", content="héllo")
    assert said == "Wrote 6 bytes to /workspace/new/deep/f.txt"
    said = server.text("sandbox_write_file", path="/workspace/./g.txt", content="")
    assert said == "Wrote 0 bytes to /workspace/g.txt"
    assert server.text("sandbox_read_file", path="new/deep/f.txt") == "héllo"


@line("S4.6", "sandbox_list_files")
def test_listing(server):
    server.text("sandbox_write_file", path="listed/one.txt", content="1")
    assert " listed\n" in server.text("sandbox_list_files")
    said = server.text("sandbox_list_files", path="listed")
    assert said.startswith("total ") and " one.txt\n" in said and "-rw" in said
    assert server.refused("sandbox_list_files", path="no").startswith("Cannot list path: no: ")


@line("S4.7", "Path rule")
@line("S4.10", "Differences in source")
@pytest.mark.parametrize("path", ["../etc/passwd", "/etc/passwd", "/workspace-x", "a/../../etc"])
def test_no_path_leads_outside(server, path):
    outside = OUTSIDE.format(path)
    assert server.refused("sandbox_read_file", path=path) == outside
    assert server.refused("sandbox_write_file", path=path, content="x") == outside
    assert server.refused("sandbox_list_files", path=path) == outside


@line("S4.7", "Path rule")
@line("S4.10", "Differences in source")
def test_no_symlink_leads_outside(server):
    run(server, "ln -sfn /etc out; ln -sfn /etc/passwd p", "bash")
    assert server.refused("sandbox_read_file", path="out/passwd") == OUTSIDE.format("out/passwd")
    assert server.refused("sandbox_read_file", path="p") == OUTSIDE.format("p")
    assert server.refused("sandbox_list_files", path="out/ssl") == OUTSIDE.format("out/ssl")
    assert " /workspace/out -> /etc\n" in server.text("sandbox_list_files", path="out")
    said = server.refused("sandbox_write_file", path="out/x", content="")
    assert said == OUTSIDE.format("out/x")
    server.text("sandbox_write_file", path="p", content="of our own")  # instead of the link
    assert "of our own" in run(server, "cat p; test ! -L p", "bash")


# --- S4.8 to S4.11 --------------------------------------------------------------------------------


@line("S4.8", "Isolation")
@line("S4.9", "README contradictions")
def test_there_is_no_network(server):
    said = run(server, "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)")
    assert "unreachable" in said and said.endswith("[exit_code] 1")


@line("S4.8", "Isolation")
def test_memory_is_limited(start):
    server = start(NAME, env={"CONTAINER_MEMORY_LIMIT": "64m"})
    assert run(server, "x = bytearray(30 << 20)") == "[exit_code] 0"
    said = run(server, "x = bytearray(200 << 20)")
    assert "[memory_limit]" in said and said.endswith("[exit_code] 137")


@line("S4.8", "Isolation")
def test_the_processor_is_limited(start):
    server = start(NAME, env={"CONTAINER_CPU_LIMIT": "0.3"})
    code = (
        "import time\nbegin = time.monotonic()\nwhile time.monotonic() < begin + 2: pass\n"
        "print(time.process_time() / (time.monotonic() - begin))"
    )
    assert float(run(server, code).split("\n")[1]) < 0.5


@line("S4.8", "Isolation")
def test_the_pool_is_filled_ahead_and_gone_at_the_end(serve):
    env = {"POOL_SIZE": "3", "BELLJAR_POOL_SIZE": None}
    server = serve(belljar.Http, "--profile", NAME, "--pool-enabled", *runtime_flags(), env=env)
    wait_until(lambda: len(sandboxes(server)) >= 3)  # nobody has asked for anything
    others = below(server)
    server.stop()
    wait_until(lambda: not [pid for pid in others if pathlib.Path(f"/proc/{pid}").exists()])


@line("S4.10", "Differences in source")
def test_each_client_has_a_workspace_of_its_own(serve):
    server = serve(belljar.Http, "--profile", NAME, *runtime_flags())
    one, two = server.session(), server.session()

    def call(session, tool, **arguments):
        return session.call("tools/call", belljar.call_tool(tool, arguments), timeout=60)

    call(one, "sandbox_write_file", path="mine.txt", content="of one")
    assert belljar.text_of(call(one, "sandbox_read_file", path="mine.txt")) == "of one"
    assert "of one" in belljar.text_of(
        call(one, "execute_code", code="cat mine.txt", language="sh")
    )
    assert call(two, "sandbox_read_file", path="mine.txt")["isError"]
    assert "mine" not in belljar.text_of(call(two, "sandbox_list_files"))


@line("S4.10", "Differences in source")
def test_a_timeout_ends_its_own_run_only(serve):
    server = serve(belljar.Http, "--profile", NAME, *runtime_flags(), env={"EXEC_TIMEOUT": "3"})
    said = {}

    def call(name, code):
        arguments = {"code": code, "language": "sh"}
        reply = server.session().call(
            "tools/call", belljar.call_tool("execute_code", arguments), timeout=60
        )
        said[name] = belljar.text_of(reply)

    long = threading.Thread(target=call, args=("long", "sleep 600"))
    long.start()
    wait_until(lambda: sandboxes(server))
    while long.is_alive():  # one of these sleeps when the other is ended
        call("short", "sleep 1.5; echo done")
        assert said["short"] == "[stdout]\ndone\n\n[exit_code] 0"
    assert said["long"].endswith("Execution timed out after 3 seconds\n[exit_code] -1")


@line("S4.11", "Upstream has since moved on")
def test_the_file_tools_stay(server):
    names = {tool["name"] for tool in server.submit("tools/list").result()["tools"]}
    assert {"sandbox_read_file", "sandbox_write_file", "sandbox_list_files"} < names


@line("S4.3", "execute_code")
def test_the_schema_has_the_documented_defaults(server):
    schema = server.schema("execute_code")
    assert schema["properties"]["language"]["default"] == "python"
    assert schema["required"] == ["code"]


@line("S4.4", "sandbox_read_file")
@line("S4.5", "sandbox_write_file")
@line("S4.6", "sandbox_list_files")
def test_the_schemas_of_the_file_tools(server):
    assert server.schema("sandbox_read_file")["required"] == ["path"]
    assert set(server.schema("sandbox_write_file")["required"]) == {"path", "content"}
    assert server.schema("sandbox_list_files")["properties"]["path"]["default"] == "/workspace"
