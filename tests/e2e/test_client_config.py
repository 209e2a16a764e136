"""`belljar client-config`: what is printed is parsed, and the command in it is run."""

import json
import os
import pathlib
import subprocess

import belljar
import pytest
import tomllib
from belljar import BIN, need

CLIENTS = ["claude", "cursor", "vscode", "codex"]
KEYS = {"claude": "mcpServers", "cursor": "mcpServers", "vscode": "servers", "codex": "mcp_servers"}
TOKEN = "abc.DEF-123_456~789+/=="
USAGE = 2


def run(*args, status=0, binary=BIN):
    done = subprocess.run(
        [need(str(binary)), "client-config", *args],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == status, done.stderr
    return done


def entries(client, *args, **options):
    done = run(client, *args, **options)
    parsed = (tomllib if client == "codex" else json).loads(done.stdout)
    assert list(parsed) == [KEYS[client]]
    return parsed[KEYS[client]]


def profiles():
    """As the program itself lists them."""
    message = run("claude", "--profile", "no-such", status=USAGE).stderr
    return message.strip().split("there are: ")[1].split(", ")


@pytest.mark.parametrize("client", CLIENTS)
def test_stdio_starts_this_program(client):
    entry = entries(client)["belljar"]
    assert entry["command"] == str(pathlib.Path(BIN).resolve())
    assert entry["args"] == ["serve", "--stdio"]
    assert entry.get("type") == ("stdio" if client == "vscode" else None)
    assert set(entry) <= {"command", "args", "type"}


@pytest.mark.parametrize("client", CLIENTS)
def test_http_connects_with_the_token(client):
    entry = entries(client, "--http", "https://example.org:8443", "--token", TOKEN)["belljar"]
    assert entry["url"] == "https://example.org:8443/mcp"
    headers = entry["http_headers" if client == "codex" else "headers"]
    assert headers == {"Authorization": f"Bearer {TOKEN}"}
    assert entry.get("type") == ("http" if client in ("claude", "vscode") else None)
    without = entries(client, "--http", "http://127.0.0.1:8000")["belljar"]
    assert not {"headers", "http_headers"} & set(without)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_profile_has_its_command_and_url(client):
    for profile in profiles():
        name = "belljar" if profile == "default" else profile
        more = [] if profile == "default" else ["--profile", profile]
        assert entries(client, "--profile", profile)[name]["args"] == ["serve", "--stdio", *more]
        url = entries(client, "--profile", profile, "--http", "http://h:1")[name]["url"]
        assert url == "http://h:1/mcp" + ("" if profile == "default" else f"/{profile}")


@pytest.mark.parametrize(
    "given, url",
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/mcp"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/mcp"),
        ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/mcp"),
        ("http://127.0.0.1:8000/mcp/", "http://127.0.0.1:8000/mcp"),
        ("https://example.org/tools/mcp", "https://example.org/tools/mcp"),
        ("http://[::1]:8000", "http://[::1]:8000/mcp"),
    ],
)
def test_a_server_address_becomes_its_endpoint(given, url):
    assert entries("claude", "--http", given)["belljar"]["url"] == url


def test_flags_may_stand_on_either_side(tmp_path):
    config = tmp_path / "a b.yaml"
    config.write_text("page_size: 7\n")
    before = run("--name", "jar", "--config", config, "codex").stdout
    assert before == run("codex", "--name=jar", "--config", config).stdout
    (entry,) = tomllib.loads(before)["mcp_servers"].values()
    assert entry["args"] == ["serve", "--stdio", "--config", str(config)]


def test_a_program_called_by_its_profile_prints_that(tmp_path):
    link = tmp_path / "belljar-default"
    link.symlink_to(pathlib.Path(BIN).resolve())
    assert entries("claude", binary=link)["belljar"]["command"] == str(pathlib.Path(BIN).resolve())


def test_where_to_put_it_is_said_beside_the_output():
    assert run("codex").stderr == "# for ~/.codex/config.toml\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_the_printed_command_serves(client):
    entry = entries(client)["belljar"]
    server = subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    out, _ = server.communicate(belljar.encode(belljar.initialize()) + b"\n", timeout=60)
    assert json.loads(out)["result"]["serverInfo"]["name"] == "belljar"


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "client-config: name the client: claude, cursor, vscode or codex"),
        (["emacs"], "client-config: name the client: claude, cursor, vscode or codex"),
        (["claude", "cursor"], 'the command client-config takes no argument "cursor"'),
        (
            ["claude", "--name=x", "cursor"],
            'the command client-config takes no argument "cursor"',
        ),
        (["claude", "--colour"], 'the command client-config has no flag "--colour"'),
        (["claude", "--http"], "flag --http: needs a value (URL)"),
        (
            ["claude", "--http", "127.0.0.1:8000"],
            "flag --http: must be a URL such as http://127.0.0.1:8000 or https://example.org/mcp",
        ),
        (
            ["claude", "--http", 'http://h/"'],
            "flag --http: must be a URL such as http://127.0.0.1:8000 or https://example.org/mcp",
        ),
        (
            ["claude", "--token", TOKEN],
            "flag --token: is for --http; on stdio nobody else can speak",
        ),
        (
            ["codex", "--http", "http://h", "--token", 'a" b'],
            "flag --token: use 1 to 512 letters, digits or any of -._~+/=",
        ),
        (["codex", "--name", "a.b"], "flag --name: use 1 to 64 letters, digits, '_' or '-'"),
        (
            ["claude", "--config", "/nonexistent/c"],
            "flag --config: /nonexistent/c: No such file or directory",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(args, message):
    status = 1 if "/nonexistent/c" in args else USAGE
    done = run(*args, status=status)
    assert message in done.stderr and done.stdout == ""
