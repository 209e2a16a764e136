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
def target():
    """Where a server is: target("fixture", "http") is what a client's configuration says."""
    binaries = {"fixture": belljar.FIXTURE, "belljar": belljar.BIN}
    commands = {
        "fixture": [belljar.FIXTURE, "--stdio"],
        "belljar": [belljar.BIN, "serve", "--stdio"],
    }
    running = {}

    def find(server, transport):
        if not pathlib.Path(binaries[server]).exists():
            pytest.fail(f"{binaries[server]} has not been built")
        if transport == "stdio":
            return {"command": commands[server]}
        if server not in running:
            running[server] = belljar.Http(binary=binaries[server])
        return {"url": f"http://{running[server].host}/mcp"}

    yield find
    for server in running.values():
        server.stop()


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
