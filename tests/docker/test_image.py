"""`belljar image build`: the default image, made by a real engine from a root file system."""

import os
import pathlib
import signal
import socket
import subprocess
import tarfile
import threading
import time

import belljar
import images
import pytest
from containers import FULL, full

TAG = "belljar-test/build:latest"
LIBRARIES = (
    "numpy, pandas, scipy, matplotlib, seaborn, plotly, sympy, sklearn, statsmodels, PIL, IPython"
)


def refused(done, *words, status=1):
    """It failed with one clear line on standard error, and says nothing of success."""
    assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr
    assert "sha256:" not in done.stdout.rsplit("\n", 2)[-1]
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def state_of(engine):
    """What a build could leave: images with a name, containers. Steps without a name are the engine's
    cache."""
    tags = [name for image in engine.api.images() for name in image["RepoTags"] or []]
    names = sorted(name for name in tags if name != "<none>:<none>")
    return names, [container["Id"] for container in engine.api.containers()]


# --- what it makes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(request, make_rootfs):
    """Builds in a dockerd, from a root file system that has no user but root. In a short check test_suites.py
    is alone to build one."""
    if not FULL:
        pytest.skip("takes long (BELLJAR_FULL=1)")
    engine = request.getfixturevalue("docker")
    tar = make_rootfs(guest=False)
    done = images.build(engine, "--from-rootfs", tar, "--tag", TAG)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return engine, tar, done


def test_the_build_tells_its_progress_and_the_image(built):
    engine, _, done = built
    assert done.stdout.splitlines()[-1] == engine.api.image(TAG)["Id"]
    assert "Step 1/" in done.stdout and "setup: python: Python 3." in done.stdout
    assert done.stderr == ""


def test_code_runs_as_a_user_who_is_not_root(built):
    engine = built[0]
    said = "uid=1000(guest) gid=1000(guest) groups=1000(guest)\n/workspace\n"
    assert engine.api.run(TAG, ["sh", "-c", "id; pwd; touch here"]) == (0, said)
    assert engine.api.run(TAG, ["touch", "/usr/bin/here"])[0] == 1


def test_the_workspace_has_the_names_that_profiles_promise(built):
    said = "/workspace\n/workspace\n"
    assert built[0].api.run(TAG, ["readlink", "/app", "/home/user/session"]) == (0, said)


def test_python_has_the_scientific_set(built):
    status, said = built[0].api.run(TAG, ["python3", "-c", f"import {LIBRARIES}; print('all')"])
    assert (status, said) == (0, "all\n")


def test_node_and_bash_are_there(built):
    assert built[0].api.run(TAG, ["node", "-p", "6 * 7"]) == (0, "42\n")
    assert built[0].api.run(TAG, ["bash", "-c", "echo ${BASH_VERSION%%.*}"])[1].strip() >= "5"


def test_the_recipe_itself_is_not_in_the_image(built):
    assert built[0].api.run(TAG, ["ls", "/opt/belljar"]) == (0, "runtime\n")


def test_the_image_says_who_made_it(built):
    version = subprocess.run([belljar.BIN, "--version"], capture_output=True, text=True).stdout
    labels = built[0].api.image(TAG)["Config"]["Labels"]
    assert labels["belljar.version"] in version


def test_the_same_again_is_the_same_image(built):
    engine, tar, first = built
    done = images.build(engine, "--from", parent_of(engine), "--tag", TAG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert "Using cache" in done.stdout


def test_every_step_is_done_again_if_asked_for(built):
    engine = built[0]
    tag = "belljar-test/again:latest"
    done = images.build(engine, "--from", parent_of(engine), "--tag", tag, "--no-cache")
    assert done.returncode == 0, done.stderr
    assert "Using cache" not in done.stdout
    engine.api.remove_image(tag)


def test_no_container_is_left(built):
    assert built[0].api.containers() == []


def parent_of(engine):
    """The imported root file system, by its id."""
    return engine.api.ask("GET", f"/images/{TAG}/history")[-1]["Id"]


@full
def test_podman_builds_the_same(podman, make_rootfs):
    tar = make_rootfs(runtime="lean", guest=False)
    done = images.build(podman, "--from-rootfs", tar, "--tag", TAG)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    status, said = podman.api.run(TAG, ["python3", "-c", "import numpy, os; print(os.getuid())"])
    assert (status, said) == (0, "1000\n")


# --- what it refuses ----------------------------------------------------------------------------------


def test_a_base_that_lacks_something_is_told_what(docker, make_rootfs):
    before = state_of(docker)
    tar = make_rootfs(runtime=None, node=False)
    done = images.build(docker, "--from-rootfs", tar, "--tag", "belljar-test/lacking")
    refused(done, "build belljar-test/lacking from sha256:", "returned a non-zero code: 1")
    assert "the base lacks nodejs and has no apt-get" in done.stdout
    assert state_of(docker) == before


def test_a_base_that_does_not_exist_is_named(docker):
    done = images.build(docker, "--from", "belljar-test/nowhere:1")
    refused(done, "from belljar-test/nowhere:1")


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "No such file"),
        (b"", "empty"),
        (b"no archive at all" * 1000, "import"),
    ],
    ids=["absent", "empty", "junk"],
)
def test_a_rootfs_that_is_none_is_named(docker, tmp_path, content, words):
    before = state_of(docker)
    tar = tmp_path / "the-root.tar"
    if content is not None:
        tar.write_bytes(content)
    done = images.build(docker, "--from-rootfs", tar)
    refused(done, "the-root.tar", words, status=2 if content == b"" else 1)
    assert state_of(docker) == before


def test_a_directory_is_no_rootfs(docker, tmp_path):
    refused(images.build(docker, "--from-rootfs", tmp_path), "tar -C DIRECTORY", status=2)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--from", "a", "--from-rootfs", "b"], "not both"),
        (["--network", "bridge"], "--network"),
        (["--tag", "a b"], "--tag"),
        (["--tag", "x" * 501], "--tag"),
        (["--from", "base\nRUN true"], "--from"),
        (["--from", "/absolute"], "--from"),
    ],
)
def test_flags_that_make_no_sense_are_named(docker, flags, words):
    refused(images.build(docker, *flags), words, status=2)


def test_the_verb_is_named():
    done = subprocess.run([belljar.BIN, "image"], capture_output=True, text=True)
    assert done.returncode == 2 and "belljar image build" in done.stderr


# --- engines that fail --------------------------------------------------------------------------------


class Elsewhere:
    def __init__(self, host):
        self.host = host


def test_no_engine_at_all_is_told_with_the_remedy(tmp_path):
    done = images.build(Elsewhere(f"unix://{tmp_path}/none"))
    refused(done, f"{tmp_path}/none", "docker.host")


class Fake(threading.Thread):
    """An engine that answers the version, and whatever it was told to the next request."""

    VERSION = b'{"ApiVersion":"1.41","MinAPIVersion":"1.12","Version":"20.10"}'

    def __init__(self, place, answer, hold=False):
        super().__init__(daemon=True)
        self.path, self.answer, self.hold = place / "fake", answer, hold
        self.host = f"unix://{self.path}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.gone = threading.Event()
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return
            data += piece
        if b"/version" in data.split(b"\r\n")[0]:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            connection.sendall(head % len(self.VERSION) + self.VERSION)
        else:
            connection.sendall(self.answer)
            while self.hold and connection.recv(65536):
                pass
            self.gone.set()
        connection.close()


def body(said, status=b"200 OK"):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said)


@pytest.mark.parametrize(
    "answer, words",
    [
        (body(b"what?\n"), "not JSON"),
        (body(b"[" * 100000 + b"\n"), "not JSON"),
        (body(b'{"stream":"' + b"x" * (1 << 20) + b'"}\n'), "more than 1048576 bytes"),
        (body(b'{"error":"out of \\u001b[1m luck\\nand more"}\n'), "out of \\u001b[1m luck"),
        (body(b'{"message":"full: no space left on device"}', b"500 X"), "disk is full"),
        (body(b"nonsense", b"500 X"), "500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "the container engine"),
        (b"\0\0\0\0\r\n\r\n", "the container engine"),
        (body(b""), "look at the image"),
    ],
)
def test_junk_from_an_engine_is_an_error(tmp_path, answer, words):
    done = images.build(Fake(tmp_path, answer), "--tag", "x:1", timeout=20)
    refused(done, words)


def test_what_a_build_prints_cannot_drive_the_terminal(tmp_path):
    said = b'{"stream":"\\u001b]0;title\\u0007 \\u001b[2J ok\\n"}\n{"error":"end"}\n'
    done = images.build(Fake(tmp_path, body(said)), "--tag", "x:1")
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout and " ok\n" in done.stdout


def test_an_engine_that_never_ends_is_given_up(tmp_path):
    engine = Fake(tmp_path, b"HTTP/1.1 200 OK\r\n\r\n", hold=True)
    begin = time.monotonic()
    done = images.build(engine, "--docker-build-timeout", "1s", timeout=30)
    refused(done, "in time")
    assert time.monotonic() - begin < 10 * belljar.PATIENCE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_request(tmp_path, number):
    engine = Fake(tmp_path, b"HTTP/1.1 200 OK\r\n\r\n", hold=True)
    process = subprocess.Popen(
        [belljar.need(belljar.BIN), "image", "build"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_HOST": engine.host},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5 * belljar.PATIENCE)
    process.send_signal(number)
    assert process.wait(10 * belljar.PATIENCE) == 130
    assert engine.gone.wait(10)


@full
def test_an_interrupted_build_leaves_no_container(docker, make_rootfs, tmp_path):
    """The step that runs when the signal comes is ended by the engine."""
    slow = tmp_path / "slow.tar"
    slow_rootfs(make_rootfs(runtime=None), slow)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_HOST": docker.host}
    process = subprocess.Popen(
        [belljar.need(belljar.BIN), "image", "build", "--from-rootfs", slow, "--tag", "slow:1"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if "sleeping" in line:
            break
    assert docker.api.containers(), "the step runs in a container"
    process.send_signal(signal.SIGINT)
    assert process.wait(10 * belljar.PATIENCE) == 130
    deadline = time.monotonic() + 30 * belljar.PATIENCE
    while docker.api.containers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert docker.api.containers() == [] and docker.api.image("slow:1") is None


def slow_rootfs(source, target):
    """A root file system whose grep, which the set-up calls, takes its time."""
    target.write_bytes(pathlib.Path(source).read_bytes())
    script = target.parent / "grep"
    script.write_text("#!/bin/sh\necho sleeping\nexec sleep 1000\n")
    script.chmod(0o755)
    with tarfile.open(target, "a") as tar:
        tar.add(script, "usr/local/bin/grep")
