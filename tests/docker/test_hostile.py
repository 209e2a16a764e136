"""The attacks of tests/hostile, in containers: the same programs and tests. The canaries decide.

BELLJAR_FULL=1 runs all of them; else those that try the walls of a container most, and a bomb for each
limit."""

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
from test_bombs import (  # noqa: E402, F401
    BOMBS,
    jar,
    test_a_flood_does_not_grow_the_server,
    test_a_timeout_returns_what_there_is_in_time,
    test_cpu_is_limited,
)
from test_bombs import (  # noqa: E402
    test_a_bomb_ends_at_its_limit_and_others_do_not_notice as bomb_test,
)
from test_programs import test_nothing_outside_is_reached as attack_test  # noqa: E402
from test_syscalls import (  # noqa: E402, F401
    answers,
    test_conditional_calls_work_with_what_is_allowed,
    test_exactly_the_documented_calls_can_be_made,
    test_few_calls_can_be_made,
    test_unknown_numbers_look_like_an_old_kernel,
)

if host.FULL:
    from test_bombs import (  # noqa: F401
        test_memory_comes_back,
        test_timeouts_keep_their_limit_under_load,
    )
    from test_neighbours import (  # noqa: F401
        test_leases_do_not_stall_others,
        test_work_of_one_leaves_the_share_of_another,
    )

host.become_subreaper()  # before an engine is started: what it leaves to nobody comes to us

CHOSEN = """t1_dev_contents.py t1_host_processes.sh t1_interfaces.py t1_kernel_calls.py t1_mount_table.sh
    t1_new_namespaces.py t1_read_host_files.sh t1_setuid_programs.py t1_sys_contents.py t2_ipc_channels.py
    t2_neighbour_processes.py t3_links_to_host.sh t4_forged_frames.py t4_kill_pid_1.sh t4_late_writer.sh
    t5_daemons.py t5_disk.sh t5_fork_bomb.py t5_ignore_signals.py t5_memory.py t5_output.sh""".split()


def chosen(attacks):
    return [attack for attack in attacks if host.FULL or attack.name in CHOSEN]


@pytest.fixture(scope="module")
def mode():
    return "docker"


@pytest.fixture(scope="module")
def arena(docker, make_rootfs):
    make_rootfs(runtime=None)
    # One user for all: the weaker choice, of which the same is promised.
    flags = ["--kernel-pool-size", "0", "--pool-size", "2", "--docker-user", "1000:1000"]
    make = functools.partial(containers.start, docker, images.base(docker), *flags)
    with Arena(make=make, engine="docker") as made:
        yield made


@pytest.mark.parametrize(
    "attack",
    chosen(attack for attack in ATTACKS if attack.threat != "T5"),
    ids=lambda attack: attack.name,
)
def test_nothing_outside_is_reached(arena, attack):
    attack_test(arena, attack)


@pytest.mark.parametrize("attack", chosen(BOMBS), ids=lambda attack: attack.name)
def test_a_bomb_ends_at_its_limit_and_others_do_not_notice(arena, jar, attack):  # noqa: F811
    bomb_test(arena, jar, attack)
