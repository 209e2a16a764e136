"""python-interpreter: execute_code with sessions, files of figures, kernel:// resources."""

import base64
import re
import time

import belljar
import pytest
from lines import line
from processes import sandboxes
from profiles_client import LONG, Profile, end_sandbox, wait_until

NAME = "python-interpreter"
PNG = b"\x89PNG\r\n\x1a\n"
FIELDS = {"success", "output", "result", "error", "traceback", "files", "session_info"}
SINE = """
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 10, 100)
plt.plot(x, np.sin(x))
plt.title('Sine Wave')
plt.savefig('sine_wave.png')
plt.show()
"""


@pytest.fixture
def server(shared):
    return shared(NAME)


def run(server, code, session_id=None, **more):
    arguments = {"code": code, **({} if session_id is None else {"session_id": session_id})}
    return server.said("execute_code", **arguments, **more)


def new_session(server, code="pass"):
    return run(server, code)["session_info"]["session_id"]


def read(server, uri):
    return server.submit("resources/read", {"uri": uri}).result(LONG)["contents"][0]


# --- S2.1 to S2.6: the server and its tools -------------------------------------------------------


@line("S2.1", "Serves streamable HTTP")
def test_it_is_served_over_http(serve):
    server = serve(belljar.Http, "--profile", NAME)
    opening = server.session().result
    assert opening["serverInfo"]["name"] == "Python Code Interpreter"
    for word in ("session_id", "kernel://{session_id}/{filename}", "30 minutes", "!pip install"):
        assert word in opening["instructions"]
    answer = server.post(belljar.stateless("tools/list"), path="/mcp/")  # as FastMCP had it
    names = [tool["name"] for tool in answer.message()["result"]["tools"]]
    assert names == ["execute_code", "list_session_files", "clear_session"]


@line("S2.1", "Serves streamable HTTP")
@pytest.mark.parametrize(
    "address, env",
    [("127.0.0.1", {}), ("0.0.0.0", {"BELLJAR_TOKEN": "a-token-of-16-characters"})],
)
def test_without_a_client_on_stdin_it_listens_on_port_8000(address, env):
    argv = [belljar.need(belljar.BIN), "serve", "--profile", NAME, "--no-pool-enabled"]
    process = belljar.Process(argv, belljar.DEVNULL, belljar.PIPE, belljar.STDOUT, env)
    try:  # where somebody else has the port, the log says so and names it all the same
        process.wait_log(rf"\b{re.escape(address)}:8000\b")
    finally:
        process.kill()


@line("S2.2", "execute_code")
def test_the_object_has_its_fields(server):
    said = run(server, "print('out')\nimport sys\nprint('err', file=sys.stderr)\n[1, 'a']")
    assert set(said) == FIELDS and said["success"] is True
    assert said["output"] == ["out\n", "err\n"] and said["result"] == "[1, 'a']"
    assert said["error"] is None and said["traceback"] == [] and said["files"] == []


@line("S2.2", "execute_code")
def test_what_is_displayed_is_output_too(server):
    said = run(server, "print('one')\ndisplay({'two': 2})\nprint('three')\n4")
    assert "".join(said["output"]) == "one\n{'two': 2}\nthree\n" and said["result"] == "4"


@line("S2.2", "execute_code")
def test_an_error_is_name_and_value(server):
    said = run(server, "{}['k']")
    assert said["success"] is False and said["error"] == "KeyError: 'k'"
    assert said["traceback"][0].startswith("Traceback") and said["result"] is None


@line("S2.2", "execute_code")
def test_the_text_is_the_same_object(server):
    import json

    result = server.tool("execute_code", code="1 + 1")
    assert json.loads(belljar.text_of(result)) == result["structuredContent"]


@line("S2.2", "execute_code")
@pytest.mark.parametrize("empty", [None, "", "0"])
def test_nothing_and_zero_make_a_session(server, empty):
    assert run(server, "1", empty)["session_info"]["session_id"]


@line("S2.2", "execute_code")
def test_the_schema_has_the_default(server):
    schema = server.schema("execute_code")
    assert schema["required"] == ["code"] and schema["properties"]["session_id"]["default"] == ""


@line("S2.3", "New-session reply sample")
def test_the_example_of_the_readme(server):
    said = run(server, "import pandas as pd\nx = 42\nprint('Hello, World!')", "")
    assert said["success"] and said["output"] == ["Hello, World!\n"] and said["result"] is None
    info = said["session_info"]
    assert info["instructions"] == (
        "Use this `session_id` in subsequent requests to maintain state. Session will expire "
        "after 30 minutes of inactivity."
    )
    again = run(server, "print(x * 2)  # Variable persists", info["session_id"])
    assert again["output"] == ["84\n"] and again["session_info"] is None


@line("S2.4", "File line in output")
def test_a_file_is_told_twice(server):
    session = new_session(server)
    said = run(server, "open('data.csv', 'w').write('a,b\\n')", session)
    assert "📊 File created: data.csv (text/csv, 4 bytes)" in said["output"]
    assert said["files"] == [
        {
            "uri": f"kernel://{session}/data.csv",
            "mime_type": "text/csv",
            "name": "data.csv",
            "size": 4,
        }
    ]


@line("S2.5", "list_session_files")
def test_listing(server):
    session = new_session(server, "open('a.txt', 'w').write('x')")
    said = server.said("list_session_files", session_id=session)
    assert said["session_id"] == session and "error" not in said
    assert [file["name"] for file in said["files"]] == ["a.txt"]
    assert said["files"][0]["uri"] == f"kernel://{session}/a.txt"
    assert server.said("list_session_files", session_id="gone") == {
        "session_id": "gone",
        "files": [],
        "error": "Session gone not found or has expired. Sessions expire after 30 minutes of "
        "inactivity.",
    }


@line("S2.6", "clear_session")
def test_clearing(server):
    session = new_session(server, "open('f', 'w').close()")
    done = {"success": True, "message": f"Session {session} cleared and all files deleted"}
    assert server.said("clear_session", session_id=session) == done
    with pytest.raises(belljar.RpcError, match="not found or has expired"):
        read(server, f"kernel://{session}/f")
    again = {"success": False, "message": f"Session {session} not found"}
    assert server.said("clear_session", session_id=session) == again
    assert server.said("list_session_files", session_id=session)["files"] == []


# --- S2.7: resources ------------------------------------------------------------------------------


@line("S2.7", "Resource template")
def test_a_png_comes_back_as_a_blob(server):
    session = new_session(server)
    said = run(server, SINE, session)
    files = {file["name"]: file for file in said["files"]}
    assert "sine_wave.png" in files and files["sine_wave.png"]["mime_type"] == "image/png"
    contents = read(server, f"kernel://{session}/sine_wave.png")
    data = base64.b64decode(contents["blob"])
    assert data.startswith(PNG) and len(data) == files["sine_wave.png"]["size"]
    assert contents["mimeType"] == "image/png"


@line("S2.7", "Resource template")
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.json", "a.xml", "a.html"])
def test_text_comes_back_as_text(server, name):
    session = new_session(server, f"open({name!r}, 'w').write('<é>')")
    assert read(server, f"kernel://{session}/{name}")["text"] == "<é>"


@line("S2.7", "Resource template")
def test_the_template_is_listed(server):
    templates = server.submit("resources/templates/list").result()["resourceTemplates"]
    assert any(re.match(r"kernel://\{session_id\}/", t["uriTemplate"]) for t in templates)


@line("S2.7", "Resource template")
def test_what_is_not_there(server):
    session = new_session(server)
    with pytest.raises(belljar.RpcError, match="File not found: no.png"):
        read(server, f"kernel://{session}/no.png")
    with pytest.raises(belljar.RpcError, match="Session gone not found or has expired"):
        read(server, "kernel://gone/no.png")


# --- S2.8, S2.9: sessions -------------------------------------------------------------------------


@line("S2.8", "Session")
def test_ids_have_sixteen_characters(server):
    ids = {new_session(server) for _ in range(3)}
    assert len(ids) == 3 and all(re.fullmatch(r"[A-Za-z0-9_-]{16}", each) for each in ids)


@line("S2.8", "Session")
@line("S2.9", "Expired")
def test_an_idle_session_expires_with_its_files(start):
    server = start(NAME, env={"SESSION_TIMEOUT": "1"})
    session = new_session(server, "open('f', 'w').close()")
    wait_until(lambda: server.said("clear_session", session_id="x") and expired(server, session))
    said = run(server, "1", session)
    assert said["success"] is False and said["traceback"] == []
    assert said["error"].startswith(
        f"SessionExpiredError: Session {session} not found or has expired"
    )


def expired(server, session):
    """Looks no more often than the session may be idle, for looking is using."""
    time.sleep(2)
    return "error" in server.said("list_session_files", session_id=session)


@line("S2.8", "Session")
def test_what_is_idle_goes_without_being_asked_for(start):
    server = start(NAME, env={"SESSION_TIMEOUT": "1"})
    new_session(server)  # so there was a sandbox
    wait_until(lambda: not sandboxes(server))


@line("S2.6", "clear_session")
@line("S2.8", "Session")
def test_a_cleared_session_leaves_no_kernel(start):
    server = start(NAME)
    one, two = new_session(server), new_session(server)
    wait_until(lambda: len(sandboxes(server)) == 2)
    server.said("clear_session", session_id=one)
    wait_until(lambda: len(sandboxes(server)) == 1)
    assert run(server, "1", two)["success"]


@line("S2.8", "Session")
@line("S2.12", "Env")
def test_half_an_hour_by_default(config):
    assert config(NAME)["session_timeout"] == 1800


@line("S2.9", "Expired")
@line("S2.14", "Differences in source")
def test_a_cell_over_its_time_is_an_execution_error_and_the_session_lives(start):
    server = start(NAME, env={"KERNEL_TIMEOUT": "1"})
    session = new_session(server, "x = 5")
    code = (
        "import time\nprint('begun')\n"
        "while True:\n    open('ticks', 'a').write('x')\n    time.sleep(0.01)"
    )
    said = run(server, code, session)
    assert said["error"].startswith("ExecutionError: ") and said["output"][0] == "begun\n"
    ticks = run(server, "import os\nos.stat('ticks').st_size", session)["result"]
    assert run(server, "x", session)["result"] == "5"
    time.sleep(0.3)  # it does not run on behind its error
    assert run(server, "os.stat('ticks').st_size", session)["result"] == ticks != "0"


@line("S2.9", "Expired")
def test_a_dead_kernel_is_a_kernel_error(server):
    session = new_session(server, "open('kept', 'w').close()")
    said = run(server, "import os\nos._exit(1)", session)
    assert said["success"] is False and said["error"].startswith("KernelError: ")
    assert run(server, "import os\nos.listdir('.')", session)["result"] == "['kept']"


@line("S2.9", "Expired")
def test_a_sandbox_that_fails_is_an_initialization_error(start):
    server = start(NAME)
    session = new_session(server)
    arguments = {"code": "import time\ntime.sleep(60)", "session_id": session}
    running = server.submit("tools/call", belljar.call_tool("execute_code", arguments))
    end_sandbox(server)
    said = running.result(LONG)["structuredContent"]
    assert said["success"] is False and said["error"].startswith("InitializationError: ")
    assert run(server, "1", session)["error"].startswith("SessionExpiredError: ")


@line("S2.9", "Expired")
def test_too_many_sessions_are_a_server_error(start):
    server = start(NAME, "--max-sessions", "1")
    new_session(server)
    assert run(server, "1")["error"].startswith("ServerError: ")


# --- S2.10 to S2.14 -------------------------------------------------------------------------------


@line("S2.10", "IPython features")
def test_magics_and_commands(server):
    session = new_session(server)
    assert run(server, "%env MINE=yes\nimport os\nos.environ['MINE']", session)["result"] == "'yes'"
    assert run(server, "%%writefile made.txt\ntext", session)["files"][0]["name"] == "made.txt"
    assert run(server, "!echo from the shell", session)["output"] == ["from the shell\n"]


@line("S2.10", "IPython features")
def test_pip_install_in_a_cell(wheels):
    with Profile(NAME, wheels=wheels) as server:
        session = new_session(server)
        assert run(server, "!pip install demo", session)["success"]
        assert run(server, "import demo\ndemo.version", session)["result"] == "'2.0'"


@line("S2.10", "IPython features")
@pytest.mark.parametrize(
    "code",
    [
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])",
        "import seaborn as sns\nsns.lineplot(x=[1, 2], y=[3, 4])",
    ],
)
def test_figures_become_files(server, code):
    session = new_session(server)
    said = run(server, code, session)
    (file,) = said["files"]
    assert re.fullmatch(r"inline_\d{13}\.png", file["name"]) and file["mime_type"] == "image/png"
    assert f"📊 File created: {file['name']} (image/png, {file['size']} bytes)" in said["output"]
    assert base64.b64decode(read(server, file["uri"])["blob"]).startswith(PNG)


@line("S2.10", "IPython features")
@pytest.mark.parametrize(
    "suffix, mime_type, code",
    [
        ("svg", "image/svg+xml", "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"),
        ("jpeg", "image/jpeg", "Image(data=jpeg.getvalue(), format='jpeg')"),
    ],
)
def test_svg_and_jpeg_become_files_too(server, suffix, mime_type, code):
    before = (
        "import io, PIL.Image\nfrom IPython.display import SVG, Image, display\n"
        "jpeg = io.BytesIO()\nPIL.Image.new('RGB', (8, 8)).save(jpeg, 'jpeg')\n"
    )
    (file,) = run(server, f"{before}display({code})")["files"]
    assert re.fullmatch(rf"inline_\d{{13}}\.{suffix}", file["name"])
    assert file["mime_type"] == mime_type and file["size"] > 0


@line("S2.10", "IPython features")
@pytest.mark.parametrize("shown", [".show()", ""], ids=["show", "value"])
def test_a_plotly_figure_is_saved_and_told(server, shown):
    session = new_session(server)
    code = f"import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2])){shown}"
    said = run(server, code, session)
    (file,) = said["files"]
    assert re.fullmatch(r"plotly_\d{13}\.png", file["name"]) and file["mime_type"] == "image/png"
    assert base64.b64decode(read(server, file["uri"])["blob"]).startswith(PNG)
    assert f"Plotly figure saved as {file['name']}\n" in said["output"]


@line("S2.11", "MIME map")
def test_types_by_suffix(server):
    types = {
        "html": "text/html", "htm": "text/html", "json": "application/json", "csv": "text/csv",
        "txt": "text/plain", "pdf": "application/pdf", "png": "image/png", "jpg": "image/jpeg",
        "jpeg": "image/jpeg", "gif": "image/gif", "svg": "image/svg+xml",
        "xml": "application/xml", "nosuch": "application/octet-stream",
    }  # fmt: skip
    session = new_session(server, f"for s in {list(types)}:\n    open('f.' + s, 'w').close()")
    files = server.said("list_session_files", session_id=session)["files"]
    assert {file["name"][2:]: file["mime_type"] for file in files} == types


@line("S2.12", "Env")
@pytest.mark.parametrize(
    "variable, text, option, value",
    [
        ("LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("LOG_LEVEL", "CRITICAL", "log_level", "error"),
        ("KERNEL_TIMEOUT", "10", "run_timeout", 10),
        ("SESSION_TIMEOUT", "60", "session_timeout", 60),
    ],
)
def test_a_variable_counts_in_this_profile_only(config, variable, text, option, value):
    assert config(NAME, {variable: text})[option] == value
    assert config("default", {variable: text})[option] == config("default")[option]
    assert config(NAME)["log_level"] == "info"


@line("S2.12", "Env")
def test_code_finds_jupyter_platform_dirs(server):
    said = run(server, "import os\nos.environ['JUPYTER_PLATFORM_DIRS']")
    assert said["result"] == "'1'"


@line("S2.12", "Env")
def test_a_folder_of_notebooks_is_where_files_are_kept(config):
    values = config(NAME, {"NOTEBOOKS_FOLDER": "/srv/notebooks"})
    assert (values["workspace"], values["workspace_dir"]) == ("disk", "/srv/notebooks")
    assert (
        config(NAME)["workspace"] == config(NAME, {"NOTEBOOKS_FOLDER": ""})["workspace"] == "memory"
    )
    assert config("default", {"NOTEBOOKS_FOLDER": "/srv/notebooks"})["workspace"] == "memory"


@line("S2.12", "Env")
def test_files_in_the_folder_of_notebooks_survive_a_restart_and_end_with_their_session(
    start, tmp_path
):
    folder = tmp_path / "notebooks"
    env = {"NOTEBOOKS_FOLDER": str(folder)}
    server = start(NAME, env=env)
    session = new_session(server, "open('kept.txt', 'w').write('kept')")
    cleared = new_session(server, "open('x', 'w').close()")
    kept = folder / NAME / "stdio" / session
    assert (kept / "files/kept.txt").read_text() == "kept"
    assert server.said("clear_session", session_id=cleared)["success"]
    assert [path.name for path in kept.parent.iterdir()] == [session]
    server.stop()
    server = start(NAME, "--session-timeout", "3s", env=env)
    listed = server.said("list_session_files", session_id=session)["files"]
    assert [file["name"] for file in listed] == ["kept.txt"]
    said = run(server, "open('kept.txt').read()", session)
    assert said["result"] == "'kept'" and said["files"] == [] and said["session_info"] is None
    wait_until(lambda: not kept.exists())
    assert "SessionExpiredError" in run(server, "1", session)["error"]


@line("S2.8", "Session")
def test_orphan_folders_are_removed(start, tmp_path):
    env = {"NOTEBOOKS_FOLDER": str(tmp_path / "notebooks")}
    server = start(NAME, env=env)
    session = new_session(server, "open('x', 'w').close()")
    server.stop()
    kept = tmp_path / "notebooks" / NAME / "stdio" / session
    assert kept.exists()
    start(NAME, "--session-timeout", "1s", env=env)
    wait_until(lambda: not kept.exists())


@line("S2.13", "Preinstalled")
@pytest.mark.parametrize(
    "module",
    "pandas numpy matplotlib seaborn plotly kaleido sympy ipykernel jupyter_client".split(),
)
def test_a_library_is_there(server, module):
    assert run(server, f"import {module}")["success"]


@line("S2.14", "Differences in source")
def test_cells_run_in_a_sandbox(server):
    file = str(belljar.ROOT / "README.md")
    said = run(server, f"import os\nos.getuid(), os.path.exists({file!r})")
    assert not said["result"].startswith("(0,") and said["result"].endswith("False)")


@line("S2.14", "Differences in source")
def test_a_first_cell_that_fails_still_has_a_session(server):
    said = run(server, "x = 1\n1 / 0")
    session = said["session_info"]["session_id"]
    assert not said["success"] and run(server, "x", session)["result"] == "1"


@line("S2.14", "Differences in source")
def test_only_new_files_are_told(server):
    session = new_session(server, "open('one', 'w').close()")
    said = run(server, "open('two', 'w').close()", session)
    assert [file["name"] for file in said["files"]] == ["two"]


@line("S2.14", "Differences in source")
def test_files_in_folders_keep_their_way(server):
    session = new_session(server)
    code = "import os\nos.mkdir('sub')\nopen('sub/f.txt', 'w').write('x')"
    assert run(server, code, session)["files"][0]["name"] == "sub/f.txt"
    assert read(server, f"kernel://{session}/sub/f.txt")["text"] == "x"


@pytest.mark.large
@line("S2.14", "Differences in source")
def test_a_cell_may_take_longer_than_ten_seconds(server, config):
    assert config(NAME)["run_timeout"] == 30
    assert run(server, "import time\ntime.sleep(11)\n'done'")["result"] == "'done'"


@line("S2.14", "Differences in source")
def test_a_path_as_a_result_is_whole(server):
    said = run(server, "open('f.txt', 'w').close()\n'/workspace/f.txt'")
    assert said["result"] == "'/workspace/f.txt'"


@line("S2.14", "Differences in source")
def test_a_call_does_not_sleep(server):
    session, took = new_session(server), []
    for _ in range(20):
        arguments = {"code": "1", "session_id": session}
        waiting = server.submit("tools/call", belljar.call_tool("execute_code", arguments))
        waiting.result(LONG)
        took.append(waiting.took)
    assert min(took) < 0.1


@line("S2.14", "Differences in source")
def test_no_file_is_made_behind_the_codes_back(server):
    session = new_session(server, "x = 1")
    assert server.said("list_session_files", session_id=session)["files"] == []
    assert run(server, "import os\nos.listdir('.')", session)["result"] == "[]"
