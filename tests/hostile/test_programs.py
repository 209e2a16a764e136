"""Each attack program, as root and as an ordinary user. The canaries decide."""

import collections
import platform
import time

import host
import pytest
from attacks import ATTACKS
from belljar import PATIENCE
from sandboxes import ToolError

NOTHING_LEFT = 3  # seconds


def test_there_are_enough_attacks():
    threats = collections.Counter(attack.threat for attack in ATTACKS)
    languages = collections.Counter(attack.language for attack in ATTACKS)
    assert set(threats) == {"T1", "T2", "T3", "T4", "T5"}, threats
    assert set(languages) == {"bash", "python", "node"}, languages
    assert len(ATTACKS) >= 100, len(ATTACKS)


# --- what is looked at afterwards, in the same session ------------------------------------------------


def late(jar, session):
    """Nothing of the last run writes into this one."""
    run = jar.execute("sleep 0.6; echo only this; ls /workspace", session=session)
    assert "LATE" not in run.stdout + run.stderr, run
    assert "late" not in run.stdout, run


def code(jar, session):
    run = jar.execute("echo true code", session=session)
    assert run.stdout == "true code\n", run


def ruined(jar, session):
    """It may have spoiled its own session, not more; the answer is clear and quick."""
    run = jar.execute("echo still here", session=session, timeout=5)
    assert run.stdout == "still here\n" or run.error, run


def list_files(jar, session):
    began = time.monotonic()
    for recursive in (False, True):
        try:
            jar.tool("sandbox_list_files", session_id=session, recursive=recursive, timeout=6)
        except ToolError as error:
            assert str(error), "an error without words"
    assert time.monotonic() - began < 5 * PATIENCE


AFTER = {"late": late, "code": code, "ruined": ruined, "list": list_files}


def try_file_tools(jar, session, path):
    """Reads, lists and writes: an answer or a clear error, in time."""
    for name, more in (
        ("sandbox_read_file", {}),
        ("sandbox_read_file", {"encoding": "base64"}),
        ("sandbox_list_files", {"recursive": True}),
        ("sandbox_write_file", {"content": "planted by the file tool"}),
        ("sandbox_list_files", {}),
    ):
        began = time.monotonic()
        try:
            jar.tool(name, session_id=session, path=path, timeout=6, **more)
        except ToolError as error:
            assert len(str(error)) > 10, f"{name} {path}: {error}"
        took = time.monotonic() - began
        assert took < 5 * PATIENCE, f"{name} {path} took {took:.1f} s"


# --- the attack ---------------------------------------------------------------------------------------


def end_session(arena, session):
    try:
        arena.jar.close_session(session)
    except ToolError:
        pass  # it ended by itself
    left = host.wait_gone(arena.strangers, NOTHING_LEFT * PATIENCE)
    assert not left, f"left behind: {left}"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_outside_is_reached(arena, attack):
    jar = arena.jar
    if attack.arch and attack.arch != platform.machine():
        pytest.skip(f"written for {attack.arch}")
    if missing := [layer for layer in attack.needs if layer not in jar.enforced()]:
        pytest.skip(f"this host does not enforce {', '.join(missing)} for this user")
    words = arena.words()
    language, text = attack.code(words)
    session = jar.tool("start_session")["session_id"]
    waiting = jar.begin(text, language, session, timeout=attack.timeout)
    try:
        run = waiting.run(attack.timeout + 10)
        print(run.text[:20000])
        left = host.wait_gone(arena.strangers, NOTHING_LEFT * PATIENCE)
        if attack.after:
            AFTER[attack.after](jar, session)
        for path in attack.paths:
            try_file_tools(jar, session, attack.fill(path, words))
    finally:
        breaches = arena.breaches()
        end_session(arena, session)
    assert not breaches, breaches
    assert not left, f"processes of the run outlived it: {left}"
    output = run.stdout + run.stderr
    assert "BREACH" not in output, [line for line in output.splitlines() if "BREACH" in line]
    assert run.outcome in attack.outcomes, run
    if attack.exit is not None:
        assert run.exit_code == attack.exit, run
    if attack.must_end:
        assert "END" in run.stdout, f"the attack did not come to its end: {run}"
    assert run.took < (attack.within or attack.timeout + 3) * PATIENCE, run.took
    jar.ping()
