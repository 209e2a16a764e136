"""The zygote: a Python that has imported everything and waits to be copied into sandboxes.

zygote.h says how it is started and what it is told. Nothing of a guest's runs here. Standard library
only; an interpreter that lacks a library of the preload list, or IPython, is fine.
"""

import os
import struct
import sys

DIRECTORY = "/run/belljar"
CONTROL = 3
UNFIT = 2  # enum zygote_event_kind
TEXT = 243
NOT_HIDDEN = 1  # what zygote_serve() leaves to do


KEPT = []  # see fill_gaps()
FILL_MAX = 64 << 20  # bytes


def tell_unfit(why):
    text = why.encode("utf-8", "replace")[:TEXT]
    os.write(CONTROL, struct.pack("=IIi244s", UNFIT, 0, 0, text))


def load_kernel():
    """kernel.py as a module that nobody can import: guests find it nowhere, as after an exec."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("belljar_kernel", f"{DIRECTORY}/kernel.py")
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    return kernel


def load_library():
    import ctypes

    library = ctypes.PyDLL(f"{DIRECTORY}/zygote.so")
    library.zygote_open.restype = ctypes.c_char_p
    library.zygote_serve.argtypes = (ctypes.c_char_p,)
    problem = library.zygote_open()
    if problem:
        raise RuntimeError(problem.decode())
    return library


def let_go_of_files():
    """Children get no descriptor of ours. matplotlib keeps the fonts open that it has drawn with."""
    manager = sys.modules.get("matplotlib.font_manager")
    for cached in vars(manager).values() if manager else ():
        if getattr(cached, "__module__", "") == manager.__name__ and hasattr(cached, "cache_clear"):
            cached.cache_clear()
    import gc

    gc.collect()  # what prepare() has frozen is not looked at
    gc.freeze()


def free_blocks():
    """{size: blocks of it that Python's allocator has free, beside others in use or in pools without any}"""
    fd = os.memfd_create("stats")
    saved = os.dup(2)
    os.dup2(fd, 2)
    try:
        sys._debugmallocstats()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    text = os.pread(fd, 1 << 20, 0).decode()
    os.close(fd)
    blocks = {}
    for line in text.splitlines():
        numbers = line.split()  # class, size, pools, blocks in use, blocks free
        if len(numbers) == 5 and all(word.isdigit() for word in numbers):
            blocks[int(numbers[1])] = int(numbers[4])
        elif "unused pools" in line:
            pools, size = int(numbers[0]), int(numbers[4])
            blocks[512] = blocks.get(512, 0) + pools * (size // 512)
    return blocks


def fill_gaps():
    """Take what is free between objects that are there to stay.

    Objects come and go while modules are imported, and leave gaps everywhere. A child would fill them, and copy
    a page of 4 KiB, in a huge page that is split for it, for a few bytes each. With no gap left it gets a
    fresh piece of memory for all of them.
    """
    fillers = {16: object, 32: lambda: float(1)}
    for size in range(48, 513, 16):
        fillers[size] = lambda size=size: bytes(size - 33)
    try:
        blocks = free_blocks()
    except (OSError, AttributeError, ValueError, IndexError):  # then children are dearer
        return []
    if sum(size * count for size, count in blocks.items()) > FILL_MAX:
        return []
    kept = []
    for size, count in sorted(blocks.items()):
        if size in fillers:
            kept.append([fillers[size]() for _ in range(count)])
    return kept


def open_files():
    """What somebody has kept open all the same; children will find it closed."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # that of the list itself
            continue
        if name.startswith("/") and name != os.devnull:
            names.append(name)
    return names


def be_ready(modules):
    """Everything that can be done once. Returns the kernel, the library, and words for the log."""
    import ctypes
    import signal

    library = load_library()
    kernel = load_kernel()
    report = kernel.prepare(modules)
    let_go_of_files()
    states = find_states(kernel)
    if states:
        library.zygote_seed(*map(ctypes.c_void_p, states))
    if report["threads"] != 1:
        raise RuntimeError(f"{report['threads']} threads are left after the imports")
    # Interrupts.listen() lets it in.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    words = ", ".join(report["imported"]) or "nothing"
    words += f" in {report['seconds']:.1f} s"
    if report["missing"]:
        words += "; not there: " + ", ".join(report["missing"])
    if open_files():
        words += "; files left open: " + ", ".join(open_files())
    KEPT.extend(fill_gaps())
    return kernel, library, words.encode()[:TEXT], bool(states)


def find_states(kernel):
    """Where random.random() and numpy.random.rand() keep their state, for the library to fill: 624 words
    and a position, which differ in order. 0: there is none. None: not where we think, so it is left to
    Python, which touches a hundred pages for it."""
    import ctypes
    import random

    address = id(random._inst) + object.__basicsize__
    words = random.getstate()[1]
    if ctypes.string_at(address, 2500) != struct.pack("=I624I", words[624], *words[:624]):
        return None
    if kernel.NUMPY_STATE is None:
        return None if "numpy.random" in sys.modules else (address, 0)
    return address, kernel.NUMPY_STATE


def main():
    try:
        kernel, library, words, seeded = be_ready(tuple(sys.argv[1:]))
    except BaseException as exc:
        tell_unfit(f"{type(exc).__name__}: {exc}")
        return
    todo = library.zygote_serve(words)
    # Whoever comes here is a child, and a guest.
    kernel.serve(CONTROL if todo & NOT_HIDDEN else None, seeded=seeded)


if __name__ == "__main__":
    main()
