"""Images for tests, in an engine that has no registry to pull from.

images.base(engine)       bash, coreutils, Python, node: imported through the API, in a second or two
images.data(engine)       what `belljar image build` makes, with numpy, pandas, matplotlib and IPython
images.default(engine)    the same with the whole scientific set
"""

import os
import subprocess

import belljar
import rootfs

Unavailable = rootfs.Unavailable
BASE = "belljar-test/base:latest"
BARE = "belljar-test/bare:latest"
DATA = "belljar-test/data:latest"
DEFAULT = "belljar-test/default:latest"
BUILD_TIMEOUT = 600


def bare(engine):
    """The name of an image in which `sleep` and `true` can be run."""
    if not engine.api.image(BARE):
        engine.api.import_image(rootfs.make(runtime=None, bare=True), BARE)
    return BARE


def base(engine):
    """The name of an image with what bare Debian has, and node."""
    if not engine.api.image(BASE):
        engine.api.import_image(rootfs.make(runtime=None), BASE)
    return BASE


def build(engine, *flags, timeout=BUILD_TIMEOUT):
    """`belljar image build` against this engine; the finished process with what it said."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_HOST": engine.host}
    return subprocess.run(
        [belljar.need(belljar.BIN), "image", "build", *map(str, flags)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        timeout=timeout,
    )


def built(engine, name, runtime):
    """An image made as users without a registry make it."""
    if not engine.api.image(name):
        done = build(engine, "--from-rootfs", rootfs.make(runtime=runtime), "--tag", name)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return name


def data(engine):
    return built(engine, DATA, "data")


def default(engine):
    return built(engine, DEFAULT, "full")
