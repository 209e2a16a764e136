"""What lines.yaml says: the lines of the acceptance list, the facts in each, and which tests prove them;
and the mark with which a test names its line.

A test is named as in its own system's file (SYSTEMS); one of another file as `together:test_x`. With
`[word]` behind it, only its cases whose first parameter that is.
"""

import pathlib
import re

HERE = pathlib.Path(__file__).parent
FILE = HERE / "lines.yaml"
SYSTEMS = {
    "S0": "mcp_pyexec",
    "S1": "code_executer",
    "S2": "python_interpreter",
    "S3": "python_docker_mcp",
    "S4": "mcp_codemode",
    "S5": "together",
}
LEFT_OUT = "left out; "
ROW = re.compile(r'    "((?:[^"\\]|\\.)*)": (.*)')


class Fact:
    """`tests`: (file, name) of those that prove it; or `reason`, why it is no promise of ours."""

    def __init__(self, line, words, value):
        self.line, self.words, self.tests, self.reason = line, words, [], None
        if value.startswith(LEFT_OUT):
            self.reason = value.removeprefix(LEFT_OUT)
            return
        for name in value.split():
            file, _, test = name.rpartition(":")
            self.tests.append((f"test_{file or SYSTEMS[line[:2]]}", test))


def read_lines(text):
    """{"S0": name}, {"S0.1": words}, [Fact]; a row of another form is an error."""
    names, lines, facts, system, line = {}, {}, [], None, None
    for number, row in enumerate(text.splitlines(), 1):
        if match := re.fullmatch(r"(S\d):  # (.*)", row):
            system = match[1]
            names[system] = match[2]
        elif match := re.fullmatch(r"  (\d+):  # (.*)", row):
            line = f"{system}.{match[1]}"
            lines[line] = match[2]
        elif match := ROW.fullmatch(row):
            facts.append(Fact(line, match[1].replace('\\"', '"'), match[2]))
        elif row and not row.startswith("#"):
            raise ValueError(f"{FILE.name}:{number}: {row}")
    return names, lines, facts


NAMES, LINES, FACTS = read_lines(FILE.read_text())


def is_case_of(case, name):
    """Is the case of a test, `test_x[5-a]`, one that `test_x` or `test_x[5]` means?"""
    base, _, parameters = case.partition("[")
    wanted, _, first = name.rstrip("]").partition("[")
    return base == wanted and (not first or re.match(re.escape(first) + r"[-\]]", parameters))


def line(name, opening):
    """Marks a test with the line it is about and that line's opening words."""
    import pytest  # tools/count-lines reads the table without it

    assert LINES[name].startswith(opening), f"{name} begins with {LINES[name]!r}"
    return pytest.mark.line(name)
