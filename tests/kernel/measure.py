"""What a cell, an error and a fork cost. Run by the interpreter with the libraries:

.cache/runtime/bin/python tests/kernel/measure.py
"""

import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/kernel"))
sys.dont_write_bytecode = True
from driver import Kernel  # noqa: E402

import kernel  # noqa: E402

QUIET = {"files": False}
WORKSPACE = tempfile.mkdtemp()
CELLS = {
    "x = 1 + 1": "x = 1 + 1",
    "1 + 1": "1 + 1",
    "print(1)": "print(1)",
    "[1, 2, 3]": "[1, 2, 3]",
    "list(range(100))": "list(range(100))",
    "error, 2 frames": "def f(): return 1 / 0\nf()",
    "await": "import asyncio\nawait asyncio.sleep(0)",
}


def microseconds(function, times):
    """(least, median, 99th of a hundred)"""
    taken = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        function()
        taken.append((time.perf_counter_ns() - begin) / 1000)
    taken.sort()
    return taken[0], statistics.median(taken), taken[int(len(taken) * 0.99)]


def show(name, least, median, p99):
    line = f"  {name:46} least {least:9.1f}  median {median:9.1f}  p99 {p99:9.1f} µs"
    print(line, file=sys.__stderr__)


def handle(code, options=QUIET):
    return kernel.KERNEL.handle({"op": "execute", "id": 1, "code": code, "options": options})


def measure_cells():
    null = os.open(os.devnull, os.O_RDWR)
    saved = os.dup(1), os.dup(2)
    for fd in (1, 2):
        os.dup2(null, fd)
    kernel.KERNEL.streams = kernel.Streams()
    kernel.KERNEL.workspace = kernel.Workspace(WORKSPACE)
    sys.__stderr__ = os.fdopen(saved[1], "w", buffering=1)
    report = sys.__stderr__
    results = []
    for name, code in CELLS.items():
        results.append((f"own runner: {name}", *microseconds(lambda c=code: handle(c), 2000)))
    results.append(
        (
            "own runner: x = 1 + 1, files, empty workspace",
            *microseconds(lambda: handle("x = 1 + 1", {}), 2000),
        )
    )
    shell = kernel.KERNEL.get_ipython()
    for name, code in CELLS.items():
        times = 50 if "error" in name else 500
        results.append(
            (
                f"IPython run_cell: {name}",
                *microseconds(lambda c=code: shell.run_cell(c, store_history=True), times),
            )
        )
    for fd, old in zip((1, 2), saved):
        os.dup2(old, fd)
    sys.__stderr__ = report
    for result in results:
        show(*result)


def fork_kernel():
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        kernel.serve(theirs.fileno())
    theirs.close()
    session = Kernel.__new__(Kernel)
    session.socket, session.out, session.err = ours, None, None
    session.printed, session.received, session.number = {}, bytearray(), 0
    session.drain = lambda: ("", "")
    return session, pid


def fork_and_run(code):
    session, pid = fork_kernel()
    try:
        outcome = session.run(code, files=False)
        assert outcome.status == "ok", outcome
    finally:
        session.socket.close()
        os.waitpid(pid, 0)


def bare_fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def measure_zygote():
    print("prepare:", kernel.prepare(workspace=WORKSPACE), file=sys.__stderr__)
    show("fork + exit + wait", *microseconds(bare_fork, 200))
    show("fork → print(1) answered → gone", *microseconds(lambda: fork_and_run("print(1)"), 100))
    describe = "import pandas as pd\npd.DataFrame({'a': range(100), 'b': range(100)}).describe()"
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
    for name, code, times in (("describe()", describe, 40), ("plot", plot, 20)):
        show(f"fork → first {name} → gone", *microseconds(lambda c=code: fork_and_run(c), times))
        session, pid = fork_kernel()
        session.run(code, files=False)
        warm = microseconds(lambda c=code, s=session: s.run(c, files=False), times)
        show(f"the same in a session, warm: {name}", *warm)
        session.socket.close()
        os.waitpid(pid, 0)
    session, pid = fork_kernel()
    session.run("1")
    show("round trip x = 1 + 1", *microseconds(lambda: session.run("x = 1 + 1", files=False), 1000))
    show("round trip, with file report", *microseconds(lambda: session.run("x = 1 + 1"), 1000))
    session.socket.close()
    os.waitpid(pid, 0)


if __name__ == "__main__":
    os.chdir(WORKSPACE)
    measure_zygote()
    measure_cells()
