"""Starts src/kernel/kernel.py as its parent will: a socket for messages, descriptors 1 and 2 to read."""

import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "src/kernel/kernel.py"


# What a done message need not say.
QUIET = {"result": None, "error": None, "traceback": [], "exit_code": 0, "files": []}
QUIET |= {"files_counted": True, "notes": []}


class KernelDied(Exception):
    pass


class Outcome:
    """What one run gave: the done message, what was displayed, what was printed."""

    def __init__(self, done, displays, stdout, stderr):
        self.done, self.displays, self.stdout, self.stderr = done, displays, stdout, stderr
        self.status = done["status"]
        self.traceback = "\n".join(done["traceback"])
        self.files = {entry["path"]: entry for entry in done["files"]}
        self.images = [d["data"]["image/png"] for d in displays if "image/png" in d["data"]]

    @property
    def text(self):
        return self.done["result"] and self.done["result"]["text/plain"]

    @property
    def error(self):
        return self.done["error"] and self.done["error"]["name"]

    def __repr__(self):
        return f"Outcome({self.done}, {self.displays}, {self.stdout!r}, {self.stderr!r})"


class Kernel:
    def __init__(self, python, workspace, env=None, starter=None):
        ours, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        argv = starter or [python, KERNEL, str(theirs.fileno()), workspace]
        self.process = subprocess.Popen(
            [str(arg) for arg in argv],
            stdin=subprocess.DEVNULL,
            stdout=out[1],
            stderr=err[1],
            pass_fds=[theirs.fileno()],
            cwd=workspace,
            # The kernel lets it in when it can handle it: an interrupt that comes early is kept.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]),
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
        )
        for fd in (out[1], err[1]):
            os.close(fd)
        theirs.close()
        self.socket, self.out, self.err = ours, out[0], err[0]
        self.printed = {self.out: bytearray(), self.err: bytearray()}
        self.received = bytearray()
        self.number = 0

    # -- messages --

    def send(self, **message):
        body = json.dumps(message).encode()
        self.socket.sendall(len(body).to_bytes(4, "little") + body)

    def receive(self, timeout=60):
        """The next message; reads what is printed meanwhile."""
        deadline = time.monotonic() + timeout
        while True:
            size = int.from_bytes(self.received[:4], "little")
            size &= 0x7FFF_FFFF  # the bit above says that it is the last of a cell
            if len(self.received) >= 4 + size and len(self.received) >= 4:
                message = json.loads(bytes(self.received[4 : 4 + size]))
                del self.received[: 4 + size]
                return message
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no message in {timeout} s; printed: {self.printed}")
            for source in select.select([self.socket, *self.printed], [], [], left)[0]:
                if source is self.socket:
                    chunk = self.socket.recv(1 << 20)
                    if not chunk:
                        raise KernelDied(self.process.wait())
                    self.received += chunk
                else:
                    self.read_printed(source)

    def read_printed(self, fd):
        chunk = os.read(fd, 1 << 20)
        if chunk:
            self.printed[fd] += chunk
        return chunk

    def drain(self):
        """What was printed so far, as (stdout, stderr)."""
        while ready := select.select(list(self.printed), [], [], 0)[0]:
            if not any([self.read_printed(fd) for fd in ready]):
                break
        texts = [self.printed[fd].decode("utf-8", "replace") for fd in (self.out, self.err)]
        for buffer in self.printed.values():
            buffer.clear()
        return texts

    def request(self, timeout=60, **message):
        self.send(**message)
        return self.receive(timeout)

    # -- runs --

    def start(self, code, forget=False, **options):
        self.number += 1
        options = {"print_displays": False, **options}  # displays are looked at for themselves
        self.send(op="execute", id=self.number, code=code, options=options, forget=forget)

    def finish(self, timeout=60):
        displays = []
        while True:
            message = self.receive(timeout)
            assert message["id"] == self.number, message
            if message["op"] == "done":
                return Outcome({**QUIET, **message}, displays, *self.drain())
            assert message["op"] == "display", message
            displays.append(message)

    def run(self, code, timeout=60, **options):
        self.start(code, **options)
        return self.finish(timeout)

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def close(self):
        self.socket.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for fd in (self.out, self.err):
            os.close(fd)
