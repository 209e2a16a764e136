"""Files of sessions as resources: listed, read, completed, watched; in both eras, over both transports."""

import base64
import threading

import belljar
import pytest
from belljar import META, NEWEST, RpcError, call_tool, stateless
from sandboxes import LONG, Jar, ToolError, ordinary_user, until

NOT_FOUND = {"handshake": -32002, "stateless": -32602}
ERAS = ["handshake", "stateless"]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module", params=ERAS)
def jar(request):
    with Jar(era=request.param) as jar:
        jar.era = request.param
        yield jar


def uri(session, path):
    return f"kernel://{session}/{path}"


def write(jar, path, content, session=None, encoding="text"):
    more = {"session_id": session} if session else {}
    return jar.tool("sandbox_write_file", path=path, content=content, encoding=encoding, **more)[
        "session_id"
    ]


def read(jar, session, path):
    return jar.call("resources/read", {"uri": uri(session, path)})["contents"]


def refused(call, *args):
    with pytest.raises(RpcError) as refusal:
        call(*args)
    return refusal.value


def all_pages(jar):
    resources, cursor = [], {}
    while cursor is not None:
        page = jar.call("resources/list", cursor)
        resources += page["resources"]
        cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
    return resources


# --- what is offered ------------------------------------------------------------------------------


def test_capabilities_say_what_is_offered():
    with belljar.Stdio() as server:
        handshake = server.initialize()["capabilities"]
        modern = server.modern("server/discover")["capabilities"]
    for capabilities in (handshake, modern):
        assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
        assert capabilities["prompts"] == {} and capabilities["completions"] == {}


def test_there_is_one_template(jar):
    (template,) = jar.call("resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "kernel://{session_id}/{+path}"
    assert template["name"] and template["title"] and template["description"]


def test_the_list_is_empty_before_there_are_files():
    with Jar() as jar:
        assert jar.call("resources/list")["resources"] == []
        jar.execute("true")
        assert jar.call("resources/list")["resources"] == []


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, content, mime",
    [
        ("notes.txt", "plain\n", "text/plain"),
        ("a/b/data.csv", "x,y\n1,2\n", "text/csv"),
        ("data.json", '{"ä": 1}', "application/json"),
        ("page.HTML", "<p>", "text/html"),
        ("drawing.svg", "<svg/>", "image/svg+xml"),
        ("README", "no suffix", "text/plain"),
        ("empty.txt", "", "text/plain"),
        ("name with blanks & ünïcode #?%.txt", "odd", "text/plain"),
    ],
)
def test_text_is_read_as_text(jar, path, content, mime):
    session = write(jar, path, content)
    (listed,) = jar.tool("list_session_files", session_id=session)["files"]
    assert listed["name"] == path and listed["size"] == len(content.encode())
    (contents,) = jar.call("resources/read", {"uri": listed["uri"]})["contents"]
    assert contents == {"uri": listed["uri"], "mimeType": mime, "text": content}


@pytest.mark.parametrize(
    "path, data, mime",
    [
        ("plot.png", base64.b64decode(PNG), "image/png"),
        ("unnamed", base64.b64decode(PNG), "image/png"),
        ("blob", b"\x00\x01\x02", "application/octet-stream"),
        ("not-really.txt", b"caf\xe9", "text/plain"),
        ("nul.txt", b"a\0b", "text/plain"),
    ],
)
def test_bytes_are_read_as_a_blob(jar, path, data, mime):
    encoded = base64.b64encode(data).decode()
    session = write(jar, path, encoded, encoding="base64")
    (contents,) = read(jar, session, path)
    assert contents == {"uri": uri(session, path), "mimeType": mime, "blob": encoded}


def test_a_figure_that_code_saved_is_read_back(jar):
    run = jar.execute(
        f"import base64; open('sine.png', 'wb').write(base64.b64decode('{PNG}')); None",
        language="python",
    )
    (file,) = run.said["files"]
    assert file["uri"] == uri(run.session, "sine.png") and file["mime_type"] == "image/png"
    (contents,) = jar.call("resources/read", {"uri": file["uri"]})["contents"]
    assert contents["blob"] == PNG


def test_what_is_no_regular_file_is_not_found(jar):
    session = jar.execute(
        "mkdir dir; mkfifo pipe; ln -s /etc/hostname out; ln -s gone dangling; echo x >f; chmod 0 f"
    ).session
    for path in ["nothing", "dir", "pipe", "out", "dangling", "../etc/hostname", "f/x", "%2Fetc/x"]:
        error = refused(read, jar, session, path)
        assert error.code == NOT_FOUND[jar.era], path
        assert error.data == {"uri": uri(session, path)}


@pytest.mark.parametrize("bad", ["kernel://", "kernel://x", "kernel:///x", "file:///etc/hostname"])
def test_other_uris_are_not_found(jar, bad):
    assert refused(jar.call, "resources/read", {"uri": bad}).code == NOT_FOUND[jar.era]


def test_a_path_with_a_nul_is_not_found(jar):
    session = write(jar, "a", "x")
    assert refused(read, jar, session, "a%00b").code == NOT_FOUND[jar.era]
    assert refused(read, jar, session, "%ff").code == NOT_FOUND[jar.era]


def test_a_file_at_the_limit_is_read_and_one_byte_more_is_explained():
    with Jar("--max-read=4k") as jar:
        session = write(jar, "fits", "x" * 4096)
        write(jar, "more", "x" * 4097, session)
        assert len(read(jar, session, "fits")[0]["text"]) == 4096
        error = refused(read, jar, session, "more")
        assert error.code == -32603 and "4097 bytes" in error.message
        part = jar.tool(
            "sandbox_read_file", path="more", session_id=session, offset=4090, length=100
        )
        assert (part["offset"], part["length"], part["size"]) == (4090, 7, 4097)
        assert not part["truncated"]


def test_text_that_grows_in_json_becomes_a_blob():
    with Jar("--max-read=64k", "--max-answer=128k") as jar:
        session = jar.execute("head -c 40000 /dev/zero | tr '\\0' '\\033' >esc.txt").session
        (contents,) = read(jar, session, "esc.txt")
        assert base64.b64decode(contents["blob"]) == b"\x1b" * 40000


# --- listing --------------------------------------------------------------------------------------


def test_files_of_all_own_sessions_are_listed_with_type_and_size(jar):
    first = jar.execute("echo one >one.txt; mkdir -p d/e; echo '{}' >d/e/two.json").session
    second = write(jar, "b.csv", "1,2\n")
    found = {item["uri"]: item for item in all_pages(jar)}
    assert found[uri(first, "one.txt")] == {
        "uri": uri(first, "one.txt"),
        "name": "one.txt",
        "mimeType": "text/plain",
        "size": 4,
    }
    assert found[uri(first, "d/e/two.json")]["mimeType"] == "application/json"
    assert found[uri(second, "b.csv")]["size"] == 4
    jar.close_session(first)
    assert not any(first in item["uri"] for item in all_pages(jar))


def test_caches_links_and_strange_names_are_left_out(jar):
    session = jar.execute(
        "mkdir .git node_modules __pycache__ ok; touch .git/a node_modules/b __pycache__/c ok/d;"
        "ln -s ok/d link; mkfifo pipe; touch \"$(printf 'bad\\377')\" .dotfile"
    ).session
    listed = jar.tool("list_session_files", session_id=session)
    assert [file["name"] for file in listed["files"]] == [".dotfile", "ok/d"]
    assert not listed["truncated"]


@pytest.mark.parametrize("era", ERAS)
def test_pages_hold_each_file_once(era):
    with Jar("--page-size=7", era=era) as jar:
        sessions = [jar.execute(f"touch $(seq -f '%03g.txt' {n})").session for n in (10, 1, 15)]
        page = jar.call("resources/list")
        assert len(page["resources"]) == 7 and page["nextCursor"]
        if era == "stateless":
            assert page["cacheScope"] == "private" and page["ttlMs"] == 0
        uris = [item["uri"] for item in all_pages(jar)]
        assert len(uris) == len(set(uris)) == 26
        assert {u.split("/")[2] for u in uris} == set(sessions)


def test_a_cursor_survives_the_file_and_the_session_it_names():
    with Jar("--page-size=2") as jar:
        for _ in range(3):
            jar.execute("touch a b c")
        page = jar.call("resources/list")
        gone = page["resources"][-1]["uri"].split("/")[2]
        jar.close_session(gone)
        rest = jar.call("resources/list", {"cursor": page["nextCursor"]})["resources"]
        assert rest and all(gone not in item["uri"] for item in rest)


@pytest.mark.parametrize("cursor", ["", "x", "cmVzb3VyY2VzOjE=", "cmVzb3VyY2VzPm5vbnNlbnNl", 7])
def test_a_made_up_cursor_is_refused(jar, cursor):
    assert refused(jar.call, "resources/list", {"cursor": cursor}).code == -32602


def test_a_list_is_bounded():
    with Jar("--max-list=50") as jar:
        session = jar.execute("touch $(seq 60)").session
        listed = jar.tool("list_session_files", session_id=session)
        assert len(listed["files"]) == 50 and listed["truncated"]
        assert len(all_pages(jar)) == 50


def test_listing_does_not_keep_a_session_alive():
    with Jar("--session-timeout=2s") as jar:
        jar.execute("touch x")
        until(lambda: not jar.call("resources/list")["resources"], "the end of the session")


def test_list_session_files_of_no_session(jar):
    with pytest.raises(ToolError, match="session_id: no such session"):
        jar.tool("list_session_files", session_id="nobody")


# --- whose they are -------------------------------------------------------------------------------


def test_other_clients_see_and_read_nothing():
    with belljar.Http("--token", "0123456789abcdef0123") as server:
        headers = {"Authorization": "Bearer 0123456789abcdef0123"}
        server.modern("tools/list", headers=headers)
    with belljar.Http() as server:
        mine, other = server.session(), server.session()
        arguments = {"path": "secret.txt", "content": "mine"}
        made = mine.call("tools/call", call_tool("sandbox_write_file", arguments), timeout=LONG)
        session = made["structuredContent"]["session_id"]
        target = {"uri": uri(session, "secret.txt")}
        assert mine.call("resources/read", target)["contents"][0]["text"] == "mine"
        assert len(mine.call("resources/list")["resources"]) == 1

        ref = {"type": "ref/resource", "uri": "kernel://{session_id}/{+path}"}
        asked = {"ref": ref, "argument": {"name": "session_id", "value": ""}}
        path = {
            "ref": ref,
            "argument": {"name": "path", "value": ""},
            "context": {"arguments": {"session_id": session}},
        }
        assert mine.call("completion/complete", asked)["completion"]["values"] == [session]
        assert mine.call("completion/complete", path)["completion"]["values"] == ["secret.txt"]

        for client in (other.call, server.modern):
            error = refused(client, "resources/read", target)
            missing = refused(client, "resources/read", {"uri": uri("nobody", "secret.txt")})
            assert (error.code, error.message) == (missing.code, missing.message)
            assert client("resources/list")["resources"] == []
            assert client("completion/complete", asked)["completion"]["values"] == []
            assert client("completion/complete", path)["completion"]["values"] == []


# --- completion -----------------------------------------------------------------------------------


def test_session_ids_and_paths_are_completed(jar):
    session = write(jar, "data/one.csv", "1")
    write(jar, "data/two.csv", "2", session)
    write(jar, "other.txt", "3", session)
    ref = {"type": "ref/resource", "uri": "kernel://{session_id}/{+path}"}

    def complete(name, value, **known):
        params = {"ref": ref, "argument": {"name": name, "value": value}}
        if known:
            params["context"] = {"arguments": known}
        return jar.call("completion/complete", params)["completion"]["values"]

    assert complete("session_id", session[:5]) == [session]
    assert complete("session_id", "~") == []
    assert complete("path", "data/", session_id=session) == ["data/one.csv", "data/two.csv"]
    assert complete("path", "data/t", session_id=session) == ["data/two.csv"]
    assert complete("path", "", session_id="nobody") == []
    assert refused(complete, "colour", "").code == -32602


# --- notifications --------------------------------------------------------------------------------


class Heard:
    """Notifications of one client, by kind."""

    def __init__(self, jar):
        self.jar, self.at = jar, len(jar.notes)

    def new(self):
        notes = self.jar.notes[self.at :]
        return [(n["method"].removeprefix("notifications/"), n.get("params", {})) for n in notes]

    def updated(self):
        return [params["uri"] for kind, params in self.new() if kind == "resources/updated"]

    def listed(self):
        return [kind for kind, _ in self.new() if kind == "resources/list_changed"]

    def clear(self):
        self.at = len(self.jar.notes)


def follow(jar, *uris):
    """Subscribes to uris and to the list, as the era has it."""
    if not jar.modern_era:
        jar.call("resources/list")
        for one in uris:
            assert jar.call("resources/subscribe", {"uri": one}) == {}
        return
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": list(uris)}
    jar.submit("subscriptions/listen", {"notifications": wanted})
    until(
        lambda: any(n["method"].endswith("/acknowledged") for n in jar.notes if "method" in n),
        "the acknowledgement",
    )


def settled(jar, session):
    """What is heard once the server knows what there was: a change before may be told too widely."""
    heard = Heard(jar)
    write(jar, "settled", "", session)
    until(heard.listed, "list_changed")
    jar.call("resources/list")
    heard.clear()
    return heard


@pytest.mark.parametrize("language", ["python", "bash"])
@pytest.mark.parametrize("era", ERAS)
def test_a_run_tells_what_it_created_changed_and_deleted(era, language):
    code = {
        "python": {
            "create": "f = open('new.txt', 'w'); f.write('1'); f.close()",
            "change": "f = open('old.txt', 'w'); f.write('longer'); f.close()",
            "delete": "import os; os.remove('old.txt')",
            "nothing": "1 + 1",
        },
        "bash": {
            "create": "echo 1 >new.txt",
            "change": "echo longer >old.txt",
            "delete": "rm old.txt",
            "nothing": "true",
        },
    }[language]
    with Jar(era=era) as jar:
        session = write(jar, "old.txt", "old")
        follow(jar, uri(session, "old.txt"), uri(session, "new.txt"))
        heard = settled(jar, session)

        jar.execute(code["create"], language, session)
        until(heard.listed, "list_changed")
        assert heard.updated() == [uri(session, "new.txt")]

        heard.clear()
        jar.execute(code["change"], language, session)
        until(lambda: heard.updated() == [uri(session, "old.txt")], "updated")
        assert not heard.listed()

        heard.clear()
        jar.execute(code["nothing"], language, session)
        jar.execute(code["delete"], language, session)
        until(heard.listed, "list_changed")
        assert heard.updated() == [uri(session, "old.txt")]
        if era == "stateless":
            assert all(META + "subscriptionId" in params["_meta"] for _, params in heard.new())


@pytest.mark.parametrize("era", ERAS)
def test_the_end_of_a_session_is_told(era):
    with Jar(era=era) as jar:
        session = write(jar, "old.txt", "old")
        follow(jar, uri(session, "old.txt"))
        heard = Heard(jar)
        jar.close_session(session)
        until(heard.listed, "list_changed")
        assert heard.updated() == [uri(session, "old.txt")]


@pytest.mark.parametrize("era", ERAS)
def test_a_written_file_is_told(era):
    with Jar(era=era) as jar:
        session = write(jar, "a.txt", "1")
        follow(jar, f"kernel://{session}")  # all below it
        heard = settled(jar, session)
        write(jar, "b.txt", "2", session)
        until(heard.listed, "list_changed")
        assert heard.updated() == [uri(session, "b.txt")]
        heard.clear()
        write(jar, "a.txt", "other", session)
        until(lambda: heard.updated() == [uri(session, "a.txt")], "updated")


def test_who_unsubscribed_hears_no_more():
    with Jar() as jar:
        session = write(jar, "a.txt", "1")
        target = uri(session, "a.txt")
        follow(jar, target)
        jar.call("resources/unsubscribe", {"uri": target})
        heard = Heard(jar)
        write(jar, "a.txt", "22", session)
        write(jar, "b.txt", "1", session)
        until(heard.listed, "list_changed")
        assert not heard.updated()


def test_who_has_not_asked_hears_only_of_new_files_that_python_reports():
    with Jar() as jar:
        heard = Heard(jar)
        run = jar.execute("f = open('a', 'w'); f.close()", "python")
        until(heard.listed, "list_changed")
        heard.clear()
        jar.execute("1 + 1", "python", run.session)
        jar.ping()
        assert not heard.new()


def test_notifications_over_http_reach_their_owner_only():
    with belljar.Http() as server:
        mine, other = server.session(), server.session()
        made = mine.call(
            "tools/call",
            call_tool("sandbox_write_file", {"path": "a.txt", "content": "1"}),
            timeout=LONG,
        )["structuredContent"]["session_id"]
        target = uri(made, "a.txt")
        for client in (mine, other):
            client.call("resources/subscribe", {"uri": target})
        listen = stateless(
            "subscriptions/listen",
            {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": [target]}},
            id="l",
        )
        with mine.open_get() as stream, other.open_get() as deaf, server.open(listen) as modern:
            assert "acknowledged" in modern.event().json()["method"]
            for one in (stream, deaf):
                assert one.event().data == "", "a stream begins with an event without data"
            arguments = {"code": "echo 22 >a.txt; touch b.txt", "language": "bash"}
            arguments["session_id"] = made
            mine.call("tools/call", call_tool("execute_code", arguments), timeout=LONG)
            methods = [stream.event(LONG).json()["method"] for _ in range(2)]
            assert methods == [
                "notifications/resources/updated",
                "notifications/resources/list_changed",
            ]
            assert deaf.silent() and modern.silent()


def test_a_stateless_listener_over_http_is_told():
    with belljar.Http() as server:
        made = server.modern(
            "tools/call",
            call_tool("sandbox_write_file", {"path": "a.txt", "content": "1"}),
            timeout=LONG,
        )["structuredContent"]["session_id"]
        target = uri(made, "a.txt")
        wanted = {"resourcesListChanged": True, "resourceSubscriptions": [target]}
        listen = stateless("subscriptions/listen", {"notifications": wanted}, id="l")
        with server.open(listen) as stream:
            assert "acknowledged" in stream.event().json()["method"]
            arguments = {"code": "echo 22 >a.txt; touch b.txt", "language": "bash"}
            arguments["session_id"] = made
            server.modern("tools/call", call_tool("execute_code", arguments), timeout=LONG)
            update, changed = (stream.event(LONG).json() for _ in range(2))
            assert update["params"]["uri"] == target
            assert changed["method"] == "notifications/resources/list_changed"
            for note in (update, changed):
                assert note["params"]["_meta"][META + "subscriptionId"] == "l"
            server.modern(
                "tools/call", call_tool("clear_session", {"session_id": made}), timeout=LONG
            )
            assert stream.event(LONG).json()["params"]["uri"] == target


def test_files_listed_while_sessions_end_do_no_harm():
    with Jar() as jar:
        sessions = [jar.execute("touch a b c").session for _ in range(6)]
        asked = [jar.submit("resources/list") for _ in range(20)]
        ender = threading.Thread(target=lambda: [jar.close_session(s) for s in sessions])
        ender.start()
        for one in asked:
            assert isinstance(one.result()["resources"], list)
        ender.join()
        assert jar.call("resources/list")["resources"] == []


# --- prompts, instructions, tools as they are shown -----------------------------------------------


def test_the_prompt_teaches_and_carries_a_task(jar):
    (prompt,) = jar.call("prompts/list")["prompts"]
    assert prompt["name"] == "run_code" and prompt["arguments"][0]["name"] == "task"
    plain = jar.call("prompts/get", {"name": "run_code"})
    told = jar.call("prompts/get", {"name": "run_code", "arguments": {"task": "Count to ten."}})
    (message,) = told["messages"]
    for word in ("session_id", "execute_code", "/workspace", "kernel://", "clear_session"):
        assert word in message["content"]["text"]
    assert message["role"] == "user" and message["content"]["text"].endswith("Count to ten.\n")
    assert "Count to ten" not in plain["messages"][0]["content"]["text"]
    assert refused(jar.call, "prompts/get", {"name": "no"}).code == -32602


def test_every_tool_is_described_for_models_and_people(jar):
    tools = {tool["name"]: tool for tool in jar.call("tools/list")["tools"]}
    for tool in tools.values():
        assert tool["title"] and tool["icons"] and len(tool["description"]) > 60
        assert tool["outputSchema"]["type"] == "object"
        for field in tool["inputSchema"]["properties"].values():
            assert field["description"]
    reading = {name for name, tool in tools.items() if tool["annotations"]["readOnlyHint"]}
    assert reading == {
        "sandbox_read_file",
        "sandbox_list_files",
        "list_session_files",
        "session_info",
    }
    assert tools["clear_session"]["annotations"]["destructiveHint"]
    assert not tools["start_session"]["annotations"]["destructiveHint"]
    reaching = {name for name, tool in tools.items() if tool["annotations"]["openWorldHint"]}
    assert reaching == {"install_packages"}


def test_instructions_are_precise():
    with belljar.Stdio() as server:
        told = server.initialize(NEWEST)["instructions"]
        assert told == server.modern("server/discover")["instructions"]
    for word in ("execute_code", "session_id", "/workspace", "kernel://", "no network"):
        assert word in told


def test_an_ordinary_user_can_serve_them_too():
    with Jar(user=ordinary_user()) as jar:
        session = write(jar, "a.txt", "mine")
        follow(jar, uri(session, "a.txt"))
        heard = settled(jar, session)
        jar.execute("echo more >>a.txt", "bash", session)
        until(heard.updated, "updated")
        assert read(jar, session, "a.txt")[0]["text"] == "minemore\n"
        run = jar.execute("seq 20000", "bash", session)
        (entry,) = run.said["overflow"]
        (contents,) = jar.call("resources/read", {"uri": entry["uri"]})["contents"]
        assert contents["text"] == run.stdout and contents["text"].endswith("\n20000\n")
        names = [
            file["name"] for file in jar.tool("list_session_files", session_id=session)["files"]
        ]
        assert names == ["a.txt", "settled"]
