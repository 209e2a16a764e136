"""What each protocol revision sees, over both transports: one server, five dialects.

Most tests run against the conformance fixture, which offers something of every kind.
"""

import re
import time

import belljar
import pytest
from belljar import (
    HANDSHAKE,
    INVALID_PARAMS,
    META,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    NEWEST,
    STATELESS,
    Http,
    RpcError,
    Stdio,
    call_tool,
    envelope,
    notification,
    request,
    stateless,
    text_of,
)

ALL = [*HANDSHAKE, STATELESS]
RESOURCE_NOT_FOUND = -32002


class Client:
    """Speaks one revision over one transport: result or RpcError, whatever the era."""

    def __init__(self, server, revision):
        self.server, self.revision = server, revision
        self.stateless = revision == STATELESS
        self.session = None
        if not self.stateless:
            if isinstance(server, Stdio):
                self.opening = server.initialize(revision)
                self.session = server
            else:
                self.session = server.session(revision)
                self.opening = self.session.result

    def __call__(self, method, params=None):
        if self.stateless:
            return self.server.modern(method, params)
        return self.session.call(method, params)

    def exchange(self, method, params=None, **meta):
        """All messages of one request: notifications, then the response."""
        if self.stateless:
            message = stateless(method, params, id="x", **meta)
        else:
            message = request(method, {**(params or {}), "_meta": meta}, id="x")
        if isinstance(self.server, Stdio):
            self.server.notes = []
            reply = self.server.ask(message)
            return [*self.server.notes, reply]
        with (self.session or self.server).open(message) as stream:
            if stream.answer.type == "application/json":
                stream.answer.body = stream._exactly(int(stream.answer.headers["content-length"]))
                return [stream.answer.json()]
            return [event.json() for event in stream.events() if event.data]


@pytest.fixture(params=["stdio", "http"])
def place(request):
    """The fixture server on each transport."""
    return request.getfixturevalue("fixture_" + request.param)


@pytest.fixture(params=["stdio", "http"])
def real_place(request):
    """The real server on each transport."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=ALL)
def client(place, request):
    return Client(place, request.param)


@pytest.fixture(params=HANDSHAKE)
def old_client(place, request):
    return Client(place, request.param)


@pytest.fixture
def new_client(place):
    return Client(place, STATELESS)


def refusal(call, *args):
    with pytest.raises(RpcError) as refused:
        call(*args)
    return refused.value


def since(client, revision):
    return client.revision >= revision


# --- the shape of results ------------------------------------------------------------------------

EVERYTHING = {
    "tools/list": None,
    "prompts/list": None,
    "resources/list": None,
    "resources/templates/list": None,
    "resources/read": {"uri": "test://static-text"},
    "tools/call": call_tool("test_simple_text"),
    "prompts/get": {"name": "test_simple_prompt"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "par"},
    },
}
CACHED = [m for m in EVERYTHING if m.endswith("list") or m == "resources/read"]


def test_a_call_knows_its_revision(client):
    result = client("tools/call", call_tool("test_revision"))
    assert text_of(result) == client.revision
    if since(client, "2025-06-18"):
        assert result["structuredContent"] == {
            "revision": client.revision,
            "stateless": client.stateless,
        }
    else:
        assert "structuredContent" not in result


@pytest.mark.parametrize("method", EVERYTHING)
def test_stateless_members_are_on_every_stateless_result(new_client, method):
    result = new_client(method, EVERYTHING[method])
    assert result["resultType"] == "complete"
    assert result["_meta"][META + "serverInfo"]["name"] == "belljar-conformance"
    if method in CACHED:
        assert type(result["ttlMs"]) is int and result["ttlMs"] >= 0
        assert result["cacheScope"] in ("public", "private")
    else:
        assert "ttlMs" not in result and "cacheScope" not in result


@pytest.mark.parametrize("method", EVERYTHING)
def test_stateless_members_are_on_no_handshake_result(old_client, method):
    result = old_client(method, EVERYTHING[method])
    assert not {"resultType", "ttlMs", "cacheScope", "_meta"} & set(result), result


def test_the_opening_says_who_the_server_is_in_the_words_of_the_revision(old_client):
    opening = old_client.opening
    assert opening["protocolVersion"] == old_client.revision
    assert not {"resultType", "ttlMs", "cacheScope", "_meta", "supportedVersions"} & set(opening)
    info = opening["serverInfo"]
    assert info["name"] == "belljar-conformance" and info["version"]
    assert ("title" in info) == since(old_client, "2025-06-18")
    for member in ("description", "websiteUrl", "icons"):
        assert (member in info) == since(old_client, "2025-11-25"), member


def test_capabilities_are_objects_of_the_revision(client):
    opening = client("server/discover") if client.stateless else client.opening
    capabilities = opening["capabilities"]
    assert all(isinstance(value, dict) for value in capabilities.values())
    assert capabilities["tools"] == {"listChanged": True}
    assert capabilities["prompts"] == {"listChanged": True}
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
    assert "logging" in capabilities
    assert ("completions" in capabilities) == since(client, "2025-03-26")
    assert "tasks" not in capabilities


def test_lists_hold_what_the_revision_knows(client):
    tools = {tool["name"]: tool for tool in client("tools/list")["tools"]}
    assert ("title" in tools["test_simple_text"]) == since(client, "2025-06-18")
    assert ("annotations" in tools["test_simple_text"]) == since(client, "2025-03-26")
    assert ("outputSchema" in tools["test_revision"]) == since(client, "2025-06-18")
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools.values())
    assert "test_trigger_tool_change" not in tools  # hidden
    resources = {entry["name"]: entry for entry in client("resources/list")["resources"]}
    assert ("title" in resources["static-text"]) == since(client, "2025-06-18")
    prompts = {entry["name"]: entry for entry in client("prompts/list")["prompts"]}
    assert ("title" in prompts["test_simple_prompt"]) == since(client, "2025-06-18")


def test_audio_becomes_text_where_it_is_unknown(client):
    block = client("tools/call", call_tool("test_audio_content"))["content"][0]
    assert block["type"] == ("audio" if since(client, "2025-03-26") else "text")


def test_lists_keep_their_order(client):
    assert client("tools/list") == client("tools/list")


# --- methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["no/such", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"],
)
def test_methods_that_the_stateless_era_has_not(new_client, method):
    assert (
        refusal(new_client, method, {"level": "info", "uri": "test://x"}).code == METHOD_NOT_FOUND
    )


@pytest.mark.parametrize(
    "method", ["no/such", "server/discover", "subscriptions/listen", "tasks/get"]
)
def test_methods_that_the_handshake_era_has_not(old_client, method):
    assert refusal(old_client, method, {"notifications": {}}).code == METHOD_NOT_FOUND


@pytest.mark.parametrize("method", ["logging/setLevel", "tasks/list", "roots/list"])
@pytest.mark.parametrize("revision", [NEWEST, STATELESS])
def test_what_the_real_server_does_not_offer_is_an_unknown_method(real_place, revision, method):
    client = Client(real_place, revision)
    opening = client("server/discover") if client.stateless else client.opening
    assert method.split("/")[0] not in opening["capabilities"]
    assert refusal(client, method, {}).code == METHOD_NOT_FOUND


def test_ping_is_an_empty_object(old_client):
    assert old_client("ping") == {}


# --- tools ---------------------------------------------------------------------------------------


def test_an_unknown_tool_is_a_protocol_error(client):
    error = refusal(client, "tools/call", call_tool("no_such_tool"))
    assert error.code == INVALID_PARAMS and "no_such_tool" in error.message


BAD_CALLS = {
    "no name": {"arguments": {}},
    "name is a number": {"name": 5},
    "name is null": {"name": None},
    "arguments are a list": {"name": "test_simple_text", "arguments": []},
    "arguments are text": {"name": "test_simple_text", "arguments": "x"},
}


@pytest.mark.parametrize("params", BAD_CALLS.values(), ids=BAD_CALLS)
@pytest.mark.parametrize("revision", [HANDSHAKE[0], NEWEST, STATELESS])
def test_params_that_are_no_call_are_a_protocol_error(place, revision, params):
    assert refusal(Client(place, revision), "tools/call", params).code == INVALID_PARAMS


def test_arguments_may_be_left_out(client):
    assert "for testing" in text_of(client("tools/call", {"name": "test_simple_text"}))


def complaint(client, name, arguments):
    """What the client is told about bad arguments: a tool result, or before 2025-11-25 also an
    error."""
    try:
        result = client("tools/call", call_tool(name, arguments))
    except RpcError as error:
        assert error.code == INVALID_PARAMS and not since(client, "2025-11-25"), error
        return error.message
    assert result["isError"] is True
    return text_of(result)


BAD_ARGUMENTS = {
    "missing": ({}, ["seconds"]),
    "text for a number": ({"seconds": "1"}, ["seconds", "number"]),
    "null": ({"seconds": None}, ["seconds"]),
    "too small": ({"seconds": -1}, ["seconds", "0", "-1"]),
    "too large": ({"seconds": 601}, ["seconds", "600", "601"]),
    "unknown": ({"seconds": 0, "secnods": 1}, ["secnods"]),
    "list": ({"seconds": [1]}, ["seconds"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_a_bad_argument_is_named_with_what_is_allowed(client, arguments, words):
    text = complaint(client, "test_slow", arguments)
    assert all(word in text for word in words), text


@pytest.mark.parametrize("revision", ALL)
def test_execute_code_names_a_bad_argument(real_place, revision):
    client = Client(real_place, revision)
    assert "code" in complaint(client, "execute_code", {})
    assert "code" in complaint(client, "execute_code", {"code": 5})
    assert "cod" in complaint(client, "execute_code", {"code": "1", "cod": 1})
    assert "language" in complaint(client, "execute_code", {"code": "1", "language": "cobol"})


def test_a_failing_tool_is_a_result(client):
    result = client("tools/call", call_tool("test_error_handling"))
    assert result["isError"] is True and "intentionally" in text_of(result)


def test_an_indispensable_capability_is_named(new_client):
    error = refusal(new_client, "tools/call", call_tool("test_missing_capability"))
    assert error.code == MISSING_CAPABILITY
    assert error.data == {"requiredCapabilities": {"sampling": {}}}


def test_a_capability_counts_for_its_own_request_only(place):
    call = call_tool("test_missing_capability")
    assert "isError" not in place.modern("tools/call", call, capabilities={"sampling": {}})
    assert refusal(place.modern, "tools/call", call).code == MISSING_CAPABILITY


# --- resources, prompts, completion, pages -------------------------------------------------------


def test_a_missing_resource_is_reported_in_the_words_of_the_era(client):
    uri = "test://no-such-thing"
    error = refusal(client, "resources/read", {"uri": uri})
    assert error.code == (INVALID_PARAMS if client.stateless else RESOURCE_NOT_FOUND)
    assert error.data == {"uri": uri}


def test_a_resource_of_a_family_is_read_with_its_variable_decoded(client):
    contents = client("resources/read", {"uri": "test://template/a%20b/data"})["contents"]
    assert len(contents) == 1 and '"id":"a b"' in contents[0]["text"]


@pytest.mark.parametrize("uri", ["test://template/a/b/data", "test://template//data",
                                 "test://template/%00/data", "test://template/%ff/data"])  # fmt: skip
def test_what_does_not_fit_the_family_is_not_found(place, uri):
    client = Client(place, NEWEST)
    assert refusal(client, "resources/read", {"uri": uri}).code in (
        RESOURCE_NOT_FOUND,
        INVALID_PARAMS,
    )


@pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}, {"uri": ["test://static-text"]}])
def test_a_read_without_a_uri_is_refused(client, params):
    assert refusal(client, "resources/read", params).code == INVALID_PARAMS


def test_a_prompt_checks_its_arguments(client):
    name = "test_prompt_with_arguments"
    good = client("prompts/get", {"name": name, "arguments": {"arg1": "a", "arg2": "b"}})
    assert "arg1='a', arg2='b'" in good["messages"][0]["content"]["text"]
    for arguments, word in (
        ({"arg1": "a"}, "arg2"),
        ({"arg1": "a", "arg2": 5}, "arg2"),
        ({"arg1": "a", "arg2": "b", "arg3": "c"}, "arg3"),
    ):
        error = refusal(client, "prompts/get", {"name": name, "arguments": arguments})
        assert error.code == INVALID_PARAMS and word in error.message
    assert refusal(client, "prompts/get", {"name": "no_such"}).code == INVALID_PARAMS


def complete(client, ref, name, value):
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    return client("completion/complete", params)["completion"]


def test_completion_offers_what_begins_alike(client):
    prompt = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    assert complete(client, prompt, "arg1", "par")["values"] == ["paris", "park", "party"]
    assert complete(client, prompt, "arg1", "zzz")["values"] == []
    template = {"type": "ref/resource", "uri": "test://template/{id}/data"}
    assert complete(client, template, "id", "12")["values"] == ["12", "123"]


def test_completion_of_something_unknown_is_refused(client):
    for ref in (
        {"type": "ref/prompt", "name": "no_such"},
        {"type": "ref/resource", "uri": "test://no/{such}"},
        {"type": "ref/none"},
        {},
        "x",
    ):
        assert refusal(complete, client, ref, "arg1", "x").code == INVALID_PARAMS


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list",
                                    "resources/templates/list"])  # fmt: skip
@pytest.mark.parametrize(
    "cursor", ["garbage", "", "-1", "99999999999999999999", 5, None, {}, "é" * 9]
)
@pytest.mark.parametrize("revision", [NEWEST, STATELESS])
def test_a_bad_cursor_is_refused(place, revision, method, cursor):
    assert refusal(Client(place, revision), method, {"cursor": cursor}).code == INVALID_PARAMS


# --- progress and logging ------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["progress-test-1", 0, 7, ""])
@pytest.mark.parametrize("revision", ALL)
def test_progress_grows_and_carries_its_token(place, revision, token):
    client = Client(place, revision)
    *notes, reply = client.exchange(
        "tools/call", call_tool("test_tool_with_progress"), progressToken=token
    )
    assert "result" in reply
    assert [note["method"] for note in notes] == ["notifications/progress"] * 3
    assert all(belljar.same_id(note["params"]["progressToken"], token) for note in notes)
    assert [note["params"]["progress"] for note in notes] == [0, 50, 100]
    assert all(note["params"]["total"] == 100 for note in notes)
    assert ("message" in notes[0]["params"]) == since(client, "2025-03-26")


def test_nobody_gets_progress_without_asking(client):
    assert len(client.exchange("tools/call", call_tool("test_tool_with_progress"))) == 1


@pytest.mark.parametrize("token", [None, 1.5, True, {}, []])
def test_a_token_of_another_type_is_no_token(place, token):
    client = Client(place, NEWEST)
    messages = client.exchange(
        "tools/call", call_tool("test_tool_with_progress"), progressToken=token
    )
    assert len(messages) == 1  # an error or the result, but no progress


def logged(messages):
    return [m["params"]["data"] for m in messages if m.get("method") == "notifications/message"]


def test_a_session_sets_its_log_level(old_client):
    call = call_tool("test_tool_with_logging")
    assert old_client("logging/setLevel", {"level": "info"}) == {}
    assert len(logged(old_client.exchange("tools/call", call, progressToken=1))) == 3
    assert old_client("logging/setLevel", {"level": "warning"}) == {}
    assert logged(old_client.exchange("tools/call", call, progressToken=1)) == []


@pytest.mark.parametrize("params", [{"level": "loud"}, {"level": 3}, {}, {"level": "INFO"}])
def test_an_unknown_log_level_is_refused(old_client, params):
    assert refusal(old_client, "logging/setLevel", params).code == INVALID_PARAMS


def test_a_stateless_request_asks_for_its_own_log(new_client):
    call = call_tool("test_tool_with_logging")
    assert logged(new_client.exchange("tools/call", call)) == []
    assert len(logged(new_client.exchange("tools/call", call, logLevel="debug"))) == 3
    assert logged(new_client.exchange("tools/call", call, logLevel="error")) == []


# --- subscriptions -------------------------------------------------------------------------------

CHANGES = {
    "tools/list_changed": "test_trigger_tool_change",
    "prompts/list_changed": "test_trigger_prompt_change",
    "resources/updated": "test_trigger_resource_update",
}
WATCHED = "test://watched-resource"


def test_a_handshake_client_on_stdio_hears_of_changes(fixture_stdio):
    client = Client(fixture_stdio, NEWEST)
    for change, trigger in CHANGES.items():
        fixture_stdio.notes = []
        client("tools/call", call_tool(trigger))
        client("ping")
        heard = [note["method"] for note in fixture_stdio.notes]
        assert heard == ([] if change == "resources/updated" else ["notifications/" + change])

    assert client("resources/subscribe", {"uri": WATCHED}) == {}
    fixture_stdio.notes = []
    client("tools/call", call_tool("test_trigger_resource_update"))
    client("ping")
    assert [(n["method"], n["params"]["uri"]) for n in fixture_stdio.notes] == [
        ("notifications/resources/updated", WATCHED)
    ]
    assert client("resources/unsubscribe", {"uri": WATCHED}) == {}
    fixture_stdio.notes = []
    client("tools/call", call_tool("test_trigger_resource_update"))
    client("ping")
    assert fixture_stdio.notes == []


def listen(id="listen:0", **wanted):
    return stateless("subscriptions/listen", {"notifications": wanted}, id=id)


def tag(note):
    return note["params"]["_meta"][META + "subscriptionId"]


@pytest.mark.parametrize("id", ["listen:0", 0, 42])
def test_a_listener_on_stdio_gets_what_it_asked_for_and_no_more(fixture_stdio, id):
    server = fixture_stdio
    server.send(listen(id, promptsListChanged=True, resourceSubscriptions=[WATCHED]))
    ack = server.recv()
    assert ack["method"] == "notifications/subscriptions/acknowledged"
    assert belljar.same_id(tag(ack), id)
    assert ack["params"]["notifications"] == {
        "promptsListChanged": True,
        "resourceSubscriptions": [WATCHED],
    }
    for trigger in CHANGES.values():
        server.modern("tools/call", call_tool(trigger))
    server.modern("server/discover")
    assert [note["method"] for note in server.notes] == [
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
    ]
    assert all(belljar.same_id(tag(note), id) for note in server.notes)
    assert server.notes[1]["params"]["uri"] == WATCHED

    server.send(notification("notifications/cancelled", {"requestId": id, "_meta": envelope()}))
    server.notes = []
    for trigger in CHANGES.values():
        server.modern("tools/call", call_tool(trigger))
    server.modern("server/discover")
    assert [n for n in server.notes if n["method"] != "notifications/cancelled"] == []


def test_two_listeners_each_get_their_own_copy(fixture_stdio):
    server = fixture_stdio
    for id in ("a", "b"):
        server.send(listen(id, toolsListChanged=True))
        assert tag(server.recv()) == id
    server.modern("tools/call", call_tool("test_trigger_tool_change"))
    server.modern("server/discover")
    assert sorted(tag(note) for note in server.notes) == ["a", "b"]


@pytest.mark.parametrize("params", [{}, {"notifications": []}, {"notifications": None},
                                    {"notifications": {"toolsListChanged": "yes"}},
                                    {"notifications": {"resourceSubscriptions": "test://x"}},
                                    {"notifications": {"resourceSubscriptions": [5]}}])  # fmt: skip
def test_a_malformed_listen_is_refused(fixture_stdio, params):
    assert refusal(fixture_stdio.modern, "subscriptions/listen", params).code == INVALID_PARAMS


def test_a_listener_on_stdio_is_told_when_the_server_ends(serve):
    server = serve(Stdio, binary=belljar.FIXTURE)
    server.send(listen("l", toolsListChanged=True))
    assert tag(server.recv()) == "l"
    server.terminate()
    reply = server.recv()
    assert reply["id"] == "l" and reply["result"]["resultType"] == "complete"
    assert reply["result"]["_meta"][META + "subscriptionId"] == "l"
    server.finish()


def test_a_listener_over_http_is_told_when_the_server_ends(serve):
    server = serve(Http, binary=belljar.FIXTURE)
    with server.open(listen("l", toolsListChanged=True)) as stream:
        assert stream.answer.headers["x-accel-buffering"] == "no"
        assert tag(stream.event().json()) == "l"
        server.terminate()
        result = stream.event().json()
        assert result["id"] == "l"
        assert result["result"]["resultType"] == "complete"
        assert result["result"]["_meta"][META + "subscriptionId"] == "l"
        assert stream.event() is None
    server.finish()


def test_a_listener_over_http_gets_tagged_changes(fixture_http):
    with fixture_http.open(listen(9, toolsListChanged=True)) as stream:
        assert stream.answer.status == 200 and stream.answer.type == "text/event-stream"
        ack = stream.event()
        assert ack.id is None and ack.retry is None
        assert ack.json()["method"] == "notifications/subscriptions/acknowledged"
        for trigger in CHANGES.values():
            fixture_http.modern("tools/call", call_tool(trigger))
        note = stream.event().json()
        assert note["method"] == "notifications/tools/list_changed" and tag(note) == 9
        assert stream.silent()


def test_the_real_server_announces_resources_and_nothing_else(real_place):
    capabilities = real_place.modern("server/discover")["capabilities"]
    changing = {key for key, value in capabilities.items() if "listChanged" in value}
    assert changing == {"resources"}
    wanted = {"toolsListChanged": True, "promptsListChanged": True}
    done = real_place.modern("subscriptions/listen", {"notifications": wanted})
    assert done["resultType"] == "complete", "nothing would ever come"


# --- asking the client ---------------------------------------------------------------------------


def test_a_handshake_client_on_stdio_is_asked_while_the_call_waits(fixture_stdio):
    server = fixture_stdio
    server.initialize(NEWEST, {"elicitation": {}})
    server.send(request("tools/call", call_tool("test_elicitation", {"message": "Who?"}), id="c"))
    question = server.recv()
    assert question["method"] == "elicitation/create" and question["params"]["message"] == "Who?"
    assert server.call("ping") == {}  # others are served meanwhile
    answer = {"action": "accept", "content": {"username": "u", "email": "u@example.com"}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    assert "isError" not in server.reply("c")["result"]


def test_a_handshake_client_that_cannot_be_asked_is_not(fixture_stdio):
    fixture_stdio.initialize(NEWEST, {})
    result = fixture_stdio.call("tools/call", call_tool("test_elicitation", {"message": "Who?"}))
    assert result["isError"] is True
    assert fixture_stdio.notes == []


def test_a_stateless_call_asks_in_rounds(new_client):
    place = new_client.server
    call = call_tool("test_input_required_result_elicitation")
    able = {"elicitation": {}}
    first = place.modern("tools/call", call, capabilities=able)
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["user_name"]["method"] == "elicitation/create"
    assert "ttlMs" not in first and "content" not in first
    answer = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
    second = place.modern("tools/call", {**call, "inputResponses": answer}, capabilities=able)
    assert second["resultType"] == "complete" and "Hello, Ada!" in text_of(second)


def test_a_changed_state_is_refused(new_client):
    place = new_client.server
    call = call_tool("test_input_required_result_tampered_state")
    able = {"elicitation": {}}
    state = place.modern("tools/call", call, capabilities=able)["requestState"]
    for bad in (state + "-TAMPERED", state[:-1], "", "A" * len(state), 5):
        with pytest.raises(RpcError) as refused:
            place.modern("tools/call", {**call, "requestState": bad}, capabilities=able)
        assert refused.value.code == INVALID_PARAMS, bad


def test_sixty_calls_at_once_are_each_answered_once(fixture_stdio):
    fixture_stdio.initialize()
    begin = time.monotonic()
    for i in range(60):
        fixture_stdio.send(request("tools/call", call_tool("test_slow", {"seconds": 0.3}), id=i))
    ids = [fixture_stdio.recv()["id"] for _ in range(60)]
    assert sorted(ids) == list(range(60))
    assert time.monotonic() - begin < 2 * belljar.PATIENCE
    fixture_stdio.quiet()


def test_the_version_is_written_the_same_everywhere(real_place):
    stateless_info = real_place.modern("server/discover")["_meta"][META + "serverInfo"]
    opening = Client(real_place, NEWEST).opening["serverInfo"]
    assert stateless_info["version"] == opening["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", opening["version"])
