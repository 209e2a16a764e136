"""The memory that kernels have from their zygote: each writes to copies of its own, of few pages, and gives back
what it does not need."""

import os
import pathlib
import time

import pytest
from python_jar import with_runtime
from zygote_jar import (
    ask,
    descendants,
    open_jar,
    python,
    wait_for,
    zygote_only,
    zygotes,
)

pytestmark = pytest.mark.python_only

SCRIBBLE = """
import ctypes, json, string, sys
text = string.ascii_letters
at = id(text) + sys.getsizeof("") - 1
before = text[:3]
ctypes.memset(at, ord("Z"), 3)
print(json.dumps([at, before, text[:3]]))
"""


@zygote_only
def test_what_a_kernel_writes_to_no_other_sees(warm_jar):
    """They are copies of one file, each its own."""
    first, second = ask(warm_jar, SCRIBBLE), ask(warm_jar, SCRIBBLE)
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


def test_its_heap_shrinks_and_grows_like_any_other(warm_jar):
    size = 1000 << 16
    assert ask(warm_jar, GROWING) == [size, size, 320_000, 2 * size - 2000, True]


FILE = "/memfd:belljar-zygote"


def pages_in(smaps, name, *kinds):
    """How many of a kind there are in the mappings of that name."""
    pages, inside = 0, False
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = name in words
        elif inside and words[0].rstrip(":") in kinds:
            pages += int(words[1]) // 4
    return pages


def copied_pages(smaps, name=FILE):
    """Of the file that holds a zygote's memory, those that a child has written to."""
    return pages_in(smaps, name, "Anonymous")


def smaps_of_kernel(jar):
    """Of the only one there is."""
    (pid,) = [pid for pid, name in descendants(jar).items() if name.startswith("python")]
    smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
    if FILE not in smaps:
        pytest.skip("its memory is not in one file")
    return smaps


def pages_of_kernel(jar, *name):
    return copied_pages(smaps_of_kernel(jar), *name)


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


def pages_in_huge_ones(smaps):
    return pages_in(smaps, FILE, "ShmemPmdMapped", "FilePmdMapped")


def small_pages(smaps):
    """Of the file, those that are mapped one by one and not copied."""
    return pages_in(smaps, FILE, "Rss") - pages_in_huge_ones(smaps) - copied_pages(smaps)


@zygote_only
@needs_eyes
def test_an_idle_kernel_has_nothing_mapped_that_it_does_not_use():
    """Else each thread of the kernel's that looks for all users of a huge page finds 512 in each of a thousand kernels,
    and whoever forks has to wait for it."""
    with open_jar(*with_runtime(), "--kernel-pool-size", "0") as jar:
        session = python(jar, DESCRIBE).session
        if pages_in_huge_ones(smaps_of_kernel(jar)) == 0:
            pytest.skip("there are no huge pages here")
        wait_for(lambda: small_pages(smaps_of_kernel(jar)) < 400, "fewer pages than 400")
        assert python(jar, "len(table)", session).said["result"] == "8"


SIGNAL_LATER = """
import signal, time
came = []
signal.signal(signal.SIGALRM, lambda number, frame: came.append(time.monotonic()))
set_at = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, 1)
"""


@zygote_only
def test_a_signal_finds_an_idle_kernel(data_jar):
    """It waits in C by then, and its handler is Python's."""
    session = python(data_jar, SIGNAL_LATER).session
    time.sleep(2.5)
    run = python(data_jar, "len(came) == 1 and 0.9 < came[0] - set_at < 2.2", session)
    assert run.said["result"] == "True", run


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
