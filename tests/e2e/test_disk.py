"""Workspaces on disk: files that outlive their session and the server, within limits, whole, one's own."""

import base64
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time

import belljar
import pytest
from belljar import RpcError, call_tool, text_of, unwrap
from sandboxes import LONG, Jar, ToolError, ordinary_user, until

PAGE, ENTRY = 4096, 1024  # what a small file counts against workspace_dir_size


def names_in(place):
    """Nothing, too, when it is not there, or goes while we look: empty directories are removed in time."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(place))
    return []


class Disk:
    """A directory, and servers over it."""

    def __init__(self, user):
        self.user = user
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-disk-"))
        self.place.chmod(0o711)
        if user:
            os.chown(self.place, user.uid, user.gid)
        self.dir = self.place / "deep/er"

    def start(self, *flags, **options):
        few = ["--no-pool-enabled", "--no-packages-enabled"]
        return Jar(
            *["--workspace", "disk", "--workspace-dir", str(self.dir), *few, *flags],
            user=self.user,
            **options,
        )

    @contextlib.contextmanager
    def killed(self, *flags):
        """A server that is killed at the end."""
        jar = self.start(*flags)
        try:
            yield jar
        finally:
            jar.process.kill()
            jar.process.wait()
            jar._forget_state()

    def sessions(self, owner="stdio", profile="default"):
        return names_in(self.dir / profile / owner)

    def files(self, session, owner="stdio", profile="default"):
        return self.dir / profile / owner / session / "files"


@pytest.fixture(params=["root", "user"])
def disk(request):
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("this is the ordinary user")
    made = Disk(ordinary_user() if request.param == "user" else None)
    yield made
    shutil.rmtree(made.place)


@pytest.fixture
def one_disk():
    """For what has nothing to do with who runs the server."""
    made = Disk(None)
    yield made
    shutil.rmtree(made.place)


def read(jar, session, path):
    return jar.tool("sandbox_read_file", path=path, session_id=session, encoding="base64")["text"]


def names(jar, session):
    said = jar.tool("sandbox_list_files", session_id=session, recursive=True)
    return {entry["name"]: entry["type"] for entry in said["entries"]}


# --- coming back ---------------------------------------------------------------------------------


def test_files_are_there_after_a_restart(disk):
    with disk.start() as jar:
        session = jar.execute(
            "mkdir -p a/b; echo one >a/b/one; printf 'x\\0y' >bytes; mkdir empty\n"
            "echo 'echo ran' >prog; chmod 755 prog; ln -s a/b/one link; ln -s /etc/passwd out"
        ).session
    with disk.start() as jar:
        assert names(jar, session) == {
            "a": "directory",
            "a/b": "directory",
            "a/b/one": "file",
            "bytes": "file",
            "empty": "directory",
            "link": "symlink",
            "out": "symlink",
            "prog": "file",
        }
        assert base64.b64decode(read(jar, session, "bytes")) == b"x\0y"
        assert base64.b64decode(read(jar, session, "link")) == b"one\n"
        with pytest.raises(ToolError, match="outside"):
            read(jar, session, "out")
        run = jar.execute("./prog; cat a/b/one; readlink out; stat -c %Y bytes", session=session)
        assert run.session == session and run.stdout.startswith("ran\none\n/etc/passwd\n")
        assert time.time() - int(run.stdout.split()[-1]) < 600 * belljar.PATIENCE


def test_what_came_from_the_disk_is_not_told_as_changed(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("for i in $(seq 300); do echo $i >f$i; done").session
    for _ in range(3):
        with one_disk.start() as jar:
            run = jar.execute("echo new >new", session=session)
            assert [file["name"] for file in run.said["files"]] == ["new"]
            run = jar.execute("touch -d 2001-01-01 f7", session=session)
            assert [file["name"] for file in run.said["files"]] == ["f7"]


def test_resources_list_and_read_what_is_on_the_disk_only(disk):
    with disk.start() as jar:
        session = jar.execute("mkdir d; echo hello >d/note.txt; echo '{}' >data.json").session
    with disk.start() as jar:
        listed = {one["uri"]: one for one in jar.call("resources/list")["resources"]}
        note = f"kernel://{session}/d/note.txt"
        assert set(listed) == {note, f"kernel://{session}/data.json"}
        assert listed[note]["size"] == 6 and listed[note]["mimeType"] == "text/plain"
        said = jar.tool("list_session_files", session_id=session)
        assert [file["name"] for file in said["files"]] == ["d/note.txt", "data.json"]
        with pytest.raises(ToolError, match="no such session"):
            jar.info(session)  # nothing was opened so far
        contents = jar.call("resources/read", {"uri": note})["contents"]
        assert contents[0]["text"] == "hello\n"
        ref = {"type": "ref/resource", "uri": "kernel://{session_id}/{+path}"}
        argument = {"name": "session_id", "value": session[:4]}
        found = jar.call("completion/complete", {"ref": ref, "argument": argument})
        assert found["completion"]["values"] == [session]


def test_what_a_run_left_is_kept_when_the_server_is_killed_after_its_answer(disk):
    with disk.killed() as jar:
        session = jar.execute("echo first >f").session
        jar.execute("echo second >f; rm -f gone; echo x >new", session=session)
    with disk.start() as jar:
        assert jar.execute("cat f; ls", session=session).stdout == "second\nf\nnew\n"


def test_what_a_tool_wrote_is_kept_when_the_server_is_killed_after_its_answer(disk):
    with disk.killed() as jar:
        said = jar.tool("sandbox_write_file", path="deep/file", content="written")
    with disk.start() as jar:
        assert jar.execute("cat deep/file", session=said["session_id"]).stdout == "written"
        jar.tool(
            "sandbox_write_file", path="deep/file", content="again", session_id=said["session_id"]
        )
    with disk.start() as jar:  # written to one that was on the disk only
        assert jar.execute("cat deep/file", session=said["session_id"]).stdout == "again"


def test_a_tool_writes_to_a_session_that_is_on_the_disk_only(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("echo old >f").session
    with one_disk.start() as jar:
        jar.tool("sandbox_write_file", path="g", content="new", session_id=session)
        assert names(jar, session) == {"f": "file", "g": "file"}


def test_deleted_and_replaced_files_are_gone_after_a_restart(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("mkdir d; echo 1 >d/x; echo 2 >y; echo 3 >z").session
        jar.execute("rm -r d; echo file >d; rm y; mkdir y; echo in >y/in; rm z", session=session)
    with one_disk.start() as jar:
        assert names(jar, session) == {"d": "file", "y": "directory", "y/in": "file"}


def test_python_is_told_that_its_variables_are_gone(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("x = 1; open('f', 'w').write('kept')", "python").session
    with one_disk.start() as jar:
        run = jar.execute("print(open('f').read(), 'x' in globals())", "python", session)
        assert run.stdout == "kept False\n" and "Python was restarted" in run.text
        assert run.said["files"] == []  # it made none
        assert "restarted" not in jar.execute("1", "python", session).text


def test_a_session_with_a_kernel_made_ahead_finds_its_files(one_disk):
    ahead = ["--pool-enabled", "--kernel-pool-size", "2"]
    with one_disk.start(*ahead) as jar:
        session = jar.execute("open('f', 'w').write('kept')", "python").session
    for _ in range(2):
        with one_disk.start(*ahead) as jar:
            jar.execute("1", "python")
            time.sleep(1)  # now there are some
            assert jar.execute("open('f').read()", "python", session).said["result"] == "'kept'"


def test_what_is_written_through_a_mapping_is_saved_after_each_run(disk):
    begin = (
        "import mmap\nf = open('odd\\nname', 'w+b')\nf.write(b'a' * 4096)\nf.flush()\n"
        "m = mmap.mmap(f.fileno(), 4096)\nm[0:1] = b'b'\nopen('other', 'w').close()"
    )
    with disk.killed() as jar:
        session = jar.execute(begin, "python").session
        stored = disk.files(session) / "odd\nname"
        assert stored.read_bytes()[:3] == b"baa"
        run = jar.execute("m[1:2] = b'c'", "python", session)  # no new page: no new time
        assert run.said["files"] == []
        assert stored.read_bytes()[:3] == b"bca"
    with disk.start() as jar:
        assert jar.execute("head -c 3 odd*", session=session).stdout == "bca"


def test_a_session_without_files_leaves_nothing(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("true").session
    assert one_disk.sessions() == []
    with one_disk.start() as jar, pytest.raises(ToolError, match="no such session"):
        jar.execute("true", session=session)


def test_memory_is_the_default_and_makes_no_directory(one_disk):
    with Jar("--workspace-dir", str(one_disk.dir), "--no-pool-enabled") as jar:
        session = jar.execute("echo x >f").session
    assert not one_disk.dir.exists()
    with one_disk.start() as jar, pytest.raises(ToolError, match="no such session"):
        jar.execute("true", session=session)


# --- ending --------------------------------------------------------------------------------------


def test_clear_session_deletes_the_files(disk):
    with disk.start() as jar:
        first = jar.execute("echo x >f").session
        second = jar.execute("echo x >f").session
        jar.close_session(first)
        assert disk.sessions() == [second]
        with pytest.raises(ToolError, match="no such session"):
            jar.execute("true", session=first)
    with disk.start() as jar:
        jar.close_session(second)  # which is on the disk only
        assert disk.sessions() == []
        with pytest.raises(ToolError, match="no such session"):
            jar.close_session(second)
        until(lambda: not names_in(disk.dir / "trash"), "the space")
        until(lambda: (disk.dir / "total").read_text().strip() == "0", "the count")


def test_an_idle_session_ends_and_its_files_stay(one_disk):
    with one_disk.start("--session-timeout", "1s") as jar:
        session = jar.execute("echo x >f").session
        # Asking is a use, and not to be done too often.
        until(lambda: time.sleep(2.5) or "no such" in refusal(jar.info, session), "its end")
        assert "f" in jar.execute("ls", session=session).stdout  # and here it is again


def refusal(call, *args):
    try:
        call(*args)
    except ToolError as error:
        return str(error)
    return ""


def test_what_the_background_wrote_is_saved_before_an_idle_session_ends(one_disk):
    code = "import threading\nthreading.Timer(0.4, lambda: open('late', 'w').write('x')).start()"
    with one_disk.start("--session-timeout", "1s") as jar:
        session = jar.execute(code + "\nopen('f', 'w').close()", "python").session
        saved = one_disk.files(session)
        until(lambda: (saved / "late").exists(), "the file on the disk", 10)


def test_files_that_nobody_uses_go_after_their_time(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("echo x >f").session
    flags = ["--session-timeout", "1s", "--workspace-max-age", "2s"]
    with one_disk.start(*flags) as jar:
        used = jar.execute("echo x >f").session
        until(lambda: one_disk.sessions() == [used], "the end of the old", 10)
        until(lambda: one_disk.sessions() == [], "the end of the other", 10)
        with pytest.raises(ToolError, match="no such session"):
            jar.execute("true", session=session)


def test_files_go_with_an_idle_session_where_they_are_not_to_outlive_it(one_disk):
    flags = ["--session-timeout", "1s", "--workspace-max-age", "0"]
    with one_disk.start(*flags) as jar:
        session = jar.execute("echo x >f").session
        assert one_disk.sessions() == [session]
        until(lambda: one_disk.sessions() == [], "its end", 10)


# --- whole or not at all -------------------------------------------------------------------------


@pytest.mark.large
def test_a_killed_server_leaves_old_or_new_files_never_halves(disk):
    """Each run replaces 20 files of 300 kB by its number; the server is killed at any moment."""
    code = "for i in $(seq 20); do yes {n} | head -c 300000 >f$i; done; echo {n} >number; echo {n} >>all"
    with disk.start() as jar:
        session = jar.execute(code.format(n=0)).session
    done, chance = 0, random.Random(7)
    for _ in range(8):
        with disk.killed() as jar:
            jar.execute("true", session=session)
            stop = threading.Timer(chance.uniform(0, 0.5), jar.process.kill)
            stop.start()
            with contextlib.suppress(EOFError, BrokenPipeError, OSError):
                while True:
                    jar.execute(code.format(n=done + 1), session=session)
                    done += 1
            stop.join()
        for path in disk.files(session).glob("f*"):
            text = path.read_bytes()
            number = int(text[: text.index(b"\n")])
            whole = (b"%d\n" % number) * (300000 // len(b"%d\n" % number) + 1)
            assert text == whole[:300000], f"half of run {number}"
            assert done <= number <= done + 1, "older than one run"
        with disk.start() as jar:
            run = jar.execute("tail -n 1 all; ls | wc -l", session=session)
            assert int(run.stdout.split()[0]) in (done, done + 1) and run.stdout.split()[1] == "22"
            done = int(run.stdout.split()[0])
            jar.execute(code.format(n=done), session=session)


def test_a_server_that_stops_while_it_saves_ends_and_leaves_whole_files(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("echo old >f").session
        jar.begin("head -c 150000000 /dev/urandom >f", session=session)
        coming = one_disk.files(session).parent / "new"
        until(lambda: names_in(coming), "a save")
    with one_disk.start() as jar:
        assert jar.execute("wc -c <f", session=session).stdout in ("4\n", "150000000\n")
    assert not names_in(coming)


def test_everything_at_once_ends_well(one_disk):
    """Sessions that end, come back and are cleared while others write, list and run in them."""
    with one_disk.start("--session-timeout", "1s", "--profile", "default") as jar:
        sessions = [jar.execute(f"echo {n} >number").session for n in range(4)]
        stop = time.monotonic() + 8
        wrong = []

        def work(seed):
            chance = random.Random(seed)
            while time.monotonic() < stop:
                n = chance.randrange(4)
                session = sessions[n]
                kind = chance.randrange(12)
                try:
                    if kind < 3:
                        run = jar.execute("cat number; date >>log", session=session)
                        if run.outcome == "ok" and run.stdout not in (f"{n}\n", ""):
                            wrong.append(run)
                    elif kind < 6:
                        jar.tool("sandbox_write_file", path="w", content="x", session_id=session)
                    elif kind < 8:
                        if (text := read(jar, session, "number")) != base64.b64encode(
                            b"%d\n" % n
                        ).decode():
                            wrong.append(text)
                    elif kind < 9:
                        jar.call("resources/list")
                    elif kind < 10:
                        names(jar, session)
                    elif kind < 11:
                        time.sleep(chance.uniform(0, 1.5))
                    elif chance.random() < 0.3:
                        jar.close_session(session)
                        sessions[n] = jar.execute(f"echo {n} >number").session
                except ToolError as error:
                    known = ("no such session", "ended", "closed", "in use", "no such file", "idle")
                    if not any(words in str(error) for words in known):
                        wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]
        jar.ping(5)


# --- limits --------------------------------------------------------------------------------------


def test_a_full_workspace_is_kept_and_comes_back(disk):
    flags = ["--workspace-size", "4m", "--workspace-files", "64"]
    with disk.start(*flags) as jar:
        run = jar.execute("dd if=/dev/urandom of=f bs=64k 2>/dev/null; sha256sum <f; stat -c %s f")
        assert "[note]" not in run.text, run.text
        assert int(run.stdout.split()[-1]) > 3 << 20
    with disk.start(*flags) as jar:
        again = jar.execute("sha256sum <f; stat -c %s f", session=run.session)
        assert again.stdout == run.stdout


def test_sparse_giants_are_refused_and_the_rest_stays(disk):
    with disk.start("--workspace-size", "4m") as jar:
        session = jar.execute("echo kept >f").session
        run = jar.execute("truncate -s 200M giant; echo more >g", session=session)
        assert run.outcome == "ok" and "sparse" in run.text and "not up to date" in run.text
        assert sorted(os.listdir(disk.files(session))) == ["f"]
        run = jar.execute("truncate -s 3M giant", session=session)
        assert "[note]" not in run.text
        assert os.stat(disk.files(session) / "giant").st_blocks < 64
        assert os.stat(disk.files(session) / "giant").st_size == 3 << 20
    with disk.start("--workspace-size", "4m") as jar:
        assert jar.execute("stat -c %s giant; cat g", session=session).stdout == "3145728\nmore\n"


def test_the_directory_has_a_size_of_its_own(one_disk):
    with one_disk.start("--workspace-dir-size", "1m") as jar:
        first = jar.execute("head -c 900000 /dev/zero | tr '\\0' x >f").session
        room = (1 << 20) - 220 * PAGE - ENTRY
        fits = room - ENTRY - PAGE + 1
        second = jar.execute(f"head -c {fits} /dev/zero | tr '\\0' x >f")
        assert "[note]" not in second.text
        third = jar.execute("echo x >f")
        assert "workspace_dir_size" in third.text and third.outcome == "ok"
        said = jar.tool("sandbox_write_file", path="g", content="x", session_id=third.session)
        assert "workspace_dir_size" in said["text"]
        assert one_disk.sessions() == sorted([first, second.session, third.session])
        jar.close_session(first)
        until(lambda: "[note]" not in jar.execute("ls", session=third.session).text, "room", 10)
    with one_disk.start("--workspace-dir-size", "1m") as jar:
        assert names(jar, third.session) == {"f": "file", "g": "file"}


def test_a_workspace_that_has_become_smaller_is_refused_and_kept(one_disk):
    with one_disk.start("--workspace-size", "8m") as jar:
        session = jar.execute("head -c 5000000 /dev/urandom >f").session
    with one_disk.start("--workspace-size", "4m") as jar:
        with pytest.raises(ToolError, match="do not fit"):
            names(jar, session)
        run = jar.execute("ls", session=session)
        assert run.outcome == "sandbox_failed" and "do not fit" in run.error
        assert "finds the files that the run before left" in run.text
    with one_disk.start("--workspace-size", "8m") as jar:
        assert jar.execute("stat -c %s f", session=session).stdout == "5000000\n"


def test_a_save_that_takes_too_long_is_given_up(one_disk):
    with one_disk.start("--workspace-save-timeout", "10ms") as jar:
        run = jar.execute("head -c 100000000 /dev/urandom >f")
        assert run.outcome == "ok" and "workspace_save_timeout" in run.text
        assert jar.execute("stat -c %s f", session=run.session).stdout == "100000000\n"


@pytest.mark.large
@pytest.mark.timeout(600)
def test_a_hundred_thousand_files_come_back_or_are_told_of(one_disk):
    make = "import os\nfor i in range({n}):\n    open(f'f{{i}}', 'w').write(str(i))"
    flags = ["--workspace-files", "100002", "--workspace-size", "500m", "--memory-limit", "2g"]
    flags += ["--workspace-save-timeout", "5m", "--run-timeout", "2m"]
    with one_disk.start(*flags) as jar:
        run = jar.python(make.format(n=100000), wait=300)
        assert "[note]" not in run.text, run.text
        assert len(os.listdir(one_disk.files(run.session))) == 100000
        more = jar.execute("echo one >more", session=run.session, wait=300)
        assert more.outcome == "ok" and "too many files" in more.text
        jar.execute("rm more", session=run.session, wait=300)
    with one_disk.start(*flags) as jar:
        again = jar.execute("ls | wc -l; cat f99999", session=run.session, wait=300)
        assert again.stdout == "100000\n99999"
        jar.close_session(run.session)


# --- names ---------------------------------------------------------------------------------------

HOSTILE = [
    b"new\nline",
    b"\x01\x1b[31mred",
    b"\xff\xfe not utf-8",
    b" ",
    b"-rf",
    b"...",
    b"..x",
    b"%2E",
    b"info",
    b"\\",
    b"*",
    b"n" * 255,
    "größe 📊".encode(),
]


def test_any_name_comes_back(disk):
    make = f"""
import os
for name in {HOSTILE!r}:
    open(name, 'wb').write(name)
    os.mkdir(b'd' + name[:254])
    open(b'd' + name[:254] + b'/' + name, 'wb').write(name)
for _ in range(1000):
    os.mkdir('d')
    os.chdir('d')
open('f', 'w').write('deep')
"""
    look = f"""
import os
for name in {HOSTILE!r}:
    assert open(name, 'rb').read() == name
    assert open(b'd' + name[:254] + b'/' + name, 'rb').read() == name
print(len(os.listdir()), open('/'.join(['d'] * 1000) + '/f').read())
"""
    with disk.start() as jar:
        run = jar.python(make)
        assert run.outcome == "ok" and "[note]" not in run.text, run
        session = run.session
    with disk.start() as jar:
        run = jar.python(look, session=session)
        assert run.stdout == f"{2 * len(HOSTILE) + 1} deep\n", run
        jar.close_session(session)
        until(lambda: not names_in(disk.dir / "trash"), "all of it gone")


def test_what_is_neither_file_nor_directory_is_left_out_and_nothing_hangs(disk):
    make = """
import os, socket
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink('fifo', 'to-fifo')
os.symlink('loop', 'loop')
os.symlink('/proc/self/environ', 'environ')
os.symlink('../' * 20 + 'etc/shadow', 'shadow')
open('f', 'w').write('x')
os.link('f', 'hard')
"""
    with disk.start() as jar:
        run = jar.python(make)
        assert run.outcome == "ok" and "[note]" not in run.text, run
        for path in disk.files(run.session).iterdir():
            assert path.is_file() and not path.is_symlink(), path
            assert b"root:" not in path.read_bytes()
    with disk.start() as jar:
        links = ["environ", "loop", "shadow", "to-fifo"]
        want = {"f": "file", "hard": "file"} | dict.fromkeys(links, "symlink")
        assert names(jar, run.session) == want
        for path in links:
            with pytest.raises(ToolError):
                read(jar, run.session, path)


def test_what_cannot_be_read_is_told_and_stays_as_it_was(disk):
    with disk.start() as jar:
        session = jar.execute("echo old >f").session
        run = jar.execute("echo new >f; chmod 0 f; echo x >g", session=session)
        assert "could not be read" in run.text
        assert (disk.files(session) / "f").read_text() == "old\n"
        assert (disk.files(session) / "g").read_text() == "x\n"
        assert "[note]" not in jar.execute("chmod 600 f", session=session).text
        assert (disk.files(session) / "f").read_text() == "new\n"


@pytest.mark.parametrize("id", ["../x", "..", ".", "a/b", "x\n", "%2E%2E", "~", "\\", "trash", "é"])
def test_no_id_leads_anywhere_else(one_disk, id):
    with one_disk.start() as jar:
        session = jar.execute("echo x >f").session
        for call in (
            lambda: jar.tool("sandbox_list_files", session_id=id),
            lambda: jar.tool("list_session_files", session_id=id),
            lambda: jar.close_session(id),
            lambda: jar.execute("true", session=id),
            lambda: jar.tool("sandbox_write_file", path="f", content="", session_id=id),
        ):
            with pytest.raises(ToolError, match="no such session"):
                call()
        assert one_disk.sessions() == [session]


def test_nothing_of_the_disk_is_seen_from_inside(disk):
    with disk.start() as jar:
        session = jar.execute("echo secret-of-one >f").session
        other = jar.execute(
            f"cat {disk.dir}/default/stdio/{session}/files/f; ls {disk.place}; cat /proc/mounts"
        )
        assert "secret-of-one" not in other.text and str(disk.place) not in other.stdout
        mode = os.stat(disk.dir / "default").st_mode
        assert mode & 0o077 == 0


# --- whose they are ------------------------------------------------------------------------------


def http(disk, *flags):
    few = ["--workspace", "disk", "--workspace-dir", str(disk.dir), "--no-packages-enabled"]
    return belljar.Http(*few, "--require-limits", "false", *flags)


def tool(client, name, **arguments):
    return client.call("tools/call", call_tool(name, arguments), timeout=LONG)


def test_two_clients_with_the_same_id_have_two_directories(one_disk):
    with http(one_disk, "--profile", "mcp-pyexec") as server:
        one, two = server.session(), server.session()
        for client, text in (one, "one"), (two, "two"):
            code = f"open('f', 'w').write('{text}')"
            tool(client, "execute_python", code=code, session_id="same")
        for client, text in (one, "one"), (two, "two"):
            said = tool(client, "execute_python", code="open('f').read()", session_id="same")
            assert text_of(said) == text
        owners = list((one_disk.dir / "mcp-pyexec").iterdir())
        assert len(owners) == 2
        assert not any(client.id in str(path) for client in (one, two) for path in owners)


def test_another_client_finds_nothing_of_what_is_on_the_disk(one_disk):
    with http(one_disk, "--session-timeout", "1s") as server:
        one, two = server.session(), server.session()
        said = tool(one, "sandbox_write_file", path="f", content="mine")
        session = said["structuredContent"]["session_id"]
        time.sleep(2.5)  # it is on the disk only
        for name, more in (
            ("sandbox_read_file", {"path": "f"}),
            ("sandbox_list_files", {}),
            ("list_session_files", {}),
            ("clear_session", {}),
        ):
            said = tool(two, name, session_id=session, **more)
            assert said["isError"] and "no such session" in text_of(said)
        assert two.call("resources/list")["resources"] == []
        with pytest.raises(RpcError):
            two.call("resources/read", {"uri": f"kernel://{session}/f"})
        said = tool(one, "sandbox_read_file", session_id=session, path="f")
        assert text_of(said) == "mine"


def test_the_holder_of_a_token_finds_his_files_after_a_restart_and_profiles_are_apart(one_disk):
    token = "0123456789abcdef"
    bearer = {"Authorization": f"Bearer {token}"}
    with http(one_disk, "--token", token) as server:
        said = tool(server.session(headers=bearer), "sandbox_write_file", path="f", content="mine")
        session = said["structuredContent"]["session_id"]
    with http(one_disk, "--token", token) as server:
        said = tool(
            server.session(headers=bearer), "sandbox_read_file", session_id=session, path="f"
        )
        assert text_of(said) == "mine"
        message = belljar.stateless(
            "tools/call", call_tool("list_session_files", {"session_id": session})
        )
        answer = server.post(message, bearer, LONG, path="/mcp/python-interpreter")
        said = unwrap(answer.message())["structuredContent"]
        assert said["files"] == [] and "not found or has expired" in said["error"]


def test_a_session_is_one_servers_at_a_time(one_disk):
    with one_disk.start() as one:
        session = one.execute("echo x >f").session
        with one_disk.start() as two:
            with pytest.raises(ToolError, match="another server"):
                two.execute("true", session=session)
            with pytest.raises(ToolError):
                two.close_session(session)
        assert one.execute("cat f", session=session).stdout == "x\n"
    with one_disk.start() as two:
        assert two.execute("cat f", session=session).stdout == "x\n"


# --- the directory -------------------------------------------------------------------------------


def test_a_directory_that_others_can_write_to_stops_the_start(one_disk):
    one_disk.dir.mkdir(parents=True)
    one_disk.dir.chmod(0o777)
    flags = ["--workspace", "disk", "--workspace-dir", one_disk.dir, "--state-dir", one_disk.place]
    done = subprocess.run(
        [belljar.need(belljar.BIN), "serve", "--stdio", *map(str, flags)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "workspace_dir: " in done.stderr
    assert "writable for nobody else" in done.stderr


def test_a_disk_that_fails_is_told_and_the_session_goes_on(disk):
    with disk.start() as jar:
        session = jar.execute("echo x >f").session
        place = disk.files(session).parent
        place.chmod(0o500)
        run = jar.execute("echo y >>f; cat f", session=session)
        assert run.stdout == "x\ny\n" and run.outcome == "ok" and "not up to date" in run.text
        place.chmod(0o700)
        assert "[note]" not in jar.execute("true", session=session).text
        assert (place / "files/f").read_text() == "x\ny\n"


def test_what_somebody_removed_behind_our_back_is_saved_again(one_disk):
    with one_disk.start() as jar:
        session = jar.execute("echo x >f").session
        shutil.rmtree(one_disk.dir / "default")
        jar.execute("true", session=session)
        assert "not up to date" in jar.execute("true", session=session).text
    with one_disk.start() as jar:
        session = jar.execute("echo x >f").session
        shutil.rmtree(one_disk.files(session).parent)
        assert "[note]" not in jar.execute("echo y >g", session=session).text
    with one_disk.start() as jar:
        assert names(jar, session) == {"f": "file", "g": "file"}


def test_no_thread_of_the_server_keeps_a_privilege(one_disk):
    with one_disk.start() as jar:
        jar.execute("echo x >f")
        tasks = list(pathlib.Path(f"/proc/{jar.pid}/task").iterdir())
        assert len(tasks) > 1
        for task in tasks:
            status = dict(
                line.split(":\t", 1) for line in (task / "status").read_text().splitlines()
            )
            assert status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0
            assert "0" not in status["Uid"].split()
            assert int(status["CapBnd"], 16) == 0 or os.geteuid() != 0


def test_many_sessions_leave_no_descriptor_open(one_disk):
    with one_disk.start() as jar:
        jar.close_session(jar.execute("echo x >f").session)
        time.sleep(0.5)
        before = jar.fds()
        for _ in range(20):
            jar.close_session(jar.execute("echo x >f").session)
        kept = (
            8 if belljar.IN_CONTAINERS else 0
        )  # connections to their engine, for the next requests
        until(lambda: jar.fds() <= before + kept, "descriptors", 5)
        assert one_disk.sessions() == []
