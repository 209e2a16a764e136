"""The lines of lines.yaml, and the mark that says which one a test is about."""

import pathlib
import re

FILE = pathlib.Path(__file__).with_name("lines.yaml")


def read_lines(text):
    """{"S0": name}, {"S0.1": words}; the file is as simple as that."""
    names, lines, system = {}, {}, None
    for row in text.splitlines():
        if match := re.match(r"(S\d):  # (.*)", row):
            system = match[1]
            names[system] = match[2]
        elif match := re.match(r'  (\d+): "(.*)"$', row):
            lines[f"{system}.{match[1]}"] = match[2]
    return names, lines


NAMES, LINES = read_lines(FILE.read_text())


def line(name, opening):
    """Marks a test with the line it covers and that line's opening words."""
    import pytest  # tools/count-lines reads the table without it

    assert LINES[name].startswith(opening), f"{name} begins with {LINES[name]!r}"
    return pytest.mark.line(name)
