"""Who a guest is and what it shares with others (tests/hostile/test_identity.py), on a host with version 2 of cgroups and Debian's own
kernel, where most servers are. The attacks themselves have limits of time that an emulated machine does not keep."""

import pathlib

import machine
import pytest
from belljar import FULL

PACKAGES = """bash coreutils dash findutils grep gzip hostname iproute2 login mawk mount nodejs passwd procps sed tar
    util-linux util-linux-extra""".split()
SITE = [
    "_pytest",
    "py.py",
    "iniconfig",
    "packaging",
    "pluggy",
    "pygments",
    "pytest",
    "pytest_timeout.py",
]
LONGEST = 1200  # seconds


def site_files():
    site = pathlib.Path(pytest.__file__).parents[1]
    for path in [*(site / name for name in SITE), *site.glob("pytest*.dist-info")]:
        yield path, f"site/{path.name}"


@pytest.mark.timeout(LONGEST + 60)
def test_a_guest_is_nobody_there_either(tmp_path):
    if not FULL:
        pytest.skip("takes long (BELLJAR_FULL=1)")
    if why := machine.missing():
        pytest.skip(why)
    trees = [(machine.ROOT / "tests", "project/tests"), *site_files()]
    found, text = machine.run(tmp_path, "inside_hostile.py", PACKAGES, trees, LONGEST)
    assert "results" in found, text[-3000:]
    results = found["results"]
    kinds = [kind for kind, _ in results.values()]
    assert kinds.count("passed") > 30, text[-3000:]
    bad = [
        f"{name}: {text}" for name, (kind, text) in results.items() if kind in ("failure", "error")
    ]
    assert not bad, "\n\n".join(bad)
