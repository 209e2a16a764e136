"""Servers for the clients, and at the end a table of who spoke what."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import belljar  # noqa: E402  (found by the line above)

SPOKEN = pytest.StashKey[dict]()


def pytest_configure(config):
    config.stash[SPOKEN] = {}


@pytest.fixture
def spoken(request):
    """{(client, mode): {(server, transport): revision}}"""
    return request.config.stash[SPOKEN]


@pytest.fixture(scope="session")
def fixture_http():
    with belljar.Http(binary=belljar.FIXTURE) as server:
        yield server


@pytest.fixture(scope="session")
def belljar_http():
    with belljar.Http(binary=belljar.BIN) as server:
        yield server


@pytest.fixture
def target(request):
    """Where a server is, as a client's configuration has it: target("fixture", "http")."""
    commands = {
        "fixture": [belljar.FIXTURE, "--stdio"],
        "belljar": [belljar.BIN, "serve", "--stdio"],
    }

    def find(server, transport):
        if transport == "stdio":
            return {"command": commands[server]}
        running = request.getfixturevalue(f"{server}_http")
        return {"url": f"http://{running.host}/mcp"}

    return find


@pytest.fixture
def fixture_count(fixture_http):
    """Asks a tool that answers with a number."""

    def count(tool):
        return int(belljar.text_of(fixture_http.modern("tools/call", belljar.call_tool(tool))))

    return count


def pytest_terminal_summary(terminalreporter, config):
    spoken = config.stash[SPOKEN]
    if not spoken:
        return
    columns = [(s, t) for s in ("fixture", "belljar") for t in ("stdio", "http")]
    rows = [("client", "mode", *(f"{server} {transport}" for server, transport in columns))]
    for (client, mode), cells in spoken.items():
        rows.append((client, mode, *(cells.get(column, "-") for column in columns)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    terminalreporter.section("revisions spoken")
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(line.rstrip())
