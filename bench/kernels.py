"""Measures Python kernels: the first cell in a live sandbox, forked from the zygote in its three layouts
and started by exec; and what a fork costs the processor.

    .cache/venv/bin/python bench/kernels.py [COUNT]

Needs root, a build and the runtime. `fork` is the time of clone3() in the child that does nothing else, in
ticks of the clock over all forks; `kernel` that of the new process until its first cell asks."""

import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import zygote_jar as zygote  # noqa: E402

LAYOUTS = {
    "by exec": ["--no-zygote"],
    "forked, plain": ["--no-zygote-freeze", "--no-zygote-huge-pages"],
    "forked, huge pages": ["--no-zygote-freeze"],
    "forked, frozen": [],
}
ASK = "print(open('/proc/self/schedstat').read(), open('/proc/self/stat').read())"


def stat(pid, *fields):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(words[field]) for field in fields)


def measure(flags, count):
    warm = "--no-zygote" not in flags
    with zygote.open_jar(*zygote.with_runtime(), *flags, warm=warm) as jar:
        mother = zygote.zygotes(jar)[0] if warm else None
        before = stat(mother, 13, 14) if warm else 0
        calls, kernels, faults = [], [], []
        for _ in range(count):
            session = jar.execute("true").session
            begin = time.perf_counter()
            run = jar.execute(ASK, "python", session=session, wait=60)
            calls.append((time.perf_counter() - begin) * 1000)
            kernels.append(int(run.stdout.split()[0]) / 1e6)
            faults.append(int(run.stdout.rpartition(")")[2].split()[7]))
            jar.close_session(session)
        ticks = stat(mother, 13, 14) - before if warm else 0
        fork = ticks * 1000 / os.sysconf("SC_CLK_TCK") / count
        memory = stat(mother, 21) * 4096 / 1e6 if warm else 0
    return calls, fork, statistics.median(kernels), statistics.median(faults), memory


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(
        f"{'first cell in a live sandbox':30} {'median':>8} {'min':>8}  ms; processor ms and faults"
    )
    for name, flags in LAYOUTS.items():
        calls, fork, kernel, faults, memory = measure(
            flags, count if flags[:1] != ["--no-zygote"] else 10
        )
        print(
            f"{name:30} {statistics.median(calls):8.2f} {min(calls):8.2f}  "
            f"fork {fork:.2f} kernel {kernel:.2f} faults {faults:.0f} zygote {memory:.0f} MB"
        )


if __name__ == "__main__":
    main()
