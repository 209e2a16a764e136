"""The Python environments that an operator may name: one of an interpreter that is not in /usr, a whole prefix,
names that are links; the scripts that are installed in one; and what is refused, with words."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import belljar
import pytest
import python_jar
from belljar import PATIENCE, need
from sandboxes import Jar, as_user, binary_for, make_state, ordinary_user, until

pytestmark = [
    pytest.mark.python_only,
    pytest.mark.native_only("containers have the interpreter of their image"),
]

WARM = "info Python kernels are kept warm"
SLOW = 60
LEFT_OUT = shutil.ignore_patterns("test", "tests", "__pycache__", "*.a", "config-3*")
FACTS = """
import json, sys, sysconfig, venv, ensurepip
version = "%d.%d" % sys.version_info[:2]
assert sys.version_info >= (3, 9)
library, libraries = sysconfig.get_path("stdlib"), sysconfig.get_config_var("LIBDIR")
print(json.dumps([sys.base_prefix, version, library, libraries]))
"""


def interpreters():
    """That can be copied and make environments, the system's last: where there is another, it is another
    version."""
    found = sorted(pathlib.Path("/root/.pyenv/versions").glob("3.*/bin/python3"), reverse=True)
    found += sorted(pathlib.Path("/opt/hostedtoolcache/Python").glob("3.*/*/bin/python3"))
    for python in [*found, pathlib.Path("/usr/bin/python3")]:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            said = subprocess.check_output([python, "-c", FACTS], stderr=subprocess.DEVNULL)
            yield python, *json.loads(said)


def copy_prefix(place):
    """An interpreter with its library. If it is told where its libpython was, it is told where that is now."""
    found = next(interpreters(), None)
    if not found:
        pytest.skip("NO INTERPRETER HERE can make environments: this was not tested")
    python, prefix, version, library, libraries = found
    shutil.copytree(library, place / f"lib/python{version}", ignore=LEFT_OUT, symlinks=True)
    program = place / f"bin/python{version}"
    program.parent.mkdir()
    shutil.copy(python.resolve(), program)
    if prefix != "/usr":
        for shared in pathlib.Path(libraries).glob("libpython*.so*"):
            shutil.copy(shared, place / "lib", follow_symlinks=False)
        then, now = os.fsencode(libraries) + b"\0", os.fsencode(place / "lib") + b"\0"
        assert len(now) <= len(then), (then, now)
        program.write_bytes(program.read_bytes().replace(then, now.ljust(len(then), b"\0")))
    (place / "bin/python3").symlink_to(program.name)
    return place


@pytest.fixture(scope="module")
def outside():
    """A directory outside of /usr and /tmp that everybody may look into."""
    parent = "/opt" if os.geteuid() == 0 else pathlib.Path.home()
    with tempfile.TemporaryDirectory(prefix="bj-", dir=parent) as made:
        os.chmod(made, 0o755)
        yield pathlib.Path(made)


@pytest.fixture(scope="module")
def prefix(outside):
    return copy_prefix(outside / "p")


@pytest.fixture(scope="module")
def environments(outside, prefix):
    """By kind."""
    (outside / "alias").symlink_to("p")
    made = {"prefix": prefix}
    for kind, python, flags in (
        ("venv", prefix, []),
        ("venv by a link", outside / "alias", []),
        ("copies", prefix, ["--copies"]),
    ):
        made[kind] = outside / kind.replace(" ", "-")
        command = [python / "bin/python3", "-m", "venv", "--without-pip", *flags, made[kind]]
        subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"})
    made["a link to it"] = outside / "latest"
    made["a link to it"].symlink_to(made["venv"])
    return made


def who(name):
    if name == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return ordinary_user() if name == "user" else None


KINDS = ["venv", "venv by a link", "copies", "prefix", "a link to it"]
SELF = """
import json, os, subprocess, sys, zlib, ctypes
json.dumps([sys.version_info[:2], sys.prefix, sys.base_prefix, os.__file__,
    subprocess.check_output([sys.executable, "-c", "print(6 * 7)"], text=True),
    b"zygote.py" in open("/proc/self/cmdline", "rb").read()])
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forked", [True, False], ids=["forked", "started"])
@pytest.mark.parametrize("user", ["root", "user"])
def test_an_interpreter_from_elsewhere_runs_cells(environments, prefix, user, forked, kind):
    need(belljar.BIN)
    flags = [] if forked else ["--no-zygote"]
    with Jar("--runtime", environments[kind], *flags, user=who(user)) as jar:
        if forked:
            until(lambda: WARM in jar.log_text(), "a zygote", SLOW)
        run = jar.execute(SELF, "python", wait=SLOW)
        assert run.outcome == "ok", (run, jar.log_text())
        version, here, base, library, child, was_forked = json.loads(eval(run.said["result"]))
        assert (prefix / f"lib/python{version[0]}.{version[1]}").is_dir()
        assert here == "/opt/belljar/runtime" and child == "42\n" and was_forked is forked
        if kind == "prefix":
            assert base == here, run
        else:
            assert pathlib.Path(base).resolve() == prefix
            assert pathlib.Path(library).resolve().is_relative_to(prefix)


@pytest.mark.parametrize("user", ["root", "user"])
def test_only_the_prefix_is_shown_and_nothing_can_be_written(environments, outside, prefix, user):
    need(belljar.BIN)
    (outside / "secret").write_text("beside the prefix")
    (outside / "secret").chmod(0o644)
    with Jar("--runtime", environments["venv"], user=who(user)) as jar:
        run = jar.execute(f"cat {outside}/secret; ls {outside}")
        assert run.stdout.split() == ["p", "venv"] and "No such file" in run.stderr, run
        run = jar.execute(f"awk '$5 == \"{prefix}\" {{ print $6 }}' /proc/self/mountinfo")
        assert {"ro", "nosuid", "nodev"} <= set(run.stdout.strip().split(",")), run
        for name in (prefix, prefix / "bin", outside, "/opt", environments["venv"]):
            run = jar.execute(f"touch {name}/x")
            assert run.exit_code != 0 and "Read-only file system" in run.stderr, run


@pytest.mark.parametrize("user", ["root", "user"])
def test_scripts_of_the_runtime_start(user):
    if python_jar.RUNTIME.resolve().is_relative_to("/tmp"):
        pytest.skip("its scripts name an interpreter below /tmp, of which sandboxes have their own")
    with python_jar.start(user) as jar:
        if not jar.has_libraries:
            pytest.skip("the runtime lies where this user cannot look")
        run = jar.execute("!pip --version", "python", wait=SLOW)
        assert (
            "/opt/belljar/runtime/" in run.stdout or str(python_jar.RUNTIME.resolve()) in run.stdout
        )
        run = jar.execute("ipython --version && pip show numpy && ttx --version", wait=SLOW)
        assert run.exit_code == 0 and "Name: numpy" in run.stdout, run


def refused(*flags, user=None):
    state = make_state(user)
    try:
        done = subprocess.run(
            [*as_user(user), binary_for(user), "serve", "--stdio", "--state-dir", state, *flags],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30 * PATIENCE,
        )
    finally:
        shutil.rmtree(state, ignore_errors=True)
    assert done.returncode != 0, done
    return done.stderr.decode()


def doctor(*flags):
    done = subprocess.run(
        [belljar.BIN, "doctor", "--json", *flags], capture_output=True, timeout=30 * PATIENCE
    )
    said = json.loads(done.stdout)
    return said["works"], {check["name"]: check for check in said["checks"]}


def make_environment(place, home, python):
    (place / "bin").mkdir(parents=True)
    (place / "bin/python3").symlink_to(python)
    (place / "pyvenv.cfg").write_text(f"home = {home}\n")
    return place


@pytest.fixture
def scratch(outside):
    with tempfile.TemporaryDirectory(dir=outside) as made:
        os.chmod(made, 0o755)
        yield pathlib.Path(made)


def wrong_environments(scratch):
    """(environment, words of the refusal)"""
    lost = make_environment(scratch / "lost", "/nowhere/bin", "/nowhere/bin/python3")
    yield lost, "bin/python3 is not there"
    (scratch / "bin").mkdir()
    shutil.copy("/bin/true", scratch / "bin/python3")
    bare = make_environment(scratch / "bare", scratch / "bin", scratch / "bin/python3")
    yield bare, "no prefix of an interpreter"
    yield make_environment(scratch / "etc", "/etc", "/etc/hostname"), "a directory of the system"
    yield make_environment(scratch / "usr", "/srv/.", "/usr/bin/python3"), "directory of the system"
    with tempfile.TemporaryDirectory() as made:
        temporary = pathlib.Path(made)
        (temporary / "bin").mkdir()
        shutil.copy("/bin/true", temporary / "bin/python3")
        place = make_environment(scratch / "tmp", temporary / "bin", temporary / "bin/python3")
        yield place, "files of their own"
    yield scratch / "missing", "open"


def test_what_cannot_be_shown_is_refused_and_doctor_says_so(scratch):
    need(belljar.BIN)
    for place, words in wrong_environments(scratch):
        said = refused("--runtime", place)
        assert "runtime" in said and words in said, (place, said)
        works, checks = doctor("--runtime", place)
        assert works is False and checks["runtime"]["verdict"] == "problem", checks
        assert words in checks["runtime"]["detail"] and checks["runtime"]["remedy"], checks


def test_an_interpreter_that_others_may_not_run_is_refused(scratch):
    need(belljar.BIN)
    if os.geteuid() != 0:
        pytest.skip("sandboxes of an ordinary user run what that user may run")
    place = scratch / "mine"
    (place / "bin").mkdir(parents=True)
    shutil.copy("/usr/bin/python3", place / "bin/python3")
    place.chmod(0o700)
    assert f"sandboxes cannot run {place}/bin/python3" in refused("--runtime", place)


def test_doctor_tries_the_interpreter(environments, scratch):
    need(belljar.BIN)
    works, checks = doctor("--runtime", environments["venv"])
    assert works is True and checks["python cells"]["verdict"] == "ok", checks
    assert f"its interpreter in {environments['prefix']}" in checks["runtime"]["detail"]
    (scratch / "bin").mkdir()
    (scratch / "bin/python3").write_text("#!/bin/sh\nexit 3\n")
    (scratch / "bin/python3").chmod(0o755)
    works, checks = doctor("--runtime", scratch)
    assert works is False and checks["python cells"]["verdict"] == "problem", checks
    with tempfile.TemporaryDirectory() as made:
        subprocess.run(["cp", "-a", f"{scratch}/bin", made], check=True)
        assert doctor("--runtime", made)[1]["runtime"]["verdict"] == "warning"
