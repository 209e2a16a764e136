"""Ways in: sessions without a protocol, and the server as clients use it.

Each makes runs of a cell, `count` of them with so many seconds before each, and says how many milliseconds they took:
fresh() in a new session each, warm() in one. rate() is how many fresh ones a second end, LANES at once."""

import http.client
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from subprocess import DEVNULL, PIPE

import belljar
import sandboxes

from .common import CELLS, PROGRAM, stopping, timed

LANES = 4  # at once, for the rate


def unlimited_files():
    """A thousand sandboxes are some thousand descriptors."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Engine:
    """bench-kernel, with one setting of options."""

    def __init__(self, words, cells, user=None):
        self.state = sandboxes.make_state(user)
        self.cells = cells
        program = self.copy_for(user) if user else PROGRAM
        argv = [*sandboxes.as_user(user), program, "bench", "--log-level", "error"]
        argv += ["--state-dir", self.state, *words]
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            env={**os.environ, **({"HOME": user.home} if user else {})},
            preexec_fn=unlimited_files,
        )

    def copy_for(self, user):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-bench-"))
        self.place.chmod(0o755)
        return shutil.copy(PROGRAM, self.place / "bench-kernel")

    def ask(self, *words):
        """(lines, seconds)"""
        print(*words, file=self.process.stdin, flush=True)
        lines = []
        for line in self.process.stdout:
            if line.startswith("end "):
                return lines, float(line.split()[1])
            lines.append(line.strip())
        raise RuntimeError(f"bench-kernel ended at {words}: status {self.process.wait()}")

    def milliseconds(self, *words):
        lines, seconds = self.ask(*words)
        return [float(line) / 1000 for line in lines], seconds

    def fresh(self, cell, count, gap):
        return self.milliseconds("fresh", count, 1, int(gap * 1000), self.cells[cell])[0]

    def alone(self, cell, count, gap):
        return self.milliseconds("alone", count, 1, int(gap * 1000), self.cells[cell])[0]

    def warm(self, cell, count, gap):
        return self.milliseconds("warm", count, int(gap * 1000), self.cells[cell])[0]

    def rate(self, count):
        return count / self.milliseconds("fresh", count, LANES, 0, self.cells["print"])[1]

    def show(self, cell):
        return "\n".join(self.ask("show", self.cells[cell])[0])

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)
        if hasattr(self, "place"):
            shutil.rmtree(self.place, ignore_errors=True)


class Client:
    """A client of the server. What the two transports share: tools, and how runs are made of them."""

    def execute(self, code, session=None):
        arguments = {"code": code, **({"session_id": session} if session else {})}
        result = self.tool("execute_code", arguments)
        said = result["structuredContent"]
        assert said["outcome"] == "ok" and len(result["content"]) + len(said["output"]) > 1, result
        return said

    def fresh(self, cell, count, gap):
        times = []
        for _ in range(count):
            time.sleep(gap)
            begin = time.perf_counter()
            said = self.execute(CELLS[cell])
            times.append((time.perf_counter() - begin) * 1000)
            self.tool("clear_session", {"session_id": said["session_id"]})
        return times

    def warm(self, cell, count, gap):
        session = self.execute(CELLS[cell])["session_id"]
        times = timed(self.execute, count, gap, CELLS[cell], session)
        self.tool("clear_session", {"session_id": session})
        return times

    def rate(self, count):
        """Fresh sandboxes a second, several requests at once."""
        begin = time.perf_counter()
        clients = [self.another() for _ in range(LANES)]
        share = count // LANES
        workers = [
            threading.Thread(target=client.fresh, args=("print", share, 0.0)) for client in clients
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return share * LANES / (time.perf_counter() - begin)

    def show(self, cell):
        said = self.execute(CELLS[cell])
        self.tool("clear_session", {"session_id": said["session_id"]})
        return "".join(piece["text"] for piece in said["output"])


class Stdio(Client):
    def __init__(self, words):
        self.state = sandboxes.make_state()
        argv = [belljar.BIN, "serve", "--stdio", "--log-level", "error", "--state-dir", self.state]
        self.process = subprocess.Popen([*argv, *words], stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        self.lock = threading.Lock()
        self.replies, self.arrived = {}, threading.Condition()
        self.reading = False
        self.number = 0
        with stopping(self):
            self.call(belljar.initialize())
            self.send(belljar.notification("notifications/initialized"))

    def send(self, message):
        self.process.stdin.write(belljar.encode(message) + b"\n")
        self.process.stdin.flush()

    def tool(self, name, arguments):
        with self.lock:
            self.number += 1
            number = self.number
        message = belljar.request("tools/call", belljar.call_tool(name, arguments), number)
        return belljar.unwrap(self.call(message))

    def call(self, message):
        """Its answer. Whoever waits first reads for all that wait."""
        with self.lock:
            self.send(message)
        wanted = message["id"]
        with self.arrived:
            self.arrived.wait_for(lambda: wanted in self.replies or not self.reading)
            if wanted in self.replies:
                return self.replies.pop(wanted)
            self.reading = True
        try:
            while True:
                reply = json.loads(self.process.stdout.readline())
                if reply.get("id") == wanted:
                    return reply
                with self.arrived:
                    self.replies[reply.get("id")] = reply
                    self.arrived.notify_all()
        finally:
            with self.arrived:
                self.reading = False
                self.arrived.notify_all()

    def another(self):
        return self

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)


class Http(Client):
    """Stateless requests on one connection that is kept."""

    def __init__(self, words=(), server=None):
        self.state = None if server else sandboxes.make_state()
        self.server = server or belljar.Http(
            "--pool-enabled", "--http-idle-timeout=10m", "--state-dir", self.state, *words
        )
        self.connection = http.client.HTTPConnection(*self.server.address)

    def tool(self, name, arguments):
        message = belljar.stateless("tools/call", belljar.call_tool(name, arguments))
        headers = {"Content-Type": "application/json", "Accept": belljar.BOTH}
        self.connection.request(
            "POST", "/mcp", belljar.encode(message), {**headers, **belljar.mirror(message)}
        )
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.getheader("Content-Type", "").startswith("text/event-stream"):
            body = body.rpartition(b"data: ")[2]
        return belljar.unwrap(json.loads(body))

    def another(self):
        return Http(server=self.server)

    def stop(self):
        self.connection.close()
        self.server.stop()
        shutil.rmtree(self.state, ignore_errors=True)
