"""A client of one profile over stdio.

with Profile("mcp-codemode") as server:
    assert server.text("execute_code", code="print(1)") == "[stdout]\\n1\\n\\n[exit_code] 0"
"""

import os
import pathlib
import signal
import time

import belljar
import pytest
from processes import sandboxes
from sandboxes import Jar

RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", belljar.ROOT / ".cache/runtime"))
NAMES = ("mcp-pyexec", "code-executer", "python-interpreter", "python-docker-mcp", "mcp-codemode")
LONG = 60  # seconds that a client waits


def runtime_flags():
    if belljar.IN_CONTAINERS:
        return []  # the image has it
    if not (RUNTIME / "bin/python").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    return ["--runtime", str(RUNTIME)]


def open_to_all(place):
    """Other users can go there: the server is one of them when it has dropped its rights."""
    for directory in [place, *place.parents][:3]:
        directory.chmod(0o755)
    return place


def package_flags(wheels):
    return ["--package-index", "none", "--package-wheels", wheels, "--package-dir", wheels / "made"]


class Profile(Jar):
    """`pool`: make sandboxes ahead, as the profile would. `wheels`: a directory that packages come
    from, instead of an index."""

    def __init__(self, name, *flags, env=None, pool=False, wheels=None, runtime=True, **options):
        few = [] if pool else ["--no-pool-enabled"]
        few += ["--no-packages-enabled"] if wheels is None else package_flags(wheels)
        few += runtime_flags() if runtime else []
        super().__init__("--profile", name, *few, *flags, env=env, **options)

    def tool(self, name, /, timeout=LONG, **arguments):
        """The result of a tool, as it is."""
        return self.submit("tools/call", belljar.call_tool(name, arguments)).result(timeout)

    def text(self, name, /, timeout=LONG, **arguments):
        """The text of a tool that succeeded."""
        result = self.tool(name, timeout, **arguments)
        assert not result.get("isError"), result
        return belljar.text_of(result)

    def refused(self, name, /, timeout=LONG, **arguments):
        """The text of a tool that failed."""
        result = self.tool(name, timeout, **arguments)
        assert result.get("isError"), result
        return belljar.text_of(result)

    def said(self, name, /, timeout=LONG, **arguments):
        """The structured result."""
        result = self.tool(name, timeout, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    def schema(self, name):
        tools = {tool["name"]: tool for tool in self.submit("tools/list").result()["tools"]}
        return tools[name]["inputSchema"]


def commands():
    """The words of all command lines on this machine."""
    words = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words |= set(path.read_bytes().decode(errors="replace").split("\0"))
        except OSError:  # it has just ended
            pass
    return words


def wait_until(condition, timeout=LONG):
    deadline = time.monotonic() + timeout * belljar.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def end_sandbox(server):
    """Kills the one sandbox of a server from outside, as the host's out-of-memory killer could."""
    wait_until(lambda: any(sandboxes(server).values()))
    (agent,) = [agent for agent, others in sandboxes(server).items() if others]
    os.kill(agent, signal.SIGKILL)
