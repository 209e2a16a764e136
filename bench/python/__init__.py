"""Measures Python in sandboxes, beside docker, bubblewrap and Jupyter in the same run.

Rounds of all kinds take turns, so that whatever else the machine does falls on all of them, and each begins
when the machine has nothing left to do: one server fills its pools again after its turn, another's containers
are still being removed. What a virtual machine's host takes from it meanwhile (steal) falls on nobody: that
batch, whosever it is, is made again. Ratios mean something on other machines, too; the goals in milliseconds
are those of a small virtual machine.

Ways in: "engine" is bench-kernel, sessions without a protocol; "stdio" and "HTTP" are the server as
clients use it. What is made ahead:

    on demand   a kernel is put into a sandbox when it is asked for
    pooled      kernels wait ready in their sandboxes

An option that the program does not have is left out, and the table says what is missing.
"""

from .common import RUNTIME
from .measurement import Measurement
from .report import Report


def measure(table, rounds=5):
    """The tables and what was left out, as text."""
    if not (RUNTIME / "stamp").exists():
        return f"Python is left out: {RUNTIME.name} is not there (tools/runtime makes it)."
    with Measurement(rounds) as measured:
        measured.run()
    report = Report(measured, table)
    parts = (report.goals_table, report.times, report.rates, report.memory, report.machine)
    return "\n\n".join([*(part() for part in parts), report.isolation(), report.notes()])
