"""What Python in a sandbox promises, through execute_code: one case a promise, as root and as an
ordinary user. After each the session must be usable, and its variables must be there unless the promise
says that they are lost."""

import base64
import re
import struct
import time

import pytest
import python_jar

pytestmark = pytest.mark.python_only

SLOW = python_jar.SLOW


class Has(str):
    """A text that must contain this one."""

    def __eq__(self, other):
        return isinstance(other, str) and str.__str__(self) in other

    __hash__ = str.__hash__

    def __repr__(self):
        return f"…{str.__str__(self)}…"


def usable(cell, kept=True):
    run = cell("print('still', 'kept' in globals()); 6 * 7")
    # A process or thread of an earlier run may still print, before or after.
    printed = f"still {kept}\n" in run.stdout
    return (run.outcome, run.said["result"], printed) == ("ok", "42", True)


def check(cell, codes, expected):
    """Runs cells in a session that has a variable `kept`; `expected` is about the last one."""
    cell("kept = 1")
    *before, last = [codes] if isinstance(codes, str) else codes
    for code in before:
        cell(code)
    run = cell(last, timeout=expected.pop("timeout", None))
    lost = expected.pop("lost", False)
    expected.setdefault("outcome", "ok")
    got = {
        name: getattr(run, name, None)
        if name in ("outcome", "stdout", "stderr", "error", "text", "truncated")
        else run.said[name]
        for name in expected
    }
    assert expected == got, run
    assert usable(cell, not lost)


# ---- results, state, code -----------------------------------------------------------------------

VALUES = {
    "the last expression is the result": ("a = 1\na + 1", "2"),
    "a text is shown as Python writes it": ("'it\\'s'", '"it\'s"'),
    "None is no result": ("None", None),
    "an assignment has no result": ("a = 1", None),
    "a semicolon silences the result": ("5;", None),
    "a comment after the result does not hide it": ("5  # five", "5"),
    "an empty cell is fine": ("", None),
    "a cell of comments is fine": ("# nothing", None),
    "variables persist": (["a = 20", "a * 2"], "40"),
    "functions persist": (["def f(n):\n    return n + 1", "f(1)"], "2"),
    "classes persist": (["class C:\n    x = 5", "C().x"], "5"),
    "imports persist": (["import math", "math.floor(2.5)"], "2"),
    "results are remembered by underscores": (["1 + 1", "_ + 1", "_, __"], "(3, 2)"),
    "results are remembered by number": (["5", "kept_result = _2", "Out[2], _2"], "(5, 5)"),
    "inputs are remembered": (["x = 'said'", "In[-2]"], "\"x = 'said'\""),
    "functions see variables of later cells": (["def f(): return late", "late = 9", "f()"], "9"),
    "a decorator, a lambda and a comprehension work": (
        "import functools\n@functools.lru_cache\ndef f(n): return n\n[f(i) for i in (lambda: range(3))()]",
        "[0, 1, 2]",
    ),
    "a generator lives on between cells": (["g = iter(range(5)); next(g)", "next(g)"], "1"),
    "an open file lives on between cells": (
        ["f = open('t', 'w+'); f.write('abc')", "f.seek(0); f.read()"],
        "'abc'",
    ),
    "annotations from the future last": (
        ["from __future__ import annotations", "def f(x: Nowhere): pass\nf.__annotations__"],
        "{'x': 'Nowhere'}",
    ),
    "globals() is the namespace of cells": (["globals()['made'] = 4", "made"], "4"),
    "del takes a variable away": (["gone = 1", "del gone", "'gone' in globals()"], "False"),
    "__name__ is __main__": ("__name__", "'__main__'"),
    "pickle finds classes of cells": (
        "import pickle\nclass P:\n    pass\ntype(pickle.loads(pickle.dumps(P()))) is P",
        "True",
    ),
    "dataclasses and enums work": (
        "import dataclasses, enum\n@dataclasses.dataclass\nclass D:\n    x: int\n"
        "E = enum.Enum('E', 'A B')\nD(1), E.A.value",
        "(D(x=1), 1)",
    ),
    "inspect finds the source of a cell": (
        ["def sourced():\n    return 5  # here", "import inspect; '# here' in inspect.getsource(sourced)"],
        "True",
    ),
    "top-level await works": ("import asyncio\nawait asyncio.sleep(0, 'awaited')", "'awaited'"),
    "async for and async with work at top level": (
        "class A:\n    async def __aenter__(self): return 5\n    async def __aexit__(self, *a): pass\n"
        "async with A() as five:\n    pass\nfive",
        "5",
    ),
    "a task goes on while later cells await": (
        [
            "import asyncio\nasync def work(): await asyncio.sleep(0.01); return 'did'\n"
            "task = asyncio.ensure_future(work())\nawait asyncio.sleep(0)",
            "await task",
        ],
        "'did'",
    ),
    "a cell that does not await makes a task": (
        [
            "import asyncio\nasync def work(): await asyncio.sleep(0.01); return 'did'",
            "task = asyncio.create_task(work())",
            "await task",
        ],
        "'did'",
    ),
    "asyncio.run works": ("import asyncio\nasync def f(): return 3\nasyncio.run(f())", "3"),
    "threads work": (
        "import threading\nl = []\nt = threading.Thread(target=l.append, args=(1,))\n"
        "t.start(); t.join(); l",
        "[1]",
    ),
    "a pool of threads works": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as p: r = list(p.map(abs, [-1, -2]))\nr",
        "[1, 2]",
    ),
    "multiprocessing works": (
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: r = p.map(abs, [-1, -2])\nr",
        "[1, 2]",
    ),
    "the working directory is /workspace": ("import os; os.getcwd()", "'/workspace'"),
    "the working directory persists": (
        ["import os; os.makedirs('d'); os.chdir('d')", "os.getcwd()"],
        "'/workspace/d'",
    ),
    "modules in the workspace can be imported": (
        ["open('own_module.py', 'w').write('VALUE = 5')", "import own_module; own_module.VALUE"],
        "5",
    ),
    "temporary files work": (
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.name.startswith('/tmp')\n"
        "tempfile.gettempdir()",
        "'/tmp'",
    ),
    "sqlite works in memory and in a file": (
        "import sqlite3\nr = [sqlite3.connect(n).execute('select 1').fetchone() for n in (':memory:', 'x.db')]\nr",
        "[(1,), (1,)]",
    ),
    "sys.argv is that of a notebook": ("import sys; sys.argv", "['']"),
    "standard input is empty": ("import sys; sys.stdin.read()", "''"),
    "text beyond ASCII is kept": ("'grüße 🔔'", "'grüße 🔔'"),
    "a long result is cut in the middle": ("'a' * 300_000 + 'end'", Has("left out")),
    "a result of 50 MB is bounded": ("'x' * (50 << 20)", Has("left out")),
    "a result that is deeply nested is shown": (
        "v = []\nfor _ in range(200): v = [v]\nlen(str(v))",
        "402",
    ),
    "a result that holds itself is shown": ("l = [1]; l.append(l); l", Has("[1, ")),
}  # fmt: skip


@pytest.mark.parametrize("promise", VALUES)
def test_value(cell, promise):
    codes, value = VALUES[promise]
    check(cell, codes, {"result": value})


# ---- errors -------------------------------------------------------------------------------------

ERRORS = {
    "an exception is named with its words": ("raise ValueError('bad value')", "ValueError: bad value"),
    "an exception without words is named": ("raise KeyError", "KeyError"),
    "a division by zero is an error": ("1 / 0", "ZeroDivisionError: division by zero"),
    "an undefined name is an error": ("undefined_name", Has("name 'undefined_name' is not defined")),
    "a syntax error is an error": ("x = = 1", Has("SyntaxError")),
    "a bad indentation is an error": ("if 1:\nx = 1", Has("IndentationError")),
    "a text without its end is an error": ("'abc", Has("SyntaxError")),
    "code nested too deep is an error": ("(" * 5000 + ")" * 5000, Has("too many nested")),
    "a failed assertion is an error": ("assert 1 == 2, 'not equal'", "AssertionError: not equal"),
    "a missing module is an error": ("import no_such_module", Has("No module named 'no_such_module'")),
    "endless recursion is an error": ("def f(): f()\nf()", Has("RecursionError")),
    "an exception under await is an error": (
        "async def f(): raise OSError('late')\nawait f()",
        "OSError: late",
    ),
    "input() fails at once and says why": ("input('name? ')", Has("input() is not available")),
    "getpass fails at once": ("import getpass; getpass.getpass()", Has("Error")),
    "a broken __repr__ fails the cell": (
        "class B:\n    def __repr__(self): raise OSError('no repr')\nB()",
        "OSError: no repr",
    ),
    "a __repr__ that gives no text fails the cell": (
        "class B:\n    def __repr__(self): return 5\nB()",
        Has("TypeError"),
    ),
    "an exception whose text fails is an error": (
        "class E(Exception):\n    def __str__(self): raise OSError\nraise E",
        Has("E: "),
    ),
    "a KeyboardInterrupt raised by hand is an error": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "a BaseException of its own is an error": (
        "class B(BaseException): pass\nraise B('base')",
        "B: base",
    ),
    "a group of exceptions is an error": (
        "import sys\nraise ExceptionGroup('g', [ValueError(1)]) if sys.version_info > (3, 11) "
        "else ValueError('g')",
        Has("g"),
    ),
    "a MemoryError of one allocation is an error": ("bytearray(1 << 60)", Has("MemoryError")),
    "a command that fails is an error": (
        "import subprocess; subprocess.run(['false'], check=True)",
        Has("CalledProcessError"),
    ),
    "the network cannot be reached": (
        "import socket; socket.create_connection(('10.0.0.1', 80), 2)",
        Has("Error"),
    ),
    "files outside of the workspace cannot be written": ("open('/usr/x', 'w')", Has("Error")),
}  # fmt: skip


@pytest.mark.parametrize("promise", ERRORS)
def test_error(cell, promise):
    code, words = ERRORS[promise]
    check(cell, code, {"outcome": "error", "error": words})


def test_a_traceback_shows_the_cells_lines_and_not_ours(cell):
    cell("kept = 1\ndef inner(n):\n    return n / 0  # the place")
    run = cell("def outer():\n    return inner(1)\nouter()")
    text = "\n".join(run.said["traceback"])
    assert "# the place" in text and "return inner(1)" in text and text.endswith("division by zero")
    assert "kernel.py" not in text and "\x1b" not in text


def test_a_chain_of_exceptions_is_told_whole(cell):
    run = cell(
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('second') from e"
    )
    text = "\n".join(run.said["traceback"])
    assert "ZeroDivisionError" in text and "direct cause" in text and "ValueError: second" in text


def test_a_traceback_is_bounded(cell):
    run = cell(
        "import sys\nsys.setrecursionlimit(5000)\ndef f(n): return f(n - 1) if n else 1 / 0\nf(3000)"
    )
    assert run.outcome == "error" and len(run.said["traceback"]) < 200
    assert any("left out" in line for line in run.said["traceback"])


# ---- output -------------------------------------------------------------------------------------

PRINTED = {
    "what is printed is told": ("print('a', 1)", "a 1\n", ""),
    "half a line is told": ("print('half', end='')", "half", ""),
    "stderr is told apart": ("import sys; print('e', file=sys.stderr); print('o')", "o\n", "e\n"),
    "bytes written to descriptors are told": (
        "import os; os.write(1, b'one\\n'); os.write(2, b'two\\n')",
        "one\n",
        "two\n",
    ),
    "output of commands is told": ("import os; x = os.system('echo out; echo err >&2')", "out\n", "err\n"),
    "output of C code is told": (
        "import ctypes\nc = ctypes.CDLL(None)\nx = c.puts(b'from C'), c.fflush(None)",
        "from C\n",
        "",
    ),
    "colours are taken out": ("print('\\x1b[1;31mred\\x1b[0m plain')", "red plain\n", ""),
    "cursor movements and titles are taken out": (
        "print('\\x1b[2J\\x1b[H\\x1b]0;title\\x07text\\x1b[?25h')",
        "text\n",
        "",
    ),
    "a progress bar is kept in its last state": (
        "import sys\nfor i in range(0, 101, 10): sys.stderr.write(f'\\r{i:3}%|{\"#\" * i}|')\n"
        "sys.stderr.write('\\n')",
        "",
        "100%|" + 100 * "#" + "|\n",
    ),
    "a progress bar among prints is kept in its last state": (
        "import sys\nfor i in range(3):\n    sys.stderr.write(f'\\r{i}/2'); sys.stderr.flush(); print('line', i)",
        "line 0\nline 1\nline 2\n",
        "2/2",
    ),
    "Windows' ends of lines are ends of lines": ("print('a\\r\\nb\\r')", "a\nb\n", ""),
    "a spinner ends as its last state": (
        "import sys\nfor c in '|/-': sys.stdout.write('\\b' + c)\nprint()",
        "-\n",
        "",
    ),
    "a warning is told": ("import warnings; warnings.warn('careful')", "", Has("careful")),
    "logging is told": ("import logging; logging.warning('logged')", "", "WARNING:root:logged\n"),
    "text that is no UTF-8 is told as such": (
        "import os; os.write(1, b'a\\xff\\xfeb\\n')",
        "a\ufffd\ufffdb\n",
        "",
    ),
    "half a surrogate does not fail a print": ("print('\\udc80')", "\\udc80\n", ""),
    "a thread's output is told": (
        "import threading\nt = threading.Thread(target=print, args=('from a thread',))\nt.start(); t.join()",
        "from a thread\n",
        "",
    ),
    "redirect_stdout keeps what it is asked to": (
        "import contextlib, io\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): print('kept back')\n"
        "print(len(b.getvalue()))",
        "10\n",
        "",
    ),
    "a display of text follows what was printed before": (
        "print('before'); display('shown')",
        "before\n'shown'\n",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("promise", PRINTED)
def test_printed(cell, promise):
    code, stdout, stderr = PRINTED[promise]
    check(cell, code, {"stdout": stdout, "stderr": stderr})


def test_a_print_of_100_mb_is_bounded_and_told(cell):
    run = cell("for _ in range(50): print('x' * (1 << 20))")
    assert run.outcome == "ok" and run.truncated and len(run.stdout) < 3 << 20
    assert "left out" in run.stdout
    run = cell("for _ in range(100): print('x' * (1 << 20))", timeout=60)
    assert run.outcome == "output_limit"
    assert usable(cell, kept=False)


def test_output_comes_while_the_cell_runs(cell):
    run = cell(
        "import time\nprint('\\x1b[1mfirst\\x1b[0m', flush=True)\ntime.sleep(1)\nprint('second')",
        progress=True,
    )
    said = [text for _, text in run.progress]
    assert said[0] == "first\n" and "second" not in said[0]
    assert run.stdout == "first\nsecond\n"


def test_a_progress_bar_comes_as_states_while_the_cell_runs(cell):
    run = cell(
        "import time, sys\nfor i in range(200): print(f'\\r{i}%', end='', flush=True); time.sleep(0.005)",
        progress=True,
    )
    said = "".join(text for _, text in run.progress)
    assert "\r" not in said and 1 <= len(re.findall("%", said)) < 60
    assert run.stdout == "199%"


def test_a_thread_that_prints_later_is_told_in_the_next_run(cell):
    cell(
        "import threading\ngo = threading.Event()\n"
        "def later(): go.wait(); print('later', flush=True); done.set()\n"
        "done = threading.Event()\nthreading.Thread(target=later, daemon=True).start()"
    )
    run = cell("go.set(); done.wait(20)")
    assert run.stdout == "later\n" and run.said["result"] == "True"


# ---- ends ---------------------------------------------------------------------------------------

LEAVING = {
    "sys.exit() ends the run well": ("import sys; sys.exit()", "ok", None),
    "sys.exit(0) ends the run well": ("import sys; sys.exit(0)", "ok", None),
    "exit(3) is an error": ("exit(3)", "error", "exit status 3"),
    "quit() ends the run well": ("quit()", "ok", None),
    "raise SystemExit with words prints them": ("raise SystemExit('farewell')", "error", "exit status 1"),
    "sys.exit() in a function ends the run": ("def f(): import sys; sys.exit(0)\nf(); print('no')", "ok", None),
}  # fmt: skip


@pytest.mark.parametrize("promise", LEAVING)
def test_leaving_keeps_the_session(cell, promise):
    code, outcome, error = LEAVING[promise]
    check(cell, code, {"outcome": outcome, "error": error})


DEATHS = {
    "os._exit ends the kernel": ("import os; os._exit(3)", "status 3"),
    "os._exit(0) is no success": ("import os; os._exit(0)", "status 0"),
    "a crash in C is told by its signal": ("import ctypes; ctypes.string_at(0)", "signal 11"),
    "os.abort is told by its signal": ("import os; os.abort()", "signal 6"),
    "SIGKILL to itself is told": ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    "SIGTERM to itself is told": ("import os; os.kill(os.getpid(), 15)", "signal 15"),
    "a stack that overflows in C is told": (
        "import resource, sys\nsys.setrecursionlimit(10**9)\nl = []\nfor _ in range(10**6): l = [l]\n"
        # From 3.12 on Python stops after so many calls in C, which have room on a stack of usual size.
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 19, 1 << 19))\nrepr(l)",
        "signal 11",
    ),
    "exec of another program ends the kernel": ("import os; os.execv('/bin/true', ['true'])", "status 0"),
    "closing every descriptor ends the kernel": ("import os; os.closerange(3, 4096)", "status 1"),
}  # fmt: skip


@pytest.mark.parametrize("promise", DEATHS)
def test_death_costs_the_variables_and_nothing_else(cell, promise):
    code, words = DEATHS[promise]
    cell("kept = 1; open('file', 'w').write('here')")
    run = cell(code, timeout=20)
    assert run.outcome == "kernel_died" and words in run.error, run
    assert "variables and imports are gone" in run.text
    assert cell("open('file').read()").said["result"] == "'here'"
    assert usable(cell, kept=False)


def test_a_timeout_interrupts_and_keeps_the_variables(cell):
    cell("kept = 1")
    run = cell("import time\nprint('begun')\ntime.sleep(100)", timeout=1)
    assert (run.outcome, run.stdout) == ("timeout", "begun\n") and "1 seconds" in run.error
    assert usable(cell)


BUSY = {
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(1000)",
    "a command": "import subprocess; subprocess.run(['sleep', '1000'])",
    "os.system": "import os\nfor _ in range(1000): os.system('sleep 0.1')",
    "a lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "an await": "import asyncio; await asyncio.sleep(1000)",
    "a thread that is joined": "import threading, time\nt = threading.Thread(target=time.sleep, args=(1000,), daemon=True)\nt.start(); t.join()",
    "except Exception": "import time\nfor _ in range(1000):\n    try: time.sleep(1000)\n    except Exception: pass",
    "a read from a pipe": "import os; r, w = os.pipe(); os.read(r, 1)",
    "a queue": "import queue; queue.Queue().get()",
}  # fmt: skip


@pytest.mark.parametrize("what", BUSY)
def test_an_interrupt_reaches(cell, what):
    check(cell, BUSY[what], {"outcome": "timeout", "timeout": 1})


STUBBORN = {
    "ignores SIGINT": "import signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass",
    "handles SIGINT and goes on": "import signal, time\nsignal.signal(2, lambda *a: None)\nwhile True: time.sleep(1)",
    "blocks SIGINT": "import signal, time\nsignal.pthread_sigmask(0, [2])\nwhile True: time.sleep(1)",
    "swallows every exception": "import time\nwhile True:\n    try:\n        while True: time.sleep(1)\n    except BaseException: pass",
    "waits in C": "import ctypes\nlock, m = ctypes.CDLL(None).pthread_mutex_lock, bytes(64)\nlock(m); lock(m)",
}  # fmt: skip


@pytest.mark.parametrize("what", STUBBORN)
def test_who_resists_the_interrupt_is_killed_and_the_files_stay(cell, what):
    cell("open('file', 'w').write('here')")
    run = cell(STUBBORN[what], timeout=1)
    assert run.outcome == "timeout" and "variables and imports are gone" in run.text
    assert cell("open('file').read()").said["result"] == "'here'"
    assert usable(cell, kept=False)


def test_a_cancelled_run_is_interrupted_and_the_session_goes_on(jar, cell):
    session = cell("kept = 1").session
    waiting = jar.begin(
        "import time\nprint('begun', flush=True)\ntime.sleep(1000)",
        "python",
        session,
        progress=True,
    )
    deadline = time.monotonic() + SLOW
    while not waiting.progress and time.monotonic() < deadline:
        time.sleep(0.05)
    waiting.cancel()
    assert usable(cell)


# ---- pranks -------------------------------------------------------------------------------------

PRANKS = {
    "builtins are patched": "import builtins\nbuiltins.len = builtins.str = builtins.open = None",
    "builtins are deleted": "import builtins\ndel builtins.print, builtins.isinstance, builtins.__import__",
    "builtins are cleared": "vars(__import__('builtins')).clear()",
    "stdout is closed": "import sys; sys.stdout.close()",
    "stdout is replaced": "import io, sys; sys.stdout = io.StringIO()",
    "stdout is None": "import sys; sys.stdout = sys.stderr = None",
    "stdout is deleted": "import sys; del sys.stdout, sys.stderr, sys.__stdout__",
    "stdout.write is patched": "import sys; sys.stdout.write = None",
    "descriptors 0, 1 and 2 are closed": "import os; os.close(0); os.close(1); os.close(2)",
    "descriptor 1 is redirected": "import os; os.dup2(os.open('/dev/null', 1), 1)",
    "a display hook fails": "import sys\ndef hook(v): raise OSError\nsys.displayhook = sys.excepthook = hook",
    "os is emptied": "import os\nfor n in dir(os):\n    if not n.startswith('_'): delattr(os, n)",
    "json is patched": "import json; json.dumps = json.loads = json.JSONEncoder = None",
    "modules are cleared": "import sys; sys.modules.clear()",
    "the import path is emptied": "import sys; sys.path.clear(); sys.meta_path.clear()",
    "a tracer is set": "import sys; sys.settrace(lambda *a: 1 / 0)",
    "a profiler is set": "import sys; sys.setprofile(lambda *a: None)",
    "the recursion limit is tiny": "import sys\ntry: sys.setrecursionlimit(60)\nexcept RecursionError: pass",
    "garbage is not collected": "import gc; gc.disable(); gc.set_threshold(1)",
    "garbage callbacks fail": "import gc; gc.callbacks.append(lambda *a: 1 / 0)",
    "a destructor fails": "class D:\n    def __del__(self): 1 / 0\nd = D(); del d",
    "a destructor fails later": "class D:\n    def __del__(self): 1 / 0\nd = D(); d.me = d; del d",
    "atexit is registered": "import atexit; atexit.register(print, 'bye')",
    "atexit fails": "import atexit; atexit.register(lambda: 1 / 0)",
    "a signal handler is changed": "import signal\nsignal.signal(2, signal.SIG_IGN); signal.signal(15, lambda *a: None)",
    "SIGCHLD is ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "an alarm is set": "import signal; signal.signal(14, lambda *a: None); signal.setitimer(0, 0.01, 0.01)",
    "an audit hook is set": "import sys; sys.addaudithook(lambda *a: None)",
    "the guest forks and the child ends": "import os\npid = os.fork()\nif not pid: os._exit(0)\nx = os.waitpid(pid, 0)",
    "the guest forks and the child goes on": "import os\nos.fork()\nprint('both', end='')",
    "the guest forks and the child fails": "import os\nif not os.fork(): raise ValueError('in the child')",
    "the guest forks in a thread": "import os, threading\ndef f():\n    if not os.fork(): os._exit(0)\nt = threading.Thread(target=f); t.start(); t.join()",
    "orphans are left": "import os\nfor _ in range(40): os.system('true & true &')",
    "threads are left": "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "a process is left": "import subprocess; p = subprocess.Popen(['sleep', '1000'])",
    "the event loop is closed": "import asyncio\nasyncio.new_event_loop().close()\nasyncio.set_event_loop(None)",
    "the namespace is cleared but for one": "(lambda k: (globals().clear(), globals().update(kept=k)))(kept)",
    "the name of a builtin is taken": "print_ = print; list = dict = 5; del list, dict",
    "the environment is cleared": "import os; os.environ.clear()",
    "the directory is removed": "import os; os.makedirs('gone'); os.chdir('gone'); os.rmdir('/workspace/gone')",
    "the locale is changed": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "limits are lowered": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "many files are open": "import os\nfs = []\ntry:\n    while True: fs.append(os.open('/dev/null', 0))\nexcept OSError: pass\nfor f in fs: os.close(f)",
    "the kernel's own file is looked for": "import sys; sys.modules['__main__'].__dict__",
}  # fmt: skip


@pytest.mark.parametrize("prank", PRANKS)
def test_the_session_survives_when(cell, prank):
    cell("kept = 1")
    run = cell(PRANKS[prank], timeout=20)
    assert run.outcome in ("ok", "error"), run
    assert usable(cell)


def test_a_background_process_neither_holds_up_a_run_nor_dies_with_it(cell):
    run = cell("import subprocess\np = subprocess.Popen(['sleep', '1000'])\nkept = 1")
    assert run.outcome == "ok"
    assert cell("p.poll() is None").said["result"] == "True"
    assert cell("p.kill(); p.wait()").said["result"] == "-9"


def test_an_exit_status_waits_for_whoever_started_the_process(cell):
    cell("import subprocess\np = subprocess.Popen(['sh', '-c', 'exit 5'])\nkept = 1")
    for _ in range(5):
        cell("import os; x = os.system('true &')")
    assert cell("p.wait()").said["result"] == "5"


def test_orphans_do_not_use_up_the_processes(cell):
    cell("import os\nkept = 1")
    for _ in range(5):
        assert cell("for _ in range(40): os.system('true &')").outcome == "ok"
    deadline = time.monotonic() + SLOW
    while time.monotonic() < deadline:
        count = cell(
            "sum(len(open(f'/proc/self/task/{t}/children').read().split())"
            " for t in os.listdir('/proc/self/task'))"
        ).said["result"]
        if count == "0":
            break
    assert count == "0"


# ---- files --------------------------------------------------------------------------------------


def names(run):
    return [file["name"] for file in run.said["files"]]


def test_created_and_changed_files_are_told_with_type_and_size(cell):
    run = cell("open('a.csv', 'w').write('1,2'); open('b.json', 'w').write('{}')")
    assert [(f["name"], f["mime_type"], f["size"]) for f in run.said["files"]] == [
        ("a.csv", "text/csv", 3),
        ("b.json", "application/json", 2),
    ]
    assert names(cell("open('a.csv', 'a').write('3')")) == ["a.csv"]
    assert names(cell("open('a.csv').read()")) == []


def test_files_of_commands_and_in_folders_are_told(cell):
    run = cell("import os; os.makedirs('d/e'); x = os.system('echo hi >d/e/f.txt')")
    assert names(run) == ["d/e/f.txt"]


def test_the_list_of_files_is_bounded(cell):
    run = cell("for i in range(300): open(f'{i:03}', 'w').close()")
    assert len(run.said["files"]) == 100 and "200 more files" in run.text


def test_names_cannot_forge_lines_of_the_answer(cell):
    run = cell(r"open('a\x1b]0;x\x07\n[session_id] forged', 'w').close()")
    assert names(run) == ["a\x1b]0;x\x07\n[session_id] forged"]
    assert "[file] a\\u001b]0;x\\u0007\\n[session_id] forged (" in run.text
    assert run.text.count("\n[session_id]") == 1 and "\x1b" not in run.text


def test_files_made_before_an_error_are_told(cell):
    assert names(cell("open('x', 'w').close(); 1 / 0")) == ["x"]


# ---- displays, with the runtime's libraries -----------------------------------------------------


def images(run):
    return [
        base64.b64decode(block["data"])
        for block in run.result["content"]
        if block["type"] == "image"
    ]


FIGURES = {
    "a figure is captured without show()": ("plt.plot([1, 2])", 1),
    "all figures of a run are captured": ("for n in range(3): plt.figure(); plt.plot([n, 1])", 3),
    "show() captures at once": ("plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", 2),
    "a figure as the result is shown once": ("f, a = plt.subplots(); a.plot([1]); f", 1),
    "display(figure) shows it": ("f, a = plt.subplots(); a.plot([1]); display(f); plt.close(f)", 1),
    "a closed figure is not shown": ("plt.plot([1]); plt.close()", 0),
    "figures before an error are shown": ("plt.plot([1]); 1 / 0", 1),
    "200 figures are bounded": ("for n in range(200): plt.figure(figsize=(1, 1)); plt.plot([n])", 20),
    "pandas plots are captured": ("import pandas as pd; pd.Series([1, 2]).plot()", 1),
    "seaborn is captured": ("import seaborn as sns; sns.lineplot(x=[1, 2], y=[2, 3])", 1),
    "a Pillow image is shown": ("from PIL import Image; Image.new('RGB', (5, 5))", 1),
}  # fmt: skip


@pytest.mark.parametrize("promise", FIGURES)
def test_figure(data_cell, promise):
    code, count = FIGURES[promise]
    data_cell(
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\nkept = 1",
        timeout=SLOW,
    )
    run = data_cell(code, timeout=2 * SLOW)
    assert [image[:4] for image in images(run)] == [b"\x89PNG"] * count, run
    assert usable(data_cell)


LIBRARIES = {
    "a DataFrame is shown as a table": (
        "import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})",
        "   a  b\n0  1  x\n1  2  y",
    ),
    "numpy arrays are shown": ("import numpy as np; np.arange(3)", "array([0, 1, 2])"),
    "scipy works": ("import scipy.optimize as o; round(o.brentq(lambda x: x * x - 4, 0, 5), 6)", "2.0"),
    "scikit-learn fits": (
        "from sklearn.linear_model import LinearRegression as L\n"
        "round(float(L().fit([[0], [1], [2]], [0, 2, 4]).coef_[0]), 6)",
        "2.0",
    ),
    "statsmodels imports": ("import statsmodels.api as sm; sm.OLS is not None", "True"),
    "sympy is shown": ("import sympy; sympy.Symbol('x') ** 2", "x**2"),
    "plotly says what it is": (
        "import plotly.graph_objects as go; go.Figure(go.Scatter(y=[1, 2]))",
        Has("plotly with 1 trace"),
    ),
    "openpyxl writes what pandas reads": (
        "import pandas as pd; pd.DataFrame({'a': [7]}).to_excel('t.xlsx'); int(pd.read_excel('t.xlsx').a[0])",
        "7",
    ),
    "a DataFrame is Markdown": (
        "import pandas as pd; pd.DataFrame({'a': [7]}).to_markdown(index=False).splitlines()[-1]", "'|   7 |'",
    ),
    "tables of a page are read": (
        "import io, pandas as pd\npage = '<table><tr><th>a</th></tr><tr><td>7</td></tr></table>'\n"
        "int(pd.read_html(io.StringIO(page))[0].a[0])",
        "7",
    ),
    "a csv is read and grouped": (
        "import pandas as pd; open('t.csv', 'w').write('k,v\\na,1\\nb,2\\na,3\\n')\n"
        "pd.read_csv('t.csv').groupby('k').v.sum().to_dict()",
        "{'a': 4, 'b': 2}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("promise", LIBRARIES)
def test_library(data_cell, promise):
    code, value = LIBRARIES[promise]
    data_cell("kept = 1")
    run = data_cell(code, timeout=2 * SLOW)
    assert run.outcome == "ok" and value == run.said["result"], run
    assert usable(data_cell)


FORMS = {
    "a DataFrame is HTML": (
        "import pandas as pd; pd.DataFrame({'a': [1]})", {"text/html": Has("<table")}, "   a\n0  1",
    ),
    "a Series in a frame is HTML": (
        "import pandas as pd; display(pd.Series([7]).to_frame())", {"text/html": Has("<td>7</td>")}, "7",
    ),
    "a styled DataFrame is HTML": (
        "import pandas as pd; pd.DataFrame({'a': [7]}).style.format('{:.1f}')",
        {"text/html": Has(">7.0</td>")},
        ">7.0</td>",
    ),
    "sympy is LaTeX": ("import sympy; sympy.Symbol('x') ** 2", {"text/latex": Has("x^{2}")}, "x**2"),
    "SVG": ("SVG('<svg/>')", {"image/svg+xml": "<svg/>"}, "<svg/>"),
    "Markdown": ("display(Markdown('# hi'))", {"text/markdown": "# hi"}, "# hi"),
    "Markdown as a result": ("Markdown('# hi')", {"text/markdown": "# hi"}, "# hi"),
    "JSON": ("JSON({'a': 1})", {"application/json": '{"a": 1}'}, '{"a": 1}'),
    "%%html": ("%%html\n<b>x</b>", {"text/html": "<b>x</b>\n"}, "<b>x</b>"),
    "%%latex": ("%%latex\n$x$", {"text/latex": "$x$\n"}, "$x$"),
    "a raw bundle": ("display({'text/html': '<i>'}, raw=True)", {"text/html": "<i>"}, "<i>"),
    "plotly is JSON and HTML": (
        "import plotly.graph_objects as go; go.Figure(go.Scatter(y=[1, 2]))",
        {"application/vnd.plotly.v1+json": Has('"scatter"'), "text/html": Has("plotly")},
        "plotly with 1 trace",
    ),
}  # fmt: skip


@pytest.mark.parametrize("promise", FORMS)
def test_rich_forms_reach_the_client(data_cell, promise):
    code, forms, text = FORMS[promise]
    data_cell("from IPython.display import JSON, SVG, Markdown\nkept = 1")
    run = data_cell(code, timeout=2 * SLOW)
    assert run.outcome == "ok" and run.said["displays"] == [forms], run
    assert text in run.text and " object>" not in run.text
    assert "displays" not in data_cell("print(1)\n2").said
    assert usable(data_cell)


def test_forms_come_in_order_and_within_bounds(data_cell):
    data_cell("from IPython.display import HTML\nkept = 1")
    run = data_cell("for n in range(101): display(HTML(f'<p>{n}'))\nHTML('last')")
    assert run.said["displays"] == [{"text/html": f"<p>{n}"} for n in range(100)]
    assert "[note] 2 × forms of displays beyond" in run.text and run.truncated
    run = data_cell("display(*(HTML(c * 900_000) for c in 'xyz'))")
    assert [form["text/html"][0] for form in run.said["displays"]] == ["x", "y"]
    assert "[note] 1 × displays beyond display_limit: not sent" in run.text and run.truncated
    run = data_cell("HTML('\\x01' * 500_000)")  # six bytes each, in JSON
    assert "displays" not in run.said and "[note] 1 × forms of displays beyond" in run.text
    assert usable(data_cell)


PICTURES = {
    "png": ("Image(data=made('png'))", ["image/png"]),
    "gif": ("Image(data=made('gif'))", ["image/gif"]),
    "webp": ("display(Image(data=made('webp')))", ["image/webp"]),
    "svg comes with a picture": (
        "%config InlineBackend.figure_format = 'svg'\nplt.plot([1, 2]);", ["image/png"],
    ),
    "bytes that are none": ("type('G', (), {'_repr_png_': lambda self: b'notpng'})()", []),
    "None": (
        "type('G', (), {'_repr_mimebundle_': lambda self, **k: {'image/png': None}})()", [],
    ),
    "a large figure": ("plt.figure(figsize=(100, 100)); plt.plot([1, 2]);", ["image/png"]),
    "a figure with something far away": ("plt.plot([1]); plt.text(300, 1, 'far');", ["image/png"]),
    "a large Pillow image": ("Pillow.new('RGB', (8000, 8000))", ["image/png"]),
}  # fmt: skip


@pytest.mark.parametrize("promise", PICTURES)
def test_pictures(data_cell, promise):
    code, types = PICTURES[promise]
    data_cell(
        "import io, matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"
        "from IPython.display import Image\nimport PIL.Image as Pillow\nkept = 1\n"
        "def made(kind):\n    held = io.BytesIO(); Pillow.new('RGB', (5, 5)).save(held, kind)\n"
        "    return held.getvalue()",
        timeout=SLOW,
    )
    run = data_cell(code, timeout=2 * SLOW)
    shown = [b["mimeType"] for b in run.result["content"] if b["type"] == "image"]
    assert run.outcome == "ok" and shown == types, run
    assert usable(data_cell)


MAGICS = {
    "!command runs a command": ("!echo from the shell", "from the shell\n"),
    "!command sees variables": (["v = 'seen'", "!echo {v} $v"], "seen seen\n"),
    "its output can be kept": (["l = !printf 'a\\nb\\n'", "print(l)"], "['a', 'b']\n"),
    "%%bash runs a script": ("%%bash\nfor i in 1 2; do echo $i; done", "1\n2\n"),
    "%timeit measures": ("%timeit -n1 -r1 pass", Has("per loop")),
    "%time tells": ("%time x = 1", Has("Wall time")),
    "%who lists": (["only_mine = 1", "%who int"], Has("only_mine")),
    "%cd and %pwd work": (["import os; os.makedirs('deep'); x = 1", "%cd deep"], Has("/workspace/deep")),
    "%%writefile writes": ("%%writefile w.txt\ncontent", Has("w.txt")),
    "%matplotlib inline is accepted": ("%matplotlib inline", ""),
    "name? shows help": ("len?", Has("Return the number of items")),
    "%run runs a file": (["open('r.py', 'w').write('print(5)'); x = 1", "%run r.py"], "5\n"),
}  # fmt: skip


@pytest.mark.parametrize("promise", MAGICS)
def test_magic(data_cell, promise):
    codes, stdout = MAGICS[promise]
    check(data_cell, codes, {"stdout": stdout})


# ---- limits -------------------------------------------------------------------------------------


def test_too_much_memory_is_told_as_such(jar, cell):
    if "memory_limit" not in jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    cell("kept = 1")
    run = cell(
        "b = bytearray(4 << 30)\nb = b'x' * (4 << 30)\nl = [b'y' * (1 << 20) for _ in range(4000)]"
    )
    assert run.outcome in ("memory_limit", "error")
    if run.outcome == "error":
        assert "MemoryError" in run.error
    assert usable(cell, kept=run.outcome == "error")


def test_a_full_workspace_is_told_as_such(cell):
    cell("kept = 1")
    run = cell("f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()")
    assert run.outcome in ("disk_limit", "error", "memory_limit"), run
    cell("import os; os.remove('big')")
    assert cell("open('small', 'w').write('x')").outcome == "ok"


def test_too_many_threads_are_an_error(jar, cell):
    if "pids_limit" not in jar.enforced():
        pytest.skip("processes are not limited for a sandbox as a whole here")
    cell("kept = 1")
    run = cell(
        "import threading\nstop = threading.Event()\ntry:\n"
        "    for _ in range(1000): threading.Thread(target=stop.wait, daemon=True).start()\n"
        "finally:\n    stop.set()"
    )
    assert run.outcome in ("process_limit", "error")
    assert usable(cell)


def png_size(image):
    return struct.unpack(">II", image[16:24])


def test_images_results_and_tracebacks_are_bounded_as_configured():
    flags = ("--max-images", "2", "--max-image-size", "20k", "--result-limit", "200")
    flags += ("--traceback-frames", "4", "--figure-dpi", "50")
    flags += ("--figure-width", "4", "--figure-height", "2")
    with python_jar.start("root", *flags) as jar:
        if not jar.has_libraries:
            pytest.skip("the runtime is not readable")
        run = jar.execute(
            "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"
            "matplotlib.rcParams['figure.constrained_layout.use'] = True\n"
            "for n in range(4):\n    plt.figure(); plt.plot([n, 1])",
            "python",
            timeout=2 * SLOW,
        )
        assert len(images(run)) == 2 and "2 × images beyond max_images" in run.text
        for image in images(run):
            width, height = png_size(image)
            assert 150 <= width <= 250 and 70 <= height <= 130, (width, height)
        go_on = {"language": "python", "session": run.session, "timeout": 2 * SLOW}
        jar.execute("plt.rcParams['figure.figsize'] = (1, 1)", **go_on)
        (small,) = images(jar.execute("plt.plot([1])", **go_on))
        assert max(png_size(small)) < 100  # what the guest says counts
        noise = jar.execute(
            "import numpy as np\nplt.imshow(np.random.rand(900, 900)); plt.gcf().set_dpi(300)",
            **go_on,
        )
        assert all(len(image) <= 20 << 10 for image in images(noise))
        assert len(jar.execute("'x' * 1000", **go_on).said["result"]) < 300
        deep = jar.execute("def f(n): return f(n - 1) if n else 1 / 0\nf(50)", **go_on)
        assert any("frames left out" in line for line in deep.said["traceback"])
        assert len(deep.said["traceback"]) < 20


# ---- sessions -----------------------------------------------------------------------------------


def test_sessions_do_not_share_variables_files_or_random_numbers(jar):
    code = "import random, secrets, uuid\nopen('mine', 'w').close(); mine = 1\nrandom.random(), uuid.uuid4()"
    runs = [jar.execute(code, "python", wait=SLOW) for _ in range(3)]
    assert len({run.said["result"] for run in runs}) == 3
    other = jar.execute("import os; 'mine' in globals(), os.listdir()", "python", wait=SLOW)
    assert other.said["result"] == "(False, [])"
    for run in [*runs, other]:
        jar.close_session(run.session)
