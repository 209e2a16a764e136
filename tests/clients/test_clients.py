"""Each client does with each server, over each transport and in each era, what it can do.

What each should see is in WANTED. The Inspector, which cannot do everything (no progress, no
answers to questions), is held to what it tells.
"""

import os
import subprocess
import time

import pytest
from clients import CLIENTS, STATELESS, Inspector

WANTED = {
    "text": "This is a simple text response for testing.",
    "mixed": "Multiple content types test:\nimage\nresource",
    "failed": True,
    "mirrored": 'Called with: {"region":"Zürich","priority":7}',
    "resource": "This is the content of the static text resource.",
    "template": "7",
    "completion": ["paris", "park", "party"],
    "progress": [0, 50, 100],
    "cancelled": {"outcome": "gave up", "noticed": 1},
    "updated": "test://watched-resource",
}

CASES = [
    pytest.param(client, mode, revision, transport, id=f"{client.name}-{mode}-{transport}")
    for client in CLIENTS
    for mode, revision in client.modes.items()
    for transport in ("stdio", "http")
]


def observe(client, mode, transport, server, target, spoken):
    config = {"mode": mode, "transport": transport, "server": server}
    observed = client.observe({**config, **target(server, transport)})
    # The server's own word where it gives it, else what the client thinks.
    revision = observed.get("seen", observed)["revision"]
    spoken.setdefault((client.name, mode), {})[server, transport] = revision
    return observed


@pytest.mark.parametrize("client, mode, revision, transport", CASES)
def test_all_of_the_protocol(client, mode, revision, transport, target, spoken):
    observed = observe(client, mode, transport, "fixture", target, spoken)

    assert observed["revision"] == revision
    assert observed["seen"] == {"revision": revision, "stateless": revision >= STATELESS}
    assert "test_simple_text" in observed["tools"]
    assert "test_trigger_tool_change" not in observed["tools"], "hidden"
    assert observed["prompt"] in (
        "This is a simple prompt for testing.",
        "Prompt with arguments: arg1='a', arg2='b'",
    )
    wanted = {key: value for key, value in WANTED.items() if key in observed}
    if not isinstance(client, Inspector):
        assert wanted == WANTED, "the client has not told everything"
        assert "Ann" in observed["asked"]
    assert {key: observed[key] for key in wanted} == wanted


@pytest.mark.parametrize("client, mode, revision, transport", CASES)
def test_the_real_program(client, mode, revision, transport, target, spoken):
    observed = observe(client, mode, transport, "belljar", target, spoken)

    assert observed["revision"] == revision
    assert "execute_code" in observed["tools"]
    assert observed["failed"] is False
    assert observed["text"].startswith("2\n")
    if not isinstance(client, Inspector):  # each of its commands is a client of its own
        assert observed["listed"] and observed["updated"]
        assert observed["file"] == ["made", "mademore\n"]
        assert observed["prompt"].endswith("Say hello.\n")


def test_an_interrupted_inspector_cancels_its_call(target, fixture_count, tmp_path):
    """Its user presses Ctrl-C: the connection ends, and in the stateless era the call with it."""
    config = {"mode": "auto", "transport": "http", **target("fixture", "http")}
    call = ["tools/call", "--tool-name", "test_slow", "--tool-args-json", '{"seconds": 30}']
    cancelled = fixture_count("test_cancel_count")
    inspector = subprocess.Popen(
        Inspector({}).argv(config, *call),
        stdout=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    until(lambda: fixture_count("test_running_count") == 1)
    inspector.terminate()
    inspector.wait()
    until(lambda: fixture_count("test_running_count") == 0)
    assert fixture_count("test_cancel_count") == cancelled + 1


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
