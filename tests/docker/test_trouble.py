"""An engine that is stopped, restarted, slow, out of its mind; an image and a volume that go away: clear
errors in time, nothing hangs, and no container is left when the engine is back."""

import time

import containers
import images
import pytest
from belljar import PATIENCE
from proxy import Proxy
from sandboxes import ToolError

JSON = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


def answer(body, status=b"200 OK"):
    return JSON % (status, len(body), body)


@pytest.fixture(scope="module")
def base(docker, make_rootfs):
    make_rootfs(runtime=False)
    return images.base(docker)


@pytest.fixture
def proxy(docker):
    with Proxy(docker) as made:
        yield made


@pytest.fixture
def jar(proxy, base):
    with containers.start(proxy, base, "--no-pool-enabled", "--docker-timeout", "10s") as made:
        yield made
    containers.wait_for_none(proxy, made, timeout=60)


def fails(jar, words, within=20):
    """A run that cannot have a sandbox says why, in time."""
    begin = time.monotonic()
    run = jar.execute("echo hi", wait=within + 10)
    assert run.outcome == "sandbox_failed" and words in run.error, run
    assert time.monotonic() - begin < within * PATIENCE


def works(jar, timeout=60):
    deadline = time.monotonic() + timeout * PATIENCE
    while (run := jar.execute("echo hi", wait=timeout)).outcome != "ok":
        assert time.monotonic() < deadline, run
        time.sleep(0.5)
    assert run.stdout == "hi\n"
    return run.session


def wait_for_output(waiting):
    deadline = time.monotonic() + 30 * PATIENCE
    while not waiting.progress:
        assert time.monotonic() < deadline, "the run does not begin"
        time.sleep(0.1)


# --- stopped and started again ------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_an_engine_that_goes_is_told_and_one_that_comes_back_is_used(own_docker, make_rootfs, end):
    make_rootfs(runtime=False)
    base = images.base(own_docker)
    jar = containers.start(own_docker, base, "--pool-size", "1")
    try:
        session = works(jar)
        getattr(own_docker, end)()
        fails(jar, "start")
        if end == "terminate":
            with pytest.raises(ToolError, match="no such session"):
                jar.execute("echo hi", session=session)
        own_docker.start()
        works(jar)
        jar.stop()
        containers.wait_for_none(own_docker, jar, timeout=60)
    finally:
        jar.kill()


def test_a_run_that_goes_on_is_told_when_its_engine_ends(own_docker, make_rootfs):
    make_rootfs(runtime=False)
    jar = containers.start(own_docker, images.base(own_docker), "--no-pool-enabled")
    try:
        waiting = jar.begin("echo begun; sleep 1000", timeout=300, progress=True)
        wait_for_output(waiting)
        own_docker.terminate()
        run = waiting.run(30)
        assert run.outcome == "sandbox_failed" and run.stdout == "begun\n", run
        own_docker.start()
    finally:
        jar.kill()


def test_an_engine_that_stands_still_is_given_up(own_docker, make_rootfs):
    make_rootfs(runtime=False)
    base = images.base(own_docker)
    jar = containers.start(own_docker, base, "--no-pool-enabled", "--docker-timeout", "2s")
    try:
        works(jar)
        own_docker.pause()
        fails(jar, "did not answer in time")
        own_docker.resume()
        works(jar)
        jar.stop()
        containers.wait_for_none(own_docker, jar, timeout=60)
    finally:
        own_docker.resume()
        jar.kill()


# --- slow ---------------------------------------------------------------------------------------------


def test_a_slow_engine_is_waited_for(jar, proxy):
    proxy.delay = 2
    assert jar.execute("echo hi", wait=60).stdout == "hi\n"


@pytest.mark.parametrize("part", [b"/create", b"/attach", b"/start"])
def test_an_engine_that_is_too_slow_leaves_nothing(proxy, base, part):
    jar = containers.start(proxy, base, "--no-pool-enabled", "--docker-timeout", "1s")
    try:
        proxy.delay, proxy.delayed = 3, part
        fails(jar, "in time", within=30)
        proxy.delay = 0
        works(jar)
    finally:
        jar.stop()
    containers.wait_for_none(proxy, jar, timeout=90)


# --- junk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part, said, words",
    [
        ("/containers/create", b"\0\1\2\3 junk\r\n\r\n", "the container engine"),
        ("/containers/create", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{", "engine"),
        ("/containers/create", answer(b"<html>", b"502 Bad Gateway"), "502"),
        (
            "/containers/create",
            answer(b'{"message":"no space left on device"}', b"500 X"),
            "disk is full",
        ),
        ("/attach", answer(b"nonsense"), "container"),
        ("/attach", b"HTTP/1.1 101 UPGRADED\r\n\r\n" + b"\x07" * 100, "junk"),
        ("/attach", b"HTTP/1.1 101 UPGRADED\r\n" + b"x" * (1 << 20), "attach"),
        ("/attach", answer(b'{"message":"gone"}', b"404 Not Found"), "gone"),
        ("/start", answer(b'{"message":"no such runtime"}', b"400 X"), "no such runtime"),
        ("/start", b"", "the container engine"),
    ],
)
def test_junk_is_an_error_and_no_more(jar, proxy, part, said, words):
    proxy.answers[part] = said
    fails(jar, words, within=30)
    proxy.answers.clear()
    works(jar)


@pytest.mark.parametrize(
    "part, said, words",
    [
        ("/version", answer(b"{}"), "no container engine"),
        ("/version", answer(b"[" * 1000), "no JSON"),
        ("/version", answer(b'{"ApiVersion":"1.20"}'), "1.20"),
        ("/info", answer(b'{"MemoryLimit":false}'), "cannot enforce seccomp"),
        ("/images/", answer(b'{"Id":"x;y"}'), "without an id"),
        ("/volumes/", answer(b"x", b"500 X"), "volume"),
        ("/info", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (5 << 20), "too long"),
    ],
)
def test_junk_at_the_start_is_said(proxy, base, part, said, words):
    proxy.answers[part] = said
    with pytest.raises((AssertionError, EOFError)) as caught:
        containers.start(proxy, base)
    assert words in str(caught.value), caught.value


# --- things that go away ------------------------------------------------------------------------------


def test_an_image_that_is_deleted_is_named_and_live_sessions_go_on(docker, make_rootfs):
    tar = make_rootfs(runtime=False)
    name = "belljar-test/fleeting:1"
    image = docker.api.import_image(tar, name)
    with containers.start(docker, name, "--no-pool-enabled") as jar:
        session = works(jar)
        docker.api.remove_image(name)  # its name: the engine keeps what a container runs in
        assert jar.execute("echo still", session=session).stdout == "still\n"
        jar.close_session(session)
        containers.wait_for_none(docker, jar)
        if docker.api.image(image):
            docker.api.remove_image(image)
        fails(jar, f"docker pull {name}")
        docker.api.import_image(tar, name)
        works(jar)


def test_a_volume_that_is_deleted_is_made_again(docker, base):
    with containers.start(docker, base, "--no-pool-enabled") as jar:
        jar.close_session(works(jar))
        containers.wait_for_none(docker, jar)
        for volume in docker.api.volumes():
            docker.api.remove_volume(volume["Name"])
        assert jar.execute("echo hi", wait=60).stdout == "hi\n"


def test_a_container_that_is_removed_is_a_lost_sandbox(docker, base):
    with containers.start(docker, base, "--no-pool-enabled") as jar:
        waiting = jar.begin("echo begun; sleep 1000", timeout=300, progress=True)
        wait_for_output(waiting)
        for name in containers.of(docker, jar):
            docker.api.remove_container(name)
        assert waiting.run(30).outcome == "sandbox_failed"
        works(jar)
