"""The table of facts and the tests know each other."""

import ast

import pytest
from lines import FACTS, HERE, LINES


def marks():
    """{(file, test): the lines it names}, read from the source."""
    found = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[path.stem, node.name] = {
                    mark.args[0].value
                    for mark in node.decorator_list
                    if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "line"
                }
    return found


MARKS = marks()


@pytest.mark.parametrize("name", LINES)
def test_a_line_has_facts_and_each_its_tests_or_a_reason(name):
    facts = [fact for fact in FACTS if fact.line == name]
    assert facts
    for fact in facts:
        assert fact.tests or len(fact.reason) > 10, fact.words
        for file, test in fact.tests:
            lines = MARKS[file, test.partition("[")[0]]
            assert name in lines, f"{test} does not name {name} ({fact.words})"


def test_a_test_that_names_a_line_proves_a_fact_of_it():
    proofs = {
        (fact.line, file, test.partition("[")[0]) for fact in FACTS for file, test in fact.tests
    }
    for (file, test), lines in MARKS.items():
        for name in lines:
            assert (name, file, test) in proofs, f"{file}: {test} proves nothing of {name}"
