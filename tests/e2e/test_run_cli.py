"""belljar run and belljar doctor, from the shell."""

import json
import os
import signal
import subprocess
import time

import belljar
import pytest
import sandboxes
from belljar import PATIENCE, need


@pytest.fixture(params=["root", "user"])
def who(request):
    """Whose shell it is."""
    if request.param == "root":
        if os.geteuid() != 0:
            pytest.skip("only root can be root")
        return None
    return sandboxes.ordinary_user() if os.geteuid() == 0 else None


def command(who, *words):
    need(belljar.BIN)
    return [*sandboxes.as_user(who), str(sandboxes.binary_for(who)), *map(str, words)]


def environment(who):
    return {
        **belljar.passed_on(),
        "HOME": who.home if who else "/root",
        "SECRET_OF_THE_SHELL": "hunter2",
    }


def belljar_run(who, code, *flags, timeout=30):
    return subprocess.run(
        command(who, "run", *flags),
        input=code.encode(),
        capture_output=True,
        timeout=timeout * PATIENCE,
        env=environment(who),
        cwd="/",
    )


def test_hello(who):
    done = belljar_run(who, "echo hi", "--language", "bash", "-")
    assert (done.returncode, done.stdout) == (0, b"hi\n"), done


@pytest.mark.parametrize("status", [0, 1, 7, 124, 255])
def test_the_exit_status_passes_through(who, status):
    assert belljar_run(who, f"exit {status}", "--language", "bash", "-").returncode == status


def test_a_signal_is_told_as_shells_do(who):
    done = belljar_run(who, "kill -9 $$", "--language", "bash", "-")
    assert done.returncode == 137 and b"signal" in done.stderr, done


def test_streams_and_bytes_pass_through(who):
    done = belljar_run(
        who, r"printf 'a\0\377b'; printf 'e\376' >&2; exit 3", "--language", "bash", "-"
    )
    assert done.returncode == 3 and done.stdout == b"a\0\xffb", done
    assert b"e\xfe" in done.stderr, done


@pytest.mark.parametrize(
    "name, code, want",
    [("x.sh", "echo $BASH_VERSION | wc -w", b"1\n"), ("x.js", "console.log(6*7)", b"42\n")],
)
def test_the_language_follows_the_file_s_name(who, tmp_path, name, code, want):
    place = sandboxes.make_state(who)
    try:
        path = os.path.join(place, name)
        with open(path, "w") as file:
            file.write(code)
        os.chmod(path, 0o644)
        done = subprocess.run(
            command(who, "run", path),
            capture_output=True,
            env=environment(who),
            timeout=30 * PATIENCE,
        )
        assert (done.returncode, done.stdout) == (0, want), done
    finally:
        import shutil

        shutil.rmtree(place)


def test_the_sandbox_is_one(who):
    """The shell's environment, files and processes stay outside."""
    done = belljar_run(
        who,
        "env; id -u; ls -A /root /home 2>&1; ls -d /proc/[0-9]* | wc -l",
        "--language",
        "sh",
        "-",
    )
    assert done.returncode == 0 and b"hunter2" not in done.stdout, done
    assert int(done.stdout.split()[-1]) < 10, done


@pytest.mark.parametrize(
    "words, said",
    [
        (["run", "/nonexistent.sh"], "nonexistent"),
        (["run", "--language", "cobol", "-"], "cobol"),
        (["run"], ""),
        (["run", "--no-such-flag", "-"], "no-such-flag"),
        (["run", "/etc/hosts"], "language"),
    ],
)
def test_mistakes_are_explained(words, said):
    done = subprocess.run(
        command(None, *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )
    assert done.returncode not in (0, None) and said in done.stderr.decode(), done
    assert done.stderr and not done.stdout, done


def test_a_time_limit(who):
    done = belljar_run(
        who, "echo partial; sleep 60", "--run-timeout", "1s", "--language", "bash", "-"
    )
    assert done.returncode == 124 and done.stdout == b"partial\n", done
    assert b"1" in done.stderr and b"time" in done.stderr, done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_with_what_there_is(number):
    process = subprocess.Popen(
        command(None, "run", "--language", "bash", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(None),
    )
    process.stdin.write(b"echo partial; sleep 60\n")
    process.stdin.close()
    assert process.stdout.readline() == b"partial\n"
    began = time.monotonic()
    process.send_signal(number)
    status = process.wait(5 * PATIENCE)
    assert time.monotonic() - began < 1.6 * PATIENCE
    assert status == 130, (status, process.stderr.read())


def test_output_comes_while_it_runs():
    process = subprocess.Popen(
        command(None, "run", "--language", "bash", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(None),
    )
    process.stdin.write(b"echo now; sleep 2; echo later\n")
    process.stdin.close()
    began = time.monotonic()
    assert process.stdout.readline() == b"now\n"
    assert time.monotonic() - began < 1.5 * PATIENCE
    assert process.stdout.read() == b"later\n" and process.wait() == 0


# --- doctor -----------------------------------------------------------------------------------------------


def test_doctor_speaks_to_people(who):
    done = subprocess.run(
        command(who, "doctor"), capture_output=True, env=environment(who), timeout=30 * PATIENCE
    )
    text = done.stdout.decode()
    for word in ("user namespace", "seccomp", "cgroup", "memory"):
        assert word in text.lower().replace("_", " "), text
    assert done.returncode in (0, 1), done


@pytest.mark.packages
def test_doctor_speaks_json(who):
    done = subprocess.run(
        command(who, "doctor", "--json"),
        capture_output=True,
        env=environment(who),
        timeout=30 * PATIENCE,
    )
    said = json.loads(done.stdout)
    assert isinstance(said, dict) and said, said
    assert said["works"] is True and said["enforced"]["seccomp"] is True, said
    for check in said["checks"]:
        assert check["name"] and check["verdict"], check
        assert check["verdict"] == "ok" or check["detail"], check
    if who is None and os.geteuid() == 0:
        assert done.returncode == 0, done


@pytest.mark.packages
def test_doctor_tells_of_packages(who, tmp_path):
    tmp_path.chmod(0o777)
    for directory in list(tmp_path.parents)[:2]:
        directory.chmod(0o755)

    def packages(*flags):
        done = subprocess.run(
            command(who, "doctor", "--json", *flags),
            capture_output=True,
            env=environment(who),
            timeout=30 * PATIENCE,
        )
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        return checks["packages"], checks.get("package installer")

    place = tmp_path / "shelf"
    kept, installer = packages("--package-dir", place, "--package-index", "https://index.example/")
    assert (
        kept["verdict"] == "ok" and f"0 sets, 0 of at most 4096 MiB, in {place}" in kept["detail"]
    )
    assert "https://index.example/" in installer["detail"]
    kept, installer = packages("--no-packages-enabled")
    assert kept["detail"] == "off (packages_enabled)" and installer is None
    kept, installer = packages("--package-dir", "/proc/nowhere")
    assert kept["verdict"] == "warning" and "/proc/nowhere" in kept["detail"] and kept["remedy"]


def test_doctor_and_the_server_agree(who):
    done = subprocess.run(
        command(who, "doctor", "--json"),
        capture_output=True,
        env=environment(who),
        timeout=30 * PATIENCE,
    )
    text = json.dumps(json.loads(done.stdout))
    with sandboxes.Jar(user=who) as jar:
        for layer in jar.enforced():
            assert layer in text, (layer, text)


# --- sessions ---------------------------------------------------------------------------------------------


def listed(who, state, *flags):
    done = subprocess.run(
        command(who, "sessions", "--state-dir", state, *flags),
        capture_output=True,
        env=environment(who),
        timeout=30 * PATIENCE,
    )
    assert done.returncode == 0, done
    return done.stdout.decode()


def test_sessions_lists_sandboxes_and_no_secrets(who):
    with sandboxes.Jar("--pool-size", "1", "--kernel-pool-size", "0", user=who) as jar:
        if "memory_limit" not in jar.enforced():
            pytest.skip("no cgroup for this user on this host")
        sandboxes.until(lambda: len(json.loads(listed(who, jar.state, "--json"))) == 1, "the pool")
        held = jar.execute("true").session
        rows = sandboxes.until(
            lambda: (
                (rows := json.loads(listed(who, jar.state, "--json"))) and len(rows) == 2 and rows
            ),
            "two sandboxes",
        )
        assert {row["server"] for row in rows} == {"running"}
        assert len({row["sandbox"] for row in rows}) == 2
        text = listed(who, jar.state)
        assert text.startswith("SERVER") and text.count("\nrunning") == 2 and held not in text
        state = jar.state
        jar.stop()
        assert not os.path.exists(state) or listed(who, state) == ""


def test_sessions_of_a_state_directory_that_is_not_there_are_none(who):
    assert listed(who, "/nowhere/at/all") == ""
