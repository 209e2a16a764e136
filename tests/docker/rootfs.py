"""A root file system as a tar, made from the packages that are installed on this Debian host.

There is no registry where tests run, so their images begin with such a tar. It takes seconds, needs no
network, and holds what the host holds: bash, coreutils, Python, node, and if asked for the Python
environment of tools/runtime at /opt/belljar/runtime. Tars are kept in .cache/rootfs under the hash of
what went into them.
"""

import fcntl
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/rootfs"
RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", ROOT / ".cache/runtime")).resolve()

PACKAGES = """base-files bash ca-certificates coreutils dash debianutils diffutils findutils grep gzip
    hostname libc-bin mawk media-types ncurses-base netbase passwd procps python3 python3-venv sed tar
    tzdata util-linux""".split()
NODE = ["nodejs"]
BARE = ["coreutils", "dash"]
# What belljar itself needs; the image for it installs the same.
SERVER = re.findall(r"\blib[\w.+-]+", (ROOT / "packaging/Dockerfile").read_text())
# What nobody needs in a sandbox and takes most of the room.
LEFT_OUT = re.compile(
    r"/usr/(share/(doc|man|info|locale|lintian|bash-completion|i18n)|include|lib/node_modules|games)/"
    r"|.*\.a$"
)
USERS = (
    "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
)
GROUPS = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"
GUEST = "guest:x:1000:1000:guest:/workspace:/bin/bash\n"
GUEST_GROUP = "guest:x:1000:\n"
# Made by packages when they are configured, so that no package lists them.
CONFIGURED = """/etc/ld.so.cache /etc/localtime /etc/timezone /etc/nsswitch.conf /etc/ssl/certs
    /usr/bin/sh /usr/share/ca-certificates""".split()
MERGED = ("bin", "sbin", "lib", "lib64")
# Parts of tools/runtime's environment. The lean one passes for whole, and is imported in a tenth of the
# time; the one for data has what kernels preload.
LEAN = ["bin", "pyvenv.cfg", "stamp", "share", "lib/python3*/site-packages/numpy*"]
DATA = """IPython PIL asttokens contourpy cycler dateutil decorator executing fontTools ipython_pygments_lexers
    jedi kiwisolver matplotlib matplotlib_inline packaging pandas parso pexpect pillow prompt_toolkit psutil
    ptyprocess pure_eval pygments pyparsing pytz six stack_data threadpoolctl traitlets typing_extensions tzdata
    wcwidth""".split()
RUNTIMES = {
    "full": ["*"],
    "lean": LEAN,
    "data": LEAN
    + [f"lib/python3*/site-packages/{name}[.-]*" for name in DATA]
    + [f"lib/python3*/site-packages/{name}" for name in DATA],
}


class Unavailable(Exception):
    """Why no root file system can be made here."""


# --- packages -----------------------------------------------------------------------------------------


def installed():
    """{name: (version, names it depends on)} of all installed packages; what a package provides is a
    name of it, too."""
    form = "${Package}\t${Version}\t${Pre-Depends}, ${Depends}\t${Provides}\t${Status}\n"
    try:
        said = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"dpkg-query does not say what is installed: {error}") from None
    packages, names = {}, {}
    for line in said.stdout.decode().splitlines():
        name, version, depends, provides, status = line.split("\t")
        if not status.endswith(" installed"):
            continue
        alternatives = [group.split("|") for group in depends.split(",") if group.strip()]
        packages[name] = (version, [[bare(word) for word in group] for group in alternatives])
        for other in filter(None, map(bare, provides.split(","))):
            names.setdefault(other, name)
    return packages, names


def bare(word):
    """`libc6:any (>= 2.34)` is libc6."""
    return word.split("(")[0].split(":")[0].strip()


def closure(wanted):
    """{package: version} of these and all they depend on."""
    packages, names = installed()
    found, queue = {}, list(wanted)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        if name not in packages:
            raise Unavailable(f"the package {name} is not installed (tools/setup test)")
        version, depends = packages[name]
        found[name] = version
        for group in depends:
            known = [names.get(word, word) if word not in packages else word for word in group]
            queue += [word for word in known if word in packages][:1]
    return dict(sorted(found.items()))


def files_of(packages):
    """The paths of what these packages installed, directories too, as the merged /usr has them."""
    said = subprocess.run(["dpkg-query", "-L", *packages], capture_output=True, check=True)
    paths = set()
    for line in said.stdout.decode().splitlines():
        if line.startswith("/") and line != "/." and os.path.lexists(line):
            parent, name = os.path.split(line)
            place = os.path.realpath(parent)
            paths.add(place.rstrip("/") + "/" + name)
    paths -= {"/" + name for name in MERGED}
    paths = {path for path in paths if not LEFT_OUT.match(path + "/" * os.path.isdir(path))}
    for path in [path for path in paths if path.endswith(".py")]:
        cache = os.path.join(os.path.dirname(path), "__pycache__")
        paths.update([cache, *compiled(cache)])
    return sorted(path for path in paths | set(alternatives(paths)) if os.path.lexists(path))


def compiled(cache):
    return [os.path.join(cache, name) for name in os.listdir(cache)] if os.path.isdir(cache) else []


def alternatives(paths):
    """The links of update-alternatives that lead to one of these files."""
    for entry in pathlib.Path("/var/lib/dpkg/alternatives").glob("*"):
        link = entry.read_text().splitlines()[1]
        if os.path.realpath(link) in paths:
            yield from (os.path.realpath(os.path.dirname(link)) + "/" + os.path.basename(link),)
            yield f"/etc/alternatives/{entry.name}"


# --- the tar ------------------------------------------------------------------------------------------


def tar(target, mode, place, *words, names=None):
    command = ["tar", f"--{mode}", "--file", target, "--directory", place]
    command += ["--owner=0", "--group=0", "--numeric-owner", "--mode=u-s,g-s", *words]
    if names is not None:
        command += ["--no-recursion", "--null", "--verbatim-files-from", "--files-from=-"]
    subprocess.run(
        [str(word) for word in command],
        input="\0".join(names or []).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )


def skeleton(place, guest):
    """What no package holds: users, and where sandboxes mount something."""
    for name in MERGED:
        (place / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "sys", "run", "tmp", "workspace", "etc", "opt/belljar", "root"):
        (place / name).mkdir(parents=True)
    (place / "tmp").chmod(0o1777)
    (place / "etc/passwd").write_text(USERS + (GUEST if guest else ""))
    (place / "etc/group").write_text(GROUPS + (GUEST_GROUP if guest else ""))


def below(path):
    """The path, and if it is a directory all that is in it."""
    yield path
    for place, directories, files in os.walk(path):
        yield from (os.path.join(place, name) for name in directories + files)


def write(target, packages, runtime, guest):
    """Engines refuse a tar that names a path twice."""
    with tempfile.TemporaryDirectory(prefix="belljar-rootfs-") as staging:
        place = pathlib.Path(staging)
        place.chmod(0o755)
        skeleton(place, guest)
        tar(target, "create", place, ".")
        ours = {str(path.relative_to(place)) for path in place.rglob("*")}
    paths = set(files_of(packages))
    paths.update(path for top in CONFIGURED if os.path.lexists(top) for path in below(top))
    tar(target, "append", "/", names=sorted({path.lstrip("/") for path in paths} - ours))
    if runtime:
        # Not the links' targets: they are relative, or lead to the interpreter.
        names = RUNTIMES[runtime]
        found = [path for name in names for path in sorted(RUNTIME.glob(name))]
        names = [f"./{path.relative_to(RUNTIME)}" for path in found]
        tar(target, "append", RUNTIME, r"--transform=s,^\.,opt/belljar/runtime,S", *names)


def forget_old():
    """What nobody has used for a week: other versions of packages."""
    for tar in CACHE.glob("*.tar"):
        if time.time() - tar.stat().st_mtime > 7 * 86400:
            tar.unlink()


def make(runtime="full", node=True, guest=True, server=False, bare=False):
    """The path of the tar. `runtime`: with tools/runtime's environment, one of RUNTIMES; None: without.
    `guest`: with that user; `server`: with the libraries of belljar; `bare`: nothing
    but coreutils, a shell and what they need."""
    if runtime and not (RUNTIME / "stamp").exists():
        raise Unavailable(f"{RUNTIME} is not there (tools/runtime makes it)")
    wanted = PACKAGES + (NODE if node else []) + (SERVER if server else [])
    packages = closure(BARE if bare else wanted)
    words = [
        pathlib.Path(__file__).read_text(),
        repr(packages),
        repr((runtime, node, guest, server, bare)),
    ]
    words += [(RUNTIME / "stamp").read_text()] if runtime else []
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / f"{key}.tar"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            fresh = CACHE / f"{key}.new"
            write(fresh, packages, runtime, guest)
            fresh.rename(target)
            forget_old()
        target.touch()
    return target


if __name__ == "__main__":
    print(make())
