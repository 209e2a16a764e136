"""Streamable HTTP: sessions of the handshake era, streams, resumption, disconnects in both eras."""

import re
import time

import belljar
import pytest
from belljar import (
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    STATELESS,
    Http,
    call_tool,
    encode,
    envelope,
    mirror,
    notification,
    request,
    stateless,
    text_of,
)

STREAMABLE = HANDSHAKE[1:]  # 2024-11-05 had another transport, but its clients may come here too
JSON = "application/json"
SSE = "text/event-stream"


def slow(seconds, **meta):
    return stateless("tools/call", call_tool("test_slow", {"seconds": seconds}), **meta)


def old_slow(seconds, id=1, **meta):
    params = {**call_tool("test_slow", {"seconds": seconds}), "_meta": meta}
    return request("tools/call", params, id)


def cancel_count(server):
    return int(text_of(server.modern("tools/call", call_tool("test_cancel_count"))))


def wait_cancel_count(server, want, timeout=2):
    deadline = time.monotonic() + timeout * belljar.PATIENCE
    while (count := cancel_count(server)) != want and time.monotonic() < deadline:
        time.sleep(0.02)
    return count


# --- sessions of the handshake era ---------------------------------------------------------------


def test_a_session_id_is_visible_ascii_and_never_repeats(http):
    ids = [http.session().id for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(re.fullmatch(r"[!-~]{22,}", id) for id in ids)


def test_a_session_id_cannot_be_guessed_from_another(http):
    session = http.session()
    for i, old in enumerate(session.id):
        near = session.id[:i] + ("B" if old == "A" else "A") + session.id[i + 1 :]
        for guess in (near, session.id[:i], session.id + old):
            answer = session.post(request("ping"), {"Mcp-Session-Id": guess})
            assert answer.status == (404 if guess else answer.status) and answer.status >= 400
    assert session.call("ping") == {}


def test_an_idle_session_ends_by_itself(serve):
    server = serve(Http, "--http-session-timeout", "0.4s")
    idle, busy = server.session(), server.session()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert busy.call("ping") == {}
        time.sleep(0.05)
    assert idle.post(request("ping")).status == 404


def test_a_request_without_its_session_is_refused(http):
    session = http.session()
    assert session.post(request("ping"), {"Mcp-Session-Id": None}).status == 400
    assert session.post(request("tools/list"), {"Mcp-Session-Id": None}).status == 400


@pytest.mark.parametrize("id", ["no-such", "A" * 22, "", "x" * 4000])
def test_an_unknown_session_is_not_found(http, id):
    answer = http.session().post(request("ping"), {"Mcp-Session-Id": id})
    assert answer.status == (404 if id else answer.status) and answer.status in (400, 404)


def test_a_session_ends_with_delete(http):
    session = http.session()
    assert session.call("ping") == {}
    assert session.delete().status in (200, 204)
    assert session.post(request("ping")).status == 404
    assert session.delete().status == 404
    assert session.delete({"Mcp-Session-Id": None}).status == 400


def test_deleting_a_session_stops_its_work_and_ends_its_streams(fixture_http):
    session = fixture_http.session()
    before = cancel_count(fixture_http)
    standing = session.open_get()
    running = session.open(old_slow(5, progressToken=1))
    assert session.delete().status in (200, 204)
    assert standing.events() is not None  # both end, without an answer
    assert not any("result" in e.json() for e in running.events() if e.data)
    assert wait_cancel_count(fixture_http, before + 1) == before + 1
    standing.close(), running.close()


def test_sessions_do_not_see_each_other(fixture_http):
    one, two = fixture_http.session(), fixture_http.session()
    with one.open(old_slow(0.4, id=1, progressToken=1)) as stream:
        cancel = notification("notifications/cancelled", {"requestId": 1})
        assert two.post(cancel).status == 202  # the same id, but another session's
        assert "result" in stream.events()[-1].json()


def test_a_session_answers_errors_with_200(http):
    session = http.session()
    assert session.post(request("no/such")).error() == (200, METHOD_NOT_FOUND)
    assert session.post(request("tools/call", call_tool("x"))).error() == (200, INVALID_PARAMS)


@pytest.mark.parametrize("version", ["1.0", "2099-01-01", "", "2025-11-25x"])
def test_an_unsupported_version_header_is_refused(http, version):
    session = http.session("2025-11-25")
    answer = session.post(request("tools/list"), {"MCP-Protocol-Version": version})
    assert answer.status == 400, answer


def test_a_session_without_version_header_keeps_its_version(fixture_http):
    for revision in HANDSHAKE:
        session = fixture_http.session(revision)
        answer = session.post(
            request("tools/call", call_tool("test_revision")), {"MCP-Protocol-Version": None}
        )
        assert text_of(answer.message()["result"]) == revision


def test_a_posted_response_or_notification_is_accepted(http):
    session = http.session()
    for message in (
        {"jsonrpc": "2.0", "id": 77, "result": {}},
        {"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}},
        notification("notifications/unknown"),
        notification("notifications/cancelled", {"requestId": 3}),
    ):
        answer = session.post(message)
        assert (answer.status, answer.body) == (202, b""), message


def test_batches_belong_to_2025_03_26(http):
    batch = [request("ping", id=1), notification("x/y"), request("tools/list", id=2)]
    answer = http.session("2025-03-26").post(batch)
    assert answer.status == 200
    assert {reply["id"] for reply in answer.message()} == {1, 2}
    assert http.session("2025-03-26").post([notification("x/y")]).status == 202
    for revision in ("2025-06-18", "2025-11-25"):
        assert http.session(revision).post(batch).error() == (400, INVALID_REQUEST)


def test_a_cancelled_call_is_not_answered(fixture_http):
    session = fixture_http.session()
    before = cancel_count(fixture_http)
    with session.open(old_slow(5, id="s", progressToken=1)) as stream:
        assert (
            session.post(notification("notifications/cancelled", {"requestId": "s"})).status == 202
        )
        events = [event.json() for event in stream.events() if event.data]
    assert not any("result" in event or "error" in event for event in events)
    assert cancel_count(fixture_http) == before + 1


def test_a_stateless_notification_cancels_nothing(fixture_http):
    before = cancel_count(fixture_http)
    with fixture_http.open(slow(0.4, id="s", progressToken=1)) as stream:
        cancel = notification("notifications/cancelled", {"requestId": "s", "_meta": envelope()})
        assert fixture_http.post(cancel).status == 202
        assert "result" in stream.events()[-1].json()
    assert cancel_count(fixture_http) == before


# --- GET streams and resumption ------------------------------------------------------------------


def test_a_get_needs_a_session_of_the_handshake_era(http):
    get = {"Accept": SSE}
    assert http.request("GET", headers=get).status in (400, 405)
    assert http.request("GET", headers={**get, "MCP-Protocol-Version": STATELESS}).status == 405
    delete = http.request("DELETE", headers={"MCP-Protocol-Version": STATELESS})
    assert delete.status == 405 and "POST" in delete.headers["allow"]
    assert http.request("GET", headers={**get, "Mcp-Session-Id": "no-such"}).status == 404
    session = http.session()
    assert http.request("GET", headers={**session.headers, "Accept": JSON}).status == 406


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE", "post", "PROPFIND"])
def test_other_methods_are_not_allowed(http, method):
    answer = http.request(method, headers=http.session().headers)
    assert answer.status in (405, 501)
    if answer.status == 405:
        assert "POST" in answer.headers["allow"]


def test_one_standing_stream_per_session(fixture_http):
    session = fixture_http.session()
    with session.open_get() as stream:
        assert stream.answer.status == 200 and stream.answer.type == SSE
        with session.open_get() as second:
            assert second.answer.status == 409
        session.call("tools/call", call_tool("test_trigger_tool_change"))
        event = stream.event()
        while not event.data:  # the priming event
            event = stream.event()
        assert event.json() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    deadline = time.monotonic() + 2 * belljar.PATIENCE
    while True:  # once the server has noticed, the place is free again
        with session.open_get() as third:
            if third.answer.status == 200 or time.monotonic() > deadline:
                assert third.answer.status == 200
                break


def test_a_silent_stream_is_kept_alive_with_comments(serve):
    server = serve(Http, "--keepalive", "0.1s")
    with server.session("2025-06-18").open_get() as stream:
        begin = time.monotonic()
        for _ in range(3):
            event = stream.event(comments=True)
            assert event.comments and event.data is None and event.id is None
        assert 0.2 < time.monotonic() - begin < 2 * belljar.PATIENCE


def test_a_change_goes_to_every_session_once(fixture_http):
    one, two = fixture_http.session("2025-06-18"), fixture_http.session("2025-06-18")
    with one.open_get() as left, two.open_get() as right:
        one.call("tools/call", call_tool("test_trigger_prompt_change"))
        for stream in (left, right):
            assert stream.event().json()["method"] == "notifications/prompts/list_changed"
            assert stream.silent(0.2)


@pytest.mark.parametrize("revision", STREAMABLE)
def test_priming_is_for_2025_11_25_only(fixture_http, revision):
    session = fixture_http.session(revision)
    with session.open(old_slow(0.1, progressToken=1)) as stream:
        first, *rest = stream.events()
    if revision == "2025-11-25":
        assert first.id and not first.data
    else:
        assert first.data
        assert not any(event.retry for event in [first, *rest])
    assert all(event.data for event in rest)


@pytest.mark.parametrize("revision", STREAMABLE)
def test_a_broken_stream_is_resumed_without_loss_or_repetition(fixture_http, revision):
    session = fixture_http.session(revision)
    seen = []
    with session.open(old_slow(1, id="r", progressToken="t")) as stream:
        while len(seen) < 3:
            seen.append(stream.event())
    time.sleep(0.2)  # the call goes on without its client
    with session.open_get({"Last-Event-ID": seen[-1].id}) as stream:
        assert stream.answer.status == 200
        rest = stream.events()
    messages = [event.json() for event in seen + rest if event.data]
    assert messages[-1]["id"] == "r" and "result" in messages[-1]
    steps = [message["params"]["progress"] for message in messages[:-1]]
    assert steps == list(range(21))
    ids = [event.id for event in seen + rest if event.data]
    assert len(set(ids)) == len(ids)


def test_an_answer_can_be_fetched_after_it_was_given_to_nobody(fixture_http):
    session = fixture_http.session()
    with session.open(old_slow(0.2, id="r", progressToken="t")) as stream:
        primer = stream.event()
    time.sleep(0.5)
    for _ in range(2):  # again, if the first attempt is lost too
        with session.open_get({"Last-Event-ID": primer.id}) as stream:
            assert "result" in stream.events()[-1].json()


def test_only_the_stream_of_the_event_is_replayed(fixture_http):
    session = fixture_http.session()
    with session.open(old_slow(0.3, id="a", progressToken="a")) as one:
        first = one.event()
        with session.open(old_slow(0.3, id="b", progressToken="b")) as two:
            two.event()
    with session.open_get({"Last-Event-ID": first.id}) as stream:
        messages = [event.json() for event in stream.events() if event.data]
    assert messages[-1]["id"] == "a"
    assert {m["params"]["progressToken"] for m in messages[:-1]} == {"a"}


@pytest.mark.parametrize(
    "id", ["no-such", "", "0", "-1", "1-1", "99999999999999999999", "x" * 4000]
)
def test_an_unknown_event_id_is_refused_or_begins_a_fresh_stream(fixture_http, id):
    session = fixture_http.session()
    with session.open_get({"Last-Event-ID": id}) as stream:
        assert stream.answer.status in (200, 400, 404)
    assert session.call("ping") == {}


def test_an_event_of_another_session_is_not_replayed(fixture_http):
    one, two = fixture_http.session(), fixture_http.session()
    with one.open(old_slow(0.1, id="secret", progressToken="secret")) as stream:
        primer = stream.event()
        stream.events()
    with two.open_get({"Last-Event-ID": primer.id}) as stream:
        if stream.answer.status == 200:
            events = []
            try:
                while (event := stream.event(0.3)) is not None:
                    events.append(event)
            except TimeoutError:
                pass
            assert not any("secret" in (event.data or "") for event in events)


def test_the_server_may_hang_up_and_the_answer_waits(fixture_http):
    session = fixture_http.session("2025-11-25")
    message = request("tools/call", call_tool("test_reconnection"), id="h")
    with session.open(message) as stream:
        events = stream.events()
    assert events[0].id and not events[0].data
    assert any(event.retry == "500" for event in events)
    assert not any(event.data for event in events)
    with session.open_get({"Last-Event-ID": events[-1].id or events[0].id}) as stream:
        assert stream.events()[-1].json()["id"] == "h"


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
def test_older_revisions_are_not_hung_up_on(fixture_http, revision):
    session = fixture_http.session(revision)
    assert text_of(session.call("tools/call", call_tool("test_reconnection"))) == "You came back."


# --- disconnects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json pending", "stream"])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_disconnect_cancels_a_stateless_call(fixture_http, form, way):
    before = cancel_count(fixture_http)
    conn = fixture_http.connect()
    message = slow(10, **({"progressToken": 1} if form == "stream" else {}))
    body = encode(message)
    conn.send(fixture_http.head("POST", "/mcp", mirror(message), len(body)) + body)
    if form == "stream":
        conn.begin()
        conn.event()
    else:
        time.sleep(0.1)
    assert cancel_count(fixture_http) == before
    getattr(conn, way)()
    assert wait_cancel_count(fixture_http, before + 1) == before + 1


@pytest.mark.parametrize("revision", STREAMABLE)
def test_a_disconnect_does_not_cancel_a_handshake_call(fixture_http, revision):
    session = fixture_http.session(revision)
    before = cancel_count(fixture_http)
    for message in (old_slow(0.4, id=1), old_slow(0.4, id=2, progressToken=1)):
        body = encode(message)
        conn = fixture_http.connect()
        headers = {k: v for k, v in session.headers.items() if v}
        conn.send(fixture_http.head("POST", "/mcp", headers, len(body)) + body)
        time.sleep(0.1)
        conn.close()
    time.sleep(0.6)
    assert cancel_count(fixture_http) == before
    assert session.call("ping") == {}


def test_a_slow_call_does_not_delay_another(fixture_http):
    with fixture_http.open(slow(1, progressToken=1)) as stream:
        begin = time.monotonic()
        for _ in range(10):
            fixture_http.modern("tools/list")
        assert time.monotonic() - begin < 0.7 * belljar.PATIENCE
        assert "result" in stream.events()[-1].json()
