"""Sandboxes that are containers of a real engine: what they can, what they cannot, what is left."""

import json
import os
import subprocess
import time

import belljar
import containers
import images
import pytest
from belljar import PATIENCE


@pytest.fixture(scope="module")
def base(docker, make_rootfs):
    make_rootfs(runtime=False)
    return images.base(docker)


@pytest.fixture(scope="module")
def jar(docker, base):
    with containers.start(docker, base, "--pool-size", "1") as made:
        yield made
    containers.wait_for_none(docker, made)


@pytest.fixture
def start(docker, base):
    made = []

    def begin(*flags, **options):
        made.append(containers.start(docker, base, *flags, **options))
        return made[-1]

    yield begin
    for jar in made:
        if jar.alive():
            jar.stop()
        containers.wait_for_none(docker, jar)


def only_container(docker, jar):
    """What the engine knows of the one container there is."""
    names = containers.of(docker, jar)
    assert len(names) == 1, names
    return containers.inspect(docker, names[0])


# --- life ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "language, code, said",
    [
        ("python", "x = 20; print(x + 22)", "42\n"),
        ("bash", "echo $((6 * 7))", "42\n"),
        ("sh", "echo $((6 * 7))", "42\n"),
        ("node", "console.log(6 * 7)", "42\n"),
    ],
)
def test_languages_of_the_image_run(jar, language, code, said):
    run = jar.execute(code, language)
    assert (run.stdout, run.outcome) == (said, "ok"), run
    jar.close_session(run.session)


def test_state_and_files_are_kept_in_a_session(jar):
    first = jar.execute("x = 41; open('note', 'w').write('hi')", "python")
    second = jar.execute("print(x + 1, open('note').read())", "python", session=first.session)
    third = jar.execute("cat note", session=first.session)
    assert (second.stdout, third.stdout) == ("42 hi\n", "hi")
    jar.close_session(first.session)


def test_what_the_image_lacks_is_said_with_its_name(docker, make_rootfs, start):
    tar = make_rootfs(runtime=False, node=False)
    docker.api.import_image(tar, "belljar-test/nodeless:1")
    jar = start("--docker-image", "belljar-test/nodeless:1", "--no-pool-enabled")
    run = jar.execute("console.log(1)", "node")
    assert run.outcome == "error" and "node: No such file" in run.error, run
    assert "belljar-test/nodeless:1" in run.error


def test_python_that_is_not_there_is_said_with_the_image(start, base):
    run = start("--python", "python4", "--no-pool-enabled").execute("1", "python")
    assert "python4: No such file" in run.error and base in run.error, run


def test_code_begins_in_the_working_directory(start):
    jar = start("--docker-working-dir", "/srv/code", "--no-pool-enabled")
    run = jar.execute("pwd")
    assert run.stdout == "/srv/code\n", run
    run = jar.execute("import os; print(os.getcwd())", "python", session=run.session)
    assert run.stdout == "/srv/code\n", run


def test_a_new_session_comes_from_the_pool(start, docker):
    jar = start("--pool-size", "1", "--kernel-pool-size", "0")
    deadline = time.monotonic() + 20 * PATIENCE
    while not containers.of(docker, jar) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1 * PATIENCE)
    before = containers.of(docker, jar)
    run = jar.execute("echo hi")
    assert run.outcome == "ok" and len(before) == 1
    assert before[0] in containers.of(docker, jar), "it was somebody else"


def test_usage_is_the_engines_count(jar):
    run = jar.execute("python3 -c 'x = b\"x\" * (64 << 20)'; head -c 32m /dev/zero >kept")
    info = jar.info(run.session)
    assert info["usage"]["memory_bytes"] >= 32 << 20, info
    assert info["usage"]["processes"] >= 1 and info["usage"]["cpu_seconds"] > 0, info
    jar.close_session(run.session)


# --- limits -------------------------------------------------------------------------------------------


MANY = 'import subprocess as s; [s.Popen(["sleep", "60"]) for _ in range(300)]'


@pytest.mark.parametrize(
    "language, code, outcome",
    [
        ("python", "x = b'x' * (1 << 30)", "memory_limit"),
        ("bash", "python3 -c 'x = bytearray(1 << 30)'", "memory_limit"),
        ("bash", f"python3 -c '{MANY}'", "process_limit"),
        ("bash", "head -c 300m /dev/zero >big", "disk_limit"),
        ("bash", "yes | head -c 100m", "output_limit"),
        ("bash", "while :; do :; done", "timeout"),
        ("python", "while True: pass", "timeout"),
    ],
)
def test_each_limit_ends_its_run_and_is_named(start, language, code, outcome):
    jar = start("--no-pool-enabled", "--memory-limit", "400m", "--file-size-limit", "1g")
    run = jar.execute(code, language, timeout=5 * PATIENCE, wait=60)
    assert run.outcome == outcome, run
    after = jar.execute("echo still here", session=run.session)
    assert after.stdout == "still here\n", after


def test_memory_is_what_was_asked_for(start, docker):
    jar = start("--no-pool-enabled", "--memory-limit", "200m", "--process-limit", "50")
    jar.execute("true")
    host = only_container(docker, jar)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == (200 + 12) << 20
    assert host["PidsLimit"] == 51 and host["NanoCpus"] == 10**9


# --- walls --------------------------------------------------------------------------------------------


def test_a_container_has_nothing_it_does_not_need(start, docker):
    jar = start("--no-pool-enabled")
    jar.execute("true")
    seen = only_container(docker, jar)
    host, config = seen["HostConfig"], seen["Config"]
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and not host["Privileged"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Binds"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["LogConfig"]["Type"] == "none" and host["AutoRemove"]
    kinds = {mount["Type"] for mount in seen["Mounts"]}
    assert kinds == {"volume"} and not any(mount["RW"] for mount in seen["Mounts"])
    uid, gid = map(int, config["User"].split(":"))
    assert uid >= 524288 and gid == uid
    assert "docker.sock" not in json.dumps(seen)


INSIDE = r"""
import os, re, socket
status = open("/proc/self/status").read()
for key in ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"):
    print(key, int(re.search(rf"^{key}:\s*(\w+)$", status, re.M)[1], 16))
def attempt(what, action):
    try:
        action()
        print(what, "works")
    except OSError as error:
        print(what, os.strerror(error.errno))
attempt("write to /usr", lambda: open("/usr/x", "w"))
attempt("write to the agent", lambda: open("/opt/belljar/agent/belljar-agent", "wb"))
attempt("trace pid 1", lambda: os.listdir("/proc/1/fd"))
attempt("signal pid 1", lambda: os.kill(1, 9))
attempt("read kernel memory", lambda: open("/proc/kcore", "rb").read(1) or None)
attempt("set the host name", lambda: socket.sethostname("x"))
attempt("raw socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
print("interfaces", sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else [])
print("shared", sorted(os.listdir("/dev/shm")))
"""


def test_a_guest_sees_walls(jar):
    run = jar.execute(INSIDE, "python")
    said = run.stdout.splitlines()
    assert said[:5] == ["CapPrm 0", "CapEff 0", "CapBnd 0", "NoNewPrivs 1", "Seccomp 2"], run
    assert "write to /usr Read-only file system" in said, run
    for line in said[5:]:
        assert not line.endswith("works") or line.startswith(("signal pid 1", "read kernel")), line
    assert jar.execute("echo alive", session=run.session).stdout == "alive\n"
    jar.close_session(run.session)


def test_two_containers_have_two_users(jar):
    runs = [jar.execute("id -u; cat /proc/self/uid_map") for _ in range(2)]
    first, second = (int(run.stdout.split()[0]) for run in runs)
    assert first != second and min(first, second) > 1000
    for run in runs:
        jar.close_session(run.session)


def test_a_user_may_be_chosen(start):
    run = start("--docker-user", "1000:1000", "--no-pool-enabled").execute("id -u; id -g")
    assert run.stdout == "1000\n1000\n", run


def test_a_volume_of_the_image_is_not_on_the_engines_disk(docker, make_rootfs, start):
    tar = make_rootfs(runtime=False)
    docker.api.import_image(tar, "belljar-test/volume:1", changes=["VOLUME /data"])
    jar = start("--docker-image", "belljar-test/volume:1", "--no-pool-enabled")
    run = jar.execute("awk '$2 == \"/data\" { print $3 }' /proc/mounts; touch /data/x && echo made")
    assert run.stdout == "tmpfs\nmade\n", run
    assert [v["Name"] for v in docker.api.volumes() if not v["Name"].startswith("belljar-")] == []


def test_a_health_check_of_the_image_is_not_run(docker, make_rootfs, start):
    tar = make_rootfs(runtime=False)
    check = "HEALTHCHECK --interval=1s CMD touch /tmp/healthy"
    docker.api.import_image(tar, "belljar-test/health:1", changes=[check])
    jar = start("--docker-image", "belljar-test/health:1", "--no-pool-enabled")
    assert jar.execute("sleep 3; ls /tmp").stdout == ""


# --- the end ------------------------------------------------------------------------------------------


def test_a_closed_session_leaves_no_container(start, docker):
    jar = start("--no-pool-enabled")
    session = jar.execute("sleep 1000 & disown; echo hi").session
    assert len(containers.of(docker, jar)) == 1
    jar.close_session(session)
    containers.wait_for_none(docker, jar)


def test_a_server_that_ends_takes_its_containers(docker, base):
    jar = containers.start(docker, base, "--pool-size", "2")
    jar.execute("echo hi")
    jar.stop()
    assert containers.of(docker, jar) == []


@pytest.mark.parametrize("moment", [0.02, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.2])
def test_a_killed_server_leaves_nothing_for_long(docker, base, moment, tmp_path):
    """What the engine does not remove by itself the next start finds, and touches nothing else."""
    other = {"Image": base, "Cmd": ["true"], "Labels": {containers.LABEL: "somebody else's"}}
    foreign = docker.api.ask("POST", "/containers/create", None, other)["Id"]
    jar = containers.start(docker, base, "--pool-size", "2", state=str(tmp_path))
    jar.begin("sleep 1000")
    time.sleep(moment * PATIENCE)
    jar.kill()
    try:
        containers.start(docker, base, "--no-pool-enabled", state=str(tmp_path)).stop()
        containers.wait_for_none(docker, jar)
        assert containers.inspect(docker, foreign)["Id"] == foreign
    finally:
        docker.api.remove_container(foreign)


# --- words --------------------------------------------------------------------------------------------


def cli(*words, **env):
    return subprocess.run(
        [belljar.BIN, *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env},
    )


def test_doctor_tells_what_the_engine_is(docker, base):
    done = cli("doctor", **containers.environment(docker, base))
    assert done.returncode == 0, done.stdout + done.stderr
    facts = docker.api.version()
    assert f"Docker {facts['Version']}" in done.stdout and "runc by default" in done.stdout
    assert f"driver {docker.api.info()['CgroupDriver']}" in done.stdout
    assert "not rootless" in done.stdout and "one was made" in done.stdout


def test_doctor_tells_that_there_is_none():
    done = cli("doctor", BELLJAR_ENGINE="docker", DOCKER_HOST="unix:///nonexistent/sock")
    assert done.returncode == 1
    assert "there is no unix:///nonexistent/sock" in done.stdout and "systemctl" in done.stdout


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--docker-host", "unix:///nonexistent/sock"], "start the container engine"),
        (["--docker-host", "tcp://127.0.0.1:9"], "no container engine answers"),
        (["--docker-host", "ssh://host"], "docker.host"),
        (["--docker-image", "no-such-image:1"], "docker pull no-such-image:1"),
        (["--docker-image", "../../etc"], "docker.image"),
        (["--docker-user", "0"], "docker.user"),
        (["--docker-user", "root"], "docker.user"),
        (["--docker-runtime", "no-such-runtime"], "no-such-runtime"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(docker, base, flags, words):
    done = cli("run", "--language", "sh", "-", **env_of(docker, base, flags))
    assert done.returncode not in (0, None)
    assert words in done.stderr, done.stderr


def env_of(docker, base, flags):
    env = containers.environment(docker, base)
    for name, value in zip(flags[::2], flags[1::2], strict=True):
        env[f"BELLJAR_{name.removeprefix('--').replace('-', '_').upper()}"] = value
    return env


def test_a_socket_that_is_not_ours_is_named_with_the_remedy(docker, base, tmp_path):
    from sandboxes import binary_for, ordinary_user

    user = ordinary_user()
    env = {"PATH": os.environ["PATH"], "HOME": user.home, **containers.environment(docker, base)}
    done = subprocess.run(
        ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "--"]
        + [str(binary_for(user)), "run", "--language", "sh", "-"],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )
    assert "usermod -aG docker" in done.stderr, done.stderr


# --- Podman -------------------------------------------------------------------------------------------

CALLS = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    libc.syscall(number, *words)
    return os.strerror(ctypes.get_errno())
print("unshare", call(272, 0x10000000), "clone3", call(435, 0, 0), "keyctl", call(250, 0))
"""


def test_podman_is_an_engine_too(podman, make_rootfs):
    """The core: languages, a limit, walls, files, and nothing is left."""
    make_rootfs(runtime=False)
    jar = containers.start(podman, images.base(podman), "--pool-size", "1")
    with jar:
        run = jar.execute("x = 6 * 7; print(x)", "python")
        again = jar.execute("print(x)", "python", session=run.session)
        assert (run.stdout, again.stdout) == ("42\n", "42\n")
        shell = jar.execute("echo hi >note; cat note; touch /usr/x", session=run.session)
        assert shell.stdout == "hi\n" and "Read-only file system" in shell.stderr, shell
        said = jar.execute(CALLS, "python", session=run.session).stdout
        assert said.split(" ", 1)[1].startswith("Operation not permitted"), said
        assert "clone3 Function not implemented" in said and "keyctl Operation not" in said, said
        hog = jar.execute("x = b'x' * (1 << 30)", "python", session=run.session, wait=60)
        assert hog.outcome == "memory_limit", hog
    containers.wait_for_none(podman, jar)
