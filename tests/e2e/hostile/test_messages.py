"""Hostile messages, each over stdio and over HTTP: the proper refusal, and nothing else happens.

A case is a name, the bytes of a message (or a function that makes them, for large ones), and the
outcomes that are right: error codes, OK for a result, SILENT for no answer at all.
"""

import itertools
import json
import time

import belljar
import pytest
from belljar import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PATIENCE,
    call_tool,
    encode,
    envelope,
    notification,
    request,
    stateless,
)

OK = 0
SILENT = None
MILLION = 1_000_000
REPLY_MAX = 64 << 10  # an error does not send a large request back

CASES = {}


def case(name, payload, *outcomes):
    assert name not in CASES
    CASES[name] = (payload, set(outcomes))


def ping(member, value):
    """A ping with one more member, written by hand: json.dumps() would not let us."""
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","%s":%s}' % (member, value)


def tool(arguments):
    return encode(request("tools/call", call_tool("execute_code", arguments)))


# --- text that is not JSON -----------------------------------------------------------------------

for text in (
    b"hello", b"{", b"}", b"[", b"]", b'"', b'"abc', b"{]", b"[}", b'{"jsonrpc"', b'{"jsonrpc":',
    b'{"jsonrpc":"2.0"', b'{"jsonrpc":"2.0",', b"{,}", b"[,]", b"[1,]", b'{"a":1,}', b'{"a" 1}',
    b"{a:1}", b"{'a':1}", b"{1:1}", b"{} x", b"{}{}", b"{}//x", b"/*x*/{}", b"nul", b"True",
    b"undefined", b"NaN", b"Infinity", b"-Infinity", b"[01]", b"[+1]", b"[.5]", b"[1.]", b"[1e]",
    b"[-]", b"[0x10]", b"[1_000]", b'["\\x41"]', b'["\\u12"]', b'["\\"]', b"\x0c{}", b"\xa0{}",
):  # fmt: skip
    case(f"not JSON: {text.decode('latin-1')!r}", text, PARSE_ERROR)

for name, text in {
    "stray byte": b"\xff",
    "Latin-1": b"caf\xe9",
    "overlong slash": b"\xc0\xaf",
    "overlong NUL": b"\xc0\x80",
    "encoded surrogate": b"\xed\xa0\x80",
    "above U+10FFFF": b"\xf4\x90\x80\x80",
    "cut sequence": b"\xe2\x82",
    "lone continuation": b"\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
}.items():
    case(f"invalid UTF-8 in a value: {name}", ping(b"x", b'"%s"' % text), PARSE_ERROR)
    case(f"invalid UTF-8 in a key: {name}", ping(text, b"1"), PARSE_ERROR)

case("NUL byte before the message", b"\0" + encode(request("ping")), PARSE_ERROR)
case("NUL byte after the message", encode(request("ping")) + b"\0", PARSE_ERROR)
case("NUL byte in a string", ping(b"x", b'"a\0b"'), PARSE_ERROR)
case("NUL byte in a key", ping(b"x\0y", b"1"), PARSE_ERROR)
case("NUL byte between tokens", b'{"jsonrpc":\0"2.0","id":1,"method":"ping"}', PARSE_ERROR)
case("nothing but NUL bytes", b"\0" * 1000, PARSE_ERROR)
case("control character in a string", ping(b"x", b'"a\x01b"'), PARSE_ERROR)
case("tab in a string", ping(b"x", b'"a\tb"'), PARSE_ERROR)
case("carriage return in a string", ping(b"x", b'"a\rb"'), PARSE_ERROR)
case("byte order mark", b"\xef\xbb\xbf" + encode(request("ping")), PARSE_ERROR, OK)
case("UTF-16", json.dumps(request("ping")).encode("utf-16-be"), PARSE_ERROR)
case("UTF-16 with mark", json.dumps(request("ping")).encode("utf-16"), PARSE_ERROR)
case("UTF-32", json.dumps(request("ping")).encode("utf-32-be"), PARSE_ERROR)

for name, text in {
    "high": rb"\ud800",
    "low": rb"\udc00",
    "reversed": rb"\udc00\ud800",
    "high and letter": rb"\ud800x",
    "two high": rb"\ud800\ud800",
}.items():
    case(f"lone surrogate in a value: {name}", ping(b"x", b'"%s"' % text), PARSE_ERROR, OK)
    case(f"lone surrogate as id: {name}",
         b'{"jsonrpc":"2.0","id":"%s","method":"ping"}' % text, PARSE_ERROR, INVALID_REQUEST)  # fmt: skip
case("lone surrogate in code", tool({}).replace(b"{}", rb'{"code":"\ud800"}'), PARSE_ERROR, OK)

# --- too much ------------------------------------------------------------------------------------

TOO_MUCH = (PARSE_ERROR, INVALID_REQUEST)
case("arrays 100,000 deep", b"[" * 100_000 + b"]" * 100_000, *TOO_MUCH)
case("arrays 100,000 deep, never closed", b"[" * 100_000, *TOO_MUCH)
case("objects 100,000 deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, *TOO_MUCH)
case("params 100,000 deep", ping(b"params", b'{"a":' * 100_000 + b"1" + b"}" * 100_000), *TOO_MUCH)
case("code 100,000 deep", tool({}).replace(b"{}", b'{"code":%s1%s}' % (b"[" * 100_000, b"]" * 100_000)), *TOO_MUCH)  # fmt: skip
case("a million deep", lambda: b"[" * MILLION + b"]" * MILLION, *TOO_MUCH)
case("integer of 1,000,000 digits", lambda: ping(b"x", b"9" * MILLION), *TOO_MUCH)
case("negative integer of 1,000,000 digits", lambda: ping(b"x", b"-" + b"9" * MILLION), *TOO_MUCH)
case("fraction of 1,000,000 digits", lambda: ping(b"x", b"0." + b"3" * MILLION), *TOO_MUCH)
case("exponent of 1,000,000 digits", lambda: ping(b"x", b"1e" + b"9" * MILLION), *TOO_MUCH)
case(
    "negative exponent of 1,000,000 digits", lambda: ping(b"x", b"1e-" + b"9" * MILLION), *TOO_MUCH
)
case("id of 1,000,000 digits", lambda: b'{"jsonrpc":"2.0","method":"ping","id":%s}' % (b"9" * MILLION), *TOO_MUCH)  # fmt: skip
case("number beyond double", ping(b"x", b"1e400"), *TOO_MUCH)
case("number below double", ping(b"x", b"-1e400"), *TOO_MUCH)
case("integer beyond 64 bits", ping(b"x", b"18446744073709551616"), OK, *TOO_MUCH)
case("1,000,000 keys", lambda: ping(b"params", b"{%s}" % b",".join(b'"%d":0' % i for i in range(MILLION))), *TOO_MUCH)  # fmt: skip
case("1,000,000 times the same key", lambda: ping(b"params", b"{%s}" % b",".join([b'"k":0'] * MILLION)), *TOO_MUCH)  # fmt: skip
case("2,000,000 numbers", lambda: ping(b"x", b"[" + b"0," * (2 * MILLION) + b"0]"), *TOO_MUCH)
case(
    "2,000,000 empty objects", lambda: ping(b"x", b"[" + b"{}," * (2 * MILLION) + b"{}]"), *TOO_MUCH
)
case("2,000,000 empty arrays", lambda: b"[" + b"[]," * (2 * MILLION) + b"[]]", *TOO_MUCH)
case(
    "method of 5 MB", lambda: encode(request("m" * 5 * MILLION)), METHOD_NOT_FOUND, INVALID_REQUEST
)
case("key of 5 MB", lambda: ping(b"k" * 5 * MILLION, b"1"), OK, *TOO_MUCH)
case("string of 5 MB", lambda: ping(b"x", b'"%s"' % (b"s" * 5 * MILLION)), OK, *TOO_MUCH)
case("1,000,000 escapes", lambda: ping(b"x", b'"%s"' % (rb"\u0041" * MILLION)), OK, *TOO_MUCH)
case("5 MB of spaces", lambda: b" " * 5 * MILLION + encode(request("ping")), OK, *TOO_MUCH)

# --- keys twice: two readers could disagree ------------------------------------------------------

for member, value in {b"id": b"2", b"method": b'"x"', b"jsonrpc": b'"2.0"'}.items():
    case(f"{member.decode()} twice", ping(member, value), PARSE_ERROR, INVALID_REQUEST)
case("id twice, once escaped", ping(rb"\u0069d", b"2"), PARSE_ERROR, INVALID_REQUEST)
case("name twice", tool({}).replace(b'"name"', b'"name":"x","name"'), PARSE_ERROR, INVALID_REQUEST)
case("argument twice", tool({}).replace(b"{}", b'{"code":"1","code":"2"}'), PARSE_ERROR, INVALID_REQUEST)  # fmt: skip
case("key twice far inside", ping(b"x", b'[{"a":[{"b":1,"b":1}]}]'), PARSE_ERROR, INVALID_REQUEST)

# --- JSON that is no message ---------------------------------------------------------------------

for text in (
    b"null",
    b"true",
    b"false",
    b"5",
    b"-1.5",
    b'"x"',
    b"[]",
    b"[1]",
    b"[[]]",
    b"[null]",
    b"{}",
    b'{"id":1}',
):
    case(f"no message: {text.decode()}", text, INVALID_REQUEST)
for text in (b"null", b"2", b"2.0", b'"1.0"', b'"2.0 "', b'"2"', b"[]", rb'"2.0\u0000"', b'""'):
    case(
        f"jsonrpc is {text.decode()}",
        b'{"jsonrpc":%s,"id":1,"method":"ping"}' % text,
        INVALID_REQUEST,
    )
case("jsonrpc missing", b'{"id":1,"method":"ping"}', INVALID_REQUEST)
for text in (b"null", b"true", b"1.5", b"1.0", b"1e2", b"{}", b"[]", b"[1]"):
    case(
        f"id is {text.decode()}",
        b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % text,
        INVALID_REQUEST,
    )
for text in (b"9223372036854775808", b"-9223372036854775809", b"18446744073709551617"):
    case(f"id is {text.decode()}", b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % text, *TOO_MUCH)
for text in (b"null", b"5", b"{}", b"[]", b"true"):
    case(
        f"method is {text.decode()}",
        b'{"jsonrpc":"2.0","id":1,"method":%s}' % text,
        INVALID_REQUEST,
    )
for text in (b"[]", b"[1]", b'"x"', b"5", b"true"):
    case(f"params are {text.decode()}", ping(b"params", text), INVALID_REQUEST, INVALID_PARAMS)
case("params are null", ping(b"params", b"null"), OK, INVALID_REQUEST, INVALID_PARAMS)
for text in (b'""', b'" "', rb'"\u0000"', rb'"ping\u0000"', rb'"ping\u0000x"', b'"PING"', b'"ping "', b'"../ping"',
             rb'"\u001b[2J"', b'"rpc.x"', b'"__proto__"', b'"%s%n%x"'):  # fmt: skip
    case(f"method is {text.decode()}", b'{"jsonrpc":"2.0","id":1,"method":%s}' % text, METHOD_NOT_FOUND, INVALID_REQUEST)  # fmt: skip
case("method and result", ping(b"result", b"{}"), INVALID_REQUEST)
case("method and error", ping(b"error", b'{"code":1,"message":"x"}'), INVALID_REQUEST)
case("result and error", b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', SILENT, INVALID_REQUEST)  # fmt: skip
case("result without id", b'{"jsonrpc":"2.0","result":{}}', SILENT, INVALID_REQUEST)
case("result with id null", b'{"jsonrpc":"2.0","id":null,"result":{}}', SILENT, INVALID_REQUEST)
case(
    "result with an object as id", b'{"jsonrpc":"2.0","id":{},"result":{}}', SILENT, INVALID_REQUEST
)
case("error that is text", b'{"jsonrpc":"2.0","id":1,"error":"x"}', SILENT, INVALID_REQUEST)
case("response nobody waits for", b'{"jsonrpc":"2.0","id":12345,"result":{}}', SILENT)
case(
    "unknown members", ping(b"__proto__", b'{"constructor":{"prototype":{}}}'), OK, INVALID_REQUEST
)
case("notification with a list as params", b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}', SILENT)  # fmt: skip
case(
    "notification of 5 MB",
    lambda: encode(notification("notifications/" + "x" * 5 * MILLION)),
    SILENT,
)
case("cancel with every type of id", encode(notification("notifications/cancelled", {"requestId": [{}]})), SILENT)  # fmt: skip
case("cancel with an enormous reason", lambda: encode(notification("notifications/cancelled", {"requestId": 1, "reason": "r" * MILLION})), SILENT)  # fmt: skip
case(
    "batch of a thousand pings",
    encode([request("ping", id=i) for i in range(1000)]),
    INVALID_REQUEST,
)

# --- params and arguments ------------------------------------------------------------------------

for name in (None, 5, [], {}, True):
    case(
        f"tool name is {json.dumps(name)}",
        encode(request("tools/call", {"name": name})),
        INVALID_PARAMS,
    )
for name in ("", "execute_code\0", "execute_code\0x", "EXECUTE_CODE", "execute_code ", "../execute_code", "\x1b[31m",
             "%s%s%n", "é" * 100):  # fmt: skip
    case(f"tool name is {name!a}", encode(request("tools/call", call_tool(name))), INVALID_PARAMS)
case(
    "tool name of 1 MB",
    lambda: encode(request("tools/call", call_tool("n" * MILLION))),
    INVALID_PARAMS,
)
case("no tool name", encode(request("tools/call", {})), INVALID_PARAMS)
case("no params for a call", encode(request("tools/call")), INVALID_PARAMS)
for arguments in ([], "x", 5, True):
    case(f"arguments are {json.dumps(arguments)}",
         encode(request("tools/call", {"name": "execute_code", "arguments": arguments})), INVALID_PARAMS)  # fmt: skip
for code in (None, 5, [], {}, True, 1.5):
    case(f"code is {json.dumps(code)}", tool({"code": code}), OK)
case("code with NUL", tool({"code": "1\0+1"}), OK)
case("code of 5 MB", lambda: tool({"code": "#" * 5 * MILLION}), OK)
case("unknown argument with escape codes", tool({"code": "1", "\x1b[31mred": 1}), OK)
case("unknown argument with NUL", tool({"code": "1", "code\0": 1}), OK, PARSE_ERROR)
case("unknown argument of 1 MB", lambda: tool({"code": "1", "a" * MILLION: 1}), OK)
case(
    "10,000 unknown arguments",
    lambda: tool({"code": "1", **{f"a{i}": i for i in range(10_000)}}),
    OK,
)
for timeout in (-1, 0, 1e308, 2**63 - 1, -(2**63), "30", [], 0.0000001):
    case(f"timeout is {json.dumps(timeout)}", tool({"code": "1", "timeout": timeout}), OK)
for id in ("../../etc/passwd", "a/b", "\0", "x" * 10_000, "%2e%2e", "-rf", "é", " "):
    case(f"session_id is {id[:20]!a}", tool({"code": "1", "session_id": id}), OK)
for language in ("cobol", "", "python\0", "PYTHON3", 5, ["python"]):
    case(f"language is {language!a}", tool({"code": "1", "language": language}), OK)
for cursor in ("garbage", "", 5, {}, True, "\0", "' OR 1=1", "-1"):
    case(f"cursor is {cursor!a}", encode(request("tools/list", {"cursor": cursor})), INVALID_PARAMS)
case(
    "cursor of 1 MB",
    lambda: encode(request("tools/list", {"cursor": "c" * MILLION})),
    INVALID_PARAMS,
)
for meta in ("x", 5, [], True):
    case(f"_meta is {json.dumps(meta)}", encode(request("ping", {"_meta": meta})), OK, INVALID_PARAMS, INVALID_REQUEST)  # fmt: skip
for token in ({}, [], True, 1.5, "t" * 100_000):
    case(f"progress token is {str(token)[:9]}", encode(request("tools/list", {"_meta": {"progressToken": token}})), OK, INVALID_PARAMS)  # fmt: skip

for name, params in {
    "nothing": None,
    "an empty object": {},
    "a number as version": {"protocolVersion": 5},
    "null as version": {"protocolVersion": None},
    "a list as version": {"protocolVersion": ["2025-11-25"]},
    "text as capabilities": {"protocolVersion": "2025-11-25", "capabilities": "all"},
    "no client": {"protocolVersion": "2025-11-25", "capabilities": {}},
    "a version with NUL": {"protocolVersion": "2025-11-25\0x", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}.items():  # fmt: skip
    case(f"initialize with {name}", encode(request("initialize", params)), OK, INVALID_PARAMS)

# --- stateless envelopes -------------------------------------------------------------------------

for name, meta in {
    "version is a number": {META + "protocolVersion": 1},
    "version is null": {META + "protocolVersion": None},
    "version is a list": {META + "protocolVersion": ["2026-07-28"]},
    "nothing but a version": {META + "protocolVersion": "2026-07-28"},
    "capabilities are a list": {**envelope(), META + "clientCapabilities": []},
    "capabilities are null": {**envelope(), META + "clientCapabilities": None},
    "client is a list": {**envelope(), META + "clientInfo": []},
    "client without a name": {**envelope(), META + "clientInfo": {"version": "1"}},
    "client with a number as name": {
        **envelope(),
        META + "clientInfo": {"name": 1, "version": "1"},
    },
    "log level unknown": envelope(logLevel="loud"),
    "log level with NUL": envelope(logLevel="info\0"),
}.items():
    case(f"envelope: {name}", request("tools/list", {"_meta": meta}), INVALID_PARAMS)
case("envelope: version with NUL", stateless("tools/list", version="2026-07-28\0"), -32022, INVALID_PARAMS, -32020)  # fmt: skip
case(
    "envelope: everything unknown in it",
    stateless("tools/list", **{f"k{i}": i for i in range(1000)}),
    OK,
)
case("envelope: capabilities of 10,000 members", stateless("tools/list", capabilities={f"c{i}": {} for i in range(10_000)}), OK)  # fmt: skip


# --- the two transports --------------------------------------------------------------------------


def make(payload):
    return payload() if callable(payload) else payload


def outcome(reply):
    return reply["error"]["code"] if "error" in reply else OK


numbers = itertools.count(1)


@pytest.mark.parametrize(("payload", "right"), CASES.values(), ids=CASES)
def test_over_stdio(stdio_victim, payload, right):
    line = encode(make(payload))
    assert b"\n" not in line
    after = f"after-{next(numbers)}"
    stdio_victim.send(line)
    begin = time.monotonic()
    stdio_victim.send(request("ping", id=after))
    seen = []
    while True:
        text = stdio_victim.recv_line(timeout=10)
        reply = json.loads(text)
        if reply.get("id") == after:
            break
        assert len(text) < REPLY_MAX
        seen.append(reply)
    took = time.monotonic() - begin
    assert took < 1 * PATIENCE, f"answered after {took:.2f} s"
    assert len(seen) <= 1, seen
    assert (outcome(seen[0]) if seen else SILENT) in right, seen
    if seen and outcome(seen[0]) == PARSE_ERROR:
        assert "id" not in seen[0]


@pytest.fixture(scope="module")
def session(http_victim):
    return http_victim.session()


# Such a version cannot be sent in a header, and over HTTP must be.
HTTP_CASES = {name: case for name, case in CASES.items() if name != "envelope: version with NUL"}


@pytest.mark.parametrize(("payload", "right"), HTTP_CASES.values(), ids=HTTP_CASES)
def test_over_http(victim, session, payload, right):
    payload = make(payload)
    # A stateless message needs no session, and its headers must agree.
    answer = (victim if isinstance(payload, dict) else session).post(payload)
    if answer.status == 202:
        assert SILENT in right and answer.body == b""
        return
    assert len(answer.body) < REPLY_MAX
    code = outcome(answer.message())
    if SILENT in right and answer.status == 400:
        return  # a notification in bad form may be refused by status
    assert code in right, answer
    assert (
        answer.status == 400
        if code in (PARSE_ERROR, INVALID_REQUEST)
        else answer.status in (200, 400)
    )


@pytest.mark.parametrize("size", [100 * MILLION])
def test_a_line_of_100_mb_is_refused_without_keeping_it(size):
    with belljar.Stdio() as server:
        server.initialize()
        idle = server.rss()
        server.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"')
        for _ in range(size // MILLION):
            server.send_bytes(b"x" * MILLION)
        server.send_bytes(b'"}\n')
        begin = time.monotonic()
        server.send(request("ping", id="after"))
        refused = server.recv()
        assert refused["error"]["code"] in TOO_MUCH and "id" not in refused
        assert server.recv()["id"] == "after"
        assert time.monotonic() - begin < 1 * PATIENCE
        if not belljar.is_sanitized():
            assert server.peak() - idle < 64 << 20
