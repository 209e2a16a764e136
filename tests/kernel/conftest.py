import os
import subprocess

import pytest
from driver import ROOT, Kernel


def find_runtime():
    """The interpreter with the libraries: BELLJAR_KERNEL_PYTHON, or what tools/runtime made."""
    given = os.environ.get("BELLJAR_KERNEL_PYTHON")
    if given:
        return given
    runtime = os.environ.get("BELLJAR_RUNTIME", ROOT / ".cache/runtime")
    return os.path.join(runtime, "bin/python")


@pytest.fixture(scope="session")
def python():
    path = find_runtime()
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not there: run tools/runtime")
    return path


@pytest.fixture(scope="session")
def bare_python(python, tmp_path_factory):
    """The same interpreter without a single library."""
    directory = tmp_path_factory.mktemp("bare")
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    return directory / "bin/python"


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def start(python, workspace):
    """Starts kernels that end with the test."""
    kernels = []

    def start(python=python, **kwargs):
        kernels.append(Kernel(python, workspace, **kwargs))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start):
    return start()


@pytest.fixture(scope="module")
def shared(python, tmp_path_factory):
    """One kernel for the tests of a module that only look at what one cell gives."""
    kernel = Kernel(python, tmp_path_factory.mktemp("shared"))
    yield kernel
    kernel.close()
