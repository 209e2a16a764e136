"""What tests/e2e promises of sandboxes, kept in containers: the same tests, with another engine."""

import os
import pathlib
import subprocess
import sys

import belljar
import containers
import images
import pytest

E2E = pathlib.Path(__file__).parents[1] / "e2e"

# The promises that are others in containers; docs/engines.md says why.
DIFFERENT = {
    "test_sandbox.py": [
        "test_ordinary_programs_work",  # a uid without a name
        "test_session_info_tells_what_there_is",  # no user namespace
    ],
}
# Not as an ordinary user of this host, who has no right to use the engine.
OTHERS = "not user"


@pytest.mark.timeout(1200 * belljar.PATIENCE)
@pytest.mark.parametrize(
    "name",
    [
        "test_sandbox.py",
        "test_python.py",
        "test_python_promises.py",
        "test_guests.py",
        "test_file_tools.py",
    ],
)
def test_the_same_holds_in_containers(docker, make_rootfs, name):
    make_rootfs(runtime=False)
    env = {**os.environ, **containers.environment(docker, images.base(docker))}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", OTHERS]
    for test in DIFFERENT.get(name, []):
        words += ["--deselect", f"tests/e2e/{name}::{test}"]
    done = subprocess.run(
        [*words, f"tests/e2e/{name}"],
        cwd=E2E.parents[1],
        env={**env, "BELLJAR_POOL_SIZE": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout.splitlines()[-1])
