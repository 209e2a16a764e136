"""Two sandboxes that are there at the same time, and what they share without being told."""

import time

import host
import pytest
from belljar import PATIENCE

# Takes every lease it can get on what all sandboxes see, and never gives one back.
LEASES = r"""
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
taken = []
for top in ("/etc", "/lib64", "/usr/bin", "/usr/lib/x86_64-linux-gnu", "/sys", "/dev"):
    for place, dirs, files in os.walk(top):
        if place.count("/") > 4: dirs[:] = []
        for name in files:
            path = os.path.join(place, name)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                fcntl.fcntl(fd, 1024, 1)
                taken.append(path)
            except OSError:
                try: os.close(fd)
                except (OSError, NameError): pass
print("TAKEN", taken, flush=True)
time.sleep(20)
"""


@pytest.fixture
def jar(arena):
    return arena.jar


def test_leases_do_not_stall_others(jar):
    """An open that breaks a lease waits for its holder, 45 seconds by default."""
    script = f"cat >/tmp/l.py <<'E'\n{LEASES}\nE\nexec python3 -I /tmp/l.py"
    holder = jar.begin(script, timeout=30, progress=True)
    assert host.wait_for(lambda: any("TAKEN" in text for _, text in holder.progress), 10)
    began = time.monotonic()
    run = jar.execute(
        "cat /etc/passwd /etc/ld.so.cache >/dev/null; ls /usr/bin/env; echo fine", timeout=10
    )
    took = time.monotonic() - began
    holder.cancel()
    assert "fine" in run.stdout and took < 2 * PATIENCE, (took, holder.progress[0][1][:500], run)


def test_work_of_one_leaves_the_share_of_another(jar):
    """Two sandboxes compute; each gets its part."""
    if "cpu_limit" not in jar.enforced():
        pytest.skip("this host does not enforce cpu_limit for this user")
    greedy = jar.begin("for i in $(seq 16); do (while :; do :; done) & done; wait", timeout=20)
    time.sleep(0.3)
    run = jar.execute("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done", timeout=20)
    greedy.cancel()
    assert run.stdout == "done\n", run
