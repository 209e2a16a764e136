"""Limits: what a bomb ends as, what it leaves, and whether others notice.

The programs are those of threat T5, and those of T4 that try to outlive their end. Here each runs
beside another session, which must go on answering."""

import threading
import time

import host
import pytest
import sandboxes
from attacks import AFTER, ATTACKS
from belljar import PATIENCE

BOMBS = [attack for attack in ATTACKS if attack.threat == "T5"] + [
    attack for attack in ATTACKS if attack.name == "t4_fork_race.sh"
]
ANSWER = 2.0  # seconds for `echo ok` in another session
GONE = 3.0


# As a user who has cgroups of his own, too: then limits hold for him as well.
MODES = ["root", "user", "delegated"]


@pytest.fixture(scope="module")
def jar(arena):
    """The arena's server, with a calm session that is asked while bombs go off."""
    arena.jar.calm = arena.jar.tool("start_session")["session_id"]
    arena.words()
    yield arena.jar
    arena.jar.close_session(arena.jar.calm)


class Watch(threading.Thread):
    """Another session, asked again and again."""

    def __init__(self, jar):
        super().__init__(daemon=True)
        self.jar, self.times, self.pings, self.failure = jar, [], [], None
        self.stop = threading.Event()
        self.start()

    def run(self):
        try:
            while not self.times or not self.stop.wait(0.1):  # once at least
                ping = self.jar.submit("ping")
                ping.result(20)
                self.pings.append(ping.took)
                waiting = self.jar.begin("echo ok", session=self.jar.calm)
                run = waiting.run(20)
                assert run.stdout == "ok\n", run
                self.times.append(waiting.took)
        except BaseException as failure:
            self.failure = failure

    def finish(self):
        self.stop.set()
        self.join(30)
        if self.failure:
            raise self.failure
        assert self.times, "nobody was asked meanwhile"
        slowest = sorted(self.times)[int(len(self.times) * 0.95)]
        assert slowest < ANSWER * PATIENCE, f"another session waited {slowest:.2f} s"
        assert max(self.pings) < 1.0 * PATIENCE, f"a ping took {max(self.pings):.2f} s"


@pytest.mark.parametrize("attack", BOMBS, ids=lambda attack: attack.name)
def test_a_bomb_ends_at_its_limit_and_others_do_not_notice(arena, jar, attack):
    attack.skip_unless_possible(jar)
    language, text = attack.code(arena.words())
    session = jar.tool("start_session")["session_id"]
    watch = Watch(jar)
    try:
        run = jar.begin(text, language, session, timeout=attack.timeout).run(attack.timeout + 10)
        left = host.wait_gone(lambda: of_session(arena), GONE * PATIENCE)
    finally:
        watch.finish()
    assert not left, f"left {GONE} s after the answer: {left}"
    if attack.after:
        AFTER[attack.after](jar, session)
    breaches = arena.breaches()
    assert not breaches, breaches
    attack.check(run)
    if run.outcome == "timeout":
        late = run.took - attack.timeout
        assert late < 1.0 * PATIENCE, f"the answer came {late:.2f} s after the limit"
    again = jar.execute("echo alive", session=session, timeout=10)
    assert again.stdout == "alive\n" or again.error, f"the session does not answer clearly: {again}"
    close_if_open(jar, session)


def of_session(arena):
    """Guests of the attack: not the neighbour's, and not the calm session's, which come and go."""
    first = {task.pid: task for task in arena.strangers()}
    time.sleep(0.05)
    return [task for task in arena.strangers() if task.pid in first]


def close_if_open(jar, session):
    try:
        jar.close_session(session)
    except sandboxes.ToolError:
        pass


@pytest.mark.parametrize(
    "ending", ["sleep 60", "trap '' INT; while :; do :; done", "kill -STOP $$"]
)
def test_a_timeout_returns_what_there_is_in_time(jar, ending):
    run = jar.execute(f"echo before; echo wrong >&2; {ending}", timeout=1)
    assert run.outcome == "timeout", run
    assert (run.stdout, run.stderr) == ("before\n", "wrong\n"), run
    assert 1 <= run.took < 2 * PATIENCE, run.took
    close_if_open(jar, run.session)


def test_timeouts_keep_their_limit_under_load(arena, jar, mode):
    """Twenty at once, of every stubborn kind. Containers, which take long to make, are made before."""
    endings = [
        "sleep 60",
        "trap '' INT TERM; while :; do sleep 1; done",
        "kill -STOP $$",
        "sleep 60 & wait",
    ]
    ready = [jar.tool("start_session")["session_id"] for _ in range(20 if mode == "docker" else 0)]
    began = time.monotonic()
    waiting = [
        jar.begin(f"echo {i}; {endings[i % 4]}", session=ready[i] if ready else None, timeout=1.5)
        for i in range(20)
    ]
    runs = [one.run(20) for one in waiting]
    for i, run in enumerate(runs):
        assert run.outcome == "timeout" and run.stdout == f"{i}\n", run
        assert run.duration < 2.5 * PATIENCE, run
        close_if_open(jar, run.session)
    assert time.monotonic() - began < 6 * PATIENCE
    assert not host.wait_gone(lambda: of_session(arena), GONE * PATIENCE)


def test_memory_comes_back(jar):
    """Six bombs of half a GiB each, of kinds that outlive their processes."""
    before = host.free_memory()
    for name in ["t5_sysv_shm.py", "t5_disk.sh", "t5_memfd.py"] * 2:
        (attack,) = [attack for attack in BOMBS if attack.name == name]
        attack.skip_unless_possible(jar)
        language, text = attack.code({"FILES": ""})
        close_if_open(jar, jar.begin(text, language, timeout=attack.timeout).run().session)
    freed = host.wait_for(lambda: host.free_memory() > before - (1 << 30), 5)
    assert freed, f"{(before - host.free_memory()) >> 20} MiB did not come back"


def test_delegated_cgroups_are_used(jar, mode):
    if mode != "user":
        assert {"memory_limit", "pids_limit", "cpu_limit"} <= jar.enforced(), jar.enforced()


def test_cpu_is_limited(jar):
    if "cpu_limit" not in jar.enforced():
        pytest.skip("this host does not enforce cpu_limit for this user")
    code = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
    run = jar.execute(code, timeout=2)
    used = jar.info(run.session)["usage"]["cpu_seconds"]
    close_if_open(jar, run.session)
    assert used < 1.35 * run.duration, f"{used:.2f} s of processor time in {run.duration:.2f} s"


def test_a_flood_does_not_grow_the_server(jar):
    jar.execute("echo warm")
    before = jar.rss()
    jar.forget_peak()
    run = jar.execute("yes")
    assert run.outcome == "output_limit" and run.truncated, run
    assert jar.peak() - before < 64 << 20, (jar.peak() - before) >> 20
    assert len(str(run.result)) < 4 << 20
    close_if_open(jar, run.session)
