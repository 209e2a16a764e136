"""The first process of the machine: belljar in the places of the cgroup tree that it can be started from. Standard library
only. Each line of results is for test_cgroup2.py to judge."""

import glob
import json
import os
import pathlib
import subprocess
import time
import traceback

import first
from first import CGROUPS, SOMEBODY, say, write

MEMORY, PIDS, SHARE = "96m", 24, 0.5

IN_MEMORY = "x = bytearray(300 << 20)\nprint('survived')"
MANY = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error.errno)
"""
BUSY = """
import time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() - begin < 3:
    pass
print((time.process_time() - used) / (time.monotonic() - begin))
"""


class Server:
    def __init__(self, place, uid=0):
        def enter():
            write(f"{CGROUPS}/{place}/cgroup.procs", str(os.getpid()))
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)

        state = f"/tmp/state-{place.replace('/', '-')}"
        os.makedirs(state)
        os.chown(state, uid, uid)
        command = ["/belljar", "serve", "--stdio", "--state-dir", state, "--kernel-pool-size", "0"]
        command += ["--pool-size", "2", "--memory-limit", MEMORY, "--process-limit", str(PIDS)]
        command += ["--cpu-limit", str(SHARE), "--run-timeout", "60s", "--no-packages-enabled"]
        self.log = open(f"/tmp/log-{place.replace('/', '-')}", "w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            preexec_fn=enter,
        )
        self.number = 0
        self.call(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "vm", "version": "1"},
        )
        self.say({"method": "notifications/initialized"})

    def say(self, message):
        print(json.dumps({"jsonrpc": "2.0", **message}), file=self.process.stdin, flush=True)

    def call(self, method, **params):
        self.number += 1
        self.say({"id": self.number, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer.get("result") or answer
        self.log.seek(0)
        raise RuntimeError(f"the server has ended: {self.log.read()[-800:]}")

    def tool(self, name, **arguments):
        return self.call("tools/call", name=name, arguments=arguments)

    def run(self, code):
        """In a fresh sandbox."""
        said = self.tool("execute_code", code=code, language="python")["structuredContent"]
        text = "".join(part["text"] for part in said["output"])
        return {"outcome": said["outcome"], "text": text, "session": said["session_id"]}

    def run_once(self, code):
        answer = self.run(code)
        self.tool("clear_session", session_id=answer["session"])
        return answer

    def stop(self):
        self.process.stdin.close()
        return self.process.wait(30)


def comms():
    names = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            names.append(pathlib.Path(path).read_text().strip())
        except OSError:
            pass
    return names


def wait_for_stand_ins(server):
    """Each call gets a fresh sandbox of which it is the first: so the next are made for it."""
    for _ in range(12):
        answer = server.run_once("print(6 * 7)")
        if answer["text"] != "42\n":
            return answer
    end = time.monotonic() + 30
    while time.monotonic() < end and "belljar-standin" not in comms():
        time.sleep(0.2)
    return comms().count("belljar-standin")


def attempt(place, uid=0):
    server = Server(place, uid)
    seen = {}
    seen["first"] = server.run("print(open('/proc/self/cgroup').read())")
    info = server.tool("session_info", session_id=seen["first"]["session"])
    seen["enforced"] = info["structuredContent"]["enforced"]
    seen["stand_ins"] = wait_for_stand_ins(server)
    seen["from_stand_in"] = server.run_once("print(open('/proc/self/cgroup').read())")
    seen["memory"] = server.run_once(IN_MEMORY)
    seen["pids"] = server.run_once(MANY)
    seen["cpu"] = server.run_once(BUSY)
    seen["last"] = server.run_once("print('well')")
    seen["ended"] = server.stop()
    end = time.monotonic() + 20
    while time.monotonic() < end and left():
        time.sleep(0.1)
    seen["left"] = left()
    return seen


def left():
    return glob.glob(f"{CGROUPS}/**/belljar-*", recursive=True)


def main():
    first.set_up()
    for name, place, uid in (
        ("beside a shell", "session", 0),
        ("alone", "service", 0),
        ("delegated", "user/own", SOMEBODY),
    ):
        try:
            say(**{name: attempt(place, uid)})
        except Exception:
            say(**{name: {"failed": traceback.format_exc()[-1500:]}})


try:
    main()
finally:
    first.end()
