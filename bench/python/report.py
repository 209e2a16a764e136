"""The tables, and the goals that the figures are held against."""

import os
import statistics

import engine

from .common import GAPS
from .measurement import BURST, POOL
from .rivals import BARE, BWRAP, BWRAP_IMPORTS, DOCKER, DOCKER_IMPORTS, JUPYTER_WARM

# Rivals' milliseconds on the machine that the goals in milliseconds come from.
THERE = {BWRAP: 19.3, BWRAP_IMPORTS: 951, JUPYTER_WARM: 4.5}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Report:
    def __init__(self, measured, table):
        self.measured, self.table = measured, table

    def p50(self, way, case, gap=0.0):
        times = self.measured.results.get((way, case, gap))
        return statistics.median(times) if times else None

    def p99(self, way, case, gap=0.0):
        times = self.measured.results.get((way, case, gap))
        return engine.percentile(times, 0.99) if times else None

    def ratio(self, above, below):
        return above / below if above and below else None

    def times(self):
        """All that was measured; ratios to the rivals are of requests back to back."""
        rows = []
        pairs = dict.fromkeys((way, case) for way, case, _gap in self.measured.results)
        ways = [*self.measured.ways, ""]
        for way, case in sorted(pairs, key=lambda pair: ways.index(pair[0])):
            name = f"belljar, {way}: {case}" if way else case
            cells = [name, str(len(self.measured.results[way, case, 0.0]))]
            for gap in GAPS:
                for value in (self.p50(way, case, gap), self.p99(way, case, gap)):
                    cells.append(number(value) if value else "")
            for rival in (DOCKER, DOCKER_IMPORTS, BWRAP_IMPORTS, JUPYTER_WARM):
                ratio = self.ratio(self.p50("", rival), self.p50(way, case))
                cells.append(f"{number(ratio)}×" if ratio else "")
            rows.append(cells)
        head = ["Python", "runs", "p50 ms", "p99 ms", "50 ms apart: p50", "p99"]
        head += ["docker ÷", "docker+imports ÷", "bwrap+imports ÷", "ipykernel ÷"]
        return self.table(head, rows)

    def rates(self):
        rows = []
        medians = {name: statistics.median(v) for name, v in self.measured.rates.items()}
        for name, rate in medians.items():
            ratios = [
                f"{number(rate / medians[rival])}×" if rival in medians else ""
                for rival in (DOCKER, BWRAP)
            ]
            rows.append([name, number(rate), *ratios])
        head = [f"fresh sandboxes a second that print(1), {os.cpu_count()} cores", "rate"]
        return self.table([*head, "÷ docker run", "÷ bwrap"], rows)

    def one_more(self):
        memory = self.measured.memory
        return statistics.median(memory["crowded"]) / statistics.median(memory["alone"])

    def memory(self):
        memory = self.measured.memory
        alone, crowded = memory["alone"], memory["crowded"]
        rows = [
            [
                str(memory["count"]),
                f"{memory['each'] / 1e6:.2f}",
                number(statistics.median(alone)),
                number(statistics.median(crowded)),
                f"{self.one_more():.2f}×",
                number(max(alone)),
                number(max(crowded)),
            ]
        ]
        head = ["sandboxes alive, after one cell", "MB each", "p50 ms of one more: alone"]
        head += ["beside them", "ratio", "slowest of 30: alone", "beside them"]
        return self.table(head, rows)

    def machine(self):
        """How much slower this machine is than the one that the goals in milliseconds come from."""
        rows = []
        for name, there in THERE.items():
            here = self.p50("", name)
            if here:
                rows.append([name, number(there), number(here), f"{here / there:.2f}×"])
        return self.table(
            ["this machine", "where the goals are from: ms", "here: ms", "ratio"], rows
        )

    def rival(self, name, gap):
        """A rival that takes long is only measured one after the other."""
        return self.p50("", name, gap) or self.p50("", name)

    def runs(self, way, case):
        counts = [len(self.measured.results.get((way, case, gap), ())) for gap in GAPS]
        return ", ".join(map(str, counts))

    def absolute(self, case, median, p99):
        """Rows of a case that has goals in milliseconds."""
        runs = self.runs("engine", case)
        medians = self.twice(lambda gap: self.p50("engine", case, gap))
        slowest = self.twice(lambda gap: self.p99("engine", case, gap))
        return [
            (f"{case}: median", medians, " ms", "≤", median, runs),
            ("p99", slowest, " ms", "≤", p99, runs),
        ]

    def faster(self, case, rival, words, goal):
        """How many times faster a case is than a rival."""
        values = self.twice(
            lambda gap: self.ratio(self.rival(rival, gap), self.p50("engine", case, gap))
        )
        return (f"{words} ÷ it", values, "×", "≥", goal, self.runs("", rival))

    def between(self, words, above, below, goal):
        """How many times longer one case, (way in, name), takes than another."""
        values = self.twice(lambda gap: self.ratio(self.p50(*above, gap), self.p50(*below, gap)))
        return (words, values, "×", "≤", goal, self.runs(*below))

    @staticmethod
    def twice(value):
        return [value(gap) for gap in GAPS]

    def added(self, gap):
        """What isolation costs: a fresh sandbox, less the same fork without one."""
        bare = self.p50("", BARE, gap)
        return self.p50("engine", "fresh on demand, print(1)", gap) - bare if bare else None

    def goals(self):
        """Each figure that is demanded, beside what was measured: (case, [back to back, 50 ms apart], unit, ≤ or ≥,
        goal, runs). What is only measured in one of the two ways is "" in the other."""
        e, fresh, pooled = "engine", "fresh on demand, print(1)", "pooled, print(1)"
        describe, again = "pooled, first describe()", "describe() again, same session"
        warm, plot = "warm cell, print(1)", "fresh on demand, first plot"
        replot, alone = "plot again, same session", "no sandbox waits, print(1)"
        rates = {name: statistics.median(v) for name, v in self.measured.rates.items()}
        rounds = str(len(self.measured.rates["belljar, engine"]))
        rate, memory = rates["belljar, engine"], self.measured.memory
        rate_docker, rate_bwrap = (self.ratio(rate, rates.get(name)) for name in (DOCKER, BWRAP))
        alive, each = str(memory["count"]), memory["each"] / 1e6
        isolation = self.twice(self.added)
        return [
            *self.absolute(fresh, 1.8, 6),
            self.faster(fresh, DOCKER, "docker run", 180),
            self.faster(fresh, DOCKER_IMPORTS, "docker run + imports", 500),
            self.faster(fresh, BWRAP_IMPORTS, "bwrap + imports", 400),
            self.absolute(alone, 1.8, 6)[0],
            *self.absolute(pooled, 0.3, 1),
            self.faster(pooled, DOCKER, "docker run", 1000),
            *self.absolute(describe, 7, 15),
            self.between("÷ the same cell warm", (e, describe), (e, again), 1.6),
            *self.absolute(warm, 0.1, 0.3),
            self.faster(warm, JUPYTER_WARM, "ipykernel", 40),
            ("sustained fresh sandboxes", [rate, ""], "/s", "≥", 800, rounds),
            ("÷ docker run", [rate_docker, ""], "×", "≥", 200, rounds),
            ("÷ bwrap + python", [rate_bwrap, ""], "×", "≥", 10, rounds),
            (f"idle sandbox, {alive} alive", [each, ""], " MB", "≤", 1.3, alive),
            ("one more, ÷ alone", ["", self.one_more()], "×", "≤", 1.3, "30"),
            ("isolation on top of the bare fork", isolation, " ms", "≤", 0.4, self.runs("", BARE)),
            self.between("÷ the bare fork", (e, fresh), ("", BARE), 1.4),
            self.between("first plot ÷ plot again", (e, plot), (e, replot), 1.5),
            self.between("rootless ÷ root", ("rootless engine", fresh), (e, fresh), 1.1),
        ]

    def goals_table(self):
        rows = []
        for case, values, unit, sign, goal, runs in self.goals():
            cells = [case, f"{sign} {goal:,}{unit}"]
            for value in values:
                cells += self.verdict(value, unit, sign, goal)
            rows.append([*cells, runs])
        head = ["demanded", "goal", "back to back", "met", "50 ms apart", "met ", "runs"]
        return self.table(head, rows)

    @staticmethod
    def verdict(value, unit, sign, goal):
        if not value:
            return ["" if value == "" else "not measured", ""]
        met = value <= goal if sign == "≤" else value >= goal
        said = f"{value:.2f}" if -10 < value < 0 else number(value)
        return [said + unit, "yes" if met else "no"]

    def isolation(self):
        seen = self.measured.isolation["engine", "on demand"]
        ways = ", ".join(dict.fromkeys(way for way, _name in self.measured.isolation))
        return (
            f"Checked from inside in this run ({ways}): uid {seen['uid']} or another that is not 0, "
            f"no capability, NoNewPrivs {seen['no_new_privs']}, Seccomp {seen['seccomp']}, a pid "
            f"namespace of its own with {seen['processes']} processes, "
            f"{' '.join(seen['interfaces'])} the only interface, / and /usr read-only."
        )

    def notes(self):
        goals = (
            "Each figure is held against its goal twice, back to back and for single requests 50 ms "
            "apart; a goal is met where both say so. Ratios are of medians, to rivals that were measured "
            "in the same way, or only one after the other where they take long. Runs: back to back, 50 ms "
            "apart; of a ratio, those of what it is held against; of rates, rounds. A p99 of fewer than "
            "100 runs is the slowest of them."
        )
        text = (
            "On demand a kernel is put into a sandbox that waits when it is asked for; pooled, kernels "
            "wait in theirs; and where no sandbox waits, it too is made then. "
            f"Pooled are {BURST} requests in a row, of {POOL} kernels that wait and have rehearsed "
            "(kernel_rehearsal). describe() is of 1,000 rows and two columns. The bare fork is the same interpreter, kernel and fork, "
            "asked directly, without a server, an agent and a sandbox. A socket with exec() behind it is what any cell takes on "
            "this machine: after 50 ms of rest, in which its host has had the caches, many times as long as in a row."
        )
        return "\n\n".join([goals, text, *self.measured.remarks])
