"""Each attack program, as root and as an ordinary user. The canaries decide."""

import collections
import time

import host
import pytest
from attacks import AFTER, ATTACKS
from belljar import PATIENCE
from sandboxes import ToolError

NOTHING_LEFT = 3  # seconds


def test_there_are_enough_attacks():
    threats = collections.Counter(attack.threat for attack in ATTACKS)
    languages = collections.Counter(attack.language for attack in ATTACKS)
    assert set(threats) == {"T1", "T2", "T3", "T4", "T5"}, threats
    assert set(languages) == {"bash", "python", "node"}, languages
    assert len(ATTACKS) >= 100, len(ATTACKS)


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


@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.threat != "T5"],  # those are in test_bombs.py
    ids=lambda attack: attack.name,
)
def test_nothing_outside_is_reached(arena, attack):
    jar = arena.jar
    attack.skip_unless_possible(jar)
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
    attack.check(run)
    jar.ping()
