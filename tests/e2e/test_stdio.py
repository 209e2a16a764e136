"""stdio: one message a line, nothing else on stdout, every request answered once, a clean end."""

import json
import signal
import subprocess
import threading
import time
from subprocess import PIPE

import belljar
import pytest
from belljar import (
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    NEWEST,
    PARSE_ERROR,
    STATELESS,
    UNSUPPORTED_VERSION,
    RpcError,
    Stdio,
    call_tool,
    encode,
    envelope,
    initialize,
    notification,
    request,
    same_id,
    stateless,
)

# --- negotiation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_known_revision_is_agreed_to(stdio, revision):
    result = stdio.initialize(revision)
    assert result["protocolVersion"] == revision
    assert result["serverInfo"]["name"] == "belljar" and result["serverInfo"]["version"]
    assert isinstance(result["capabilities"]["tools"], dict)
    assert stdio.call("tools/list")["tools"]


@pytest.mark.parametrize("revision", [STATELESS, "2099-01-01", "1.0", "", "2025-11-25 "])
def test_another_revision_gets_the_newest_of_the_handshake_era(stdio, revision):
    assert stdio.initialize(revision)["protocolVersion"] == NEWEST


def test_a_second_handshake_replaces_the_first(stdio):
    assert stdio.initialize("2024-11-05")["protocolVersion"] == "2024-11-05"
    assert stdio.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"


def test_ping_is_answered_before_the_handshake(stdio):
    assert stdio.call("ping") == {}


def test_a_request_without_claim_before_the_handshake_names_what_is_missing(stdio):
    with pytest.raises(RpcError) as refused:
        stdio.call("tools/list")
    assert refused.value.code == INVALID_PARAMS
    assert META + "protocolVersion" in refused.value.message
    stdio.initialize()
    assert stdio.call("tools/list")["tools"]


def test_a_stateless_request_may_come_first(stdio):
    result = stdio.modern("tools/list")
    assert result["tools"] and result["resultType"] == "complete"


def test_both_eras_share_one_process(stdio):
    stdio.initialize("2025-06-18")
    for _ in range(3):
        assert "resultType" not in stdio.call("tools/list")
        assert stdio.modern("tools/list")["resultType"] == "complete"
        assert stdio.modern("server/discover")["supportedVersions"] == [STATELESS]
    with pytest.raises(RpcError) as refused:  # a session lends nothing to a stateless request
        stdio.modern("ping")
    assert refused.value.code == METHOD_NOT_FOUND
    assert stdio.call("ping") == {}


def test_initialize_with_a_claim_is_an_unknown_method(stdio):
    message = initialize()
    message["params"]["_meta"] = envelope()
    assert stdio.ask(message)["error"]["code"] == METHOD_NOT_FOUND


def test_discover_tells_what_a_client_needs(stdio):
    result = stdio.modern("server/discover")
    assert result["supportedVersions"] == [STATELESS]
    assert isinstance(result["capabilities"]["tools"], dict)
    assert result["_meta"][META + "serverInfo"]["name"] == "belljar"
    assert isinstance(result["ttlMs"], int) and result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    assert "serverInfo" not in result


@pytest.mark.parametrize("version", ["2025-11-25", "2099-01-01", "v999.0.0", ""])
def test_a_revision_not_served_is_refused_with_those_that_are(stdio, version):
    with pytest.raises(RpcError) as refused:
        stdio.modern("tools/list", version=version)
    assert refused.value.code == UNSUPPORTED_VERSION
    assert refused.value.data == {"supported": [STATELESS], "requested": version}


BAD_ENVELOPES = {
    "version is a number": {"protocolVersion": 20260728},
    "version is null": {"protocolVersion": None},
    "capabilities missing": {"clientCapabilities": ...},
    "capabilities are a list": {"clientCapabilities": []},
    "capabilities are true": {"clientCapabilities": True},
    "client info is a string": {"clientInfo": "me"},
    "client info without version": {"clientInfo": {"name": "me"}},
    "log level unknown": {"logLevel": "loud"},
    "log level is a number": {"logLevel": 3},
}


@pytest.mark.parametrize("change", BAD_ENVELOPES.values(), ids=BAD_ENVELOPES)
def test_a_bad_envelope_is_refused_by_the_name_of_its_key(stdio, change):
    message = stateless("tools/list")
    for key, value in change.items():
        message["params"]["_meta"][META + key] = value
        if value is ...:
            del message["params"]["_meta"][META + key]
    error = stdio.ask(message)["error"]
    assert error["code"] == INVALID_PARAMS
    assert next(iter(change)) in error["message"], error


def test_client_info_is_optional(stdio):
    message = stateless("tools/list")
    del message["params"]["_meta"][META + "clientInfo"]
    assert "result" in stdio.ask(message)


# --- ids -----------------------------------------------------------------------------------------

GOOD_IDS = [
    0,
    1,
    -1,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    "",
    "0",
    "x",
    "é漢字🎉",
    'a"b\\c\n\t',
    "\0",
    "a" * 1000,
]


@pytest.mark.parametrize("id", GOOD_IDS, ids=lambda id: ascii(id)[:20])
def test_an_id_comes_back_exactly(stdio, id):
    for message in (request("ping", id=id), stateless("tools/list", id=id), request("x/y", id=id)):
        stdio.send(message)
        reply = stdio.recv()
        assert same_id(reply["id"], id), f"sent {id!r}, got {reply['id']!r}"


@pytest.mark.parametrize(
    "text", ["null", "1.5", "1.0", "1e3", "true", "{}", "[]", "[1]", str(2**63)]
)
def test_an_id_of_another_type_is_refused_without_id(stdio, text):
    stdio.send(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % text.encode())
    reply = stdio.recv()
    assert reply["error"]["code"] in (INVALID_REQUEST, PARSE_ERROR)
    assert "id" not in reply
    assert stdio.call("ping") == {}


def test_an_id_in_use_is_refused_and_the_first_request_still_answered(fixture_stdio):
    fixture_stdio.initialize()
    slow = request("tools/call", call_tool("test_slow", {"seconds": 0.3}), id=7)
    fixture_stdio.send(slow)
    fixture_stdio.send(slow)
    first, second = fixture_stdio.recv(), fixture_stdio.recv()
    assert first["id"] == second["id"] == 7
    assert first["error"]["code"] == INVALID_REQUEST
    assert "result" in second
    assert "result" in fixture_stdio.ask(slow)  # free again


def test_the_same_number_as_text_is_another_id(fixture_stdio):
    fixture_stdio.initialize()
    slow = call_tool("test_slow", {"seconds": 0.2})
    fixture_stdio.send(request("tools/call", slow, id=7))
    fixture_stdio.send(request("tools/call", slow, id="7"))
    replies = [fixture_stdio.recv(), fixture_stdio.recv()]
    assert all("result" in reply for reply in replies)
    assert {repr(reply["id"]) for reply in replies} == {"7", "'7'"}


# --- notifications, responses, batches -----------------------------------------------------------

UNANSWERED = {
    "unknown notification": notification("notifications/unknown"),
    "request without id": notification("tools/list"),
    "unknown method without id": notification("no/such"),
    "call without id": notification("tools/call", call_tool("execute_code", {"code": "1"})),
    "initialize without id": notification("initialize"),
    "cancel of nothing": notification("notifications/cancelled", {"requestId": 12345}),
    "cancel without id": notification("notifications/cancelled", {}),
    "cancel of an object": notification("notifications/cancelled", {"requestId": {}}),
    "cancel without params": notification("notifications/cancelled"),
    "progress for nothing": notification("notifications/progress", {"progressToken": 1}),
    "stateless notification": notification("notifications/x", {"_meta": envelope()}),
    "stateless with a bad envelope": notification(
        "notifications/x", {"_meta": {META + "protocolVersion": 1}}
    ),
    "response to nothing": {"jsonrpc": "2.0", "id": 99, "result": {}},
    "error to nothing": {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}},
}


@pytest.mark.parametrize("message", UNANSWERED.values(), ids=UNANSWERED)
def test_what_is_not_a_request_is_never_answered(stdio, message):
    stdio.initialize()
    stdio.send(message)
    stdio.send(request("ping", id="after"))
    assert stdio.recv() == {"jsonrpc": "2.0", "id": "after", "result": {}}
    stdio.quiet()


def test_batches_belong_to_2025_03_26(stdio):
    stdio.initialize("2025-03-26")
    stdio.send(
        [
            request("ping", id="a"),
            notification("x/y"),
            request("tools/list", id="b"),
            request("?", id="c"),
        ]
    )
    replies = {reply["id"]: reply for reply in stdio.recv()}
    assert set(replies) == {"a", "b", "c"}
    assert replies["a"]["result"] == {} and replies["b"]["result"]["tools"]
    assert replies["c"]["error"]["code"] == METHOD_NOT_FOUND


def test_a_batch_without_requests_is_not_answered(stdio):
    stdio.initialize("2025-03-26")
    stdio.send([notification("x/y"), {"jsonrpc": "2.0", "id": 5, "result": {}}])
    assert stdio.call("ping") == {}
    stdio.quiet()


@pytest.mark.parametrize("revision", [r for r in HANDSHAKE if r != "2025-03-26"] + [None])
def test_a_batch_elsewhere_is_refused(stdio, revision):
    if revision:
        stdio.initialize(revision)
    stdio.send([request("ping")])
    reply = stdio.recv()
    assert reply["error"]["code"] == INVALID_REQUEST and "id" not in reply
    assert stdio.call("ping") == {}


BAD_BATCHES = {
    "empty": [],
    "with a stateless request": [stateless("tools/list")],
    "in a batch": [[request("ping")]],
    "too many": [request("ping", id=i) for i in range(5000)],
}


@pytest.mark.parametrize("batch", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_is_refused(stdio, batch):
    stdio.initialize("2025-03-26")
    stdio.send(batch)
    reply = stdio.recv()
    for one in reply if isinstance(reply, list) else [reply]:
        assert one["error"]["code"] == INVALID_REQUEST, one
    assert stdio.call("ping") == {}
    stdio.quiet()


def test_initialize_inside_a_batch_is_refused(stdio):
    stdio.initialize("2025-03-26")
    stdio.send([initialize("2025-11-25", id=50)])
    reply = stdio.recv()
    reply = reply[0] if isinstance(reply, list) else reply
    assert reply["error"]["code"] == INVALID_REQUEST
    stdio.send([request("ping", id=51)])  # still 2025-03-26
    assert stdio.recv() == [{"jsonrpc": "2.0", "id": 51, "result": {}}]


# --- framing -------------------------------------------------------------------------------------


def test_lines_may_end_with_cr_lf_and_be_empty(stdio):
    stdio.send_bytes(b"\n\r\n" + encode(request("ping", id=1)) + b"\r\n\n")
    assert stdio.recv()["id"] == 1
    stdio.quiet()


def test_a_message_may_arrive_byte_by_byte(stdio):
    for byte in encode(request("ping", id="slow")) + b"\n":
        stdio.send_bytes(bytes([byte]))
    assert stdio.recv()["id"] == "slow"


def test_a_thousand_requests_in_one_write_are_each_answered_once(stdio):
    stdio.initialize()
    stdio.send_bytes(b"".join(encode(request("ping", id=i)) + b"\n" for i in range(1000)))
    assert sorted(stdio.recv()["id"] for _ in range(1000)) == list(range(1000))
    stdio.quiet()


def test_a_client_that_does_not_read_for_a_while_loses_nothing():
    count = 1000
    talk = encode(initialize()) + b"\n"
    talk += b"".join(encode(request("tools/list", id=i)) + b"\n" for i in range(1, count))
    with subprocess.Popen([belljar.BIN, "serve", "--stdio"], stdin=PIPE, stdout=PIPE) as server:
        writer = threading.Thread(target=server.stdin.write, args=[talk])
        writer.start()
        time.sleep(0.3)  # the pipe is full now, and the server must wait
        assert server.poll() is None
        ids = [json.loads(server.stdout.readline())["id"] for _ in range(count)]
        writer.join()
        server.stdin.close()
        assert sorted(ids) == list(range(count))
        assert server.wait(5 * belljar.PATIENCE) == 0


def test_members_may_come_in_any_order(stdio):
    stdio.send(b'{"method":"ping","params":{},"id":3,"jsonrpc":"2.0"}')
    assert stdio.recv() == {"jsonrpc": "2.0", "id": 3, "result": {}}


def test_text_that_is_not_json_is_a_parse_error_without_id(stdio):
    stdio.send(b"hello")
    reply = stdio.recv()
    assert reply["error"]["code"] == PARSE_ERROR and "id" not in reply
    assert stdio.call("ping") == {}


# --- time ----------------------------------------------------------------------------------------


def test_a_slow_call_does_not_delay_another(fixture_stdio):
    fixture_stdio.initialize()
    fixture_stdio.send(request("tools/call", call_tool("test_slow", {"seconds": 1}), id="slow"))
    begin = time.monotonic()
    for _ in range(20):
        assert fixture_stdio.call("ping") == {}
    assert time.monotonic() - begin < 0.5 * belljar.PATIENCE
    assert "result" in fixture_stdio.reply("slow")


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_cancelled_call_is_not_answered(fixture_stdio, era):
    meta = {"_meta": envelope()} if era == "stateless" else {}
    fixture_stdio.initialize()
    before = int(
        fixture_stdio.call("tools/call", call_tool("test_cancel_count"))["content"][0]["text"]
    )
    fixture_stdio.send(
        request("tools/call", {**call_tool("test_slow", {"seconds": 0.5}), **meta}, id="slow")
    )
    fixture_stdio.send(
        notification("notifications/cancelled", {"requestId": "slow", "reason": "enough", **meta})
    )
    after = fixture_stdio.call("tools/call", call_tool("test_cancel_count"))
    assert int(after["content"][0]["text"]) == before + 1  # the work has stopped, too
    fixture_stdio.quiet(0.7)


def test_cancelling_twice_or_late_changes_nothing(fixture_stdio):
    fixture_stdio.initialize()
    cancel = notification("notifications/cancelled", {"requestId": 5})
    assert "result" in fixture_stdio.ask(request("tools/call", call_tool("test_simple_text"), id=5))
    fixture_stdio.send(cancel)
    fixture_stdio.send(request("tools/call", call_tool("test_slow", {"seconds": 0.2}), id=5))
    fixture_stdio.send(cancel)
    fixture_stdio.send(cancel)
    assert fixture_stdio.call("ping") == {}
    fixture_stdio.quiet(0.4)


def test_initialize_cannot_be_cancelled(stdio):
    stdio.send(initialize(id=0))
    stdio.send(notification("notifications/cancelled", {"requestId": 0}))
    assert stdio.recv()["result"]["protocolVersion"] == NEWEST


# --- the end -------------------------------------------------------------------------------------


def test_end_of_input_ends_the_server_even_with_a_call_running(serve):
    server = serve(Stdio, binary=belljar.FIXTURE)
    server.initialize()
    server.send(request("tools/call", call_tool("test_slow", {"seconds": 60}), id=1))
    server.call("ping")
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 2 * belljar.PATIENCE


def test_what_was_asked_before_the_end_of_input_is_answered(serve):
    server = serve(Stdio)
    server.send(initialize())
    for i in range(1, 101):
        server.send(request("tools/list", id=i))
    server.close_input()
    assert [server.recv()["id"] for _ in range(101)] == list(range(101))
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(serve, number):
    server = serve(Stdio)
    server.initialize()
    server.process.send_signal(number)
    server.finish()


def test_input_that_ends_at_once_is_a_clean_end(serve):
    serve(Stdio).stop()


def test_a_client_that_stops_reading_for_good_ends_the_server_cleanly(serve):
    server = serve(Stdio, read=False)
    server.send(initialize())
    assert server.process.stdout.readline()
    server.process.stdout.close()
    try:
        for i in range(1, 2000):
            server.send(request("tools/list", id=i))
    except BrokenPipeError:
        pass
    server.stop()


def test_nothing_but_protocol_reaches_stdout():
    talk = encode(initialize()) + b"\nnot json\n" + encode(request("tools/list")) + b"\n"
    done = subprocess.run(
        [belljar.BIN, "serve", "--stdio", "--log-level", "debug"],
        input=talk, capture_output=True, timeout=10 * belljar.PATIENCE, check=True,
    )  # fmt: skip
    messages = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(messages) == 3 and all(message["jsonrpc"] == "2.0" for message in messages)
    assert done.stdout.endswith(b"\n")
