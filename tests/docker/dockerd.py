"""Starts container engines for tests: a dockerd, or Podman's service, with nothing of the host's.

    with Dockerd() as engine:
        engine.api.version()             # api.Api over its socket
        engine.host                      # for DOCKER_HOST
        engine.restart()                 # SIGTERM and a new one, same data
        engine.kill(); engine.start()    # kill -9, and a new one

All its files are in one directory of its own under /tmp, its cgroups under one parent of its own. At
the end the engine is stopped by its pid, and whatever it left is removed: processes whose command line
names the directory, mounts below it, the cgroups, the directory. Unavailable says why one cannot run.
"""

import ctypes
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from api import Api, ApiError

START_TIMEOUT = 60
STOP_TIMEOUT = 30
CGROUPS = pathlib.Path("/sys/fs/cgroup")
POLICY = json.dumps({"default": [{"type": "insecureAcceptAnything"}]})


class Unavailable(Exception):
    """Why there is no engine of this kind here."""


def become_subreaper():
    """Whom an engine leaves behind becomes a child of ours. Not every init takes notice of the ended,
    and a dockerd takes a containerd that nobody has waited for to be alive."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pids):
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # somebody else's


class Engine:
    """A process with a socket. Kinds say what to start."""

    name = ""
    programs = {}  # what must be installed: program, Debian package

    def __init__(self):
        if os.geteuid() != 0:
            raise Unavailable(f"{self.name} is started by root only, and we are not root")
        for program, package in self.programs.items():
            if not shutil.which(program):
                raise Unavailable(f"{program} is not installed (Debian package {package})")
        self.place = pathlib.Path(tempfile.mkdtemp(prefix=f"belljar-{self.name}-"))
        self.place.chmod(0o711)  # a server that has dropped its privileges reaches the socket
        self.socket = self.place / "socket"
        self.host = f"unix://{self.socket}"
        self.log = self.place / "log"
        self.api = Api(self.socket)
        self.process = None
        become_subreaper()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def command(self):
        raise NotImplementedError

    def start(self):
        """Starts it and waits until it answers."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.place,  # conmon leaves notes in it
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"{self.name} does not start:\n{self.log_text()[-1500:]}")
            time.sleep(0.05)
        self.socket.chmod(0o660)  # as Docker's is; Podman's is for its owner alone

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.place)}

    def answers(self):
        try:
            return self.api.ping()
        except OSError:
            return False

    def log_text(self):
        return self.log.read_text(errors="replace")

    def terminate(self):
        """Ends the engine as its service manager would; containers and data stay."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        """kill -9 of the engine alone; what it started goes on, but for a dockerd's containerd."""
        helpers = self.left_processes()
        self.process.kill()
        self.process.wait()
        time.sleep(0.2)
        reap(helpers)

    def pause(self):
        """It still accepts connections, and no longer answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self):
        self.terminate()
        self.start()

    # --- the end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends it and removes what it left. What cannot be removed is an error."""
        known = self.left_processes()
        if self.process and self.process.poll() is None:
            self.remove_containers()
        self.terminate()
        self.end_processes(known)
        self.unmount()
        self.remove_cgroups()
        shutil.rmtree(self.place)

    def remove_containers(self):
        try:
            for container in self.api.containers():
                self.api.remove_container(container["Id"])
        except (OSError, ApiError):
            pass  # it has died, or is removing them by itself; what it leaves is ended below

    def left_processes(self):
        """The pids of what the engine started: helpers name its directory, the rest is in its
        cgroups."""
        needle = str(self.place).encode()
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if needle in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        for place in self.cgroups():
            for tasks in place.rglob("cgroup.procs"):
                found.update(map(int, tasks.read_text().split()))
        return found

    def end_processes(self, known):
        deadline = time.monotonic() + STOP_TIMEOUT
        while left := self.left_processes():
            known |= left
            if time.monotonic() > deadline:
                raise AssertionError(f"processes of {self.name} do not end: {left}")
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        reap(known)

    def mounts(self):
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
        return [point for point in points if pathlib.Path(point).is_relative_to(self.place)]

    def unmount(self):
        for point in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", point], check=True)

    def cgroups(self):
        return []

    def remove_cgroups(self):
        for top in self.cgroups():
            for place, _, _ in os.walk(top, topdown=False):
                os.rmdir(place)


class Dockerd(Engine):
    name = "dockerd"
    programs = {"dockerd": "docker.io", "runc": "runc"}
    bridge = "none"

    def command(self):
        words = ["dockerd", "--host", self.host, "--data-root", self.place / "data"]
        words += ["--exec-root", self.place / "exec", "--pidfile", self.place / "pid"]
        words += ["--config-file", self.place / "config.json", "--group", "root"]
        words += ["--cgroup-parent", f"/{self.place.name}"]
        return [*words, "--bridge", self.bridge, "--iptables=false", "--ip6tables=false"]

    def start(self):
        # What it is at work on is told to those who debug it.
        (self.place / "config.json").write_text(json.dumps({"ip-forward": False, "debug": True}))
        (self.place / "pid").unlink(missing_ok=True)
        super().start()

    def is_making(self):
        """A container that somebody has asked for, who may have gone since."""
        return b"postContainersCreate" in self.api.request(
            "GET", "/debug/pprof/goroutine", {"debug": "1"}
        )

    def cgroups(self):
        return [place for place in CGROUPS.glob(f"*/{self.place.name}") if place.is_dir()] + [
            place for place in [CGROUPS / self.place.name] if place.is_dir()
        ]


class BridgedDockerd(Dockerd):
    """One with a network for containers, which leads to `address` of this host and, without rules for
    packets that are not the tests' to set, no further."""

    programs = {**Dockerd.programs, "ip": "iproute2"}

    def start(self):
        self.bridge = f"bj{os.getpid()}"
        self.address = f"10.213.{os.getpid() % 256}.1"
        self.ip("link", "add", "name", self.bridge, "type", "bridge")
        self.ip("address", "add", f"{self.address}/24", "dev", self.bridge)
        self.ip("link", "set", self.bridge, "up")
        super().start()

    def stop(self):
        try:
            super().stop()
        finally:
            subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True)

    def ip(self, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Podman(Engine):
    """Podman's service. It keeps no process between calls but this; conmon watches containers."""

    name = "podman"
    programs = {"podman": "podman", "conmon": "conmon", "runc": "runc"}

    def command(self):
        # crun refuses hosts with cgroup v1 below an empty v2; runc takes both.
        words = ["podman", "--root", self.place / "data", "--runroot", self.place / "run"]
        words += ["--tmpdir", self.place / "tmp", "--runtime", "runc"]
        words += ["--cgroup-manager", "cgroupfs", "--events-backend", "file"]
        return [*words, "system", "service", "--time", "0", self.host]

    def environment(self):
        """Its configuration is ours, too: what the host's files say does not count."""
        place = self.place / ".config/containers"
        place.mkdir(parents=True, exist_ok=True)
        (place / "policy.json").write_text(POLICY)
        (place / "registries.conf").write_text('short-name-mode = "permissive"\n')
        (place / "containers.conf").write_text(f"[containers]\ndefault_ulimits = {ulimits()}\n")
        return {
            **super().environment(),
            "CONTAINERS_CONF": str(place / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(place / "registries.conf"),
        }

    def cgroups(self):
        """Those of its containers; their parent is the same for every Podman of the host."""
        ids = [entry.name for entry in self.place.glob("data/overlay-containers/*")]
        return [place for id in ids for place in CGROUPS.glob(f"*/libpod_parent/*{id}*")]

    def remove_cgroups(self):
        super().remove_cgroups()
        for parent in CGROUPS.glob("*/libpod_parent"):
            for place in (*parent.glob("conmon"), parent):
                try:
                    place.rmdir()
                except OSError:
                    pass  # another Podman's


def ulimits():
    """Podman gives containers limits above its own, which only some roots may do; its own limit of
    processes it has lowered to the kernel's."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    return json.dumps([f"nofile={files}:{files}", f"nproc={processes}:{processes}"])


def started(kind):
    """An engine of this kind; skips the test, with the reason, when there can be none."""
    import pytest  # bench/run uses this module without it

    try:
        return kind()
    except Unavailable as error:
        pytest.skip(f"no {kind.name} here: {error}")
