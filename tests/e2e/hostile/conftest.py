"""Every case here ends with a proof that the server is unharmed."""

import belljar
import pytest
from belljar import need


@pytest.fixture(scope="module")
def stdio_victim():
    with belljar.Stdio(binary=need(belljar.BIN)) as server:
        server.initialize()
        yield server


@pytest.fixture(scope="module")
def http_victim():
    with belljar.Http(binary=need(belljar.BIN)) as server:
        yield server


@pytest.fixture
def victim(http_victim):
    """A server with default limits, shared by the cases of a file. After each case a fresh client
    is served within a second."""
    yield http_victim
    http_victim.harmless()
