"""Images for tests, in an engine that has no registry to pull from.

images.base(engine)       bash, coreutils, Python, node: imported through the API, in a second or two
images.data(engine)       what `belljar image build` makes, with numpy, pandas, matplotlib and IPython
images.default(engine)    the same with the whole scientific set
images.uv(engine)         the base, and uv; images.pip(engine): the base, and pip
"""

import io
import os
import pathlib
import subprocess
import tarfile
import zipfile

import belljar
import rootfs

Unavailable = rootfs.Unavailable
BASE = "belljar-test/base:latest"
BARE = "belljar-test/bare:latest"
DATA = "belljar-test/data:latest"
DEFAULT = "belljar-test/default:latest"
UV = "belljar-test/uv:latest"
PIP = "belljar-test/pip:latest"
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


def extend(engine, name, place, files):
    """The base with more files, path to bytes, all of them programs. The name."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    config = {"Image": base(engine), "Cmd": ["true"]}
    made = engine.api.ask("POST", "/containers/create", None, config)["Id"]
    try:
        path = f"/containers/{made}/archive"
        engine.api.request("PUT", path, {"path": place}, archive.getvalue(), "application/x-tar")
        repo, _, tag = name.partition(":")
        engine.api.ask("POST", "/commit", {"container": made, "repo": repo, "tag": tag}, {})
    finally:
        engine.api.remove_container(made)
    return name


def uv(engine):
    program = rootfs.RUNTIME / "bin/uv"
    if not program.exists():
        raise Unavailable(f"{program} is not there (tools/runtime makes it)")
    known = engine.api.image(UV)
    return UV if known else extend(engine, UV, "/usr/bin", {"uv": program.read_bytes()})


def pip(engine):
    wheels = sorted(pathlib.Path("/usr/share/python-wheels").glob("pip-*.whl"))
    if not wheels:
        raise Unavailable("there is no wheel of pip's (Debian package python3-pip-whl)")
    if engine.api.image(PIP):
        return PIP
    with zipfile.ZipFile(wheels[-1]) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    return extend(engine, PIP, "/usr/lib/python3/dist-packages", files)
