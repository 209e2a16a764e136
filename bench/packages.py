"""Measures package installs: the first time, from the real index, and again, from the cache.

Each row starts with an empty cache and ends with sessions that can import what was installed.
"""

import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import sandboxes  # noqa: E402

RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", ROOT / ".cache/runtime")).resolve()
PASSED = ("SSL_CERT_FILE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PIP_INDEX_URL", "UV_INDEX_URL")
SETS = (["six"], ["flask", "humanize"])
LONG = 300


def install(jar, packages):
    """Seconds that a client waits."""
    begin = time.perf_counter()
    said = jar.tool("install_packages", LONG, packages=packages)
    took = time.perf_counter() - begin
    jar.close_session(said["session_id"])
    return took, said["cached"]


def measure_set(packages, installer, rounds):
    place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bench-"))
    place.chmod(0o711)
    flags = ["--runtime", RUNTIME, "--package-dir", place / "shelf"]
    env = {name: os.environ[name] for name in PASSED if name in os.environ}
    try:
        with sandboxes.Jar(*flags, f"--package-installer={installer}", env=env) as jar:
            first, cached = install(jar, packages)
            assert not cached
            again = [install(jar, packages) for _ in range(4 * rounds)]
            assert all(cached for _, cached in again)
    finally:
        shutil.rmtree(place)
    return first, statistics.median(took for took, _ in again)


def measure(table, rounds=5):
    if not (RUNTIME / "stamp").exists():
        return f"Packages were not measured: {RUNTIME.name} is not there (tools/runtime makes it)."
    has_uv = (RUNTIME / "bin/uv").exists()
    rows = []
    for packages in SETS:
        for installer in ("uv", "pip") if has_uv else ("pip",):
            first, again = measure_set(packages, installer, rounds)
            ratio = f"{first / again:,.0f}×"
            name = f"{' '.join(packages)}, by {installer}"
            rows.append([name, f"{first * 1000:,.0f}", f"{again * 1000:.2f}", ratio])
    return table(["install_packages, new session", "first ms", "again ms", "ratio"], rows)
