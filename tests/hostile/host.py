"""What the host itself sees of a server: its processes, namespaces, cgroups, mounts, files.

The test process is a child subreaper: whatever a server starts stays below it, however the server
ends. So "below us" is exactly "made by the servers of this test run".
"""

import ctypes
import fcntl
import os
import pathlib
import re
import secrets
import time
import types

import processes
from belljar import FULL

NAMESPACES = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
PR_SET_CHILD_SUBREAPER = 36
NS_GET_USERNS = 0xB701


def numbers(**each):
    """How many of each thing: (quickly, in full); BELLJAR_KILLS and so on say it for one."""
    return types.SimpleNamespace(
        **{
            name: int(os.environ.get(f"BELLJAR_{name.upper()}", choice[FULL]))
            for name, choice in each.items()
        }
    )


def become_subreaper():
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def read(path, default=""):
    try:
        return pathlib.Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return default


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


def owner_of(namespace):
    """The number of the user namespace that a namespace, by its path in /proc, belongs to."""
    with open(namespace) as opened:
        owner = fcntl.ioctl(opened, NS_GET_USERNS)
    try:
        return os.fstat(owner).st_ino
    finally:
        os.close(owner)


class Task:
    """A process, as it was when looked at."""

    def __init__(self, pid):
        self.pid = pid
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if not fields:
            raise ProcessLookupError(pid)
        self.state, self.parent, self.start = fields[0], int(fields[1]), int(fields[19])
        self.command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()

    @property
    def dead(self):
        return self.state in "ZX"

    @property
    def name(self):
        return read(f"/proc/{self.pid}/comm").strip()

    def status(self, key):
        for line in read(f"/proc/{self.pid}/status").splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].split()
        return None

    def namespaces(self):
        return {name: link(f"/proc/{self.pid}/ns/{name}") for name in NAMESPACES}

    @property
    def pid_namespace(self):
        return link(f"/proc/{self.pid}/ns/pid")

    @property
    def inner_pid(self):
        ids = self.status("NSpid")
        return int(ids[-1]) if ids else None

    def program(self):
        return processes.program(self.pid)

    def cgroups(self):
        """Directories, one for each hierarchy."""
        return [
            place
            for place in map(cgroup_directory, read(f"/proc/{self.pid}/cgroup").split())
            if place
        ]

    def __repr__(self):
        return (
            f"<{self.pid} {self.state} {self.command or read(f'/proc/{self.pid}/comm').strip()!r}>"
        )


def tasks():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = Task(int(name))
            except ProcessLookupError:
                pass
    return found


def below(root=None, without=()):
    """Living processes below `root` (this process), itself not counted; nor what is in or below
    `without`, a set of (pid, start)."""
    children = {}
    for task in tasks().values():
        children.setdefault(task.parent, []).append(task)
    found, rest = [], [root or os.getpid()]
    while rest:
        for task in children.get(rest.pop(), []):
            if (task.pid, task.start) not in without:
                found.append(task)
                rest.append(task.pid)
    return [task for task in found if not task.dead]


def reap():
    """Takes the dead who were left to us."""
    for task in tasks().values():
        if task.parent == os.getpid() and task.dead:
            try:
                os.waitpid(task.pid, os.WNOHANG)
            except ChildProcessError:
                pass


def find(marker, root=None):
    """Living processes below us that carry the marker in their command line."""
    return [task for task in below(root) if marker in task.command]


def guests(root=None):
    """Processes in sandboxes, without their first (the agent) and the engine's own. Who has the agent's
    program is no guest yet: it does the agent's work, or waits to become the first run."""
    ours = link("/proc/self/ns/pid")
    inside = [t for t in below(root) if t.pid_namespace not in (None, ours)]
    engines = {t.pid_namespace for t in inside if t.name == "belljar-spawner"}
    inside = [t for t in inside if t.pid_namespace not in engines]
    agents = {t.program() for t in inside if t.inner_pid == 1} - {None}
    return [t for t in inside if t.inner_pid != 1 and t.program() not in agents]


def wait_for(what, timeout, step=0.02):
    """The first true value of what(), or its last one at the end of the time."""
    deadline = time.monotonic() + timeout
    while not (value := what()) and time.monotonic() < deadline:
        time.sleep(step)
    return value


def wait_gone(what, timeout, step=0.02):
    """[] once what() is empty, else what is still there at the end of the time."""
    deadline = time.monotonic() + timeout
    while (value := what()) and time.monotonic() < deadline:
        time.sleep(step)
    return value


# --- cgroups ---------------------------------------------------------------------------------------


def cgroup_mounts():
    """Set of controllers → mount point; the empty set for v2."""
    places = {}
    for line in read("/proc/mounts").splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2":
            places.setdefault(frozenset(), place)
        elif kind == "cgroup":
            places.setdefault(frozenset(options.split(",")), place)
    return places


def has_old_cgroups():
    """Version 1 of them, each controller with a tree of its own."""
    return any("memory" in options for options in cgroup_mounts())


def cgroup_directory(line):
    """The directory of one line of /proc/PID/cgroup."""
    _, controllers, path = line.split(":", 2)
    wanted = frozenset(filter(None, controllers.split(",")))
    for options, place in cgroup_mounts().items():
        if (wanted and wanted <= options) or (not wanted and not options):
            return place + path.rstrip("/")
    return None


def owned_cgroups(root=None):
    """Directories that belong to the server's instance: the topmost with belljar in its name above
    each process."""
    found = set()
    for task in below(root):
        for place in task.cgroups():
            parts = pathlib.PurePath(place).parts
            for i, part in enumerate(parts):
                if "belljar" in part:
                    found.add(str(pathlib.PurePath(*parts[: i + 1])))
                    break
    return found


class Delegation:
    """Cgroups that root has given to a user, as service managers do."""

    CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")

    def __init__(self, user):
        self.places = []
        name = f"jar-test-{secrets.token_hex(4)}"
        for line in read("/proc/self/cgroup").split():
            controllers = line.split(":")[1].split(",")
            place = cgroup_directory(line)
            if not place or not set(controllers) & {*self.CONTROLLERS, ""}:
                continue
            if controllers == [""] and "memory" not in read(f"{place}/cgroup.controllers"):
                continue
            made = os.path.join(place, name)
            try:
                os.mkdir(made)
            except OSError:
                continue
            self.places.append(made)
            os.chown(made, user.uid, user.gid)
            for file in ("tasks", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
                if os.path.exists(f"{made}/{file}"):
                    os.chown(f"{made}/{file}", user.uid, user.gid)

    def before(self):
        """The words that put the following command there."""
        files = [f"{place}/cgroup.procs" for place in self.places]
        script = "".join(f"echo $$ >{file} && " for file in files) + 'exec "$@"'
        return ["sh", "-c", script, "sh"]

    def remove(self):
        def rest():
            for place in self.places:
                try:
                    os.rmdir(place)
                except OSError:
                    pass
            return [place for place in self.places if os.path.isdir(place)]

        return wait_gone(rest, 5)


# --- the rest --------------------------------------------------------------------------------------


def mounts(mark=None):
    """Mount points of the host's own namespace that have to do with us: all that name us, but for those of
    container engines that tests run; or those with this mark."""
    lines = read("/proc/self/mountinfo").splitlines()
    if mark:
        return {line for line in lines if mark in line}
    engines = re.compile("/belljar-(dockerd|podman)-")
    return {line for line in lines if "belljar" in line and not engines.search(line)}


CANARY_KEYS = 0x0BE11000  # to 0x0BE11FFF, also of other test runs


def sysv_objects():
    return {
        (kind, line.split()[0], line.split()[1])
        for kind in ("shm", "sem", "msg")
        for line in read(f"/proc/sysvipc/{kind}").splitlines()[1:]
        if int(line.split()[0]) & ~0xFFF != CANARY_KEYS
    }


def free_memory():
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


class Traces:
    """What there is on the host before a server, to be compared with what is there after it. `kept`: a
    directory of the state directory in which something may stay. `mark`: see mounts()."""

    def __init__(self, kept=None, mark=None):
        self.kept, self.mark = kept, mark
        self.before = self.look()
        self.others = {(task.pid, task.start) for task in below()}
        self.cgroups = set()

    def look(self):
        return {"mounts": mounts(self.mark), "SysV objects": sysv_objects()}

    def note(self, root):
        """Call while the server lives: its cgroups have to be gone later."""
        self.cgroups |= owned_cgroups(root)
        return self.cgroups

    def left(self, state):
        """Everything that is still there, in words; empty is good."""
        reap()
        found = [f"process {task}" for task in below(without=self.others)]
        found += [f"cgroup {path}" for path in self.cgroups if os.path.isdir(path)]
        for kind, now in self.look().items():
            found += [f"{kind}: {one}" for one in now - self.before[kind]]
        for top, dirs, files in os.walk(state):
            dirs[:] = [name for name in dirs if (top, name) != (state, self.kept)]
            names = files + [name for name in dirs if (top, name) != (state, "instances")]
            found += [f"in the state directory: {os.path.join(top, name)}" for name in names]
        return found

    def wait_clean(self, state, timeout=5):
        return wait_gone(lambda: self.left(state), timeout, step=0.05)
