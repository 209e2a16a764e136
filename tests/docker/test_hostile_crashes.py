"""What is left when a server dies whose sandboxes are containers: the tests of tests/hostile/test_crashes.py.

BELLJAR_FULL=1 runs the large numbers."""

import functools
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "hostile"))

import containers  # noqa: E402
import host  # noqa: E402
import images  # noqa: E402
import pytest  # noqa: E402
from sandboxes import Jar, ToolError  # noqa: E402
from test_crashes import (  # noqa: E402, F401
    test_every_other_end_leaves_nothing_too,
    test_kill_9_at_any_moment_leaves_nothing,
    test_many_at_once_are_kept_apart_and_leave_no_trace,
    test_many_in_sequence_leave_no_trace,
    test_no_descriptors_left,
)

host.become_subreaper()

FOREIGN = "somebody else's"


@pytest.fixture(scope="module")
def user():
    return None


@pytest.fixture(scope="module")
def start(docker, make_rootfs):
    """Starts a server without waiting for anything."""
    make_rootfs(runtime=None)
    flags = [*containers.flags(docker, images.base(docker)), "--kernel-pool-size", "0"]

    def begin(*more, **options):
        jar = Jar(*flags, "--pool-size", "2", *more, **options)
        jar.guests_below = os.getpid()
        return jar

    return begin


@pytest.fixture(scope="module")
def new_traces(docker):
    """docs/engines.md: a file in state_dir/containers stays until the next start."""
    return functools.partial(host.Traces, kept="containers", mark=f"{docker.place}/data/overlay2")


@pytest.fixture(scope="module")
def numbers():
    return host.numbers(
        connections=(16, 16),  # to the engine, which are kept
        kills=(4, 50),
        in_sequence=(6, 150),
        at_once=(4, 40),
        descriptors=(40, 60),
    )


@pytest.fixture
def foreign(docker, start):
    """A container of another belljar's, which nobody touches."""
    labels = {containers.LABEL: FOREIGN}
    config = {"Image": images.base(docker), "Cmd": ["true"], "Labels": labels}
    made = docker.api.ask("POST", "/containers/create", None, config)["Id"]
    yield
    assert containers.inspect(docker, made)["Id"] == made
    docker.api.remove_container(made)


@pytest.fixture
def settle(docker, start, foreign):
    """The next start removes what a killed server has left."""
    catch_up(docker)
    others = names_of_all(docker)

    def begin_and_end(state):
        with start("--no-pool-enabled", state=state) as next:
            # The engine may still be about to make what the dead one has asked for. This one looks for that
            # as long as it lives, and nobody does after it: the state directory goes.
            catch_up(docker)
            left = host.wait_gone(lambda: names_of_all(docker) - others, 40)
        assert not left, f"containers are left: {left}\n{next.log_text()}"

    return begin_and_end


def catch_up(docker):
    """Until the engine has made what it was asked for. It takes requests up in turn: after an answer to a new
    one it is at work on all that came before."""
    config = {"Image": images.base(docker), "Cmd": ["true"]}
    made = docker.api.ask("POST", "/containers/create", None, config)["Id"]
    docker.api.remove_container(made)
    assert not host.wait_gone(docker.is_making, 60), docker.log_text()[-2000:]


def names_of_all(docker):
    return {name for item in docker.api.containers(containers.LABEL) for name in item["Names"]}


@pytest.mark.parametrize("part", ["agent", "shim"])
def test_the_parts_of_a_container_may_die_too(docker, start, part):
    """Its pid 1, or the process that the engine has beside it: the session is lost, and said to be."""
    with start("--no-pool-enabled") as jar:
        session = jar.execute("echo begun").session
        jar.instance = containers.instance_of(jar.state)
        family = [task for task in host.below() if task.inner_pid == 1 and task.pid != jar.pid]
        inside = [task for task in family if task.pid_namespace != host.link("/proc/self/ns/pid")]
        assert len(inside) == 1, inside
        os.kill(inside[0].pid if part == "agent" else inside[0].parent, signal.SIGKILL)
        with pytest.raises(ToolError, match="no such session"):
            for _ in range(10):
                run = jar.execute("echo after", session=session, timeout=5, wait=10)
                assert run.outcome == "sandbox_failed", run
        assert jar.execute("echo next").stdout == "next\n"
    containers.wait_for_none(docker, jar)
