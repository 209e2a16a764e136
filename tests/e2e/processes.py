"""What runs on this machine below a server: its descendants, and its sandboxes."""

import os
import pathlib
import re
import sys

import belljar


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


def agents_of_containers(server):
    """The pids of the agents in a server's containers, as their engine knows them."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docker"))
    from api import Api

    if not hasattr(server, "instance"):
        links = [
            os.path.realpath(link) for link in pathlib.Path(f"/proc/{server.pid}/fd").iterdir()
        ]
        names = [name for link in links if (name := instance_in(link))]
        if not names:
            return set()  # it has just been started
        server.instance = names[0]
    api = Api(os.environ["BELLJAR_DOCKER_HOST"].removeprefix("unix://"))
    found = api.containers(label=f"belljar.instance={server.instance}")
    return {api.pid(container["Id"]) for container in found} - {0}


def instance_in(path):
    """The id of a server in the name of the file that it holds while it lives."""
    match = re.fullmatch(r".*/containers/([A-Za-z0-9_-]+)", path)
    return match and match[1]


def below(server):
    """All processes of a server but itself, those in its sandboxes, too."""
    if not belljar.IN_CONTAINERS:
        return descendants(server.pid)
    agents = agents_of_containers(server)
    return (
        descendants(server.pid) | agents | {pid for agent in agents for pid in descendants(agent)}
    )


def sandboxes(server):
    """{pid of an agent: [pids of what runs beside it]}, of one server. Who has the agent's program only
    waits to become a first run."""
    if os.geteuid() != 0:
        import pytest

        pytest.skip("only root can look into the namespaces of sandboxes")
    agents, others = {}, []
    depth = 2 if belljar.IN_CONTAINERS else 3  # a keeper is between
    for pid in below(server):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            space = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue
        numbers = re.search(r"^NSpid:\t(.*)$", status, re.M)[1].split()
        if len(numbers) < depth:  # keeper and spawner
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
