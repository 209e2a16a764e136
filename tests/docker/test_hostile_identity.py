"""What a container is made of, seen from the host: the tests of tests/hostile/test_identity.py."""

import functools
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "hostile"))

import containers  # noqa: E402
import host  # noqa: E402
import images  # noqa: E402
import pytest  # noqa: E402
from test_identity import (  # noqa: E402, F401
    sleepers,
    test_a_new_sandbox_holds_nothing_of_an_old_one,
    test_cgroups_bound_the_sum,
    test_descriptors_are_exactly_three,
    test_environment_is_the_documented_list,
    test_every_namespace_is_new,
    test_limits_of_a_process,
    test_no_privilege_is_left,
    test_outside_uid_is_nobody_else_s,
    test_the_agent_is_confined_too,
    test_the_same_holds_from_inside,
    test_the_server_that_parses_client_bytes_has_no_privilege,
)

host.become_subreaper()

GROUP = 59990  # of the engine's socket: the server keeps it, and no other


@pytest.fixture(scope="module")
def mode():
    return "docker"


@pytest.fixture(scope="module")
def numbers():
    return host.numbers(live=(4, 12))


@pytest.fixture(scope="module")
def start(docker, make_rootfs):
    make_rootfs(runtime=None)
    os.chown(docker.socket, 0, GROUP)
    flags = ["--kernel-pool-size", "0", "--pool-size", "1"]
    yield functools.partial(containers.start, docker, images.base(docker), *flags)
    os.chown(docker.socket, 0, 0)


@pytest.fixture
def jar(start):
    with start() as made:
        yield made
