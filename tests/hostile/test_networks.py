"""Network namespaces that are used again (src/engine/native/nets.h): only those in which nobody has made a socket, and
each is as new to whoever gets it."""

import json
import os
import secrets
import subprocess
import time

import host
import pytest
from belljar import PATIENCE

# The number of a network namespace, of which no two are the same as long as the machine runs (Linux 5.14), and what
# the kernel has counted there; sockets of AF_UNIX may be made.
LOOK = r"""
import json, socket, sys
def first(path, lines=None):
    try:
        return open("/proc/net/" + path).read().splitlines()[:lines]
    except FileNotFoundError:
        return None
seen = {name: first(name) for name in
        ("snmp", "snmp6", "netstat", "dev", "dev_snmp6/lo", "ip6_flowlabel", "igmp", "igmp6", "mcfilter",
         "mcfilter6", "dev_mcast", "route", "ipv6_route", "if_inet6", "arp", "udp", "udp6")}
seen["unix"] = [line.split()[7:] for line in first("unix")[1:]]  # the agent's own are there
seen["sockstat"] = first("sockstat", 1)
with socket.socket(socket.AF_UNIX) as asked:
    cookie = int.from_bytes(asked.getsockopt(socket.SOL_SOCKET, 71, 8), sys.byteorder)
print(json.dumps([cookie, seen]))
"""

# What leaves something behind, and what only might.
USES = {
    "a socket": "socket.socket(socket.AF_INET)",
    "a socket of version 6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "a look at routes": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "tcp": """
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); s, _ = l.accept()
s.sendall(b"x"); assert c.recv(1) == b"x"; c.close(); s.close()""",
    "tcp of version 6": """
l = socket.create_server(("::1", 0), family=socket.AF_INET6)
c = socket.create_connection(l.getsockname()[:2]); s, _ = l.accept(); s.sendall(b"x"); assert c.recv(1) == b"x" """,
    "udp": """
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0)); a.sendto(b"x", a.getsockname())
assert a.recv(1) == b"x" """,
    "no way out": """
try: socket.create_connection(("192.0.2.1", 80), 1); raise SystemExit("breach")
except OSError as error: print(error)""",
    "a flow label": """
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(41, 32, socket.inet_pton(socket.AF_INET6, "::1") + struct.pack("!I", 0x12345)
             + struct.pack("=BBHHHI", 0, 1, 1, 0, 60, 0))""",
    "a key of fast open": """
l = socket.create_server(("127.0.0.1", 0)); l.setsockopt(6, 23, 5)
print("key", l.getsockopt(6, 33, 32).hex())""",
    "a group": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(0, 35, socket.inet_aton("239.1.2.3") + socket.inet_aton("127.0.0.1"))""",
    "a child's child": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: socket.socket(socket.AF_INET)
    os._exit(0)
os.wait(); time.sleep(0.3)""",
}

# Sockets that only each other hold, one of them with a name.
CYCLE = r"""
import socket
named = socket.socket(socket.AF_UNIX); named.bind("\0left behind"); named.listen()
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [named.fileno(), a.fileno(), b.fileno()])
socket.send_fds(b, [b"x"], [named.fileno(), a.fileno(), b.fileno()])
"""

# Stays in a network namespace until standard input ends.
STAY = r"""
import ctypes, os, socket, sys
assert ctypes.CDLL(None).setns(os.open(sys.argv[1], os.O_RDONLY), 0) == 0
named = socket.socket(socket.AF_UNIX); named.bind("\0left behind")
print("there", flush=True)
sys.stdin.read()
"""

FLOOD = r"""
import os, socket, time
for _ in range(15):
    if os.fork() == 0: break
print("FLOOD", flush=True)
end, n = time.monotonic() + 4, 0
while time.monotonic() < end:
    socket.socket(socket.AF_INET).close(); n += 1
"""


@pytest.fixture(scope="module")
def jar(start):
    """Little is made ahead: one sandbox gets what another has left a moment before."""
    with start("--pool-size", "1") as made:
        yield made


def look(jar, before=""):
    run = jar.python(f"import os, struct, time\n{LOOK}\n{before}", timeout=20)
    assert not run.exit_code and run.stdout, run
    jar.close_session(run.session)
    cookie, seen = json.loads(run.stdout.splitlines()[0])
    return cookie, seen, run


@pytest.fixture(scope="module")
def new(jar):
    """What there is to see in a namespace that nobody has had before."""
    return look(jar)[1]


def test_a_namespace_that_nobody_used_serves_again(jar, new):
    cookies = []
    for _ in range(8):
        cookie, seen, _ = look(jar)
        cookies.append(cookie)
        assert seen == new
    assert len(set(cookies)) < len(cookies), cookies


@pytest.mark.parametrize("use", USES)
def test_one_that_somebody_used_never_does(jar, new, use):
    used, seen, _ = look(jar, USES[use])
    assert seen == new
    for _ in range(6):
        cookie, seen, _ = look(jar)
        assert cookie != used and seen == new


def test_kernels_are_seen_as_programs_are(jar, new):
    """They come from the zygote, not from the agent, and begin with filters of their own."""
    for code, again in (("", True), ("; socket.socket(socket.AF_INET)", False)):
        run = jar.execute(f"import socket{code}\n{LOOK}", language="python", timeout=60)
        used, seen = json.loads(run.stdout.splitlines()[0])
        assert seen["dev"] == new["dev"]
        jar.close_session(run.session)
        assert (used in [look(jar)[0] for _ in range(6)]) == again, code


def test_sockets_without_a_process_are_nobodys_neighbours(jar, new):
    for _ in range(6):
        _, seen, _ = look(jar, CYCLE)
        assert seen == new


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter a namespace of another's")
def test_a_socket_that_stays_keeps_others_out(jar, new):
    """Nobody has been seen to make it: this one comes from outside."""
    seconds = f"1{secrets.randbelow(1 << 24)}"
    session = jar.tool("start_session")["session_id"]
    guest = jar.begin(f"echo here; exec sleep {seconds}", session=session, progress=True)
    assert host.wait_for(lambda: guest.progress, 10)
    pid = host.find(f"sleep {seconds}", jar.guests_below)[-1].pid
    argv = ["/usr/bin/python3", "-I", "-c", STAY, f"/proc/{pid}/ns/net"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        left.stdout.readline()
        jar.close_session(session)
        for _ in range(6):
            assert look(jar)[1] == new


def test_loopback_works_wherever_it_is(jar):
    for _ in range(4):
        for use in ("tcp", "tcp of version 6", "udp"):
            assert look(jar, USES[use])[2].exit_code == 0
        look(jar)


def test_a_flood_of_sockets_stalls_nobody(jar):
    """Each of them asks the spawner, which does so many in a millisecond and nothing less for others."""
    flood = jar.begin(
        f"cat >/tmp/f.py <<'E'\n{FLOOD}\nE\nexec python3 -I /tmp/f.py", timeout=20, progress=True
    )
    assert host.wait_for(lambda: flood.progress, 10)
    took = []
    for _ in range(5):
        began = time.monotonic()
        look(jar, USES["udp"])
        took.append(time.monotonic() - began)
    flood.cancel()
    assert min(took) < 1 * PATIENCE, took


def test_without_a_listener_each_is_new(start):
    """Of a filter that is somebody else's there can be one that tells: then nothing is used again."""
    with start("--pool-size", "1", before=LISTENING) as jar:
        cookies = [look(jar)[0] for _ in range(4)]
        assert len(set(cookies)) == len(cookies), cookies


# Runs a command below a filter with a listener, whose descriptor nobody closes.
LISTENING = [
    "/usr/bin/python3",
    "-I",
    "-c",
    r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(program)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
listener = libc.syscall(317, 1, 8, header)
assert listener >= 0, ctypes.get_errno()
os.set_inheritable(listener, True)
os.execvp(sys.argv[1], sys.argv[1:])
""",
]
