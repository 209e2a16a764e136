"""sandbox_read_file, sandbox_write_file, sandbox_list_files: right answers, and clear errors for
whatever a guest prepares for them."""

import base64
import errno
import os
import random
import time

import belljar
import pytest
import sandboxes
from belljar import FULL, PATIENCE, need
from sandboxes import Jar, ToolError

OPENAT2 = 437  # on every architecture
WITHIN = 5  # seconds, each call


@pytest.fixture(scope="module", params=["", "no openat2"])
def jar(request):
    """On this kernel, and on one without openat2: paths are walked by hand there."""
    need(belljar.BIN)
    old = sandboxes.refusing(OPENAT2, error=errno.ENOSYS) if request.param else []
    with Jar(before=old) as made:
        made.old = bool(request.param)
        yield made


class Box:
    """A session and its files."""

    def __init__(self, jar):
        self.jar = jar
        self.id = jar.tool("start_session")["session_id"]

    def timed(self, name, **arguments):
        began = time.monotonic()
        try:
            return self.jar.tool(name, session_id=self.id, timeout=WITHIN + 3, **arguments)
        finally:
            took = time.monotonic() - began
            assert took < WITHIN * PATIENCE, f"{name} {arguments} took {took:.1f} s"

    def read(self, path, **more):
        return self.timed("sandbox_read_file", path=path, **more)

    def write(self, path, content, **more):
        return self.timed("sandbox_write_file", path=path, content=content, **more)

    def list(self, **more):
        return self.timed("sandbox_list_files", **more)

    def sh(self, code, **more):
        run = self.jar.execute(code, session=self.id, **more)
        assert run.outcome == "ok", run
        return run.stdout


@pytest.fixture
def box(jar):
    made = Box(jar)
    yield made
    try:
        jar.close_session(made.id)
    except ToolError:
        pass


# --- ordinary -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "x", "line\n", "no end", "ä🔔\u2028", "a\tb\r\n\x1b[31m", "x" * 1_000_000],
    ids=["empty", "x", "line", "no newline", "unicode", "control", "1 MB"],
)
def test_what_is_written_is_read(box, content):
    said = box.write("notes.txt", content)
    assert said["size"] == len(content.encode()) and said["session_id"] == box.id
    read = box.read("notes.txt")
    assert read["text"] == content and read["size"] == len(content.encode())
    assert read["truncated"] is False
    assert box.sh("wc -c <notes.txt").strip() == str(len(content.encode()))


def test_any_bytes_by_base64(box):
    data = bytes(range(256)) * 500
    box.write("b", base64.b64encode(data).decode(), encoding="base64")
    read = box.read("b", encoding="base64")
    assert base64.b64decode(read["text"]) == data and read["encoding"] == "base64"
    assert "\ufffd" in box.read("b")["text"]


@pytest.mark.parametrize("content", ["x", "====", "a b c d", "Zm9v!", "Zg=", "\n"])
def test_bad_base64_is_refused(box, content):
    with pytest.raises(ToolError) as caught:
        box.write("b", content, encoding="base64")
    assert "base64" in str(caught.value)


@pytest.mark.parametrize(
    "path", ["a/b/c.txt", "/workspace/a/b/c.txt", "./a//b/./c.txt", "/workspace/./a/b/c.txt"]
)
def test_paths_mean_the_same(box, path):
    box.write(path, "here")
    assert box.sh("cat /workspace/a/b/c.txt") == "here"
    assert box.read("a/b/c.txt")["text"] == "here"


def test_a_file_written_belongs_to_the_guest(box):
    box.write("d/f", "x")
    assert (
        box.sh('echo y >>d/f; chmod 700 d/f; mv d/f d/g; rm -r d; [ "$(id -u)" != 0 ] && echo fine')
        == "fine\n"
    )


def test_a_write_replaces_whole_files(box):
    box.sh("echo long long text >f; chmod 640 f; ln f hard; exec 3<f")
    box.write("f", "new")
    assert box.sh("cat f; echo; cat hard") == "new\nlong long text\n"


def test_a_write_without_a_session_makes_one(jar):
    said = jar.tool("sandbox_write_file", path="f", content="first")
    run = jar.execute("cat f", session=said["session_id"])
    assert run.stdout == "first"
    jar.close_session(run.session)


def test_lists_tell_types_and_sizes(box):
    box.sh("mkdir d; echo abc >f; ln -s f l; mkfifo p; echo x >d/inner")
    said = box.list()
    found = {e["name"]: (e["type"], e["size"]) for e in said["entries"]}
    assert found["f"] == ("file", 4) and found["d"][0] == "directory", found
    assert found["l"][0] == "symlink" and found["p"][0] == "other", found
    assert [e["name"] for e in said["entries"]] == sorted(found)
    assert "d/inner" not in found and said["truncated"] is False
    deep = {e["name"] for e in box.list(recursive=True)["entries"]}
    assert "d/inner" in deep, deep
    assert [e["name"] for e in box.list(path="d")["entries"]] == ["inner"]
    assert box.list(path="/workspace/d")["entries"][0]["size"] == 2


def test_an_empty_directory(box):
    said = box.list()
    assert said["entries"] == [] and "empty" in said["text"]


# --- limits ---------------------------------------------------------------------------------------------


def test_a_large_file_is_cut_and_says_so(box):
    box.sh("head -c 5M /dev/zero | tr '\\0' x >big")
    read = box.read("big")
    assert read["truncated"] is True and read["size"] == 5 << 20
    assert "only the first" in read["text"] and len(read["text"]) < 2.2e6


def test_a_sparse_giant_is_no_trouble(box):
    box.sh("truncate -s 200M sparse")
    before = box.jar.rss()
    read = box.read("sparse")
    assert read["truncated"] is True and read["size"] == 200 << 20
    assert box.jar.rss() - before < 64 << 20
    assert box.list()["entries"][0]["size"] == 200 << 20


def test_too_large_a_write_is_refused(box):
    with pytest.raises(ToolError) as caught:
        box.write("f", "x" * ((10 << 20) + 1))
    assert "too large" in str(caught.value)
    assert box.list()["entries"] == []


def test_a_full_workspace_is_said_and_nothing_is_half_written(jar):
    small = Box(jar)
    jar.close_session(small.id)
    small.id = jar.tool("start_session", workspace_mib=1)["session_id"]
    small.write("old", "old content")
    with pytest.raises(ToolError) as caught:
        small.write("old", "x" * (3 << 20))
    assert "full" in str(caught.value)
    assert small.read("old")["text"] == "old content"
    assert [e["name"] for e in small.list()["entries"]] == ["old"], "a temporary file was left"
    jar.close_session(small.id)


@pytest.mark.timeout(180)
def test_a_hundred_thousand_files(box):
    box.sh(
        "python3 - <<'E'\nimport os\nos.mkdir('many')\nfor i in range(99900): os.close(os.open(f'many/{i:06}', os.O_CREAT))\nE",
        timeout=60,
    )
    for arguments in ({"path": "many"}, {"recursive": True}, {}):
        said = box.list(**arguments)
        if arguments:
            assert said["truncated"] is True and len(said["entries"]) == 2000, len(said["entries"])
            assert "2000" in said["text"]
    names = [e["name"] for e in box.list(path="many")["entries"]]
    assert names == sorted(names)
    assert box.read("many/099899")["text"] == ""


# --- names ----------------------------------------------------------------------------------------------

NAMES = [
    b"a\nb",
    b"tab\there",
    b"\x1b[31mred\x1b[0m",
    b"\xff\xfe\xfd",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"x" * 255,
    "\u202eexe.txt".encode(),
    b"\x7f",
    b"\x01",
    b" lead and trail ",
    b"-rf",
    b"$(touch owned)",
    b"quote\"'`\\",
    b"*?[x]",
    b"%s%n%x",
    b"...",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:40])
def test_strange_names_are_listed_on_one_line(box, name):
    octal = "".join(f"\\{byte:03o}" for byte in name)
    box.sh(f"cd /workspace; f=$(printf '{octal}.'); printf x >\"${{f%.}}\"")
    before = len(box.jar.received)
    said = box.list()
    assert len(said["entries"]) == 1 and said["entries"][0]["size"] == 1, said
    shown = said["entries"][0]["name"]
    assert not any(ord(c) < 32 or ord(c) == 127 for c in shown), ascii(shown)
    assert said["text"].count("\n") == 1, said["text"]
    bytes(box.jar.received[before:]).decode()  # valid UTF-8
    assert box.sh("find /workspace -mindepth 1 -printf x") == "x"


@pytest.mark.parametrize("name", ["a\nb", "tab\there", "ä🔔", "-rf", "$(x)", " ", "quote\"'", "*"])
def test_strange_names_can_be_written_and_read(box, name):
    box.write(name, "content")
    assert box.read(name)["text"] == "content"


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, words",
    [
        ("missing", "no such file"),
        ("d", "directory"),
        ("f/x", "not a directory"),
        ("../etc/passwd", "outside"),
        ("/etc/passwd", "outside"),
        ("/", "outside"),
        ("/workspacex", "outside"),
        ("/workspace/../etc/passwd", "outside"),
        ("d/../../etc/passwd", "outside"),
        ("fifo", "not a regular file"),
        ("socket", "not a regular file"),
    ],
)
def test_what_is_wrong_with_a_path_is_said(box, path, words):
    box.sh(
        "mkdir d; echo >f; mkfifo fifo; python3 -c 'import socket; socket.socket(1).bind(\"socket\")'"
    )
    with pytest.raises(ToolError) as caught:
        box.read(path)
    assert words in str(caught.value), caught.value


@pytest.mark.parametrize("path", ["", "x" * 5000, "a" * 300, "nul\0byte"])
def test_impossible_paths_are_refused(box, path):
    for name, more in (("sandbox_read_file", {}), ("sandbox_write_file", {"content": "x"})):
        with pytest.raises((ToolError, belljar.RpcError)):
            box.timed(name, path=path, **more)


# --- links ----------------------------------------------------------------------------------------------


def test_links_inside_the_workspace(box):
    """Followed or refused, but never with anything from elsewhere."""
    box.sh("echo inside >f; ln -s f l; mkdir d; ln -s d e; echo deep >d/g")
    for path, want in (("l", "inside\n"), ("e/g", "deep\n")):
        try:
            assert box.read(path)["text"] == want
        except ToolError as error:
            assert box.jar.old and len(str(error)) > 20, error


LINKS = [
    "/etc/passwd",
    "../etc/passwd",
    "/proc/self/environ",
    "/proc/1/environ",
    "/dev/zero",
    "/dev/tty",
    "/run/belljar/code",
    "/proc/self/root/etc/passwd",
    "/proc/self/fd/0",
    "/tmp/outside",
    "loop",
]


@pytest.mark.parametrize("target", LINKS)
def test_links_that_lead_out_are_refused(box, target):
    box.sh(f"echo outside >/tmp/outside; ln -s {target} loop; mkdir -p sub; ln -s / sub/root")
    with pytest.raises(ToolError) as caught:
        box.read("loop")
    assert (
        "outside" in str(caught.value)
        or "not a" in str(caught.value)
        or "link" in str(caught.value).lower()
    ), caught.value
    with pytest.raises(ToolError):
        box.read("sub/root/etc/passwd")
    with pytest.raises(ToolError):
        box.list(path="sub/root")
    with pytest.raises(ToolError):
        box.write("sub/root/tmp/planted", "x")
    assert "planted" not in box.sh("ls /tmp")
    assert box.sh("cat /tmp/outside") == "outside\n"


def test_a_write_over_a_link_replaces_the_link_or_is_refused(box):
    box.sh("echo kept >/tmp/target; ln -s /tmp/target l; ln -s /tmp/new dangling")
    for name in ("l", "dangling"):
        try:
            box.write(name, "written")
        except ToolError:
            pass
    assert box.sh("cat /tmp/target; ls /tmp").startswith("kept\n")
    assert "new" not in box.sh("ls /tmp").split()


SWAPS = {
    "file and link": "while :; do ln -sfn /etc/passwd t1; mv -T t1 x; echo fine >t2; mv -T t2 x; done",
    "directory and link": "mkdir -p real; echo fine >real/passwd; while :; do ln -sfn /etc t; mv -T t x 2>/dev/null || { rm -rf x; mv -T t x; }; rm -f x; cp -r real x; done",
    "file and FIFO": "while :; do mkfifo t1; mv -T t1 x; echo fine >t2; mv -T t2 x; done",
    "file and directory": "while :; do rm -rf x; mkdir x; rm -rf x; echo fine >x; done",
    "file that grows": "echo fine >x; while :; do head -c 1M /dev/zero >>x; [ $(stat -c %s x) -lt 100000000 ] || : >x; done",
    "exchange": None,
}
EXCHANGE = r"""
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("x"); open("x/passwd", "w").write("fine\n"); os.symlink("/etc", "y")
while True:
    libc.syscall(316, -100, b"x", -100, b"y", 2)  # renameat2, RENAME_EXCHANGE
"""


@pytest.mark.parametrize("kind", SWAPS)
def test_links_swapped_during_the_call(box, kind):
    """A guest that changes names all the time: our content or a clear error, in time."""
    code = SWAPS[kind] or f"cat >/tmp/s.py <<'E'\n{EXCHANGE}\nE\nexec python3 /tmp/s.py"
    if kind == "exchange" and os.uname().machine != "x86_64":
        pytest.skip("the number of renameat2 is that of x86-64")
    swapping = box.jar.begin(code, session=box.id, timeout=60)
    time.sleep(0.4)
    chance = random.Random(6)
    rounds = 1000 if FULL else 30 if kind == "file that grows" else 120
    answers = {"fine": 0, "refused": 0}
    path = "x/passwd" if kind in ("directory and link", "exchange") else "x"
    for _ in range(rounds):
        what = chance.randrange(10)
        try:
            if what < 6:
                text = box.read(path)["text"]
                assert "root:" not in text, "content from outside /workspace"
            elif what < 8 and kind != "file that grows":
                box.write(path, "fine\n")
            else:
                for entry in box.list(path="." if path == "x" else "x", recursive=True)["entries"]:
                    assert "shadow" not in entry["name"] and "hosts" not in entry["name"], entry
            answers["fine"] += 1
        except ToolError as error:
            assert len(str(error)) > 15, error
            answers["refused"] += 1
    swapping.cancel()
    assert answers["fine"], answers
    assert box.sh("head -1 /etc/passwd").startswith("root:"), "the guest's own file was overwritten"


def test_devices_cannot_stall_a_call(box):
    box.sh("ln -s /dev/zero zero; ln -s /dev/tty tty; mkfifo fifo; ln -s fifo link")
    for name in ("zero", "tty", "fifo", "link"):
        with pytest.raises(ToolError):
            box.read(name)
    for name in ("zero", "tty", "fifo", "link"):
        try:
            box.write(name, "replaced")
        except ToolError:
            pass


def test_many_file_calls_at_once(box):
    calls = [
        box.jar.submit(
            "tools/call",
            belljar.call_tool(
                "sandbox_write_file",
                {"session_id": box.id, "path": f"f{i}", "content": str(i) * 1000},
            ),
        )
        for i in range(50)
    ]
    for call in calls:
        assert not call.result(10).get("isError"), call.result()
    for i in (0, 25, 49):
        assert box.read(f"f{i}")["text"] == str(i) * 1000


def test_the_guest_is_busy_the_files_answer(box):
    """A session that computes, forks and writes all the time still answers file calls."""
    run = box.jar.begin(
        "(while :; do :; done)& while :; do (echo x >f); done", session=box.id, timeout=30
    )
    for _ in range(20):
        try:
            box.read("f")
        except ToolError as error:
            assert "no such file" in str(error)
        box.write("g", "y")
    run.cancel()


def test_stopped_or_killed_guests_do_not_matter(box):
    box.jar.execute("kill -STOP -1; kill -STOP $$", session=box.id, timeout=0.5)
    box.write("f", "still here")
    assert box.read("f")["text"] == "still here"
