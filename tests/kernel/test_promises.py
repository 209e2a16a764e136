"""What a kernel promises, one test a promise; all over the real process and its descriptors."""

import base64
import json
import os
import re
import signal
import struct
import time
from pathlib import Path

import pytest
from driver import KernelDied
from traces import DRAW, TRACES

PNG = b"\x89PNG\r\n\x1a\n"


def png_size(image):
    data = base64.b64decode(image)
    assert data.startswith(PNG)
    return struct.unpack(">II", data[16:24])


def usable(kernel):
    """The session goes on: a cell runs, prints, and gives its value."""
    run = kernel.run("print('still'); 6 * 7")
    return (run.status, run.text, run.stdout) == ("ok", "42", "still\n")


# ---- state and results --------------------------------------------------------------------------


def test_variables_functions_and_imports_persist(kernel):
    kernel.run("import math\nx = 2\ndef f(): return math.floor(x + 0.5)")
    assert kernel.run("f()").text == "2"


def test_last_expression_is_the_result(shared):
    assert shared.run("a = 1\na + 1").text == "2"


def test_a_cell_without_a_value_has_no_result(shared):
    assert shared.run("a = 1").done["result"] is None


def test_counts_go_up_with_each_cell(kernel):
    assert [kernel.run(c).done["count"] for c in ("1", "1/0", "", "2")] == [1, 2, 3, 3]


def test_a_cell_that_is_to_be_forgotten_leaves_no_trace(start):
    kernel, new = start(), start()
    look = "sorted(globals()), In, Out, _, __, ___, _i, _ii, _iii, _dh"
    forgotten = kernel.run("x = [1]; print(x)\nx", forget=True)
    assert (forgotten.text, forgotten.stdout, forgotten.done["count"]) == ("[1]", "[1]\n", 1)
    seen = kernel.run(look)
    assert seen.done["count"] == 1
    assert seen.text == new.run(look).text


def test_modules_can_be_imported_before_anybody_asks(start, workspace):
    config = workspace.parent / "config"
    kernel = start(env={"MPLCONFIGDIR": str(config), "MPLBACKEND": "agg"})
    modules = ["this", "no_such_module", "matplotlib.pyplot", "IPython"]
    reply = kernel.request(op="preload", id=5, modules=modules)
    assert (reply["op"], reply["id"]) == ("preloaded", 5)
    assert reply["imported"] == ["this", "matplotlib.pyplot", "IPython"]
    assert "No module named" in reply["missing"]["no_such_module"]
    assert not config.exists(), "it leaves no files behind"
    look = "sorted(globals()), In, Out, _, _i, _dh"
    assert kernel.run(look).text == start().run(look).text
    seen = kernel.run("import sys; 'this' in sys.modules, 'IPython' in sys.modules")
    assert (seen.text, seen.stdout, seen.stderr) == ("(True, True)", "", "")
    assert kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").images


def traces_of(kernel):
    run = kernel.run(TRACES, forget=True)
    assert run.status == "ok", run
    return json.loads(run.stdout)


@pytest.mark.parametrize("modules", [[], ["numpy", "pandas", "matplotlib.pyplot", "IPython"]])
def test_a_rehearsal_leaves_no_trace(start, workspace, tmp_path_factory, modules):
    kernel = start(env={"TMPDIR": str(tmp_path_factory.mktemp("tmp"))})
    imported = kernel.request(op="preload", id=1, modules=modules)["imported"]
    seen = [traces_of(kernel)]
    for number in (7, 8):
        assert kernel.request(op="rehearse", id=number) == {"op": "rehearsed", "id": number}
        seen.append(traces_of(kernel))
    assert seen[1] == seen[2]
    # Libraries import some of their own modules when they are first used; a zygote has done that.
    before, after = (set(traces.pop("modules")) for traces in seen[:2])
    assert seen[0] == seen[1]
    assert before <= after and bool(after - before) is bool(imported)
    first = kernel.run("1 / 0")
    assert (first.done["count"], first.stdout, first.stderr) == (1, "", "")
    assert not os.listdir(workspace)


def test_what_is_drawn_after_a_rehearsal_was_not_drawn_before(start):
    kernel = start()
    kernel.request(op="preload", id=1, modules=["numpy", "pandas"])
    kernel.run("import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)")
    words = kernel.run(DRAW).stdout.split()
    kernel.run("random.seed(1)\nnumpy.random.seed(1)")
    kernel.request(op="rehearse", id=2)
    assert not set(words) & set(kernel.run(DRAW).stdout.split())


def test_a_rehearsal_prints_nothing_and_what_is_printed_later_arrives(start):
    kernel = start()
    kernel.request(op="preload", id=1, modules=["numpy", "pandas", "IPython"])
    kernel.request(op="rehearse", id=2)
    run = kernel.run(
        "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.system('echo sh')"
    )
    assert (run.stdout, run.stderr, run.displays) == ("out\nsh\n", "err\n", [])


def test_a_rehearsal_that_fails_is_none(start):
    """Libraries may be broken, or refused by a policy: that is for the guest to find out."""
    kernel = start()
    kernel.request(op="preload", id=1, modules=["numpy", "pandas"])
    kernel.run("import numpy\nkept = numpy.arange\ndel numpy.arange")
    policy = {"owner": "the test", "allowed": ["math"], "blocked": []}
    kernel.request(op="configure", id=2, policies=[policy])
    assert kernel.request(op="rehearse", id=3)["op"] == "rehearsed"
    assert "not in the allowed list" in kernel.run("import pandas").traceback


def test_a_reply_has_exactly_the_promised_fields(shared):
    done = shared.run("1").done
    assert set(done) == {
        "op", "id", "status", "result", "error", "traceback", "exit_code", "count", "files",
        "files_counted", "notes", "cpu_ns",
    }  # fmt: skip


def test_processor_time_is_that_of_the_process_and_of_children_that_were_waited_for(kernel):
    work = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass"
    before = kernel.run("1").done["cpu_ns"]
    own = kernel.run(work).done["cpu_ns"]
    assert 0.3e9 <= own - before < 1.5e9
    child = f"import os\npid = os.fork()\nif not pid:\n    exec({work!r})\n    os._exit(0)\n"
    children = kernel.run(child + "os.waitpid(pid, 0)[1]").done["cpu_ns"]
    assert 0.25e9 <= children - own < 1.5e9


LOOK_US = 200_000  # longer than a busy machine makes us wait


def used_while_idle(kernel, seconds=0.4):
    """Seconds of processor time that the kernel has used while nobody asked for anything."""

    def used():
        fields = Path(f"/proc/{kernel.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(seconds)
    return used() - before


def ask_quickly(kernel, code="1", **options):
    for _ in range(4):
        done = kernel.run(code, look_us=LOOK_US, **options).done
    return done


def test_a_request_is_looked_for_awake_where_they_come_quickly(kernel):
    ask_quickly(kernel)
    used = used_while_idle(kernel)
    assert 0.02 < used < 0.3, used  # it has looked, and then gone to sleep
    assert used_while_idle(kernel) < 0.02
    kernel.run("1", look_us=LOOK_US)
    assert used_while_idle(kernel) < 0.05  # after one in vain, not at once again
    assert kernel.run("6 * 7", look_us=LOOK_US).text == "42"


def test_a_request_is_not_looked_for_unless_that_is_asked_for(kernel):
    for _ in range(6):
        kernel.run("1")
    assert used_while_idle(kernel) < 0.02


def test_a_look_for_requests_takes_nothing_from_threads(kernel):
    kernel.run("import threading, time")
    kernel.run("threading.Thread(target=time.sleep, args=(30,), daemon=True).start()")
    ask_quickly(kernel)
    assert used_while_idle(kernel) < 0.05


def test_a_look_for_requests_is_no_processor_time_of_a_cell(kernel):
    before = ask_quickly(kernel)["cpu_ns"]
    assert used_while_idle(kernel) > 0.02
    assert kernel.run("1", look_us=LOOK_US).done["cpu_ns"] - before < 0.02e9


def test_an_interrupt_during_a_look_for_requests_is_nobodys(kernel):
    ask_quickly(kernel)
    for _ in range(2):
        kernel.interrupt()
        time.sleep(0.05)  # else it may be meant for the next
    assert kernel.run("6 * 7", look_us=LOOK_US).text == "42"


def test_options_hold_until_others_are_said(kernel):
    kernel.run(
        "class X:\n    def __repr__(self): return 'long'\n    def __str__(self): return 'short'"
    )
    results = []
    for more in ({"options": {"plain": "str"}}, {}, {"options": {}}, {}):
        reply = kernel.request(op="execute", id=1, code="X()", **more)
        results.append(reply["result"]["text/plain"])
    assert results == ["short", "short", "long", "long"]


def test_a_rehearsal_leaves_options_as_they_are(kernel):
    kernel.request(op="execute", id=1, code="", options={"plain": "str"})
    assert kernel.request(op="rehearse", id=2)["op"] == "rehearsed"
    assert kernel.request(op="execute", id=3, code="'a'")["result"]["text/plain"] == "a"


def test_ids_come_back(kernel):
    reply = kernel.request(op="execute", id=987654321, code="1", options={})
    assert reply["id"] == 987654321


def test_top_level_await_works_and_its_loop_lasts(kernel):
    kernel.run(
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return 'late'"
    )
    kernel.run("t = asyncio.get_running_loop().create_task(later())\nawait asyncio.sleep(0)")
    assert kernel.run("await t").text == "'late'"


def test_tasks_are_made_by_cells_that_do_not_await(kernel):
    kernel.run(
        "import asyncio\nasync def later(n):\n    print('begun', n)\n    await asyncio.sleep(0.01)\n    return n"
    )
    first = kernel.run("t = asyncio.create_task(later(1))")
    assert first.status == "ok" and first.stdout == "begun 1\n"
    assert "pending" in kernel.run("asyncio.create_task(later(2))").text
    assert kernel.run("from asyncio import create_task\nu = create_task(later(3))").status == "ok"
    assert kernel.run("loop = asyncio.get_running_loop(); loop.is_running()").text == "True"
    assert kernel.run("await asyncio.gather(t, u)").text == "[1, 3]"
    failed = kernel.run("asyncio.create_task(later(4)); 1 / 0")
    assert failed.status == "error" and failed.traceback.count("File") == 1


@pytest.mark.parametrize(
    "code",
    [
        "l = asyncio.new_event_loop(); l.run_until_complete(l.create_task(asyncio.sleep(0, 7)))",
        "async def main():\n    return await asyncio.create_task(asyncio.sleep(0, 7))\nasyncio.run(main())",
        # An API may have tasks of its own, and run a loop for them.
        "class Api:\n    def create_task(self):\n        return asyncio.run(asyncio.sleep(0, 7))\nApi().create_task()",
        "api.create_task()",
    ],
)
def test_cells_that_run_a_loop_of_their_own_are_in_none(shared, code):
    shared.run(
        "import asyncio, types\napi = types.SimpleNamespace(create_task=lambda: asyncio.run(asyncio.sleep(0, 7)))"
    )
    assert shared.run(code).text == "7"


def test_functions_of_cells_have_source(shared):
    shared.run("def sourced(x):\n    return x  # a comment")
    assert "# a comment" in shared.run("import inspect; print(inspect.getsource(sourced))").stdout


def test_current_directory_persists(kernel, workspace):
    (workspace / "deeper").mkdir()
    kernel.run("import os; os.chdir('deeper')")
    assert kernel.run("os.path.basename(os.getcwd())").text == "'deeper'"


def test_starts_in_the_workspace_and_imports_from_it(kernel, workspace):
    (workspace / "own_module.py").write_text("VALUE = 5")
    assert kernel.run("import own_module; own_module.VALUE").text == "5"


def test_the_environment_reaches_the_guest(start):
    kernel = start(env={"GIVEN": "yes"})
    assert kernel.run("import os; os.environ['GIVEN']").text == "'yes'"


def test_arguments_are_those_of_a_notebook(shared):
    assert (
        shared.run("import sys, argparse; argparse.ArgumentParser().parse_args(); sys.argv").text
        == "['']"
    )


# ---- printing -----------------------------------------------------------------------------------


def test_all_is_printed_before_the_end_is_told(shared):
    assert shared.run("print('x' * 100000)").stdout == "x" * 100000 + "\n"


def test_lines_are_seen_while_the_cell_runs(kernel):
    kernel.start("import time\nprint('first')\ntime.sleep(30)")
    deadline = time.monotonic() + 10
    while b"first" not in kernel.printed[kernel.out] and time.monotonic() < deadline:
        kernel.read_printed(kernel.out)
    kernel.interrupt()
    assert kernel.finish().stdout == "first\n"


def test_c_code_and_children_are_captured(shared):
    run = shared.run(
        "import ctypes, os, subprocess\nctypes.CDLL(None).puts(b'from C')\n"
        "ctypes.CDLL(None).fflush(None)\nos.system('echo from sh')\n"
        "subprocess.run(['sh', '-c', 'echo to stderr >&2'])"
    )
    assert run.stdout == "from C\nfrom sh\n" and run.stderr == "to stderr\n"


def test_half_a_line_is_not_lost(shared):
    assert shared.run("print('half', end='')").stdout == "half"


def test_half_a_surrogate_does_not_fail_a_print(shared):
    assert shared.run("print('\\udc80')").stdout == "\\udc80\n"


def test_a_thread_prints_after_its_run(kernel):
    run = kernel.run(
        "import threading, time\ndef later():\n    time.sleep(0.3)\n    print('later')\n"
        "threading.Thread(target=later).start()"
    )
    assert run.stdout == ""
    time.sleep(0.6)
    assert kernel.drain()[0] == "later\n"


def test_a_thread_that_displays_after_its_run_prints(kernel):
    kernel.run(
        "import threading, time\ndef later():\n    time.sleep(0.3)\n    display('shown')\n"
        "threading.Thread(target=later).start()"
    )
    time.sleep(0.6)
    assert "shown" in kernel.drain()[0]
    assert usable(kernel)


def test_what_is_printed_before_a_display_is_written_before_it(kernel):
    kernel.start("print('before', end=''); display(1); import time; time.sleep(0.2)")
    kernel.receive()
    assert kernel.drain()[0] == "before"
    kernel.finish()


def test_a_displayed_text_is_printed_where_it_belongs(kernel):
    run = kernel.run("print('a'); display(1, 'x'); print('b')", print_displays=True)
    assert run.stdout == "a\n1\n'x'\nb\n" and len(run.displays) == 2
    run = kernel.run("import sys; sys.stdout.write = None; display(2)", print_displays=True)
    assert run.status == "ok" and len(run.displays) == 1


def test_libraries_find_the_shell_among_the_builtins(shared):
    assert shared.run("import builtins; builtins.get_ipython() is get_ipython()").text == "True"


HAZARDS_OF_STREAMS = {
    "a closed sys.stdout": "import sys; sys.stdout.close()",
    "a replaced sys.stdout": "import sys, io; sys.stdout = io.StringIO()",
    "no sys.stdout": "import sys; sys.stdout = None",
    "a deleted sys.stdout": "import sys; del sys.stdout, sys.stderr",
    "a detached sys.stdout": "import sys; sys.stdout.detach()",
    "a closed buffer": "import sys; sys.stdout.buffer.close()",
    "a patched write": "import sys; sys.stdout.write = None",
    "a stdout that raises": "import sys\nclass Bad:\n    def __getattr__(self, n): raise OSError\nsys.stdout = sys.stderr = Bad()",
    "a closed descriptor 1": "import os; os.close(1)",
    "closed descriptors 0 to 2": "import os; os.closerange(0, 3)",
    "a redirected descriptor 1": "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
    "closed descriptors to 100": "import os; os.closerange(0, 100)",
    "a closed sys.stdin": "import sys; sys.stdin.close()",
    "a stdout that is redirected for good": "import contextlib, io; contextlib.redirect_stdout(io.StringIO()).__enter__()",
}


@pytest.mark.parametrize("code", HAZARDS_OF_STREAMS.values(), ids=HAZARDS_OF_STREAMS)
def test_the_next_run_prints_in_spite_of(kernel, code):
    assert kernel.run(code).status == "ok"
    assert usable(kernel)


def test_what_was_printed_before_descriptor_1_was_closed_is_not_lost(kernel):
    assert kernel.run("import os\nprint('kept', end='')\nos.close(1)").stdout == "kept"


# ---- errors -------------------------------------------------------------------------------------


def test_a_traceback_shows_the_guests_frames_and_source_only(shared):
    run = shared.run("def inner():\n    return 1 / 0\ninner()")
    assert run.error == "ZeroDivisionError"
    assert "return 1 / 0" in run.traceback and "kernel.py" not in run.traceback
    assert len(re.findall("^  File", run.traceback, re.M)) == 2


def test_a_traceback_reaches_into_earlier_cells(shared):
    shared.run("def earlier():\n    raise LookupError('from before')")
    assert "raise LookupError('from before')" in shared.run("earlier()").traceback


def test_a_traceback_has_no_ansi_codes(shared):
    assert "\x1b" not in json.dumps(
        shared.run("raise ValueError('\\x1b[31mred\\x1b[0m')").done["traceback"]
    )


def test_the_text_of_an_error_has_no_ansi_codes_unless_they_are_wanted(shared):
    code = "raise ValueError('\\x1b[31mred\\x1b[0m plain')"
    assert shared.run(code).done["error"]["value"] == "red plain"
    run = shared.run(code, strip=False)
    assert run.done["error"]["value"] == "\x1b[31mred\x1b[0m plain" and "\x1b[31m" in run.traceback


def test_a_nul_in_the_text_of_an_error_is_replaced(shared):
    run = shared.run("raise ValueError('a\\x00b')")
    assert run.done["error"]["value"] == "a\ufffdb"
    assert run.done["traceback"][-1] == "ValueError: a\ufffdb"


def test_a_nul_in_a_result_is_replaced(shared):
    assert shared.run("class N:\n    def __repr__(self): return 'a\\0b'\nN()").text == "a\ufffdb"


LAST_ERROR = """
import sys, traceback
names = [frame.filename for frame in traceback.extract_tb(sys.last_traceback)]
same = sys.last_value.__traceback__ is sys.last_traceback and getattr(sys, "last_exc", sys.last_value) is sys.last_value
sys.last_type.__name__, str(sys.last_value), names, same
"""


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    raise LookupError('deep')\nf()",
        "async def f():\n    raise LookupError('deep')\nawait f()",
    ],
)
def test_the_last_error_can_be_looked_at_without_our_frames(kernel, code):
    kernel.run(code)
    names = ["<cell 1>", "<cell 1>"]
    assert kernel.run(LAST_ERROR).text == repr(("LookupError", "deep", names, True))
    shown = kernel.run("%tb")
    assert shown.status == "ok" and "LookupError: deep" in shown.stdout
    assert shown.stdout.count("<cell 1>") == 2 and "kernel.py" not in shown.stdout
    for look in ("import pdb; pdb.pm()", "%debug"):
        assert "raise LookupError('deep')" in kernel.run(look).stdout
    kernel.run("def g():\n    raise KeyError('later')\ng()")
    assert "raise KeyError('later')" in kernel.run("%debug").stdout


def test_where_nothing_has_failed_there_is_no_last_error(kernel):
    look = "import sys; [name for name in dir(sys) if name.startswith('last_')]"
    assert kernel.run(look).text == "[]"
    shown = kernel.run("%tb")
    assert (shown.status, shown.stderr) == ("ok", "No traceback available to show.\n")
    kernel.run("1 / 0", forget=True)
    assert kernel.run(look).text == "[]"


def test_a_chain_of_exceptions_is_told_without_our_frames(shared):
    run = shared.run("try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e")
    assert "direct cause" in run.traceback and "kernel.py" not in run.traceback


def test_an_error_under_await_shows_the_cell_first(shared):
    run = shared.run("async def fails():\n    raise ValueError('deep')\nawait fails()")
    assert "asyncio" not in run.traceback and run.traceback.count("File") == 2


def test_an_error_in_a_magic_does_not_show_ipython(shared):
    run = shared.run("%%time\n1 / 0")
    assert run.error == "ZeroDivisionError" and "IPython/core" not in run.traceback


def test_a_syntax_error_points_at_the_place(shared):
    run = shared.run("x = (1,\ny = 2")
    assert run.error == "SyntaxError" and "^" in run.traceback and "<cell" in run.traceback


def test_a_cell_with_a_syntax_error_does_nothing(kernel):
    run = kernel.run("print('ran')\nreturn 1")
    assert (run.error, run.stdout) == ("SyntaxError", "")


def test_null_bytes_in_code_are_an_error_not_an_end(kernel):
    assert kernel.run("x = 1\0").status == "error"
    assert usable(kernel)


def test_code_nested_too_deep_is_an_error(kernel):
    assert kernel.run("(" * 5000 + ")" * 5000).status == "error"
    assert usable(kernel)


def test_frames_of_a_traceback_are_bounded(kernel):
    run = kernel.run("def a(n): return b(n)\ndef b(n): return a(n)\na(0)", max_frames=10)
    assert run.error == "RecursionError"
    assert run.traceback.count("File") == 10 and "frames left out" in run.traceback
    assert usable(kernel)


def test_the_text_of_a_traceback_is_bounded(shared):
    run = shared.run("raise ValueError('v' * 10_000_000)", max_traceback=5000)
    assert len(run.traceback) < 6000 and "characters left out" in run.traceback


def test_a_long_chain_of_exceptions_is_bounded(kernel):
    code = (
        "e = None\nfor i in range(3000):\n    n = ValueError(i); n.__context__ = e; e = n\nraise e"
    )
    assert len(kernel.run(code).traceback) < 40_000
    assert usable(kernel)


def test_an_exception_group_is_told(kernel):
    run = kernel.run("raise ExceptionGroup('several', [ValueError(1), TypeError(2)])")
    if run.error == "NameError":
        pytest.skip("this Python has no exception groups")
    assert "TypeError: 2" in run.traceback


@pytest.mark.parametrize(
    "body",
    [
        "    def __str__(self): 1 / 0",
        "    def __str__(self): return 5",
        "    __module__ = 5",
        "    def __getattribute__(self, n): raise OSError",
        "    def __str__(self): raise SystemExit",
        "    @property\n    def __traceback__(self): raise OSError",
        "    @property\n    def __class__(self): raise OSError",
        "    @property\n    def __class__(self): return SystemExit",
    ],
)
def test_an_exception_that_lies_about_itself_is_an_error(kernel, body):
    run = kernel.run(f"class Liar(Exception):\n{body}\nraise Liar('x')")
    assert (run.status, run.error) == ("error", "Liar")
    assert "Liar('x')" in run.traceback and "Liar: " in run.traceback
    assert usable(kernel)


def test_a_syntax_error_of_no_file_is_told(kernel):
    run = kernel.run("e = SyntaxError('m')\ne.filename = 5\nraise e")
    assert (run.status, run.error) == ("error", "SyntaxError")
    assert "    raise e" in run.traceback and "SyntaxError: m" in run.traceback


def test_an_exit_that_lies_about_its_status_ends_the_run(kernel):
    body = "    @property\n    def code(self): raise OSError"
    run = kernel.run(f"class Liar(SystemExit):\n{body}\nraise Liar(3)")
    assert (run.status, run.done["exit_code"]) == ("exit", 3)
    assert usable(kernel)


def test_a_broken_repr_fails_the_cell_and_keeps_the_value(kernel):
    run = kernel.run("class B:\n    def __repr__(self): 1 / 0\nB()")
    assert run.error == "ZeroDivisionError" and "__repr__" in run.traceback
    assert kernel.run("type(_).__name__").text == "'B'"


def test_a_repr_that_returns_no_string_fails_the_cell(kernel):
    assert kernel.run("class B:\n    def __repr__(self): return 5\nB()").error == "TypeError"


def test_a_broken_html_form_is_left_out_and_told(shared):
    run = shared.run(
        "class H:\n    def _repr_html_(self): 1 / 0\n    def __repr__(self): return 'h'\nH()"
    )
    assert run.done["result"] == {"text/plain": "h"}
    assert "ZeroDivisionError" in run.stderr


# ---- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("exit()", 0),
        ("quit(4)", 4),
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit(None)", 0),
        ("raise SystemExit(300)", 44),
    ],
)
def test_leaving_ends_the_run_and_keeps_the_state(kernel, code, exit_code):
    kernel.run("kept = 1")
    run = kernel.run(code + "\nprint('not reached')")
    assert (run.status, run.done["exit_code"], run.stdout) == ("exit", exit_code, "")
    assert kernel.run("kept").text == "1"


def test_leaving_with_words_prints_them(kernel):
    run = kernel.run("import sys; sys.exit('because')")
    assert (run.status, run.done["exit_code"], run.stderr) == ("exit", 1, "because\n")


def test_os_exit_ends_the_process(kernel):
    with pytest.raises(KernelDied, match="7"):
        kernel.run("import os; os._exit(7)")


def test_a_crash_ends_the_process_by_its_signal(kernel):
    with pytest.raises(KernelDied, match=str(-signal.SIGSEGV)):
        kernel.run("import ctypes; ctypes.string_at(0)")


def test_the_end_of_the_stream_ends_the_kernel_and_runs_atexit(kernel, workspace):
    kernel.run("import atexit, pathlib\natexit.register(pathlib.Path('bye').touch)")
    kernel.socket.shutdown(1)
    assert kernel.process.wait(5) == 0
    assert (workspace / "bye").exists()


def test_an_atexit_that_fails_does_not_stop_the_end(kernel):
    kernel.run("import atexit\natexit.register(lambda: 1 / 0)")
    kernel.socket.shutdown(1)
    assert kernel.process.wait(5) == 0


# ---- interrupts ---------------------------------------------------------------------------------


def interrupt_soon(kernel, delay=0.3):
    time.sleep(delay)
    kernel.interrupt()
    return kernel.finish(10)


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import asyncio; await asyncio.sleep(60)",
        "import asyncio; asyncio.create_task(asyncio.sleep(60))\nwhile True: pass",
        "import threading; threading.Event().wait()",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "!sleep 60",
        "import sys\nwhile True: sys.stdin.read(); pass",
        "class Slow:\n    def __repr__(self):\n        while True: pass\nSlow()",
    ],
)
def test_an_interrupt_stops_and_keeps_state(kernel, code):
    kernel.run("kept = 'k'")
    kernel.start(code)
    run = interrupt_soon(kernel, 1 if code.startswith("!") else 0.3)
    assert (run.status, run.error) == ("interrupted", "KeyboardInterrupt")
    assert "kernel.py" not in run.traceback
    assert kernel.run("kept").text == "'k'"


def test_an_interrupted_await_does_not_go_on_in_the_next_cell(kernel):
    kernel.start("import asyncio\nwhile True:\n    await asyncio.sleep(0.01)\n    print('tick')")
    assert interrupt_soon(kernel).status == "interrupted"
    assert kernel.run("await asyncio.sleep(0.2)").stdout == ""


def test_an_interrupt_between_runs_harms_nobody(kernel):
    kernel.run("1")
    kernel.interrupt()
    time.sleep(0.1)
    assert usable(kernel)


def test_an_interrupt_while_the_kernel_starts_is_kept_for_its_run(kernel):
    kernel.start("while True: pass")
    kernel.interrupt()
    assert kernel.finish(20).status == "interrupted"


def test_many_interrupts_between_and_in_short_runs_lose_no_reply(kernel):
    for _ in range(200):
        kernel.start("display(1); 2")
        kernel.interrupt()
        assert kernel.finish(10).status in ("ok", "interrupted")
    assert usable(kernel) or usable(kernel)


def test_interrupts_during_displays_do_not_break_messages(kernel):
    kernel.start("for i in range(400): display('x' * 5000)")
    for _ in range(20):
        kernel.interrupt()
        time.sleep(0.001)
    assert kernel.finish(20).status == "interrupted"
    assert usable(kernel)


@pytest.mark.parametrize(
    "code",
    [
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "import signal; signal.signal(signal.SIGINT, lambda *a: None)",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
    ],
)
def test_a_guest_cannot_disable_interrupts_of_later_runs(kernel, code):
    kernel.run(code)
    kernel.start("while True: pass")
    assert interrupt_soon(kernel).status == "interrupted"


def test_a_guest_that_handles_the_interrupt_goes_on(kernel, workspace):
    kernel.start(
        "import time\ntry:\n    open('begun', 'w').close()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('saved')\n5"
    )
    deadline = time.monotonic() + 30
    while not (workspace / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    run = interrupt_soon(kernel, 0.1)
    assert (run.status, run.text, run.stdout) == ("ok", "5", "saved\n")


def test_a_keyboard_interrupt_raised_by_hand_is_an_error(shared):
    assert shared.run("raise KeyboardInterrupt").status == "error"


# ---- pranks -------------------------------------------------------------------------------------

PRANKS = {
    "print is gone": "import builtins; del builtins.print",
    "len is None": "import builtins; builtins.len = None",
    "repr raises": "import builtins; builtins.repr = lambda o: 1 / 0",
    "isinstance lies": "import builtins; builtins.isinstance = lambda *a: True",
    "open is None": "import builtins; builtins.open = None",
    "no import": "import builtins; builtins.__import__ = None",
    "no builtins in the namespace": "__builtins__ = {}",
    "all builtins are gone": "import builtins; vars(builtins).clear()",
    "str and type and dict": "import builtins; builtins.str = builtins.type = builtins.dict = None",
    "sys.modules is empty": "import sys; sys.modules.clear()",
    "modules are None": "import sys\nfor n in ('json', 'os', 'traceback', 'linecache', 'io'): sys.modules[n] = None",
    "__main__ is another": "import sys, types; sys.modules['__main__'] = types.ModuleType('x')",
    "os is broken": "import os\nfor n in ('read', 'write', 'getpid', 'fstat', 'dup2', 'scandir'): setattr(os, n, None)",
    "json is broken": "import json; json.dumps = None",
    "a tracer": "import sys; sys.settrace(lambda *a: 1 / 0)",
    "a profiler": "import sys; sys.setprofile(lambda *a: None)",
    "a low recursion limit": "import sys; sys.setrecursionlimit(60)",
    "garbage is collected": "import gc; gc.collect(); gc.set_threshold(1)",
    "garbage is not collected": "import gc; gc.disable(); gc.freeze()",
    "the namespace is empty": "globals().clear()",
    "linecache is empty": "import linecache; linecache.clearcache()",
    "a display hook that raises": "import sys\ndef hook(v): 1 / 0\nsys.displayhook = hook",
    "an exception hook that raises": "import sys\ndef hook(*a): 1 / 0\nsys.excepthook = hook",
    "warnings are broken": "import warnings; warnings.warn = warnings.showwarning = None",
    "In and Out are gone": "del In, Out, _ih, _oh",
    "In is a number": "In = _ih = 5",
    "meta_path is empty": "import sys; sys.meta_path.clear()",
    "the signal module is broken": "import signal; signal.signal = signal.getsignal = None",
    "the threading module is broken": "import threading; threading.Lock = threading.current_thread = None",
}


@pytest.mark.parametrize("code", PRANKS.values(), ids=PRANKS)
def test_the_session_survives_when(kernel, code):
    assert kernel.run(code).status in ("ok", "error")
    assert usable(kernel)
    assert kernel.run("1 / 0").error == "ZeroDivisionError"


def test_a_patched_print_lives_on(kernel):
    kernel.run("import builtins\nreal = print\nbuiltins.print = lambda *a: real('patched', *a)")
    assert kernel.run("print(1)").stdout == "patched 1\n"


def test_a_fork_in_the_guest_never_answers_for_the_parent(kernel):
    run = kernel.run(
        "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    os.waitpid(pid, 0)\n5"
    )
    assert (run.status, run.text, run.stdout) == ("ok", "5", "child\n")
    assert usable(kernel)


def test_a_forked_child_that_fails_prints_its_traceback_and_leaves(kernel):
    run = kernel.run(
        "import os\npid = os.fork()\nif pid == 0:\n    1 / 0\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert run.text == "1" and "ZeroDivisionError" in run.stderr


def test_a_forked_child_does_not_repeat_what_was_buffered(kernel):
    run = kernel.run("import os\nprint('once', end='')\nif os.fork() == 0: pass\nelse: os.wait()")
    assert run.stdout == "once"


def test_a_forked_child_that_displays_does_not_disturb(kernel):
    run = kernel.run("import os\nif os.fork() == 0:\n    display('child')\nelse: os.wait()")
    assert run.displays == [] and usable(kernel)


def test_multiprocessing_works(kernel):
    code = "import multiprocessing as mp\ndef sq(x): return x * x\nwith mp.get_context('fork').Pool(2) as p:\n    r = p.map(sq, range(4))\nr"
    assert kernel.run(code).text == "[0, 1, 4, 9]"


def test_children_do_not_inherit_the_channel(kernel):
    run = kernel.run(
        "import subprocess; subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True).stdout.split()"
    )
    assert all(int(fd) < 10 for fd in eval(run.text))


def test_input_fails_at_once_and_says_why(shared):
    run = shared.run("input('name? ')")
    assert run.error == "EOFError" and "keyboard" in run.done["error"]["value"]


def test_stdin_is_empty(shared):
    assert shared.run("import sys; sys.stdin.read(), list(sys.stdin)").text == "('', [])"


def test_pdb_does_not_hang(kernel):
    kernel.run("breakpoint()\n1", timeout=20)
    assert usable(kernel)


def test_a_warning_is_shown_once_in_a_run_and_again_in_the_next(kernel):
    code = "import warnings\nfor i in range(5): warnings.warn('careful')"
    assert kernel.run(code).stderr.count("careful") - kernel.run("1").stderr.count("careful") in (
        1,
        2,
    )
    assert "UserWarning: careful" in kernel.run(code).stderr
    kernel.run("def w():\n    warnings.warn('again')")
    assert [kernel.run("w(); w()").stderr.count("UserWarning: again") for _ in range(2)] == [1, 1]


# ---- display ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "mime"),
    [
        ("html", "text/html"),
        ("markdown", "text/markdown"),
        ("latex", "text/latex"),
        ("svg", "image/svg+xml"),
        ("javascript", "application/javascript"),
    ],
)
def test_a_rich_form_is_shown(shared, method, mime):
    run = shared.run(f"class X:\n    def _repr_{method}_(self): return 'form'\nX()")
    assert run.done["result"][mime] == "form" and "text/plain" in run.done["result"]


def test_json_is_sent_as_text(shared):
    run = shared.run("class X:\n    def _repr_json_(self): return {'a': [1, None]}\nX()")
    assert json.loads(run.done["result"]["application/json"]) == {"a": [1, None]}


def test_a_mime_bundle_is_shown_with_its_metadata(shared):
    code = "class X:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        return {'text/x': 't', 'text/plain': 'p'}, {'text/x': {'k': 1}}\ndisplay(X())"
    message = shared.run(code).displays[0]
    assert message["data"] == {"text/x": "t", "text/plain": "p"}
    assert message["metadata"] == {"text/x": {"k": 1}}


def test_ipython_display_method_takes_over(shared):
    run = shared.run("class X:\n    def _ipython_display_(self): print('own way')\nX()")
    assert run.stdout == "own way\n" and run.done["result"] is None


def test_a_proxy_that_claims_every_method_is_shown_as_text(shared):
    code = "class Any:\n    def __getattr__(self, n): return lambda *a, **k: Any()\n    def __repr__(self): return 'any'\nAny()"
    assert shared.run(code).done["result"] == {"text/plain": "any"}


def test_a_class_is_not_asked_for_its_objects_forms(shared):
    assert (
        "text/html"
        not in shared.run("class X:\n    def _repr_html_(self): return 'h'\nX").done["result"]
    )


def test_displays_come_in_order(shared):
    run = shared.run("for i in range(5): display(i)")
    assert [d["data"]["text/plain"] for d in run.displays] == list("01234")


def test_raw_display_sends_the_bundle(shared):
    assert shared.run("display({'text/x': 'y'}, raw=True)").displays[0]["data"] == {"text/x": "y"}


SHOWN = {
    "Markdown": ("Markdown('# hi')", "# hi"),
    "LaTeX": ("Latex('$x$')", "$x$"),
    "JSON": ("JSON({'a': 1})", '{"a": 1}'),
    "SVG": ("SVG('<svg/>')", "<svg/>"),
    "HTML": ("HTML('<b>x</b>')", "<b>x</b>"),
    "an object that has HTML only": (
        "type('R', (), {'_repr_html_': lambda self: '<r>'})()",
        "<r>",
    ),
    "a long source": ("HTML('x' * 4001)", "<IPython.core.display.HTML object>"),
    "a text that tells something": (
        "type('R', (), {'_repr_html_': lambda self: '<r>', '__repr__': lambda self: 'r'})()",
        "r",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", SHOWN)
def test_a_form_stands_for_a_text_that_tells_nothing(shared, form):
    code, text = SHOWN[form]
    shared.run("from IPython.display import HTML, JSON, SVG, Latex, Markdown")
    assert shared.run(f"display({code})", print_displays=True).stdout == text + "\n"
    done = shared.run(code).done
    assert done.get("shown", done["result"]["text/plain"]) == text


def test_a_raw_bundle_without_text_is_shown_by_its_source(shared):
    run = shared.run("display({'text/html': '<b>x</b>'}, raw=True)", print_displays=True)
    assert run.stdout == "<b>x</b>\n"


GARBAGE = {
    "no image": ("_repr_png_", "b'notpng'", ["1 × image/png that is none: not sent"]),
    "no image, as text": ("_repr_png_", "'\u00fc'", ["1 × image/png that is none: not sent"]),
    "nothing": ("_repr_mimebundle_", "{'image/png': None, 'text/html': None}", []),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_not_sent_as_an_image(shared, what):
    method, form, notes = GARBAGE[what]
    done = shared.run(
        f"type('G', (), {{'{method}': lambda *a, **k: {form}, '__repr__': lambda s: 'g'}})()"
    ).done
    assert done["result"] == {"text/plain": "g"} and done["notes"] == notes


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_images_of_ipython_are_sent(shared, kind):
    run = shared.run(
        "import io\nfrom IPython.display import Image as Shown\nfrom PIL import Image\n"
        f"held = io.BytesIO(); Image.new('RGB', (5, 5)).save(held, '{kind}')\n"
        "display(Shown(data=held.getvalue()))"
    )
    assert f"image/{kind}" in run.displays[0]["data"] and not run.done["notes"]


def test_base64_in_lines_is_sent_as_one(shared):
    run = shared.run(
        "import base64, io\nfrom PIL import Image\n"
        "held = io.BytesIO(); Image.effect_noise((50, 50), 9).save(held, 'png')\n"
        "display({'image/png': base64.encodebytes(held.getvalue()).decode()}, raw=True)"
    )
    assert run.images and not any(c.isspace() for c in run.images[0])


def test_pandas_as_text_and_html(shared):
    result = shared.run("import pandas as pd\npd.DataFrame({'a': [1]})").done["result"]
    assert "<table" in result["text/html"] and result["text/plain"] == "   a\n0  1"


def test_a_wide_frame_shows_its_columns(shared):
    run = shared.run(
        "pd.DataFrame([range(1000, 1018)], columns=[f'column_{i}' for i in range(18)])"
    )
    assert all(f"column_{i}" in run.text for i in range(18))


def test_sympy_as_latex(shared):
    assert "x^{2}" in shared.run("import sympy\nsympy.Symbol('x')**2").done["result"]["text/latex"]


def test_pil_as_png(shared):
    run = shared.run("from PIL import Image\nimage = Image.new('RGB', (30, 20), 'red')\nimage")
    assert png_size(run.done["result"]["image/png"]) == (30, 20)


@pytest.mark.parametrize("mode", ["1", "P", "L", "RGB", "RGBA"])
def test_a_large_pil_image_is_made_smaller(shared, mode):
    run = shared.run(f"Image.new('{mode}', (3000, 1000))", max_pixels=30_000)
    assert png_size(run.done["result"]["image/png"]) == (300, 100)
    assert "size=3000x1000" in run.text
    assert run.done["notes"] == ["an image of 3000 × 1000 pixels is shown with fewer (max_pixels)"]


def test_pil_show_displays(shared):
    assert png_size(shared.run("image.show()").images[0]) == (30, 20)


def test_ipythons_image_and_html_are_shown(shared):
    run = shared.run("from IPython.display import HTML, Image as I, display as d\nd(HTML('<p>'))")
    assert run.displays[0]["data"]["text/html"] == "<p>"


def test_plotly_as_json_html_and_png(shared):
    result = shared.run("import plotly.express as px\nfig = px.line(x=[1, 2], y=[3, 4])\nfig").done[
        "result"
    ]
    assert json.loads(result["application/vnd.plotly.v1+json"])["data"]
    assert "plotly" in result["text/html"]
    assert png_size(result["image/png"])


def test_plotly_show_displays(shared):
    assert shared.run("fig.show()").displays[0]["data"]["application/vnd.plotly.v1+json"]


def test_plotly_without_an_exporter_is_json_and_html(kernel):
    kernel.run("import importlib.util as u, sys\nsys.modules['kaleido'] = None")
    result = kernel.run("import plotly.express as px\npx.line(x=[1], y=[3])").done["result"]
    assert "image/png" not in result and "application/vnd.plotly.v1+json" in result


# ---- figures ------------------------------------------------------------------------------------

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"


def test_a_figure_is_captured_without_show(shared):
    assert len(shared.run(PLOT).images) == 1


def test_all_figures_of_a_run_are_captured(shared):
    assert len(shared.run("for i in range(3):\n    plt.figure(); plt.plot([i])").images) == 3


def test_a_figure_is_shown_once(shared):
    shared.run(PLOT)
    assert shared.run("1").images == []


def test_show_displays_at_once_and_closes(shared):
    run = shared.run(PLOT + "\nplt.show()\nprint(plt.get_fignums())")
    assert len(run.images) == 1 and run.stdout == "[]\n" and run.stderr == ""


def test_figure_show_and_display_of_a_figure(shared):
    assert len(shared.run("f, a = plt.subplots(); a.plot([1]); f.show()").images) == 1
    assert len(shared.run("f, a = plt.subplots(); a.plot([1]); display(f)").images) == 1


def test_a_figure_as_the_result_is_not_shown_twice(shared):
    run = shared.run("f, a = plt.subplots(); a.plot([1]); f")
    assert png_size(run.done["result"]["image/png"]) and run.images == []


def test_a_figure_that_changed_after_display_is_shown_again(shared):
    run = shared.run("f, a = plt.subplots(); a.plot([1]); display(f); a.plot([2, 3]);")
    assert len(run.images) == 2 and run.images[0] != run.images[1]


def test_a_closed_figure_is_not_shown(shared):
    assert shared.run(PLOT + "\nplt.close()").images == []


def test_an_empty_figure_is_not_shown(shared):
    assert shared.run("plt.figure();").images == []


def test_figures_drawn_before_an_error_are_shown(shared):
    run = shared.run(PLOT + "\n1 / 0")
    assert run.error == "ZeroDivisionError" and len(run.images) == 1


def test_seaborn_is_captured(shared):
    run = shared.run("import seaborn as sns\nsns.histplot([1, 2, 2, 3]);")
    assert len(run.images) == 1


def test_pandas_plots_are_captured(shared):
    assert len(shared.run("import pandas as pd\npd.Series([1, 2]).plot();").images) == 1


def test_dpi_changes_the_size_in_pixels(shared):
    small = png_size(shared.run(PLOT, figure_dpi=50, figure_tight=False).images[0])
    large = png_size(shared.run(PLOT, figure_dpi=200, figure_tight=False).images[0])
    assert small == (320, 240) and large == (1280, 960)


def test_figure_size_is_for_figures_that_do_not_say(kernel):
    kernel.run("import matplotlib.pyplot as plt")
    image = kernel.run(PLOT, figure_size=[3, 2], figure_dpi=100, figure_tight=False).images[0]
    assert png_size(image) == (300, 200)


def test_figure_format_svg(shared):
    run = shared.run(PLOT, figure_format="svg")
    assert "<svg" in run.displays[0]["data"]["image/svg+xml"]
    assert len(run.images) == 1 and run.stdout == ""


def test_a_figure_as_svg_is_shown_once(shared):
    run = shared.run("f, a = plt.subplots(); a.plot([1]); f", figure_format="svg")
    assert "image/svg+xml" in run.done["result"] and run.images == []


def test_a_figure_format_holds_for_the_cell_that_sets_it(kernel):
    run = kernel.run("%config InlineBackend.figure_format = 'svg'\n" + PLOT)
    assert sorted(run.displays[0]["data"]) == ["image/png", "image/svg+xml", "text/plain"]


def test_what_sticks_out_of_a_figure_too_far_is_cut_off(shared):
    run = shared.run("plt.plot([1, 2]); plt.text(300, 1, 'far');")
    assert max(png_size(run.images[0])) < 700
    assert run.done["notes"] == ["what sticks out of a figure too far is not shown (max_pixels)"]
    assert (
        "get_tightbbox"
        not in shared.run("f, a = plt.subplots(); display(f); print(*vars(f))").stdout
    )


def test_a_large_figure_is_drawn_smaller(shared):
    run = shared.run("plt.figure(figsize=(100, 100)); plt.plot([1, 2]);")
    width, height = png_size(run.images[0])
    assert 10_000_000 < width * height < 21_000_000
    assert run.done["notes"] == [
        "an image of 10000 × 10000 pixels is shown with fewer (max_pixels)"
    ]


def test_a_figure_that_cannot_be_drawn_is_an_error_and_is_closed(kernel):
    run = kernel.run("import matplotlib.pyplot as plt\nplt.title(r'$\\frac{$');")
    assert run.status == "error" and usable(kernel)
    assert kernel.run("plt.get_fignums()").text == "[]"


def test_matplotlib_magics_are_accepted(kernel):
    run = kernel.run("%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\n" + PLOT)
    assert run.status == "ok" and len(run.images) == 1
    assert png_size(kernel.run(PLOT).images[0])[0] > 900


def test_savefig_is_reported_as_a_file(kernel):
    run = kernel.run(PLOT + "\nplt.savefig('wave.png'); plt.close()")
    assert run.files["wave.png"]["mime"] == "image/png" and run.images == []


# ---- bounds -------------------------------------------------------------------------------------


def test_the_number_of_images_is_bounded_and_told(shared):
    run = shared.run(
        "for i in range(30):\n    plt.figure(figsize=(1, 1)); plt.plot([i])", max_images=5
    )
    assert len(run.images) == 5 and "25 × images" in run.done["notes"][0]
    assert shared.run("plt.get_fignums()").text == "[]"


def test_a_figure_too_large_is_drawn_smaller(shared):
    code = "import numpy as np\nplt.imshow(np.random.rand(600, 600)); plt.axis('off');"
    image = shared.run(code, figure_dpi=200, max_image_bytes=60_000).images[0]
    assert len(base64.b64decode(image)) <= 60_000


def test_an_image_too_large_is_left_out_and_told(shared):
    code = (
        "import os\nfrom PIL import Image\nImage.frombytes('RGB', (400, 400), os.urandom(480000))"
    )
    run = shared.run(code, max_image_bytes=100_000)
    assert "image/png" not in run.done["result"] and run.done["notes"]


def test_a_repr_of_50_mb_is_bounded(shared):
    run = shared.run("'x' * 50_000_000", max_repr=1000)
    assert len(run.text) < 1100 and "characters left out" in run.text


def test_html_too_large_is_left_out_and_told(shared):
    run = shared.run("class X:\n    def _repr_html_(self): return 'h' * 5_000_000\nX()")
    assert list(run.done["result"]) == ["text/plain"] and run.done["notes"]


def test_the_number_of_displays_is_bounded(shared):
    run = shared.run("for i in range(100): display(i)", max_displays=10)
    assert len(run.displays) == 10 and run.done["notes"]


def test_ansi_codes_are_taken_out_of_results_unless_wanted(shared):
    code = "class C:\n    def __repr__(self): return '\\x1b[31mred\\x1b[0m'\nC()"
    assert shared.run(code).text == "red"
    assert shared.run(code, strip=False).text == "\x1b[31mred\x1b[0m"


def test_half_a_surrogate_in_a_result_does_not_break_the_message(shared):
    assert shared.run("class C:\n    def __repr__(self): return 'a\\udc80b'\nC()").text == "a?b"


def test_a_result_larger_than_a_message_is_shortened(kernel):
    run = kernel.run("'y' * 40_000_000", max_repr=30_000_000)
    assert run.status == "ok" and len(run.text) < 11_000
    assert "too large" in run.done["notes"][-1] and usable(kernel)


# ---- magics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("!echo out", "out"),
        ("%%bash\necho bashed", "bashed"),
        ("%%sh\necho shelled", "shelled"),
        ("len?", "Docstring"),
        ("?len", "Docstring"),
        ("%timeit -n1 -r1 pass", "per loop"),
        ("%lsmagic", ""),
        ("x = 5\n%who", "x"),
        ("%%time\npass", "Wall time"),
    ],
)
def test_magics_and_commands_work(shared, code, printed):
    run = shared.run(code)
    assert run.status == "ok" and printed in run.stdout and "\x1b" not in run.stdout


def test_autoreload_sees_each_cell(kernel, workspace):
    (workspace / "fresh.py").write_text("V = 1\n")
    kernel.run("%load_ext autoreload\n%autoreload 2\nimport fresh")
    time.sleep(1.1)
    (workspace / "fresh.py").write_text("V = 22\n")
    assert kernel.run("fresh.V").text == "22"


def test_callbacks_hear_of_the_cell_that_registers_them(kernel):
    code = "heard = []\nget_ipython().events.register('post_run_cell', lambda r: heard.append(r.info.raw_cell))"
    kernel.run("%who")
    kernel.run(code)
    kernel.run("len(heard)")
    assert eval(kernel.run("heard").text) == [code, "len(heard)"]


@pytest.mark.parametrize("put", [".append(Double())", " = [Double()]"])
def test_transformers_see_a_cell_that_is_one_call(kernel, put):
    kernel.run(
        "import ast\n"
        "class Double(ast.NodeTransformer):\n"
        "    def visit_Constant(self, node):\n"
        "        return ast.copy_location(ast.Constant(node.value * 2), node)\n"
        f"get_ipython().ast_transformers{put}"
    )
    assert kernel.run("print(21)").stdout == "42\n"
    kernel.run("get_ipython().ast_transformers.clear()")
    assert kernel.run("print(21)").stdout == "21\n"


@pytest.mark.parametrize(
    "code, error",
    (
        ("del(x)", None),
        ("print(1", "SyntaxError"),
        ("f(1) = (2)", "SyntaxError"),
        ("yield(1)", "SyntaxError"),
        ("print(nothing)", "NameError"),
        (" print(1)", None),
    ),
)
def test_what_looks_like_one_call_is_judged_as_any_cell(shared, code, error):
    shared.run("x = 1")
    assert shared.run(code).error == error
    assert shared.run(f"if True:\n    {code}" if error else "1").error == error


def test_a_warning_quotes_a_cell_that_is_one_call(kernel):
    said = kernel.run("print(1 is 1)").stderr
    assert said.count("SyntaxWarning") == 1 and "print(1 is 1)" in said


def test_code_given_to_the_shell_by_hand_displays(kernel):
    run = kernel.run("get_ipython().run_cell('40 + 2');")
    assert run.displays[0]["data"]["text/plain"] == "42"


def test_magics_without_ipython_are_refused_in_clear_words(start, bare_python):
    kernel = start(bare_python)
    run = kernel.run("x = 1\n%timeit x")
    assert run.error == "SyntaxError" and "IPython" in run.done["error"]["value"]
    assert kernel.run("17 % 5").text == "2"


def test_a_python_without_libraries_serves(start, bare_python):
    kernel = start(bare_python)
    assert kernel.run("print(1); [1, {'a': 2}]").text == "[1, {'a': 2}]"
    assert kernel.run("import asyncio; await asyncio.sleep(0, 3)").text == "3"
    assert kernel.run("display({1, 2})").displays[0]["data"] == {"text/plain": "{1, 2}"}
    assert kernel.run("get_ipython()").error == "NameError"
    assert kernel.run("    indented = 1\n    indented").text == "1"
    assert usable(kernel)


def test_no_history_file_is_written_and_no_thread_started(kernel, tmp_path):
    kernel.run("%who")
    assert kernel.run("import threading; threading.active_count()").text == "1"
    assert kernel.run("get_ipython().history_manager.enabled").text == "False"


# ---- files --------------------------------------------------------------------------------------


def test_created_and_changed_files_are_told_apart(kernel):
    assert kernel.run("open('a.txt', 'w').write('1')").files["a.txt"]["change"] == "created"
    run = kernel.run("open('a.txt', 'w').write('22'); open('b.csv', 'w').close()")
    assert run.files["a.txt"]["change"] == "changed" and run.files["a.txt"]["size"] == 2
    assert run.files["b.csv"] == {
        "path": "b.csv",
        "size": 0,
        "mime": "text/csv",
        "change": "created",
    }


def test_untouched_files_are_not_reported(kernel):
    kernel.run("open('a.txt', 'w').write('1')")
    assert kernel.run("open('a.txt').read()").files == {}


def test_files_that_came_between_runs_are_not_the_guests(kernel, workspace):
    kernel.run("1")
    (workspace / "upload.csv").write_text("a\n")
    time.sleep(0.02)
    assert kernel.run("1").files == {}
    assert (
        kernel.run("open('upload.csv', 'a').write('b')").files["upload.csv"]["change"] == "changed"
    )


def test_an_upload_before_the_first_run_that_it_changes_is_changed(kernel, workspace):
    (workspace / "early.csv").write_text("a\n")
    time.sleep(0.02)
    assert kernel.run("open('early.csv', 'a').write('b')").files["early.csv"]["change"] == "changed"


def test_files_of_children_and_in_folders_are_reported(kernel):
    run = kernel.run("import os\nos.makedirs('d/e')\nos.system('echo x > d/e/f.json')")
    assert run.files["d/e/f.json"]["mime"] == "application/json"


def test_a_file_with_an_old_date_is_still_new(kernel):
    run = kernel.run("import os\nopen('old', 'w').close(); os.utime('old', (1, 1))")
    assert run.files["old"]["change"] == "created"


def test_links_and_fifos_are_not_followed(kernel):
    run = kernel.run(
        "import os\nos.symlink('/etc/passwd', 'link'); os.mkfifo('fifo'); os.symlink('/', 'root')"
    )
    assert run.files == {} and run.done["files_counted"]


def test_hidden_folders_and_caches_are_not_reported(kernel):
    run = kernel.run(
        "import os\nfor d in ('.git', '__pycache__'):\n    os.mkdir(d); open(d + '/x', 'w').close()"
    )
    assert run.files == {}


def test_the_list_of_files_is_bounded_and_the_rest_counted(kernel):
    run = kernel.run("for i in range(30): open(f'{i:02}', 'w').close()", max_files=10)
    assert len(run.files) == 10 and run.done["notes"] == ["20 more files were created or changed"]


def test_a_crowded_workspace_is_not_walked_and_that_is_told(kernel, workspace):
    for number in range(500):
        (workspace / str(number)).touch()
    run = kernel.run("1", max_entries=100)
    assert run.done["files_counted"] is False and "not counted" in run.done["notes"][0]


def test_files_can_be_left_uncounted(kernel):
    assert kernel.run("open('x', 'w').close()", files=False).files == {}


# ---- state, policy, protocol --------------------------------------------------------------------


def with_state(kernel, code, state=None, **options):
    """A run that is given variables and tells them: (outcome, state, skipped)."""
    kernel.number += 1
    kernel.send(
        op="execute", id=kernel.number, code=code, state=state or {}, want_state=True,
        options=options,
    )  # fmt: skip
    run = kernel.finish()
    return run, run.done["state"], run.done["state_skipped"]


def test_state_goes_in_and_out(kernel):
    given = {"a": 1, "b": [1, {"c": None}], "text": "grüße", "f": 1.5, "flag": True}
    _, state, skipped = with_state(kernel, "a += 1\nnew = (1, 2)\nimport os", given)
    assert state == {**given, "a": 2, "new": [1, 2]} and skipped == []
    assert kernel.run("a").text == "2"


def test_state_is_told_only_when_wanted(kernel):
    assert "state" not in kernel.run("x = 1").done


def test_state_is_told_after_an_error_too(kernel):
    run, state, _ = with_state(kernel, "x = 1\n1 / 0")
    assert run.status == "error" and state == {"x": 1}


@pytest.mark.parametrize(
    "value",
    [
        "{1}", "float('nan')", "float('inf')", "-float('inf')", "2**63", "-2**63 - 1", "{1: 2}",
        "{None: 2}", "[object()]", "b'bytes'", "1j", "range(3)", "'\\ud800'", "{'\\udc00': 1}",
        "{'a\\0b': 1}", "__import__('decimal').Decimal(1)", "type('S', (str,), {})('x')",
        "type('D', (dict,), {})()", "[[1, [2, {'deep': float('nan')}]]]",
        "__import__('functools').reduce(lambda inner, _: [inner], range(100), 0)",
    ],
)  # fmt: skip
def test_state_names_what_json_cannot_carry(kernel, value):
    run, state, skipped = with_state(kernel, f"good = 1\nvalue = {value}\nlast = 2")
    assert (run.status, state, skipped) == ("ok", {"good": 1, "last": 2}, ["value"])


def test_state_that_refers_to_itself_is_named(kernel):
    code = "loop = []\nloop.append(loop)\nwide = {}\nwide.update(dict.fromkeys('abcdefgh', wide))"
    assert with_state(kernel, code)[1:] == ({}, ["loop", "wide"])


def test_what_is_no_variable_is_not_state(kernel):
    run, state, skipped = with_state(
        kernel,
        "import os, math as m\nfrom os.path import join\ndef f(): pass\nclass C: pass\n"
        "g = lambda: 0\nb = print\n_private = 1\n__dunder = 2\nx = 1\nx",
    )
    assert (state, skipped) == ({"x": 1}, [])


def test_state_runs_no_code_of_the_guests(kernel):
    run, state, skipped = with_state(
        kernel,
        "class Spy:\n    def __getattribute__(self, name): print('spied', name)\n"
        "    def __eq__(self, other): print('compared')\n    def __len__(self): print('measured')\n"
        "    __class__ = property(lambda self: print('asked'))\nspy = Spy(); spies = [spy]",
    )
    assert (run.stdout, state, skipped) == ("", {}, ["spy", "spies"])


def test_state_is_bounded_in_bytes_and_says_what_did_not_fit(kernel):
    code = "small = 1\nlarge = 'x' * 2000\nmany = ['y' * 100] * 50\nlater = [1, 2]"
    _, state, skipped = with_state(kernel, code, max_state=1000)
    assert state == {"small": 1, "later": [1, 2]} and skipped == ["large", "many"]


def test_state_just_fits_at_its_limit(kernel):
    room = len('{"x": "' + 100 * "a" + '"}')
    assert with_state(kernel, "x = 'a' * 100", max_state=room)[1:] == ({"x": "a" * 100}, [])
    assert with_state(kernel, "x = 'a' * 100", max_state=room - 1)[1:] == ({}, ["x"])


def test_state_is_bounded_in_values_and_time(kernel):
    code = "\n".join(f"v{n} = [0] * 99_000" for n in range(30)) + "\nlast = 1"
    begun = time.monotonic()
    _, state, skipped = with_state(kernel, code, max_state=1 << 23)
    assert len(state) + len(skipped) == 31 and len(state) < 31
    assert time.monotonic() - begun < 30


def test_a_value_shared_a_thousand_times_is_not_made_a_thousand_times(kernel):
    code = "text = 'x' * (1 << 19)\nshared = [text] * 100_000"
    assert with_state(kernel, code)[2] == ["shared"]


def test_names_of_state_are_bounded(kernel):
    code = "globals()['n' * 100_000] = 1\nfor i in range(2000): globals()[f'v{i}'] = {i}"
    _, state, skipped = with_state(kernel, code)
    assert len(skipped) == 1000 and max(map(len, skipped)) < 300 and state == {"i": 1999}


def test_names_that_cannot_be_variables_are_refused_by_a_note(kernel):
    given = {"a b": 1, "__builtins__": 2, "class": 3, "1x": 4, "": 5, "good": 6}
    run, state, _ = with_state(kernel, "good + 1", given)
    assert run.text == "7" and state == {"good": 6}
    (note,) = run.done["notes"]
    assert all(repr(name) in note for name in given if name != "good")


def test_the_kernels_own_names_are_not_state_until_the_guest_takes_them(kernel):
    assert with_state(kernel, "1")[1:] == ({}, [])
    assert with_state(kernel, "In = 5")[1] == {"In": 5}


def configure(kernel, **settings):
    assert kernel.request(op="configure", id=7, **settings) == {"op": "configured", "id": 7}


def policy(kernel, allowed=(), blocked=(), owner="this server"):
    configure(
        kernel, policies=[{"owner": owner, "allowed": list(allowed), "blocked": list(blocked)}]
    )


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import os as o",
        "import math, os",
        "import os.path",
        "from os import path",
        "from os.path import join",
        "from os import *",
        "__import__('os')",
        "__import__('os.path')",
        "__import__('os', {'__name__': 'json'})",
        "import importlib; importlib.import_module('os')",
        "from importlib import import_module; import_module('os.path')",
        "import importlib; importlib.__import__('os')",
        "exec('import os')",
        "exec('import os', {})",
        "def f():\n    import os\nf()",
        "class C:\n    import os",
        "list(map(__import__, ['os']))",
        "open('own.py', 'w').write('import os')\nimport own",
    ],
)
def test_a_blocked_module_is_refused_however_a_cell_asks(kernel, code):
    policy(kernel, blocked=["os", "subprocess"])
    run = kernel.run(code)
    assert run.error == "ImportError", run
    assert re.match(
        r"Import 'os(\.path)?' is blocked for security reasons \(blocked_modules of this server\)",
        run.done["error"]["value"],
    )
    assert "kernel.py" not in run.traceback
    assert usable(kernel)


@pytest.mark.parametrize(
    "code",
    [
        "import math",
        "import json, random, datetime",  # which import os, sys and others inside
        "import logging.handlers",
        "import concurrent.futures; concurrent.futures.ThreadPoolExecutor",  # imports lazily
        "import importlib; importlib.import_module('json')",
        "import string, textwrap",
        "import pandas, numpy; pandas.Series([1]).sum()",
        "import operator",  # begins like a blocked one
    ],
)
def test_what_a_library_imports_inside_is_not_judged(kernel, code):
    policy(kernel, blocked=["os", "sys", "subprocess", "socket"])
    assert kernel.run(code).status == "ok"


def test_only_allowed_modules_pass_and_the_refusal_lists_them(kernel):
    policy(kernel, allowed=["json", "pandas", "os.path"], owner="this session")
    assert kernel.run("import json, pandas, os.path").status == "ok"
    assert kernel.run("from json import decoder").status == "ok"
    assert kernel.run("from os import path").status == "ok"
    for code in ("import socket", "import os", "from os import path, sep", "import jsonx"):
        assert kernel.run(code).error == "ImportError", code
    assert kernel.run("import socket").done["error"]["value"] == (
        "Import 'socket' is not in the allowed list "
        "(allowed_modules of this session: json, pandas, os.path)"
    )


def test_a_blocked_module_is_refused_although_it_is_allowed(kernel):
    policy(kernel, allowed=["os"], blocked=["os.path"])
    assert kernel.run("import os").status == "ok"
    assert kernel.run("from os import path").error == "ImportError"


def test_all_policies_must_agree(kernel):
    configure(
        kernel,
        policies=[
            {"owner": "this server", "allowed": ["json", "math"], "blocked": []},
            {"owner": "this session", "allowed": ["math", "socket"], "blocked": []},
        ],
    )
    assert kernel.run("import math").status == "ok"
    assert "of this session" in kernel.run("import json").done["error"]["value"]
    assert "of this server" in kernel.run("import socket").done["error"]["value"]


def test_a_policy_does_not_reach_the_kernel_itself(kernel):
    policy(kernel, allowed=["math"])
    assert kernel.run("!echo hi").stdout == "hi\n"
    assert kernel.run("async def f(): return 5\nawait f()").text == "5"
    assert kernel.run("open('a.csv', 'w').close()").files["a.csv"]["mime"] == "text/csv"


def test_a_policy_can_be_lifted_and_set_again_while_running(kernel):
    policy(kernel, allowed=["json"])
    assert kernel.run("import socket").error == "ImportError"
    configure(kernel, policies=[])
    assert kernel.run("import socket").status == "ok"
    policy(kernel, blocked=["socket"])
    assert kernel.run("import socket").error == "ImportError"
    configure(kernel, env={"A": "1"})
    assert kernel.run("import socket").error == "ImportError"  # not a word of policies


def test_a_running_kernel_takes_environment_and_directory(kernel, workspace):
    (workspace / "deeper").mkdir()
    (workspace / "lib").mkdir()
    (workspace / "lib/own_library.py").write_text("VALUE = 5")
    configure(
        kernel,
        env={"GIVEN": "yes ü", "TZ": "Asia/Tokyo", "PYTHONPATH": str(workspace / "lib")},
        cwd=str(workspace / "deeper"),
    )
    run = kernel.run(
        "import os, subprocess, time\nsubprocess.run(['sh', '-c', 'echo $GIVEN'])\n"
        "import own_library\n"
        "os.environ['GIVEN'], time.tzname[0], own_library.VALUE, os.path.basename(os.getcwd())"
    )
    assert run.stdout == "yes ü\n" and run.text == "('yes ü', 'JST', 5, 'deeper')"


def children_of(kernel):
    return kernel.run(
        "[pid for task in __import__('os').listdir('/proc/self/task')"
        " for pid in open(f'/proc/self/task/{task}/children').read().split()]"
    )


def test_ends_of_orphans_are_taken(start):
    kernel = start()
    make_subreaper(kernel)
    kernel.run("import os\nfor _ in range(20): os.system('true & true &')")
    deadline = time.monotonic() + 20
    while children_of(kernel).text != "[]" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert children_of(kernel).text == "[]"


def make_subreaper(kernel):
    run = kernel.run("import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)")
    assert run.text == "0"


@pytest.mark.parametrize(
    "start_code, end_code, value",
    [
        ("import subprocess; p = subprocess.Popen(['sh', '-c', 'exit 3'])", "p.wait()", "3"),
        ("import os\nif not (pid := os.fork()): os._exit(4)", "os.waitpid(pid, 0)[1] >> 8", "4"),
        ("import os; pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 5'], {})",
         "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", "5"),
        ("import multiprocessing as m\nc = m.get_context('fork').Process(target=exit, args=(6,))\n"
         "c.start()", "c.join(); c.exitcode", "6"),
        ("import pty, os\npid, fd = pty.fork()\nif not pid: os._exit(7)",
         "os.waitpid(pid, 0)[1] >> 8", "7"),
        ("import asyncio\np = await asyncio.create_subprocess_exec('sh', '-c', 'exit 8')",
         "await p.wait()", "8"),
    ],
)  # fmt: skip
def test_the_guests_own_children_are_the_guests_to_wait_for(kernel, start_code, end_code, value):
    make_subreaper(kernel)
    assert kernel.run(start_code).status == "ok"
    for _ in range(4):  # looks of the kernel, each later than its grace
        time.sleep(0.15)
        kernel.run("import os; os.system('true &')")
    assert kernel.run(end_code).text == value


def test_os_system_tells_its_status_in_spite_of_orphans(kernel):
    make_subreaper(kernel)
    code = "import os\nsorted({os.system('(true &) ; sleep 0.02; exit 3') >> 8 for _ in range(20)})"
    assert kernel.run(code).text == "[3]"


def test_a_ping_is_answered(kernel):
    reply = kernel.request(op="ping", id=5)
    assert (reply["op"], reply["id"], reply["protocol"]) == ("pong", 5, 1)
    assert reply["pid"] == kernel.process.pid and reply["ipython"] is True


@pytest.mark.parametrize(
    "message",
    [
        {"op": "nonsense"},
        {},
        {"op": "execute"},
        {"op": "configure", "env": 5},
        {"op": "execute", "code": "1", "state": 5},
    ],
)
def test_a_request_that_makes_no_sense_is_answered(kernel, message):
    assert kernel.request(**message)["op"] in ("error", "done")
    assert usable(kernel)


def as_sent(**message):
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "little") + body


def test_requests_may_come_together_or_in_pieces(kernel):
    long = "'" + "ü" * 5000 + "'"  # more than one read
    codes = ["1", long, "len(_)", "2"]
    sent = b"".join(as_sent(op="execute", id=n, code=code) for n, code in enumerate(codes))
    kernel.socket.sendall(sent)
    texts = [kernel.receive()["result"]["text/plain"] for _ in codes]
    assert texts == ["1", long, "5000", "2"]
    for start in range(0, len(sent), 97):
        kernel.socket.sendall(sent[start : start + 97])
        if start < 1000:
            time.sleep(0.01)
    assert [kernel.receive()["result"]["text/plain"] for _ in codes] == texts


def test_children_of_c_code_are_taken_when_they_have_ended(kernel):
    spawn = "import ctypes, os\nif not ctypes.CDLL(None).fork(): os._exit(0)"
    assert kernel.run(spawn).status == "ok"
    deadline = time.monotonic() + 20
    while children_of(kernel).text != "[]" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children_of(kernel).text == "[]"


def test_a_message_too_long_ends_the_kernel(kernel):
    kernel.socket.sendall((1 << 31).to_bytes(4, "little"))
    assert kernel.process.wait(5) == 0


def test_the_channel_is_not_among_the_low_descriptors(kernel):
    run = kernel.run(
        "import os\nsorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 20)"
    )
    assert run.text.startswith("[0, 1, 2, 3]")  # 3 is the listing itself


# ---- a zygote -----------------------------------------------------------------------------------

ZYGOTE = """
import os, sys
sys.path.insert(0, {source!r})
numbers = [int(number) for number in sys.argv[1:]]
import kernel
report = kernel.prepare({preload!r}, {workspace!r})
print(report, flush=True)
for number in numbers:
    if os.fork() == 0:
        kernel.serve(number)
for number in numbers:
    os.wait()
"""


@pytest.fixture(scope="module")
def zygote(python, tmp_path_factory):
    """A zygote and two kernels forked from it."""
    import socket
    import subprocess

    from driver import ROOT, Kernel

    workspace = tmp_path_factory.mktemp("zygote")
    pairs = [socket.socketpair() for _ in range(2)]
    fds = [theirs.fileno() for _, theirs in pairs]
    code = ZYGOTE.format(
        source=str(ROOT / "src/kernel"),
        preload=("numpy", "pandas", "matplotlib.pyplot", "IPython", "not_there"),
        workspace=str(workspace),
    )
    process = subprocess.Popen(
        [python, "-c", code, *map(str, fds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    report = eval(process.stdout.readline())
    kernels = []
    for ours, theirs in pairs:
        theirs.close()
        kernel = Kernel.__new__(Kernel)
        kernel.process, kernel.socket = process, ours
        kernel.out, kernel.err = process.stdout.fileno(), process.stderr.fileno()
        kernel.printed = {kernel.out: bytearray(), kernel.err: bytearray()}
        kernel.received, kernel.number = bytearray(), 0
        kernels.append(kernel)
    yield report, kernels
    for kernel in kernels:
        kernel.socket.close()
    process.wait(10)


def test_a_zygote_has_one_thread_and_names_what_is_missing(zygote):
    report, _ = zygote
    assert report["threads"] == 1
    assert list(report["missing"]) == ["not_there"] and "numpy" in report["imported"]


def test_a_zygotes_child_starts_with_an_empty_namespace(zygote):
    _, (one, _) = zygote
    run = one.run("[n for n in globals() if not n.startswith('_')], In, Out")
    assert run.text == (
        "(['In', 'Out', 'get_ipython'],\n"
        " ['', \"[n for n in globals() if not n.startswith('_')], In, Out\"],\n {})"
    )
    assert run.done["count"] == 1


@pytest.mark.parametrize(
    "code",
    [
        "import random; random.random()",
        "import random; random.Random().random()",
        "import numpy as np; np.random.rand()",
        "import numpy as np; np.random.default_rng().random()",
        "import uuid; uuid.uuid4()",
        "import uuid; uuid.uuid1()",
        "import secrets; secrets.token_hex()",
        "import tempfile; tempfile.mktemp()",
        "import os; os.getpid()",
        "import multiprocessing; bytes(multiprocessing.current_process().authkey)",
    ],
)
def test_children_of_a_zygote_are_individuals(zygote, code):
    _, (one, two) = zygote
    first, second = one.run(code), two.run(code)
    assert first.status == second.status == "ok" and first.text != second.text


@pytest.mark.parametrize(
    "prank", ("builtins.len = None", "del builtins.print", "vars(builtins).clear()")
)
def test_a_zygotes_child_puts_builtins_back(zygote, prank):
    _, (one, _) = zygote
    one.run(f"import builtins; {prank}")
    for _ in range(2):
        assert one.run("print(len('abc'))").stdout == "3\n"


def test_a_zygotes_child_keeps_a_patched_builtin(zygote):
    _, (one, _) = zygote
    one.run("import builtins; plain = builtins.round; builtins.round = lambda x: 'patched'")
    assert [one.run("round(1.5)").text for _ in range(2)] == ["'patched'"] * 2
    one.run("builtins.round = plain")
    assert [one.run("round(1.5)").text for _ in range(2)] == ["2"] * 2


def test_children_of_a_zygote_compute_plot_and_run_magics(zygote):
    _, (one, two) = zygote
    for kernel in (one, two):
        assert (
            kernel.run(
                "import numpy as np\n(np.ones((300, 300)) @ np.ones((300, 300))).sum()"
            ).status
            == "ok"
        )
        assert len(kernel.run(PLOT).images) == 1
        assert kernel.run("%timeit -n1 -r1 pass").status == "ok"
        assert kernel.run("await __import__('asyncio').sleep(0, 1)").text == "1"


def test_children_of_a_zygote_collect_garbage_and_know_their_thread(zygote):
    _, (one, _) = zygote
    assert one.run("import gc; gc.isenabled(), gc.get_freeze_count() > 0").text == "(True, True)"
    assert (
        one.run("import os, threading; threading.main_thread().native_id == os.getpid()").text
        == "True"
    )


# --- packages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("%pip install six", ["six"]),
        ("!pip install six requests", ["six", "requests"]),
        ("!pip3 install -q -U six", ["six"]),
        ("!python -m pip install 'six >= 1' 2>/dev/null", ["six >= 1"]),
        ("!uv pip install six>=1,<2 > /dev/null", ["six>=1,<2"]),
        ("%uv pip install six", ["six"]),
        ("!pip install --index-url http://x six", ["--index-url", "http://x", "six"]),
        ("!pip install git+https://x/y", ["git+https://x/y"]),
    ],
)
def test_the_server_is_asked_to_install(kernel, line, wanted):
    kernel.start(f"print('before')\n{line}\nprint(_exit_code)")
    asked = kernel.receive()
    assert asked["op"] == "install" and asked["packages"] == wanted, asked
    kernel.send(op="installed", id=asked["id"], ok=True, error=None, paths=["/nowhere/new"])
    done = kernel.finish()
    assert done.stdout == "before\n0\n", done
    assert kernel.run("import sys; sys.path[:2]").text == "['', '/nowhere/new']"


def test_a_refused_install_is_told(kernel):
    kernel.start("!pip install six\nprint(_exit_code)")
    asked = kernel.receive()
    kernel.send(op="installed", id=asked["id"], ok=False, error="no such thing", paths=[])
    done = kernel.finish()
    assert done.stdout == "1\n" and "ERROR: no such thing" in done.stderr, done


@pytest.mark.parametrize(
    "line",
    ["!echo pip install six", "!pip install six && true", "!pip --version", "!true pip install"],
)
def test_other_commands_are_not_for_the_server(kernel, line):
    assert kernel.run(line).status == "ok"


def test_an_answer_that_comes_too_late_is_ignored(kernel):
    kernel.start("!pip install six")
    asked = kernel.receive()
    kernel.interrupt()
    done = kernel.finish()
    assert done.status == "interrupted", done
    kernel.send(op="installed", id=asked["id"], ok=True, error=None, paths=[])
    assert kernel.run("1 + 1").text == "2"


def test_directories_of_packages_come_first_and_once(kernel):
    paths = ["/nowhere/b", "/nowhere/a"]
    for _ in range(2):
        code = "import sys, os; sys.path[:3], os.environ['PYTHONPATH']"
        kernel.number += 1
        kernel.send(op="execute", id=kernel.number, code=code, paths=paths)
        done = kernel.finish()
        assert done.text == "(['', '/nowhere/b', '/nowhere/a'], '/nowhere/b:/nowhere/a')", done
