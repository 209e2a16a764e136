"""Servers for the tests. Shared ones live for the whole run; the rest for one test."""

import belljar
import pytest
import python_jar
import zygote_jar
from belljar import need


def missing_in_containers(item):
    """Why a test is not for sandboxes that are containers; None: it is. docs/engines.md says the same."""
    if mark := item.get_closest_marker("native_only"):
        return f"native engine only: {mark.args[0]}"
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        why = missing_in_containers(item) if belljar.IN_CONTAINERS else None
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60 * belljar.PATIENCE))


@pytest.fixture(scope="session")
def http():
    """The real server with its default limits, shared by all tests."""
    with belljar.Http(binary=need(belljar.BIN)) as server:
        yield server


@pytest.fixture(scope="session")
def fixture_http():
    """The conformance fixture server, shared by all tests."""
    with belljar.Http(binary=need(belljar.FIXTURE)) as server:
        yield server


@pytest.fixture
def stdio():
    with belljar.Stdio(binary=need(belljar.BIN)) as server:
        yield server


@pytest.fixture
def fixture_stdio():
    with belljar.Stdio(binary=need(belljar.FIXTURE)) as server:
        yield server


@pytest.fixture
def serve():
    """Starts servers with flags of their own: serve(Http, "--token", "x"). Stops them after the
    test."""
    servers = []

    def start(kind, *flags, **options):
        need(options.get("binary", belljar.BIN))
        server = kind(*flags, **options)
        servers.append(server)
        return server

    yield start
    for server in servers:
        if server.process.returncode is None:
            server.stop()


@pytest.fixture(scope="module", params=["root", "user"])
def jar(request):
    """Python in sandboxes, see python_jar.py."""
    with python_jar.start(request.param) as made:
        yield made


@pytest.fixture
def cell(jar):
    """Runs cells in one session."""
    session = None

    def execute(code, timeout=None, wait=python_jar.SLOW, language="python", progress=False):
        nonlocal session
        waiting = jar.begin(code, language, session, timeout, progress)
        run = waiting.run((timeout or 0) + wait)
        run.progress = waiting.progress
        session = run.session
        return run

    yield execute
    if session:
        jar.close_session(session)


@pytest.fixture
def data_cell(jar, cell):
    if not jar.has_libraries:
        pytest.skip("the runtime lies where this user cannot look")
    return cell


@pytest.fixture(scope="module", params=["root", "user"])
def warm_jar(request):
    """Its zygote serves, see zygote_jar.py."""
    user, flags = zygote_jar.who(request.param)
    with zygote_jar.open_jar(*flags, user=user) as made:
        made.has_libraries = not user
        yield made


@pytest.fixture(scope="module")
def data_jar():
    """The same, root's, with the runtime's libraries."""
    with zygote_jar.open_jar(*python_jar.with_runtime()) as made:
        yield made
