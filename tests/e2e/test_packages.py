"""Packages: from the real index where there is one, from wheels made here for what no index should
have. Everything is done as root and, where the sandbox is concerned, as an ordinary user."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

import belljar
import pytest
from belljar import call_tool, need
from real_index import PASSED, environment, index_is_there
from sandboxes import Jar, ToolError, make_state, ordinary_user
from wheels import Index, make_wheel

RUNTIME = pathlib.Path(
    os.environ.get("BELLJAR_RUNTIME", pathlib.Path(__file__).parents[2] / ".cache/runtime")
).resolve()
SLOW = 240  # an install from the real index, on a busy machine

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]


def for_everybody(path):
    """Can another user get there?"""
    return all(each.stat().st_mode & 0o005 == 0o005 for each in [path, *path.parents])


def wait_for(condition):
    deadline = time.monotonic() + 60 * belljar.PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def users():
    return ["root", "user"] if os.geteuid() == 0 else ["user"]


class Shop:
    """A server with packages, and the directory where it keeps them."""

    def __init__(self, *flags, user=None, env=None, **options):
        need(belljar.BIN)
        if not (RUNTIME / "stamp").exists():
            pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
        if user and not for_everybody(RUNTIME):
            pytest.skip("the runtime lies where this user cannot look")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="belljar-packages-"))
        self.dir.chmod(0o711)
        if user:
            os.chown(self.dir, user.uid, user.gid)
        self.shelf = self.dir / "shelf"
        flags = ["--runtime", RUNTIME, "--package-dir", self.shelf, *flags]
        self.jar = Jar(*flags, user=user, env={**environment(), **(env or {})}, **options)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.jar.__exit__(*error)
        shutil.rmtree(self.dir, ignore_errors=True)

    def install(self, *packages, session=None, timeout=SLOW):
        more = {"session_id": session} if session else {}
        return self.jar.tool("install_packages", timeout, packages=list(packages), **more)

    def cell(self, code, session=None, timeout=None, wait=SLOW):
        return self.jar.execute(code, "python", session=session, timeout=timeout, wait=wait)

    def sets(self):
        return sorted(each.name for each in (self.shelf / "sets").iterdir())

    def staged(self):
        return sorted(each.name for each in (self.shelf / "stage").iterdir())

    def wait_until_clean(self):
        wait_for(lambda: not self.staged())


@pytest.fixture(scope="module", params=users())
def shop(request):
    """Over the real index."""
    if not index_is_there():
        pytest.skip("no package index is in reach")
    user = ordinary_user() if request.param == "user" and os.geteuid() == 0 else None
    with Shop(user=user) as made:
        yield made


@pytest.fixture(scope="module")
def wheelhouse():
    place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-wheels-"))
    place.chmod(0o755)
    make_wheel(place, "plain", "1.0", {"plain.py": "version = '1.0'\n"})
    make_wheel(place, "plain", "2.0", {"plain.py": "version = '2.0'\n"})
    make_wheel(place, "needs", "1.0", {"needs.py": "import plain\n"}, requires=["plain>=2"])
    make_wheel(place, "bomb", "1.0", {"bomb/__init__.py": ""}, pad=40 << 20)
    make_wheel(place, "superbomb", "1.0", {"superbomb/__init__.py": ""}, pad=400 << 20)
    make_wheel(place, "edge", "1.0", {}, pad=(8 << 20) - 1000)
    make_wheel(place, "over", "1.0", {}, pad=8 << 20)
    make_wheel(place, "many", "1.0", {f"many/f{i}.txt": "" for i in range(300)})
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module", params=users())
def offline(request, wheelhouse):
    """Over wheels of our own, with small limits."""
    user = ordinary_user() if request.param == "user" and os.geteuid() == 0 else None
    with Shop(
        "--package-index=none",
        f"--package-wheels={wheelhouse}",
        "--package-max-bytes=8m",
        "--package-max-files=200",
        "--package-max-count=5",
        user=user,
    ) as made:
        yield made


# --- the real index -----------------------------------------------------------------------------------


def test_installed_packages_can_be_imported_at_once(shop):
    session = shop.cell("before = 1").session
    said = shop.install("tabulate", "humanize>=4", session=session)
    assert said["success"] and said["session_id"] == session, said
    run = shop.cell(
        "import tabulate, humanize\nprint(humanize.intword(10**6), tabulate.__name__, before)",
        session,
    )
    assert run.stdout == "1.0 million tabulate 1\n", run
    assert "humanize" in said["output"], said
    # Programs of other languages see them, too.
    run = shop.jar.execute("python3 -c 'import tabulate as t; print(t.__name__)'", session=session)
    assert run.stdout == "tabulate\n", run
    # And so does a kernel that was started anew.
    assert shop.cell("import os; os._exit(3)", session).outcome != "ok"
    assert shop.cell("import humanize; print('again')", session).stdout == "again\n"
    run = shop.cell("!python3 -c 'import humanize; print(1)'", session)
    assert run.stdout == "1\n", run


def test_the_second_time_is_from_the_cache(shop):
    first = shop.install("requests", "colorama==0.4.6")
    begin = time.monotonic()
    second = shop.install("Colorama == 0.4.6", "requests")
    took = time.monotonic() - begin
    assert not first["cached"] and second["cached"], (first, second)
    assert first["session_id"] != second["session_id"]
    run = shop.cell("import requests, colorama; print(colorama.__version__)", second["session_id"])
    assert run.stdout == "0.4.6\n", run
    assert second["duration_ms"] * 10 <= first["duration_ms"], (first, second, took)


def test_what_the_runtime_has_is_not_fetched_again(shop):
    said = shop.install("numpy", "scikit-learn")
    assert "already" in said["output"], said
    run = shop.cell("import numpy, sklearn; print(numpy.__file__)", said["session_id"])
    assert run.stdout.startswith("/opt/belljar/runtime/"), run


@pytest.mark.parametrize(
    "line",
    [
        "%pip install six==1.16.0",
        "!pip install six==1.16.0",
        "!uv pip install six==1.16.0",
        "pip install six==1.16.0",
        "!python -m pip install -q 'six == 1.16.0' 2>/dev/null",
    ],
)
def test_pip_in_a_cell(shop, line):
    if line.startswith("pip"):  # IPython takes it without a percent sign when it stands alone
        run = shop.cell(line)
        run = shop.cell("import six; print(six.__version__)", run.session)
        assert run.stdout == "1.16.0\n", run
        return
    run = shop.cell(f"print('before')\n{line}\nimport six\nprint(six.__version__)")
    assert run.outcome == "ok", run
    assert run.stdout.startswith("before\n") and run.stdout.endswith("\n1.16.0\n"), run
    assert len(run.stdout.splitlines()) > 2, run  # between them, what the installer said


def test_requirements_of_a_file(shop):
    run = shop.cell(
        "open('requirements.txt', 'w').write('# mine\\nsix==1.16.0  # pinned\\n\\n')\n"
        "%pip install -r requirements.txt\nimport six; print(six.__version__)"
    )
    assert run.stdout.endswith("1.16.0\n"), run
    run = shop.cell("!pip install -r nowhere.txt", run.session)
    assert "nowhere.txt" in run.stderr, run


def test_other_uses_of_pip_are_left_to_pip(shop):
    run = shop.cell("!pip --version\n!echo pip install six")
    assert "pip" in run.stdout and "pip install six" in run.stdout, run


def test_a_package_that_does_not_exist(shop):
    name = "belljar-no-such-package-7c1"
    before = shop.sets()
    session = shop.cell("kept = 5").session
    with pytest.raises(ToolError, match="belljar-no-such-package-7c1"):
        shop.install(name, session=session)
    run = shop.cell(f"%pip install {name}\nprint('goes on', kept)", session)
    assert run.stdout.endswith("goes on 5\n") and name in run.stdout + run.stderr, run
    assert "nothing was installed" in run.stderr, run
    shop.wait_until_clean()
    assert shop.sets() == before


def test_a_session_can_start_with_packages(shop):
    session = shop.jar.tool("start_session", SLOW, packages=["six==1.16.0"])["session_id"]
    assert shop.cell("import six; print(six.__version__)", session).stdout == "1.16.0\n"
    with pytest.raises(ToolError, match="(?s)start_session.*belljar-no-such"):
        shop.jar.tool("start_session", SLOW, packages=["belljar-no-such-package-7c1"])


def test_sessions_may_have_different_versions(shop):
    one = shop.install("six==1.16.0")["session_id"]
    two = shop.install("six==1.15.0")["session_id"]
    code = "import six; print(six.__version__)"
    assert shop.cell(code, one).stdout == "1.16.0\n"
    assert shop.cell(code, two).stdout == "1.15.0\n"
    # In one session the later one goes first.
    three = shop.install("six==1.15.0")["session_id"]
    shop.install("six==1.16.0", session=three)
    assert shop.cell(code, three).stdout == "1.16.0\n"


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad, why",
    [
        ("--index-url=http://127.0.0.1:1/", "options"),
        ("-rrequirements.txt", "options"),
        ("https://example.org/six.whl", "URLs"),
        ("six @ file:///tmp/six.whl", "URLs"),
        ("./six.whl", "paths"),
        ("/etc/passwd", "paths"),
        ("six --no-deps", "version"),
        ("six; python_version > '3'", "markers"),
        ("", "empty"),
    ],
)
def test_bad_names_are_refused(offline, bad, why):
    before = offline.sets()
    session = offline.cell("x = 1").session
    with pytest.raises(ToolError, match=f"packages.*{why}"):
        offline.install("plain", bad, session=session)
    with pytest.raises(ToolError, match=why):
        offline.jar.tool("start_session", packages=[bad])
    assert offline.cell("x", session).said["result"] == "1"
    assert offline.sets() == before and offline.staged() == []


@pytest.mark.parametrize(
    "line, why",
    [
        ("%pip install --index-url http://127.0.0.1:1/ plain", "options"),
        ("!pip install --target=/tmp plain", "options"),
        ("!pip install git+https://example.org/x", "URLs"),
        ("%pip install .", "paths"),
        ("%pip install", "at least one"),
    ],
)
def test_options_in_a_cell_are_refused(offline, line, why):
    run = offline.cell(f"{line}\nprint('goes on')")
    assert why in run.stderr and run.stdout == "goes on\n", run


@pytest.mark.parametrize(
    "arguments, field",
    [
        ({}, "packages"),
        ({"packages": []}, "packages"),
        ({"packages": "six"}, "packages"),
        ({"packages": [1]}, "packages"),
        ({"packages": ["x" * 201]}, "packages"),
        ({"packages": ["plain"], "session_id": 5}, "session_id"),
        ({"packages": ["plain"], "upgrade": True}, "upgrade"),
        ({"packages": ["plain"], "session_id": "nobody"}, "session_id"),
    ],
)
def test_wrong_arguments_name_the_argument(offline, arguments, field):
    with pytest.raises(ToolError, match=field):
        offline.jar.tool("install_packages", **arguments)


def test_the_number_of_names_is_limited_at_its_edge(offline):
    five = ["plain", "plain==2.0", "plain>=1", "plain<3", "needs"]
    assert offline.install(*five)["success"]
    with pytest.raises(ToolError, match="6 names; at most 5"):
        offline.install(*five, "plain!=1.5")


# --- limits ---------------------------------------------------------------------------------------------


def test_dependencies_come_along(offline):
    said = offline.install("needs")
    run = offline.cell("import needs; print(needs.plain.version)", said["session_id"])
    assert run.stdout == "2.0\n", run


@pytest.mark.parametrize("name", ["bomb", "superbomb"])
def test_a_bomb_is_refused(offline, name):
    before = offline.sets()
    session = offline.cell("x = 1").session
    with pytest.raises(ToolError, match="package_max_bytes"):
        offline.install(name, session=session)
    run = offline.cell(f"%pip install {name}\nprint(x)", session)
    assert "package_max_bytes" in run.stdout + run.stderr and run.stdout.endswith("1\n"), run
    offline.wait_until_clean()
    assert offline.sets() == before


def test_a_set_just_below_the_size_limit(offline):
    assert offline.install("edge")["success"]
    with pytest.raises(ToolError, match="package_max_bytes"):
        offline.install("over")


def test_too_many_files_are_refused(offline):
    with pytest.raises(ToolError, match="package_max_files"):
        offline.install("many")


def test_installs_of_one_session_are_limited(wheelhouse):
    with Shop(
        "--package-index=none", f"--package-wheels={wheelhouse}", "--package-max-sets=2"
    ) as shop:
        session = shop.install("plain==1.0")["session_id"]
        shop.install("plain==2.0", session=session)
        with pytest.raises(ToolError, match="2 times"):
            shop.install("needs", session=session)


def test_packages_can_be_switched_off():
    with Shop("--no-packages-enabled") as shop:
        with pytest.raises(ToolError, match="cannot be installed on this server"):
            shop.install("six")
        run = shop.cell("%pip install six\nprint('goes on')")
        assert "cannot be installed" in run.stderr and run.stdout == "goes on\n", run
        assert not shop.shelf.exists()


def test_the_cache_is_bounded_and_spares_what_is_used(wheelhouse):
    with Shop(
        "--package-index=none", f"--package-wheels={wheelhouse}", "--package-cache-size=0"
    ) as shop:
        session = shop.install("plain==1.0")["session_id"]
        shop.install("plain==2.0", session=session)
        assert len(shop.sets()) == 2  # both in use
        shop.jar.close_session(session)
        other = shop.install("needs")["session_id"]
        assert len(shop.sets()) == 1
        assert shop.cell("import needs; print(1)", other).stdout == "1\n"


def test_pip_does_it_where_there_is_no_uv(wheelhouse):
    with Shop(
        "--package-index=none", f"--package-wheels={wheelhouse}", "--package-installer=pip"
    ) as shop:
        session = shop.install("needs")["session_id"]
        run = shop.cell("import needs; print(needs.plain.version)", session)
        assert run.stdout == "2.0\n", run
        with pytest.raises(ToolError, match="belljar-no-such"):
            shop.install("belljar-no-such-package-7c1")


def test_the_cache_outlives_the_server(wheelhouse):
    flags = ("--package-index=none", f"--package-wheels={wheelhouse}")
    with Shop(*flags) as shop:
        shop.install("plain==1.0")
        with Jar("--runtime", RUNTIME, "--package-dir", shop.shelf, *flags) as other:
            said = other.tool("install_packages", SLOW, packages=["plain==1.0"])
            assert said["cached"], said


# --- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"])
def test_the_usual_variables_name_an_index(wheelhouse, variable):
    env = {name: "" for name in PASSED if name in os.environ and name.endswith("_URL")}
    with Index(wheelhouse) as index, Shop(env={**env, variable: index.url}) as shop:
        assert shop.install("needs")["success"]
        assert any(path.endswith(".whl") for path in index.requests), index.requests


@pytest.mark.parametrize(
    "flag, allowed",
    [
        ("--package-index=ftp://example.org/", "https://"),
        ("--package-index=--no-deps", "https://"),
        ("--package-dir=relative", "absolute"),
        ("--package-wheels=relative", "absolute"),
        ("--package-installer=conda", "auto"),
        ("--package-max-bytes=1k", "1m"),
        ("--package-max-count=0", "1"),
    ],
)
def test_a_bad_setting_names_itself(flag, allowed):
    done = subprocess.run(
        [need(belljar.BIN), "config", flag], capture_output=True, text=True, timeout=60
    )
    name = flag.partition("=")[0]
    assert done.returncode == 2 and name in done.stderr and allowed in done.stderr, done


def test_a_directory_of_somebody_else_is_not_used(tmp_path):
    """The server still runs code, and says why it cannot install."""
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with Jar("--package-dir", place) as jar:
        assert jar.execute("echo hi").stdout == "hi\n"
        with pytest.raises(ToolError, match="cannot be installed"):
            jar.tool("install_packages", packages=["six"])
        assert "package_dir" in jar.log_text()


# --- while it goes on -----------------------------------------------------------------------------------


def counters(server):
    page = server.request("GET", "/metrics").body.decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^belljar_package_(\S+) (\S+)$", page, re.M)
    }


def test_installs_are_counted(wheelhouse, tmp_path):
    for directory in [tmp_path, *tmp_path.parents][:3]:
        directory.chmod(0o755)
    flags = ["--runtime", RUNTIME, "--package-dir", tmp_path / "shelf", "--package-index=none"]
    with belljar.Http(*flags, f"--package-wheels={wheelhouse}") as server:
        session = server.session()

        def install(*names):
            arguments = call_tool("install_packages", {"packages": list(names)})
            return session.call("tools/call", arguments, timeout=SLOW)

        assert set(counters(server).values()) == {0}
        assert not install("plain").get("isError")
        made = counters(server)
        assert (made["installs_total"], made["cache_hits_total"], made["failures_total"]) == (
            1,
            0,
            0,
        )
        assert 0 < made["bytes_total"] < 1 << 20
        assert install("no-such-thing")["isError"] and not install("plain").get("isError")
        after = counters(server)
        assert (after["installs_total"], after["cache_hits_total"], after["failures_total"]) == (
            1, 1, 1,
        )  # fmt: skip
        assert after["bytes_total"] == made["bytes_total"] and after["installs_running"] == 0


@pytest.fixture
def slow_index(wheelhouse):
    """An index that answers nobody before `hold` is set."""
    hold = threading.Event()
    with Index(wheelhouse, hold) as index:
        index.hold = hold
        yield index
        hold.set()


def wait_for_request(index):
    wait_for(lambda: index.requests)


def slow_shop(index, *flags):
    return Shop(f"--package-index={index.url}", "--package-trusted-hosts=127.0.0.1", *flags)


def test_equal_installs_share_one(slow_index):
    with slow_shop(slow_index) as shop:
        waiting = [
            shop.jar.submit("tools/call", call_tool("install_packages", {"packages": ["plain"]}))
            for _ in range(5)
        ]
        wait_for_request(slow_index)
        slow_index.hold.set()
        results = [each.result(SLOW) for each in waiting]
        assert all(each["structuredContent"]["success"] for each in results), results
        assert len(shop.sets()) == 1
        # One install asks for the wheel up to three times: its head, its metadata, the whole.
        assert len([path for path in slow_index.requests if path.endswith(".whl")]) < 5


def test_cancelled_in_the_middle(slow_index):
    with slow_shop(slow_index) as shop:
        session = shop.cell("x = 7").session
        waiting = shop.jar.submit(
            "tools/call",
            call_tool("install_packages", {"packages": ["plain"], "session_id": session}),
        )
        wait_for_request(slow_index)
        waiting.cancel()
        assert shop.cell("x", session).said["result"] == "7"
        shop.wait_until_clean()
        assert shop.sets() == []
        slow_index.hold.set()
        assert not shop.install("plain", session=session)["cached"]


def test_a_cell_that_installs_can_be_cancelled(slow_index):
    with slow_shop(slow_index) as shop:
        session = shop.cell("x = 7").session
        waiting = shop.jar.begin("%pip install plain\nx = 8", "python", session=session)
        wait_for_request(slow_index)
        waiting.cancel()
        assert shop.cell("x", session).said["result"] == "7"
        slow_index.hold.set()
        run = shop.cell("%pip install plain\nimport plain; print(plain.version)", session)
        assert run.stdout.endswith("2.0\n"), run


def test_time_for_the_installer_is_not_the_cells(slow_index):
    with slow_shop(slow_index) as shop:
        waiting = shop.jar.begin("%pip install plain\nprint('done')", "python", timeout=3)
        wait_for_request(slow_index)
        time.sleep(4)  # longer than the cell has
        slow_index.hold.set()
        run = waiting.run(SLOW)
        assert run.outcome == "ok" and run.stdout.endswith("done\n"), run


def test_an_install_that_takes_too_long(slow_index):
    with slow_shop(slow_index, "--package-timeout=2s") as shop:
        with pytest.raises(ToolError, match="longer than 2 s.*package_timeout"):
            shop.install("plain")
        shop.wait_until_clean()
        assert shop.sets() == []


def test_the_queue_is_bounded(slow_index):
    with slow_shop(slow_index, "--package-max-parallel=1", "--package-max-queue=1") as shop:
        waiting = [
            shop.jar.submit("tools/call", call_tool("install_packages", {"packages": [name]}))
            for name in ("plain", "needs", "plain==1.0")
        ]
        wait_for(lambda: any(each.future.done() for each in waiting))
        refused = [each for each in waiting if each.future.done()]
        assert len(refused) == 1 and "wait already" in belljar.text_of(refused[0].result())
        slow_index.hold.set()
        done = [each.result(SLOW) for each in waiting if each is not refused[0]]
        assert all(each["structuredContent"]["success"] for each in done), done


def test_one_client_cannot_take_all_places(slow_index):
    with slow_shop(slow_index, "--package-max-per-client=2") as shop:
        session = shop.cell("x = 1").session
        waiting = []
        for name in ("plain==1.0", "plain==2.0"):
            arguments = {"packages": [name], "session_id": session}
            waiting.append(shop.jar.submit("tools/call", call_tool("install_packages", arguments)))
        with pytest.raises(ToolError, match="2 of your installs"):
            shop.install("needs")
        slow_index.hold.set()
        assert all(each.result(SLOW)["structuredContent"]["success"] for each in waiting)
        assert shop.install("needs")["success"]


def test_a_session_that_ends_takes_its_install_along(slow_index):
    with slow_shop(slow_index) as shop:
        session = shop.cell("x = 1").session
        waiting = shop.jar.submit(
            "tools/call",
            call_tool("install_packages", {"packages": ["plain"], "session_id": session}),
        )
        wait_for_request(slow_index)
        shop.jar.close_session(session)
        assert waiting.result(30).get("isError")
        shop.wait_until_clean()
        assert shop.sets() == []


def test_a_server_that_ends_leaves_nothing_half_done(slow_index):
    with slow_shop(slow_index) as shop:
        shop.jar.submit("tools/call", call_tool("install_packages", {"packages": ["plain"]}))
        wait_for_request(slow_index)
    assert not shop.dir.exists()


@pytest.mark.native_only(
    "looks for what that engine leaves; tests/docker asks the same of containers"
)
def test_a_killed_server_leaves_nothing(slow_index):
    state = pathlib.Path(make_state())
    flags = (f"--package-index={slow_index.url}", "--package-trusted-hosts=127.0.0.1")
    shop = Shop(*flags, state=str(state))
    try:
        shop.jar.submit("tools/call", call_tool("install_packages", {"packages": ["plain"]}))
        wait_for_request(slow_index)
        assert len(list((state / "instances").iterdir())) == 2  # guests', installers'
        shop.jar.kill()
        # Each is removed by its keeper when the last process of its sandboxes is gone.
        wait_for(lambda: not list((state / "instances").iterdir()))
        assert shop.sets() == [] and shop.staged() == []
    finally:
        shop.jar.kill()
        shutil.rmtree(shop.dir)
        shutil.rmtree(state)


def test_what_the_installer_says_is_streamed(wheelhouse):
    """By pip: uv may be done before the first message is due."""
    arguments = {"packages": ["needs", "plain>=1.5"]}
    with Shop(
        "--package-index=none", f"--package-wheels={wheelhouse}", "--package-installer=pip"
    ) as shop:
        waiting = shop.jar.submit("tools/call", call_tool("install_packages", arguments), True)
        assert waiting.result(SLOW)["structuredContent"]["success"]
        said = "".join(message for _, message in waiting.progress)
        assert "plain" in said, waiting.progress


# --- walls ----------------------------------------------------------------------------------------------


def test_a_guest_sees_its_own_packages_only_and_cannot_write(offline):
    offline.install("plain==1.0")
    session = offline.install("plain==2.0")["session_id"]
    run = offline.cell(
        "import os, plain\n"
        "place = os.path.dirname(plain.__file__)\n"
        "def attempt(function, *args):\n"
        "    try:\n"
        "        return function(*args)\n"
        "    except OSError as exc:\n"
        "        return exc.strerror\n"
        "print(attempt(os.listdir, os.path.dirname(place)))\n"
        "print(attempt(open, place + '/plain.py', 'w'))\n"
        "print(attempt(open, place + '/new.py', 'w'))\n"
        "print(attempt(os.mkdir, '/opt/belljar/packages/mine'))\n"
        "print(attempt(os.chmod, os.path.dirname(place), 0o755))\n"
        "print(attempt(os.unlink, plain.__file__))\n"
        "print(plain.version)\n",
        session,
    )
    lines = run.stdout.splitlines()
    assert lines[0] == "Permission denied", run
    assert lines[1:6] == ["Read-only file system"] * 5, run
    assert lines[6] == "2.0", run


def test_a_guest_still_has_no_network(offline):
    session = offline.install("plain")["session_id"]
    run = offline.cell(
        "import socket\n"
        "s = socket.socket()\n"
        "s.settimeout(3)\n"
        "try:\n"
        "    s.connect(('1.1.1.1', 443))\n"
        "    print('connected')\n"
        "except OSError as exc:\n"
        "    print(exc.strerror)\n"
        "print(open('/proc/net/dev').read().count(':'))\n",
        session,
    )
    assert run.stdout == "Network is unreachable\n1\n", run


HOST_PLACES = ("/root", "/boot", "/srv", "/var/lib", "/var/log", "/etc/shadow", "/home/root")
HOSTILE_SETUP = """
import os, socket, sys

def attempt(function, *args):
    try:
        return repr(function(*args))
    except OSError as exc:
        return f"refused: {exc.strerror}"

print("ROOT", sorted(os.listdir("/")), os.listdir("/opt/belljar/packages"))
print("HOST", [each for each in HOST_PLACES if os.path.lexists(each)])
print("UNIX", attempt(socket.socket, socket.AF_UNIX))
print("BIND", attempt(lambda: socket.socket().bind(("127.0.0.1", 0))))
print("WRITE", attempt(open, "/opt/belljar/wheels/evil", "w"))
print("SECRET", {name: value for name, value in os.environ.items() if "SECRET" in name})
print("PROCESSES", sorted(int(each) for each in os.listdir("/proc") if each.isdigit())[:3])
sys.stdout.flush()
sys.exit("that was all")
"""


@pytest.mark.native_only("knows that engine's root; tests/docker asks the same of containers")
def test_a_source_package_sees_nothing_of_the_host(wheelhouse):
    """Code of a package's author runs in the installer only if the operator allows it, and then finds
    a sandbox there."""
    import io
    import tarfile

    place = wheelhouse / "source"
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    with tarfile.open(place / "hostile-1.0.tar.gz", "w:gz") as archive:
        for name, text in (
            ("hostile-1.0/backend.py", f"HOST_PLACES = {HOST_PLACES}\n{HOSTILE_SETUP}"),
            (
                "hostile-1.0/pyproject.toml",
                '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
                '[project]\nname = "hostile"\nversion = "1.0"\ndynamic = ["description"]\n',
            ),
            ("hostile-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    flags = ("--package-index=none", f"--package-wheels={place}")
    with Shop(*flags) as shop, pytest.raises(ToolError) as refused:
        shop.install("hostile")
    assert "ROOT" not in str(refused.value)
    env = {"MY_SECRET": "canary"}
    with Shop(*flags, "--package-allow-source", "--package-installer=pip", env=env) as shop:
        waiting = shop.jar.submit(
            "tools/call", call_tool("install_packages", {"packages": ["hostile"]}), True
        )
        result = waiting.result(SLOW)
        assert result.get("isError"), result
        said = "".join(message for _, message in waiting.progress) + belljar.text_of(result)
        assert "canary" not in said and "SECRET {}" in said, said
        assert "UNIX refused" in said and "WRITE refused" in said, said
        # Where the runtime lies below one of them, the way to it is made again.
        way = [place for place in HOST_PLACES if RUNTIME.resolve().is_relative_to(place)]
        assert "'workspace'] []" in said and f"HOST {way}" in said, said


def test_hostile_wheels_do_no_harm(tmp_path):
    """Names that lead outside, links, and start-up files that run code."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-1]:
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    make_wheel(tmp_path, "traverse", "1.0", {"../../evil.py": "x = 1", "traverse.py": ""})
    make_wheel(tmp_path, "absolute", "1.0", {"/tmp/evil.py": "x = 1", "absolute.py": ""})
    make_wheel(
        tmp_path,
        "linked",
        "1.0",
        {"linked.py": ""},
        links=[("out", "/etc"), ("linked_secret.py", "/proc/self/environ")],
    )
    code = "import os, sys; open('/tmp/pth-ran', 'w'); sys.stdout.write('PTH RAN')\n"
    make_wheel(
        tmp_path,
        "starter",
        "1.0",
        {"starter.py": "x = 2", "starter.pth": code, "sitecustomize.py": "print('SITE RAN')"},
    )
    with Shop("--package-index=none", f"--package-wheels={tmp_path}") as shop:
        for name in ("traverse", "absolute", "linked"):
            try:
                session = shop.install(name)["session_id"]
                run = shop.cell(
                    f"import os, {name}\n"
                    f"place = os.path.dirname({name}.__file__)\n"
                    "print([e.name for e in os.scandir(place) if e.is_symlink()])",
                    session,
                )
                assert run.stdout == "[]\n", run
            except ToolError as refused:
                assert "nothing was installed" in str(refused), refused
        outside = [each for each in shop.dir.rglob("evil.py") if "shelf/sets" not in str(each)]
        assert outside == []
        said = shop.install("starter")
        assert "RAN" not in said["output"], said
        run = shop.cell(
            "import starter, os; print(starter.x, os.path.exists('/tmp/pth-ran'))",
            said["session_id"],
        )
        assert run.stdout == "2 False\n", run
        # Another session, and a later installer, see nothing of it.
        other = shop.cell("import os; print(os.path.exists('/tmp/pth-ran'))")
        assert other.stdout == "False\n", other
        assert "RAN" not in shop.install("starter==1.0")["output"]
