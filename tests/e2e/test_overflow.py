"""Output that does not fit is kept whole, as a file of the session that the result names."""

import pytest
from sandboxes import Jar

READABLE = 32 << 10
LINE = "0123456789abcdef" * 4  # 64 bytes with its newline


@pytest.fixture(scope="module", params=["handshake", "stateless"])
def jar(request):
    with Jar(era=request.param) as jar:
        yield jar


def lines(count):
    return "".join(f"{n:062d}\n" for n in range(count))


def print_lines(count, stream=""):
    return f"seq -f '%062g' 0 {count - 1} {stream}"


def read_all(jar, entry, session):
    """The file in parts, as a model would."""
    text, offset = "", 0
    while True:
        part = jar.tool("sandbox_read_file", path=entry["name"], session_id=session, offset=offset)
        text += part["text"].rpartition("\n[note] ")[0] if part["truncated"] else part["text"]
        offset += part["length"]
        if not part["truncated"]:
            return text


def test_short_output_leaves_no_file(jar):
    run = jar.execute("echo hi; echo ho >&2")
    assert run.said["overflow"] == [] and not run.truncated
    listed = jar.tool("sandbox_list_files", session_id=run.session)["entries"]
    assert listed == []


@pytest.mark.parametrize("language", ["bash", "python"])
def test_output_longer_than_the_text_is_kept(jar, language):
    code = {
        "bash": print_lines(1000),
        "python": "for n in range(1000): print(f'{n:062d}')",
    }[language]
    run = jar.execute(code, language)
    (entry,) = run.said["overflow"]
    assert entry["stream"] == "stdout" and entry["complete"] and entry["size"] == 63 * 1000
    assert entry["uri"] == f"kernel://{run.session}/{entry['name']}"
    assert run.stdout == lines(1000) and not run.truncated  # the structure has room for it
    assert len(run.text) < READABLE + 2000 and "bytes left out" in run.text
    assert (
        f"all of stdout is in /workspace/{entry['name']}" in run.text and entry["uri"] in run.text
    )
    (contents,) = jar.call("resources/read", {"uri": entry["uri"]})["contents"]
    assert contents["text"] == lines(1000) and contents["mimeType"] == "text/plain"


def test_what_was_cut_out_of_the_structure_is_in_the_file(jar):
    run = jar.execute(print_lines(40000))  # 2.5 MB, output_limit is 1 MiB
    (entry,) = run.said["overflow"]
    assert run.truncated and entry["complete"] and entry["size"] == 63 * 40000
    assert run.stdout.startswith(lines(8000)) and run.stdout.endswith("0" * 57 + "39999\n")
    left_out = 63 * 40000 - (1 << 20)
    assert f"[… {left_out} bytes left out …]" in run.stdout
    check = jar.execute(
        f"{print_lines(40000)} | cmp - {entry['name']} && echo same", "bash", run.session
    )
    assert check.stdout == "same\n"


def test_both_streams_have_their_own_file(jar):
    run = jar.execute(f"{print_lines(1000)}; {print_lines(10, '>&2')}")
    out, err = run.said["overflow"]
    assert (out["stream"], err["stream"]) == ("stdout", "stderr")
    assert read_all(jar, err, run.session) == lines(10)


def test_output_beyond_the_overflow_limit_has_head_and_tail():
    with Jar("--overflow-limit=2m", "--max-read=4m", "--max-answer=16m") as jar:
        run = jar.execute(print_lines(50000))  # 3.15 MB
        (entry,) = run.said["overflow"]
        assert not entry["complete"] and (2 << 20) <= entry["size"] < (2 << 20) + 100
        assert "the beginning and the end of stdout" in run.text
        (contents,) = jar.call("resources/read", {"uri": entry["uri"]})["contents"]
        assert contents["text"].startswith(lines(20000))
        assert contents["text"].endswith("0" * 57 + "49999\n")
        assert f"[… {63 * 50000 - (2 << 20)} bytes left out …]" in contents["text"]


@pytest.mark.parametrize("count, complete", [(33288, True), (33290, False)])
def test_the_limit_holds_at_its_edge(count, complete):
    with Jar("--overflow-limit=2m") as jar:  # 2 MiB are 33288.1 lines
        (entry,) = jar.execute(print_lines(count)).said["overflow"]
        assert entry["complete"] is complete


def test_nothing_is_kept_when_that_is_turned_off():
    with Jar("--overflow-limit=0") as jar:
        run = jar.execute(print_lines(40000))
        assert run.truncated and run.said["overflow"] == []
        assert "bytes left out" in run.stdout and ".belljar" not in run.text


def test_memory_for_gathering_is_bounded():
    with Jar("--overflow-memory=0") as jar:
        run = jar.execute(print_lines(60000))
        (entry,) = run.said["overflow"]
        assert not entry["complete"] and entry["size"] < (2 << 20)
        assert run.stdout.startswith(lines(8000)) and run.stdout.endswith("0" * 57 + "59999\n")
        left_out = 63 * 60000 - (1 << 20)
        assert f"[… {left_out} bytes left out …]" in run.stdout


def test_only_the_newest_files_are_kept():
    with Jar("--overflow-files=2") as jar:
        first = jar.execute(print_lines(1000))
        session = first.session
        later = [jar.execute(print_lines(1000), "bash", session) for _ in range(2)]
        listed = jar.tool("sandbox_list_files", session_id=session, path=".belljar")["entries"]
        kept = [run.said["overflow"][0]["name"].split("/")[1] for run in later]
        assert [entry["name"] for entry in listed] == kept
        assert len({run.said["overflow"][0]["uri"] for run in [first, *later]}) == 3


def test_the_files_are_hidden_from_reports_and_lists(jar):
    run = jar.execute("open('mine.txt', 'w').close()\nprint('x' * 100000)", "python")
    assert run.said["overflow"]
    again = jar.execute("print('y' * 100000)", "python", run.session)
    assert [file["name"] for file in run.said["files"]] == ["mine.txt"]
    assert again.said["files"] == []
    listed = jar.tool("list_session_files", session_id=run.session)["files"]
    assert [file["name"] for file in listed] == ["mine.txt"]
    uris = [item["uri"] for item in jar.call("resources/list")["resources"]]
    assert f"kernel://{run.session}/mine.txt" in uris and not any(".belljar" in u for u in uris)


def test_a_full_workspace_is_said_and_the_answer_comes_all_the_same():
    with Jar("--workspace-size=1m") as jar:
        run = jar.execute("head -c 1m /dev/zero >fill 2>/dev/null; " + print_lines(1000))
        assert run.outcome == "ok" and run.said["overflow"] == []
        assert "could not be kept as a file: /workspace is full" in run.text
        assert run.stdout == lines(1000)


@pytest.mark.parametrize("trap", ["touch .belljar", "ln -s /tmp .belljar", "mkfifo .belljar"])
def test_a_guest_in_the_way_only_harms_itself(jar, trap):
    run = jar.execute(f"{trap}; {print_lines(1000)}")
    assert run.outcome == "ok" and run.said["overflow"] == []
    assert "could not be kept as a file" in run.text and run.stdout == lines(1000)


def test_binary_output_is_kept_byte_for_byte(jar):
    run = jar.execute("head -c 100000 /dev/zero | tr '\\0' '\\377'")
    (entry,) = run.said["overflow"]
    check = jar.execute(
        f"tr -d '\\377' <{entry['name']} | wc -c; wc -c <{entry['name']}", "bash", run.session
    )
    assert check.stdout.split() == ["0", "100000"]


def test_a_timeout_keeps_what_there_was(jar):
    run = jar.execute(f"{print_lines(1000)}; sleep 60", timeout=2)
    assert run.outcome == "timeout"
    assert run.said["overflow"][0]["size"] == 63 * 1000


def test_a_session_that_ends_meanwhile_does_no_harm(jar):
    session = jar.tool("start_session")["session_id"]
    waiting = [jar.begin(print_lines(30000), session=session) for _ in range(4)]
    jar.close_session(session)
    for one in waiting:
        assert one.result()["structuredContent"]["overflow"] == []
    jar.ping()
