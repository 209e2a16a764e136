"""What the first process of the machine does, whatever it is there for: a host as others are, with version 2 of cgroups and
every controller, and an end. Standard library only."""

import ctypes
import json
import os
import pathlib
import subprocess
import termios
import time

CGROUPS = "/sys/fs/cgroup"
SOMEBODY = 1234
RESULT = "RESULT "  # begins a line of results, for machine.py
PLACES = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", ""),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
    ("cgroup2", CGROUPS, "nsdelegate"),
]


def say(**results):
    print(RESULT + json.dumps(results), flush=True)


def mount(kind, place, data):
    os.makedirs(place, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, data.encode()) < 0:
        raise OSError(ctypes.get_errno(), f"mount {kind}")


def write(path, text):
    pathlib.Path(path).write_text(text)


def set_up():
    """Afterwards we are in the cgroup of a session; "service" is empty, and "user/own" is somebody's."""
    for kind, place, data in PLACES:
        mount(kind, place, data)
    write("/proc/sys/kernel/printk", "1")  # what the kernel says would come amid our lines
    for name in ("session", "service", "user", "user/own"):
        os.makedirs(f"{CGROUPS}/{name}")
    for name in ("", "user"):
        write(f"{CGROUPS}/{name}/cgroup.subtree_control", "+memory +pids +cpu")
    for file in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(f"{CGROUPS}/user/own/{file}", SOMEBODY, SOMEBODY)
    write(f"{CGROUPS}/session/cgroup.procs", str(os.getpid()))
    say(
        kernel=os.uname().release,
        controllers=pathlib.Path(f"{CGROUPS}/cgroup.controllers").read_text().split(),
    )


def run(command, **options):
    """As subprocess.call(), and reaps orphans meanwhile, as the first process has to."""
    child = subprocess.Popen(command, **options)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def end():
    print("END", flush=True)
    termios.tcdrain(1)  # or the machine's last words come amid what the console has still to show
    write("/proc/sysrq-trigger", "o")
    time.sleep(60)
