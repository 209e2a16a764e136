"""Packages in containers: the same promises as tests/e2e/test_packages.py, and what only containers have:
the volume, the network of the installer, the image."""

import pathlib
import shutil
import tempfile
import threading
import time

import belljar
import containers
import dockerd
import images
import pytest
from api import ApiError
from belljar import PATIENCE, call_tool
from containers import full
from proxy import Proxy
from real_index import environment, index_is_there
from sandboxes import ToolError, make_state, until
from wheels import Index, make_wheel

SLOW = 240
VOLUME = "belljar-packages-"


@pytest.fixture(scope="module")
def wheelhouse():
    place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-wheels-"))
    place.chmod(0o755)
    long = "deep/" * 12 + "a_rather_long_name_of_a_module_" * 3 + ".py"
    make_wheel(place, "plain", "1.0", {"plain.py": "version = '1.0'\n"})
    make_wheel(place, "plain", "2.0", {"plain.py": "version = '2.0'\n"})
    make_wheel(place, "needs", "1.0", {"needs.py": "import plain\n"}, requires=["plain>=2"])
    make_wheel(place, "deep", "1.0", {"deep.py": "x = 1\n", long: "y = 2\n"})
    make_wheel(place, "large", "1.0", {"large/__init__.py": ""}, pad=64 << 20)
    make_wheel(place, "bomb", "1.0", {"bomb/__init__.py": ""}, pad=300 << 20)
    yield place
    shutil.rmtree(place)


def image_of(make, engine):
    try:
        return make(engine)
    except images.Unavailable as error:
        pytest.skip(str(error))


class Shop:
    """A server with packages in containers, and the directory where it keeps them."""

    def __init__(self, engine, *flags, image=None, place=None, network="host", **options):
        self.engine = engine
        self.own = place is None
        self.dir = place or pathlib.Path(tempfile.mkdtemp(prefix="belljar-packages-"))
        self.dir.chmod(0o711)
        self.shelf = self.dir / "shelf"
        if network:  # most dockerds of the tests have no bridge, which is the default
            flags = ["--docker-install-network", network, *flags]
        flags = ["--package-dir", self.shelf, *flags]
        pool = ["--pool-size", "1", "--kernel-pool-size", "0"]
        image = image or image_of(images.uv, engine)
        self.jar = containers.start(engine, image, *pool, *flags, **options)
        self.volume = until(self.find_volume, "the volume of packages")

    def find_volume(self):
        """By a container that has it."""
        for name in containers.of(self.engine, self.jar):
            try:
                mounts = containers.inspect(self.engine, name)["Mounts"]
            except ApiError as error:
                assert error.status == 404  # it is still being made
                continue
            for mount in mounts:
                if mount["Destination"] == "/opt/belljar/packages":
                    assert mount["Name"].startswith(VOLUME) and not mount["RW"]
                    return mount["Name"]
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.jar.alive():
            self.jar.stop()
        containers.wait_for_none(self.engine, self.jar)
        if self.own:
            self.remove_volume()
            shutil.rmtree(self.dir)

    def install(self, *packages, session=None, timeout=SLOW):
        more = {"session_id": session} if session else {}
        return self.jar.tool("install_packages", timeout, packages=list(packages), **more)

    def cell(self, code, session=None, wait=SLOW, language="python"):
        return self.jar.execute(code, language, session=session, wait=wait)

    def sets(self):
        return sorted(each.name for each in (self.shelf / "sets").iterdir())

    def copies(self):
        """{place: what is noted of it}"""
        notes = (self.shelf / "copies").iterdir()
        return {int(note.name): note.read_text() for note in notes}

    def remove_volume(self):
        """And all containers that have it."""
        until(self.try_to_remove, "a volume that nobody uses")

    def try_to_remove(self):
        try:
            for name in containers.of(self.engine, self.jar):
                self.engine.api.remove_container(name)
            self.engine.api.remove_volume(self.volume)
            return True
        except ApiError as error:
            assert error.status in (404, 409), error
            return False

    def in_volume(self, command):
        """As root, who sees everything."""
        mount = {"Type": "volume", "Source": self.volume, "Target": "/v"}
        image = images.base(self.engine)
        words = ["sh", "-c", command]
        return self.engine.api.run(image, words, user="0:0", Mounts=[mount])[1]


@pytest.fixture(scope="module")
def ready(docker, make_rootfs):
    make_rootfs(runtime=None)
    return docker


def offline(engine, wheelhouse, *flags, **options):
    wheels = ["--package-index=none", f"--package-wheels={wheelhouse}"]
    return Shop(engine, *wheels, *flags, **options)


@pytest.fixture(scope="module")
def shop(ready, wheelhouse):
    with offline(ready, wheelhouse, "--package-max-bytes=128m") as made:
        yield made


# --- what is promised everywhere ----------------------------------------------------------------------


def test_installed_packages_are_there_for_all_programs_of_the_session(shop):
    session = shop.cell("before = 1").session
    said = shop.install("needs", session=session)
    assert said["success"] and not said["cached"] and "needs" in said["output"], said
    run = shop.cell("import needs; print(needs.plain.version, before)", session)
    assert run.stdout == "2.0 1\n", run
    run = shop.cell("python3 -c 'import plain; print(plain.version)'", session, language="bash")
    assert run.stdout == "2.0\n", run
    # A kernel that was started anew has them, too; another session has not.
    assert shop.cell("import os; os._exit(3)", session).outcome != "ok"
    assert shop.cell("import needs; print('again')", session).stdout == "again\n"
    run = shop.cell("import plain")
    assert run.outcome == "error" and "ModuleNotFoundError" in run.text, run
    shop.jar.close_session(run.session)
    shop.jar.close_session(session)


def test_the_second_time_is_from_the_cache(shop):
    first = shop.install("plain==1.0")
    second = shop.install("Plain == 1.0")
    assert not first["cached"] and second["cached"], (first, second)
    run = shop.cell("import plain; print(plain.version)", second["session_id"])
    assert run.stdout == "1.0\n", run
    for each in first, second:
        shop.jar.close_session(each["session_id"])


@full
@pytest.mark.timeout(900 * PATIENCE)
def test_pip_in_a_cell(ready, wheelhouse):
    """In the default image, which has IPython."""
    with offline(ready, wheelhouse, image=image_of(images.default, ready)) as shop:
        for line in ("%pip install plain==2.0", "!pip install 'plain>1.5'"):
            run = shop.cell(f"print('before')\n{line}\nimport plain\nprint(plain.version)")
            assert run.stdout.startswith("before\n") and run.stdout.endswith("\n2.0\n"), run
        run = shop.cell("%pip install no-such-thing\nprint('goes on')", run.session)
        assert "nothing was installed" in run.stderr and run.stdout.endswith("goes on\n"), run


def test_a_session_can_start_with_packages(shop):
    session = shop.jar.tool("start_session", SLOW, packages=["plain==1.0"])["session_id"]
    assert shop.cell("import plain; print(plain.version)", session).stdout == "1.0\n"
    shop.jar.close_session(session)


def test_sessions_may_have_different_versions_at_once(shop):
    sessions = {one: shop.install(f"plain=={one}")["session_id"] for one in ("1.0", "2.0")}
    for version, session in sessions.items():
        run = shop.cell("import plain; print(plain.version)", session)
        assert run.stdout == f"{version}\n", run
        shop.jar.close_session(session)


def test_long_paths_arrive(shop):
    session = shop.install("deep")["session_id"]
    code = (
        "import deep, os\n"
        "top = os.path.dirname(deep.__file__)\n"
        "found = [os.path.join(d, f) for d, _, fs in os.walk(top) for f in fs if 'rather' in f]\n"
        "print(sorted(len(f) > 120 for f in found if f.endswith('.py')), open(found[0], 'rb').read(1))"
    )
    run = shop.cell(code, session)
    assert run.stdout.startswith("[True]"), run
    shop.jar.close_session(session)


@pytest.mark.parametrize(
    "name, words",
    [
        ("belljar-no-such-package-7c1", "belljar-no-such-package-7c1"),
        ("./plain.whl", "paths"),
        ("--index-url=http://127.0.0.1:1/", "options"),
        ("bomb", "package_max_bytes"),
    ],
)
def test_what_cannot_be_installed_is_said_and_leaves_nothing(shop, name, words):
    before = shop.sets(), shop.copies()
    session = shop.cell("kept = 5").session
    with pytest.raises(ToolError, match=words):
        shop.install(name, session=session)
    assert shop.cell("print(kept)", session).stdout == "5\n"
    assert (shop.sets(), shop.copies()) == before
    shop.jar.close_session(session)


# --- walls --------------------------------------------------------------------------------------------


def test_a_guest_sees_its_own_packages_only_and_cannot_write(shop):
    other = shop.install("plain==1.0")["session_id"]
    session = shop.install("plain==2.0")["session_id"]
    run = shop.cell(
        "import os, plain\n"
        "place = os.path.dirname(plain.__file__)\n"
        "top = '/opt/belljar/packages'\n"
        "def attempt(function, *args):\n"
        "    try:\n"
        "        return function(*args)\n"
        "    except OSError as exc:\n"
        "        return exc.strerror\n"
        "inside = [attempt(os.listdir, f'{top}/{each}') for each in os.listdir(top)]\n"
        "print(len(inside) > 1, set(inside))\n"
        "print(attempt(open, place + '/plain.py', 'w'))\n"
        "print(attempt(open, place + '/new.py', 'w'))\n"
        "print(attempt(os.mkdir, top + '/mine'))\n"
        "print(attempt(os.chmod, os.path.dirname(place), 0o755))\n"
        "print(attempt(os.unlink, plain.__file__))\n"
        "print(os.stat(plain.__file__).st_uid, oct(os.stat(place).st_mode & 0o7777))\n",
        session,
    )
    lines = run.stdout.splitlines()
    assert lines[0] == "True {'Permission denied'}", run
    assert lines[1:6] == ["Read-only file system"] * 5, run
    assert lines[6] == "0 0o755", run
    for each in other, session:
        shop.jar.close_session(each)


def test_a_bridge_is_the_default_network_of_the_installer(make_rootfs, wheelhouse):
    make_rootfs(runtime=None)
    with dockerd.started(dockerd.BridgedDockerd) as engine:
        with Index(wheelhouse, host=engine.address) as index:
            flags = [f"--package-index={index.url}", f"--package-trusted-hosts={engine.address}"]
            with Shop(engine, *flags, network=None) as shop:
                session = shop.install("plain")["session_id"]
                assert shop.cell("import plain; print(plain.version)", session).stdout == "2.0\n"
                connect = f"import socket; socket.create_connection(('{engine.address}', {index.server.server_port}), 3)"
                assert "unreachable" in shop.cell(connect, session).text
        assert index.requests


def test_guests_have_no_network_while_an_installer_has(ready, wheelhouse):
    hold = threading.Event()
    flags = ["--package-trusted-hosts=127.0.0.1"]
    with Index(wheelhouse, hold) as index:
        with Shop(ready, f"--package-index={index.url}", *flags) as shop:
            session = shop.cell("x = 1").session
            arguments = {"packages": ["plain"], "session_id": session}
            waiting = shop.jar.submit("tools/call", call_tool("install_packages", arguments))
            until(lambda: index.requests, "a request of the installer")
            networks = {
                name: containers.inspect(ready, name)["HostConfig"]["NetworkMode"]
                for name in containers.of(ready, shop.jar)
            }
            run = shop.cell(
                "import socket\n"
                f"for place in (('1.1.1.1', 443), ('127.0.0.1', {index.server.server_port})):\n"
                "    try:\n"
                "        socket.create_connection(place, 3)\n"
                "        print('connected')\n"
                "    except OSError as exc:\n"
                "        print(exc.strerror)\n"
                "print(open('/proc/net/dev').read().count(':'))\n",
                session,
            )
            hold.set()
            assert waiting.result(SLOW)["structuredContent"]["success"]
    assert run.stdout == "Network is unreachable\nConnection refused\n1\n", run
    installers = [name for name in networks if "installer" in name]
    assert len(installers) == 1 and networks.pop(installers[0]) == "host"
    assert networks and set(networks.values()) == {"none"}, networks


def test_the_installer_finds_neither_packages_nor_sockets_of_the_host(ready, wheelhouse):
    """Code of a package's author runs there only if the operator allows it."""
    import io
    import tarfile

    code = (
        "import os, socket, sys\n"
        "def attempt(function, *args):\n"
        "    try:\n"
        "        return repr(function(*args))\n"
        "    except OSError as exc:\n"
        "        return f'refused: {exc.strerror}'\n"
        "print('UNIX', attempt(socket.socket, socket.AF_UNIX))\n"
        "print('WRITE', attempt(open, '/opt/belljar/wheels/evil', 'w'))\n"
        "print('PACKAGES', os.path.exists('/opt/belljar/packages'))\n"
        "print('SECRET', {k: v for k, v in os.environ.items() if 'SECRET' in k})\n"
        "sys.exit('that was all')\n"
    )
    place = wheelhouse / "source"
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    project = (
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "hostile"\nversion = "1.0"\ndynamic = ["description"]\n'
    )
    with tarfile.open(place / "hostile-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("backend.py", code), ("pyproject.toml", project)):
            entry = tarfile.TarInfo(f"hostile-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    image = image_of(images.pip, ready)
    flags = ["--package-allow-source", "--package-installer=pip"]
    with offline(ready, place, *flags, image=image, env={"MY_SECRET": "canary"}) as shop:
        waiting = shop.jar.submit(
            "tools/call", call_tool("install_packages", {"packages": ["hostile"]}), True
        )
        result = waiting.result(SLOW)
        said = "".join(message for _, message in waiting.progress) + belljar.text_of(result)
    assert result.get("isError") and "SECRET {}" in said and "canary" not in said, said
    assert "UNIX refused" in said and "WRITE refused" in said and "PACKAGES False" in said, said


# --- images -------------------------------------------------------------------------------------------


def test_pip_does_it_where_there_is_no_uv(ready, wheelhouse):
    with offline(ready, wheelhouse, image=image_of(images.pip, ready)) as shop:
        session = shop.install("needs")["session_id"]
        run = shop.cell("import needs; print(needs.plain.version)", session)
        assert run.stdout == "2.0\n", run


def test_an_image_without_an_installer_is_named(ready, wheelhouse):
    base = images.base(ready)
    with offline(ready, wheelhouse, image=base) as shop:
        with pytest.raises(ToolError, match=f"neither uv nor pip in the image {base}"):
            shop.install("plain")
    with offline(ready, wheelhouse, "--python", "python4", image=base) as shop:
        with pytest.raises(ToolError, match=f"in the image {base}: .*python4"):
            shop.install("plain")


def test_another_image_has_packages_of_its_own(ready, wheelhouse):
    with offline(ready, wheelhouse) as shop:
        shop.install("plain")
        shop.jar.stop()
        image = image_of(images.pip, ready)
        with offline(ready, wheelhouse, image=image, place=shop.dir) as other:
            assert not other.install("plain")["cached"]
            assert len(other.sets()) == 2


@full
def test_packages_fit_the_image_that_a_session_chose(ready, wheelhouse):
    other, bare = image_of(images.pip, ready), images.base(ready)
    with offline(ready, wheelhouse, "--docker-images", f"{other},{bare}") as shop:
        for _ in range(2):
            session = shop.jar.tool("start_session", image=other)["session_id"]
            said = shop.install("needs", session=session)
            run = shop.cell("import needs; print(needs.plain.version)", session)
            assert run.stdout == "2.0\n", run
        assert said["cached"] and not shop.install("needs")["cached"]
        both = {"image": other, "packages": ["plain==1.0"]}
        session = shop.jar.tool("start_session", SLOW, **both)["session_id"]
        assert shop.cell("import plain; print(plain.version)", session).stdout == "1.0\n"
        session = shop.jar.tool("start_session", image=bare)["session_id"]
        with pytest.raises(ToolError, match=f"neither uv nor pip in the image {bare}"):
            shop.install("plain", session=session)


def test_a_network_that_the_engine_lacks_is_said(ready, wheelhouse):
    with offline(ready, wheelhouse, "--docker-install-network=nowhere") as shop:
        with pytest.raises(ToolError, match="nowhere"):
            shop.install("plain")
        assert shop.cell("print(1)").stdout == "1\n"


# --- the volume ---------------------------------------------------------------------------------------


def test_a_volume_that_is_removed_is_filled_again(ready, wheelhouse):
    with offline(ready, wheelhouse) as shop:
        shop.install("plain==1.0")
        shop.remove_volume()
        again = shop.install("plain==1.0")
        assert again["cached"], again
        run = shop.cell("import plain; print(plain.version)", again["session_id"])
        assert run.stdout == "1.0\n", run


def test_the_cache_outlives_the_server(ready, wheelhouse):
    with offline(ready, wheelhouse) as shop:
        shop.install("plain==1.0")
        before = shop.in_volume("stat -c %Z /v/0/*/plain.py")
        shop.jar.stop()
        with offline(ready, wheelhouse, place=shop.dir) as other:
            said = other.install("plain==1.0")
            assert said["cached"], said
            run = other.cell("import plain; print(plain.version)", said["session_id"])
            assert run.stdout == "1.0\n", run
            assert other.in_volume("stat -c %Z /v/0/*/plain.py") == before != ""


def test_what_the_shelf_drops_goes_from_the_volume(ready, wheelhouse):
    with offline(ready, wheelhouse, "--package-cache-size=0") as shop:
        session = shop.install("plain==1.0")["session_id"]
        shop.install("large", session=session)
        assert sorted(shop.copies()) == [0, 1] and all(shop.copies().values())
        assert int(shop.in_volume("du -sm /v")[:3].split("\t")[0]) >= 64
        shop.jar.close_session(session)
        other = shop.install("plain==2.0")["session_id"]
        assert len(shop.sets()) == 1
        noted = shop.copies()
        assert len([each for each in noted.values() if each]) == 1, noted
        left = shop.in_volume("du -sm /v | cut -f1; find /v -type f -size +0 -name '*.py'")
        assert left.splitlines()[0] == "1" and len(left.splitlines()) == 2, left
        assert shop.cell("import plain; print(plain.version)", other).stdout == "2.0\n"
        # The places are used again.
        for name in ("large", "needs", "deep"):
            shop.jar.close_session(other)
            other = shop.install(name)["session_id"]
        assert sorted(shop.copies()) == [0, 1], shop.copies()


def test_what_was_half_copied_is_never_used(ready, wheelhouse):
    """kill -9 of the server while it sends a set."""
    state = make_state()
    with Proxy(ready) as slow:
        shop = offline(slow, wheelhouse, state=str(state), image=image_of(images.uv, ready))
        try:
            slow.delay, slow.delayed = 3, b"/archive"
            shop.jar.submit("tools/call", call_tool("install_packages", {"packages": ["large"]}))
            until(lambda: shop.copies(), "a note of the copy", SLOW)
            time.sleep(0.5)
            shop.jar.kill()
            assert len(shop.sets()) == 1
            slow.delay = 0
            with offline(ready, wheelhouse, place=shop.dir, state=str(state)) as other:
                said = other.install("large")
                assert said["cached"], said
                run = other.cell(
                    "import large, os\n"
                    "print(os.stat(os.path.dirname(large.__file__) + '/padding.bin').st_size)",
                    said["session_id"],
                )
                assert run.stdout == f"{64 << 20}\n", run
                other.jar.stop()
                assert [n for n in containers.names(ready) if shop.jar.instance in n] == []
        finally:
            shop.jar.kill()
            shop.remove_volume()
            shutil.rmtree(shop.dir)
            shutil.rmtree(state)


def test_a_copy_without_its_end_is_made_again(ready, wheelhouse):
    """As an upload leaves it that was cut off: files are there, the last one is not."""
    with offline(ready, wheelhouse) as shop:
        shop.install("plain==1.0")
        shop.in_volume("rm /v/0/*/.belljar-whole; echo broken > /v/0/*/plain.py; echo > /v/0/odd")
        said = shop.install("plain==1.0")
        assert said["cached"], said
        run = shop.cell("import plain; print(plain.version)", said["session_id"])
        assert run.stdout == "1.0\n", run
        assert shop.in_volume("ls /v/0/odd 2>&1; ls -A /v/0 | wc -l").endswith("\n1\n")


def test_a_full_disk_is_said(ready, wheelhouse):
    with offline(ready, wheelhouse) as shop:
        shop.remove_volume()
        options = {"type": "tmpfs", "device": "tmpfs", "o": "size=8m"}
        volume = {"Name": shop.volume, "Driver": "local", "DriverOpts": options}
        ready.api.ask("POST", "/volumes/create", None, volume)
        with pytest.raises(ToolError, match="nothing was installed.*disk is full"):
            shop.install("large")


# --- Podman, and the real index -----------------------------------------------------------------------


def test_podman_does_the_same(podman, make_rootfs, wheelhouse):
    make_rootfs(runtime=None)
    with offline(podman, wheelhouse) as shop:
        shop.install("plain==1.0")
        said = shop.install("plain==2.0")
        session = said["session_id"]
        run = shop.cell(
            "import os, plain\n"
            "print(plain.version)\n"
            "place = os.path.dirname(os.path.dirname(plain.__file__))\n"
            "for attempt in (os.listdir, os.rmdir):\n"
            "    try:\n"
            "        print(attempt(place))\n"
            "    except OSError as exc:\n"
            "        print(exc.strerror)\n",
            session,
        )
        assert run.stdout == "2.0\nPermission denied\nRead-only file system\n", run
        assert shop.install("plain==2.0")["cached"]


def test_packages_of_the_real_index(ready):
    if not index_is_there():
        pytest.skip("no package index is in reach")
    with Shop(ready, env=environment()) as shop:
        first = shop.install("tabulate", "six==1.16.0")
        second = shop.install("tabulate", "six==1.16.0")
        # bench/ says how much faster; here other tests run beside it.
        assert second["cached"] and second["duration_ms"] * 2 <= first["duration_ms"]
        run = shop.cell(
            "import six, tabulate; print(six.__version__, tabulate.__name__)", second["session_id"]
        )
        assert run.stdout == "1.16.0 tabulate\n", run
        with pytest.raises(ToolError, match="belljar-no-such-package-7c1"):
            shop.install("belljar-no-such-package-7c1")
        print(f"first {first['duration_ms']} ms, second {second['duration_ms']} ms")
