"""What a cell can see of the life of its kernel before it, as JSON: two kernels that should be alike say the same."""

TRACES = """
import gc, json, linecache, logging, os, random, signal, sys, threading, warnings
np, pd, plt = map(sys.modules.get, ("numpy", "pandas", "matplotlib.pyplot"))
def registries():
    return [name for name, module in sorted(sys.modules.items())
            if "__warningregistry__" in getattr(module, "__dict__", ())]
def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
        except OSError:  # that of the list itself
            pass
    return found
def frames():
    return [str(type(x)) for x in gc.get_objects() if type(x).__name__ in ("DataFrame", "Series", "Figure")]
print(json.dumps({
    "names": sorted(set(globals()) - {"np", "pd", "plt"}), "In": In, "Out": Out, "last": [_, __, ___],
    "cells": [name for name in linecache.cache if name.startswith("<cell")],
    "modules": sorted(sys.modules), "path": sys.path, "argv": sys.argv, "finders": len(sys.meta_path),
    "environment": dict(os.environ), "directory": [os.getcwd(), _dh], "umask": os.umask(0o22),
    "files": [sorted(os.listdir(place)) for place in (".", os.environ.get("TMPDIR", "/tmp"))],
    "descriptors": descriptors(), "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    "threads": [[t.name for t in threading.enumerate()], len(os.listdir("/proc/self/task"))],
    "warnings": [warnings.filters, registries()],
    "logging": [str(logging.root.handlers), logging.root.level],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, len(gc.callbacks), frames()],
    "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in range(1, 32)],
    "sys": [sys.getrecursionlimit(), sys.getswitchinterval(), str(sys.gettrace()), hasattr(sys, "last_value")],
    "random": [random.getstate()[2], np and np.random.get_state()[3:]],
    "numpy": np and [np.geterr(), np.get_printoptions()],
    "pandas": pd and {key: pd.get_option(key) for key in ("display.max_columns", "display.width")},
    "plots": plt and [plt.get_fignums(), plt.get_backend(), dict(plt.rcParams)],
}, default=str, sort_keys=True))
"""
DRAW = """
import random, sys, tempfile, uuid
numpy = sys.modules.get("numpy")
drawn = [random.random(), random.gauss(0, 1), uuid.uuid4().hex, tempfile.mktemp()]
print(*drawn, *([numpy.random.rand(), numpy.random.randn()] if numpy else []))
"""
