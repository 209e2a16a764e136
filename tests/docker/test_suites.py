"""What tests/e2e promises, kept in containers: the same tests, with another engine.

A check runs the core: something of every area, in one go, with an image that has what kernels preload. With
BELLJAR_FULL=1 it is all of tests/e2e, one file after the other, with the whole scientific set, and the core in Podman's
containers. What is not promised in containers is marked there (native_only) and skipped with the reason, which docs/engines.md has, too."""

import collections
import os
import pathlib
import re
import subprocess
import sys

import belljar
import containers
import images
import pytest
from containers import FULL

E2E = pathlib.Path(__file__).parents[1] / "e2e"
FILES = sorted(str(path.relative_to(E2E)) for path in E2E.rglob("test_*.py"))

CORE = {
    "test_sandbox.py": """test_code_runs test_ordinary_programs_work test_limits_can_be_lowered
        test_a_session_keeps_files_directory_and_exports_but_no_processes test_session_info_tells_what_there_is
        test_a_timeout_keeps_the_session_and_what_was_printed test_a_flood_is_stopped_and_named
        test_cancel_of_a_stubborn_run test_a_session_belongs_to_who_made_it test_sandboxes_end_with_the_server""",
    "test_python.py": """test_state_persists_and_the_last_expression_is_the_result
        test_a_timeout_interrupts_and_keeps_the_state test_a_kernel_that_dies_is_replaced
        test_the_memory_limit_is_told_as_such test_magics_and_shell_commands_work test_pandas_describes
        test_figures_come_as_png_without_show""",
    "test_python_promises.py": """test_an_interrupt_reaches test_a_full_workspace_is_told_as_such
        test_sessions_do_not_share_variables_files_or_random_numbers""",
    "test_python_bounds.py": "test_a_print_of_100_mb_is_stopped_and_named",
    "test_kernel_pool.py": """test_a_new_session_gets_a_kernel_that_waited_and_another_takes_its_place
        test_a_kernel_that_waited_looks_like_a_new_one test_a_kernel_that_was_started_ahead_has_its_modules
        test_nobody_can_tell_that_a_kernel_has_rehearsed test_the_pool_ends_with_the_server""",
    "test_guests.py": """test_an_interrupted_shell_is_gone_on_from test_variables_of_server_and_session_reach
        test_a_new_kernel_has_the_same_environment_and_policy""",
    "test_file_tools.py": """test_what_is_written_is_read test_links_that_lead_out_are_refused
        test_the_guest_is_busy_the_files_answer""",
    "test_program_files.py": "test_what_a_shell_made_is_told test_what_node_made_is_told",
    "test_overflow.py": "test_output_longer_than_the_text_is_kept",
    "test_resources.py": "test_text_is_read_as_text test_a_run_tells_what_it_created_changed_and_deleted",
    "test_disk.py": "test_files_are_there_after_a_restart test_python_is_told_that_its_variables_are_gone",
    "test_run_cli.py": "test_hello test_a_time_limit test_doctor_and_the_server_agree",
    "profiles/test_examples.py": "",  # all five
    "profiles/test_python_docker_mcp.py": "test_state_goes_in_and_comes_out_changed test_the_sandbox_is_removed",
    "profiles/test_python_interpreter.py": "test_a_file_is_told_twice",
    "profiles/test_mcp_pyexec.py": "test_a_timeout_ends_the_run_and_what_it_started",
    "profiles/test_mcp_codemode.py": "test_sections test_no_path_leads_outside",
    "profiles/test_code_executer.py": "test_variables_and_imports_persist",
}


def core():
    return [
        f"{file}::{name}" if name else file
        for file, names in CORE.items()
        for name in names.split() or [""]
    ]


def what_was_left_out(lines):
    """{reason: how many tests} of a run's summary."""
    found = collections.Counter()
    for line in lines:
        if match := re.match(r"SKIPPED \[(\d+)\] [^ ]+ (.*)", line):
            found[match[2]] += int(match[1])
    return found


@pytest.mark.timeout(3600 * belljar.PATIENCE)
@pytest.mark.parametrize(
    "kind, name",
    [("docker", file) for file in FILES] + [("podman", "core")] if FULL else [("docker", "core")],
)
def test_the_suite_holds_in_containers(request, make_rootfs, capsys, kind, name):
    is_core = name == "core"
    make_rootfs(runtime="data" if is_core else "full")
    engine = request.getfixturevalue(kind)
    image = images.data(engine) if is_core else images.default(engine)
    env = {**os.environ, **containers.environment(engine, image), "BELLJAR_POOL_SIZE": "2"}
    env["BELLJAR_DOCKER_INSTALL_NETWORK"] = "host"  # there is no bridge
    env.pop("BELLJAR_FULL", None)  # all tests, not the largest numbers of each
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(core() if is_core else [name])],
        cwd=E2E,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    with capsys.disabled():
        print(f"\n{kind}, {name}: {lines[-1]}")
        for reason, count in what_was_left_out(lines).items():
            print(f"    {count} not here: {reason}")
