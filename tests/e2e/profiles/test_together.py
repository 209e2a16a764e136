"""All profiles at one HTTP server, twenty clients at once: nothing of one is visible to another."""

import concurrent.futures
import re
import secrets

import belljar
import pytest
from lines import line
from profiles_client import NAMES, Profile, runtime_flags
from sandboxes import ordinary_user

CLIENTS = 20


class Client:
    """A client with an MCP session of its own at one profile's path."""

    def __init__(self, server, profile):
        self.server, self.profile = server, profile
        self.secret = secrets.token_hex(8)
        self.path = f"/mcp/{profile}"
        answer = server.post(belljar.initialize(), path=self.path)
        self.headers = {
            "Mcp-Session-Id": answer.headers["mcp-session-id"],
            "MCP-Protocol-Version": belljar.unwrap(answer.message())["protocolVersion"],
        }
        server.post(belljar.notification("notifications/initialized"), self.headers, path=self.path)

    def ask(self, method, params=None):
        answer = self.server.post(
            belljar.request(method, params), self.headers, timeout=120, path=self.path
        )
        self.seen = answer.body.decode()
        return answer.message()

    def tool(self, name, **arguments):
        return belljar.unwrap(self.ask("tools/call", belljar.call_tool(name, arguments)))

    def plant(self):
        """Leaves the secret in a session: as a variable where there are any, and as a file."""
        code = f"mine = {self.secret!r}\nopen('secret.txt', 'w').write(mine)\nprint(mine)"
        if self.profile == "mcp-pyexec":
            self.tool("execute_python", code=code, session_id="same-name")
        elif self.profile == "code-executer":
            self.tool("start_code_executer")
            self.tool("execute_code", code=code)
        elif self.profile == "python-interpreter":
            said = self.tool("execute_code", code=code)["structuredContent"]
            self.session = said["session_info"]["session_id"]
        elif self.profile == "python-docker-mcp":
            self.tool("execute-persistent", code=code, session_id="same-name")
        else:
            self.tool("sandbox_write_file", path="secret.txt", content=self.secret)

    def recall(self):
        """Everything that this client can see now."""
        code = "import os\nprint(globals().get('mine'), open('secret.txt').read(), os.listdir('.'))"
        if self.profile == "mcp-pyexec":
            self.tool("execute_python", code=code, session_id="same-name")
        elif self.profile == "code-executer":
            self.tool("execute_code", code=code)
        elif self.profile == "python-interpreter":
            self.tool("execute_code", code=code, session_id=self.session)
            seen = self.seen
            self.tool("list_session_files", session_id=self.session)
            self.seen += seen
        elif self.profile == "python-docker-mcp":
            self.tool("execute-persistent", code=code, session_id="same-name")
        else:
            self.tool("execute_code", code=code)
            seen = self.seen
            self.tool("sandbox_list_files")
            self.seen += seen
        return self.seen


@pytest.fixture
def crowd(serve):
    server = serve(belljar.Http, *runtime_flags(), "--max-sessions", "100")
    return [Client(server, NAMES[i % len(NAMES)]) for i in range(CLIENTS)]


def together(function, items):
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items))


@pytest.mark.timeout(600)
@line("S5.1", "Name clashes")
@line("S4.10", "Differences in source")
def test_twenty_clients_do_not_see_each_other(crowd):
    together(Client.plant, crowd)
    seen = together(Client.recall, crowd)
    for client, text in zip(crowd, seen, strict=True):
        assert client.secret in text, f"{client.profile} lost its own: {text[:500]}"
        others = {other.secret for other in crowd if other is not client}
        assert not others & set(re.findall(r"[0-9a-f]{16}", text)), client.profile
    ids = [client.session for client in crowd if client.profile == "python-interpreter"]
    for client in crowd:
        if client.profile == "python-interpreter":
            listed = client.ask("resources/list")["result"]["resources"]
            assert [each["uri"] for each in listed] == [f"kernel://{client.session}/secret.txt"]
            for other in set(ids) - {client.session}:  # even if its id were known
                said = client.tool("list_session_files", session_id=other)["structuredContent"]
                assert said["files"] == [] and "not found" in said["error"]
                assert "error" in client.ask(
                    "resources/read", {"uri": f"kernel://{other}/secret.txt"}
                )
                said = client.tool("clear_session", session_id=other)["structuredContent"]
                assert said["success"] is False
    assert all(client.secret in text for client, text in zip(crowd, together(Client.recall, crowd)))


@line("S5.1", "Name clashes")
def test_execute_code_has_the_shape_of_its_profile(serve):
    server = serve(belljar.Http)

    def tools(profile):
        answer = server.post(belljar.stateless("tools/list"), path=f"/mcp/{profile}")
        return {tool["name"]: tool for tool in answer.message()["result"]["tools"]}

    def arguments(profile):
        return set(tools(profile)["execute_code"]["inputSchema"]["properties"])

    assert arguments("code-executer") == {"code"}
    assert arguments("python-interpreter") == {"code", "session_id"}
    assert arguments("mcp-codemode") == {"code", "language"}
    with_object = {
        name
        for name in ("code-executer", "python-interpreter", "mcp-codemode")
        if "outputSchema" in tools(name)["execute_code"]
    }
    assert with_object == {"python-interpreter"}


@line("S5.1", "Name clashes")
def test_defaults_differ_by_profile(config):
    rows = {name: config(name) for name in ("default", *NAMES)}
    memory = {name: row["memory_limit"] >> 20 for name, row in rows.items()}
    assert memory["mcp-pyexec"] == 512
    assert memory["python-docker-mcp"] == memory["mcp-codemode"] == 256
    assert rows["mcp-pyexec"]["cpu_limit"] == rows["python-docker-mcp"]["cpu_limit"] == 0.5
    assert rows["mcp-codemode"]["cpu_limit"] == 1.0
    assert {row["run_timeout"] for row in rows.values()} == {30}
    assert rows["mcp-pyexec"]["output_limit"] == 1 << 20
    assert rows["mcp-codemode"]["output_chars"] == 50000
    assert {row["output_chars"] for name, row in rows.items() if name != "mcp-codemode"} == {0}


@line("S5.1", "Name clashes")
def test_limits_at_a_side_path_are_those_of_its_profile(serve):
    server = serve(belljar.Http, *runtime_flags(), "--profile", "default")
    code = "print(open('/proc/self/limits').read() and __import__('shutil').disk_usage('.').total)"
    client = Client(server, "mcp-codemode")
    assert str(128 << 20) in belljar.text_of(client.tool("execute_code", code=code))


@line("S5.1", "Name clashes")
@pytest.mark.parametrize("name", NAMES)
def test_the_program_name_chooses_the_profile(tmp_path, name):
    import subprocess

    program = tmp_path / f"belljar-{name}"
    program.symlink_to(belljar.need(belljar.BIN))
    done = subprocess.run(
        [program, "config"],
        env={"HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(rf'^profile: "{name}" +# program name', done.stdout, re.M)


@line("S5.1", "Name clashes")
def test_a_profile_that_is_none_is_told(serve):
    import subprocess

    done = subprocess.run(
        [belljar.need(belljar.BIN), "serve", "--stdio", "--profile", "mcp-pyexecc"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and all(name in done.stderr for name in NAMES)


HELLO = {
    "mcp-pyexec": [("execute_python", {"code": "print('hel' + 'lo')"})],
    "code-executer": [
        ("start_code_executer", {}),
        ("execute_code", {"code": "print('hel' + 'lo')"}),
    ],
    "python-interpreter": [("execute_code", {"code": "print('hel' + 'lo')"})],
    "python-docker-mcp": [("execute-persistent", {"code": "print('hel' + 'lo')"})],
    "mcp-codemode": [
        ("sandbox_write_file", {"path": "f", "content": "hello"}),
        ("execute_code", {"code": "print(open('f').read())"}),
    ],
}


@line("S5.1", "Name clashes")
@pytest.mark.parametrize("name", NAMES)
def test_an_ordinary_user_can_serve_it(name):
    with Profile(name, user=ordinary_user(), runtime=False) as server:
        for tool, arguments in HELLO[name]:
            said = server.text(tool, **arguments)
        assert "hello" in said
