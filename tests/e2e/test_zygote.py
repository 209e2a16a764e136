"""Kernels forked from a warm interpreter: they are guests like any other, cannot be told from kernels that
were started, share nothing that must differ, and when there is no zygote no call fails. Containers start
theirs; what holds of a kernel however it was made is tested there, too.

`facts` are asked from inside, of a forked kernel and of one that was started by exec, and compared."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import belljar
import pytest
from belljar import PATIENCE, need
from sandboxes import Jar, ordinary_user

pytestmark = pytest.mark.python_only

RUNTIME = pathlib.Path(
    os.environ.get("BELLJAR_RUNTIME", pathlib.Path(__file__).parents[2] / ".cache/runtime")
)
WARM = "info Python kernels are kept warm"
COLD = "no Python kernels are kept warm for now"
SLOW = 60  # imports, on a busy machine
FRESH = 8 if belljar.IN_CONTAINERS else 50  # sandboxes that draw

zygote_only = pytest.mark.native_only("kernels are started in containers, not forked")

IS_FORKED = "b'zygote.py' in open('/proc/self/cmdline', 'rb').read()"


def wait_for(condition, what, limit=SLOW):
    end = time.monotonic() + limit * PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.02)
    return value


def wait_until_warm(jar, times=1):
    wait_for(lambda: jar.log_text().count(WARM) >= times, f"a zygote:\n{jar.log_text()[-2000:]}")


@contextlib.contextmanager
def open_jar(*flags, user=None, warm=True):
    need(belljar.BIN)
    with Jar(*flags, user=user) as jar:
        if warm and not belljar.IN_CONTAINERS:
            wait_until_warm(jar)
        yield jar


def with_runtime():
    if not (RUNTIME / "stamp").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    return [] if belljar.IN_CONTAINERS else ["--runtime", str(RUNTIME)]


def who(param):
    """The server's user, and flags: another user may not look into this checkout, and gets the system's
    own Python, which has no numpy."""
    if param == "root":
        return None, with_runtime()
    return ordinary_user(), []


@pytest.fixture(scope="module", params=["root", "user"])
def jar(request):
    user, flags = who(request.param)
    with open_jar(*flags, user=user) as made:
        made.has_libraries = not user
        yield made


@pytest.fixture(scope="module")
def data_jar():
    with open_jar(*with_runtime()) as made:
        yield made


def python(jar, code, session=None, **options):
    return jar.execute(code, "python", session=session, wait=SLOW, **options)


def ask(jar, code, session=None):
    """What the code prints as JSON, in a fresh session or this one."""
    run = python(jar, code, session)
    assert run.outcome == "ok", run
    if session is None:
        jar.close_session(run.session)
    return json.loads(run.stdout)


def is_forked(jar, session=None):
    run = python(jar, IS_FORKED, session)
    assert run.outcome == "ok", run
    if session is None:
        jar.close_session(run.session)
    return run.said["result"] == "True"


def wait_until_forked(jar):
    """After a time without a zygote: the pool may hold a kernel that had to be started meanwhile."""
    wait_for(lambda: is_forked(jar), "a forked kernel")


def check_made(jar, session=None):
    """It was forked where there are forks."""
    assert is_forked(jar, session) is not belljar.IN_CONTAINERS


def zygotes(jar):
    """Process ids, on the host, of this server's zygotes. A kernel has its zygote's name for a moment, until
    it takes its own, so that one look is not enough."""
    found = named_as_zygotes(jar)
    while True:
        time.sleep(0.05)
        again = named_as_zygotes(jar)
        if again == found:
            return found
        found = again


def named_as_zygotes(jar):
    return sorted(pid for pid, name in descendants(jar).items() if name == "belljar-zygote")


def descendants(jar):
    """{process id on the host: name} of what this server has started."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                names[int(entry.name)] = name.partition("(")[2]
                parents[int(entry.name)] = int(rest.split()[1])
    found = {}
    for pid, name in names.items():
        parent = parents[pid]
        while parent > 1 and parent != jar.pid:
            parent = parents.get(parent, 0)
        if parent == jar.pid:
            found[pid] = name
    return found


# --- a guest like any other ---------------------------------------------------------------------------

FACTS = r"""
import asyncio, ctypes, getpass, json, logging, mimetypes, multiprocessing, os, platform, re, resource, signal
import socket, sys, sysconfig, tempfile, threading, uuid, warnings, gc, locale
def read(name):
    with open(name) as file:
        return file.read()
status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
facts = {key: status[key] for key in (
    "Umask", "PPid", "TracerPid", "Uid", "Gid", "Groups", "Threads", "SigQ", "SigPnd", "ShdPnd",
    "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
    "Seccomp", "Cpus_allowed", "Name", "CoreDumping", "THP_enabled")}
facts["SigCgt"] = int(facts["SigCgt"], 16) & 0x7fffffff  # without the two of the C library's threads
facts["SigQ"] = facts["SigQ"].split("/")[1]
facts["depth"] = len(status["NSpid"].split())
facts["session"] = os.getpid() == os.getsid(0) == os.getpgid(0)
facts["limits"] = re.sub("Max data size.*", "", read("/proc/self/limits"))
facts["cgroup"] = re.sub(r"(belljar-[^/]*)?/\d+", "", read("/proc/self/cgroup"))  # of this server, this slot
facts["oom"] = read("/proc/self/oom_score_adj")
mounts = re.sub(r"\b([ug]id)=\d+", r"\1", read("/proc/self/mountinfo"))  # of this slot
facts["mounts"] = sorted(line.split(" ", 4)[4] for line in mounts.splitlines())
facts["namespaces"] = sorted(os.listdir("/proc/self/ns"))
facts["descriptors"] = sorted(fd for fd in os.listdir("/proc/self/fd"))
facts["kinds"] = [os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in (0, 1, 2)]
facts["flags"] = [os.get_inheritable(fd) for fd in (0, 1, 2)]
facts["environment"] = dict(os.environ)
facts["c environment"] = [bool(ctypes.CDLL(None).getenv(name.encode())) for name in os.environ]
facts["cwd"], facts["argv"], facts["path"] = os.getcwd(), sys.argv, sys.path
facts["python"] = [sys.executable, sys.prefix, sys.flags[:], sys.getrecursionlimit(), sys.dont_write_bytecode]
facts["main"] = [__name__, sys.modules["__main__"].__dict__ is globals(), sorted(n for n in globals() if n[0] != "_" and n not in ("facts", "status", "read", "mounts"))]
facts["streams"] = [(s.name, s.encoding, s.errors, s.line_buffering, s.write_through) for s in (sys.stdout, sys.stderr)]
facts["threads"] = [t.name for t in threading.enumerate()], threading.main_thread().native_id == os.getpid()
facts["gc"] = gc.isenabled(), gc.get_threshold()
facts["locale"] = locale.getlocale()
facts["signals"] = [str(type(signal.getsignal(n))) for n in range(1, 32)]
libc = ctypes.CDLL(None)
facts["subreaper"] = (lambda v: (libc.prctl(37, ctypes.byref(v)), v.value))(ctypes.c_int())
facts["dumpable"], facts["death signal"] = libc.prctl(3), None
facts["host"] = platform.uname(), platform.processor(), platform.platform(), socket.gethostname(), os.cpu_count()
facts["card"] = uuid._node, uuid.getnode() >> 40 & 1  # none: each kernel draws a number, and sets this bit
facts["user"] = getpass.getuser(), os.path.expanduser("~"), tempfile.tempdir, tempfile.gettempdir()
facts["found"] = mimetypes.guess_type("a.csv"), sorted(sysconfig.get_config_vars().items())
process = multiprocessing.current_process()
facts["process"] = process.name, process.ident == os.getpid(), process.daemon, sorted(process._config)
facts["logging"] = logging.root.level, len(logging.root.handlers), logging.lastResort.stream is sys.stderr
facts["last error"] = [name for name in ("last_type", "last_value", "last_traceback", "last_exc") if hasattr(sys, name)]
async def answer():
    return 42
def in_loop(ask):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(ask())
        except RuntimeError as exc:  # a later Python wants one to be set
            return str(exc)
facts["loops"] = [in_loop(ask) for ask in (
    lambda: asyncio.get_event_loop().run_until_complete(answer()),
    lambda: asyncio.get_event_loop().run_until_complete(asyncio.ensure_future(answer())),
    lambda: asyncio.Future().done(),
    lambda: asyncio.run(answer()))]
facts["nice"] = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
print(json.dumps(facts, default=str))
"""
DATA_LIMIT = r"""
import json, re, resource
with open("/proc/self/maps") as file:
    frozen = re.findall("(.*)-(.*) .w.p .*memfd:belljar-zygote", file.read())
size = sum(int(end, 16) - int(begin, 16) for begin, end in frozen)
print(json.dumps([*resource.getrlimit(resource.RLIMIT_DATA), size]))
"""


@pytest.mark.parametrize("param", ["root", "user"])
@zygote_only
def test_a_forked_kernel_cannot_be_told_from_one_that_was_started(param):
    user, flags = who(param)
    with open_jar(*flags, user=user) as jar:
        assert is_forked(jar)
        forked = ask(jar, FACTS)
        *limits, frozen = ask(jar, DATA_LIMIT)
    with open_jar(*flags, "--no-zygote", user=user, warm=False) as jar:
        assert not is_forked(jar)
        started = ask(jar, FACTS)
        limit = ask(jar, DATA_LIMIT)[0]
    assert frozen > 0
    for each in limits:  # what is frozen counts as data, though it was none before
        assert each == limit if limit < 0 else limit <= each < limit + frozen
    for key, value in started.items():
        assert forked[key] == value, key
    assert forked["CapEff"] == forked["CapBnd"] == "0000000000000000"
    assert (forked["NoNewPrivs"], forked["Seccomp"], forked["PPid"]) == ("1", "2", "1")
    assert forked["host"][0][1] == forked["host"][3] == "belljar"
    assert forked["depth"] == 1 and forked["Uid"].split() == ["1000"] * 4


def test_it_is_in_every_namespace_of_its_sandbox(jar):
    session = python(jar, "1").session
    look = "import os; print(*sorted((n, os.readlink('/proc/self/ns/' + n)) for n in os.listdir('/proc/self/ns')), sep='\\n')"
    inside = python(jar, look, session)
    beside = jar.python(look, session=session)
    assert inside.outcome == "ok" and inside.stdout == beside.stdout
    cgroup = "print(open('/proc/self/cgroup').read())"
    assert python(jar, cgroup, session).stdout == jar.python(cgroup, session=session).stdout
    jar.close_session(session)


def test_the_run_and_the_kernel_of_a_session_can_signal_each_other(jar):
    session = python(jar, "import subprocess; p = subprocess.Popen(['sleep', '600'])").session
    pid = python(jar, "p.pid", session).said["result"]
    assert jar.execute(f"kill {pid}", session=session).exit_code == 0
    assert python(jar, "p.wait()", session).said["result"] == "-15"
    jar.close_session(session)


@zygote_only
def test_it_holds_nothing_of_the_zygotes(jar):
    found = ask(
        jar,
        """
import json, os
print(json.dumps({fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0]
                  for fd in map(str, range(2000)) if os.path.lexists(f"/proc/self/fd/{fd}")}))
""",
    )
    assert set(found.values()) <= {"/dev/null", "pipe", "socket"}
    assert len([kind for kind in found.values() if kind == "socket"]) == 1  # the channel
    files = "import os; print([n for n in ('zygote.py', 'zygote.so') if os.path.exists('/run/belljar/' + n)])"
    assert python(jar, files).stdout == "[]\n"


# A connection that waits for its peer when it is closed, however long its owner wants.
HANDOVER = """
import array, os, socket, struct
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
slow = socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
slow.setblocking(False)
try:
    while True:
        slow.send(b"x" * 65536)
except BlockingIOError:
    pass
slow.setblocking(True)
slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
letter = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slow.fileno()]))]
for name in os.listdir("/proc/self/fd"):
    try:
        is_socket = os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:
        continue
    if not is_socket or int(name) in (listener.fileno(), slow.fileno(), peer.fileno()):
        continue
    channel = socket.socket(fileno=os.dup(int(name)))
    try:
        channel.sendmsg([b"x"], letter)
        print("sent")
    except OSError as error:
        print(type(error).__name__)
os.close(slow.detach())
"""


@zygote_only
def test_the_server_can_be_given_no_descriptor_to_drop(jar):
    """Whoever drops the last copy of such a connection waits for it: that must not be the server."""
    assert python(jar, HANDOVER, timeout=5).stdout == "BrokenPipeError\n"
    assert python(jar, "print(1)").stdout == "1\n"


LOOK = "import ctypes, os; c = ctypes.CDLL(None); c.getenv.restype = ctypes.c_char_p\n"


def test_the_environment_of_a_session_is_that_of_its_kernel(jar):
    session = jar.tool("start_session", env={"COLOUR": "blue", "EMPTY": ""})["session_id"]
    check_made(jar, session)
    code = (
        LOOK + "os.environ['COLOUR'], os.environ['EMPTY'], c.getenv(b'COLOUR'), os.environ['HOME']"
    )
    assert python(jar, code, session).said["result"] == "('blue', '', b'blue', '/workspace')"
    shell = "import subprocess; subprocess.getoutput('echo $COLOUR $MPLBACKEND')"
    assert python(jar, shell, session).said["result"] == "'blue agg'"
    other = python(jar, "import os; 'COLOUR' in os.environ")
    assert other.said["result"] == "False"


def test_what_an_interpreter_reads_at_its_start_gets_it_a_new_one(jar):
    session = jar.tool("start_session", env={"PYTHONUTF8": "0", "PYTHONHASHSEED": "0"})[
        "session_id"
    ]
    assert not is_forked(jar, session)
    first = python(jar, "hash('x')", session).said["result"]
    session = jar.tool("start_session", env={"PYTHONHASHSEED": "0"})["session_id"]
    assert python(jar, "hash('x')", session).said["result"] == first


# --- state that must differ ---------------------------------------------------------------------------

SEEDS = """
import json, os, random, secrets, tempfile, uuid
seeds = {
    "random": random.random(),
    "random.Random": random.Random().random(),
    "uuid4": str(uuid.uuid4()),
    "uuid1": str(uuid.uuid1()),
    "secrets": secrets.token_hex(),
    "urandom": os.urandom(8).hex(),
    "tempfile": tempfile.mktemp(),
    "TemporaryDirectory": tempfile.TemporaryDirectory().name,
}
try:
    import numpy
    seeds["numpy legacy"] = numpy.random.rand()
    seeds["numpy RandomState"] = numpy.random.RandomState().rand()
    seeds["numpy default_rng"] = numpy.random.default_rng().random()
except ImportError:
    pass
try:
    import ssl
    seeds["openssl"] = ssl.RAND_bytes(8).hex()
except ImportError:
    pass
import multiprocessing
seeds["authkey"] = bytes(multiprocessing.current_process().authkey).hex()
print(json.dumps(seeds))
"""


def test_no_two_fresh_sandboxes_draw_the_same(jar):
    drawn = [ask(jar, SEEDS) for _ in range(FRESH)]
    assert not jar.has_libraries or "numpy legacy" in drawn[0]
    for kind in drawn[0]:
        assert len({str(seeds[kind]) for seeds in drawn}) == FRESH, kind


def test_a_new_kernel_of_the_same_sandbox_draws_anew(jar):
    session = python(jar, "1").session
    drawn = []
    for _ in range(3):
        drawn.append(ask(jar, SEEDS, session))
        assert python(jar, "import os; os._exit(0)", session).outcome == "kernel_died"
    jar.close_session(session)
    for kind in drawn[0]:
        assert len({str(seeds[kind]) for seeds in drawn}) == 3, kind


# --- libraries work as in any process -------------------------------------------------------------------

WORK = {
    "threads": """
import threading
out = []
workers = [threading.Thread(target=out.append, args=(n,)) for n in range(8)]
[w.start() for w in workers]; [w.join() for w in workers]
assert sorted(out) == list(range(8)) and threading.active_count() == 1
""",
    "subprocess": """
import subprocess
assert subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout == "hi\\n"
assert subprocess.run("exit 3", shell=True).returncode == 3
""",
    "fork": """
import os
pid = os.fork()
if pid == 0: os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
""",
    "multiprocessing": """
import multiprocessing, math
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert pool.map(math.factorial, range(5)) == [1, 1, 2, 6, 24]
with multiprocessing.get_context("spawn").Pool(1) as pool:
    assert pool.map(math.sqrt, [4]) == [2.0]
""",
    "manager": """
import multiprocessing
with multiprocessing.Manager() as manager:
    d = manager.dict(); d["a"] = 1
    assert dict(d) == {"a": 1}
""",
    "executor": """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: assert list(pool.map(abs, [-1, 2])) == [1, 2]
with ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1, 2])) == [1, 2]
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "x", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]
assert await main() == b"x\\n"
""",
    "sqlite": """
import sqlite3
assert sqlite3.connect("t.db").execute("select 6 * 7").fetchone() == (42,)
""",
    "logging": """
import logging
logging.warning("heard")
""",
    "signals": """
import signal, os
seen = []
signal.signal(signal.SIGUSR1, lambda *a: seen.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
assert seen == [1]
""",
}
DATA_WORK = {
    "blas": """
import numpy as np
a = np.random.rand(400, 400)
assert np.allclose(a @ np.linalg.inv(a), np.eye(400))
""",
    "blas in threads": """
import numpy as np, threading
a = np.random.rand(200, 200); out = []
workers = [threading.Thread(target=lambda: out.append((a @ a).shape)) for _ in range(4)]
[w.start() for w in workers]; [w.join(60) for w in workers]
assert out == [(200, 200)] * 4
""",
    "blas with threads of its own": """
import threadpoolctl, numpy as np
with threadpoolctl.threadpool_limits(2):
    a = np.random.rand(600, 600)
    assert (a @ a).shape == (600, 600)
""",
    "blas in a forked child": """
import numpy as np, multiprocessing
a = np.random.rand(200, 200)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert len(pool.map(np.linalg.norm, [a, a])) == 2
""",
    "pandas": """
import pandas as pd
df = pd.DataFrame({"a": range(10), "b": list("xy" * 5)})
df.to_csv("t.csv", index=False)
assert pd.read_csv("t.csv").groupby("b").a.sum().to_dict() == {"x": 20, "y": 25}
""",
    "plots": """
import matplotlib.pyplot as plt
for n in range(2):
    plt.figure(); plt.plot([1, n]); plt.title(r"$x^2$ and text"); plt.savefig(f"{n}.png")
import os
assert os.path.getsize("0.png") > 1000
plt.close("all")
""",
    "scipy and sklearn": """
import importlib.util
if importlib.util.find_spec("sklearn"):
    import numpy as np
    from sklearn.linear_model import LinearRegression
    x = np.arange(20.0).reshape(-1, 1)
    assert abs(LinearRegression().fit(x, 3 * x[:, 0]).coef_[0] - 3) < 1e-9
""",
}


@pytest.mark.parametrize("name", WORK)
def test_work(jar, name):
    run = python(jar, WORK[name])
    assert run.outcome == "ok", run
    check_made(jar, run.session)
    jar.close_session(run.session)


@pytest.mark.parametrize("name", DATA_WORK)
def test_work_with_data(data_jar, name):
    run = python(data_jar, DATA_WORK[name])
    if "threadpoolctl" in DATA_WORK[name] and "No module named" in (run.error or ""):
        pytest.skip("no threadpoolctl")
    assert run.outcome == "ok", run
    data_jar.close_session(run.session)


def test_magics_work_and_what_was_tried_before_is_forgotten(data_jar):
    run = python(data_jar, "%who\n!echo hi\nsorted(n for n in dir() if n[0] != '_'), In, Out")
    assert run.outcome == "ok", run
    assert "hi\n" in run.stdout and "Interactive namespace is empty" in run.stdout
    assert run.said["result"].startswith("(['In', 'Out', 'get_ipython']")
    plots = "import matplotlib.pyplot as plt; plt.get_fignums()"
    assert python(data_jar, plots, run.session).said["result"] == "[]"


@pytest.mark.parametrize("flags", [[], ["--no-zygote"]])
def test_fonts_are_not_looked_for_in_each_sandbox(flags):
    if not list(RUNTIME.glob("share/belljar/fontlist-*")):
        pytest.skip("the runtime has no list of fonts: run tools/runtime")
    # Not one that was made ahead: that has imported it, and leaves no files.
    with open_jar(*with_runtime(), *flags, "--kernel-pool-size=0", warm=not flags) as jar:
        code = """
import matplotlib.pyplot as plt, matplotlib, os, logging
plt.plot([1, 2]); plt.show()
print([os.readlink(entry.path) for entry in os.scandir(matplotlib.get_cachedir())] if not forked else [])
"""
        run = python(jar, f"forked = {IS_FORKED}" + code)
        assert run.outcome == "ok" and not run.stderr, run
        lent = [
            f"/opt/belljar/runtime/{path.relative_to(RUNTIME)}"
            for path in RUNTIME.glob("share/belljar/*")
        ]
        started = flags or belljar.IN_CONTAINERS
        assert run.stdout.splitlines()[-1] == (str(lent) if started else "[]")


# --- ends -----------------------------------------------------------------------------------------------

ENDS = [
    ("import os; os._exit(3)", "kernel_died"),
    ("import os; os._exit(0)", "kernel_died"),
    ("import ctypes; ctypes.string_at(0)", "kernel_died"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "kernel_died"),
    ("import sys; sys.exit(4)", "error"),
    ("1 / 0", "error"),
]


@pytest.mark.parametrize("code, outcome", ENDS)
@zygote_only
def test_ends_are_told_as_for_a_started_kernel_and_the_next_is_forked_again(jar, code, outcome):
    run = python(jar, code)
    assert run.outcome == outcome
    with open_jar("--no-zygote", warm=False) as other:
        assert python(other, code).error == run.error
    assert is_forked(jar, run.session)
    jar.close_session(run.session)


def test_the_first_cell_can_be_interrupted(jar):
    run = python(jar, "import time\nprint('begun')\ntime.sleep(100)", timeout=1)
    assert (run.outcome, run.stdout) == ("timeout", "begun\n")
    check_made(jar, run.session)
    jar.close_session(run.session)


@zygote_only
@pytest.mark.parametrize(
    "last",
    [
        pytest.param("os._exit(3)", id="exits"),
        pytest.param("os.kill(os.getpid(), 9)", id="is killed"),
        pytest.param("os._exit(3) if os.fork() else time.sleep(60)", id="leaves a child"),
    ],
)
def test_a_first_cell_that_ends_its_kernel_is_told_whole_and_not_run_again(last):
    code = f"""
import os, time
with open("/workspace/log", "a") as log:
    log.write("x")
print("said", flush=True)
{last}
"""
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        for _ in range(10):
            run = python(jar, code)
            assert run.outcome != "ok" and run.stdout == "said\n" and run.took < 10 * PATIENCE, run
            log = jar.execute("cat log", session=run.session)
            assert log.stdout == "x", log
            jar.close_session(run.session)


@zygote_only
def test_it_dies_of_its_own_memory_limit(jar):
    if "memory_limit" not in jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    before = zygotes(jar)
    run = python(jar, "b = b'1' * (900 << 20)")
    assert run.outcome == "memory_limit"
    assert is_forked(jar, run.session)
    assert zygotes(jar) == before
    jar.close_session(run.session)


BOUND = """
import json
def fits(megabytes):
    try:
        return len(bytearray(megabytes << 20)) > 0
    except MemoryError:
        return False
is_copy = any("memfd:belljar-zygote" in line for line in open("/proc/self/maps"))
print(json.dumps([is_copy, fits(300), fits(512)]))
"""


@zygote_only
def test_without_a_cgroup_its_data_is_bounded_and_what_was_frozen_is_none(jar):
    if "memory_limit" in jar.enforced():
        pytest.skip("a cgroup bounds its memory here")
    assert ask(jar, BOUND) == [True, True, False]


def test_many_at_once(jar):
    waiting = [jar.begin(f"x = {n}; x * 2", "python") for n in range(30)]
    runs = [one.run(SLOW) for one in waiting]
    assert [run.said["result"] for run in runs] == [str(2 * n) for n in range(30)]
    for run in runs:
        jar.close_session(run.session)


# --- without one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("param", ["root", "user"])
@zygote_only
def test_a_killed_zygote_fails_no_call_is_told_once_and_replaced(param):
    user, flags = who(param)
    with open_jar(*flags, user=user) as jar:
        (first,) = zygotes(jar)
        os.kill(first, signal.SIGKILL)
        sessions = []
        for n in range(10):
            run = python(jar, f"{n} + 1")
            assert run.said["result"] == str(n + 1)
            sessions.append(run.session)
        wait_until_warm(jar, times=2)
        assert jar.log_text().count(COLD) == 1
        assert zygotes(jar) != [first]
        wait_until_forked(jar)
        assert all(python(jar, "'alive'", one).said["result"] == "'alive'" for one in sessions)


def is_zombie(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


@pytest.mark.parametrize("param", ["root", "user"])
@zygote_only
def test_a_zygote_killed_while_it_forks_fails_no_call_and_leaves_nobody_behind(param):
    user, flags = who(param)
    with open_jar(*flags, "--kernel-pool-size", "0", user=user) as jar:
        for kill in range(1, 5):
            (pid,) = zygotes(jar)
            waiting = [jar.begin(f"{n} + 1", "python") for n in range(12)]
            time.sleep(kill * 0.01)
            os.kill(pid, signal.SIGKILL)
            runs = [one.run(SLOW) for one in waiting]
            assert [run.said["result"] for run in runs] == [str(n + 1) for n in range(12)]
            for run in runs:
                jar.close_session(run.session)
            wait_until_warm(jar, times=kill + 1)
            assert jar.log_text().count(COLD) == kill
        wait_for(lambda: not [pid for pid in descendants(jar) if is_zombie(pid)], "no zombies", 10)
        assert "does not end" not in jar.log_text()


@zygote_only
def test_kernels_outlive_their_zygote(data_jar):
    session = python(data_jar, "x = 42").session
    warm = data_jar.log_text().count(WARM)
    for pid in zygotes(data_jar):
        os.kill(pid, signal.SIGKILL)
    assert python(data_jar, "x", session).said["result"] == "42"
    wait_until_warm(data_jar, warm + 1)
    data_jar.close_session(session)


@zygote_only
def test_a_stopped_zygote_is_given_up(data_jar):
    (pid,) = zygotes(data_jar)
    warm = data_jar.log_text().count(WARM)
    os.kill(pid, signal.SIGSTOP)
    run = python(data_jar, "6 * 7")
    assert run.said["result"] == "42"
    wait_until_warm(data_jar, warm + 1)
    assert pid not in zygotes(data_jar)
    wait_until_forked(data_jar)


@zygote_only
def test_it_is_renewed_after_so_many_forks():
    with open_jar("--zygote-max-forks", "3", "--log-level", "debug") as jar:
        seen = set()
        for n in range(200):
            seen.update(zygotes(jar))
            run = python(jar, f"{n}")
            assert run.said["result"] == str(n)
            jar.close_session(run.session)
            if len(seen) > 2:
                break
        assert len(seen) > 2
        assert COLD not in jar.log_text()
        wait_for(lambda: len(zygotes(jar)) == 1, "the old ones to leave")


@pytest.fixture
def place():
    """A directory that the spawner, who is nobody outside, can look into."""
    with tempfile.TemporaryDirectory(prefix="belljar-runtime-") as made:
        os.chmod(made, 0o755)
        yield pathlib.Path(made)


def make_interpreter(place, as_zygote):
    """A runtime whose Python does this when it is to be a zygote."""
    (place / "bin").mkdir()
    script = place / "bin/python3"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *zygote.py*) {as_zygote} ;; esac\nexec /usr/bin/python3 "$@"\n'
    )
    script.chmod(0o755)
    return ["--runtime", str(place)]


@pytest.mark.parametrize(
    "as_zygote, words",
    [
        ("exit 3", "exit status 3"),
        ("kill -SEGV $$", "signal 11"),
        ("exec /nothing/there", "exit status 127"),
        (
            'exec /usr/bin/python3 -c \'import sys, runpy; sys.modules["ctypes"] = None; '
            'sys.argv = sys.argv[3:]; runpy.run_path("/run/belljar/zygote.py", run_name="__main__")\''
            ' x -u "$@"',
            "ctypes",
        ),
    ],
)
@zygote_only
def test_an_interpreter_that_cannot_be_one_is_told_once(place, as_zygote, words):
    with open_jar(*make_interpreter(place, as_zygote), warm=False) as jar:
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        for n in range(3):
            assert python(jar, f"{n}").said["result"] == str(n)
        assert not is_forked(jar)
        assert jar.log_text().count(COLD) == 1 and words in jar.log_text()


@zygote_only
def test_slow_imports_delay_nobody(place):
    with open_jar(*make_interpreter(place, "sleep 600"), warm=False) as jar:
        run = python(jar, "1 + 1")
        assert run.said["result"] == "2" and not is_forked(jar)
        assert COLD not in jar.log_text()


@zygote_only
def test_an_interpreter_that_is_replaced_fails_no_call(place):
    flags = make_interpreter(place, ":")
    with open_jar(*flags) as jar:
        assert is_forked(jar)
        (place / "bin/python3").rename(place / "bin/old")
        (place / "bin/python3").write_text('#!/bin/sh\nexec /usr/bin/python3 -X dev "$@"\n')
        (place / "bin/python3").chmod(0o755)
        for pid in zygotes(jar):
            os.kill(pid, signal.SIGKILL)
        for n in range(5):
            assert python(jar, f"{n}").said["result"] == str(n)
        wait_until_warm(jar, times=2)
        assert python(jar, "import sys; sys.flags.dev_mode").said["result"] == "True"


@zygote_only
def test_an_interpreter_that_is_replaced_by_a_broken_one_is_told_once(place):
    flags = make_interpreter(place, ":")
    with open_jar(*flags, "--zygote-max-forks", "3") as jar:
        (place / "bin/new").write_text(
            '#!/bin/sh\ncase "$*" in *zygote.py*) exit 3 ;; esac\nexec /usr/bin/python3 "$@"\n'
        )
        (place / "bin/new").chmod(0o755)
        (place / "bin/new").rename(place / "bin/python3")
        for n in range(12):
            run = python(jar, f"{n}")
            assert run.said["result"] == str(n)
            jar.close_session(run.session)
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        assert is_forked(jar)  # of the one that serves
        assert jar.log_text().count(COLD) == 1 and "exit status 3" in jar.log_text()


def memory_cgroup(pid):
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for root in ["/sys/fs/cgroup/memory"] if names == "memory" else ["/sys/fs/cgroup"]:
            found = pathlib.Path(root + path)
            if "zygote-" in path and (found / "cgroup.procs").exists():
                return found
    return None


HOG = """
import sys, time
with open(sys.argv[1], "w") as file:
    file.write("0")
kept = []
for _ in range(100):
    kept.append(b"x" * (8 << 20))
time.sleep(60)
"""


@zygote_only
def test_a_serving_zygote_whose_cgroup_is_full_is_replaced_and_fails_no_call():
    if os.geteuid() != 0:
        pytest.skip("only root can put a process there")
    with open_jar(*with_runtime(), "--zygote-memory", "512m") as jar:
        (pid,) = zygotes(jar)
        cgroup = memory_cgroup(pid)
        if not cgroup:
            pytest.skip("a zygote has no cgroup of its own here")
        waiting = [(n, jar.begin(f"{n} + 1", "python")) for n in range(10)]
        hog = subprocess.Popen([sys.executable, "-c", HOG, str(cgroup / "cgroup.procs")])
        try:
            end = time.monotonic() + SLOW * PATIENCE
            while waiting or pathlib.Path(f"/proc/{pid}").exists():
                assert time.monotonic() < end, "it lives"
                n, one = waiting.pop() if waiting else (7, jar.begin("7 + 1", "python"))
                run = one.run(SLOW)
                assert run.said["result"] == str(n + 1)
                jar.close_session(run.session)
        finally:
            hog.kill()
            hog.wait()
        wait_until_warm(jar, times=2)
        wait_until_forked(jar)
        assert jar.log_text().count(COLD) == 1 and "signal 9" in jar.log_text()


@zygote_only
def test_a_zygote_that_fills_its_memory_is_replaced_and_fails_no_call(data_jar):
    if "memory_limit" not in data_jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    with open_jar(*with_runtime(), "--zygote-memory", "64m", warm=False) as jar:
        wait_for(lambda: COLD in jar.log_text(), "the complaint")
        for n in range(3):
            assert python(jar, f"{n}").said["result"] == str(n)
        assert jar.log_text().count(COLD) == 1


@pytest.mark.parametrize(
    "flags", [["--no-zygote-freeze"], ["--no-zygote-freeze", "--no-zygote-huge-pages"]]
)
@zygote_only
def test_it_does_without_its_arts(flags):
    with open_jar(*with_runtime(), *flags) as jar:
        assert is_forked(jar)
        for name in ("blas", "plots", "blas in a forked child"):
            run = python(jar, DATA_WORK[name])
            assert run.outcome == "ok", run


SCRIBBLE = """
import ctypes, json, string, sys
text = string.ascii_letters
at = id(text) + sys.getsizeof("") - 1
before = text[:3]
ctypes.memset(at, ord("Z"), 3)
print(json.dumps([at, before, text[:3]]))
"""


@zygote_only
def test_what_a_kernel_writes_to_no_other_sees(jar):
    """They are copies of one file, each its own."""
    first, second = ask(jar, SCRIBBLE), ask(jar, SCRIBBLE)
    assert first[0] == second[0]  # the same place: else this would show nothing
    assert first[1:] == second[1:] == ["abc", "ZZZ"]


LINKS_TO_IT = r"""
import os
def links_to_it(pid):
    names = []
    for line in open(f"/proc/{pid}/maps"):
        if "memfd:belljar-zygote" in line:
            begin, _, end = line.split()[0].partition("-")
            names.append(f"/proc/{pid}/map_files/{int(begin, 16):x}-{int(end, 16):x}")
    return names
"""
OPEN_IT = """
import json
results = set()
for name in links_to_it("self"):
    try:
        results.add(os.open(name, os.O_RDONLY) and "open")
    except OSError as exc:
        results.add(type(exc).__name__)
print(json.dumps(sorted(results)))
"""


@zygote_only
def test_nobody_can_write_to_the_file_that_kernels_are_copies_of(data_jar):
    if os.geteuid() != 0:
        pytest.skip("only root can look at it")
    assert ask(data_jar, LINKS_TO_IT + OPEN_IT) == ["PermissionError"]
    (pid,) = zygotes(data_jar)
    names = {}
    exec(LINKS_TO_IT, names)
    fd = os.open(names["links_to_it"](pid)[0], os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


GROWING = """
import ctypes, json
libc = ctypes.CDLL(None)
trimmed = libc.malloc_trim(0)  # gives pages back that were a zygote's
block, many = bytearray(b"x" * 1000), []
for _ in range(16):
    block += bytes(block)  # by mremap(2), sooner or later
    many += [len(block)] * 20_000
libc.malloc_trim(0)
again = [bytes(n * 100) for n in range(2000)]
del again[::2]
libc.malloc_trim(0)
import decimal, fractions, xml.dom.minidom
whole = all(set(each) <= {0} for each in again)
print(json.dumps([len(block), block.count(b"x"), len(many), sum(many[::20_000]), whole]))
"""


def test_its_heap_shrinks_and_grows_like_any_other(jar):
    size = 1000 << 16
    assert ask(jar, GROWING) == [size, size, 320_000, 2 * size - 2000, True]


def copied_pages(smaps, name="/memfd:belljar-zygote"):
    """Of the file that holds a zygote's memory, those that a child has written to."""
    pages, inside = 0, False
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = name in words
        elif inside and words[0] == "Anonymous:":
            pages += int(words[1]) // 4
    return pages


def pages_of_kernel(jar, *name):
    """Those of the only one there is."""
    (pid,) = [pid for pid, name in descendants(jar).items() if name.startswith("python")]
    smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
    if "/memfd:belljar-zygote" not in smaps:
        pytest.skip("its memory is not in one file")
    return copied_pages(smaps, *name)


needs_eyes = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can look at another user's process"
)


@zygote_only
@needs_eyes
def test_a_first_cell_copies_few_of_its_zygotes_pages():
    """Its time and memory are these pages. What it writes to lies side by side; strewn about it takes 240 of them."""
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        python(jar, "print(1)")
        assert 50 < pages_of_kernel(jar) < 185


DESCRIBE = "import pandas as pd; table = pd.DataFrame({'a': range(9)}).describe()\n"
OWN_PAGES = """
for line in open("/proc/self/smaps"):
    if line.startswith("Anonymous:") or not line.split()[0].endswith(":"):
        print(line, end="")
"""


@zygote_only
@needs_eyes
def test_an_idle_kernel_gives_back_pages_that_are_as_before():
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        run = python(jar, DESCRIBE + OWN_PAGES)
        copied = copied_pages(run.stdout)
        wait_for(lambda: pages_of_kernel(jar) < 0.8 * copied, f"fewer pages than {copied}")
        assert (
            python(jar, DESCRIBE + "int(table.loc['max', 'a'])", run.session).said["result"] == "8"
        )


DEEP = """
nested = []
for _ in range(900):
    nested = [nested]
len(repr(nested))
"""


@zygote_only
@needs_eyes
def test_an_idle_kernel_gives_back_its_stack():
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        run = python(jar, DEEP + OWN_PAGES)
        assert copied_pages(run.stdout, "[stack]") > 20
        wait_for(lambda: pages_of_kernel(jar, "[stack]") < 8, "a small stack")
        assert python(jar, DEEP, run.session).said["result"] == "1802"


BESIDE = """
import random, threading, time
state, drawn = random.getstate(), []
def draw(generator=random):
    end = time.monotonic() + 2
    while time.monotonic() < end:
        drawn.append(generator.getrandbits(32))
        time.sleep(0.0001)
thread = threading.Thread(target=draw)
thread.start()
"""


@zygote_only
@needs_eyes
def test_an_idle_kernel_loses_nothing_of_what_a_thread_writes_meanwhile():
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        session = python(jar, BESIDE).session
        time.sleep(2)
        run = python(
            jar,
            "thread.join(); again = random.Random(); again.setstate(state)\n"
            "len(drawn) > 1000 and drawn == [again.getrandbits(32) for _ in drawn]",
            session,
        )
        assert run.said["result"] == "True", run


@zygote_only
def test_modules_that_are_not_there_are_left_out():
    with open_jar("--preload", "json,no_such_module") as jar:
        assert "json" in jar.log_text() and "not there: no_such_module" in jar.log_text()
        assert python(jar, "import sys; 'json' in sys.modules").said["result"] == "True"
        assert is_forked(jar)


@zygote_only
def test_nothing_of_it_stays_behind():
    with open_jar() as jar:
        (pid,) = zygotes(jar)
        assert is_forked(jar)
    assert not pathlib.Path(f"/proc/{pid}").exists()
