"""HTTP as bytes: exact requests out, answers and event streams parsed strictly."""

import json
import re
import select
import socket
import ssl
import time


class Response:
    """An answer: status, headers (names in lower case), body."""

    def __init__(self, status, fields):
        self.status = status
        self.fields = fields
        self.headers = {name.lower(): value for name, value in fields}
        self.body = b""

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:2000]!r}>"

    @property
    def type(self):
        return self.headers.get("content-type", "").split(";")[0]

    def json(self):
        assert self.type == "application/json", self
        return json.loads(self.body)

    def events(self):
        assert self.type == "text/event-stream", self
        return parse_events(self.body)

    def message(self):
        """The JSON-RPC response, from either form of answer."""
        if self.type == "application/json":
            return json.loads(self.body)
        return [e.json() for e in self.events() if e.data and "method" not in e.json()][-1]

    def error(self):
        """Status and JSON-RPC code."""
        return self.status, self.json()["error"]["code"]


class Event:
    """One server-sent event."""

    def __init__(self):
        self.name = self.id = self.retry = self.data = None
        self.comments = []

    def __repr__(self):
        return f"<event {self.name} id={self.id} retry={self.retry} {self.data!r} {self.comments}>"

    def json(self):
        return json.loads(self.data)


def parse_event(block):
    event = Event()
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            event.data = value if event.data is None else event.data + "\n" + value
        elif name == "":
            event.comments.append(value)
        elif name in ("event", "id", "retry"):
            setattr(event, "name" if name == "event" else name, value)
        else:
            raise AssertionError(f"unknown field in the event stream: {line!r}")
    return event


def parse_events(body):
    blocks = body.replace(b"\r\n", b"\n").split(b"\n\n")
    assert blocks[-1] == b"", f"the stream ends inside an event: {blocks[-1]!r}"
    return [parse_event(block) for block in blocks[:-1]]


class Connection:
    """A connection on which exact bytes are sent and answers are parsed strictly."""

    def __init__(self, address, timeout, tls=None, source=None, patience=1):
        self.patience = patience  # how many times longer than usual to wait
        source = (source, 0) if source else None
        self.sock = socket.create_connection(address, timeout, source)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname=address[0])
        self.buffer = b""
        self.answer = None  # the response whose body is being read
        self.body_done = False
        self.event_buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST, as a crashed client does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def try_send(self, data):
        """Sends what the server takes; False when it has closed."""
        try:
            self.sock.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            return False

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError(f"closed by the server after {self.buffer[-200:]!r}")
        self.buffer += data

    def _until(self, mark):
        while mark not in self.buffer:
            self._more()
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def _exactly(self, count):
        while len(self.buffer) < count:
            self._more()
        part, self.buffer = self.buffer[:count], self.buffer[count:]
        return part

    def begin(self):
        """Reads the head of the next answer (an interim 100 is skipped)."""
        while True:
            lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]*", lines[0])
            assert match, f"not a status line: {lines[0]!r}"
            fields = []
            for line in lines[1:]:
                field = re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t -~]*)", line)
                assert field, f"not a header field: {line!r}"
                fields.append((field[1], field[2]))
            if match[1] != "100":
                break
        self.answer = Response(int(match[1]), fields)
        self.body_done = False
        return self.answer

    def _chunk(self):
        size = int(self._until(b"\r\n"), 16)
        data = self._exactly(size)
        assert self._exactly(2) == b"\r\n", "a chunk without its end"
        self.body_done = size == 0
        return data

    def response(self, method="POST"):
        """The next whole answer."""
        answer = self.begin()
        if method == "HEAD" or answer.status in (204, 304):
            return answer
        if answer.headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in answer.headers, answer
            while not self.body_done:
                answer.body += self._chunk()
        elif "content-length" in answer.headers:
            answer.body = self._exactly(int(answer.headers["content-length"]))
        else:
            answer.body = self.rest()
        return answer

    def event(self, timeout=5, comments=False):
        """The next event of a stream; None at its end. Comments alone are passed over."""
        self.sock.settimeout(timeout * self.patience)
        while True:
            if b"\n\n" in self.event_buffer:
                block, self.event_buffer = self.event_buffer.split(b"\n\n", 1)
                event = parse_event(block)
                if comments or event.data is not None or event.id or event.retry:
                    return event
                continue
            if self.body_done:
                assert not self.event_buffer, f"unfinished event: {self.event_buffer!r}"
                return None
            self.event_buffer += self._chunk().replace(b"\r\n", b"\n")

    def events(self, timeout=5):
        """Events to the end of the stream."""
        return list(iter(lambda: self.event(timeout), None))

    def silent(self, seconds=0.3):
        """Nothing but comments arrives, and the connection stays."""
        try:
            event = self.event(seconds / self.patience)
        except TimeoutError:
            return True
        raise AssertionError(f"unexpected: {event}")

    def rest(self, timeout=None):
        """Everything up to the server's close (a reset counts as one)."""
        if timeout is not None:
            self.sock.settimeout(timeout)
        data, self.buffer = self.buffer, b""
        try:
            while more := self.sock.recv(65536):
                data += more
        except (ConnectionResetError, ssl.SSLError):
            pass
        return data

    def is_closed(self, timeout=2):
        """Does the server close within the time? Unread answers are thrown away."""
        deadline = time.monotonic() + timeout * self.patience
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.sock], [], [], left)[0]:
                return False
            try:
                if not self.sock.recv(65536):
                    return True
            except (ConnectionResetError, ssl.SSLError):
                return True
        return False
