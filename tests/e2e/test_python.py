"""Python in sandboxes, through the server: a notebook that keeps its state, with the runtime's
libraries. What a cell may do to its kernel is in tests/kernel; here is what the way through agent and
server adds."""

import base64
import os
import pathlib
import time

import belljar
import pytest
import python_jar
from belljar import PATIENCE

SLOW = python_jar.SLOW


def images(run):
    return [block for block in run.result["content"] if block["type"] == "image"]


def test_state_persists_and_the_last_expression_is_the_result(cell):
    assert cell("x = 20\ndef double(n): return 2 * n").outcome == "ok"
    run = cell("print('printed')\ndouble(x) + 2")
    assert (run.stdout, run.said["result"]) == ("printed\n", "42")
    assert run.text.startswith("printed\n42\n")


def test_python_is_the_default_language(jar):
    run = jar.submit("tools/call", belljar.call_tool("execute_code", {"code": "1 + 1"})).run(SLOW)
    assert run.said["result"] == "2"


def used_seconds(process):
    """Processor time of this process alone."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# What the kernel was told, by the frame that runs the cell.
LOOKS = """import sys
frame = sys._getframe()
while 'self' not in frame.f_locals: frame = frame.f_back
frame.f_locals['self'].options['look_us']"""


def test_a_kernel_looks_for_requests_for_a_quarter_of_the_time_and_only_with_a_whole_processor():
    with python_jar.start("root", "--busy-poll-us", "1000") as jar:
        half = jar.tool("start_session", cpus=0.5)["session_id"]
        assert jar.begin(LOOKS, "python").run(SLOW).said["result"] == "250"
        assert jar.begin(LOOKS, "python", half).run(SLOW).said["result"] == "0"


@pytest.mark.parametrize("longest", [0, 1, 1000])
def test_cells_in_quick_succession_are_right_however_they_are_waited_for(longest):
    with python_jar.start("root", "--busy-poll-us", str(longest)) as jar:
        session = jar.begin("n = 0", "python").run(SLOW).session
        for row in range(5):
            codes = ["n += 1", "print(n)", "n", "1 / 0", "import time; time.sleep(0.002); print(n)"]
            runs = [one.run(SLOW) for one in [jar.begin(code, "python", session) for code in codes]]
            assert [run.outcome for run in runs] == ["ok", "ok", "ok", "error", "ok"]
            assert [run.stdout for run in runs] == ["", f"{row + 1}\n", "", "", f"{row + 1}\n"]
            assert runs[2].said["result"] == str(row + 1)
        begun = used_seconds(jar.process)
        time.sleep(0.5)
        assert used_seconds(jar.process) - begun < 0.2  # nobody goes on looking


def test_an_error_names_itself_and_keeps_the_state(cell):
    cell("x = 1")
    run = cell("x / 0")
    assert (run.outcome, run.error) == ("error", "ZeroDivisionError: division by zero")
    assert run.said["traceback"][-1] == run.error
    assert cell("x").said["result"] == "1"


def test_output_of_child_processes_and_c_code_is_captured_in_order(cell):
    run = cell(
        "import os, subprocess\n"
        "print('one', flush=True)\nsubprocess.run(['echo', 'two'])\nos.write(1, b'three\\n')"
    )
    assert run.stdout == "one\ntwo\nthree\n"


def test_a_timeout_interrupts_and_keeps_the_state(cell):
    cell("x = 5")
    run = cell("import time\nprint('begun')\ntime.sleep(100)", timeout=1)
    assert (run.outcome, run.stdout) == ("timeout", "begun\n")
    assert run.took < 2 * PATIENCE + 1
    assert cell("x").said["result"] == "5"


def test_a_cell_that_ignores_the_interrupt_loses_its_kernel_and_is_told(cell):
    cell("open('kept', 'w').write('yes'); x = 1")
    run = cell("import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass", timeout=1)
    assert run.outcome == "timeout"
    assert "variables and imports are gone" in run.text
    run = cell("open('kept').read(), 'x' in globals()")
    assert run.said["result"] == "('yes', False)"


@pytest.mark.parametrize(
    "code, words",
    [
        ("import os; os._exit(3)", "status 3"),
        ("import os; os._exit(0)", "ended"),
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
    ],
)
def test_a_kernel_that_dies_is_replaced(cell, code, words):
    cell("x = 1")
    run = cell(code)
    assert run.outcome == "kernel_died" and words in run.error
    assert cell("1 + 1").said["result"] == "2"


def test_exit_ends_the_cell_and_not_the_kernel(cell):
    cell("x = 1")
    assert cell("import sys\nsys.exit(0)").outcome == "ok"
    assert cell("exit(4)").outcome == "error"
    assert cell("x").said["result"] == "1"


def test_the_memory_limit_is_told_as_such(jar, cell):
    if "memory_limit" not in jar.enforced():
        pytest.skip("memory is not limited for a sandbox as a whole here")
    run = cell("b = b'1' * (900 << 20)")
    assert run.outcome == "memory_limit"
    assert cell("'alive'").said["result"] == "'alive'"


def test_a_flood_is_cut_or_ended(cell):
    run = cell("print('x' * (3 << 20))")
    assert run.outcome == "ok" and run.truncated and len(run.stdout) < (2 << 20)
    run = cell("while True: print('y' * 65536)")
    assert run.outcome == "output_limit"


def test_input_fails_at_once(cell):
    run = cell("input('name? ')")
    assert run.outcome == "error" and "input() is not available" in run.error


def test_files_are_reported_with_uri_type_and_size(cell):
    run = cell("open('table.csv', 'w').write('a,b\\n1,2\\n')")
    (file,) = run.said["files"]
    assert (file["name"], file["mime_type"], file["size"]) == ("table.csv", "text/csv", 8)
    assert file["uri"] == f"kernel://{run.session}/table.csv"


def test_bash_and_python_share_the_workspace_and_leave_each_other_alone(jar, cell):
    run = cell("x = 7; open('from_python', 'w').write('hi')")
    shell = jar.execute("cat from_python; sleep 100 &", session=run.session)
    assert shell.stdout == "hi"
    assert cell("x").said["result"] == "7"


def test_a_background_process_of_a_cell_lives_on(cell):
    cell("import subprocess\np = subprocess.Popen(['sleep', '100'])")
    assert cell("p.poll() is None").said["result"] == "True"


def test_messages_forged_by_a_cell_spoil_only_its_own_run(cell):
    run = cell(
        "import os, struct\n"
        "for fd in range(3, 256):\n"
        "    try: os.write(fd, struct.pack('<I', 2**31) + b'garbage')\n"
        "    except OSError: pass\n"
    )
    assert run.outcome in ("ok", "error", "kernel_died")
    assert cell("1 + 1").said["result"] == "2"


def test_magics_and_shell_commands_work(data_cell):
    assert data_cell("!echo from the shell").stdout == "from the shell\n"
    assert "per loop" in data_cell("%timeit -n1 -r1 1").stdout


def test_pandas_describes(data_cell):
    run = data_cell("import pandas as pd\npd.DataFrame({'a': [1, 2, 3]}).describe()", timeout=SLOW)
    assert "mean" in run.said["result"] and run.outcome == "ok"


def test_figures_come_as_png_without_show(data_cell):
    run = data_cell(
        "import matplotlib.pyplot as plt\nfor n in (1, 2):\n    plt.figure(); plt.plot([1, n])",
        timeout=SLOW,
    )
    assert run.outcome == "ok"
    assert [image["mimeType"] for image in images(run)] == ["image/png"] * 2
    for image in images(run):
        assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
