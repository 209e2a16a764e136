"""belljar in a container, started with the flags that docs/engines.md names."""

import json
import pathlib
import re
import shlex
import subprocess

import belljar
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = "belljar-test/server:latest"
LAYERS = """user_namespace mount_namespace pid_namespace network_namespace ipc_namespace uts_namespace
    cgroup_namespace seccomp own_uid memory_limit pids_limit cpu_limit""".split()
# What only a server that stays needs, and a network.
ELSEWHERE = {"--detach": 0, "--name": 1, "--publish": 1, "--env": 1}


def documented(image):
    """The flags of the `docker run` that ends with this image."""
    text = (ROOT / "docs/engines.md").read_text()
    found = re.search(rf"^docker run ((?:.*\\\n)*) *{image}$", text, re.MULTILINE)
    words = shlex.split(found[1].replace("\\\n", " "))
    flags = []
    while words:
        word = words.pop(0)
        if word in ELSEWHERE:
            del words[: ELSEWHERE[word]]
        else:
            flags.append(word)
    assert flags, "the page names flags"
    return flags


@pytest.fixture(scope="module")
def inside(docker, make_rootfs):
    """Runs belljar in a container: inside(flags, words, code) is the finished process."""
    if not docker.api.image(BASE):
        docker.api.import_image(make_rootfs(runtime=None, server=True), BASE)
    command = ["docker", "--host", docker.host, "run", "--rm", "--interactive", "--network", "none"]
    command += ["--volume", f"{belljar.need(belljar.BIN)}:/usr/bin/belljar:ro"]

    def run(flags, *words, code="", before=()):
        return subprocess.run(
            [*command, *flags, BASE, *before, "belljar", *words],
            input=code,
            capture_output=True,
            text=True,
            timeout=60 * belljar.PATIENCE,
        )

    return run


def enforced(done):
    assert done.stdout, done.stderr
    return {name for name, holds in json.loads(done.stdout)["enforced"].items() if holds}


@pytest.fixture(scope="module", autouse=True)
def plain_build():
    if belljar.is_sanitized():
        pytest.skip("the sanitizers' libraries are not in the image")


# --- the native engine --------------------------------------------------------------------------------


def test_native_sandboxes_have_every_layer_in_a_container(inside):
    done = inside(documented("belljar-native"), "doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert set(LAYERS) <= enforced(done)


def test_native_sandboxes_run_code_in_a_container(inside):
    code = "import os; print(os.getuid(), os.getpid() > 1, 6 * 7)"
    done = inside(documented("belljar-native"), "run", "--language", "python", "-", code=code)
    assert (done.returncode, done.stdout) == (0, "1000 True 42\n"), done.stderr


def test_native_limits_hold_in_a_container(inside):
    words = ["run", "--memory-limit", "64m", "--language", "python", "-"]
    done = inside(documented("belljar-native"), *words, code="x = bytearray(1 << 30)")
    assert done.returncode == 125 and "memory_limit" in done.stderr, done.stderr


def test_a_native_server_in_a_container_has_nothing_to_complain_of(inside):
    seconds = str(int(5 * belljar.PATIENCE))
    before = ["timeout", "--preserve-status", seconds]
    done = inside(documented("belljar-native"), "serve", "--http", "127.0.0.1:0", before=before)
    assert done.returncode == 0 and "listening on" in done.stderr, done.stderr
    assert " warning " not in done.stderr and " error " not in done.stderr, done.stderr


@pytest.mark.parametrize("word", ["seccomp=unconfined", "systempaths=unconfined"])
def test_without_a_documented_flag_doctor_names_it(inside, word):
    flags = documented("belljar-native")
    at = flags.index(word)
    done = inside([*flags[: at - 1], *flags[at + 1 :]], "doctor")
    assert done.returncode == 1 and word in done.stdout, done.stdout


def test_without_writable_cgroups_the_limits_are_missing(inside):
    flags = documented("belljar-native")
    at = flags.index("/sys/fs/cgroup:/sys/fs/cgroup:rw")
    done = inside([*flags[: at - 1], *flags[at + 1 :]], "doctor", "--json")
    assert set(LAYERS) - enforced(done) == {"memory_limit", "pids_limit", "cpu_limit"}


# --- the docker engine --------------------------------------------------------------------------------


def test_sandboxes_beside_the_container_run_code(docker, inside):
    flags = [
        word.replace("/var/run/docker.sock:", f"{docker.socket}:", 1)
        for word in documented("belljar-server")
    ]
    words = ["run", "--engine", "docker", "--docker-image", BASE, "--language", "python", "-"]
    done = inside(flags, *words, code="import os; print(os.getuid() > 0, 6 * 7)")
    assert (done.returncode, done.stdout) == (0, "True 42\n"), done.stderr
    assert docker.api.containers() == []


def test_without_the_socket_the_remedy_is_told(inside):
    done = inside([], "run", "--engine", "docker", "--language", "sh", "-", code="true")
    assert done.returncode == 1 and "docker.host" in done.stderr, done.stderr
