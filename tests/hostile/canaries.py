"""Things of the host that no sandbox may reach. They decide whether an attack got through; what the
attacking program says about itself can only count against us, never for us.

    canaries = Canaries(user)            plants all of them
    canaries.words()                     where they are, for the programs' placeholders
    canaries.breaches(jar)               what was touched or leaked since the last look, in words
    canaries.remove()
"""

import ctypes
import ctypes.util
import errno
import hashlib
import os
import pathlib
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time

import host

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]

IPC_CREAT, IPC_EXCL, IPC_RMID, IPC_STAT = 0o1000, 0o2000, 0, 2
MQ = {"x86_64": (240, 241, 242), "aarch64": (180, 181, 182)}[platform.machine()]

WATCHED_SETTINGS = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/file-max",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/net/ipv4/ip_forward",
]
WATCHED_PROGRAMS = [
    "/usr/bin/python3",
    "/usr/bin/env",
    "/usr/bin/true",
    "/bin/bash",
    "/usr/bin/node",
]


def token(kind):
    return f"CANARY-{kind}-{secrets.token_hex(12)}"


class Files:
    """Secret files all over the host, readable by everybody."""

    def __init__(self, state, home):
        self.secrets, self.paths = {}, []
        self.dirs = []
        name = f"belljar-canary-{secrets.token_hex(4)}"
        places = [
            "/tmp",
            "/root",
            "/var/tmp",
            "/var/lib",
            home or "/home",
            "/etc",
            "/dev/shm",
            "/run",
        ]
        for place in [*places, state]:
            directory = pathlib.Path(place, name)
            try:
                directory.mkdir(mode=0o755)
            except OSError:
                continue
            secret = token("file")
            (directory / "secret").write_text(secret + "\n")
            (directory / "secret").chmod(0o666)  # writable, so that only the sandbox stops a write
            directory.chmod(0o777)
            self.dirs.append(directory)
            self.paths.append(str(directory / "secret"))
            self.secrets[secret] = f"content of {directory}/secret"
        assert len(self.dirs) >= 6, self.dirs
        self.seen = self.look()

    def look(self):
        seen = {}
        for directory in self.dirs:
            for path in [directory, *directory.rglob("*")]:
                st = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                seen[str(path)] = (
                    st.st_mode,
                    st.st_uid,
                    st.st_gid,
                    st.st_ino,
                    st.st_nlink,
                    content,
                )
        return seen

    def breaches(self):
        now = self.look()
        return [
            f"host file {path}: was {self.seen.get(path)}, is {now.get(path)}"
            for path in sorted(set(now) | set(self.seen))
            if now.get(path) != self.seen.get(path)
        ]

    def remove(self):
        for directory in self.dirs:
            shutil.rmtree(directory, ignore_errors=True)


class Listeners:
    """Sockets of the host that nobody may reach; each greets a caller with a secret."""

    def __init__(self, directory):
        self.secret = token("socket")
        self.events = []
        self.sockets = []
        self.abstract = f"belljar-canary-{secrets.token_hex(6)}"
        self.path = str(directory / "socket")
        tcp4 = self._listen(socket.AF_INET, ("0.0.0.0", 0), "TCP on IPv4")
        self.port4 = tcp4.getsockname()[1]
        self.port6 = self.port4
        try:
            tcp6 = self._listen(socket.AF_INET6, ("::1", 0), "TCP on IPv6")
            self.port6 = tcp6.getsockname()[1]
        except OSError:
            pass
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("0.0.0.0", 0))
        self.udp = udp.getsockname()[1]
        self._watch(udp, "UDP", self._datagrams)
        self._listen(socket.AF_UNIX, "\0" + self.abstract, "abstract socket")
        self._listen(socket.AF_UNIX, self.path, "socket in the file system")
        os.chmod(self.path, 0o777)

    def _listen(self, family, address, what):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.bind(address)
        sock.listen(64)
        self._watch(sock, what, self._connections)
        return sock

    def _watch(self, sock, what, loop):
        self.sockets.append(sock)
        threading.Thread(target=loop, args=(sock, what), daemon=True).start()

    def _connections(self, sock, what):
        while True:
            try:
                peer, address = sock.accept()
            except OSError:
                return
            self.events.append(f"a connection to the host's {what} from {address!r}")
            try:
                peer.sendall(self.secret.encode() + b"\n")
            except OSError:
                pass
            peer.close()

    def _datagrams(self, sock, what):
        while True:
            try:
                data, address = sock.recvfrom(2048)
            except OSError:
                return
            self.events.append(f"a datagram to the host's {what} from {address}: {data[:40]!r}")

    def breaches(self):
        found, self.events = self.events, []
        return found

    def remove(self):
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()


class Bystanders:
    """Host processes with secrets in their arguments and environment, as root and as the user."""

    def __init__(self, user):
        self.argument, self.variable = token("argv"), token("environ")
        self.processes = []
        people = [None, user] if user else [None]
        for person in people:
            before = (
                ["setpriv", f"--reuid={person.uid}", f"--regid={person.gid}", "--clear-groups"]
                if person
                else []
            )
            code = "import signal, sys; signal.pause()"
            process = subprocess.Popen(
                [*before, "/usr/bin/python3", "-I", "-c", code, self.argument],
                env={"PATH": os.environ["PATH"], "CANARY": self.variable},
                cwd="/",
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.processes.append(process)

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def breaches(self):
        found = []
        for process in self.processes:
            status = process.poll()
            if status is not None:
                found.append(f"host process {process.pid} ended: {status}")
            elif host.Task(process.pid).state in "Tt":
                found.append(f"host process {process.pid} was stopped")
                process.send_signal(signal.SIGCONT)
        return found

    def remove(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Ipc:
    """SysV and POSIX objects of the host, open to everybody."""

    def __init__(self):
        self.secret = token("ipc")
        while not self.make():
            assert ctypes.get_errno() == errno.EEXIST, os.strerror(ctypes.get_errno())
        self.view = ctypes.cast(libc.shmat(self.shm, None, 0), ctypes.POINTER(ctypes.c_char * 4096))
        self.fill()
        message = ctypes.create_string_buffer(8 + 64)
        message[0] = b"\x01"
        ctypes.memmove(ctypes.addressof(message) + 8, self.secret.encode(), len(self.secret))
        assert libc.msgsnd(self.msg, message, len(self.secret), 0o4000) == 0
        self.name = f"belljar-canary-{secrets.token_hex(4)}"
        self.posix = pathlib.Path("/dev/shm", self.name)
        self.posix.write_text(self.secret)
        self.posix.chmod(0o666)
        self.queue = libc.syscall(MQ[0], self.name.encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
        if self.queue >= 0:
            sent = libc.syscall(MQ[2], self.queue, self.secret.encode(), len(self.secret), 1, None)
            assert sent == 0, os.strerror(ctypes.get_errno())
            os.chmod(f"/proc/self/fd/{self.queue}", 0o666)
        self.before = self.look()

    def make(self):
        """False: the key is another test run's, or was."""
        self.key = host.CANARY_KEYS | secrets.randbelow(0xFFF)
        self.shm = libc.shmget(self.key, 4096, IPC_CREAT | IPC_EXCL | 0o666)
        self.sem = libc.semget(self.key, 1, IPC_CREAT | IPC_EXCL | 0o666)
        self.msg = libc.msgget(self.key, IPC_CREAT | IPC_EXCL | 0o666)
        made = min(self.shm, self.sem, self.msg) >= 0
        if not made:
            code = ctypes.get_errno()
            self.remove_sysv()
            ctypes.set_errno(code)
        return made

    def remove_sysv(self):
        """Those that were made."""
        libc.shmctl(self.shm, IPC_RMID, None)
        libc.semctl(self.sem, 0, IPC_RMID)
        libc.msgctl(self.msg, IPC_RMID, None)

    def fill(self):
        ctypes.memmove(self.view, self.secret.encode(), len(self.secret))

    def look(self):
        state = {
            "shared memory": bytes(self.view.contents[: len(self.secret)]),
            "POSIX shared memory": self.posix.read_bytes() if self.posix.exists() else None,
        }
        for kind, id in (("shm", self.shm), ("sem", self.sem), ("msg", self.msg)):
            for line in host.read(f"/proc/sysvipc/{kind}").splitlines()[1:]:
                fields = line.split()
                if int(fields[1]) == id:
                    # permissions; attached or messages; owner
                    keep = {"shm": (2, 6, 7), "sem": (2, 3, 4), "msg": (2, 4, 7)}[kind]
                    state[kind] = tuple(fields[i] for i in keep)
        if self.queue >= 0:
            state["message queue"] = host.read(f"/proc/self/fdinfo/{self.queue}").count("QSIZE:0")
        return state

    def breaches(self):
        now = self.look()
        found = [
            f"host IPC, {kind}: was {self.before.get(kind)}, is {now.get(kind)}"
            for kind in sorted(set(now) | set(self.before))
            if now.get(kind) != self.before.get(kind)
        ]
        self.before = now
        return found

    def remove(self):
        libc.shmdt(self.view)
        self.remove_sysv()
        self.posix.unlink(missing_ok=True)
        if self.queue >= 0:
            os.close(self.queue)
            libc.syscall(MQ[1], self.name.encode())


class Machine:
    """Settings, clock and programs of the host."""

    def __init__(self, binary):
        self.programs = [path for path in [*WATCHED_PROGRAMS, str(binary)] if os.path.exists(path)]
        self.before = self.look()
        self.clock = time.time() - time.monotonic()

    @staticmethod
    def print_of(path):
        path = os.path.realpath(path)
        st = os.stat(path)
        digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        return st.st_mode, st.st_uid, st.st_size, st.st_mtime_ns, digest

    def look(self):
        seen = {path: host.read(path) for path in WATCHED_SETTINGS}
        return seen | {path: self.print_of(path) for path in self.programs}

    def breaches(self):
        now = self.look()
        found = [
            f"{path}: was {self.before[path]!r}, is {now[path]!r}"
            for path in now
            if now[path] != self.before[path]
        ]
        if abs(time.time() - time.monotonic() - self.clock) > 60:
            found.append("the host's clock was set")
        return found

    def remove(self):
        pass


class Canaries:
    def __init__(self, state, binary, user=None):
        self.files = Files(state, user.home if user else None)
        self.listeners = Listeners(self.files.dirs[0])
        self.files.seen = self.files.look()  # with the socket
        self.bystanders = Bystanders(user)
        self.ipc = Ipc()
        self.machine = Machine(binary)
        self.parts = [self.files, self.listeners, self.bystanders, self.ipc, self.machine]
        self.secrets = {
            **self.files.secrets,
            self.listeners.secret: "greeting of the host's sockets",
            self.bystanders.argument: "arguments of a host process",
            self.bystanders.variable: "environment of a host process",
            self.ipc.secret: "IPC objects of the host",
        }
        self.looked = {}

    def secret(self, what):
        """One more secret; whoever asks plants it."""
        made = token("other")
        self.secrets[made] = what
        return made

    def words(self):
        """Placeholders of the programs."""
        return {
            "FILES": " ".join(self.files.paths),
            "PORT4": str(self.listeners.port4),
            "PORT6": str(self.listeners.port6),
            "UDP": str(self.listeners.udp),
            "ABSTRACT": self.listeners.abstract,
            "SOCKET": self.listeners.path,
            "PIDS": " ".join(map(str, self.bystanders.pids)),
            "IPC_KEY": str(self.ipc.key),
            "IPC_NAME": self.ipc.name,
        }

    def leaks(self, received, key="bytes"):
        """Secrets in what was received since the last look at this `key`."""
        start = max(0, self.looked.get(key, 0) - 100)
        fresh = bytes(received[start:])
        self.looked[key] = start + len(fresh)
        return [
            f"received: {what}"
            for secret, what in self.secrets.items()
            if secret.encode() in fresh or secret.encode().hex().encode() in fresh
        ]

    def breaches(self, jar=None):
        time.sleep(0.01)  # a connection may still be on its way to its thread
        found = [one for part in self.parts for one in part.breaches()]
        if jar:
            found += self.leaks(jar.received)
            found += self.leaks(jar.log_text().encode(), key="log")
        return found

    def remove(self):
        for part in self.parts:
            part.remove()
