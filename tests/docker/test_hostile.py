"""The attack programs of tests/hostile, in containers. The canaries decide."""

import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "hostile"))

import containers  # noqa: E402
import host  # noqa: E402
import images  # noqa: E402
import pytest  # noqa: E402
from arena import Arena  # noqa: E402
from attacks import ATTACKS  # noqa: E402
from test_programs import test_nothing_outside_is_reached as attack_test  # noqa: E402

host.become_subreaper()  # before an engine is started: what it leaves to nobody comes to us

# What the engine mounts by itself is not for us to choose; docs/engines.md names these.
DIFFERENT = {
    "t1_dev_contents.py": "the engine gives a /dev/mqueue of the sandbox's own",
    "t1_mount_table.sh": "the engine's own mounts have its options, and tell where its data are",
    "t1_sys_contents.py": "the sandbox's own cgroup shows in /sys, and masked directories are empty",
}


@pytest.fixture(scope="module")
def arena(docker, make_rootfs):
    make_rootfs(runtime=False)
    # One user for all: the weaker choice, of which the same is promised.
    flags = ["--kernel-pool-size", "0", "--pool-size", "2", "--docker-user", "1000:1000"]
    make = functools.partial(containers.start, docker, images.base(docker), *flags)
    with Arena(make=make) as made:
        yield made


@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.threat != "T5"],
    ids=lambda attack: attack.name,
)
def test_nothing_outside_is_reached(arena, attack):
    if attack.name in DIFFERENT:
        pytest.skip(DIFFERENT[attack.name])
    attack_test(arena, attack)
