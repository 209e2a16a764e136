"""A server, a peaceful session in it, and the canaries of the host around both."""

import pathlib
import sys
import time

import host
import sandboxes
from canaries import Canaries

HERE = pathlib.Path(__file__).parent

# Lives through all attacks. It says so when somebody comes near.
NEIGHBOUR = r"""
import os, select, signal, socket, sys, time
secret = "@SECRET@"
open("/workspace/secret", "w").write(secret)
open("/tmp/secret", "w").write(secret)
open("/dev/shm/secret", "w").write(secret)
os.environ["NEIGHBOUR"] = secret
tcp = socket.create_server(("127.0.0.1", 0))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0))
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\0neighbour-@NAME@"); abstract.listen()
path = socket.socket(socket.AF_UNIX); path.bind("/tmp/neighbour-@NAME@"); path.listen()
for number in range(1, 65):
    try: signal.signal(number, lambda n, _: print("HIT signal", n, flush=True))
    except (OSError, ValueError): pass
print("PORTS", tcp.getsockname()[1], udp.getsockname()[1], flush=True)
end = time.time() + 290
while time.time() < end:
    ready, _, _ = select.select([tcp, udp, abstract, path], [], [], 1)
    for sock in ready:
        print("HIT socket", sock.getsockname(), flush=True)
        if sock is udp: sock.recvfrom(100)
        else: sock.accept()[0].send(secret.encode())
"""


class Neighbour:
    def __init__(self, jar, secret):
        self.jar, self.secret = jar, secret
        self.name = secret[-8:]
        self.waiting = None
        self.ports = []

    def ensure(self):
        """Starts it, again if its time is nearly over."""
        if self.waiting and time.monotonic() - self.waiting.began < 240:
            return
        if self.waiting:
            self.jar.close_session(self.session)
        code = NEIGHBOUR.replace("@SECRET@", self.secret).replace("@NAME@", self.name)
        script = f"cat >/tmp/n.py <<'EOF'\n{code}\nEOF\nexec python3 -I /tmp/n.py {self.secret}\n"
        self.session = self.jar.tool("start_session")["session_id"]
        self.waiting = self.jar.begin(script, session=self.session, timeout=300, progress=True)
        said = host.wait_for(lambda: "PORTS" in self.said(), 10)
        assert said, f"the neighbour did not start: {self.waiting.future} {self.jar.log_text()}"
        self.ports = self.said().split("PORTS", 1)[1].split()[:2]
        (self.process,) = host.find(self.secret, self.jar.guests_below)[:1]

    def said(self):
        return "".join(text for _, text in self.waiting.progress)

    def breaches(self):
        if self.waiting.future.done():
            found = [f"the neighbour's run ended: {self.waiting.future.result()}"]
            self.waiting = None
            return found
        return ["the neighbour says: " + self.said()[:300]] if "HIT" in self.said() else []


class Arena:
    """`make` starts the server, as sandboxes.Jar does; `engine`: what its sandboxes are."""

    def __init__(self, user=None, delegation=None, make=sandboxes.Jar, engine="native"):
        self.user, self.engine = user, engine
        self.state = sandboxes.make_state(user)
        self.canaries = Canaries(self.state, sandboxes.binary_for(user), user)
        secret = self.canaries.secret
        self.token = secret("server's arguments")
        before = delegation.before() if delegation else []
        before += [
            sys.executable,
            str(HERE / "launch.py"),
            secret("descriptors and keys of the server"),
        ]
        self.jar = make(
            "--token",
            self.token,
            "--session-timeout",
            "1h",
            user=user,
            before=before,
            state=self.state,
            env={"CANARY": secret("server's environment"), "BELLJAR_TOKEN": self.token},
        )
        self.neighbour = Neighbour(self.jar, secret("neighbour's files and processes"))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.jar.kill() if kind else self.jar.stop()
        finally:
            self.canaries.remove()

    def words(self):
        self.neighbour.ensure()
        return {
            **self.canaries.words(),
            "NEIGHBOUR": self.neighbour.name,
            "NEIGHBOUR_PORTS": " ".join(self.neighbour.ports),
            "NEIGHBOUR_PID": str(self.neighbour.process.pid),
            "BINARY": str(sandboxes.binary_for(self.user)),
            "STATE": self.state,
            "ENGINE": self.engine,
            "OWN_UID": "yes" if "own_uid" in self.jar.enforced() else "no",
        }

    def breaches(self):
        return self.canaries.breaches(self.jar) + self.neighbour.breaches()

    def strangers(self):
        """Guest processes that are not the neighbour's."""
        home = self.neighbour.process.pid_namespace
        return [task for task in host.guests(self.jar.guests_below) if task.pid_namespace != home]
