"""What runs on this machine below a server: its descendants, and its sandboxes."""

import os
import pathlib
import re


def parents():
    """{pid: parent} of every process."""
    found = {}
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it has just ended
            continue
    return found


def descendants(pid):
    """All processes below this one."""
    tree, found = parents(), {pid}
    while more := {child for child, parent in tree.items() if parent in found} - found:
        found |= more
    return found - {pid}


def sandboxes(server):
    """{pid of an agent: [pids of what runs beside it]}, of one server. Who has the agent's program only
    waits to become a first run."""
    if os.geteuid() != 0:
        import pytest

        pytest.skip("only root can look into the namespaces of sandboxes")
    agents, others = {}, []
    for pid in descendants(server.pid):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            space = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue
        numbers = re.search(r"^NSpid:\t(.*)$", status, re.M)[1].split()
        if len(numbers) < 3:  # keeper and spawner
            continue
        if numbers[-1] == "1":
            agents[space] = pid
        else:
            others.append((space, pid))
    found = {pid: [] for pid in agents.values()}
    for space, pid in others:
        if space in agents and program(pid) not in (None, program(agents[space])):
            found[agents[space]].append(pid)
    return found


def program(pid):
    """The file that it executes, by its numbers: a name could be anybody's."""
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return found.st_dev, found.st_ino
