"""A virtual machine with Debian's kernel and what of this system belljar needs, to see it on a host of another kind.

The machine is emulated, so it needs no rights and no support of the processor, and is some ten times slower. Its root is an
archive in memory: belljar, Python without its larger parts, a shell and a few programs. It boots, runs one of inside_*.py and
ends.
"""

import json
import os
import pathlib
import shutil
import subprocess

from first import RESULT, SOMEBODY

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = ROOT / ".cache/vm/vmlinuz"
QEMU = "qemu-system-x86_64"
BELLJAR = pathlib.Path(os.environ.get("BELLJAR_BIN", ROOT / "build/belljar"))
PROGRAMS = "bash dash python3 mount chroot cat ls id sleep env head true".split()
LEFT_OUT = "test tests idlelib tkinter turtledemo ensurepip lib2to3 pydoc_data config-*".split()
LONGEST = 400  # seconds

# Nothing may be mounted over the archive's own root, so it is mounted once more, and that is moved over it.
INIT = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin HOME=/root
mount --bind / /again
cd /again
mount --move . /
exec chroot . /usr/bin/python3 /inside.py
"""
CLUTTER = shutil.ignore_patterns("__pycache__", "node_modules")


def missing():
    """Why there can be none; None: there can."""
    if os.uname().machine != "x86_64":
        return "the virtual machine is one for x86-64"
    for program in (QEMU, "cpio"):
        if not shutil.which(program):
            return f"there is no {program}"
    if not KERNEL.exists():
        return f"there is no kernel for it in {KERNEL.relative_to(ROOT)}; see tools/setup"
    return None


def libraries(programs):
    said = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    words = {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return sorted(word for word in words if not word.endswith(":"))


def put(root, path):
    """A file of this system at its place, with its directory as it is really called."""
    place = pathlib.Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    copy = root / place.relative_to("/")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)


def programs_of(packages):
    said = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True, check=False)
    folders = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
    files = {os.path.realpath(line): line for line in said.stdout.splitlines()}
    return [
        path
        for real, path in files.items()
        if os.path.dirname(path) in folders and os.path.isfile(real)
    ]


def fill(root, inside, packages, trees):
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("again", "proc", "sys", "dev", "run", "tmp", "root", "var", "etc", "mnt", "home"):
        (root / name).mkdir()
    version = os.path.basename(os.path.realpath("/usr/bin/python3"))
    python = pathlib.Path("/usr/lib", version)
    shutil.copytree(python, root / "usr/lib" / version, ignore=shutil.ignore_patterns(*LEFT_OUT))
    programs = [shutil.which(name, path="/usr/sbin:/usr/bin") for name in PROGRAMS]
    programs += [f"/usr/bin/{version}", str(BELLJAR)]
    programs[:0] = programs_of(packages) if packages else []
    found = [path for path in programs if path]
    for path in [*found[:-1], *libraries([*found, *python.glob("lib-dynload/*.so")])]:
        put(root, path)
    if not (root / "usr/bin/sh").exists():
        (root / "usr/bin/sh").symlink_to("dash")
    shutil.copy(BELLJAR, root / "belljar")
    here = pathlib.Path(__file__).parent
    shutil.copy(here / inside, root / "inside.py")
    shutil.copy(here / "first.py", root)
    for tree, place in trees:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        if tree.is_dir():
            shutil.copytree(tree, root / place, ignore=CLUTTER)
        else:
            shutil.copy(tree, root / place)
    (root / "etc/passwd").write_text(
        f"root:x:0:0::/root:/bin/sh\nsomebody:x:{SOMEBODY}:{SOMEBODY}::/:/bin/sh\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nsomebody:x:{SOMEBODY}:\n")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)


def pack(root, archive):
    names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
        cwd=root,
        input=names,
        capture_output=True,
        check=True,
    ).stdout
    with archive.open("wb") as file:
        subprocess.run(["gzip", "-1"], input=packed, stdout=file, check=True)


def run(place, inside, packages=(), trees=(), longest=LONGEST):
    """What the program `inside` says, by name, and all that came out of the machine. In it are also the programs of Debian
    packages, and `trees`: what, and where in it."""
    root, archive = place / "root", place / "root.cpio.gz"
    root.mkdir()
    fill(root, inside, packages, trees)
    pack(root, archive)
    shutil.rmtree(root)
    command = [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G"]
    command += ["-nographic", "-no-reboot", "-net", "none", "-kernel", str(KERNEL)]
    command += ["-initrd", str(archive), "-append", "console=ttyS0 quiet panic=-1"]
    console = place / "console"  # to be looked at while it runs
    with console.open("wb") as out:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=longest,
            check=False,
        )
    text = console.read_text(errors="replace").replace("\r", "")
    found = {}
    for line in text.splitlines():
        _, word, rest = line.partition(RESULT)  # the firmware clears a screen before the first
        if word:
            found.update(json.loads(rest))
    return found, text
