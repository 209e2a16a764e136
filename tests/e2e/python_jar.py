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


def with_runtime():
    """Flags for a server of a user who may look at it. Containers have what their image has, and that is the
    runtime, too."""
    if not (RUNTIME / "stamp").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    return [] if belljar.IN_CONTAINERS else ["--runtime", str(RUNTIME)]


def may_look(user):
    return subprocess.run([*as_user(user), "test", "-r", RUNTIME / "stamp"]).returncode == 0


def start(who, *flags):
    """A Jar of "root" or "user"; `has_libraries` says whether the runtime's are there."""
    need(belljar.BIN)
    runtime = with_runtime()
    if who == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    user = ordinary_user() if who == "user" else None
    # A user who may not look into this checkout gets the system's own Python.
    has_libraries = belljar.IN_CONTAINERS or may_look(user)
    jar = Jar(*(runtime if has_libraries else []), *flags, user=user)
    jar.has_libraries = has_libraries
    return jar
