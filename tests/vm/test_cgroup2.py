"""Limits where the host has version 2 of cgroups, as most have today: in a virtual machine, for the host of these tests may
have none to give."""

import machine
import pytest

PLACES = ["beside a shell", "alone", "delegated"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    why = machine.missing()
    if why:
        pytest.skip(why)
    found, text = machine.run(tmp_path_factory.mktemp("vm"), "inside_limits.py")
    assert set(PLACES) <= set(found), text[-3000:]
    return found


@pytest.fixture(params=PLACES)
def place(request, seen):
    found = seen[request.param]
    assert "failed" not in found, found["failed"]
    return found


def test_the_machine_is_such_a_host(seen):
    assert {"memory", "pids", "cpu"} <= set(seen["controllers"]), seen


def test_all_limits_are_enforced(place):
    assert {"memory_limit", "pids_limit", "cpu_limit"} <= set(place["enforced"]), place


def test_a_kernel_is_in_the_cgroup_of_guests(place):
    assert place["first"]["outcome"] == "ok", place["first"]
    assert place["first"]["text"].strip().endswith("/guest"), place["first"]


def test_so_is_one_that_was_forked_by_a_stand_in(place):
    assert isinstance(place["stand_ins"], int) and place["stand_ins"] > 0, place["stand_ins"]
    assert place["from_stand_in"]["text"].strip().endswith("/guest"), place["from_stand_in"]


def test_memory_is_bounded(place):
    assert place["memory"]["outcome"] == "memory_limit", place["memory"]
    assert "survived" not in (place["memory"]["text"] or "")


def test_processes_are_bounded(place):
    made, error = map(int, place["pids"]["text"].split())
    assert 5 < made < 24 and error == 11, place["pids"]  # EAGAIN


def test_processor_time_is_bounded(place):
    assert 0.3 < float(place["cpu"]["text"]) < 0.7, place["cpu"]


def test_the_server_goes_on_and_leaves_nothing(place):
    assert place["last"]["text"] == "well\n" and place["ended"] == 0, place
    assert place["left"] == [], place
