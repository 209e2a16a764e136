"""Our runner and IPython's run_cell() give the same for every cell of the table."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cells import CELLS, DESCRIBE, LOOK
from driver import Kernel

FIELDS = ("error", "value", "result", "forms", "displayed", "stdout", "stderr", "namespace")
ROWS = [(row[0], row[1], row[2] if len(row) > 2 else {}) for row in CELLS]
SAME_HASHES = {"PYTHONHASHSEED": "0"}  # the order of sets
# Both sides run these, in this order.
SCRIPT = [DESCRIBE] + [cell for _, code, _ in ROWS for cell in (code, LOOK)]


def pair(results):
    """One entry a row: what the cell gave, and the namespace after it."""
    cells, looks = results[1::2], results[2::2]
    return [dict(cell, namespace=json.loads(look["stdout"])) for cell, look in zip(cells, looks)]


def observe(kernel, code):
    run = kernel.run(code, files=False)
    result, error = run.done["result"], run.done["error"]
    if run.status == "exit":
        error = {"name": "SystemExit", "value": ""}
    return {
        "error": error and error["name"],
        "value": error and re.sub(r"\s*\([^()]*, line \d+\)$", "", error["value"]),
        "result": result and result["text/plain"],
        "forms": sorted(result or ()),
        "displayed": [sorted(display["data"]) for display in run.displays],
        "stdout": run.stdout,
        "stderr": run.stderr,
    }


@pytest.fixture(scope="module")
def ours(python, tmp_path_factory):
    kernel = Kernel(python, tmp_path_factory.mktemp("ours"), env=SAME_HASHES)
    yield pair([observe(kernel, code) for code in SCRIPT])
    kernel.close()


@pytest.fixture(scope="module")
def theirs(python, tmp_path_factory):
    reference = Path(__file__).with_name("reference.py")
    process = subprocess.run(
        [python, reference],
        input=json.dumps(SCRIPT),
        capture_output=True,
        text=True,
        cwd=tmp_path_factory.mktemp("theirs"),
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **SAME_HASHES},
    )
    assert process.returncode == 0, process.stderr
    return pair(json.loads(process.stdout))


def comparable(field, value):
    if isinstance(value, str):
        value = re.sub(r"0x[0-9a-f]+", "0x", value).replace("\r\n", "\n")
        value = re.sub(r"<cell \d+>|/tmp/ipy\S+\.py|<ipython-input\S+>", "<cell>", value)
    if field == "value" and value is not None:
        # SystemExit's text is its code; ours is in exit_code.
        return None if value.isdigit() or value == "None" else value or None
    return value


def test_the_table_is_large_enough_and_its_rows_have_names_of_their_own():
    assert len(ROWS) >= 150
    assert len({name for name, _, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[name for name, _, _ in ROWS])
def test_same_as_ipython(index, ours, theirs):
    _, code, differs = ROWS[index]
    for field in FIELDS:
        if field not in differs:
            expected = comparable(field, theirs[index][field])
            actual = comparable(field, ours[index][field])
            assert actual == expected, f"{field} of {code!r}"
