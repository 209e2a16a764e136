"""Measures sandboxes in containers: Python's first and next results, beside docker run and docker exec.

A dockerd of our own, one image (`belljar image build`), and rounds of all kinds in turn, so that
whatever else the machine does falls on all of them.
"""

import contextlib
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
for folder in ("tests/e2e", "tests/docker"):
    sys.path.insert(0, str(ROOT / folder))
import dockerd  # noqa: E402
import images  # noqa: E402
import sandboxes  # noqa: E402

from engine import percentile  # noqa: E402

CODE = "print(1)"
IMPORTS = "import numpy, pandas, matplotlib.pyplot; print(1)"
POOL = 4
LONG = 120


class Ours:
    """A server with the docker engine. `pool`: 0 makes every sandbox on demand."""

    def __init__(self, engine, image, pool=POOL):
        flags = ["--engine", "docker", "--docker-image", image]
        flags += ["--pool-size", str(pool)] if pool else ["--no-pool-enabled"]
        self.jar = sandboxes.Jar(*flags, env={"DOCKER_HOST": engine.host})
        try:
            self.session = self.jar.execute(CODE, "python", wait=LONG).session
        except BaseException:
            self.close()
            raise

    def fresh(self, code):
        took, run = timed(lambda: self.jar.execute(code, "python", wait=LONG))
        check(run)
        self.jar.close_session(run.session)
        return took

    def warm(self, code):
        took, run = timed(lambda: self.jar.execute(code, "python", self.session, wait=LONG))
        check(run)
        return took

    def close(self):
        self.jar.stop()


class Theirs:
    """The docker command: a container for each run, or one that is always there."""

    def __init__(self, engine, image):
        self.docker = ["docker", "--host", engine.host]
        self.image = image
        words = ["run", "--detach", "--network", "none", image, "sleep", "infinity"]
        self.container = self.call(*words).strip()

    def call(self, *words):
        done = subprocess.run([*self.docker, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def run(self, code):
        words = ["run", "--rm", "--network", "none", self.image, "python3", "-c", code]
        return self.time(words)

    def execute(self, code):
        return self.time(["exec", self.container, "python3", "-c", code])

    def time(self, words):
        took, said = timed(lambda: self.call(*words))
        assert said == "1\n", said
        return took

    def close(self):
        self.call("rm", "--force", self.container)


def timed(work):
    begin = time.perf_counter()
    result = work()
    return (time.perf_counter() - begin) * 1000, result


def check(run):
    assert run.outcome == "ok" and run.stdout == "1\n", run


def rounds_of(kinds, rounds, gap):
    """Milliseconds of each kind. The pause is what the pool needs to fill again."""
    results = {}
    for _ in range(rounds):
        for name, (count, run, code) in kinds.items():
            for _ in range(count):
                results.setdefault(name, []).append(run(code))
                if name.startswith("belljar, fresh"):
                    time.sleep(gap)
    return results


def measure_with(engine, table, rounds):
    image = images.default(engine)
    with contextlib.ExitStack() as stack:
        pooled = stack.enter_context(contextlib.closing(Ours(engine, image)))
        cold = stack.enter_context(contextlib.closing(Ours(engine, image, pool=0)))
        theirs = stack.enter_context(contextlib.closing(Theirs(engine, image)))
        kinds = {
            "belljar, fresh sandbox from the pool": (5, pooled.fresh, CODE),
            "belljar, the same with numpy, pandas, matplotlib": (5, pooled.fresh, IMPORTS),
            "belljar, warm call": (50, pooled.warm, CODE),
            "belljar, cold: create to first result": (2, cold.fresh, CODE),
            "docker run --rm python3 -c": (2, theirs.run, CODE),
            "docker run, with the imports": (2, theirs.run, IMPORTS),
            "docker exec python3 -c": (3, theirs.execute, CODE),
            "docker exec, with the imports": (2, theirs.execute, IMPORTS),
        }
        time.sleep(5)
        results = rounds_of(kinds, rounds, gap=3.0)
    return result_table(table, results)


def result_table(table, results):
    medians = {name: statistics.median(times) for name, times in results.items()}
    pooled = medians["belljar, fresh sandbox from the pool"]
    rows = []
    for name, times in results.items():
        row = [name, str(len(times)), f"{medians[name]:.2f}", f"{percentile(times, 0.99):.2f}"]
        rows.append([*row, f"{medians[name] / pooled:.1f}×"])
    head = ["print(1) in Python, in containers", "runs", "p50 ms", "p99 ms", "÷ pool"]
    return table(head, rows)


def measure(table, rounds=5):
    try:
        with dockerd.Dockerd() as engine:
            return measure_with(engine, table, rounds)
    except (dockerd.Unavailable, images.Unavailable) as error:
        return f"Containers were not measured: {error}"
