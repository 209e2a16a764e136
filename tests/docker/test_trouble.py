"""An engine that is stopped, restarted, slow, out of its mind; an image and a volume that go away: clear
errors in time, nothing hangs, and no container is left when the engine is back."""

import errno
import math
import os
import shutil
import subprocess
import time

import containers
import dockerd
import images
import pytest
from belljar import PATIENCE
from containers import full
from proxy import Proxy
from sandboxes import ToolError, until

SECOND = math.ceil(PATIENCE)  # on a busy machine

JSON = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


def answer(body, status=b"200 OK"):
    return JSON % (status, len(body), body)


@pytest.fixture(scope="module")
def base(docker, make_rootfs):
    make_rootfs(runtime=None, bare=True)
    return images.bare(docker)


@pytest.fixture(scope="module")
def module_proxy(docker):
    with Proxy(docker) as made:
        yield made


@pytest.fixture
def proxy(module_proxy):
    """It behaves, until told otherwise."""
    yield module_proxy
    module_proxy.delay, module_proxy.delayed = 0, b""
    module_proxy.answers.clear()
    module_proxy.seen.clear()


@pytest.fixture(scope="module")
def jar(module_proxy, base):
    flags = ["--no-pool-enabled", "--docker-timeout", "10s"]
    with containers.start(module_proxy, base, *flags) as made:
        yield made
    containers.wait_for_none(module_proxy, made, timeout=60)


def fails(jar, words, within=20):
    """A run that cannot have a sandbox says why, in time."""
    begin = time.monotonic()
    run = jar.execute("echo hi", "sh", wait=within + 10)
    assert run.outcome == "sandbox_failed" and words in run.error, run
    assert time.monotonic() - begin < within * PATIENCE


def works(jar, timeout=60):
    deadline = time.monotonic() + timeout * PATIENCE
    while (run := jar.execute("echo hi", "sh", wait=timeout)).outcome != "ok":
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


@pytest.mark.parametrize("end", ["terminate", pytest.param("kill", marks=full)])
def test_an_engine_that_goes_is_told_and_one_that_comes_back_is_used(own_docker, make_rootfs, end):
    make_rootfs(runtime=None, bare=True)
    base = images.bare(own_docker)
    jar = containers.start(own_docker, base, "--pool-size", "1")
    try:
        session = works(jar)
        waiting = jar.begin("echo begun; sleep 1000", "sh", timeout=300, progress=True)
        wait_for_output(waiting)
        getattr(own_docker, end)()
        fails(jar, "start")
        if end == "terminate":
            run = waiting.run(30)
            assert run.outcome == "sandbox_failed" and run.stdout == "begun\n", run
            with pytest.raises(ToolError, match="no such session"):
                jar.execute("echo hi", "sh", session=session)
        own_docker.start()
        works(jar)
        jar.stop()
        containers.wait_for_none(own_docker, jar, timeout=60)
    finally:
        jar.kill()


@full
def test_an_engine_that_stands_still_is_given_up(own_docker, make_rootfs):
    make_rootfs(runtime=None, bare=True)
    base = images.bare(own_docker)
    flags = ["--no-pool-enabled", "--docker-timeout", f"{2 * SECOND}s"]
    jar = containers.start(own_docker, base, *flags)
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
    proxy.delay = 1
    run = jar.execute("echo hi", "sh", wait=60)
    assert run.stdout == "hi\n", run
    jar.close_session(run.session)


SLOW = [b"/create", *(pytest.param(part, marks=full) for part in (b"/attach", b"/start"))]


@pytest.mark.parametrize("part", SLOW, ids=repr)
def test_an_engine_that_is_too_slow_leaves_nothing(proxy, base, part):
    flags = ["--no-pool-enabled", "--docker-timeout", f"{SECOND}s"]
    jar = containers.start(proxy, base, *flags)
    try:
        proxy.delay, proxy.delayed = 3 * SECOND, part
        fails(jar, "in time", within=30)
        proxy.delay = 0
        works(jar)
    finally:
        jar.stop()
    containers.wait_for_none(proxy, jar, timeout=90)


def test_what_is_made_for_a_dead_server_is_removed(docker, proxy, base, tmp_path):
    """It was asked for, its server was killed, the next one saw nothing; then the engine made it."""
    flags = ["--no-pool-enabled", "--docker-timeout", "20s"]
    jar = containers.start(proxy, base, *flags, state=str(tmp_path))
    proxy.delay, proxy.delayed = 2 * SECOND, b"/create"
    jar.begin("echo hi", "sh")
    until(lambda: any("/containers/create" in line for line in proxy.seen), "the request")
    time.sleep(0.5)  # for the rest of it
    jar.kill()
    with containers.start(docker, base, *flags, state=str(tmp_path)) as next:
        # Of a busy machine's engine it may be there already.
        late, early = "was made for a server that is dead", f"instance {jar.instance} has left"
        until(lambda: late in next.log_text() or early in next.log_text(), "the container")
        containers.wait_for_none(docker, jar)


# --- a full disk --------------------------------------------------------------------------------------


class SmallDockerd(dockerd.Dockerd):
    """Its data are on a file system of their own, which is soon full."""

    def start(self):
        data = self.place / "data"
        if not data.exists():
            data.mkdir()
            room = "size=128m,nr_inodes=20000,mode=0710"
            subprocess.run(["mount", "-t", "tmpfs", "-o", room, "small", data], check=True)
        super().start()

    def fill(self, what, but=0):
        """Nothing is free any more, of "bytes" or of "inodes"; `but` so many bytes."""
        place = self.place / "data/filler"
        place.mkdir()
        try:
            if what == "inodes":
                for number in range(1 << 20):
                    (place / str(number)).touch()
            with open(place / "bytes", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        if but:
            os.truncate(place / "bytes", (place / "bytes").stat().st_size - but)

    def make_room(self):
        shutil.rmtree(self.place / "data/filler")


@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_full_disk_is_said_and_when_there_is_room_all_is_well(make_rootfs, what):
    """Also for who has a container already: that goes on."""
    make_rootfs(runtime=None, bare=True)
    with dockerd.started(SmallDockerd) as engine:
        with containers.start(engine, images.bare(engine), "--no-pool-enabled") as jar:
            session = works(jar)
            engine.fill(what)
            fails(jar, "disk is full")
            assert jar.execute("echo still", "sh", session=session).stdout == "still\n"
            engine.make_room()
            works(jar)
        containers.wait_for_none(engine, jar, timeout=60)


@full
def test_a_disk_that_fills_at_any_step_leaves_nothing(make_rootfs):
    """What is free is enough for some steps of making a container, or for all."""
    make_rootfs(runtime=None, bare=True)
    seen = set()
    with dockerd.started(SmallDockerd) as engine:
        with containers.start(engine, images.bare(engine), "--no-pool-enabled") as jar:
            jar.close_session(works(jar))
            for pages in range(0, 40, 2):
                engine.fill("bytes", but=pages * 4096)
                run = jar.execute("echo hi", "sh", wait=40)
                seen.add(run.outcome)
                assert run.stdout == "hi\n" or "disk is full" in run.error, (pages, run)
                engine.make_room()
                jar.close_session(works(jar))
                if run.outcome == "ok":
                    jar.close_session(run.session)
                containers.wait_for_none(engine, jar, timeout=60)
    assert seen == {"ok", "sandbox_failed"}, seen


# --- junk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part, said, words",
    [
        ("/containers/create", b"\0\1\2\3 junk\r\n\r\n", "the container engine"),
        ("/containers/create", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{", "engine"),
        ("/containers/create", answer(b"<html>", b"502 Bad Gateway"), "502"),
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
    jar.close_session(works(jar))


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
    said = containers.refusal(*containers.flags(proxy, base))
    assert words in said, said


# --- things that go away ------------------------------------------------------------------------------


def test_an_image_that_is_deleted_is_named_and_live_sessions_go_on(docker, make_rootfs):
    tar = make_rootfs(runtime=None, bare=True)
    name = "belljar-test/fleeting:1"
    image = docker.api.import_image(tar, name)
    with containers.start(docker, name, "--no-pool-enabled") as jar:
        session = works(jar)
        docker.api.remove_image(name)  # its name: the engine keeps what a container runs in
        assert jar.execute("echo still", "sh", session=session).stdout == "still\n"
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
        for name in containers.names(docker):  # of servers that have ended
            docker.api.remove_container(name)
        for volume in docker.api.volumes():
            docker.api.remove_volume(volume["Name"])
        assert jar.execute("echo hi", "sh", wait=60).stdout == "hi\n"


def test_a_container_that_is_removed_is_a_lost_sandbox(docker, base):
    with containers.start(docker, base, "--no-pool-enabled") as jar:
        waiting = jar.begin("echo begun; sleep 1000", "sh", timeout=300, progress=True)
        wait_for_output(waiting)
        for name in containers.of(docker, jar):
            docker.api.remove_container(name)
        assert waiting.run(30).outcome == "sandbox_failed"
        works(jar)
