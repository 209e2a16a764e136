"""python-docker-mcp: execute-transient, execute-persistent, install-package, cleanup-session."""

import json
import re
import socket

import belljar
import pytest
from lines import line
from processes import sandboxes
from profiles_client import open_to_all, wait_until
from wheels import Index

NAME = "python-docker-mcp"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def server(shared):
    return shared(NAME)


@pytest.fixture(scope="module")
def installer(wheels):
    from profiles_client import Profile

    with Profile(NAME, "--package-max-bytes", "8m", wheels=wheels) as server:
        yield server


def transient(server, code, **more):
    return server.text("execute-transient", code=code, **more)


def persistent(server, code, **more):
    return server.text("execute-persistent", code=code, **more)


def state_of(text):
    return json.loads(re.search(r"\n\nState: (.*)", text)[1])


# --- the tools ------------------------------------------------------------------------------------


@line("S3.1", "stdio server")
def test_resources_and_prompts_are_declared_and_empty(start):
    server = start(NAME)
    assert server.opening["serverInfo"]["name"] == NAME
    assert {"tools", "resources", "prompts"} <= set(server.opening["capabilities"])
    assert server.submit("resources/list").result()["resources"] == []
    assert server.submit("prompts/list").result()["prompts"] == []
    names = [tool["name"] for tool in server.submit("tools/list").result()["tools"]]
    assert names == [
        "execute-transient",
        "execute-persistent",
        "install-package",
        "cleanup-session",
    ]


@line("S3.2", "execute-transient")
@line("S3.3", "execute-persistent")
@line("S3.4", "install-package")
@line("S3.5", "cleanup-session")
def test_the_schemas_are_those_of_the_readme(server):
    expected = {
        "execute-transient": ({"code": "string", "state": "object"}, ["code"]),
        "execute-persistent": ({"code": "string", "session_id": "string"}, ["code"]),
        "install-package": (
            {"package_name": "string", "session_id": "string"},
            ["package_name"],
        ),
        "cleanup-session": ({"session_id": "string"}, ["session_id"]),
    }
    for tool in server.submit("tools/list").result()["tools"]:
        types, required = expected.pop(tool["name"])
        schema = tool["inputSchema"]
        assert schema["required"] == required
        for name, rule in schema["properties"].items():
            assert types.pop(name) in rule["type"]
        assert not types
    assert not expected


@line("S3.2", "execute-transient")
def test_the_example_of_the_readme(server):
    code = (
        "def factorial(n):\n    return 1 if n <= 1 else n * factorial(n-1)\n\n"
        "result = factorial(5)\nprint(f'The factorial of 5 is {result}')"
    )
    said = transient(server, code)
    assert said.startswith("Execution Result:\n\nThe factorial of 5 is 120\n")
    assert state_of(said) == {"result": 120}


@line("S3.2", "execute-transient")
def test_state_goes_in_and_comes_out_changed(server):
    said = transient(server, "x += 1\nnew = [x, None]", state={"x": 41, "kept": {"a": "b"}})
    assert state_of(said) == {"x": 42, "kept": {"a": "b"}, "new": [42, None]}
    assert state_of(transient(server, "y = x * 2", state=state_of(said)))["y"] == 84


@line("S3.2", "execute-transient")
def test_what_json_cannot_carry_is_named(server):
    said = transient(server, "a = {1, 2}\nb = 1\nc = object()")
    assert state_of(said) == {"b": 1} and said.endswith("\n\nNot part of the state: a, c")


@line("S3.2", "execute-transient")
def test_a_transient_sandbox_is_fresh(server):
    transient(server, "x = 1\nopen('f', 'w').close()")
    assert "NameError" in transient(server, "x")
    assert "[]" in transient(server, "import os\nprint(os.listdir('.'))")


@line("S3.3", "execute-persistent")
def test_functions_persist(server):
    said = persistent(server, "def add(a, b):\n    return a + b\n\nprint('Function defined')")
    match = re.fullmatch(rf"Session ID: ({UUID})\n\nExecution Result:\n\nFunction defined\n", said)
    said = persistent(
        server, "result = add(10, 20)\nprint(f'10 + 20 = {result}')", session_id=match[1]
    )
    assert said == f"Session ID: {match[1]}\n\nExecution Result:\n\n10 + 20 = 30\n"


@line("S3.3", "execute-persistent")
def test_a_chosen_id_makes_the_session(server):
    assert persistent(server, "x = 1", session_id="my.own_id-1").startswith(
        "Session ID: my.own_id-1\n\nExecution Result:\n\n"
    )
    assert "1\n" in persistent(server, "print(x)", session_id="my.own_id-1")
    refused = server.refused("execute-persistent", code="1", session_id="no spaces")
    assert refused.startswith("Error executing execute-persistent: session_id: ")


@line("S3.4", "install-package")
@line("S3.7", "Text formats")
def test_installing_returns_the_output(installer):
    said = installer.text("install-package", package_name="demo", session_id="with-demo")
    assert said.startswith("Package installation result:\n\n") and "demo" in said
    assert "2.0\n" in persistent(
        installer, "import demo\nprint(demo.version)", session_id="with-demo"
    )


@line("S3.4", "install-package")
def test_versions_can_be_pinned(installer):
    installer.text("install-package", package_name="demo==1.0", session_id="pinned")
    assert "1.0\n" in persistent(installer, "import demo\nprint(demo.version)", session_id="pinned")


@line("S3.4", "install-package")
def test_without_a_session_it_is_only_tried(installer):
    assert installer.text("install-package", package_name="demo").startswith("Package install")
    said = transient(installer, "import demo")
    assert "ModuleNotFoundError" in said


@line("S3.4", "install-package")
def test_an_unknown_session_is_made_for_a_package(installer):
    installer.text("install-package", package_name="demo", session_id="made_here")
    persistent(installer, "x = 1", session_id="made_here")
    assert "1\n" in persistent(installer, "print(x)", session_id="made_here")


@line("S3.4", "install-package")
@line("S3.7", "Text formats")
@pytest.mark.parametrize("name", ["--index-url=http://x", "demo; rm -rf /", "../demo", "a b"])
def test_names_that_are_none(installer, name):
    said = installer.refused("install-package", package_name=name, session_id="s")
    assert said.startswith(f"Error executing install-package: Invalid package name: {name}")
    assert "package_name" in said


@line("S3.4", "install-package")
@line("S3.7", "Text formats")
def test_a_package_that_does_not_exist(installer):
    said = installer.refused("install-package", package_name="no-such-thing", session_id="s")
    assert said.startswith("Error executing install-package: Failed to install package: ")
    assert "no-such-thing" in said
    assert persistent(installer, "print('fine')", session_id="s").endswith("fine\n")


@line("S3.4", "install-package")
@line("S3.7", "Text formats")
def test_a_package_that_is_too_large(installer):
    persistent(installer, "x = 'intact'", session_id="large")
    said = installer.refused("install-package", package_name="bomb", session_id="large")
    assert said.startswith("Error executing install-package: Failed to install package: ")
    assert "package_max_bytes" in said
    assert persistent(installer, "print(x)", session_id="large").endswith("intact\n")


@line("S3.5", "cleanup-session")
def test_files_of_a_session_on_disk_come_back_and_go_with_cleanup(start, tmp_path):
    flags = ["--workspace", "disk", "--workspace-dir", tmp_path / "disk"]
    server = start(NAME, *flags)
    kept = {"session_id": "my_math_session"}
    server.text("execute-persistent", code="open('f', 'w').write('kept')", **kept)
    server.text("execute-transient", code="open('f', 'w').write('not kept')")
    server.stop()
    server = start(NAME, *flags)
    said = server.text("execute-persistent", code="print(open('f').read())", **kept)
    assert "kept\n" in said and "variables and imports are gone" in said
    server.text("cleanup-session", **kept)
    assert not (tmp_path / "disk" / NAME / "stdio" / "my_math_session").exists()
    said = server.text("execute-persistent", code="import os\nprint(os.listdir('.'))", **kept)
    assert "[]" in said


@line("S3.5", "cleanup-session")
@line("S3.7", "Text formats")
def test_cleaning_up(server):
    persistent(server, "x = 1", session_id="gone")
    done = "Session gone cleaned up successfully"
    assert server.text("cleanup-session", session_id="gone") == done
    assert "NameError" in persistent(server, "x", session_id="gone")
    assert server.text("cleanup-session", session_id="gone") == done
    assert server.text("cleanup-session", session_id="gone") == done  # always


@line("S3.5", "cleanup-session")
def test_the_sandbox_is_removed(start):
    server = start(NAME)
    persistent(server, "x = 1", session_id="gone")
    wait_until(lambda: len(sandboxes(server)) == 1)
    server.text("cleanup-session", session_id="gone")
    wait_until(lambda: not sandboxes(server))


@line("S3.6", "README example")
def test_a_package_before_the_first_execute(installer):
    installer.text("install-package", session_id="my_math_session", package_name="demo")
    code = "import demo, numpy as np\nprint(f'Mean: {np.mean(np.array([1, 2, 3, 4, 5]))}')"
    said = persistent(installer, code, session_id="my_math_session")
    assert said == "Session ID: my_math_session\n\nExecution Result:\n\nMean: 3.0\n"


# --- texts ----------------------------------------------------------------------------------------


@line("S3.7", "Text formats")
def test_standard_error_and_error_have_their_places(server):
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0"
    said = persistent(server, code, session_id="texts")
    begin = (
        "Session ID: texts\n\nExecution Result:\n\nout\n\n\nStandard Error:\nerr\n\n\n"
        "Error: Traceback"
    )
    assert said.startswith(begin) and said.endswith("ZeroDivisionError: division by zero")


@line("S3.7", "Text formats")
@pytest.mark.parametrize(
    "tool, arguments, words",
    [
        ("execute-transient", {}, "Missing arguments"),
        ("execute-transient", {"state": {}}, "Missing code"),
        ("execute-persistent", {"code": ""}, "Missing code"),
        ("install-package", {"session_id": "x"}, "Missing package name"),
        ("cleanup-session", {"session_id": ""}, "Missing session ID"),
        ("cleanup-session", {}, "Missing arguments"),
    ],
    ids=["no_arguments", "no_code", "empty_code", "no_package", "empty_session",
         "no_session_arguments"],
)  # fmt: skip
def test_what_is_missing(server, tool, arguments, words):
    said = server.refused(tool, **arguments)
    assert said.startswith(f"Error executing {tool}: {words} (")


@line("S3.7", "Text formats")
def test_an_unknown_tool_is_named(server):
    with pytest.raises(belljar.RpcError, match="Unknown tool: no-such-tool"):
        server.tool("no-such-tool", code="1")


@line("S3.7", "Text formats")
@line("S3.8", "YAML config")
def test_an_import_policy_is_told_in_their_words(start, tmp_path):
    write_config(tmp_path, "allowed_modules: [math, json]\nblocked_modules:\n  - os\n  - sys\n")
    server = start(NAME, env={"HOME": str(tmp_path)})
    assert "2.0\n" in transient(server, "import math\nprint(math.sqrt(4))")
    assert "Error: Validation error: Import 'os' is blocked for security reasons" in transient(
        server, "import os"
    )
    assert "Error: Validation error: Import 'socket' is not in the allowed list" in transient(
        server, "import socket"
    )


# --- configuration --------------------------------------------------------------------------------

README_CONFIG = """
docker:
  image: python:3.12.2-slim
  working_dir: /app
  memory_limit: 256m
  cpu_limit: 0.5
  timeout: 30
  network_disabled: true
  read_only: true

package:
  installer: uv  # or pip
  index_url: null  # Set to your PyPI mirror if needed
  trusted_hosts: []  # List of trusted hosts for pip/uv

allowed_modules:
  - math
  - datetime
  - random
  - json
  - re
  - collections

blocked_modules:
  - os
  - sys
  - subprocess
  - shutil
  - pathlib
"""


def write_config(home, text):
    place = home / ".python-docker-mcp"
    place.mkdir(exist_ok=True)
    (place / "config.yaml").write_text(text)


@line("S3.8", "YAML config")
def test_the_file_of_the_readme_is_taken_as_it_is(config, tmp_path):
    write_config(tmp_path, README_CONFIG)
    values = config(NAME, home=tmp_path)
    assert config.log == ""
    assert values["memory_limit"] == 256 << 20 and values["cpu_limit"] == 0.5
    assert values["run_timeout"] == 30 and values["package_installer"] == "uv"
    assert values["allowed_modules"] == ["math", "datetime", "random", "json", "re", "collections"]
    assert values["blocked_modules"] == ["os", "sys", "subprocess", "shutil", "pathlib"]
    assert config("default", home=tmp_path)["allowed_modules"] == []


@line("S3.8", "YAML config")
@pytest.mark.parametrize(
    "key, text, option, value, before",
    [
        ("docker.memory_limit", "300m", "memory_limit", 300 << 20, 256 << 20),
        ("docker.cpu_limit", "0.25", "cpu_limit", 0.25, 0.5),
        ("docker.timeout", "7", "run_timeout", 7, 30),
        ("docker.pool_enabled", "false", "pool_enabled", False, True),
        ("docker.pool_size", "3", "pool_size", 3, 32),
        ("docker.pool_max_age", "60", "pool_max_age", 60, 300),
        ("docker.max_concurrent_creations", "1", "pool_max_creations", 1, 5),
        ("package.installer", "pip", "package_installer", "pip", "auto"),
        ("package.index_url", "https://index.example/simple", "package_index",
         "https://index.example/simple", ""),
        ("package.trusted_hosts", "[a.example, b.example]", "package_trusted_hosts",
         ["a.example", "b.example"], []),
        ("allowed_modules", "[math]", "allowed_modules", ["math"], []),
        ("blocked_modules", "[os]", "blocked_modules", ["os"], []),
    ],
)  # fmt: skip
def test_a_key_is_an_option(config, tmp_path, key, text, option, value, before):
    assert config(NAME, home=tmp_path)[option] == before
    group, dot, name = key.rpartition(".")
    write_config(tmp_path, f"{group}:\n  {name}: {text}\n" if dot else f"{name}: {text}\n")
    assert config(NAME, home=tmp_path)[option] == value


@line("S3.8", "YAML config")
@pytest.mark.parametrize(
    "key, default, other",
    [
        ("image", "python:3.12.2-slim", "mine:1"),
        ("working_dir", "/app", "/srv"),
        ("network_disabled", "true", "false"),
        ("read_only", "true", "false"),
        ("no_such_key", None, "1"),
    ],
)
def test_what_has_no_counterpart_is_told(config, tmp_path, key, default, other):
    if default:
        write_config(tmp_path, f"docker: {{{key}: '{default}'}}")
        config(NAME, home=tmp_path)
        assert config.log == ""
    write_config(tmp_path, f"docker: {{{key}: '{other}'}}")
    config(NAME, home=tmp_path)
    assert f"config.yaml:1: docker.{key}" in config.log and "is not used" in config.log


@line("S3.8", "YAML config")
def test_a_bad_value_in_the_file_names_its_place(config, tmp_path):
    write_config(tmp_path, "docker:\n  memory_limit: lots\n")
    with pytest.raises(AssertionError, match=r"config\.yaml:2: memory_limit: \"lots\""):
        config(NAME, home=tmp_path)


@line("S3.8", "YAML config")
def test_limits_of_the_file_are_in_force(start, tmp_path):
    write_config(tmp_path, "docker: {memory_limit: 100m, cpu_limit: 0.2}")
    server = start(NAME, env={"HOME": str(tmp_path)})
    said = transient(server, "x = bytearray(200 << 20)")
    assert "out of memory: the sandbox may use 100 MiB" in said
    code = (
        "import time\nbegin = time.monotonic()\nwhile time.monotonic() < begin + 2: pass\n"
        "part = time.process_time() / (time.monotonic() - begin)"
    )
    assert state_of(transient(server, code))["part"] < 0.4


@line("S3.8", "YAML config")
def test_code_finds_app(server):
    said = transient(server, "open('/app/f', 'w').write('x')\nprint(open('f').read())")
    assert "Execution Result:\n\nx\n" in said


@line("S3.9", "Env")
def test_the_defaults(config):
    values = config(NAME)
    assert values["pool_enabled"] is True and values["pool_size"] == 32
    assert values["pool_max_age"] == 300 and values["pool_max_creations"] == 5
    assert values["memory_limit"] == 256 << 20 and values["cpu_limit"] == 0.5


@line("S3.9", "Env")
@pytest.mark.parametrize(
    "variable, text, option, value",
    [
        ("POOL_ENABLED", "no", "pool_enabled", False),
        ("POOL_ENABLED", "YES", "pool_enabled", True),
        ("POOL_ENABLED", "1", "pool_enabled", True),
        ("POOL_ENABLED", "true", "pool_enabled", True),
        ("POOL_ENABLED", "0", "pool_enabled", False),
        ("POOL_ENABLED", "anything", "pool_enabled", False),
        ("POOL_SIZE", "4", "pool_size", 4),
        ("POOL_MAX_AGE", "60", "pool_max_age", 60),
        ("MAX_CONCURRENT_CREATIONS", "1", "pool_max_creations", 1),
        ("MEMORY_LIMIT", "300m", "memory_limit", 300 << 20),
        ("CPU_LIMIT", "0.25", "cpu_limit", 0.25),
        ("DEBUG", "1", "log_level", "debug"),
        ("DEBUG", "0", "log_level", "info"),
    ],
)
def test_a_variable_counts_in_this_profile_only(config, variable, text, option, value):
    env = {f"PYTHON_DOCKER_MCP_{variable}": text}
    assert config(NAME, env)[option] == value
    assert config("default", env)[option] == config("default")[option]


@line("S3.9", "Env")
@pytest.mark.parametrize(
    "variable", ["POOL_SIZE", "POOL_MAX_AGE", "MAX_CONCURRENT_CREATIONS", "MEMORY_LIMIT",
                 "CPU_LIMIT"]
)  # fmt: skip
def test_a_bad_number_is_passed_over_with_a_warning(config, variable):
    name = f"PYTHON_DOCKER_MCP_{variable}"
    assert config(NAME, {name: "many"}) == config(NAME)
    config(NAME, {name: "many"})
    assert f'{name}: "many" is not used: expected ' in config.log


@line("S3.9", "Env")
def test_precedence_and_another_file(config, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("docker: {memory_limit: 100m, cpu_limit: 0.1}")
    write_config(tmp_path, "docker: {memory_limit: 200m}")
    assert config(NAME, home=tmp_path)["memory_limit"] == 200 << 20
    named = {"PYTHON_DOCKER_MCP_CONFIG": str(other)}
    assert config(NAME, named, home=tmp_path)["memory_limit"] == 100 << 20
    both = {**named, "PYTHON_DOCKER_MCP_MEMORY_LIMIT": "300m"}
    values = config(NAME, both, home=tmp_path)
    assert values["memory_limit"] == 300 << 20 and values["cpu_limit"] == 0.1
    with pytest.raises(AssertionError, match="gone.yaml"):
        config(NAME, {"PYTHON_DOCKER_MCP_CONFIG": str(tmp_path / "gone.yaml")})


@line("S3.9", "Env")
def test_the_flag_debug(config):
    assert config(NAME, {}, "--debug")["log_level"] == "debug"


# --- the rest -------------------------------------------------------------------------------------


@line("S3.10", "Preinstalled")
@pytest.mark.parametrize("module", "numpy pandas scipy matplotlib sklearn sympy".split())
def test_a_library_is_there(server, module):
    assert "fine\n" in persistent(server, f"import {module}\nprint('fine')", session_id="imports")


@line("S3.11", "Differences in source")
def test_an_allow_list_is_not_about_preinstalled_libraries(start, tmp_path):
    write_config(tmp_path, README_CONFIG)
    server = start(NAME, env={"HOME": str(tmp_path)})
    said = transient(
        server, "import numpy as np\nfrom json import dumps\nprint(np.arange(3).sum())"
    )
    assert "Execution Result:\n\n3\n" in said


@line("S3.11", "Differences in source")
def test_the_policy_is_about_modules_not_about_names_in_them(start, tmp_path):
    write_config(tmp_path, "blocked_modules: [os, path]\n")
    server = start(NAME, env={"HOME": str(tmp_path)})
    assert "Import 'os' is blocked" in transient(server, "from os import sep")
    assert "Import 'os.path' is blocked" in transient(server, "import os.path as p")
    assert "Execution Result:\n\n1\n" in transient(
        server, "class json: path = 1\nfrom json import decoder\nprint('import os' and 1)"
    )


@line("S3.11", "Differences in source")
@pytest.mark.parametrize("pool", [False, True], ids=["alone", "pooled"])
def test_the_timeout_holds_in_a_session_and_its_state_survives(start, tmp_path, pool):
    write_config(tmp_path, "docker: {timeout: 1, pool_size: 1}")
    server = start(NAME, env={"HOME": str(tmp_path)}, pool=pool)
    sleep = "import time\ntime.sleep(60)"
    persistent(server, "x = 7", session_id="s")
    assert "Error: " in persistent(server, sleep, session_id="s")
    assert persistent(server, "print(x)", session_id="s").endswith("\n\n7\n")
    assert "Error: " in transient(server, sleep)


@line("S3.11", "Differences in source")
def test_nothing_leaks_through_the_pool(start, tmp_path):
    write_config(tmp_path, "docker: {pool_size: 1}")
    server = start(NAME, env={"HOME": str(tmp_path)}, pool=True)
    for _ in range(4):
        code = (
            "import os, builtins\nseen = [os.listdir('/app'), os.listdir('/tmp'), "
            "hasattr(builtins, 'leak')]\n"
            "open('/app/leak', 'w').close()\nopen('/tmp/leak', 'w').close()\nbuiltins.leak = 1"
        )
        assert state_of(transient(server, code))["seen"] == [[], [], False]


@line("S3.11", "Differences in source")
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_the_installer_and_its_index_are_those_of_the_file(start, tmp_path, wheels, tool):
    with Index(wheels) as index:
        text = f"package: {{installer: {tool}, index_url: '{index.url}'}}"
        said = install_demo(start, tmp_path, text)
        assert (
            index.requests
            and {"uv": " + demo==2.0", "pip": "Successfully installed demo-2.0"}[tool] in said
        )


@pytest.mark.large
@line("S3.11", "Differences in source")
def test_a_trusted_host_is_trusted(start, tmp_path, wheels):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing; only says by which address it would
        host = sock.getsockname()[0]
    if host.startswith("127."):
        pytest.skip("this machine has no address but its loopback")
    with Index(wheels, host=host) as index:
        text = f"package: {{installer: pip, index_url: '{index.url}', trusted_hosts: [%s]}}"
        assert "Successfully" in install_demo(start, tmp_path, text % host)
        said = install_demo(start, tmp_path, text % "other.example", refused=True)
        assert "Failed to install package" in said and "demo" in said


def install_demo(start, home, text, refused=False):
    write_config(open_to_all(home), text)
    shelf = home / f"shelf{len(list(home.iterdir()))}"  # of its own: nothing comes from a cache
    flags = ["--packages-enabled", "--package-dir", shelf]
    server = start(NAME, *flags, env={"HOME": str(home)})
    ask = server.refused if refused else server.text
    said = ask("install-package", package_name="demo", session_id="s")
    server.stop()
    return said


@line("S3.11", "Differences in source")
def test_output_with_the_word_error_is_no_failure(server):
    said = transient(server, "print('error: none')")
    assert said == "Execution Result:\n\nerror: none\n\n\nState: {}"


@line("S3.8", "YAML config")
@line("S3.11", "Differences in source")
def test_there_is_no_network_and_nothing_else_can_be_written(server):
    said = transient(server, "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)")
    assert "unreachable" in said
    assert "Read-only file system" in transient(server, "open('/usr/x', 'w')")
