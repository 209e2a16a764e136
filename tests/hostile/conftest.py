"""Servers that are attacked, as root and as an ordinary user, with the canaries around them.

BELLJAR_FULL=1 runs the large numbers."""

import functools
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import belljar  # noqa: E402
import host  # noqa: E402
import pytest  # noqa: E402
import sandboxes  # noqa: E402
from arena import Arena  # noqa: E402

host.become_subreaper()

# What is in a sandbox is a guest of the test's: none is made ahead but the bare ones.
sandboxes.Jar.always = ["--kernel-pool-size", "0"]


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(120 * belljar.PATIENCE))


def pytest_report_header():
    return f"hostile: {'full' if host.FULL else 'quick'} numbers"


def pytest_generate_tests(metafunc):
    if "mode" in metafunc.fixturenames:
        modes = getattr(metafunc.module, "MODES", ["root", "user"])
        metafunc.parametrize("mode", modes, indirect=True, scope="session")


@pytest.fixture(scope="session")
def mode(request):
    """Who runs the server."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root can run the server as root")
    return request.param


@pytest.fixture(scope="session")
def user(mode):
    if mode == "delegated" and os.geteuid() != 0:
        pytest.skip("only root can delegate cgroups")
    if mode == "root" or os.geteuid() != 0:
        return None
    return sandboxes.ordinary_user()


@pytest.fixture(scope="session")
def delegation(mode, user):
    """Cgroups of the user's own, in that mode."""
    if mode != "delegated":
        yield None
        return
    made = host.Delegation(user)
    if not made.places:
        pytest.skip("no cgroup could be made here to be delegated")
    yield made
    assert not made.remove(), made.places


@pytest.fixture(scope="session")
def arena(user, delegation):
    """One server among canaries, shared by the attacks of a mode."""
    belljar.need(belljar.BIN)
    with Arena(user, delegation) as made:
        yield made


@pytest.fixture(scope="session")
def start(user):
    """Starts a server of the test's own, as sandboxes.Jar does."""
    belljar.need(belljar.BIN)
    return functools.partial(sandboxes.Jar, user=user)


@pytest.fixture
def jar(start):
    with start() as made:
        yield made


@pytest.fixture(scope="session")
def new_traces():
    return host.Traces


@pytest.fixture(scope="session")
def settle():
    """settle(state): what a server that was killed needs to be gone without a trace. Nothing."""
    return lambda state: None


@pytest.fixture(scope="session")
def numbers():
    return host.numbers(
        kills=(16, 500),
        in_sequence=(150, 1000),
        at_once=(50, 200),
        descriptors=(100, 100),
        live=(12, 12),
        connections=(0, 0),
    )


@pytest.fixture
def place():
    """A directory that every user can enter (pytest's own ones are root's alone)."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="belljar-place-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)
