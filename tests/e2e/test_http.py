"""Streamable HTTP: form of the answers, statuses, headers, connections, pages, shutdown."""

import base64
import re
import threading
import time

import belljar
import pytest
from belljar import (
    BOTH,
    HANDSHAKE,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    STATELESS,
    UNSUPPORTED_VERSION,
    Http,
    call_tool,
    encode,
    envelope,
    initialize,
    mirror,
    notification,
    request,
    stateless,
)

STREAMABLE = HANDSHAKE[1:]  # 2024-11-05 had another transport, but its clients may come here too
JSON = "application/json"
SSE = "text/event-stream"


def slow(seconds, **meta):
    return stateless("tools/call", call_tool("test_slow", {"seconds": seconds}), **meta)


# --- form of the answer --------------------------------------------------------------------------


def test_an_answer_is_json_when_nothing_precedes_it(http):
    for answer in (
        http.post(stateless("tools/list")),
        http.session().post(request("tools/list")),
    ):
        assert answer.status == 200 and answer.type == JSON
        assert answer.message()["result"]["tools"]
        assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize("revision", [*STREAMABLE, STATELESS])
def test_an_answer_is_a_stream_when_progress_precedes_it(fixture_http, revision):
    call = call_tool("test_tool_with_progress")
    if revision == STATELESS:
        stream = fixture_http.open(stateless("tools/call", call, progressToken="p"))
    else:
        session = fixture_http.session(revision)
        stream = session.open(request("tools/call", {**call, "_meta": {"progressToken": "p"}}))
    with stream:
        assert stream.answer.status == 200 and stream.answer.type == SSE
        assert "no-cache" in stream.answer.headers["cache-control"]
        events = [event for event in stream.events() if event.data]
    methods = [event.json().get("method", "response") for event in events]
    assert methods == ["notifications/progress"] * 3 + ["response"]
    assert all(event.name in (None, "message") for event in events)
    if revision == STATELESS:
        assert not any(event.id or event.retry for event in events)
        assert stream.answer.headers["x-accel-buffering"] == "no"
    else:
        ids = [event.id for event in events]
        assert all(ids) and len(set(ids)) == len(ids)


ACCEPTED = {
    "both": BOTH,
    "both in the other order": "text/event-stream,application/json",
    "anything": "*/*",
    "any subtype": "application/*, text/*",
    "with weights": "text/event-stream;q=0.9, application/json;q=0.8",
    "with spaces and case": " Application/JSON ,\tTEXT/event-stream ",
    "json only": JSON,
    "json with a parameter": "application/json; charset=utf-8",
    "absent": None,
}


@pytest.mark.parametrize("accept", ACCEPTED.values(), ids=ACCEPTED)
def test_a_client_that_takes_json_gets_it(http, accept):
    answer = http.post(stateless("tools/list"), {"Accept": accept})
    assert (answer.status, answer.type) == (200, JSON)


REFUSED_ACCEPT = {
    "neither": "text/html",
    "json refused by weight": "application/json;q=0, text/html",
    "image": "image/*",
    "empty list": ",",
}


@pytest.mark.parametrize("accept", REFUSED_ACCEPT.values(), ids=REFUSED_ACCEPT)
def test_a_client_that_takes_neither_form_is_refused(http, accept):
    assert http.post(stateless("tools/list"), {"Accept": accept}).status == 406
    assert http.post(initialize(), {"Accept": accept}).status == 406


def test_a_client_that_takes_only_streams_gets_one(http):
    answer = http.post(stateless("tools/list"), {"Accept": SSE})
    assert answer.status in (200, 406)
    if answer.status == 200:
        assert answer.type == SSE and answer.message()["result"]["tools"]


def test_a_client_that_takes_only_json_loses_progress_not_the_result(fixture_http):
    call = stateless("tools/call", call_tool("test_tool_with_progress"), progressToken=1)
    answer = fixture_http.post(call, {"Accept": JSON})
    assert (answer.status, answer.type) == (200, JSON)
    assert "result" in answer.message()


@pytest.mark.parametrize("type", [None, "text/plain", "application/x-www-form-urlencoded", "",
                                  "multipart/form-data; boundary=x", "application/jsonp",
                                  "application/json; charset=utf-16", "text/json"])  # fmt: skip
def test_a_body_of_another_type_is_refused(http, type):
    assert http.post(stateless("tools/list"), {"Content-Type": type}).status == 415


@pytest.mark.parametrize("type", ["application/json; charset=utf-8", "Application/JSON",
                                  'application/json;charset="UTF-8"'])  # fmt: skip
def test_a_body_of_the_right_type_may_be_written_in_many_ways(http, type):
    assert http.post(stateless("tools/list"), {"Content-Type": type}).status == 200


# --- statuses of the stateless era ---------------------------------------------------------------


def headers_for(message, **changes):
    """The right headers with some changed; None removes one."""
    return {**mirror(message), **{name.replace("_", "-"): v for name, v in changes.items()}}


CALL = stateless("tools/call", call_tool("test_simple_text"), id="m")

MISMATCHES = {
    "no version": {"MCP_Protocol_Version": None},
    "no method": {"Mcp_Method": None},
    "no name": {"Mcp_Name": None},
    "other version": {"MCP_Protocol_Version": "2025-11-25"},
    "later version": {"MCP_Protocol_Version": "2099-01-01"},
    "other method": {"Mcp_Method": "tools/list"},
    "method in other case": {"Mcp_Method": "Tools/Call"},
    "empty method": {"Mcp_Method": ""},
    "other name": {"Mcp_Name": "test_image_content"},
    "name in other case": {"Mcp_Name": "TEST_SIMPLE_TEXT"},
    "name with a tail": {"Mcp_Name": "test_simple_text2"},
    "name in bad base64": {"Mcp_Name": "=?base64?dGVzdF9zaW1wbGVfdGV4dA=?="},
    "name in base64 of another": {"Mcp_Name": "=?base64?eA==?="},
    "name in upper case base64 marker": {
        "Mcp_Name": "=?BASE64?" + base64.b64encode(b"test_simple_text").decode() + "?="
    },
}


@pytest.mark.parametrize("changes", MISMATCHES.values(), ids=MISMATCHES)
def test_headers_that_disagree_with_the_body_are_refused(fixture_http, changes):
    answer = fixture_http.post(CALL, headers_for(CALL, **changes))
    assert answer.error() == (400, HEADER_MISMATCH)
    assert answer.json()["id"] == "m"


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
def test_a_header_sent_twice_is_refused(fixture_http, name):
    body = encode(CALL)
    head = fixture_http.head("POST", "/mcp", mirror(CALL), len(body))
    twice = b"%s: %s\r\n\r\n" % (name.encode(), mirror(CALL)[name].encode())
    with fixture_http.connect() as conn:
        conn.send(head[:-2] + twice + body)
        assert conn.response().error() == (400, HEADER_MISMATCH)


AGREEMENTS = {
    "names in lower case": lambda h: {name.lower(): value for name, value in h.items()},
    "names in upper case": lambda h: {name.upper(): value for name, value in h.items()},
    "padded values": lambda h: {name: f" \t{value}\t " for name, value in h.items()},
    "name in base64": lambda h: {
        **h, "Mcp-Name": "=?base64?" + base64.b64encode(b"test_simple_text").decode() + "?="
    },
    "a session and an event that mean nothing": lambda h: {
        **h, "Mcp-Session-Id": "no-such-session", "Last-Event-ID": "5"
    },
    "an unknown Mcp-Param": lambda h: {**h, "Mcp-Param-Unknown": "x"},
}  # fmt: skip


@pytest.mark.parametrize("change", AGREEMENTS.values(), ids=AGREEMENTS)
def test_headers_that_agree_may_be_written_in_many_ways(fixture_http, change):
    fields = {"Host": fixture_http.host, "Content-Type": JSON, "Accept": BOTH}
    fields.update(change(mirror(CALL)))
    body = encode(CALL)
    answer = fixture_http.request("POST", "/mcp", fields, body)
    assert answer.status == 200 and "result" in answer.message(), answer
    assert "mcp-session-id" not in answer.headers


def test_statuses_of_refused_stateless_requests(fixture_http):
    post = fixture_http.post
    unknown = stateless("tools/list", id=4, version="v999.0.0")
    answer = post(unknown)
    assert answer.error() == (400, UNSUPPORTED_VERSION)
    assert answer.json()["id"] == 4
    assert answer.json()["error"]["data"] == {"supported": [STATELESS], "requested": "v999.0.0"}
    old = stateless("tools/list", version="2025-11-25")
    assert post(old).error() == (400, UNSUPPORTED_VERSION)
    mixed = post(unknown, headers_for(unknown, MCP_Protocol_Version=STATELESS))
    assert mixed.error() == (400, HEADER_MISMATCH)

    missing = stateless("tools/call", call_tool("test_missing_capability"), id=5)
    assert post(missing).error() == (400, MISSING_CAPABILITY)
    assert post(stateless("no/such", id=6)).error() == (404, METHOD_NOT_FOUND)
    assert post(stateless("ping", id=6)).error() == (404, METHOD_NOT_FOUND)
    unknown_tool = stateless("tools/call", call_tool("no_such"), id=7)
    assert post(unknown_tool).error() == (200, INVALID_PARAMS)


def test_a_missing_envelope_is_named(fixture_http):
    headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "server/discover"}
    for params in (None, {}, {"_meta": {}}, {"_meta": {META + "clientCapabilities": {}}}):
        answer = fixture_http.post(request("server/discover", params, id=8), headers)
        assert answer.error() == (400, INVALID_PARAMS), params
        assert answer.json()["id"] == 8
        assert META + "protocolVersion" in answer.json()["error"]["message"]
    half = request("server/discover", {"_meta": {META + "protocolVersion": STATELESS}}, id=9)
    assert fixture_http.post(half, headers).error() == (400, INVALID_PARAMS)


def test_a_handshake_under_a_stateless_header_is_refused(http):
    answer = http.post(initialize(), {"MCP-Protocol-Version": STATELESS})
    assert answer.error() == (400, HEADER_MISMATCH)


def test_a_handshake_may_carry_its_own_version_header(http):
    for revision in HANDSHAKE:
        answer = http.post(initialize(revision), {"MCP-Protocol-Version": revision})
        assert answer.status == 200
        assert answer.message()["result"]["protocolVersion"] == revision


def test_stateless_notifications_are_accepted_and_forgotten(http):
    for message, headers in (
        (notification("notifications/cancelled", {"requestId": 1, "_meta": envelope()}), {}),
        (notification("notifications/x", {"_meta": envelope()}), {"Mcp-Method": None}),
        (notification("notifications/x"), {"MCP-Protocol-Version": STATELESS}),
    ):
        answer = http.post(message, headers)
        assert (answer.status, answer.body) == (202, b""), message


def test_bodies_that_are_no_message_are_refused(http):
    for body, code in (
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"\xff", PARSE_ERROR),
        (b"5", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (encode([stateless("tools/list")]), INVALID_REQUEST),
    ):
        answer = http.post(body)
        assert answer.error() == (400, code), body
        assert answer.json().get("id") is None


PARAM_CASES = {
    "equal": ({"region": "eu"}, {"Region": "eu"}, True),
    "base64": ({"region": "eu"}, {"Region": "=?base64?ZXU=?="}, True),
    "unicode": (
        {"region": "é"}, {"Region": "=?base64?" + base64.b64encode("é".encode()).decode() + "?="},
        True,
    ),
    "literal with only the beginning of a marker": (
        {"region": "=?base64?ZXU="}, {"Region": "=?base64?ZXU="}, True,
    ),
    "integer written as a real": ({"region": "eu", "priority": 42},
                                  {"Region": "eu", "Priority": "42.0"}, True),
    "boolean": ({"region": "eu", "urgent": True}, {"Region": "eu", "Urgent": "true"}, True),
    "unknown header": ({"region": "eu"}, {"Region": "eu", "Other": "1"}, True),
    "absent": ({"region": "eu"}, {}, False),
    "different": ({"region": "eu"}, {"Region": "us"}, False),
    "bad padding": ({"region": "Hello"}, {"Region": "=?base64?SGVsbG8?="}, False),
    "foreign characters": ({"region": "Hello"}, {"Region": "=?base64?SGVs!!!bG8=?="}, False),
    "base64 of no text": ({"region": "eu"}, {"Region": "=?base64?/w==?="}, False),
    "other integer": ({"region": "eu", "priority": 42}, {"Region": "eu", "Priority": "43"}, False),
    "other boolean": ({"region": "eu", "urgent": True}, {"Region": "eu", "Urgent": "True"}, False),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "headers", "good"), PARAM_CASES.values(), ids=PARAM_CASES)
def test_mirrored_arguments_agree_with_their_headers(fixture_http, arguments, headers, good):
    message = stateless("tools/call", call_tool("test_mirrored_headers", arguments))
    answer = fixture_http.post(message, {f"Mcp-Param-{k}": v for k, v in headers.items()})
    if good:
        assert answer.status == 200 and "isError" not in answer.message()["result"], answer
    else:
        assert answer.error() == (400, HEADER_MISMATCH)


# --- connections ---------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(http):
    body = encode(stateless("tools/list"))
    one = http.head("POST", "/mcp", mirror(stateless("tools/list")), len(body)) + body
    with http.connect() as conn:
        for _ in range(50):
            conn.send(one)
            assert conn.response().status == 200


def test_pipelined_requests_are_answered_in_order(fixture_http):
    data = b""
    for message in (
        slow(0.2, id="slow"),
        stateless("tools/list", id="a"),
        stateless("no/such", id="b"),
        stateless("prompts/list", id="c"),
    ):
        body = encode(message)
        data += fixture_http.head("POST", "/mcp", mirror(message), len(body)) + body
    with fixture_http.connect() as conn:
        conn.send(data)
        assert [conn.response().json()["id"] for _ in range(4)] == ["slow", "a", "b", "c"]


def test_a_chunked_body_is_read(http):
    message = stateless("tools/list")
    body = encode(message)
    headers = {**mirror(message), "Transfer-Encoding": "chunked"}
    with http.connect() as conn:
        conn.send(http.head("POST", "/mcp", headers))
        for i in range(0, len(body), 7):
            part = body[i : i + 7]
            conn.send(b"%x\r\n%s\r\n" % (len(part), part))
        conn.send(b"0\r\n\r\n")
        assert conn.response().message()["result"]["tools"]
        conn.send(http.head("GET", "/healthz"))
        assert conn.response("GET").status == 200


def test_a_client_may_wait_for_leave_to_send_its_body(http):
    message = stateless("tools/list")
    body = encode(message)
    headers = {**mirror(message), "Expect": "100-continue"}
    with http.connect() as conn:
        conn.send(http.head("POST", "/mcp", headers, len(body)))
        assert conn._until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        conn.send(body)
        assert conn.response().status == 200


def test_leave_is_not_given_for_a_body_that_is_too_large(http):
    headers = {**mirror(stateless("tools/list")), "Expect": "100-continue"}
    with http.connect() as conn:
        conn.send(http.head("POST", "/mcp", headers, 1 << 40))
        assert conn._until(b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_connection_close_is_honoured(http):
    message = stateless("tools/list")
    body = encode(message)
    with http.connect() as conn:
        headers = {**mirror(message), "Connection": "close"}
        conn.send(http.head("POST", "/mcp", headers, len(body)) + body)
        answer = conn.response()
        assert answer.status == 200 and answer.headers["connection"] == "close"
        assert conn.is_closed()


def test_http_1_0_is_served_and_closed(http):
    with http.connect() as conn:
        conn.send(b"GET /healthz HTTP/1.0\r\nHost: %s\r\n\r\n" % http.host.encode())
        assert conn.response("GET").status == 200
        assert conn.is_closed()


# --- beside MCP ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_told(http, path):
    assert http.request("GET", path).status == 200
    assert http.request("HEAD", path).status == 200
    refused = http.request("POST", path, body=b"{}")
    assert refused.status == 405 and refused.headers["allow"] == "GET, HEAD"
    assert http.request("GET", path, {"Host": "evil.example.com"}).status == 403


SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"  # name
    r'(\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'  # first label
    r'(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*\})?'
    r" (NaN|[+-]?Inf|[+-]?[0-9.]+(?:e[+-]?\d+)?)"
)


def test_metrics_are_valid_prometheus_text(http):
    http.modern("tools/list")
    answer = http.request("GET", "/metrics")
    assert answer.status == 200
    assert re.match(r"text/plain; version=0\.0\.4", answer.headers["content-type"])
    text = answer.body.decode()
    assert text.endswith("\n")
    types, seen = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped")
            assert name not in types and name not in seen, f"type of {name} told late or twice"
            types[name] = kind
        elif line.startswith("# HELP "):
            assert len(line.split(" ", 3)) == 4
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, f"not a sample: {line!r}"
            assert (sample[1], sample[2]) not in seen, f"twice: {line!r}"
            seen.add((sample[1], sample[2]))
            base = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            assert sample[1] in types or base in types, f"no type for {line!r}"
            if types.get(sample[1]) == "counter":
                assert sample[1].endswith("_total") and float(sample[3]) >= 0
    assert types


def metrics(http):
    text = http.request("GET", "/metrics").body.decode()
    return {m[1] + (m[2] or ""): float(m[3]) for m in map(SAMPLE.fullmatch, text.splitlines()) if m}


def test_metrics_count_requests(http):
    before = metrics(http)
    for _ in range(5):
        http.modern("tools/list")
    after = metrics(http)
    grown = [
        name
        for name in after
        if "requests_total" in name and after[name] >= before.get(name, 0) + 5
    ]
    assert grown, (before, after)


@pytest.mark.parametrize("path", ["/", "/mcp/no-such-profile", "/mcpx", "/../mcp", "/%6dcp",
                                  "//mcp", "/mcp/../healthz", "/favicon.ico"])  # fmt: skip
def test_other_paths_are_not_found(http, path):
    assert http.post(stateless("tools/list"), path=path).status == 404
    assert http.request("GET", path).status == 404


def test_a_query_does_not_change_the_path(http):
    assert http.request("GET", "/healthz?x=1").status == 200
    assert http.post(stateless("tools/list"), path="/mcp?token=x").status == 200


# --- shutdown ------------------------------------------------------------------------------------


def test_sigterm_lets_a_running_call_finish(serve):
    server = serve(Http, binary=belljar.FIXTURE)
    answers = []
    caller = threading.Thread(target=lambda: answers.append(server.post(slow(0.7))))
    caller.start()
    time.sleep(0.2)
    server.terminate()
    caller.join()
    assert answers[0].message()["result"]["content"]
    server.finish()


def test_sigterm_ends_idle_connections_and_standing_streams_at_once(serve):
    server = serve(Http, binary=belljar.FIXTURE)
    idle = [server.connect() for _ in range(5)]
    session = server.session("2025-06-18")
    standing = session.open_get()
    begin = time.monotonic()
    server.terminate()
    assert standing.event() is None
    standing.close()
    server.finish()
    assert time.monotonic() - begin < 1.5 * belljar.PATIENCE
    assert all(conn.is_closed() for conn in idle)


def test_the_real_server_ends_cleanly_with_clients_connected(serve):
    server = serve(Http)
    conns = [server.connect() for _ in range(20)]
    server.session()
    server.stop()
    assert all(conn.is_closed() for conn in conns)
