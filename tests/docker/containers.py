"""Servers whose sandboxes are containers, and what they leave on the engine.

jar = containers.start(engine, image, "--pool-size", "1")     # a sandboxes.Jar
containers.of(engine, jar)                                    # names of its containers
containers.wait_for_none(engine, jar)
"""

import os
import pathlib
import subprocess
import tempfile
import time

import belljar
import pytest
from belljar import FULL, PATIENCE, need
from sandboxes import Jar

LABEL = "belljar.instance"
full = pytest.mark.skipif(not FULL, reason="takes long (BELLJAR_FULL=1)")


def flags(engine, image):
    # A server that was started by root is nobody when it connects.
    engine.place.chmod(0o711)
    engine.socket.chmod(0o660)
    return ["--engine", "docker", "--docker-host", engine.host, "--docker-image", image]


def environment(engine, image):
    """The same for whatever starts servers of its own."""
    words = flags(engine, image)
    return {
        f"BELLJAR_{name.removeprefix('--').replace('-', '_').upper()}": value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }


def start(engine, image, *more, **options):
    jar = Jar(*flags(engine, image), *more, **options)
    jar.instance = instance_of(jar.state)
    jar.guests_below = os.getpid()  # the engine is ours, and its guests are
    return jar


def refusal(*flags):
    """What a server says that does not start."""
    with tempfile.TemporaryDirectory(prefix="belljar-state-") as state:
        done = subprocess.run(
            [need(belljar.BIN), "serve", "--stdio", "--state-dir", state, *flags],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )
    assert done.returncode != 0, done.stderr
    return done.stderr


def instance_of(state):
    """The newest server with this state directory."""
    files = pathlib.Path(state, "containers").iterdir()
    return max(files, key=lambda file: file.stat().st_mtime_ns).name


def names(engine, label=LABEL):
    return sorted(item["Names"][0].lstrip("/") for item in engine.api.containers(label=label))


def of(engine, jar):
    return names(engine, f"{LABEL}={jar.instance}")


def wait_for_none(engine, jar, timeout=20):
    deadline = time.monotonic() + timeout * PATIENCE
    while left := of(engine, jar):
        assert time.monotonic() < deadline, f"containers are left: {left}"
        time.sleep(0.1)


def inspect(engine, name):
    return engine.api.ask("GET", f"/containers/{name}/json")
