"""Rounds of everything, one after the other, and what they gave."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import belljar
import sandboxes

import engine

from . import rivals
from .common import CELLS, GAP, GAPS, IMPORTS, RUNTIME, stopping
from .ways import LANES, Engine, Http, Stdio

POOL = 16
BURST = 8  # requests in a row that the pool must be able to meet
REFILL = {"print": 0.1, "describe": 1.5}  # seconds before them: to be there, to have rehearsed
ALIVE = 1000  # sandboxes at once, for their memory
WARM_UP = 4.0  # seconds until pools are full and libraries imported
# Of one batch, and of one of the engine's, whose tails have goals. What is slow gets fewer runs, but never less
# than so many.
SECONDS = {0.0: 0.4, GAP: 1.0}
ENGINE_SECONDS = {0.0: 0.4, GAP: 3.0}
FEWEST, MOST = 3, 1000
BURSTS = 25  # of a batch, at most
LONGEST = 300  # seconds, after which no further round begins
IDLE = 0.96  # of the machine's time, for QUIET seconds, before anything is measured
QUIET, PATIENCE = 0.25, 5.0  # after so many it is measured all the same, and the table says so
STOLEN = 0.02  # of the processors' time, by the host of a virtual machine: more spoils a batch
TRIES = 4  # to get an undisturbed one; then the least disturbed counts, and the table says so

# (name, options of the program)
COMMON = {"pool_size": POOL, "runtime": RUNTIME, "pool_max_creations": 2}
ON_DEMAND = {**COMMON, "kernel_pool_size": 0}
POOLED = {**COMMON, "kernel_pool_size": POOL}

# The cases, in the order of the table: what is made ahead, how runs are made, the cell.
CASES = {
    "fresh on demand, print(1)": ("on demand", "fresh", "print"),
    "no sandbox waits, print(1)": ("on demand", "alone", "print"),
    "pooled, print(1)": ("pooled", "fresh", "print"),
    "pooled, first describe()": ("pooled", "fresh", "describe"),
    "describe() again, same session": ("on demand", "warm", "describe"),
    "warm cell, print(1)": ("on demand", "warm", "print"),
    "fresh on demand, first plot": ("on demand", "fresh", "plot"),
    "plot again, same session": ("on demand", "warm", "plot"),
}


def known_options():
    """Names of the options that the program has."""
    out = subprocess.run([belljar.BIN, "config"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^(?:# )?(\w+): ", out.stdout, re.MULTILINE))


def flags(options, known):
    words = []
    for name, value in options.items():
        if name in known:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def processor_times():
    """(idle, stolen, all) since the machine was started."""
    times = [
        int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    ]
    return times[3] + times[4], times[7], sum(times)


def settle():
    """Waits until the machine is idle; whether it was."""
    end = time.monotonic() + PATIENCE
    before = processor_times()
    while time.monotonic() < end:
        time.sleep(QUIET)
        now = processor_times()
        if now[0] - before[0] >= IDLE * (now[2] - before[2]):
            return True
        before = now
    return False


class Measurement:
    def __init__(self, rounds):
        self.rounds = rounds
        self.stack = contextlib.ExitStack()
        self.known = known_options()
        self.results = {}  # (way in, case, gap): milliseconds
        self.rates = {}  # name: values
        self.remarks = []
        self.isolation = {}
        self.batches = 0
        self.restless = 0  # that began although the machine was busy
        self.spoilt, self.spoilt_kept = 0, 0  # made again; and those of which no try was better

    def undisturbed(self, run, *words):
        """What run(*words) returns, of a try in which the host has kept its hands off the processors."""
        best = None
        for _ in range(TRIES):
            self.restless += not settle()
            self.batches += 1
            before = processor_times()
            result = run(*words)
            now = processor_times()
            stolen = (now[1] - before[1]) / max(1, now[2] - before[2])
            if best is None or stolen < best[0]:
                best = stolen, result
            if stolen <= STOLEN:
                break
            self.spoilt += 1
        self.spoilt_kept += best[0] > STOLEN
        return best[1]

    def open(self, thing):
        self.stack.callback(thing.stop)
        return thing

    def __enter__(self):
        with stopping(self):
            self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stack.close()

    def start(self):
        """Starts everything. What is started as another user wants a runtime that it can read."""
        place = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        self.cells = {}
        for name, code in CELLS.items():
            self.cells[name] = place / f"{name}.py"
            self.cells[name].write_text(code)
        settings = {
            "on demand": flags(ON_DEMAND, self.known),
            "pooled": flags(POOLED, self.known),
        }
        self.ways = {
            "engine": {k: self.open(Engine(v, self.cells)) for k, v in settings.items()},
            "stdio": {k: self.open(Stdio(v)) for k, v in settings.items()},
            "HTTP": {k: self.open(Http(v)) for k, v in settings.items()},
        }
        self.open_rootless(settings)
        docker, remark = rivals.try_docker()
        self.docker = self.open(docker) if docker else None
        self.caches = self.open(rivals.Caches())
        self.jupyter = self.open(rivals.Jupyter())
        self.plain = self.open(rivals.Plain("describe"))
        self.floor = self.open(rivals.Floor())
        self.bare = self.open(rivals.BareFork(self.caches))
        self.remarks += [remark] if remark else []
        if not self.bare.wait():
            self.bare = None
            self.remarks.append("The bare fork is left out: its zygote does not start.")
        for option, words in (
            ("zygote", "each kernel starts an interpreter of its own"),
            ("kernel_pool_size", "pooled means sandboxes, not kernels"),
        ):
            if option not in self.known:
                self.remarks.append(f"This program has no {option}: {words}.")
        self.warm_up()
        self.check_isolation()

    def warm_up(self):
        """Pools are filled from the first run on."""
        for settings in self.ways.values():
            for server in settings.values():
                server.fresh("print", 1, 0.0)
        time.sleep(WARM_UP)

    def open_rootless(self, settings):
        if os.geteuid() != 0:
            self.remarks.append("rootless is left out: everything here is, for want of root.")
            return
        try:
            user = sandboxes.make_user(sandboxes.ORDINARY)
            readable = ["test", "-r", str(RUNTIME / "stamp")]
            subprocess.run([*sandboxes.as_user(user), *readable], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.remarks.append(
                f"rootless is left out: no other user can read the runtime: {error}"
            )
            return
        self.remarks.append(
            "Rootless has the limits that this host lets an ordinary user set; see belljar doctor."
        )
        self.ways["rootless engine"] = {
            name: self.open(Engine(words, self.cells, user)) for name, words in settings.items()
        }

    def check_isolation(self):
        """Every way in, looked at from inside; raises when a layer is missing."""
        for way, settings in self.ways.items():
            for name, server in settings.items():
                seen = json.loads(server.show("isolation"))
                assert seen["uid"] != 0, (way, name, seen)
                assert all(int(text, 16) == 0 for text in seen["capabilities"]), (way, name, seen)
                assert (seen["no_new_privs"], seen["seccomp"]) == ("1", "2"), (way, name, seen)
                assert seen["pid_namespace"] != os.readlink("/proc/self/ns/pid"), (way, name, seen)
                assert seen["processes"] < 10 and seen["interfaces"] == ["lo"], (way, name, seen)
                assert seen["read_only"] and seen["write_to_usr"] == "EROFS", (way, name, seen)
                self.isolation[way, name] = seen
                if not seen["imported"]:
                    self.remarks.append(
                        f"{way}, {name}: libraries were not imported ahead; its figures are those of "
                        "a bare interpreter."
                    )

    def run(self):
        end = time.monotonic() + LONGEST
        for done in range(self.rounds):
            if done and time.monotonic() > end:
                self.remarks.append(f"{done} of {self.rounds} rounds: the time was up.")
                break
            for case, (ahead, how, cell) in CASES.items():
                for way, settings in self.ways.items():  # side by side, for they are compared
                    if way == "rootless engine" and cell != "print":
                        continue
                    if not hasattr(settings[ahead], how):
                        continue
                    for gap in GAPS:
                        self.batch(way, case, settings[ahead], ahead, how, cell, gap)
            self.run_rivals()
            self.run_rates()
        self.run_memory()
        if self.restless:
            self.remarks.append(
                f"Before {self.restless} of {self.batches} batches the machine was not idle within "
                f"{PATIENCE:.0f} s."
            )
        if self.spoilt:
            self.remarks.append(
                f"In {self.spoilt} of {self.batches} batches the host of this virtual machine took more than "
                f"{STOLEN:.0%} of the processors' time. They were made again, rivals' as well as ours; where {TRIES} "
                f"tries gave nothing better ({self.spoilt_kept} times) the least disturbed counts."
            )

    def batch(self, way, case, server, ahead, how, cell, gap):
        """As many runs as fit into the time of a batch."""
        times = self.results.setdefault((way, case, gap), [])
        run = getattr(server, how)

        def bursts(cell, count, gap):
            """A pool is only as good as it is full: so many, and time to fill it."""
            said = []
            for left in range(count, 0, -BURST):
                time.sleep(REFILL[cell])
                said += run(cell, min(BURST, left), gap)
            return said

        each = statistics.median(times or run(cell, 1, gap)) / 1000 + gap
        most = BURSTS * BURST if ahead == "pooled" else MOST
        seconds = ENGINE_SECONDS if way == "engine" else SECONDS
        count = max(FEWEST, min(most, int(seconds[gap] / each)))
        times += self.undisturbed(bursts if ahead == "pooled" else run, cell, count, gap)

    def rival(self, name, gap, measure, *words):
        times = self.undisturbed(measure, *words)
        self.results.setdefault(("", name, gap), []).extend(times)

    def run_rivals(self):
        if self.docker:
            self.rival(rivals.DOCKER, 0.0, self.docker.python, "pass", 3, self.caches)
            self.rival(rivals.DOCKER_IMPORTS, 0.0, self.docker.python, IMPORTS, 1, self.caches)
        if shutil.which("bwrap"):
            self.rival(rivals.BWRAP, 0.0, rivals.bwrap, "pass", 10, self.caches)
            self.rival(rivals.BWRAP_IMPORTS, 0.0, rivals.bwrap, IMPORTS, 1, self.caches)
        self.rival(rivals.JUPYTER_START, 0.0, self.jupyter.start)
        for gap in GAPS:
            self.rival(rivals.JUPYTER_WARM, gap, self.jupyter.warm, 50 if gap == 0 else 20, gap)
            self.rival(rivals.PLAIN, gap, self.plain.warm, 20, gap)
            self.rival(rivals.FLOOR, gap, self.floor.warm, MOST if gap == 0 else 60, gap)
        for gap in GAPS if self.bare else ():
            self.rival(rivals.BARE, gap, self.bare.fresh, 100 if gap == 0 else 20, gap)

    def run_rates(self):
        for way, settings in self.ways.items():
            one = statistics.median(self.results[way, "fresh on demand, print(1)", 0.0]) / 1000
            count = max(2 * LANES, min(1000, int(1.0 / one))) // LANES * LANES
            rate = self.undisturbed(settings["on demand"].rate, count)
            self.rates.setdefault(f"belljar, {way}", []).append(rate)
        if shutil.which("bwrap"):
            words = [f"'{word}'" for word in rivals.bwrap_words("pass", self.caches)]
            rate = self.undisturbed(engine.parallel_rate, words, 10)
            self.rates.setdefault(rivals.BWRAP, []).append(rate)
        if self.docker:
            times = self.results["", rivals.DOCKER, 0.0]
            self.rates[rivals.DOCKER] = [1000 / statistics.median(times)]

    def run_memory(self):
        """Many sandboxes that have run one cell each, and how long one more takes then."""
        most = {"max_sessions": 2 * ALIVE, "max_sessions_per_client": 2 * ALIVE}
        server = Engine(flags({**ON_DEMAND, **most}, self.known), self.cells)
        try:
            cell = self.cells["print"]
            server.milliseconds("fresh", 1, 1, 0, cell)
            time.sleep(WARM_UP)
            alone = self.undisturbed(server.fresh, "print", 30, GAP)
            before = available_memory()
            seconds = server.milliseconds("hold", 20, 1, cell)[1]
            time.sleep(0.5)
            each = max(1, (before - available_memory()) / 20)
            count = int(min(ALIVE, 20 + 0.6 * before / each, 20 + 20 / (seconds / 20)))
            server.milliseconds("hold", max(1, count - 20), 2, cell)
            time.sleep(1)
            used = (before - available_memory()) / count
            crowded = self.undisturbed(server.fresh, "print", 30, GAP)
            server.ask("drop")
        finally:
            server.stop()
        self.memory = {"count": count, "each": used, "alone": alone, "crowded": crowded}


def available_memory():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: *(\d+) kB", text)[1]) * 1024
