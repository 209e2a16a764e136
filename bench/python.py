"""Measures Python in sandboxes, beside docker, bubblewrap and Jupyter in the same run.

Rounds of all kinds take turns, so that whatever else the machine does falls on all of them, and each begins
when the machine has nothing left to do: one server fills its pools again after its turn, another's containers
are still being removed. What a virtual machine's host takes from it meanwhile (steal) falls on nobody: that
batch, whosever it is, is made again. Ratios mean something on other machines, too; the goals in milliseconds
are those of a small virtual machine.

Ways in: "engine" is bench-kernel, sessions without a protocol; "stdio" and "HTTP" are the server as
clients use it. What is made ahead:

    on demand   a kernel is put into a sandbox when it is asked for
    pooled      kernels wait ready in their sandboxes

An option that the program does not have is left out, and the table says what is missing.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from subprocess import DEVNULL, PIPE

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import belljar  # noqa: E402
import sandboxes  # noqa: E402
from jupyter_kernel import make_kernel  # noqa: E402

import engine  # noqa: E402

PROGRAM = pathlib.Path(
    os.environ.get("BENCH_KERNEL", pathlib.Path(belljar.BIN).parent / "bench/bench-kernel")
)
RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", ROOT / ".cache/runtime")).resolve()
PYTHON = RUNTIME / "bin/python"

GAP = 0.05  # seconds between requests that come one by one
GAPS = (0.0, GAP)
POOL = 16
BURST = 8  # requests in a row that the pool must be able to meet
REFILL = {"print": 0.1, "describe": 1.5}  # seconds before them: to be there, to have rehearsed
LANES = 4  # at once, for the rate
ALIVE = 1000  # sandboxes at once, for their memory
WARM_UP = 4.0  # seconds until pools are full and libraries imported
# Of one batch, and of one of the engine's, whose tails have goals. What is slow gets fewer runs, but never less
# than so many.
SECONDS = {0.0: 0.4, GAP: 1.0}
ENGINE_SECONDS = {0.0: 0.4, GAP: 3.0}
FEWEST, MOST = 3, 1000
BURSTS = 25  # of a batch, at most
LONGEST = 300  # seconds, after which no further round begins
IDLE = 0.96  # of the machine's time, for QUIET seconds, before anything is measured
QUIET, PATIENCE = 0.25, 5.0  # after so many it is measured all the same, and the table says so
STOLEN = 0.02  # of the processors' time, by the host of a virtual machine: more spoils a batch
TRIES = 4  # to get an undisturbed one; then the least disturbed counts, and the table says so

PRELOAD = ("numpy", "pandas", "matplotlib.pyplot", "IPython")
IMPORTS = f"import {', '.join(PRELOAD)}"
CELLS = {
    "print": "print(1)",
    # Of two columns: that takes plain Python as long as its goals allow for.
    "describe": "import numpy as np, pandas as pd\n"
    "print(pd.DataFrame(np.arange(2000.0).reshape(1000, 2)).describe())",
    "plot": "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot(range(100))\n"
    "plt.show()",
    # What isolates a guest, as it sees it itself.
    "isolation": """
import errno, json, os, socket, sys
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines()
              if ":\\t" in line)
def refused(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return errno.errorcode[error.errno]
print(json.dumps({
    "uid": os.getuid(),
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "no_new_privs": status["NoNewPrivs"].strip(),
    "seccomp": status["Seccomp"].strip(),
    "pid_namespace": os.readlink("/proc/self/ns/pid"),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "write_to_usr": refused("/usr/x"),
    "imported": "pandas" in sys.modules and "matplotlib.pyplot" in sys.modules,
    "read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
}))
""",
}

# (name, options of the program)
COMMON = {"pool_size": POOL, "runtime": RUNTIME, "pool_max_creations": 2}
ON_DEMAND = {**COMMON, "kernel_pool_size": 0}
POOLED = {**COMMON, "kernel_pool_size": POOL}

# The cases, in the order of the table: what is made ahead, how runs are made, the cell.
CASES = {
    "fresh on demand, print(1)": ("on demand", "fresh", "print"),
    "no sandbox waits, print(1)": ("on demand", "alone", "print"),
    "pooled, print(1)": ("pooled", "fresh", "print"),
    "pooled, first describe()": ("pooled", "fresh", "describe"),
    "describe() again, same session": ("on demand", "warm", "describe"),
    "warm cell, print(1)": ("on demand", "warm", "print"),
    "fresh on demand, first plot": ("on demand", "fresh", "plot"),
    "plot again, same session": ("on demand", "warm", "plot"),
}
DOCKER, DOCKER_IMPORTS = "docker run, python -c pass", "docker run + imports"
BWRAP, BWRAP_IMPORTS = "bwrap, python -c pass", "bwrap + imports"
JUPYTER_START, JUPYTER_WARM = "ipykernel, start to first reply", "ipykernel, warm cell"
BARE = "the same fork, no isolation"
PLAIN = "describe() again, plain Python"
FLOOR = "exec() over a socket, plain Python"

# Milliseconds on the machine that the goals in milliseconds come from.
THERE = {
    ("", BWRAP): 19.3,
    ("", BWRAP_IMPORTS): 951,
    ("", JUPYTER_WARM): 4.5,
    ("engine", "describe() again, same session"): 4.14,
}


def known_options():
    """Names of the options that the program has."""
    out = subprocess.run([belljar.BIN, "config"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^(?:# )?(\w+): ", out.stdout, re.MULTILINE))


def flags(options, known):
    words = []
    for name, value in options.items():
        if name in known:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def unlimited_files():
    """A thousand sandboxes are some thousand descriptors."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def processor_times():
    """(idle, stolen, all) since the machine was started."""
    times = [
        int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    ]
    return times[3] + times[4], times[7], sum(times)


def settle():
    """Waits until the machine is idle; whether it was."""
    end = time.monotonic() + PATIENCE
    before = processor_times()
    while time.monotonic() < end:
        time.sleep(QUIET)
        now = processor_times()
        if now[0] - before[0] >= IDLE * (now[2] - before[2]):
            return True
        before = now
    return False


def timed(run, count, gap, *words):
    """Milliseconds of each run(*words), one after the other."""
    times = []
    for _ in range(count):
        time.sleep(gap)
        begin = time.perf_counter()
        run(*words)
        times.append((time.perf_counter() - begin) * 1000)
    return times


@contextlib.contextmanager
def stopping(thing):
    """What has been started is stopped if the rest of its start fails."""
    try:
        yield
    except BaseException:
        thing.stop()
        raise


# --- ways in -----------------------------------------------------------------------------------------


class Engine:
    """bench-kernel, with one setting of options."""

    def __init__(self, words, cells, user=None):
        self.state = sandboxes.make_state(user)
        self.cells = cells
        program = self.copy_for(user) if user else PROGRAM
        argv = [*sandboxes.as_user(user), program, "bench", "--log-level", "error"]
        argv += ["--state-dir", self.state, *words]
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            env={**os.environ, **({"HOME": user.home} if user else {})},
            preexec_fn=unlimited_files,
        )

    def copy_for(self, user):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bench-"))
        self.place.chmod(0o755)
        return shutil.copy(PROGRAM, self.place / "bench-kernel")

    def ask(self, *words):
        """(lines, seconds)"""
        print(*words, file=self.process.stdin, flush=True)
        lines = []
        for line in self.process.stdout:
            if line.startswith("end "):
                return lines, float(line.split()[1])
            lines.append(line.strip())
        raise RuntimeError(f"bench-kernel ended at {words}: status {self.process.wait()}")

    def milliseconds(self, *words):
        lines, seconds = self.ask(*words)
        return [float(line) / 1000 for line in lines], seconds

    def fresh(self, cell, count, gap):
        return self.milliseconds("fresh", count, 1, int(gap * 1000), self.cells[cell])[0]

    def alone(self, cell, count, gap):
        return self.milliseconds("alone", count, 1, int(gap * 1000), self.cells[cell])[0]

    def warm(self, cell, count, gap):
        return self.milliseconds("warm", count, int(gap * 1000), self.cells[cell])[0]

    def rate(self, count):
        return count / self.milliseconds("fresh", count, LANES, 0, self.cells["print"])[1]

    def show(self, cell):
        return "\n".join(self.ask("show", self.cells[cell])[0])

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)
        if hasattr(self, "place"):
            shutil.rmtree(self.place, ignore_errors=True)


class Client:
    """A client of the server. What the two transports share: tools, and how runs are made of them."""

    def execute(self, code, session=None):
        arguments = {"code": code, **({"session_id": session} if session else {})}
        result = self.tool("execute_code", arguments)
        said = result["structuredContent"]
        assert said["outcome"] == "ok" and len(result["content"]) + len(said["output"]) > 1, result
        return said

    def fresh(self, cell, count, gap):
        times = []
        for _ in range(count):
            time.sleep(gap)
            begin = time.perf_counter()
            said = self.execute(CELLS[cell])
            times.append((time.perf_counter() - begin) * 1000)
            self.tool("clear_session", {"session_id": said["session_id"]})
        return times

    def warm(self, cell, count, gap):
        session = self.execute(CELLS[cell])["session_id"]
        times = timed(self.execute, count, gap, CELLS[cell], session)
        self.tool("clear_session", {"session_id": session})
        return times

    def rate(self, count):
        """Fresh sandboxes a second, several requests at once."""
        begin = time.perf_counter()
        clients = [self.another() for _ in range(LANES)]
        share = count // LANES
        workers = [
            threading.Thread(target=client.fresh, args=("print", share, 0.0)) for client in clients
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return share * LANES / (time.perf_counter() - begin)

    def show(self, cell):
        said = self.execute(CELLS[cell])
        self.tool("clear_session", {"session_id": said["session_id"]})
        return "".join(piece["text"] for piece in said["output"])


class Stdio(Client):
    def __init__(self, words):
        self.state = sandboxes.make_state()
        argv = [belljar.BIN, "serve", "--stdio", "--log-level", "error", "--state-dir", self.state]
        self.process = subprocess.Popen([*argv, *words], stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        self.lock = threading.Lock()
        self.replies, self.arrived = {}, threading.Condition()
        self.reading = False
        self.number = 0
        with stopping(self):
            self.call(belljar.initialize())
            self.send(belljar.notification("notifications/initialized"))

    def send(self, message):
        self.process.stdin.write(belljar.encode(message) + b"\n")
        self.process.stdin.flush()

    def tool(self, name, arguments):
        with self.lock:
            self.number += 1
            number = self.number
        message = belljar.request("tools/call", belljar.call_tool(name, arguments), number)
        return belljar.unwrap(self.call(message))

    def call(self, message):
        """Its answer. Whoever waits first reads for all that wait."""
        with self.lock:
            self.send(message)
        wanted = message["id"]
        with self.arrived:
            self.arrived.wait_for(lambda: wanted in self.replies or not self.reading)
            if wanted in self.replies:
                return self.replies.pop(wanted)
            self.reading = True
        try:
            while True:
                reply = json.loads(self.process.stdout.readline())
                if reply.get("id") == wanted:
                    return reply
                with self.arrived:
                    self.replies[reply.get("id")] = reply
                    self.arrived.notify_all()
        finally:
            with self.arrived:
                self.reading = False
                self.arrived.notify_all()

    def another(self):
        return self

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)


class Http(Client):
    """Stateless requests on one connection that is kept."""

    def __init__(self, words=(), server=None):
        self.state = None if server else sandboxes.make_state()
        self.server = server or belljar.Http(
            "--pool-enabled", "--http-idle-timeout=10m", "--state-dir", self.state, *words
        )
        self.connection = http.client.HTTPConnection(*self.server.address)

    def tool(self, name, arguments):
        message = belljar.stateless("tools/call", belljar.call_tool(name, arguments))
        headers = {"Content-Type": "application/json", "Accept": belljar.BOTH}
        self.connection.request(
            "POST", "/mcp", belljar.encode(message), {**headers, **belljar.mirror(message)}
        )
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.getheader("Content-Type", "").startswith("text/event-stream"):
            body = body.rpartition(b"data: ")[2]
        return belljar.unwrap(json.loads(body))

    def another(self):
        return Http(server=self.server)

    def stop(self):
        self.connection.close()
        self.server.stop()
        shutil.rmtree(self.state, ignore_errors=True)


# --- rivals ------------------------------------------------------------------------------------------


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


# --- the measurement ---------------------------------------------------------------------------------


class Measurement:
    def __init__(self, rounds):
        self.rounds = rounds
        self.stack = contextlib.ExitStack()
        self.known = known_options()
        self.results = {}  # (way in, case, gap): milliseconds
        self.rates = {}  # name: values
        self.remarks = []
        self.isolation = {}
        self.batches = 0
        self.restless = 0  # that began although the machine was busy
        self.spoilt, self.spoilt_kept = 0, 0  # made again; and those of which no try was better

    def undisturbed(self, run, *words):
        """What run(*words) returns, of a try in which the host has kept its hands off the processors."""
        best = None
        for _ in range(TRIES):
            self.restless += not settle()
            self.batches += 1
            before = processor_times()
            result = run(*words)
            now = processor_times()
            stolen = (now[1] - before[1]) / max(1, now[2] - before[2])
            if best is None or stolen < best[0]:
                best = stolen, result
            if stolen <= STOLEN:
                break
            self.spoilt += 1
        self.spoilt_kept += best[0] > STOLEN
        return best[1]

    def open(self, thing):
        self.stack.callback(thing.stop)
        return thing

    def __enter__(self):
        with stopping(self):
            self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stack.close()

    def start(self):
        """Starts everything. What is started as another user wants a runtime that it can read."""
        place = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        self.cells = {}
        for name, code in CELLS.items():
            self.cells[name] = place / f"{name}.py"
            self.cells[name].write_text(code)
        settings = {
            "on demand": flags(ON_DEMAND, self.known),
            "pooled": flags(POOLED, self.known),
        }
        self.ways = {
            "engine": {k: self.open(Engine(v, self.cells)) for k, v in settings.items()},
            "stdio": {k: self.open(Stdio(v)) for k, v in settings.items()},
            "HTTP": {k: self.open(Http(v)) for k, v in settings.items()},
        }
        self.open_rootless(settings)
        docker, remark = try_docker()
        self.docker = self.open(docker) if docker else None
        self.caches = self.open(Caches())
        self.jupyter = self.open(Jupyter())
        self.plain = self.open(Plain("describe"))
        self.floor = self.open(Floor())
        self.bare = self.open(BareFork(self.caches))
        self.remarks += [remark] if remark else []
        if not self.bare.wait():
            self.bare = None
            self.remarks.append("The bare fork is left out: its zygote does not start.")
        for option, words in (
            ("zygote", "each kernel starts an interpreter of its own"),
            ("kernel_pool_size", "pooled means sandboxes, not kernels"),
        ):
            if option not in self.known:
                self.remarks.append(f"This program has no {option}: {words}.")
        self.warm_up()
        self.check_isolation()

    def warm_up(self):
        """Pools are filled from the first run on."""
        for settings in self.ways.values():
            for server in settings.values():
                server.fresh("print", 1, 0.0)
        time.sleep(WARM_UP)

    def open_rootless(self, settings):
        if os.geteuid() != 0:
            self.remarks.append("rootless is left out: everything here is, for want of root.")
            return
        try:
            user = sandboxes.make_user(sandboxes.ORDINARY)
            readable = ["test", "-r", str(RUNTIME / "stamp")]
            subprocess.run([*sandboxes.as_user(user), *readable], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.remarks.append(
                f"rootless is left out: no other user can read the runtime: {error}"
            )
            return
        self.remarks.append(
            "Rootless has the limits that this host lets an ordinary user set; see belljar doctor."
        )
        self.ways["rootless engine"] = {
            name: self.open(Engine(words, self.cells, user)) for name, words in settings.items()
        }

    def check_isolation(self):
        """Every way in, looked at from inside; raises when a layer is missing."""
        for way, settings in self.ways.items():
            for name, server in settings.items():
                seen = json.loads(server.show("isolation"))
                assert seen["uid"] != 0, (way, name, seen)
                assert all(int(text, 16) == 0 for text in seen["capabilities"]), (way, name, seen)
                assert (seen["no_new_privs"], seen["seccomp"]) == ("1", "2"), (way, name, seen)
                assert seen["pid_namespace"] != os.readlink("/proc/self/ns/pid"), (way, name, seen)
                assert seen["processes"] < 10 and seen["interfaces"] == ["lo"], (way, name, seen)
                assert seen["read_only"] and seen["write_to_usr"] == "EROFS", (way, name, seen)
                self.isolation[way, name] = seen
                if not seen["imported"]:
                    self.remarks.append(
                        f"{way}, {name}: libraries were not imported ahead; its figures are those of "
                        "a bare interpreter."
                    )

    def run(self):
        end = time.monotonic() + LONGEST
        for done in range(self.rounds):
            if done and time.monotonic() > end:
                self.remarks.append(f"{done} of {self.rounds} rounds: the time was up.")
                break
            for case, (ahead, how, cell) in CASES.items():
                for way, settings in self.ways.items():  # side by side, for they are compared
                    if way == "rootless engine" and cell != "print":
                        continue
                    if not hasattr(settings[ahead], how):
                        continue
                    for gap in GAPS:
                        self.batch(way, case, settings[ahead], ahead, how, cell, gap)
            self.run_rivals()
            self.run_rates()
        self.run_memory()
        if self.restless:
            self.remarks.append(
                f"Before {self.restless} of {self.batches} batches the machine was not idle within "
                f"{PATIENCE:.0f} s."
            )
        if self.spoilt:
            self.remarks.append(
                f"In {self.spoilt} of {self.batches} batches the host of this virtual machine took more than "
                f"{STOLEN:.0%} of the processors' time. They were made again, rivals' as well as ours; where {TRIES} "
                f"tries gave nothing better ({self.spoilt_kept} times) the least disturbed counts."
            )

    def batch(self, way, case, server, ahead, how, cell, gap):
        """As many runs as fit into the time of a batch."""
        times = self.results.setdefault((way, case, gap), [])
        run = getattr(server, how)

        def bursts(cell, count, gap):
            """A pool is only as good as it is full: so many, and time to fill it."""
            said = []
            for left in range(count, 0, -BURST):
                time.sleep(REFILL[cell])
                said += run(cell, min(BURST, left), gap)
            return said

        each = statistics.median(times or run(cell, 1, gap)) / 1000 + gap
        most = BURSTS * BURST if ahead == "pooled" else MOST
        seconds = ENGINE_SECONDS if way == "engine" else SECONDS
        count = max(FEWEST, min(most, int(seconds[gap] / each)))
        times += self.undisturbed(bursts if ahead == "pooled" else run, cell, count, gap)

    def rival(self, name, gap, measure, *words):
        times = self.undisturbed(measure, *words)
        self.results.setdefault(("", name, gap), []).extend(times)

    def run_rivals(self):
        if self.docker:
            self.rival(DOCKER, 0.0, self.docker.python, "pass", 3, self.caches)
            self.rival(DOCKER_IMPORTS, 0.0, self.docker.python, IMPORTS, 1, self.caches)
        if shutil.which("bwrap"):
            self.rival(BWRAP, 0.0, bwrap, "pass", 10, self.caches)
            self.rival(BWRAP_IMPORTS, 0.0, bwrap, IMPORTS, 1, self.caches)
        self.rival(JUPYTER_START, 0.0, self.jupyter.start)
        for gap in GAPS:
            self.rival(JUPYTER_WARM, gap, self.jupyter.warm, 50 if gap == 0 else 20, gap)
            self.rival(PLAIN, gap, self.plain.warm, 20, gap)
            self.rival(FLOOR, gap, self.floor.warm, MOST if gap == 0 else 60, gap)
        for gap in GAPS if self.bare else ():
            self.rival(BARE, gap, self.bare.fresh, 100 if gap == 0 else 20, gap)

    def run_rates(self):
        for way, settings in self.ways.items():
            one = statistics.median(self.results[way, "fresh on demand, print(1)", 0.0]) / 1000
            count = max(2 * LANES, min(1000, int(1.0 / one))) // LANES * LANES
            rate = self.undisturbed(settings["on demand"].rate, count)
            self.rates.setdefault(f"belljar, {way}", []).append(rate)
        if shutil.which("bwrap"):
            words = [f"'{word}'" for word in bwrap_words("pass", self.caches)]
            rate = self.undisturbed(engine.parallel_rate, words, 10)
            self.rates.setdefault(BWRAP, []).append(rate)
        if self.docker:
            times = self.results["", DOCKER, 0.0]
            self.rates[DOCKER] = [1000 / statistics.median(times)]

    def run_memory(self):
        """Many sandboxes that have run one cell each, and how long one more takes then."""
        most = {"max_sessions": 2 * ALIVE, "max_sessions_per_client": 2 * ALIVE}
        server = Engine(flags({**ON_DEMAND, **most}, self.known), self.cells)
        try:
            cell = self.cells["print"]
            server.milliseconds("fresh", 1, 1, 0, cell)
            time.sleep(WARM_UP)
            alone = self.undisturbed(server.fresh, "print", 30, GAP)
            before = available_memory()
            seconds = server.milliseconds("hold", 20, 1, cell)[1]
            time.sleep(0.5)
            each = max(1, (before - available_memory()) / 20)
            count = int(min(ALIVE, 20 + 0.6 * before / each, 20 + 20 / (seconds / 20)))
            server.milliseconds("hold", max(1, count - 20), 2, cell)
            time.sleep(1)
            used = (before - available_memory()) / count
            crowded = self.undisturbed(server.fresh, "print", 30, GAP)
            server.ask("drop")
        finally:
            server.stop()
        self.memory = {"count": count, "each": used, "alone": alone, "crowded": crowded}


def available_memory():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: *(\d+) kB", text)[1]) * 1024


# --- the tables --------------------------------------------------------------------------------------


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Report:
    def __init__(self, measured, table):
        self.measured, self.table = measured, table

    def p50(self, way, case, gap=0.0):
        times = self.measured.results.get((way, case, gap))
        return statistics.median(times) if times else None

    def p99(self, way, case, gap=0.0):
        times = self.measured.results.get((way, case, gap))
        return engine.percentile(times, 0.99) if times else None

    def ratio(self, above, below):
        return above / below if above and below else None

    def times(self):
        """All that was measured; ratios to the rivals are of requests back to back."""
        rows = []
        pairs = dict.fromkeys((way, case) for way, case, _gap in self.measured.results)
        ways = [*self.measured.ways, ""]
        for way, case in sorted(pairs, key=lambda pair: ways.index(pair[0])):
            name = f"belljar, {way}: {case}" if way else case
            cells = [name, str(len(self.measured.results[way, case, 0.0]))]
            for gap in GAPS:
                for value in (self.p50(way, case, gap), self.p99(way, case, gap)):
                    cells.append(number(value) if value else "")
            for rival in (DOCKER, DOCKER_IMPORTS, BWRAP_IMPORTS, JUPYTER_WARM):
                ratio = self.ratio(self.p50("", rival), self.p50(way, case))
                cells.append(f"{number(ratio)}×" if ratio else "")
            rows.append(cells)
        head = ["Python", "runs", "p50 ms", "p99 ms", "50 ms apart: p50", "p99"]
        head += ["docker ÷", "docker+imports ÷", "bwrap+imports ÷", "ipykernel ÷"]
        return self.table(head, rows)

    def rates(self):
        rows = []
        medians = {name: statistics.median(v) for name, v in self.measured.rates.items()}
        for name, rate in medians.items():
            ratios = [
                f"{number(rate / medians[rival])}×" if rival in medians else ""
                for rival in (DOCKER, BWRAP)
            ]
            rows.append([name, number(rate), *ratios])
        head = [f"fresh sandboxes a second that print(1), {os.cpu_count()} cores", "rate"]
        return self.table([*head, "÷ docker run", "÷ bwrap"], rows)

    def one_more(self):
        memory = self.measured.memory
        return statistics.median(memory["crowded"]) / statistics.median(memory["alone"])

    def memory(self):
        memory = self.measured.memory
        alone, crowded = memory["alone"], memory["crowded"]
        rows = [
            [
                str(memory["count"]),
                f"{memory['each'] / 1e6:.2f}",
                number(statistics.median(alone)),
                number(statistics.median(crowded)),
                f"{self.one_more():.2f}×",
                number(max(alone)),
                number(max(crowded)),
            ]
        ]
        head = ["sandboxes alive, after one cell", "MB each", "p50 ms of one more: alone"]
        head += ["beside them", "ratio", "slowest of 30: alone", "beside them"]
        return self.table(head, rows)

    def machine(self):
        """How much slower this machine is than the one that the goals in milliseconds come from."""
        rows = []
        for (way, case), there in THERE.items():
            here = self.p50(way, case)
            if here:
                name = f"belljar, {way}: {case}" if way else case
                rows.append([name, number(there), number(here), f"{here / there:.2f}×"])
        return self.table(
            ["this machine", "where the goals are from: ms", "here: ms", "ratio"], rows
        )

    def rival(self, name, gap):
        """A rival that takes long is only measured one after the other."""
        return self.p50("", name, gap) or self.p50("", name)

    def runs(self, way, case):
        counts = [len(self.measured.results.get((way, case, gap), ())) for gap in GAPS]
        return ", ".join(map(str, counts))

    def absolute(self, case, median, p99):
        """Rows of a case that has goals in milliseconds."""
        runs = self.runs("engine", case)
        medians = self.twice(lambda gap: self.p50("engine", case, gap))
        slowest = self.twice(lambda gap: self.p99("engine", case, gap))
        return [
            (f"{case}: median", medians, " ms", "≤", median, runs),
            ("p99", slowest, " ms", "≤", p99, runs),
        ]

    def faster(self, case, rival, words, goal):
        """How many times faster a case is than a rival."""
        values = self.twice(
            lambda gap: self.ratio(self.rival(rival, gap), self.p50("engine", case, gap))
        )
        return (f"{words} ÷ it", values, "×", "≥", goal, self.runs("", rival))

    def between(self, words, above, below, goal):
        """How many times longer one case, (way in, name), takes than another."""
        values = self.twice(lambda gap: self.ratio(self.p50(*above, gap), self.p50(*below, gap)))
        return (words, values, "×", "≤", goal, self.runs(*below))

    @staticmethod
    def twice(value):
        return [value(gap) for gap in GAPS]

    def added(self, gap):
        """What isolation costs: a fresh sandbox, less the same fork without one."""
        bare = self.p50("", BARE, gap)
        return self.p50("engine", "fresh on demand, print(1)", gap) - bare if bare else None

    def goals(self):
        """Each figure that is demanded, beside what was measured: (case, [back to back, 50 ms apart], unit, ≤ or ≥,
        goal, runs). What is only measured in one of the two ways is "" in the other."""
        e, fresh, pooled = "engine", "fresh on demand, print(1)", "pooled, print(1)"
        describe, again = "pooled, first describe()", "describe() again, same session"
        warm, plot = "warm cell, print(1)", "fresh on demand, first plot"
        replot, alone = "plot again, same session", "no sandbox waits, print(1)"
        rates = {name: statistics.median(v) for name, v in self.measured.rates.items()}
        rounds = str(len(self.measured.rates["belljar, engine"]))
        rate, memory = rates["belljar, engine"], self.measured.memory
        rate_docker, rate_bwrap = (self.ratio(rate, rates.get(name)) for name in (DOCKER, BWRAP))
        alive, each = str(memory["count"]), memory["each"] / 1e6
        isolation = self.twice(self.added)
        return [
            *self.absolute(fresh, 1.8, 6),
            self.faster(fresh, DOCKER, "docker run", 180),
            self.faster(fresh, DOCKER_IMPORTS, "docker run + imports", 500),
            self.faster(fresh, BWRAP_IMPORTS, "bwrap + imports", 400),
            self.absolute(alone, 1.8, 6)[0],
            *self.absolute(pooled, 0.3, 1),
            self.faster(pooled, DOCKER, "docker run", 1000),
            *self.absolute(describe, 7, 15),
            self.between("÷ the same cell warm", (e, describe), (e, again), 1.6),
            *self.absolute(warm, 0.1, 0.3),
            self.faster(warm, JUPYTER_WARM, "ipykernel", 40),
            ("sustained fresh sandboxes", [rate, ""], "/s", "≥", 800, rounds),
            ("÷ docker run", [rate_docker, ""], "×", "≥", 200, rounds),
            ("÷ bwrap + python", [rate_bwrap, ""], "×", "≥", 10, rounds),
            (f"idle sandbox, {alive} alive", [each, ""], " MB", "≤", 1.3, alive),
            ("one more, ÷ alone", ["", self.one_more()], "×", "≤", 1.3, "30"),
            ("isolation on top of the bare fork", isolation, " ms", "≤", 0.4, self.runs("", BARE)),
            self.between("÷ the bare fork", (e, fresh), ("", BARE), 1.4),
            self.between("first plot ÷ plot again", (e, plot), (e, replot), 1.5),
            self.between("rootless ÷ root", ("rootless engine", fresh), (e, fresh), 1.1),
        ]

    def goals_table(self):
        rows = []
        for case, values, unit, sign, goal, runs in self.goals():
            cells = [case, f"{sign} {goal:,}{unit}"]
            for value in values:
                cells += self.verdict(value, unit, sign, goal)
            rows.append([*cells, runs])
        head = ["demanded", "goal", "back to back", "met", "50 ms apart", "met ", "runs"]
        return self.table(head, rows)

    @staticmethod
    def verdict(value, unit, sign, goal):
        if not value:
            return ["" if value == "" else "not measured", ""]
        met = value <= goal if sign == "≤" else value >= goal
        said = f"{value:.2f}" if -10 < value < 0 else number(value)
        return [said + unit, "yes" if met else "no"]

    def isolation(self):
        seen = self.measured.isolation["engine", "on demand"]
        ways = ", ".join(dict.fromkeys(way for way, _name in self.measured.isolation))
        return (
            f"Checked from inside in this run ({ways}): uid {seen['uid']} or another that is not 0, "
            f"no capability, NoNewPrivs {seen['no_new_privs']}, Seccomp {seen['seccomp']}, a pid "
            f"namespace of its own with {seen['processes']} processes, "
            f"{' '.join(seen['interfaces'])} the only interface, / and /usr read-only."
        )

    def notes(self):
        goals = (
            "Each figure is held against its goal twice, back to back and for single requests 50 ms "
            "apart; a goal is met where both say so. Ratios are of medians, to rivals that were measured "
            "in the same way, or only one after the other where they take long. Runs: back to back, 50 ms "
            "apart; of a ratio, those of what it is held against; of rates, rounds. A p99 of fewer than "
            "100 runs is the slowest of them."
        )
        text = (
            "On demand a kernel is put into a sandbox that waits when it is asked for; pooled, kernels "
            "wait in theirs; and where no sandbox waits, it too is made then. "
            f"Pooled are {BURST} requests in a row, of {POOL} kernels that wait and have rehearsed "
            "(kernel_rehearsal). The bare fork is the same interpreter, kernel and fork, "
            "asked directly, without a server, an agent and a sandbox. A socket with exec() behind it is what any cell takes on "
            "this machine: after 50 ms of rest, in which its host has had the caches, many times as long as in a row."
        )
        return "\n\n".join([goals, text, *self.measured.remarks])


def measure(table, rounds=5):
    """The tables and what was left out, as text."""
    if not (RUNTIME / "stamp").exists():
        return f"Python is left out: {RUNTIME.name} is not there (tools/runtime makes it)."
    with Measurement(rounds) as measured:
        measured.run()
    report = Report(measured, table)
    parts = (report.goals_table, report.times, report.rates, report.memory, report.machine)
    return "\n\n".join([*(part() for part in parts), report.isolation(), report.notes()])
