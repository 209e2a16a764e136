"""What a sandbox is made of, seen from the host: the guest's own word is not asked."""

import os
import re
import secrets

import host
import pytest

# docs/sandbox.md says the same to users.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin",
    "HOME": "/workspace",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
# docs/engines.md: a uid without a name; what a container has for its agent.
NAMELESS = {"USER": "guest", "LOGNAME": "guest"}
AGENTS_MEMORY, AGENTS_PROCESSES = 12 << 20, 1


class Sleeper:
    """A guest that does nothing but be looked at."""

    def __init__(self, jar, language="bash"):
        marker = secrets.token_hex(8)
        seconds = f"1{int(marker[:6], 16)}"
        code = {
            "bash": f"echo $$; exec sleep {seconds}",
            "sh": f"echo $$; exec sleep {seconds}",
            "node": f"console.log(process.pid); setTimeout(() => {{}}, 1e9) // {marker}",
        }[language]
        self.session = jar.tool("start_session")["session_id"]
        self.waiting = jar.begin(code, language, session=self.session, timeout=60, progress=True)
        assert host.wait_for(lambda: self.waiting.progress, 10), jar.log_text()
        self.inner = int(self.waiting.progress[0][1].split()[0])
        if language == "node":
            known = [task for task in host.guests(jar.guests_below) if "node" in task.command]
        else:
            known = host.find(f"sleep {seconds}", jar.guests_below)
        self.task = [task for task in known if task.inner_pid == self.inner][-1]


@pytest.fixture(scope="module")
def sleepers(start, numbers):
    with start() as jar:
        yield jar, [Sleeper(jar, ["bash", "sh"][i % 2]) for i in range(numbers.live)]


@pytest.mark.parametrize("kind", host.NAMESPACES)
def test_every_namespace_is_new(sleepers, mode, kind):
    jar, guests = sleepers
    if kind == "user" and mode == "docker" and "user_namespace" not in jar.enforced():
        pytest.skip("this container engine has no user namespace (docs/engines.md)")
    ours = host.link(f"/proc/self/ns/{kind}")
    theirs = [guest.task.namespaces()[kind] for guest in guests]
    assert all(theirs) and ours not in theirs, (ours, theirs)
    # One user namespace may serve all: what is in it is by uid. So may one for cgroups of version 2 (docs/security.md).
    if kind != "user" and (kind != "cgroup" or host.has_old_cgroups()):
        assert len(set(theirs)) == len(theirs), f"two sandboxes share one: {theirs}"


@pytest.mark.parametrize("kind", [kind for kind in host.NAMESPACES if kind != "user"])
def test_no_namespace_is_the_sandbox_s_own_but_that_of_users(sleepers, mode, kind):
    """Whatever somebody becomes in there, that gives no right over mounts, processes and networks."""
    if mode == "docker":
        pytest.skip("namespaces of containers belong to whom the engine says")
    _jar, guests = sleepers
    for guest in guests:
        below = f"/proc/{guest.task.pid}/ns"
        assert host.owner_of(f"{below}/{kind}") != os.stat(f"{below}/user").st_ino


def test_live_sandboxes_share_no_user_namespace(sleepers, mode):
    if mode == "docker":
        pytest.skip("it is the engine's to give (docs/engines.md)")
    theirs = [guest.task.namespaces()["user"] for guest in sleepers[1]]
    assert len(set(theirs)) == len(theirs), theirs


def test_outside_uid_is_nobody_else_s(sleepers, mode):
    jar, guests = sleepers
    uids = [set(guest.task.status("Uid")) for guest in guests]
    gids = [set(guest.task.status("Gid")) for guest in guests]
    assert all(len(ids) == 1 and "0" not in ids for ids in uids + gids), (uids, gids)
    if mode in ("root", "docker"):
        assert "own_uid" in jar.enforced(), jar.enforced()
    if "own_uid" in jar.enforced():
        assert len({ids.pop() for ids in uids}) == len(guests), "two live sandboxes share a uid"
    groups = [guest.task.status("Groups") for guest in guests]
    assert not [group for group in groups if "0" in group], groups


def test_no_privilege_is_left(sleepers):
    for guest in sleepers[1]:
        task = guest.task
        assert task.status("NoNewPrivs") == ["1"], task
        assert task.status("Seccomp") == ["2"], task
        assert int(task.status("Seccomp_filters")[0]) >= 1, task
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(task.status(name)[0], 16) == 0, (name, task.status(name))


def test_the_agent_is_confined_too(sleepers):
    """Pid 1 is reachable for hostile input: no new privilege, a filter, few capabilities, not root."""
    jar, guests = sleepers
    for guest in guests:
        agents = [
            task
            for task in host.below(jar.guests_below)
            if task.pid_namespace == guest.task.pid_namespace and task.inner_pid == 1
        ]
        assert len(agents) == 1, agents
        agent = agents[0]
        assert "0" not in agent.status("Uid"), agent.status("Uid")
        assert agent.status("NoNewPrivs") == ["1"] and agent.status("Seccomp") == ["2"], agent
        kill_setgid_setuid_setpcap = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8
        caps = int(agent.status("CapEff")[0], 16)
        assert caps & ~kill_setgid_setuid_setpcap == 0, hex(caps)


def test_descriptors_are_exactly_three(sleepers):
    for guest in sleepers[1]:
        fds = sorted(os.listdir(f"/proc/{guest.task.pid}/fd"), key=int)
        assert fds == ["0", "1", "2"], {
            fd: host.link(f"/proc/{guest.task.pid}/fd/{fd}") for fd in fds
        }
        kinds = [host.link(f"/proc/{guest.task.pid}/fd/{fd}") for fd in fds]
        assert kinds[0] == "/dev/null" and all(k.startswith("pipe:") for k in kinds[1:]), kinds


def test_environment_is_the_documented_list(sleepers, mode):
    documented = ENVIRONMENT | (NAMELESS if mode == "docker" else {})
    for guest in sleepers[1]:
        text = host.read(f"/proc/{guest.task.pid}/environ")
        found = dict(item.split("=", 1) for item in text.split("\0") if item)
        for shell in ("PWD", "SHLVL", "_", "OLDPWD"):  # the shell's own
            found.pop(shell, None)
        assert found == documented, found


def test_limits_of_a_process(sleepers):
    for guest in sleepers[1]:
        limits = {}
        for line in host.read(f"/proc/{guest.task.pid}/limits").splitlines()[1:]:
            found = re.match(r"(Max .*?)\s{2,}(\S+)\s+(\S+)", line)
            limits[found[1]] = found[3]
        assert limits["Max open files"] == "1024", limits
        assert limits["Max core file size"] in ("0", "1"), limits
        assert limits["Max file size"] == str(256 << 20), limits


def test_cgroups_bound_the_sum(sleepers, mode):
    jar, guests = sleepers
    if mode in ("root", "docker"):
        assert {"memory_limit", "pids_limit", "cpu_limit"} <= jar.enforced(), jar.enforced()
    if "memory_limit" not in jar.enforced():
        pytest.skip("no cgroup for this user on this host")
    places = [frozenset(guest.task.cgroups()) for guest in guests]
    assert len(set(places)) == len(places), "two sandboxes share a cgroup"
    ours = set(host.Task(os.getpid()).cgroups())
    limits = {}
    for place in places[0] - ours:
        for name in ("memory.limit_in_bytes", "memory.max", "pids.max"):
            if value := host.read(f"{place}/{name}").strip():
                limits[name] = value
    memory, processes = (AGENTS_MEMORY, AGENTS_PROCESSES) if mode == "docker" else (0, 0)
    assert str((512 << 20) + memory) in limits.values(), limits
    assert str(128 + processes) in limits.values(), limits


def test_the_server_that_parses_client_bytes_has_no_privilege(sleepers, mode):
    jar, _ = sleepers
    server = host.Task(jar.pid)
    assert int(server.status("CapEff")[0], 16) == 0, server.status("CapEff")
    assert int(server.status("CapPrm")[0], 16) == 0, server.status("CapPrm")
    if mode in ("root", "docker"):
        assert "0" not in server.status("Uid"), server.status("Uid")
        assert "0" not in server.status("Gid"), server.status("Gid")
        assert "0" not in server.status("Groups"), server.status("Groups")


def test_the_same_holds_from_inside(sleepers):
    """What a guest sees agrees with what the host sees."""
    jar, _ = sleepers
    run = jar.execute(
        "ls -l /proc/self/fd; cat /proc/self/status /proc/self/uid_map; id; hostname; pwd; "
        "grep -c . /proc/net/dev; ls -A /workspace; ls /proc | grep -c '^[0-9]'"
    )
    assert "uid=1000" in run.stdout or "uid=0" not in run.stdout, run
    assert "NoNewPrivs:\t1" in run.stdout and "Seccomp:\t2" in run.stdout, run
    jar.close_session(run.session)


def test_a_new_sandbox_holds_nothing_of_an_old_one(jar, numbers):
    """Whatever one session leaves, those after it find nothing, also when they get its uid."""
    plant = """
        secret=left-behind-by-the-first
        echo $secret >/workspace/a; echo $secret >/tmp/a; echo $secret >/dev/shm/a
        echo $secret >/var/tmp/a; ipcmk -M 4096 >/dev/null; ipcmk -Q >/dev/null
        (setsid sleep 1000 $secret 2>/dev/null &)
    """
    look = """
        cat /workspace/* /tmp/* /dev/shm/* /var/tmp/* 2>/dev/null
        cat /proc/[0-9]*/cmdline | tr '\\0' ' '
        grep -c . /proc/sysvipc/shm /proc/sysvipc/msg
        ls -A /workspace /dev/shm /tmp
    """
    for _ in range(numbers.live):
        run = jar.execute(look)
        assert "left-behind" not in run.stdout, run
        assert "shm:1" in run.stdout and "msg:1" in run.stdout, run  # the heading only
        assert jar.execute(plant, session=run.session).outcome in ("ok", "error")
        jar.close_session(run.session)
