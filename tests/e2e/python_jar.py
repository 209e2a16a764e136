"""A server for tests of Python: as root and as an ordinary user, with the runtime's libraries where that
user may look at them. The fixtures are in conftest.py."""

import os
import pathlib
import subprocess

import belljar
import pytest
from belljar import need
from sandboxes import Jar, as_user, ordinary_user

RUNTIME = pathlib.Path(
    os.environ.get("BELLJAR_RUNTIME", pathlib.Path(__file__).parents[2] / ".cache/runtime")
)
SLOW = 60  # a first import of pandas, on a busy machine


def may_look(user):
    return subprocess.run([*as_user(user), "test", "-r", RUNTIME / "stamp"]).returncode == 0


def start(who, *flags):
    """A Jar of "root" or "user"; `has_libraries` says whether the runtime's are there."""
    need(belljar.BIN)
    if not (RUNTIME / "stamp").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    if who == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    user = ordinary_user() if who == "user" else None
    # A user who may not look into this checkout gets the system's own Python. Containers have what their
    # image has, and that is the runtime, too.
    has_libraries = belljar.IN_CONTAINERS or may_look(user)
    runtime = has_libraries and not belljar.IN_CONTAINERS
    jar = Jar(*(["--runtime", str(RUNTIME)] if runtime else []), *flags, user=user)
    jar.has_libraries = has_libraries
    return jar
