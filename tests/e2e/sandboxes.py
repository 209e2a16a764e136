"""A client that runs code in sandboxes over stdio, many calls at once if wanted.

    with Jar() as jar:
        run = jar.execute("echo hi; exit 3")
        assert (run.stdout, run.exit_code, run.outcome) == ("hi\\n", 3, "error")
        jar.execute("cat notes", session=run.session)

    waiting = jar.begin("sleep 5")       # does not wait
    waiting.result(timeout=10)

Every byte that the server sent is kept in `jar.received` and `jar.log_text()`.
"""

import errno
import itertools
import json
import os
import pathlib
import queue
import shutil
import tempfile
import threading
import time
from concurrent.futures import Future
from subprocess import PIPE

import belljar
from belljar import PATIENCE, call_tool, need, notification, request, stateless

LONG = 30  # seconds that a client waits for an answer when the test does not say


def until(condition, what, seconds=LONG):
    """What the condition says as soon as it says something."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class ToolError(Exception):
    """A tool's own refusal: isError, with its text."""


class Run:
    """A finished execute_code."""

    def __init__(self, result, took):
        self.result = result
        self.took = took
        self.text = belljar.text_of(result)
        if result.get("isError"):
            raise ToolError(self.text)
        said = result["structuredContent"]
        self.said = said
        self.session = said["session_id"]
        self.outcome = said["outcome"]
        self.error = said["error"]
        self.exit_code = said.get("exit_code")
        self.truncated = said["truncated"]
        self.duration = said["duration_ms"] / 1000

    def stream(self, name):
        return "".join(piece["text"] for piece in self.said["output"] if piece["stream"] == name)

    @property
    def stdout(self):
        return self.stream("stdout")

    @property
    def stderr(self):
        return self.stream("stderr")

    def __repr__(self):
        return f"<{self.outcome} {self.exit_code} {self.error!r} {str(self.said['output'])[:3000]}>"


class Waiting:
    """A call under way."""

    def __init__(self, jar, id, token):
        self.jar, self.id, self.token = jar, id, token
        self.future = Future()
        self.began = time.monotonic()
        self.ended = None
        self.progress = []  # (seconds since the start, message)

    def reply(self, timeout=LONG):
        try:
            return self.future.result(timeout * PATIENCE)
        except TimeoutError:
            raise AssertionError(
                f"no answer within {timeout} s\n{self.jar.log_text()[-3000:]}"
            ) from None

    @property
    def took(self):
        return self.ended - self.began

    def result(self, timeout=LONG):
        return belljar.unwrap(self.reply(timeout))

    def run(self, timeout=LONG):
        return Run(self.result(timeout), self.took)

    def cancel(self, meta=None):
        params = {"requestId": self.id, "reason": "enough"}
        self.jar.send(
            notification("notifications/cancelled", params | ({"_meta": meta} if meta else {}))
        )


class Jar(belljar.Stdio):
    """A server on pipes. `user`: run it as this one, (uid, gid, home). `before`: a command that
    starts the server, put before everything else."""

    always = []  # flags of every server

    def __init__(self, *flags, user=None, env=None, before=(), era="handshake", state=None):
        self.state = state or make_state(user)
        self.own_state = state is None
        argv = [*before, *as_user(user), binary_for(user), "serve", "--stdio"]
        argv += ["--state-dir", self.state, *self.always, *flags]
        home = {"HOME": user.home} if user else {}
        self.received = bytearray()
        self.waiting = {}
        self.ids = itertools.count(1)
        self.lines = queue.Queue()
        self.notes = []
        self.next_id = 1000
        self.write_lock = threading.Lock()
        self.modern_era = era == "stateless"
        belljar.Process.__init__(self, argv, PIPE, PIPE, PIPE, {**home, **(env or {})})
        threading.Thread(target=self._read_lines, daemon=True).start()
        try:
            if not self.modern_era:
                opening = belljar.initialize()["params"]
                self.opening = self.call("initialize", opening, timeout=10)
                self.send(notification("notifications/initialized"))
        except BaseException:
            self.kill()
            self._forget_state()
            raise

    def _forget_state(self):
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)

    def _read_lines(self):
        for line in self.process.stdout:
            self.received += line
            message = json.loads(line)  # anything else on stdout fails the call that waits
            if "method" in message:
                self._note(message)
                continue
            waiting = self.waiting.pop(message.get("id"), None)
            if waiting is None:
                self.notes.append(message)  # an answer to nobody
                continue
            waiting.ended = time.monotonic()
            waiting.future.set_result(message)
        for waiting in list(self.waiting.values()):
            waiting.future.set_exception(EOFError(f"the server ended:\n{self.log_text()[-5000:]}"))

    def _note(self, message):
        self.notes.append(message)
        if message["method"] == "notifications/progress":
            for waiting in list(self.waiting.values()):
                if waiting.token == message["params"]["progressToken"]:
                    said = message["params"].get("message", "")
                    waiting.progress.append((time.monotonic() - waiting.began, said))

    def send_bytes(self, data):
        with self.write_lock:
            super().send_bytes(data)

    def submit(self, method, params=None, progress=False):
        id = next(self.ids)
        token = f"token-{id}" if progress else None
        if self.modern_era:
            more = {"progressToken": token} if progress else {}
            message = stateless(method, params, id, **more)
        else:
            if progress:
                params = {**(params or {}), "_meta": {"progressToken": token}}
            message = request(method, params, id)
        waiting = self.waiting[id] = Waiting(self, id, token)
        self.send(message)
        return waiting

    def call(self, method, params=None, timeout=LONG):
        return self.submit(method, params).result(timeout)

    # --- tools

    def tool(self, name, timeout=LONG, **arguments):
        """structuredContent of a tool's result; ToolError when it refuses."""
        waiting = self.submit("tools/call", call_tool(name, arguments))
        result = waiting.result(timeout)
        if result.get("isError"):
            raise ToolError(belljar.text_of(result))
        return {**result.get("structuredContent", {}), "text": belljar.text_of(result)}

    def begin(self, code, language="bash", session=None, timeout=None, progress=False):
        arguments = {"code": code, "language": language}
        if session:
            arguments["session_id"] = session
        if timeout is not None:
            arguments["timeout"] = timeout
        return self.submit("tools/call", call_tool("execute_code", arguments), progress)

    def execute(self, code, language="bash", session=None, timeout=None, wait=None):
        """Runs code and waits for its end."""
        patience = wait or (timeout or LONG) + 10
        return self.begin(code, language, session, timeout).run(patience)

    def python(self, code, **options):
        """Python code through bash: the file is written, then run."""
        return self.execute(python_script(code), **options)

    def close_session(self, session):
        return self.tool("clear_session", session_id=session)

    def info(self, session):
        return self.tool("session_info", session_id=session)

    def enforced(self):
        """The layers in force."""
        if not hasattr(self, "layers"):
            session = self.tool("start_session")["session_id"]
            self.layers = set(self.info(session)["enforced"])
            self.close_session(session)
        return self.layers

    def ping(self, limit=1.0):
        waiting = self.submit("tools/list" if self.modern_era else "ping")
        waiting.result(limit * 3)
        assert waiting.took < limit * PATIENCE, f"a ping took {waiting.took:.2f} s"

    def finish(self):
        try:
            super().finish()
        finally:
            self._forget_state()

    def kill(self):
        super().kill()
        if self.own_state:
            self._forget_state()


def python_script(code):
    return (
        f"cat >/tmp/.code.py <<'END_OF_CODE'\n{code}\nEND_OF_CODE\nexec python3 -I /tmp/.code.py\n"
    )


# --- users -----------------------------------------------------------------------------------------


ORDINARY = "belljar-test"  # the user that tests are run as beside root


class User:
    """An ordinary user of the host."""

    def __init__(self, name):
        import pwd

        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home = name, entry.pw_uid, entry.pw_gid, entry.pw_dir


def make_user(name):
    """A real second user, made when missing."""
    import pwd
    import subprocess

    try:
        return User(name)
    except KeyError:
        words = ["useradd", "--create-home", "--shell", "/bin/bash", name]
        made = subprocess.run(words, capture_output=True)
        if made.returncode != 0 and name not in [entry.pw_name for entry in pwd.getpwall()]:
            raise OSError(f"useradd: {made.stderr.decode()}") from None
        return User(name)


def ordinary_user():
    """Such a user; skips the test when there can be none."""
    import pytest

    if belljar.IN_CONTAINERS:
        pytest.skip("an ordinary user of this host has no right to use the engine")
    if os.geteuid() != 0:
        pytest.skip("only root can run the server as another user")
    try:
        return make_user(ORDINARY)
    except OSError as error:
        pytest.skip(str(error))


def as_user(user):
    """The words that make the following command run as this user."""
    if not user:
        return []
    return [
        "setpriv",
        f"--reuid={user.uid}",
        f"--regid={user.gid}",
        "--init-groups",
        "--inh-caps=-all",
        "--",
    ]


# Runs a command with some system calls refused for good, as an old kernel or a container does.
REFUSE = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
error, numbers, command = int(sys.argv[1]), map(int, sys.argv[2].split(",")), sys.argv[3:]
code = [(0x20, 0, 0, 0)]
for number in numbers:
    code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
code += [(0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *one) for one in code))
header = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) == 0, ctypes.get_errno()
os.execvp(command[0], command)
"""


def refusing(*numbers, error=errno.EPERM):
    """The words that make the following command run without these system calls."""
    return ["/usr/bin/python3", "-I", "-c", REFUSE, str(error), ",".join(map(str, numbers))]


_copies = {}


def binary_for(user):
    """The server's binary where this user can run it: the build may lie in somebody's home."""
    if not user:
        return need(belljar.BIN)
    if user.uid not in _copies:
        place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bin-"))
        place.chmod(0o755)
        shutil.copy(need(belljar.BIN), place / "belljar")
        (place / "belljar").chmod(0o755)
        _copies[user.uid] = place / "belljar"
        import atexit

        atexit.register(shutil.rmtree, place, ignore_errors=True)
    return _copies[user.uid]


def make_state(user=None):
    """A fresh state directory that belongs to whoever runs the server."""
    place = tempfile.mkdtemp(prefix="belljar-state-")
    if user:
        os.chown(place, user.uid, user.gid)
    return place
