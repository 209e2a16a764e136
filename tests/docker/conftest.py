"""Container engines for the tests of a run: one dockerd, one service of Podman's, started when asked for.

An engine that cannot run here is a skip that says why."""

import pathlib
import sys

for folder in ("e2e", "docker"):
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / folder))

import belljar  # noqa: E402
import dockerd  # noqa: E402
import images  # noqa: E402
import pytest  # noqa: E402
import rootfs  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300 * belljar.PATIENCE))


@pytest.fixture(scope="session")
def docker():
    with dockerd.started(dockerd.Dockerd) as engine:
        yield engine


@pytest.fixture(scope="session")
def podman():
    with dockerd.started(dockerd.Podman) as engine:
        yield engine


@pytest.fixture(params=["docker", "podman"])
def engine(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def own_docker():
    """A dockerd of the test's own, to be stopped and killed."""
    with dockerd.started(dockerd.Dockerd) as engine:
        yield engine


@pytest.fixture(scope="session")
def make_rootfs():
    """rootfs.make(), or a skip."""

    def make(**options):
        try:
            return rootfs.make(**options)
        except rootfs.Unavailable as error:
            pytest.skip(str(error))

    return make


@pytest.fixture
def base(engine, make_rootfs):
    make_rootfs(runtime=None)
    return images.base(engine)
