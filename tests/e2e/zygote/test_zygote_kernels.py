"""Kernels forked from a warm interpreter: they are guests like any other, cannot be told from kernels that
were started, and share nothing that must differ. Containers start theirs; what holds of a kernel however it
was made is tested there, too.

`facts` are asked from inside, of a forked kernel and of one that was started by exec, and compared."""

import belljar
import pytest
from belljar import PATIENCE
from python_jar import RUNTIME, SLOW, with_runtime
from zygote_jar import (
    IS_FORKED,
    ask,
    check_made,
    is_forked,
    open_jar,
    python,
    who,
    zygote_only,
    zygotes,
)

pytestmark = pytest.mark.python_only

FRESH = 8 if belljar.IN_CONTAINERS else 50  # sandboxes that draw

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


def test_it_is_in_every_namespace_of_its_sandbox(warm_jar):
    session = python(warm_jar, "1").session
    look = "import os; print(*sorted((n, os.readlink('/proc/self/ns/' + n)) for n in os.listdir('/proc/self/ns')), sep='\\n')"
    inside = python(warm_jar, look, session)
    beside = warm_jar.python(look, session=session)
    assert inside.outcome == "ok" and inside.stdout == beside.stdout
    cgroup = "print(open('/proc/self/cgroup').read())"
    assert (
        python(warm_jar, cgroup, session).stdout == warm_jar.python(cgroup, session=session).stdout
    )
    warm_jar.close_session(session)


def test_the_run_and_the_kernel_of_a_session_can_signal_each_other(warm_jar):
    session = python(warm_jar, "import subprocess; p = subprocess.Popen(['sleep', '600'])").session
    pid = python(warm_jar, "p.pid", session).said["result"]
    assert warm_jar.execute(f"kill {pid}", session=session).exit_code == 0
    assert python(warm_jar, "p.wait()", session).said["result"] == "-15"
    warm_jar.close_session(session)


@zygote_only
def test_it_holds_nothing_of_the_zygotes(warm_jar):
    found = ask(
        warm_jar,
        """
import json, os
print(json.dumps({fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0]
                  for fd in map(str, range(2000)) if os.path.lexists(f"/proc/self/fd/{fd}")}))
""",
    )
    assert set(found.values()) <= {"/dev/null", "pipe", "socket"}
    assert len([kind for kind in found.values() if kind == "socket"]) == 1  # the channel
    files = "import os; print([n for n in ('zygote.py', 'zygote.so') if os.path.exists('/run/belljar/' + n)])"
    assert python(warm_jar, files).stdout == "[]\n"


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
def test_the_server_can_be_given_no_descriptor_to_drop(warm_jar):
    """Whoever drops the last copy of such a connection waits for it: that must not be the server."""
    assert python(warm_jar, HANDOVER, timeout=5).stdout == "BrokenPipeError\n"
    assert python(warm_jar, "print(1)").stdout == "1\n"


LOOK = "import ctypes, os; c = ctypes.CDLL(None); c.getenv.restype = ctypes.c_char_p\n"


def test_the_environment_of_a_session_is_that_of_its_kernel(warm_jar):
    session = warm_jar.tool("start_session", env={"COLOUR": "blue", "EMPTY": ""})["session_id"]
    check_made(warm_jar, session)
    code = (
        LOOK + "os.environ['COLOUR'], os.environ['EMPTY'], c.getenv(b'COLOUR'), os.environ['HOME']"
    )
    assert python(warm_jar, code, session).said["result"] == "('blue', '', b'blue', '/workspace')"
    shell = "import subprocess; subprocess.getoutput('echo $COLOUR $MPLBACKEND')"
    assert python(warm_jar, shell, session).said["result"] == "'blue agg'"
    other = python(warm_jar, "import os; 'COLOUR' in os.environ")
    assert other.said["result"] == "False"


def test_what_an_interpreter_reads_at_its_start_gets_it_a_new_one(warm_jar):
    session = warm_jar.tool("start_session", env={"PYTHONUTF8": "0", "PYTHONHASHSEED": "0"})[
        "session_id"
    ]
    assert not is_forked(warm_jar, session)
    first = python(warm_jar, "hash('x')", session).said["result"]
    session = warm_jar.tool("start_session", env={"PYTHONHASHSEED": "0"})["session_id"]
    assert python(warm_jar, "hash('x')", session).said["result"] == first


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


def test_no_two_fresh_sandboxes_draw_the_same(warm_jar):
    drawn = [ask(warm_jar, SEEDS) for _ in range(FRESH)]
    assert not warm_jar.has_libraries or "numpy legacy" in drawn[0]
    for kind in drawn[0]:
        assert len({str(seeds[kind]) for seeds in drawn}) == FRESH, kind


CHANGE_OLD = """
import glob
for path in glob.glob("**/old.txt", recursive=True):
    open(path, "a").write("2")
"""


@zygote_only
@pytest.mark.parametrize(
    "before, olds",
    [
        ("true", []),
        ("echo 1 >old.txt", ["old.txt"]),
        ("mkdir -p a/b; echo 1 >a/b/old.txt", ["a/b/old.txt"]),
        ("echo 1 >x; rm x", []),
    ],
)
def test_what_was_in_the_workspace_before_its_first_cell_is_not_its_own(warm_jar, before, olds):
    """Whether there was anything a forked kernel sees without a list of it."""
    session = warm_jar.execute(before, "bash").session
    run = python(warm_jar, "print(open('new.txt', 'w').write('1'))", session)
    assert [file["name"] for file in run.said["files"]] == ["new.txt"], run
    run = python(warm_jar, CHANGE_OLD, session)
    assert [file["name"] for file in run.said["files"]] == olds, run
    assert is_forked(warm_jar, session)
    warm_jar.close_session(session)


def test_a_new_kernel_of_the_same_sandbox_draws_anew(warm_jar):
    session = python(warm_jar, "1").session
    drawn = []
    for _ in range(3):
        drawn.append(ask(warm_jar, SEEDS, session))
        assert python(warm_jar, "import os; os._exit(0)", session).outcome == "kernel_died"
    warm_jar.close_session(session)
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
def test_work(warm_jar, name):
    run = python(warm_jar, WORK[name])
    assert run.outcome == "ok", run
    check_made(warm_jar, run.session)
    warm_jar.close_session(run.session)


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
def test_ends_are_told_as_for_a_started_kernel_and_the_next_is_forked_again(
    warm_jar, code, outcome
):
    run = python(warm_jar, code)
    assert run.outcome == outcome
    with open_jar("--no-zygote", warm=False) as other:
        assert python(other, code).error == run.error
    assert is_forked(warm_jar, run.session)
    warm_jar.close_session(run.session)


def test_the_first_cell_can_be_interrupted(warm_jar):
    run = python(warm_jar, "import time\nprint('begun')\ntime.sleep(100)", timeout=1)
    assert (run.outcome, run.stdout) == ("timeout", "begun\n")
    check_made(warm_jar, run.session)
    warm_jar.close_session(run.session)


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
def test_it_dies_of_its_own_memory_limit(warm_jar):
    if "memory_limit" not in warm_jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    before = zygotes(warm_jar)
    run = python(warm_jar, "b = b'1' * (900 << 20)")
    assert run.outcome == "memory_limit"
    assert is_forked(warm_jar, run.session)
    assert zygotes(warm_jar) == before
    warm_jar.close_session(run.session)


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
def test_without_a_cgroup_its_data_is_bounded_and_what_was_frozen_is_none(warm_jar):
    if "memory_limit" in warm_jar.enforced():
        pytest.skip("a cgroup bounds its memory here")
    assert ask(warm_jar, BOUND) == [True, True, False]


def test_many_at_once(warm_jar):
    waiting = [warm_jar.begin(f"x = {n}; x * 2", "python") for n in range(30)]
    runs = [one.run(SLOW) for one in waiting]
    assert [run.said["result"] for run in runs] == [str(2 * n) for n in range(30)]
    for run in runs:
        warm_jar.close_session(run.session)
