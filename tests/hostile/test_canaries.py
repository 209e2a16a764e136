"""The alarms themselves: outside a sandbox an attack must trip its canary. Without this, a test that
finds no breach would prove nothing."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
import sandboxes
from attacks import ATTACKS
from canaries import Canaries

HERE = pathlib.Path(__file__).parent
TRIPPING = [attack for attack in ATTACKS if attack.trips]


@pytest.fixture(scope="module")
def outsider():
    return sandboxes.ordinary_user()


@pytest.fixture
def canaries(place, outsider):
    made = Canaries(str(place), sys.executable, outsider)
    yield made
    made.remove()


@pytest.mark.parametrize("attack", TRIPPING, ids=lambda attack: attack.name)
def test_an_attack_outside_a_sandbox_is_noticed(attack, canaries, outsider, place):
    """As an ordinary user on the host: only programs that can do no harm there are marked."""
    work = place / "work"
    work.mkdir()
    os.chown(work, outsider.uid, outsider.gid)
    secret = canaries.secret("descriptors and keys")
    words = canaries.words() | {
        "NEIGHBOUR": "none",
        "NEIGHBOUR_PORTS": "9 9",
        "NEIGHBOUR_PID": words_pid(canaries),
        "BINARY": "/bin/true",
        "STATE": str(place),
    }
    words["PIDS"] = str(canaries.bystanders.pids[-1])  # the one of the same user
    language, text = attack.code(words)
    text = text.replace("/tmp/.code.py", f"{work}/.code.py").replace("/tmp/jail", f"{work}/jail")
    script = work / ("script.js" if language == "node" else "script.sh")
    script.write_text(text)
    script.chmod(0o644)
    process = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "launch.py"),
            secret,
            *sandboxes.as_user(outsider),
            "node" if language == "node" else "bash",
            str(script),
        ],
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work), "WORKSPACE": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ended = threading.Timer(8, os.killpg, (process.pid, signal.SIGKILL))
    ended.start()  # it has the whole host to search, and found the first secret long before
    output = process.communicate()[0]
    ended.cancel()
    found = {
        "received": canaries.leaks(output),
        "listeners": canaries.listeners.breaches(),
        "bystanders": canaries.bystanders.breaches(),
    }
    assert found[attack.trips], f"not noticed: {output[-3000:].decode(errors='replace')}"


def words_pid(canaries):
    return str(canaries.bystanders.pids[-1])


def test_a_changed_host_file_is_noticed(canaries):
    path = pathlib.Path(canaries.files.paths[0])
    path.write_text("changed")
    assert any(str(path) in found for found in canaries.breaches())


def test_a_planted_host_file_is_noticed(canaries):
    (pathlib.Path(canaries.files.paths[1]).parent / "planted").write_text("x")
    assert any("planted" in found for found in canaries.breaches())


def test_changed_ipc_is_noticed(canaries):
    canaries.ipc.view.contents[0] = b"!"
    assert any("shared memory" in found for found in canaries.breaches())
    canaries.ipc.fill()


def test_a_silent_host_is_no_breach(canaries):
    assert canaries.breaches() == []
