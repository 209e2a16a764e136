"""Many clients, endless input, sudden ends: the server keeps serving, keeps little, forgets all.

Bounds of memory are skipped under sanitizers, whose own memory would be measured.
"""

import random
import resource
import socket
import threading
import time

import belljar
import pytest
from belljar import (
    FIXTURE,
    PATIENCE,
    Http,
    Stdio,
    call_tool,
    encode,
    initialize,
    mirror,
    notification,
    request,
    stateless,
)

MIB = 1 << 20


@pytest.fixture
def watched(serve):
    """Starts a server; afterwards a fresh client is served, descriptors are back, and memory has
    stayed within 64 MiB above idle and 16 MiB afterwards."""
    state = []

    def start(*flags, **options):
        server = serve(Http, *flags, **options)
        server.harmless()
        state.append((server, server.rss(), server.fds()))
        return server

    yield start
    for server, idle, fds in state:
        deadline = time.monotonic() + 10 * PATIENCE
        while server.fds() > fds + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.fds() <= fds + 5, f"{fds} descriptors before, {server.fds()} after"
        server.harmless()
        if not belljar.is_sanitized():
            peak = (server.peak() - idle) / MIB
            after = (server.rss() - idle) / MIB
            assert peak <= 64 and after <= 16, f"{peak:.1f} MiB at the peak, {after:.1f} after"


def need_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"needs {count} descriptors, the hard limit is {hard}")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def roomy(count):
    return ["--http-max-connections", count, "--http-max-connections-per-address", count]


def all_closed(conns, timeout):
    """Waits until the server has closed every one of them."""
    deadline = time.monotonic() + timeout * PATIENCE
    for conn in conns:
        if not conn.is_closed(max(0.01, (deadline - time.monotonic()) / PATIENCE)):
            return False
    return True


# --- slow clients --------------------------------------------------------------------------------


def dribble(conns, data, seconds):
    """Feeds every connection a byte at a time until none takes it or the time is over."""
    end = time.monotonic() + seconds
    position = 0
    while conns and time.monotonic() < end:
        byte = data[position : position + 1] or b"a"
        conns = [conn for conn in conns if conn.try_send(byte)]
        position += 1
        time.sleep(0.1)


LARGE = pytest.mark.large


@pytest.mark.parametrize(
    "phase", [pytest.param("head", marks=LARGE), pytest.param("body", marks=LARGE), "chunks"]
)
def test_200_slow_clients_are_cut_and_hold_nobody_up(watched, phase):
    server = watched("--http-header-timeout", "1s", "--http-body-timeout", "1s")
    conns = [server.connect() for _ in range(200)]
    if phase == "head":
        data = b"GET /healthz HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\nX: "
    else:
        data = encode(initialize())
        headers = {"Transfer-Encoding": "chunked"} if phase == "chunks" else None
        for conn in conns:
            conn.send(server.head("POST", "/mcp", headers, 10_000 if phase == "body" else None))
        if phase == "chunks":
            data = b"".join(b"1\r\n%c\r\n" % byte for byte in data)
    feeder = threading.Thread(target=dribble, args=(conns, data, 2 * PATIENCE))
    feeder.start()
    for _ in range(5):
        server.harmless()
        time.sleep(0.1)
    feeder.join()
    assert all_closed(conns, 3)
    for conn in conns:
        conn.close()


def test_5000_idle_connections_leave_room_for_one_more(watched):
    need_descriptors(6000)
    server = watched(*roomy(6000))
    conns = [socket.create_connection(server.address) for _ in range(5000)]
    server.harmless()
    deadline = time.monotonic() + 5 * PATIENCE
    while server.fds() < 5000 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.fds() >= 5000  # they are all held, not refused
    server.harmless()
    for conn in conns:
        conn.close()


def test_5000_half_open_requests_leave_room_for_one_more(watched):
    need_descriptors(6000)
    server = watched(*roomy(6000))
    conns = [socket.create_connection(server.address) for _ in range(5000)]
    for conn in conns:
        conn.send(b"POST /mcp HTTP/1.1\r\nHost: ")
    server.harmless()
    for conn in conns:
        conn.close()


def test_bodies_that_never_end_do_not_fill_memory(watched):
    server = watched(*roomy(200))
    conns = []
    part = b" " * (15 * MIB)
    for _ in range(20):  # 300 MiB of promises
        conn = server.connect(timeout=0.5)
        conn.send(server.head("POST", "/mcp", None, 16 * MIB))
        try:
            conn.send(part)
        except OSError:
            pass  # it may refuse, or stop reading
        conns.append(conn)
        server.harmless(limit=2)
    for conn in conns:
        conn.close()


# --- endless input -------------------------------------------------------------------------------


def test_endless_heads_are_cut(watched):
    server = watched()
    conns = [server.connect() for _ in range(100)]
    for conn in conns:
        conn.try_send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 64_000)
    server.harmless()
    assert all_closed(conns, 3)


def test_endless_pipelining_without_reading_is_bounded(watched):
    server = watched("--http-write-timeout", "1s")
    message = stateless("tools/list")
    body = encode(message)
    one = server.head("POST", "/mcp", mirror(message), len(body)) + body
    conns = [server.connect(timeout=0.1 / PATIENCE) for _ in range(10)]
    for conn in conns:
        try:
            for _ in range(100):
                conn.send(one * 100)
        except OSError:
            pass
    server.harmless()
    for conn in conns:
        conn.reset()


def test_as_many_nodes_as_allowed_do_not_fill_memory(watched):
    server = watched()
    session = server.session()
    for kind in (b"{}", b"[]", b"0", b'""', b'{"":{}}'):
        for count in (50_000, 100_000, 450_000, 990_000):
            text = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%s0]}}' % (
                (kind + b",") * count
            )
            begin = time.monotonic()
            assert session.post(text).status in (200, 400)
            assert time.monotonic() - begin < 1 * PATIENCE, (kind, count)


def test_a_flood_of_sessions_makes_room_for_itself(watched):
    server = watched()
    body = encode(initialize())
    with server.connect() as conn:
        for _ in range(3000):
            conn.send(server.head("POST", "/mcp", None, len(body)) + body)
            assert conn.response().status == 200
    assert server.session().call("ping") == {}


def test_a_flood_of_notifications_is_swallowed(serve):
    server = serve(Stdio)
    server.initialize()
    idle = server.rss()
    lines = (encode(notification("notifications/cancelled", {"requestId": 1})) + b"\n") * 10_000
    for _ in range(10):
        server.send_bytes(lines)
    begin = time.monotonic()
    assert server.call("ping") == {}
    assert time.monotonic() - begin < 1 * PATIENCE
    if not belljar.is_sanitized():
        assert server.peak() - idle < 16 * MIB


def test_a_client_on_stdio_that_never_reads_does_not_fill_memory(serve):
    server = serve(Stdio, read=False)
    lines = (encode(stateless("tools/list")) + b"\n") * 1000

    def write():
        try:
            for _ in range(300):
                server.send_bytes(lines)
        except (BrokenPipeError, ValueError):
            pass

    idle = server.rss()
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    time.sleep(1)
    assert server.alive()
    if not belljar.is_sanitized():
        grown = (server.peak() - idle) / MIB
        assert grown < 64, f"{grown:.1f} MiB"
    server.kill()
    writer.join(5)


# --- sudden ends ---------------------------------------------------------------------------------


def test_connections_that_come_and_go_leave_nothing(watched):
    server = watched()
    for i in range(2000):
        conn = server.connect()
        if i % 2:
            conn.reset()
        else:
            conn.close()
    server.harmless()


def test_clients_that_vanish_anywhere_leave_nothing(watched):
    server = watched()
    message = stateless("tools/list")
    body = encode(message)
    whole = server.head("POST", "/mcp", mirror(message), len(body)) + body
    chunked = server.head("POST", "/mcp", {**mirror(message), "Transfer-Encoding": "chunked"})
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for data in (whole, chunked):
        for cut in range(0, len(data) + 1, 3):
            conn = server.connect()
            conn.send(data[:cut])
            if cut % 2:
                conn.reset()
            else:
                conn.close()


def test_streams_that_break_leave_nothing(watched):
    server = watched(binary=FIXTURE)
    message = stateless("tools/call", call_tool("test_slow", {"seconds": 30}), progressToken=1)
    for round in range(3):
        streams = [server.open(message) for _ in range(50)]
        for stream in streams:
            stream.event()
        for i, stream in enumerate(streams):
            stream.reset() if (i + round) % 2 else stream.close()
    deadline = time.monotonic() + 3 * PATIENCE
    count = 0
    while count < 150 and time.monotonic() < deadline:
        result = server.modern("tools/call", call_tool("test_cancel_count"))
        count = int(belljar.text_of(result))
    assert count == 150


def test_listeners_that_break_leave_nothing(watched):
    server = watched(binary=FIXTURE)
    message = stateless(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l"
    )
    streams = [server.open(message) for _ in range(100)]
    for stream in streams[:50]:
        stream.reset()
    server.modern("tools/call", call_tool("test_trigger_tool_change"))
    for stream in streams[50:]:
        assert stream.event().json()["method"] == "notifications/subscriptions/acknowledged"
        assert stream.event().json()["method"] == "notifications/tools/list_changed"
        stream.close()


def test_a_stream_that_nobody_reads_does_not_fill_memory(watched):
    server = watched(binary=FIXTURE)
    message = stateless(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l" * 9000
    )
    streams = []
    for _ in range(20):
        stream = server.connect()
        stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = encode(message)
        stream.send(server.head("POST", "/mcp", mirror(message), len(body)) + body)
        streams.append(stream)
    for _ in range(500):  # 90 MB for the streams
        server.modern("tools/call", call_tool("test_trigger_tool_change"))
    for stream in streams:
        stream.reset()


def test_every_request_is_answered_once_whatever_is_cancelled(serve):
    server = serve(Stdio, binary=FIXTURE)
    server.initialize()
    chance = random.Random(1)
    waiting, cancelled = set(), set()
    for id in range(3000):
        seconds = chance.choice([0, 0, 0, 0.05, 0.1])
        server.send(request("tools/call", call_tool("test_slow", {"seconds": seconds}), id))
        waiting.add(id)
        if chance.random() < 0.3:
            gone = chance.choice(sorted(waiting))
            server.send(notification("notifications/cancelled", {"requestId": gone}))
            cancelled.add(gone)
        while len(waiting - cancelled) > 40:
            reply = server.recv()
            assert "result" in reply, reply
            waiting.remove(reply["id"])  # fails on a second answer
    while waiting - cancelled:
        waiting.remove(server.recv()["id"])
    server.quiet(0.2)


def test_every_answer_arrives_once_whatever_connection_breaks(serve):
    server = serve(Http, binary=FIXTURE)
    session = server.session()
    chance = random.Random(2)
    for id in range(40):
        call = {**call_tool("test_slow", {"seconds": 0.1}), "_meta": {"progressToken": id}}
        stream = session.open(request("tools/call", call, id))
        last, steps, results = None, [], 0
        while not results:
            for _ in range(chance.randrange(1, 4)):
                event = stream.event()
                last = event.id or last
                message = event.json() if event.data else {}
                if "params" in message:
                    steps.append(message["params"]["progress"])
                elif "result" in message:
                    assert message["id"] == id
                    results += 1
                    break
            stream.reset() if chance.random() < 0.5 else stream.close()
            if not results:
                stream = session.open_get({"Last-Event-ID": last})
        assert steps == [0, 1, 2], f"call {id}"


def test_random_noise_from_many_sides_at_once(watched):
    """Clients of every kind at the same time, each checking only its own answers."""
    server = watched(binary=FIXTURE)
    failures = []

    def honest(n):
        for i in range(30):
            try:
                result = server.modern("tools/call", call_tool("test_revision"), id=f"{n}-{i}")
                assert belljar.text_of(result) == belljar.STATELESS
            except Exception as error:  # noqa: BLE001
                failures.append(f"{type(error).__name__}: {error}")

    def rude(n):
        for i in range(60):
            conn = server.connect()
            conn.try_send(bytes((i * n * 31 + k * 7) % 256 for k in range(200)) + b"\r\n\r\n")
            conn.reset() if i % 2 else conn.close()

    threads = [
        threading.Thread(target=kind, args=[n]) for n in range(1, 6) for kind in (honest, rude)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:5]
