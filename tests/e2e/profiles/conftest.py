"""Servers of the compatibility profiles."""

import subprocess

import belljar
import pytest
from profiles_client import Profile, open_to_all
from wheels import make_wheel


def pytest_configure(config):
    config.addinivalue_line("markers", "line(name): the line of lines.yaml that a test is about")


@pytest.fixture(scope="module")
def shared():
    """Servers that the tests of a module share: shared("mcp-pyexec")."""
    servers = {}

    def find(name):
        if name not in servers:
            servers[name] = Profile(name)
        return servers[name]

    yield find
    for server in servers.values():
        server.stop()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A directory with packages, demo 1.0 and 2.0 and a large one, for servers without an index."""
    place = tmp_path_factory.mktemp("wheels")
    for version in "1.0", "2.0":
        make_wheel(place, "demo", version, {"demo.py": f"version = {version!r}"})
    make_wheel(place, "bomb", "1.0", {"bomb.py": ""}, pad=40 << 20)
    return open_to_all(place)


@pytest.fixture
def start():
    """A server of its own: start("mcp-codemode", env={"EXEC_TIMEOUT": "1"})."""
    servers = []

    def begin(*args, **options):
        servers.append(Profile(*args, **options))
        return servers[-1]

    yield begin
    for server in servers:
        if server.process.returncode is None:
            server.stop()


@pytest.fixture
def config():
    """{option: value} as `belljar config` has it: config("mcp-codemode", {"POOL_SIZE": "3"})."""

    def show(profile, env=None, *flags, home="/nonexistent"):
        import json

        done = subprocess.run(
            [belljar.need(belljar.BIN), "config", "--json", "--profile", profile, *flags],
            env={"HOME": str(home), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(done.stderr)
        show.log = done.stderr
        options = json.loads(done.stdout)
        return {key: row["value"] for key, row in options.items()}

    return show
