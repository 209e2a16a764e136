"""Processes that wait in sandboxes to have a kernel as their child (src/zygote/stand_in.h): what comes of them is a kernel
like any other, and nobody else meets them."""

import contextlib
import os
import signal

import pytest
from sandboxes import until
from test_zygote_kernels import FACTS
from zygote_jar import (
    ask,
    descendants,
    open_jar,
    python,
    run_well,
    wait_until_warm,
    who,
    zygote_only,
    zygotes,
)

pytestmark = [pytest.mark.python_only, zygote_only]

LEARNED = 8  # sandboxes in a row that got a kernel: then the next is expected to
READY = 2
ON_DEMAND = ("--kernel-pool-size", "0", "--pool-size", str(READY))


def stand_ins(jar):
    """Their process ids, on the host."""
    return {pid for pid, name in descendants(jar).items() if name == "belljar-standin"}


def wait_for_stand_ins(jar):
    """In every sandbox that is ready. One that was made while somebody waited for it has none, and is used up."""

    def all_ready():
        with contextlib.suppress(AssertionError):
            until(lambda: len(stand_ins(jar)) == READY, "stand-ins", seconds=1)
            return True
        run_well(jar, "1", None)

    until(all_ready, "stand-ins")
    return stand_ins(jar)


def learn(jar):
    for _ in range(LEARNED):
        run_well(jar, "1", None)
    return wait_for_stand_ins(jar)


def from_stand_in(jar, work):
    """Does something that needs a new session, and sees that one of those who waited has served it."""
    before = wait_for_stand_ins(jar)
    result = work()
    assert before - stand_ins(jar), "nobody was called upon"
    return result


@pytest.fixture(params=["root", "user"])
def jar(request):
    user, flags = who(request.param)
    with open_jar(*flags, *ON_DEMAND, user=user) as jar:
        yield jar


def test_their_kernels_cannot_be_told_from_others(jar):
    assert not stand_ins(jar)
    other = ask(jar, FACTS)
    learn(jar)
    kernel = from_stand_in(jar, lambda: ask(jar, FACTS))
    for key, value in other.items():
        assert kernel[key] == value, key


def test_their_kernels_draw_differently(jar):
    learn(jar)
    draw = (
        "import json, os, random, secrets, tempfile, uuid\n"
        "print(json.dumps([random.random(), secrets.token_hex(), str(uuid.uuid4()), tempfile.mktemp()]))"
    )
    drawn = [from_stand_in(jar, lambda: ask(jar, draw)) for _ in range(6)]
    for values in zip(*drawn):
        assert len(set(values)) == len(drawn)


def test_state_interrupts_and_restarts_are_as_ever(jar):
    learn(jar)
    session = from_stand_in(jar, lambda: python(jar, "x = 1")).session
    late = python(jar, "while True: pass", session, timeout=0.5)
    assert late.outcome == "timeout" and python(jar, "x", session).said["result"] == "1"
    assert python(jar, "import os; os._exit(3)", session).outcome == "kernel_died"
    assert python(jar, "'x' in globals()", session).said["result"] == "False"
    jar.close_session(session)


def test_a_program_that_is_first_is_alone(jar):
    learn(jar)
    run = from_stand_in(jar, lambda: jar.execute("cat /proc/[0-9]*/comm", "bash"))
    names = run.stdout.split()
    assert "belljar-agent" in names and "belljar-standin" not in names
    assert python(jar, "6 * 7", run.session).said["result"] == "42"
    jar.close_session(run.session)


def test_a_program_that_fills_its_memory_does_the_zygote_no_harm(jar):
    learn(jar)
    before = zygotes(jar)
    run = from_stand_in(
        jar, lambda: jar.execute('x=$(head -c 900000000 /dev/zero | tr "\\0" x); echo $x', "bash")
    )
    assert run.outcome != "ok"
    assert zygotes(jar) == before
    jar.close_session(run.session)


def test_they_end_with_their_zygote_and_no_call_fails(jar):
    before = learn(jar)
    (zygote,) = zygotes(jar)
    os.kill(zygote, signal.SIGKILL)
    for _ in range(3):
        run_well(jar, "1", None)
    until(lambda: not before & stand_ins(jar), "the end of the stand-ins")
    wait_until_warm(jar, times=2)
    from_stand_in(jar, lambda: run_well(jar, "1", None))


@pytest.mark.parametrize("param", ["root", "user"])
def test_those_that_nobody_called_upon_end_with_their_server(param):
    user, flags = who(param)
    with open_jar(*flags, *ON_DEMAND, user=user) as jar:
        waiting = learn(jar)
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in waiting), "their end")
