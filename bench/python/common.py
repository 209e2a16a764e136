"""What the parts of this benchmark share: where things are, the cells, how runs are timed."""

import contextlib
import os
import pathlib
import time

import belljar

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(
    os.environ.get("BENCH_KERNEL", pathlib.Path(belljar.BIN).parent / "bench/bench-kernel")
)
RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", ROOT / ".cache/runtime")).resolve()
PYTHON = RUNTIME / "bin/python"

GAP = 0.05  # seconds between requests that come one by one
GAPS = (0.0, GAP)

PRELOAD = ("numpy", "pandas", "matplotlib.pyplot", "IPython")
IMPORTS = f"import {', '.join(PRELOAD)}"
CELLS = {
    "print": "print(1)",
    # Of two columns: that takes plain Python as long as the goals allow for, which do not say of how many they are.
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
