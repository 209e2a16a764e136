"""The engines of the tests themselves: they start, survive what is done to them, and leave nothing."""

import os
import pathlib

import dockerd
import images
import pytest
from api import Api, ApiError
from containers import full

# Each kind, and each way of ending it.
ENDS = [
    (dockerd.Dockerd, "kill"),
    (dockerd.Podman, "stop"),
    pytest.param(dockerd.Dockerd, "stop", marks=full),
    pytest.param(dockerd.Podman, "kill", marks=full),
]


def test_an_engine_answers_with_its_version(engine):
    assert engine.api.version()["ApiVersion"].count(".") == 1
    assert engine.api.info()["Driver"]


def test_containers_and_images_are_found_by_label(engine, base):
    labels = {"belljar-test.which": "this", "belljar-test.other": "x"}
    made = engine.api.ask(
        "POST", "/containers/create", None, {"Image": base, "Cmd": ["true"], "Labels": labels}
    )["Id"]
    try:
        for label in ("belljar-test.which", "belljar-test.which=this"):
            assert [one["Id"] for one in engine.api.containers(label)] == [made]
        assert engine.api.containers("belljar-test.which=that") == []
        assert engine.api.images("belljar-test.which") == []
    finally:
        engine.api.remove_container(made)
    assert engine.api.containers("belljar-test.which") == []


def test_volumes_are_found_by_label(engine):
    labels = {"belljar-test.volume": "1"}
    engine.api.ask("POST", "/volumes/create", None, {"Name": "test-volume", "Labels": labels})
    try:
        assert [one["Name"] for one in engine.api.volumes("belljar-test.volume")] == ["test-volume"]
        assert engine.api.volumes("belljar-test.novolume") == []
    finally:
        engine.api.remove_volume("test-volume")
    assert engine.api.volumes("belljar-test.volume") == []


@pytest.mark.parametrize(
    "command, said",
    [
        pytest.param(["bash", "-c", "echo $((6 * 7))"], "42\n", marks=full),
        pytest.param(["sh", "-c", "echo sh"], "sh\n", marks=full),
        (["python3", "-c", "import ssl, sqlite3, ctypes, venv; print(6 * 7)"], "42\n"),
        (["node", "-e", "console.log(6 * 7)"], "42\n"),
        (
            ["sh", "-c", "id -un; ls -d /workspace; awk 'BEGIN { print 42 }'"],
            "guest\n/workspace\n42\n",
        ),
    ],
)
def test_the_base_image_runs_programs(engine, base, command, said):
    assert engine.api.run(base, command, user="1000:1000") == (0, said)


def test_a_limit_is_held(engine, base):
    """cgroups are in force: the tests of limits in containers stand on this."""
    hog = ["python3", "-c", "x = bytearray(256 << 20); print(len(x))"]
    limits = {"Memory": 64 << 20, "MemorySwap": 64 << 20}
    assert engine.api.run(base, hog, **limits)[0] == 137
    assert engine.api.run(base, hog)[0] == 0


def test_what_is_missing_is_an_error_with_words(engine):
    with pytest.raises(ApiError) as caught:
        engine.api.ask("GET", "/containers/nosuchthing/json")
    assert caught.value.status == 404 and "nosuchthing" in caught.value.message


# --- being stopped, restarted, killed ---------------------------------------------------------------


def sleeper(engine):
    host = {"NetworkMode": "none"}
    config = {"Image": images.bare(engine), "Cmd": ["sleep", "1000"], "HostConfig": host}
    made = engine.api.ask("POST", "/containers/create", None, config)["Id"]
    engine.api.request("POST", f"/containers/{made}/start")
    return made


def left_of(engine):
    """What there still is of an engine that was stopped."""
    left = [str(engine.place)] if engine.place.exists() else []
    cgroups = [str(place) for place in engine.cgroups()]
    return left + cgroups + engine.mounts() + sorted(engine.left_processes())


@pytest.mark.parametrize("kind, end", ENDS, ids=lambda value: getattr(value, "name", value))
def test_nothing_is_left_after_the_end(kind, end, make_rootfs):
    make_rootfs(runtime=None, bare=True)
    with dockerd.started(kind) as engine:
        sleeper(engine)
        pids = engine.left_processes()
        if end == "kill":
            engine.kill()
    assert pids, "a running container has processes"
    assert left_of(engine) == []
    assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}/cmdline").exists()]


def test_data_survive_a_restart_and_a_kill(own_docker, make_rootfs):
    make_rootfs(runtime=None, bare=True)
    bare = images.bare(own_docker)
    first = own_docker.process.pid
    own_docker.restart()
    assert own_docker.process.pid != first and own_docker.api.image(bare)
    own_docker.kill()
    with pytest.raises(OSError):
        own_docker.api.version()
    own_docker.start()
    assert own_docker.api.image(bare)
    assert own_docker.api.run(bare, ["true"])[0] == 0


def test_a_paused_engine_does_not_answer(own_docker):
    own_docker.pause()
    try:
        with pytest.raises(TimeoutError):
            Api(own_docker.socket, timeout=0.5).version()
    finally:
        own_docker.resume()
    assert own_docker.api.version()


def test_an_engine_that_is_not_installed_is_named():
    class Nothing(dockerd.Dockerd):
        programs = {"no-such-program": "no-such-package"}

    if os.geteuid() != 0:
        pytest.skip("only root starts engines")
    with pytest.raises(dockerd.Unavailable, match="no-such-program .*no-such-package"):
        Nothing()
