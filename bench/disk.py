"""Measures what files on disk cost a run, beside the same run in a session that lives in memory.

The two servers take turns, so that whatever else the machine does falls on both.
"""

import contextlib
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import sandboxes  # noqa: E402

FLAGS = ["--no-packages-enabled", "--no-zygote", "--workspace-save-timeout", "5m"]
LONG = 300
# What a run does, what was there before, and how often it is done in a round.
RUNS = (
    ("changes nothing, 1 file there", "true", "echo x >f", 20),
    (
        "changes nothing, 1,000 files there",
        "true",
        "for i in $(seq 1000); do echo $i >f$i; done",
        20,
    ),
    ("changes 1 small file of 1,000", "date +%N >f1", None, 20),
    ("changes 10 MB", "head -c 10000000 /dev/urandom >big", None, 2),
)
BACK = (
    ("1 small file", "echo x >f"),
    ("1,000 small files", "for i in $(seq 1000); do echo $i >f$i; done"),
    ("100 MB in one file", "head -c 100000000 /dev/urandom >f"),
)


def run(jar, code, session=None):
    """Milliseconds, and the session."""
    begin = time.perf_counter()
    done = jar.execute(code, session=session, wait=LONG)
    took = 1000 * (time.perf_counter() - begin)
    assert done.outcome == "ok" and "[note]" not in done.text, done.text
    return took, done.session


def measure_runs(servers, rounds):
    sessions = [None] * len(servers)
    for name, code, before, times in RUNS:
        if before:
            sessions = [run(jar, before, one)[1] for jar, one in zip(servers, sessions)]
        took = [[] for _ in servers]
        for _ in range(rounds):
            for jar, session, all_of_it in zip(servers, sessions, took):
                all_of_it += [run(jar, code, session)[0] for _ in range(times)]
        memory, disk = map(statistics.median, took)
        yield [name, f"{memory:.2f}", f"{disk:.2f}", f"{disk - memory:.2f}"]


def measure_back(start, rounds):
    for name, code in BACK:
        took = []
        with start() as jar:
            _, session = run(jar, code)
        for _ in range(rounds):
            with start() as jar:
                fresh, _ = run(jar, "true")
                took.append(run(jar, "true", session)[0] - fresh)
        yield [name, f"{statistics.median(took):.2f}"]


def measure(table, rounds=5):
    place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bench-"))

    def on_disk():
        return sandboxes.Jar(*FLAGS, "--workspace", "disk", "--workspace-dir", place / "disk")

    try:
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(sandboxes.Jar(*FLAGS)), stack.enter_context(on_disk())]
            rows = list(measure_runs(servers, rounds))
        back = list(measure_back(on_disk, rounds))
    finally:
        shutil.rmtree(place)
    return "\n\n".join(
        [
            table(["a bash run that", "memory ms", "disk ms", "more"], rows),
            table(["the first run of a session that comes back with", "ms more"], back),
        ]
    )
