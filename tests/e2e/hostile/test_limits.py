"""Limits at their edge: what is just allowed is served, one more is refused with the right status."""

import time

import belljar
import pytest
from belljar import (
    FIXTURE,
    INVALID_REQUEST,
    PARSE_ERROR,
    PATIENCE,
    Http,
    Stdio,
    call_tool,
    encode,
    initialize,
    mirror,
    request,
    stateless,
)

BODY = encode(initialize())


# --- heads ---------------------------------------------------------------------------------------


def head_of(server, size=None, fields=None, path="/healthz"):
    """A GET head of exactly `size` bytes to the end of its blank line, or with `fields` fields."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {server.host}"]
    if fields:
        lines += [f"X-{i}: y" for i in range(fields - 1)]
    head = "\r\n".join(lines).encode() + b"\r\n"
    if size:
        head += b"X-Pad: "
        head += b"p" * (size - len(head) - 4) + b"\r\n"
    return head + b"\r\n"


def get_status(server, head):
    with server.connect() as conn:
        conn.try_send(head)
        return conn.response("GET").status


HEADS = {
    "16 KiB of head": (lambda s: head_of(s, size=16384), 200),
    "one byte more": (lambda s: head_of(s, size=16385), 431),
    "1 MiB of head": (lambda s: head_of(s, size=1 << 20), 431),
    "100 fields": (lambda s: head_of(s, fields=100), 200),
    "101 fields": (lambda s: head_of(s, fields=101), 431),
    "10,000 fields": (lambda s: head_of(s, fields=10_000), 431),
    "a path of 16,000 bytes": (lambda s: head_of(s, path="/" + "a" * 16_000), 404),
    "a path of 20,000 bytes": (lambda s: head_of(s, path="/" + "a" * 20_000), 431),
}


@pytest.mark.parametrize(("make", "status"), HEADS.values(), ids=HEADS)
def test_the_head_is_bounded(victim, make, status):
    assert get_status(victim, make(victim)) == status


def test_the_bounds_of_the_head_are_options(serve):
    server = serve(Http, "--http-max-header", "1024", "--http-max-headers", "5")
    assert get_status(server, head_of(server, size=1024)) == 200
    assert get_status(server, head_of(server, size=1025)) == 431
    assert get_status(server, head_of(server, fields=5)) == 200
    assert get_status(server, head_of(server, fields=6)) == 431


# --- bodies --------------------------------------------------------------------------------------


def padded(size):
    return BODY + b" " * (size - len(BODY))


def chunked(server, body, size=1 << 16):
    head = server.head("POST", "/mcp", {"Transfer-Encoding": "chunked"})
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_the_body_is_bounded_by_an_option(serve):
    server = serve(Http, "--http-max-body", "4096")
    assert server.post(padded(4096)).status == 200
    with server.connect() as conn:
        conn.send(server.head("POST", "/mcp", None, 4097))  # refused before a byte of it is sent
        assert conn.response().status == 413
        assert conn.is_closed()
    for size, status in ((4096, 200), (4097, 413)):
        for piece in (1, 1000, 1 << 16):
            with server.connect() as conn:
                conn.try_send(chunked(server, padded(size), piece))
                assert conn.response().status == status
    server.harmless()


@pytest.mark.parametrize(
    "size", [16 * 2**20 + 1, 100_000_000, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
)
def test_a_body_that_announces_too_much_is_refused_unread(victim, size):
    with victim.connect() as conn:
        begin = time.monotonic()
        conn.send(victim.head("POST", "/mcp", None, size))
        answer = conn.response()
        assert answer.status == 413 and time.monotonic() - begin < 1 * PATIENCE
        assert conn.is_closed()


def test_a_body_of_16_mib_is_read(victim):
    assert victim.post(padded(16 << 20), timeout=20).status == 200


@pytest.mark.parametrize("form", ["length", "chunked"])
def test_100_mb_are_refused_and_not_kept(victim, form):
    victim.forget_peak()
    idle = victim.rss()
    with victim.connect() as conn:
        if form == "length":
            conn.send(victim.head("POST", "/mcp", None, 100_000_000))
            part = b" " * 100_000
        else:
            conn.send(victim.head("POST", "/mcp", {"Transfer-Encoding": "chunked"}))
            part = b"%x\r\n%s\r\n" % (100_000, b" " * 100_000)
        taken = 0
        while taken < 1000 and conn.try_send(part):
            taken += 1
        begin = time.monotonic()
        try:
            assert conn.response().status == 413
        except (EOFError, ConnectionResetError):
            pass  # the close has overtaken the answer
        assert time.monotonic() - begin < 1 * PATIENCE
    if not belljar.is_sanitized():
        assert victim.peak() - idle < 64 << 20


# --- JSON ----------------------------------------------------------------------------------------


def nested(depth):
    """A ping whose text is `depth` levels deep."""
    inner = b"[" * (depth - 2) + b"]" * (depth - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}' % inner


def long_number(digits):
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}' % (
        b"0." + b"1" * (digits - 2)
    )


JSON_EDGES = {
    "depth 128": (nested(128), [], True),
    "depth 129": (nested(129), [], False),
    "depth 8 of 8": (nested(8), ["--json-max-depth", "8"], True),
    "depth 9 of 8": (nested(9), ["--json-max-depth", "8"], False),
    "512 digits": (long_number(512), [], True),
    "513 digits": (long_number(513), [], False),
    "20 digits of 20": (long_number(20), ["--json-max-digits", "20"], True),
    "21 digits of 20": (long_number(21), ["--json-max-digits", "20"], False),
    "far fewer nodes than 1000": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%s0]}}' % (b"0," * 900), ["--json-max-nodes", "1000"], True),
    "more nodes than 1000": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%s0]}}' % (b"0," * 1000), ["--json-max-nodes", "1000"], False),
}  # fmt: skip


@pytest.mark.parametrize(("text", "flags", "good"), JSON_EDGES.values(), ids=JSON_EDGES)
def test_json_is_bounded(serve, text, flags, good):
    stdio, http = serve(Stdio, *flags), serve(Http, *flags)
    stdio.send(text)
    reply = stdio.recv()
    answer = http.session().post(text)
    if good:
        assert reply["result"] == {} and answer.message()["result"] == {}
    else:
        assert reply["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST)
        assert answer.error() in ((400, PARSE_ERROR), (400, INVALID_REQUEST))
    assert stdio.call("ping") == {}
    http.harmless()


def test_a_line_is_bounded(serve):
    server = serve(Stdio, "--max-message", "4096")
    ping = encode(request("ping", id=1))
    server.send(ping + b" " * (4096 - len(ping)))
    assert server.recv()["result"] == {}
    server.send(ping + b" " * (4097 - len(ping)))
    refused = server.recv()
    assert refused["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST) and "id" not in refused
    assert server.call("ping") == {}  # what follows the long line is read again
    for size in (5000, 65536, 1 << 20, 3 << 20):
        server.send(b"[" + b" " * size)
        assert "error" in server.recv()
        assert server.call("ping") == {}


def test_the_batch_is_bounded(serve):
    server = serve(Stdio, "--max-batch", "3")
    server.initialize("2025-03-26")
    server.send([request("ping", id=i) for i in range(3)])
    assert len(server.recv()) == 3
    server.send([request("ping", id=i) for i in range(4)])
    assert server.recv()["error"]["code"] == INVALID_REQUEST
    assert server.call("ping") == {}


def test_unanswered_requests_are_bounded(serve):
    server = serve(Stdio, binary=FIXTURE)
    server.initialize()
    for i in range(65):
        server.send(request("tools/call", call_tool("test_slow", {"seconds": 0.5}), id=i))
    refused = server.recv()
    assert refused["id"] == 64 and "error" in refused
    assert sorted(server.recv()["id"] for _ in range(64)) == list(range(64))
    assert server.call("ping") == {}


# --- connections ---------------------------------------------------------------------------------


def is_served(server, source=None):
    """Is a new connection served?"""
    try:
        with server.connect(source=source) as conn:
            conn.send(server.head("GET", "/healthz"))
            return conn.response("GET").status == 200
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return False


def hold(server, count, source=None):
    """Connections that have been served once and stay."""
    conns = [server.connect(source=source) for _ in range(count)]
    for conn in conns:
        conn.send(server.head("GET", "/healthz"))
        assert conn.response("GET").status == 200
    return conns


def wait_served(server, source=None):
    deadline = time.monotonic() + 2 * PATIENCE
    while not is_served(server, source):
        assert time.monotonic() < deadline, "the place does not become free"
        time.sleep(0.01)


def test_connections_are_bounded(serve):
    server = serve(Http, "--http-max-connections", "10")
    conns = hold(server, 10)
    assert not is_served(server)
    assert not is_served(server, source="127.0.0.2")
    for conn in conns:  # those who are in stay in
        conn.send(server.head("GET", "/healthz"))
        assert conn.response("GET").status == 200
    conns.pop().close()
    wait_served(server)
    for conn in conns:
        conn.close()


def test_connections_of_one_address_are_bounded(serve):
    server = serve(Http, "--http-max-connections-per-address", "5")
    conns = hold(server, 5)
    assert not is_served(server)
    assert is_served(server, source="127.0.0.2")
    conns.pop().close()
    wait_served(server)
    for conn in conns:
        conn.close()


def test_the_default_is_1024_connections_of_one_address(serve):
    server = serve(Http)
    conns = [server.connect() for _ in range(1024)]
    assert not is_served(server)
    server.harmless(source="127.0.0.2")
    for conn in conns:
        conn.close()
    wait_served(server)


# --- time ----------------------------------------------------------------------------------------


def cut_after(conn, limit):
    """Seconds until the server closes, and the status it gave."""
    begin = time.monotonic()
    conn.sock.settimeout((limit + 3) * PATIENCE)
    data = conn.rest()
    return time.monotonic() - begin, int(data.split()[1]) if data else None


def test_each_phase_has_its_time(serve):
    server = serve(
        Http,
        "--http-header-timeout",
        "1s",
        "--http-body-timeout",
        "2s",
        "--http-idle-timeout",
        "3s",
    )
    silent, head, body, chunk, idle = (server.connect() for _ in range(5))
    head.send(b"GET /healthz HTTP/1.1\r\nHo")
    body.send(server.head("POST", "/mcp", None, 100) + b"{")
    chunk.send(server.head("POST", "/mcp", {"Transfer-Encoding": "chunked"}) + b"5\r\n{")
    idle.send(server.head("GET", "/healthz"))
    assert idle.response("GET").status == 200
    for conn, limit, status in (
        (head, 1, 408),
        (body, 2, 408),
        (chunk, 2, 408),
        (idle, 3, None),
        (silent, 3, None),
    ):
        took, got = cut_after(conn, limit)
        assert got == status
        conn.close()
    server.harmless()


def test_a_client_that_reads_nothing_is_cut(serve):
    server = serve(Http, "--http-write-timeout", "1s")
    message = encode(stateless("tools/list"))
    one = server.head("POST", "/mcp", mirror(stateless("tools/list")), len(message)) + message
    with server.connect(timeout=1) as conn:
        try:
            while True:  # until the kernel's buffers are full on both sides
                conn.send(one * 100)
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
        time.sleep(1.5)
        assert not conn.try_send(b"x" * 100_000) or conn.is_closed(3)
    server.harmless()


def test_sessions_are_bounded_and_the_oldest_makes_room(serve):
    server = serve(Http, "--http-max-sessions", "5")
    sessions = [server.session() for _ in range(5)]
    sixth = server.session()
    assert sixth.call("ping") == {}
    assert sessions[0].post(request("ping")).status == 404
    assert sessions[4].call("ping") == {}
