"""Installs Python packages for sandboxes that have no network; runs in a sandbox that has one.

Reads what to do, as JSON, from standard input (see SPEC), says on standard output and error what it
does, and leaves the packages in one file, RESULT, in the form that src/packages/unpack.h describes.
Exit status 0: RESULT is whole. Otherwise the last lines that it wrote say why.

First the installer (uv, else pip) says what is missing beside what the interpreter has already; then
just that is installed, with exact versions, into a directory of its own. So a package of the
interpreter's environment is neither fetched again nor hidden by a copy, unless another version of it
was asked for.
"""

import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys

WORK = "/workspace"
TARGET = f"{WORK}/target"
RESULT = f"{WORK}/result"
NETWORK_FILES = f"{WORK}/.network"
CERTIFICATES = f"{WORK}/certificates.pem"
RUNTIME_UV = "/opt/belljar/runtime/bin/uv"

SPEC = {
    "requirements": [],
    "installer": "auto",  # uv, pip; auto: uv where there is one
    "index": "",  # a URL; "": the installer's own default; "none": none
    "trusted_hosts": [],
    "wheels": "",  # a directory of wheels, beside the index
    "allow_source": False,
    "max_bytes": 0,
    "max_files": 0,
    "place": "",  # where sandboxes will see the packages
    "home": "the runtime",  # where the installer comes from, for people
    "files": {},  # resolv.conf, hosts
    "certificates": "",  # PEM; "": the system's own
}

# Compiling is quick, but not for ever: beyond this each session compiles what it imports.
MAX_COMPILED_BYTES = 32 << 20
BLOCK = 1 << 20


OUT_OF_ROOM = (
    "the packages need more room than the limits leave (package_max_bytes, package_max_files)"
)


class Failure(Exception):
    """Ends the install; its text says why, unless an installer has said it."""


def say(text):
    print(text, flush=True)


# ---- the surroundings ---------------------------------------------------------------------------


def prepare(spec):
    os.makedirs(NETWORK_FILES)
    for name in ("resolv.conf", "hosts"):
        with open(f"{NETWORK_FILES}/{name}", "w") as file:
            file.write(spec["files"].get(name, ""))
    for name in ("tmp", "cache", "target"):
        os.makedirs(f"{WORK}/{name}")
    os.environ.update(
        HOME=WORK,
        TMPDIR=f"{WORK}/tmp",
        UV_CACHE_DIR=f"{WORK}/cache",
        UV_LINK_MODE="hardlink",
        UV_NO_CONFIG="1",
        UV_NO_PROGRESS="1",
        UV_PYTHON_DOWNLOADS="never",
        PIP_CONFIG_FILE=os.devnull,
        PIP_NO_INPUT="1",
        PIP_NO_CACHE_DIR="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_ROOT_USER_ACTION="ignore",
        NO_COLOR="1",
    )
    if spec["certificates"]:
        with open(CERTIFICATES, "w") as file:
            file.write(spec["certificates"])
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            os.environ[name] = CERTIFICATES
    else:
        os.environ["UV_NATIVE_TLS"] = "1"


def find_uv(spec):
    if spec["installer"] == "pip":
        return None
    uv = RUNTIME_UV if os.access(RUNTIME_UV, os.X_OK) else shutil.which("uv")
    if uv is None and spec["installer"] == "uv":
        raise Failure(f"package_installer is uv, and there is no uv in {spec['home']}")
    return uv


# ---- the two installers -------------------------------------------------------------------------


def is_news(line):
    return not line.startswith(("Using Python ", "Using CPython ", "Looking in "))


def run(command, quiet=False):
    """Run it with its output passed on, or if it is to be quiet, only when it fails."""
    lines = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if not quiet and is_news(line):
                say(lines[-1])
    if process.returncode:
        if quiet:
            say("\n".join(filter(is_news, lines)))
        # It may have removed what filled the disk.
        full = any("No space left" in line or "File too large" in line for line in lines)
        raise Failure(OUT_OF_ROOM if full else "")
    return lines


def sources(spec, host_option):
    """Options that both installers understand."""
    options = [] if spec["allow_source"] else ["--only-binary", ":all:"]
    if spec["index"] == "none":
        options.append("--no-index")
    elif spec["index"]:
        options += ["--index-url", spec["index"]]
    for host in spec["trusted_hosts"]:
        options += [host_option, host]
    if spec["wheels"]:
        options += ["--find-links", spec["wheels"]]
    return options


class Uv:
    def __init__(self, program, spec):
        self.command = [program, "pip", "install", "--python", sys.executable]
        self.command += ["--break-system-packages"]
        self.command += sources(spec, "--allow-insecure-host")

    def resolve(self, requirements):
        lines = run([*self.command, "--dry-run", "--", *requirements], quiet=True)
        found = (re.match(r"\s*\+\s+([A-Za-z0-9._-]+==\S+)", line) for line in lines)
        return [match[1] for match in found if match]

    def install(self, pins):
        run([*self.command, "--no-deps", "--target", TARGET, "--", *pins])


class Pip:
    def __init__(self, spec):
        if subprocess.call(
            [sys.executable, "-m", "pip", "--version"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ):
            raise Failure(f"there is neither uv nor pip in {spec['home']}")
        self.command = [sys.executable, "-m", "pip", "install", "--no-color", "--progress-bar=off"]
        self.command += sources(spec, "--trusted-host")

    def resolve(self, requirements):
        report = f"{WORK}/report.json"
        command = [*self.command, "--dry-run", "--quiet", "--report", report, "--", *requirements]
        run(command, quiet=True)
        with open(report) as file:
            found = [each["metadata"] for each in json.load(file)["install"]]
        return [f"{each['name']}=={each['version']}" for each in found]

    def install(self, pins):
        run([*self.command, "--no-deps", "--no-compile", "--target", TARGET, "--", *pins])


# ---- the result ---------------------------------------------------------------------------------


def walk(directory):
    """Plain files and directories, with their paths inside; what else there may be is left out."""
    for entry in sorted(os.scandir(directory), key=lambda each: each.name):
        if entry.is_dir(follow_symlinks=False):
            yield entry.path, "d", 0
            yield from walk(entry.path)
        elif entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            yield entry.path, "x" if status.st_mode & 0o100 else "f", status.st_size


def check_limits(spec):
    entries = list(walk(TARGET))
    size = sum(entry[2] for entry in entries)
    if size > spec["max_bytes"]:
        raise Failure(
            f"the packages take {size:,} bytes, more than the limit of {spec['max_bytes']:,} "
            "(package_max_bytes)"
        )
    if len(entries) > spec["max_files"]:
        raise Failure(
            f"the packages have {len(entries):,} files, more than the limit of "
            f"{spec['max_files']:,} (package_max_files)"
        )
    return size


def compile_modules(spec):
    """Sandboxes cannot write beside the modules: without this each would compile all it imports."""
    sizes = (size for path, _, size in walk(TARGET) if path.endswith(".py"))
    if sum(sizes) <= MAX_COMPILED_BYTES:
        compileall.compile_dir(
            TARGET,
            quiet=2,
            stripdir=TARGET,
            prependdir=spec["place"],
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def pack():
    with open(RESULT, "wb") as result:
        result.write(b"BJPKG1\n")
        for path, kind, size in walk(TARGET):
            name = os.fsencode(os.path.relpath(path, TARGET))
            result.write(kind.encode() + len(name).to_bytes(2, "little"))
            result.write(size.to_bytes(8, "little") + name)
            if kind == "d":
                continue
            with open(path, "rb") as file:
                left = size
                while left:
                    block = file.read(min(left, BLOCK))
                    if not block:
                        raise Failure("a file became shorter while it was read")
                    result.write(block)
                    left -= len(block)
            os.unlink(path)  # there is room for one copy
        result.write(b"e" + bytes(10))


def is_full():
    status = os.statvfs(WORK)
    return status.f_bavail * status.f_frsize < BLOCK or status.f_favail < 16


def install(spec):
    prepare(spec)
    uv = find_uv(spec)
    installer = Uv(uv, spec) if uv else Pip(spec)
    say(f"Looking for {', '.join(spec['requirements'])}")
    pins = installer.resolve(spec["requirements"])
    if pins:
        installer.install(pins)
    else:
        say("Nothing to install: all of it is there already.")
    shutil.rmtree(f"{WORK}/cache")
    shutil.rmtree(f"{WORK}/tmp")
    shutil.rmtree(f"{TARGET}/.lock", ignore_errors=True)
    check_limits(spec)
    compile_modules(spec)
    check_limits(spec)
    pack()


def main():
    try:
        install({**SPEC, **json.load(sys.stdin)})
    except Failure as failure:
        reason = OUT_OF_ROOM if is_full() else str(failure)
        if reason:  # else the installer's own words stand there already
            say(reason)
        return 1
    except OSError as error:
        say(OUT_OF_ROOM if is_full() else f"the installer failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
