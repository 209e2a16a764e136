"""Cells that make too much of something: the reply is bounded, the outcome is named, the server stays
as small as it was, and the session can be used afterwards."""

import os

import belljar
import pytest
from belljar import need
from python_jar import RUNTIME, may_look
from sandboxes import Jar, ordinary_user

pytestmark = pytest.mark.python_only

SLOW = 90
MB = 1 << 20
ANSWER = 5 * MB  # max_answer is 4m; the frame around it adds a little
GROWTH = 24 * MB  # of the server for good; what is kept for a reply comes and goes
PEAK = 64 * MB  # while it works


@pytest.fixture(scope="module", params=["root", "user"])
def jar(request):
    need(belljar.BIN)
    if request.param == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    user = ordinary_user() if request.param == "user" else None
    has_libraries = (RUNTIME / "stamp").exists() and may_look(user)
    flags = ["--runtime", str(RUNTIME)] if has_libraries and not belljar.IN_CONTAINERS else []
    with Jar(*flags, "--memory-limit", "512m", user=user) as made:
        made.has_libraries = has_libraries
        made.execute("1 + 1", "python", wait=SLOW)  # the server has grown as it always does
        yield made


@pytest.fixture
def measured(jar):
    """Runs a cell in a session that has a variable, with the server's memory and the answer
    measured; then runs another, to see that the session lives."""
    session = jar.execute("kept = 42", "python", wait=SLOW).session

    def execute(code, timeout=60, keeps_state=True):
        before, sent = jar.rss(), len(jar.received)
        can_measure = os.geteuid() == 0
        if can_measure:
            jar.forget_peak()
        run = jar.execute(code, "python", session=session, timeout=timeout, wait=SLOW)
        assert len(jar.received) - sent < ANSWER
        if not belljar.is_sanitized():  # which keep freed memory for a while
            assert jar.rss() - before < GROWTH, (before, jar.rss())
            assert not can_measure or jar.peak() - before < PEAK, (before, jar.peak())
        after = jar.execute("globals().get('kept')", "python", session=session, wait=SLOW)
        assert after.said["result"] == ("42" if keeps_state else None), (run, after)
        assert jar.execute("print('alive')", "python", session=session).stdout == "alive\n"
        return run

    yield execute
    jar.close_session(session)


def images(run):
    return [block for block in run.result["content"] if block["type"] == "image"]


PRINTS = {
    "one string": "print('x' * (100 << 20))",
    "many lines": "for i in range(100 << 10): print('y' * 1023)",
    "descriptor": "import os\nblock = b'z' * (1 << 20)\nfor i in range(100): os.write(1, block)",
    "child": "!head -c 104857600 /dev/zero",
    "stderr": "import sys\nfor i in range(100): sys.stderr.write('e' * (1 << 20) + '\\n')",
}


@pytest.mark.parametrize("way", PRINTS)
def test_a_print_of_100_mb_is_stopped_and_named(jar, measured, way):
    if way == "child" and not jar.has_libraries:
        pytest.skip("IPython is not there")
    # More than output_flood: whatever wrote it is killed, the kernel with it.
    run = measured(PRINTS[way], keeps_state=False)
    assert run.outcome == "output_limit" and "64 MiB" in run.error, run
    assert "Python was restarted" in run.text


@pytest.fixture(scope="module")
def patient():
    """A server that lets a run write as much as it likes."""
    need(belljar.BIN)
    with Jar("--output-flood", "1g", "--memory-limit", "512m") as made:
        made.execute("1 + 1", "python", wait=SLOW)
        yield made


@pytest.mark.parametrize("way", [way for way in PRINTS if way != "child"])
def test_a_print_of_100_mb_that_is_allowed_is_cut(patient, way):
    session = patient.execute("kept = 42", "python").session
    before = patient.rss()
    run = patient.execute(PRINTS[way], "python", session=session, timeout=60, wait=SLOW)
    assert run.outcome == "ok" and run.truncated, run
    text = run.stdout + run.stderr
    assert MB // 2 < len(text) < 2 * MB and "bytes left out" in text, len(text)
    if not belljar.is_sanitized():
        assert patient.rss() - before < GROWTH
    assert patient.execute("kept", "python", session=session).said["result"] == "42"
    patient.close_session(session)


REPRS = {
    "string": "'x' * (50 << 20)",
    "bytes": "b'x' * (25 << 20)",
    "own repr": "class Big:\n    def __repr__(self): return 'r' * (50 << 20)\nBig()",
    "display": "class Big:\n    def __repr__(self): return 'r' * (50 << 20)\ndisplay(Big())",
    "html": "class Big:\n    def _repr_html_(self): return '<b>' * (16 << 20)\n"
    "    def __repr__(self): return 'big'\nBig()",
    "error": "raise ValueError('v' * (50 << 20))",
}


@pytest.mark.parametrize("kind", REPRS)
def test_a_repr_of_50_mb_is_cut(jar, measured, kind):
    run = measured(REPRS[kind])
    shown = run.said["result"] or run.stdout or run.error
    if kind == "error":
        assert run.outcome == "error" and run.error.startswith("ValueError: vvv")
    else:
        assert run.outcome == "ok", run
    if kind == "html":
        assert shown == "big" and "text/html larger than max_data_bytes: not sent" in run.text
    elif kind != "error":
        assert "characters left out" in shown
    assert len(shown) < 110_000


def test_a_loop_of_200_figures_sends_the_first(jar, measured):
    if not jar.has_libraries:
        pytest.skip("matplotlib is not there")
    run = measured(
        "import matplotlib.pyplot as plt\n"
        "for i in range(200):\n"
        "    plt.figure(figsize=(3, 2)); plt.plot([i, i + 1])\n"
        "print('done')"
    )
    assert run.outcome == "ok" and run.stdout.startswith("done\n"), run
    assert len(images(run)) == 20
    assert "180 × images beyond max_images: not sent" in run.text


def test_200_figures_that_are_shown_one_by_one_are_bounded(jar, measured):
    if not jar.has_libraries:
        pytest.skip("matplotlib is not there")
    run = measured(
        "import matplotlib.pyplot as plt\n"
        "for i in range(200):\n"
        "    plt.figure(figsize=(3, 2)); plt.plot([i, i + 1]); plt.show()"
    )
    assert run.outcome == "ok" and len(images(run)) == 20, run
    assert "180 × images beyond max_images: not sent" in run.text


def test_large_figures_are_bounded_by_bytes(jar, measured):
    if not jar.has_libraries:
        pytest.skip("matplotlib is not there")
    run = measured(
        "import numpy as np, matplotlib.pyplot as plt\n"
        "for i in range(8):\n"
        "    plt.figure(figsize=(12, 12)); plt.imshow(np.random.rand(1200, 1200, 3).astype('f4'))"
    )
    assert run.outcome == "ok" and run.truncated, run
    assert sum(len(image["data"]) for image in images(run)) < 3 * MB


ALLOCATIONS = {
    "bytes": "x = b'x' * (4 << 30)",
    "list": "x = [0] * (4 << 27)",
    "growing": "x = []\nwhile True: x.append(bytes(range(256)) * 4096)",
    "numpy": "import numpy\nx = numpy.ones(4 << 27)",
    "child": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', \"x = b'x' * (4 << 30)\"], check=True)",
}


@pytest.mark.parametrize("way", ALLOCATIONS)
def test_an_allocation_of_4_gb_hits_the_limit(jar, measured, way):
    if way == "numpy" and not jar.has_libraries:
        pytest.skip("numpy is not there")
    enforced = "memory_limit" in jar.enforced()
    # By the sum of all processes the kernel is killed; by each process it sees a MemoryError.
    killed = enforced and way != "child"
    run = measured(ALLOCATIONS[way], keeps_state=not killed)
    if enforced:
        assert run.outcome == "memory_limit" and "512 MiB" in run.error, run
    else:
        assert run.outcome == "error", run
    assert ("Python was restarted" in run.text) == killed


def test_the_server_is_as_small_after_a_hundred_of_them(jar):
    if belljar.is_sanitized():
        pytest.skip("sanitizers keep freed memory")
    session = jar.execute("kept = 42", "python").session
    cells = ("print('x' * 3_000_000)", "'x' * 3_000_000", "raise ValueError('v' * 3_000_000)")
    for cell in cells:
        jar.execute(cell, "python", session=session)
    before = jar.rss()
    for number in range(99):
        jar.execute(cells[number % 3], "python", session=session)
    assert jar.rss() - before < 16 * MB, (before, jar.rss())
    jar.close_session(session)


@pytest.mark.parametrize("earlier", (0, 3))
def test_a_failure_is_not_blamed_on_what_happened_before(jar, earlier):
    if "memory_limit" not in jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    session = jar.execute("import subprocess, sys", "python", wait=SLOW).session
    # Counters are read in another way once a session has had some runs.
    for _ in range(earlier):
        assert jar.execute("1", "python", session=session, wait=SLOW).outcome == "ok"
    # Both are sent at once: the second must wait until the first one's counters are known.
    hungry = "subprocess.run([sys.executable, '-c', \"b'x' * (4 << 30)\"]).returncode"
    first = jar.begin(hungry, "python", session=session, timeout=60)
    second = jar.begin("1 / 0", "python", session=session, timeout=60)
    assert first.run(SLOW).said["result"] == "-9"
    run = second.run(SLOW)
    assert (run.outcome, run.error) == ("error", "ZeroDivisionError: division by zero"), run
    run = jar.execute("b'x' * (4 << 30)", "python", session=session, wait=SLOW)
    assert run.outcome == "memory_limit", run
    jar.close_session(session)
