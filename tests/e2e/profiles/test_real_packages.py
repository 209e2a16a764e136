"""Packages from the real index, as clients of the replaced systems ask for them."""

import re
import time

import belljar
import pytest
from lines import line
from profiles_client import Profile, open_to_all
from real_index import environment, index_is_there

SLOW = 240  # an install, on a busy machine

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]


@pytest.fixture
def shop(tmp_path):
    """A server of a profile that installs from the real index; its shelf is empty at first."""
    if not index_is_there():
        pytest.skip("no package index is in reach")
    servers = []
    open_to_all(tmp_path)

    def begin(name):
        flags = ["--packages-enabled", "--package-dir", tmp_path / "packages"]
        servers.append(Profile(name, *flags, env=environment()))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


@pytest.mark.large
@line("S1.1", "start_code_executer")
def test_dependencies_of_the_readme(shop):
    server = shop("code-executer")
    # Other versions than the runtime has, so that they must be fetched.
    wanted = ["requests==2.31.0", "beautifulsoup4==4.12.3", "scikit-learn"]
    took = []
    for _ in range(2):
        begin = time.monotonic()
        server.text("start_code_executer", SLOW, dependencies=wanted)
        took.append(time.monotonic() - begin)
        code = "import requests, bs4, sklearn\nprint(requests.__version__, bs4.__version__)"
        assert server.text("execute_code", SLOW, code=code) == "2.31.0 4.12.3\n"
    # From the cache. Where sessions are containers, most of the second time is for the making of one.
    assert took[1] * (3 if belljar.IN_CONTAINERS else 10) <= took[0], took
    for plain in ["requests", "beautifulsoup4", "scikit-learn"], ["numpy", "pandas", "matplotlib"]:
        server.text("start_code_executer", SLOW, dependencies=plain)
        names = ", ".join(plain).replace("beautifulsoup4", "bs4").replace("scikit-learn", "sklearn")
        assert (
            server.text("execute_code", SLOW, code=f"import {names}\nprint('there')") == "there\n"
        )


@line("S3.4", "install-package")
@line("S3.6", "README example")
def test_a_package_before_the_first_execute(shop):
    server = shop("python-docker-mcp")
    for name in "numpy", "humanize":
        said = server.text("install-package", SLOW, package_name=name, session_id="my_math_session")
        assert said.startswith("Package installation result:\n\n") and name in said
    code = "import numpy as np, humanize\nprint(humanize.intword(np.power(10, 6)))"
    said = server.text("execute-persistent", SLOW, code=code, session_id="my_math_session")
    assert said == "Session ID: my_math_session\n\nExecution Result:\n\n1.0 million\n"


@line("S2.10", "IPython features")
def test_pip_in_a_cell(shop):
    server = shop("python-interpreter")
    code = "kept = 1\n!pip install six==1.16.0\nimport six\nprint(six.__version__)"
    said = server.said("execute_code", SLOW, code=code)
    assert said["success"] and said["output"][-1].endswith("1.16.0\n"), said
    session = said["session_info"]["session_id"]
    said = server.said(
        "execute_code", SLOW, code="!pip install belljar-no-such-package-7c1", session_id=session
    )
    assert re.search("belljar-no-such-package-7c1", "".join(said["output"]))
    said = server.said("execute_code", SLOW, code="six.__version__, kept", session_id=session)
    assert said["result"] == "('1.16.0', 1)"
