"""The server itself, as if what a client sent had taken it over: what could that do to the host?

The same is asked of a process that nobody has confined, so that a question which is always refused would show."""

import contextlib
import errno
import os
import pathlib
import socket
import struct
import subprocess
import tempfile

import host
import possessed
import pytest
from possessed import AT_FDCWD, CLOSE, CONNECT, EXECVE, KILL, OPENAT, SOCKET, Possessed
from sandboxes import Jar


@pytest.fixture
def secret():
    """A file that anybody may read, in a directory that anybody may write to."""
    with tempfile.TemporaryDirectory(prefix="belljar-secret-") as place:
        os.chmod(place, 0o777)
        path = pathlib.Path(place, "secret")
        path.write_text("secret\n")
        path.chmod(0o666)
        yield path


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def sleeper(uid):
    """A process without any wall around it."""
    with subprocess.Popen(["sleep", "1000"], user=uid, group=uid, extra_groups=[]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def attempts(it, secret, port, victim):
    """{what is tried: what came of it}"""

    def opened(path, flags):
        got = it.call(OPENAT, AT_FDCWD, str(path), flags, 0o600)
        if got >= 0:
            it.call(CLOSE, got)
        return got

    def connected():
        fd = it.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0)
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), b"\x7f\0\0\1")
        got = it.call(CONNECT, fd, address, len(address))
        it.call(CLOSE, fd)
        return got

    return {
        "read": opened(secret, os.O_RDONLY),
        "write": opened(secret, os.O_WRONLY),
        "list": opened("/", os.O_RDONLY | os.O_DIRECTORY),
        "make": opened(secret.with_name("made"), os.O_WRONLY | os.O_CREAT),
        "library": opened("/usr/bin/env", os.O_RDONLY),
        "connect": connected(),
        "signal": it.call(KILL, victim, 0),
    }


@pytest.mark.parametrize("packages", [False, True])
def test_a_server_that_was_taken_over_reaches_its_own_files_only(user, secret, listener, packages):
    possessed.need()
    flags = ["--packages-enabled" if packages else "--no-packages-enabled"]
    with Jar(*flags, user=user) as jar:
        assert jar.execute("echo here").stdout == "here\n"
        own = f"{jar.state}/of-a-stranger"
        uid = int(host.Task(jar.pid).status("Uid")[0])
        with sleeper(uid) as free, sleeper(uid) as victim:
            with Possessed(free) as it:
                allowed = attempts(it, secret, listener, victim)
            with Possessed(jar.pid) as it:
                refused = attempts(it, secret, listener, victim)
                run = it.call(EXECVE, "/usr/bin/env", 0, 0)
                etc = it.call(OPENAT, AT_FDCWD, "/etc/hosts", os.O_RDONLY)
                made = it.call(OPENAT, AT_FDCWD, own, os.O_WRONLY | os.O_CREAT, 0o600)
        assert jar.execute("echo still here").stdout == "still here\n"
    assert all(got >= 0 for got in allowed.values()), allowed
    assert refused.pop("signal") == -errno.EPERM
    assert {*refused.values(), run} == {-errno.EACCES}, (refused, run)
    assert (etc >= 0) == packages  # how names become addresses is what installers are told
    assert (made >= 0) == bool(user)  # started by root it has what it needs of these open
