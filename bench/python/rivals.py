"""What belljar is compared with, in the same run."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
from subprocess import DEVNULL, PIPE

from jupyter_kernel import make_kernel

import engine

from .common import CELLS, IMPORTS, PRELOAD, PROGRAM, PYTHON, ROOT, RUNTIME, stopping, timed

DOCKER, DOCKER_IMPORTS = "docker run, python -c pass", "docker run + imports"
BWRAP, BWRAP_IMPORTS = "bwrap, python -c pass", "bwrap + imports"
JUPYTER_START, JUPYTER_WARM = "ipykernel, start to first reply", "ipykernel, warm cell"
BARE = "the same fork, no isolation"
PLAIN = "describe() again, plain Python"
FLOOR = "exec() over a socket, plain Python"


class Caches:
    """Fonts found by matplotlib, kept for the rivals: they need not look for them each time."""

    def __init__(self):
        self.place = tempfile.mkdtemp(prefix="belljar-caches-")
        self.env = {"MPLCONFIGDIR": self.place, "XDG_CACHE_HOME": self.place}
        with stopping(self):
            subprocess.run([PYTHON, "-c", IMPORTS], check=True, env={**os.environ, **self.env})

    def stop(self):
        shutil.rmtree(self.place, ignore_errors=True)


class Docker(engine.Docker):
    """A daemon whose image has nothing: the host's /usr and the runtime are bound into it."""

    IMAGE = "bench-python:latest"

    def make_image(self, place):
        root, tar = place / "root", place / "root.tar"
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink(f"/{name}"):
                (root / name).symlink_to(f"usr/{name}")
        subprocess.run(["tar", "-C", root, "-cf", tar, "."], check=True)
        self.engine.api.import_image(tar, self.IMAGE)

    def python(self, code, count, caches):
        words = ["docker", "--host", self.engine.host, "run", "--rm", "--network", "none"]
        words += ["--read-only", "--tmpfs", "/tmp", "-v", f"{caches.place}:{caches.place}"]
        for name, value in caches.env.items():
            words += ["-e", f"{name}={value}"]
        for path in ("/usr", "/etc/fonts", RUNTIME):
            if os.path.exists(path):
                words += ["-v", f"{path}:{path}:ro"]
        return engine.commands([*words, self.IMAGE, str(PYTHON), "-c", code], count)[0]


def try_docker():
    if not shutil.which("dockerd") or not shutil.which("docker") or os.geteuid() != 0:
        return None, "docker is left out: no dockerd to start here (Debian package docker.io)."
    try:
        return Docker(), None
    except Exception as error:
        return None, f"docker is left out: its daemon does not start: {error}"


def bwrap_words(code, caches):
    words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    words += ["--tmpfs", "/tmp", "--bind", caches.place, caches.place]
    words += ["--ro-bind", str(RUNTIME), str(RUNTIME)]  # it may lie below /tmp, too
    for name, value in caches.env.items():
        words += ["--setenv", name, value]
    return [*words, str(PYTHON), "-c", code]


def bwrap(code, count, caches):
    return engine.commands(bwrap_words(code, caches), count)[0]


class Jupyter:
    """ipykernel with the runtime's interpreter, asked as Jupyter asks it."""

    def __init__(self):
        self.place = tempfile.mkdtemp(prefix="belljar-jupyter-")
        self.manager = self.client = None
        with stopping(self):
            os.environ["JUPYTER_PATH"] = str(make_kernel(self.place, RUNTIME))
        os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
        os.environ["IPYTHONDIR"] = f"{self.place}/ipython"

    def start(self):
        """Milliseconds from the wish for a kernel to its first reply, as a list of one."""
        from jupyter_client.manager import start_new_kernel

        self.shut_down()
        begin = time.perf_counter()
        self.manager, self.client = start_new_kernel(kernel_name="runtime", stderr=DEVNULL)
        self.execute("print(1)")
        return [(time.perf_counter() - begin) * 1000]

    def execute(self, code):
        reply = self.client.execute_interactive(code, output_hook=lambda message: None)
        assert reply["content"]["status"] == "ok", reply

    def warm(self, count, gap):
        return timed(self.execute, count, gap, "print(1)")

    def shut_down(self):
        if self.manager:
            self.client.stop_channels()
            self.manager.shutdown_kernel(now=True)
            self.manager = None

    def stop(self):
        self.shut_down()
        shutil.rmtree(self.place, ignore_errors=True)


# The cell, a line of its own on standard input each time, and how long it took.
PLAIN_LOOP = """
import contextlib, io, sys, time
code = compile(sys.argv[1], "cell", "exec")
space = {}
for _ in sys.stdin:
    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, space)
    print((time.perf_counter() - begin) * 1000, flush=True)
"""


class Plain:
    """The runtime's interpreter with nothing around it, which runs one cell again and again."""

    def __init__(self, cell):
        words = [str(PYTHON), "-c", PLAIN_LOOP, CELLS[cell]]
        self.process = subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True)
        self.warm(1, 0.0)

    def warm(self, count, gap):
        times = []
        for _ in range(count):
            time.sleep(gap)
            print(file=self.process.stdin, flush=True)
            times.append(float(self.process.stdout.readline()))
        return times

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


# As little as there can be between a request and its answer.
FLOOR_LOOP = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
while code := channel.recv(4096):
    exec(compile(code, "cell", "exec"), {"channel": channel})
"""


class Floor:
    """The runtime's interpreter behind a socket: what a cell takes on this machine, whoever asks for it."""

    def __init__(self):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [str(PYTHON), "-c", FLOOR_LOOP, str(theirs.fileno())]
            self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        self.warm(1, 0.0)

    def ask(self):
        self.channel.send(b"channel.send(b'1')")
        self.channel.recv(16)

    def warm(self, count, gap):
        return timed(self.ask, count, gap)

    def stop(self):
        self.channel.close()
        self.process.wait()


class BareFork:
    """Our zygote, kernel and fork, but into no sandbox: zygote.py with bench/bare.c for a library."""

    START = (
        "import os, sys; sys.path.insert(0, sys.argv.pop(1)); import zygote; "
        "zygote.DIRECTORY = sys.argv.pop(1); os.dup2(int(sys.argv.pop(1)), zygote.CONTROL); "
        "zygote.main()"
    )
    REQUEST = {"op": "execute", "id": 1, "code": CELLS["print"], "options": {}, "paths": []}

    def __init__(self, caches):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bare-"))
        (self.place / "kernel.py").symlink_to(ROOT / "src/kernel/kernel.py")
        (self.place / "zygote.so").symlink_to(PROGRAM.with_name("bench-bare.so"))
        body = json.dumps(self.REQUEST).encode()
        self.request = len(body).to_bytes(4, "little") + body
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [PYTHON, "-u", "-c", self.START, ROOT / "src/zygote", self.place, theirs.fileno()]
        with theirs:
            self.process = subprocess.Popen(
                [str(word) for word in (*words, *PRELOAD)],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                env={**os.environ, **caches.env, "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=[theirs.fileno()],
            )

    def wait(self):
        """Whether it is ready, which takes as long as imports do."""
        said = self.control.recv(1024)
        return said and b"\0" not in said  # else its end, or an event that says why it is unfit

    def fresh(self, count, gap):
        return timed(self.run, count, gap)

    def run(self):
        """A kernel from its fork to its answer; it ends when its channel does."""
        reader, writer = os.pipe()
        channel, theirs = socket.socketpair()
        with open(reader, "rb", buffering=0) as output, channel:
            socket.send_fds(self.control, [b"f"], [writer, theirs.fileno()])
            os.close(writer)
            theirs.close()
            channel.sendall(self.request)
            said = channel.recv(1 << 16)
            printed = output.read(1 << 16)
            assert b'"status": "ok"' in said and printed == b"1\n", (said, printed)

    def stop(self):
        self.control.close()
        self.process.wait()
        shutil.rmtree(self.place, ignore_errors=True)
