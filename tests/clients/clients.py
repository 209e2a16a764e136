"""The clients that real people use: how each is started, and which revision it should speak.

A client is a program that is told what to do in one JSON argument and tells what it saw as JSON
(observe.mjs, sdk_python.py); the Inspector is driven command by command.
"""

import concurrent.futures
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NODE_MODULES = HERE.parent / "node/node_modules"
NODE = str(NODE_MODULES / ".bin/node")
INSPECTOR = "@modelcontextprotocol/inspector"

HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
TIMEOUT = 60
CODE = '{"code": "print(1 + 1)"}'


def npm_version(package):
    return json.loads((NODE_MODULES / package / "package.json").read_text())["version"]


def run(argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, **options)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"
    for sign in ("Sanitizer", "runtime error:", "Assertion"):
        assert sign not in done.stderr, done.stderr
    return json.loads(done.stdout)


class Sdk:
    """A client of our own on top of an SDK."""

    def __init__(self, name, version, interpreter, script, modes):
        self.name, self.modes = f"{name} {version}", modes
        self.argv = [interpreter, str(HERE / script)]

    def observe(self, config):
        return run([*self.argv, json.dumps(config)])


class Inspector:
    """The Inspector's command line: a process for each request."""

    def __init__(self, modes):
        self.name, self.modes = f"Inspector {npm_version(INSPECTOR)}", modes

    def argv(self, config, method, *more):
        target = [config["url"]] if config["transport"] == "http" else config["command"]
        return [
            *(NODE, str(NODE_MODULES / ".bin/mcp-inspector"), "--cli"),
            *("--protocol-era", config["mode"], "--format", "json", "--quiet"),
            *("--transport", config["transport"], "--method", method),
            *more,
            *target,
        ]

    def observe(self, config):
        requests = {
            "hello": ["initialize"],
            "tools": ["tools/list"],
        }
        if config["server"] == "fixture":
            requests.update(
                seen=["tools/call", "--tool-name", "test_revision"],
                resource=["resources/read", "--uri", "test://static-text"],
                prompt=["prompts/get", "--prompt-name", "test_simple_prompt"],
            )
        else:
            requests.update(
                call=["tools/call", "--tool-name", "execute_code", "--tool-args-json", CODE]
            )
        with tempfile.TemporaryDirectory() as home:  # it keeps a catalog there
            env = {**os.environ, "HOME": home}
            with concurrent.futures.ThreadPoolExecutor() as pool:
                jobs = {
                    key: pool.submit(self.ask, self.argv(config, *request), env)
                    for key, request in requests.items()
                }
                replies = {key: job.result() for key, job in jobs.items()}
        return self.tell(replies)

    def ask(self, argv, env):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, env=env)
        # A tool that failed is told by the exit status, too.
        assert done.stdout, f"{' '.join(argv)}\nstatus {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)["result"]

    def tell(self, replies):
        observed = {
            "revision": replies["hello"]["protocolVersion"],
            "tools": [tool["name"] for tool in replies["tools"]["tools"]],
        }
        if "seen" in replies:
            observed.update(
                seen=replies["seen"]["structuredContent"],
                resource=replies["resource"]["contents"][0]["text"],
                prompt=replies["prompt"]["messages"][0]["content"]["text"],
            )
        else:
            call = replies["call"]
            observed.update(failed=call.get("isError", False), text=call["content"][0]["text"])
        return observed


CLIENTS = [
    Sdk(
        "TypeScript SDK",
        npm_version("@modelcontextprotocol/sdk"),
        NODE,
        "sdk_v1.mjs",
        {"legacy": HANDSHAKE},
    ),
    Sdk(
        "TypeScript SDK",
        npm_version("@modelcontextprotocol/client"),
        NODE,
        "sdk_v2.mjs",
        {"legacy": HANDSHAKE, "auto": STATELESS, STATELESS: STATELESS},
    ),
    Sdk(
        "Python SDK",
        importlib.metadata.version("mcp"),
        sys.executable,
        "sdk_python.py",
        {"legacy": HANDSHAKE, "auto": STATELESS, STATELESS: STATELESS},
    ),
    Inspector({"legacy": HANDSHAKE, "auto": STATELESS, "modern": STATELESS}),
]
