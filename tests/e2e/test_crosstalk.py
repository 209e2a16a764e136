"""Many sessions at once over HTTP, each with variables and files of its own: nothing of one is ever
seen in another, and nothing random repeats.

In full (BELLJAR_FULL=1) 200 sessions and 20,000 calls; else fewer."""

import json
import os
import pathlib
import random
import threading
import time

import belljar
import pytest
from belljar import FULL, Http, call_tool, need, request, text_of
from sandboxes import Run, ToolError

pytestmark = pytest.mark.python_only

SESSIONS, CALLS, FRESH = (200, 20_000, 200) if FULL else (40, 2_000, 24)
CLIENTS = 20  # threads, each an HTTP client with its share of the sessions
SLOW = 120
RUNTIME = pathlib.Path(
    os.environ.get("BELLJAR_RUNTIME", pathlib.Path(__file__).parents[2] / ".cache/runtime")
)

FLAGS = [
    *("--pool-enabled", "--max-sessions", "1000", "--max-sessions-per-client", "1000"),
    *("--http-max-connections", "1000", "--http-max-connections-per-address", "1000"),
    *("--max-requests-per-client", "1000", "--memory-limit", "256m", "--run-timeout", "120s"),
]


@pytest.fixture(scope="module")
def server():
    need(belljar.BIN)
    has_libraries = (RUNTIME / "stamp").exists()
    flags = ["--runtime", str(RUNTIME)] if has_libraries and not belljar.IN_CONTAINERS else []
    with Http(*FLAGS, *flags) as made:
        made.has_libraries = has_libraries
        yield made


class Client:
    """An HTTP client with one connection that it keeps."""

    def __init__(self, server):
        self.server = server
        self.session = server.session()
        self.conn = server.connect(SLOW)
        self.calls = 0

    def tool(self, name, **arguments):
        self.calls += 1
        body = belljar.encode(request("tools/call", call_tool(name, arguments), self.calls))
        self.conn.send(self.server.head("POST", "/mcp", self.session.headers, len(body)) + body)
        reply = self.conn.response().message()
        assert reply["id"] == self.calls, reply
        result = belljar.unwrap(reply)
        if result.get("isError"):
            raise ToolError(text_of(result))
        return result

    def execute(self, code, id=None, language="python"):
        more = {"session_id": id} if id else {}
        return Run(self.tool("execute_code", code=code, language=language, **more), 0)

    def close(self):
        self.conn.close()
        self.session.delete()


class Tenant:
    """A session, and what it must be like at every moment."""

    def __init__(self, client, number):
        self.client, self.number, self.count, self.log = client, number, 0, ""
        self.secret = f"tenant-{number}-{random.getrandbits(64):x}"
        run = client.execute(
            "import os\n"
            "assert 'secret' not in globals() and not os.listdir() and not os.listdir('/tmp')\n"
            f"secret, count = {self.secret!r}, 0\n"
            "open('own', 'w').write(secret); open('/tmp/own', 'w').write(secret)\n"
            "os.environ['OWN'] = secret\n"
            f"len(In), {number}"
        )
        assert run.outcome == "ok" and run.said["result"] == f"(2, {number})", run
        self.id = run.session

    def by_python(self):
        self.count += 1
        self.log += f"{self.count}\n"
        run = self.client.execute(
            "count += 1\n"
            "with open('log', 'a') as log: log.write(f'{count}\\n')\n"
            "print(secret, open('own').read(), open('/tmp/own').read(), os.environ['OWN'])\n"
            "count, sorted(os.listdir())",
            self.id,
        )
        assert run.stdout == " ".join([self.secret] * 4) + "\n", (self.secret, run)
        assert run.said["result"] == f"({self.count}, ['log', 'own'])", (self.count, run)

    def by_shell(self):
        run = self.client.execute("cat own /tmp/own; ls; tail -n 1 log", self.id, "bash")
        last = f"{self.count}\n" if self.count else ""
        listing = "log\nown\n" if self.count else "own\n"
        assert run.stdout == self.secret * 2 + listing + last, (self.secret, run)

    def by_file(self):
        said = self.client.tool("sandbox_read_file", session_id=self.id, path="own")
        assert self.secret in json.dumps(said), (self.secret, said)

    def by_error(self):
        run = self.client.execute("raise KeyError(secret)", self.id)
        assert run.error == f"KeyError: {self.secret!r}" or self.secret in run.error, run

    def step(self):
        ways = [self.by_python] * 6 + [self.by_shell, self.by_file, self.by_error]
        random.choice(ways if self.count else [self.by_python])()


def at_once(count, work):
    """work(0) … work(count - 1) in threads; the first failure is raised."""
    failures = []

    def guard(number):
        try:
            work(number)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=guard, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.timeout((3600 if FULL else 300) * belljar.PATIENCE)
def test_no_session_sees_another(server):
    clients = [Client(server) for _ in range(CLIENTS)]
    tenants = []

    def live(number):
        client = clients[number]
        mine = [Tenant(client, n) for n in range(number, SESSIONS, CLIENTS)]
        tenants.extend(mine)
        everybody.wait(SLOW * belljar.PATIENCE)  # now all sessions are open
        while client.calls < CALLS / CLIENTS:
            random.choice(mine).step()

    everybody = threading.Barrier(CLIENTS)
    began = time.monotonic()
    at_once(CLIENTS, live)
    took = time.monotonic() - began
    assert len({tenant.id for tenant in tenants}) == SESSIONS
    calls = sum(client.calls for client in clients)
    assert calls >= CALLS
    print(f"\n{SESSIONS} sessions, {calls} calls in {took:.1f} s, server {server.rss() >> 20} MiB")
    # At the end each still has what it had, and nobody can reach another's.
    for tenant in tenants:
        tenant.by_python()
    stranger = Client(server)
    for tenant in random.sample(tenants, 20):
        with pytest.raises(ToolError, match="no such session"):
            stranger.execute("secret", tenant.id)
    for client in (*clients, stranger):
        client.close()


# Whatever is random in a fresh sandbox, one per line.
RANDOM = """
import os, random, secrets, tempfile, uuid
print("random", random.getrandbits(128))
print("instance", random.Random().getrandbits(128))
print("system", random.SystemRandom().getrandbits(128))
print("uuid", uuid.uuid4())
print("uuid1", uuid.uuid1())
print("secrets", secrets.token_hex(16))
print("urandom", os.urandom(16).hex())
print("mktemp", tempfile.mktemp())
print("name", tempfile.mkdtemp().rpartition("/")[2])
"""
RANDOM_NUMPY = """
import numpy
print("numpy", numpy.random.bytes(16).hex())
print("numpy randint", numpy.random.randint(0, 2**62, 2))
print("numpy default", numpy.random.default_rng().bytes(16).hex())
print("numpy legacy", numpy.random.RandomState().bytes(16).hex())
"""


@pytest.mark.timeout((1800 if FULL else 300) * belljar.PATIENCE)
@pytest.mark.parametrize("kind", ["plain", "numpy"])
def test_nothing_random_repeats_in_fresh_sandboxes(server, kind):
    if kind == "numpy" and not server.has_libraries:
        pytest.skip("numpy is not there")
    code = RANDOM + (RANDOM_NUMPY if kind == "numpy" else "")
    clients = [Client(server) for _ in range(4)]
    seen = []

    def ask(number):
        for _ in range(FRESH // len(clients)):
            run = clients[number].execute(code)
            assert run.outcome == "ok", run
            seen.append(run.stdout)
            clients[number].tool("clear_session", session_id=run.session)

    at_once(len(clients), ask)
    lines = [line for stdout in seen for line in stdout.splitlines()]
    assert len(seen) == FRESH and len(lines) == FRESH * code.count("print(")
    values = [line.split(" ", 1)[1] for line in lines]
    assert len(set(values)) == len(values), sorted(v for v in values if values.count(v) > 1)
    for client in clients:
        client.close()
