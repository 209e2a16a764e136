"""Measures sandboxes: a fresh one that runs `true`, beside bubblewrap and docker in the same run.

Rounds of all kinds take turns, so that whatever else the machine does falls on all of them. The rest
of the output is ratios: they mean something on other machines, too.
"""

import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
for folder in ("tests/e2e", "tests/docker"):
    sys.path.insert(0, str(ROOT / folder))
import belljar  # noqa: E402
import dockerd  # noqa: E402
import sandboxes  # noqa: E402

PROGRAM = pathlib.Path(
    os.environ.get("BENCH_ENGINE", pathlib.Path(belljar.BIN).parent / "bench/bench-engine")
)
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
GAP = 0.05
IN_FLIGHT, POOL = 4, 16
SUSTAINED = "belljar, as fast as the pool is refilled"
BURSTS = (16, 128)
BURST = "belljar, {0} at once that find {0} ready"
RATES = (
    "At once: from the first wish to the last exit status. That sandboxes are removed and others made ahead "
    "comes after it, and is only in the rate at which the pool is refilled."
)


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


# --- the kinds ---------------------------------------------------------------------------------------


def engine(count, in_flight=1, gap=0.0, pool=POOL):
    """Milliseconds of each, and seconds of all."""
    with tempfile.TemporaryDirectory(prefix="belljar-bench-") as state:
        words = [PROGRAM, count, in_flight, int(gap * 1000), pool, state]
        out = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True)
    *times, seconds = map(float, out.stdout.split())
    return [time / 1000 for time in times], seconds


def commands(argv, count, gap=0.0, env=None):
    """The same for a command that is started anew each time."""
    times = []
    begin = time.perf_counter()
    for _ in range(count):
        time.sleep(gap)
        start = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=env)
        times.append((time.perf_counter() - start) * 1000)
    return times, time.perf_counter() - begin


class Mcp:
    """A client over stdio: a new session for each call, cleared afterwards."""

    def __init__(self):
        self.jar = sandboxes.Jar("--pool-size", str(POOL))
        time.sleep(1)

    def run(self, count, gap=0.0):
        times = []
        begin = time.perf_counter()
        for _ in range(count):
            time.sleep(gap)
            start = time.perf_counter()
            run = self.jar.execute("true", "sh")
            times.append((time.perf_counter() - start) * 1000)
            assert run.outcome == "ok", run
            self.jar.close_session(run.session)
        return times, time.perf_counter() - begin

    def stop(self):
        self.jar.stop()


class Docker:
    """A daemon of our own with one image that holds one static program."""

    IMAGE = "bench-true:latest"

    def __init__(self):
        self.engine = dockerd.Dockerd()
        try:
            self.make_image(self.engine.place)
        except BaseException:
            self.stop()
            raise

    def make_image(self, place):
        source, root, tar = place / "true.c", place / "root", place / "root.tar"
        source.write_text("int main(void) { return 0; }\n")
        root.mkdir()
        subprocess.run(["cc", "-O2", "-static", "-o", root / "true", source], check=True)
        subprocess.run(["tar", "-C", root, "-cf", tar, "true"], check=True)
        self.engine.api.import_image(tar, self.IMAGE)

    def run(self, count, gap=0.0):
        words = ["docker", "--host", self.engine.host, "run", "--rm", "--network", "none"]
        return commands([*words, self.IMAGE, "/true"], count, gap)

    def stop(self):
        self.engine.stop()


def try_docker():
    try:
        return Docker(), None
    except dockerd.Unavailable as error:
        return None, f"docker is left out: {error}"


# --- the tables --------------------------------------------------------------------------------------


def measure(table, rounds=5, count=100):
    """Two tables and what was left out, as text."""
    docker, remark = try_docker()
    try:
        return measure_with(docker, remark, table, rounds, count)
    finally:
        if docker:
            docker.stop()


def measure_with(docker, remark, table, rounds, count):
    mcp = Mcp()
    kinds = {
        "belljar, from the pool": lambda n, gap: engine(n, gap=gap),
        "belljar, made on demand": lambda n, gap: engine(n, gap=gap, pool=0),
        "belljar, through MCP stdio": lambda n, gap: mcp.run(n, gap),
    }
    if shutil.which("bwrap"):
        kinds["bwrap --unshare-all true"] = lambda n, gap: commands(BWRAP, n, gap)
    if docker:
        kinds["docker run"] = lambda n, gap: docker.run(max(3, n // 20), gap)
    results, processor = {}, {}
    bursts = {BURST.format(size): size for size in BURSTS}
    rates = {name: [] for name in (SUSTAINED, *bursts, "bwrap --unshare-all true")}
    try:
        for _ in range(rounds):
            for name, run in kinds.items():
                for gap in (0.0, GAP):
                    before = children_cpu()
                    times, seconds = run(count if gap == 0 else count // 2, gap)
                    results.setdefault((name, gap), []).extend(times)
                    processor.setdefault(name, []).append((children_cpu() - before) / len(times))
                    if name == "docker run" and gap == 0:
                        rates.setdefault(name, []).append(len(times) / seconds)
            rates[SUSTAINED].append(20 * count / engine(20 * count, IN_FLIGHT)[1])
            for name, size in bursts.items():
                rates[name].append(burst_rate(size))
            if shutil.which("bwrap"):
                rates["bwrap --unshare-all true"].append(parallel_rate(BWRAP, count))
    finally:
        mcp.stop()
    parts = [times_table(table, kinds, results, processor), rates_table(table, rates), RATES]
    return "\n\n".join(parts + ([remark] if remark else []))


def burst_rate(size, times=5):
    """While the pool lasts: what a client sees that wants several at once."""
    bursts = (engine(size, in_flight=size, pool=size) for _ in range(times))
    return statistics.median(size / seconds for _, seconds in bursts)


def parallel_rate(argv, count):
    """Commands a second, as many at once as there are processors."""
    begin = time.perf_counter()
    loop = f"for i in $(seq {count}); do {' '.join(argv)}; done"
    workers = [subprocess.Popen(["sh", "-c", loop]) for _ in range(os.cpu_count())]
    for worker in workers:
        assert worker.wait() == 0
    return count * len(workers) / (time.perf_counter() - begin)


def children_cpu():
    """Milliseconds of processor time of everything that has been started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def times_table(table, kinds, results, processor):
    """Processor time is what other load changes least. It is unknown where a daemon does the work."""
    rows = []
    for name in kinds:
        known = name.startswith("bwrap") or "MCP" not in name and "docker" not in name
        cells = [name, f"{statistics.median(processor[name]):.2f}" if known else ""]
        for gap in (0.0, GAP):
            times = results[name, gap]
            median = statistics.median(times)
            pooled = statistics.median(results["belljar, from the pool", gap])
            cells += [f"{median:.2f}", f"{percentile(times, 0.99):.2f}", f"{median / pooled:.1f}×"]
        rows.append(cells)
    head = ["a fresh sandbox runs true", "cpu ms", "p50 ms", "p99 ms", "÷ pool"]
    return table([*head, "50 ms apart: p50", "p99", "÷ pool "], rows)


def rates_table(table, rates):
    rows = []
    ours = statistics.median(rates[SUSTAINED])
    for name, values in rates.items():
        if values:
            rate = statistics.median(values)
            rows.append([name, f"{rate:,.0f}", f"{ours / rate:.1f}×"])
    return table([f"sandboxes a second, {os.cpu_count()} cores", "rate", "belljar ÷ it"], rows)
