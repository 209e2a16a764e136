"""Runs the real server and speaks to it; standard library only.

    with Stdio() as server:                       # pipes; one message a line
        server.initialize("2025-11-25")
        assert server.call("ping") == {}

    with Http() as server:                        # a free port of 127.0.0.1
        assert server.post(stateless("tools/list")).status == 200
        session = server.session("2025-06-18")    # handshake era
        conn = server.connect()                   # exact bytes out, parsed answers back

Leaving the `with` stops the server the way a client would and checks that it went cleanly: exit
status 0, no sanitizer report, no log line that is too long or holds a raw control character.
"""

import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time
from subprocess import DEVNULL, PIPE, STDOUT

from wire import Connection

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("BELLJAR_BIN", str(ROOT / "build/belljar"))
FIXTURE = os.environ.get("FIXTURE_BIN", str(ROOT / "build/tests/conformance/conformance-server"))

HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
NEWEST = HANDSHAKE[-1]
STATELESS = "2026-07-28"

META = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"

# The same tests with another engine (tests/docker/test_suites.py): sandboxes are containers.
IN_CONTAINERS = os.environ.get("BELLJAR_ENGINE", "native") == "docker"
# What servers find of our environment; the last ones choose that engine.
PASSED = r"PATH|.*SAN_OPTIONS|BELLJAR_ENGINE|BELLJAR_DOCKER_.*|BELLJAR_POOL_SIZE"

MEMBERS = {"jsonrpc", "id", "method", "params", "result", "error"}

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022


def is_sanitized(binary=BIN):
    try:
        return b"__asan_init" in pathlib.Path(binary).read_bytes()
    except OSError:
        return False


def need(binary):
    """Skips the test when the binary has not been built."""
    if not pathlib.Path(binary).exists():
        import pytest  # bench/run uses this module without it

        pytest.skip(f"{binary} has not been built")
    return binary


# A server built with sanitizers is several times slower.
def busyness():
    """How many times longer things take on a machine that others use, too."""
    return min(max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1) - 1), 8.0)


# BELLJAR_PATIENCE: where it is known, as in an emulated machine.
PATIENCE = float(os.environ.get("BELLJAR_PATIENCE") or (5 if is_sanitized() else 1) * busyness())
FULL = bool(os.environ.get("BELLJAR_FULL"))  # the largest numbers, which take long


# --- messages ------------------------------------------------------------------------------------


def request(method, params=None, id=1):
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification(method, params=None):
    message = request(method, params)
    del message["id"]
    return message


def initialize(revision=NEWEST, capabilities=None, id=0):
    return request(
        "initialize",
        {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "e2e", "version": "1"},
        },
        id,
    )


def envelope(version=STATELESS, capabilities=None, **more):
    """The _meta object of a stateless request; `more` holds unprefixed keys and logLevel."""
    meta = {
        META + "protocolVersion": version,
        META + "clientCapabilities": capabilities or {},
        META + "clientInfo": {"name": "e2e", "version": "1"},
    }
    for key, value in more.items():
        meta[META + key if key == "logLevel" else key] = value
    return meta


def stateless(method, params=None, id=1, **meta):
    return request(method, {**(params or {}), "_meta": envelope(**meta)}, id)


def call_tool(name, arguments=None):
    return {"name": name, "arguments": arguments or {}}


def mirror(message):
    """The headers that 2026-07-28 wants beside this message."""
    params = message.get("params", {})
    version = params.get("_meta", {}).get(META + "protocolVersion")
    headers = {}
    if isinstance(version, str):
        headers["MCP-Protocol-Version"] = version
        headers["Mcp-Method"] = message["method"]
        key = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
        name = params.get(key.get(message["method"]))
        if isinstance(name, str):
            headers["Mcp-Name"] = name
    return headers


def encode(message):
    if isinstance(message, bytes):
        return message
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")


def unwrap(reply):
    if "error" in reply:
        raise RpcError(reply["error"])
    return reply["result"]


def text_of(result):
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def same_id(left, right):
    """Equal with the same JSON type: 1, 1.0, True and "1" are four different ids."""
    return type(left) is type(right) and left == right


# --- processes -----------------------------------------------------------------------------------


# Servers inherit what we ignore, and a run under nohup ignores this.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def passed_on():
    """What a server finds of our environment."""
    return {key: value for key, value in os.environ.items() if re.fullmatch(PASSED, key)}


class Process:
    """A server process: its counters, its log, its end. A variable of `env` that is None is not passed on."""

    def __init__(self, argv, stdin, stdout, stderr, env=None):
        variables = {"HOME": "/nonexistent", **passed_on(), **(env or {})}
        self.process = subprocess.Popen(
            [str(arg) for arg in argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={name: value for name, value in variables.items() if value is not None},
            cwd="/",
        )
        self.pid = self.process.pid
        self.guests_below = self.pid  # whoever is in a sandbox of this server descends from it
        self.told = False
        self.log_file = self.process.stderr or self.process.stdout
        self.log = []
        self.logged = threading.Condition()
        self.log_thread = threading.Thread(target=self._read_log, daemon=True)
        self.log_thread.start()

    def _read_log(self):
        for line in self.log_file:
            with self.logged:
                self.log.append(line)
                self.logged.notify_all()
        with self.logged:
            self.log.append(None)
            self.logged.notify_all()

    def wait_log(self, pattern, timeout=10):
        """The first match of `pattern` in the log."""
        deadline = time.monotonic() + timeout * PATIENCE
        with self.logged:
            while True:
                for line in self.log:
                    match = line and re.search(pattern, line.decode(errors="replace"))
                    if match:
                        return match
                if self.log[-1:] == [None]:
                    raise AssertionError(f"server ended at start:\n{self.log_text()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no {pattern!r} in the log:\n{self.log_text()}")
                self.logged.wait(left)

    def log_text(self):
        return b"".join(line for line in self.log if line).decode(errors="replace")

    def status(self, key):
        """A figure of /proc/PID/status, in bytes."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(key)

    def rss(self):
        return self.status("VmRSS")

    def forget_peak(self):
        """Makes peak() count from now."""
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak(self):
        return self.status("VmHWM")

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def alive(self):
        return self.process.poll() is None

    def wait_exit(self, timeout=5):
        status = self.process.wait(timeout * PATIENCE)
        self.log_thread.join(5)
        return status

    def check_log(self):
        log = self.log_text()
        for sign in ("Sanitizer", "runtime error:", "Assertion"):
            assert sign not in log, f"the server reported:\n{log[-20000:]}"
        assert len(log) < 1 << 20, "more than 1 MiB of log"
        for line in filter(None, self.log):
            assert len(line) <= 4097, f"a log line of {len(line)} bytes"
            assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", line), f"raw control: {line!r}"

    def terminate(self):
        """SIGTERM, as a service manager does."""
        if self.alive() and not self.told:  # a second one would end it at once
            self.told = True
            self.process.send_signal(signal.SIGTERM)

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()

    def finish(self):
        """Waits for a clean end after stop()."""
        try:
            status = self.wait_exit()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop:\n{self.log_text()[-5000:]}") from None
        self.check_log()
        assert status == 0, f"exit status {status}\n{self.log_text()[-5000:]}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.kill()
        else:
            self.stop()


# Tests of the protocol count descriptors and memory: no sandboxes ahead of need, unless a test says
# so with a later flag.
POOL = "--no-pool-enabled"


class Stdio(Process):
    """A server on pipes."""

    def __init__(self, *flags, binary=BIN, env=None, read=True):
        argv = [binary, "serve", "--stdio", POOL] if binary == BIN else [binary, "--stdio"]
        super().__init__([*argv, *flags], PIPE, PIPE, PIPE, env)
        self.lines = queue.Queue()
        self.notes = []  # notifications that came while call() waited for a reply
        self.next_id = 1000
        if read:
            threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send_bytes(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.send_bytes(encode(message) + b"\n")

    def recv_line(self, timeout=5):
        try:
            line = self.lines.get(timeout=timeout * PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no message within {timeout} s\n{self.log_text()}") from None
        if line is None:
            raise EOFError(f"the server closed its output\n{self.log_text()}")
        assert line.endswith(b"\n"), f"a broken line: {line[-200:]!r}"
        return line[:-1]

    def recv(self, timeout=5):
        """The next message (or batch); anything else on stdout fails the test."""
        message = json.loads(self.recv_line(timeout))
        for one in message if isinstance(message, list) else [message]:
            assert one["jsonrpc"] == "2.0" and not set(one) - MEMBERS, one
            assert ("method" in one) + ("result" in one) + ("error" in one) == 1, one
        return message

    def quiet(self, seconds=0.15):
        """Nothing arrives for a while."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"unexpected: {line!r}")

    def reply(self, id, timeout=5):
        """The response to request `id`; notifications before it go to self.notes."""
        while True:
            message = self.recv(timeout)
            if "method" in message:
                self.notes.append(message)
                continue
            assert same_id(message.get("id"), id), f"expected id {id!r}: {message}"
            return message

    def ask(self, message, timeout=5):
        """Sends a request and returns its whole response."""
        self.send(message)
        return self.reply(message["id"], timeout)

    def call(self, method, params=None, timeout=5):
        """Handshake era: the result, or RpcError."""
        self.next_id += 1
        return unwrap(self.ask(request(method, params, self.next_id), timeout))

    def modern(self, method, params=None, timeout=5, **meta):
        """Stateless era: the result, or RpcError."""
        self.next_id += 1
        return unwrap(self.ask(stateless(method, params, self.next_id, **meta), timeout))

    def initialize(self, revision=NEWEST, capabilities=None):
        result = unwrap(self.ask(initialize(revision, capabilities)))
        self.send(notification("notifications/initialized"))
        return result

    def close_input(self):
        self.process.stdin.close()

    def stop(self):
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.close_input()
            except BrokenPipeError:
                pass
        self.finish()


class Http(Process):
    """A server on a free port."""

    def __init__(self, *flags, binary=BIN, address="127.0.0.1:0", tls=None, env=None):
        argv = (
            [binary, "serve", "--http", address, POOL]
            if binary == BIN
            else [binary, "--http", address]
        )
        super().__init__([*argv, *flags], DEVNULL, PIPE, STDOUT, env)
        self.tls = tls
        try:
            match = self.wait_log(r"https?://(\[[0-9a-f:]+\]|[0-9a-z.]+):(\d+)")
        except BaseException:
            self.kill()
            raise
        self.address = (match[1].strip("[]").replace("0.0.0.0", "127.0.0.1"), int(match[2]))
        self.host = f"{match[1].replace('0.0.0.0', '127.0.0.1')}:{match[2]}"

    def stop(self):
        self.terminate()
        self.finish()

    def connect(self, timeout=5, source=None):
        return Connection(self.address, timeout * PATIENCE, self.tls, source, PATIENCE)

    def head(self, method="POST", path="/mcp", headers=None, length=None):
        """The bytes of a request head. A header whose value is None is left out."""
        fields = {"Host": self.host}
        if method == "POST":
            fields.update({"Content-Type": "application/json", "Accept": BOTH})
        if length is not None:
            fields["Content-Length"] = length
        fields.update(headers or {})
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def request(self, method="GET", path="/mcp", headers=None, body=None, timeout=5):
        """One request on a connection of its own, and its whole answer."""
        with self.connect(timeout) as conn:
            conn.send(self.head(method, path, headers, None if body is None else len(body)))
            conn.send(body or b"")
            return conn.response(method)

    def post(self, message, headers=None, timeout=5, path="/mcp"):
        body = encode(message)
        if isinstance(message, dict):
            headers = {**mirror(message), **(headers or {})}
        return self.request("POST", path, headers, body, timeout)

    def open(self, message, headers=None, timeout=5):
        """POSTs and returns the connection with the answer's head read: a stream to follow."""
        body = encode(message)
        if isinstance(message, dict):
            headers = {**mirror(message), **(headers or {})}
        conn = self.connect(timeout)
        conn.send(self.head("POST", "/mcp", headers, len(body)) + body)
        conn.begin()
        return conn

    def open_get(self, headers, timeout=5):
        conn = self.connect(timeout)
        conn.send(self.head("GET", "/mcp", {"Accept": "text/event-stream", **headers}))
        conn.begin()
        return conn

    def modern(self, method, params=None, id=1, timeout=5, headers=None, **meta):
        """Stateless era: the result, or RpcError."""
        message = stateless(method, params, id, **meta)
        return unwrap(self.post(message, headers, timeout).message())

    def session(self, revision=NEWEST, capabilities=None, headers=None):
        return Session(self, revision, capabilities, headers)

    def harmless(self, source=None, limit=1.0):
        """A fresh client is served within the limit."""
        begin = time.monotonic()
        message = encode(stateless("tools/list"))
        with self.connect(source=source) as conn:
            conn.send(
                self.head("POST", "/mcp", mirror(json.loads(message)), len(message)) + message
            )
            answer = conn.response()
        took = time.monotonic() - begin
        assert answer.status == 200 and answer.message()["result"]["tools"], answer
        assert took < limit * PATIENCE, f"a harmless request took {took:.2f} s"


class Session:
    """A handshake-era session over HTTP."""

    def __init__(self, server, revision=NEWEST, capabilities=None, headers=None):
        self.server = server
        self.next_id = 1000
        answer = server.post(initialize(revision, capabilities), headers)
        assert answer.status == 200, answer
        self.result = unwrap(answer.message())
        self.revision = self.result["protocolVersion"]
        self.id = answer.headers.get("mcp-session-id")
        self.headers = {
            "Mcp-Session-Id": self.id,
            "MCP-Protocol-Version": self.revision,
            **(headers or {}),
        }
        assert self.post(notification("notifications/initialized")).status == 202

    def post(self, message, headers=None, timeout=5):
        return self.server.post(message, {**self.headers, **(headers or {})}, timeout)

    def open(self, message, headers=None, timeout=5):
        return self.server.open(message, {**self.headers, **(headers or {})}, timeout)

    def open_get(self, headers=None, timeout=5):
        return self.server.open_get({**self.headers, **(headers or {})}, timeout)

    def call(self, method, params=None, timeout=5):
        self.next_id += 1
        answer = self.post(request(method, params, self.next_id), timeout=timeout)
        assert answer.status == 200, answer
        reply = answer.message()
        assert reply["id"] == self.next_id
        return unwrap(reply)

    def delete(self, headers=None):
        return self.server.request("DELETE", "/mcp", {**self.headers, **(headers or {})})
