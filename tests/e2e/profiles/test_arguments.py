"""Every argument of every tool of every profile: a wrong type, a missing one, an unknown one, one out of
range is an error that names the argument, and nothing is started.

The cases come from what tools/list says, so a tool or an argument that is new is among them."""

import json
import pathlib
import re
import time

import belljar
import pytest
from lines import line
from processes import below
from profiles_client import NAMES, open_to_all, runtime_flags, wait_until

WRONG = {
    "string": [3, True, [], {}],
    "integer": ["3", 1.5, True],
    "number": ["3", True, []],
    "boolean": ["true", 1],
    "array": ["a", {}, [3], [None]],
    "object": ["a", [], 3],
}
SAMPLES = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": ["a"], "object": {}}


@pytest.fixture(scope="module", params=["default", *NAMES])
def server(request, tmp_path_factory):
    place = open_to_all(tmp_path_factory.mktemp("server"))
    flags = ["--profile", request.param, "--no-zygote", *runtime_flags()]
    flags += ["--state-dir", place / "state", "--package-dir", place / "packages"]
    with belljar.Http(*flags) as server:
        server.place = place
        yield server


def kind_of(rule):
    kind = rule["type"]
    return kind if isinstance(kind, str) else next(each for each in kind if each != "null")


def filled(schema, *, but=None):
    """Arguments that would do, but for one."""
    return {
        name: rule.get("default", SAMPLES[kind_of(rule)])
        for name, rule in schema["properties"].items()
        if name in schema.get("required", []) and name != but
    }


def cases(tool):
    """(what is wrong, arguments, the argument that is wrong)"""
    schema = tool["inputSchema"]
    assert schema["additionalProperties"] is False
    yield "unknown", {**filled(schema), "no_such": 1}, "no_such"
    for name, rule in schema["properties"].items():
        rest = filled(schema, but=name)
        if name in schema.get("required", []):
            yield "missing", rest, name
            yield "null", {**rest, name: None}, name
        for value in WRONG[kind_of(rule)]:
            yield f"{value!r}", {**rest, name: value}, name
        for what, value in beyond(rule):
            yield what, {**rest, name: value}, name


def beyond(rule):
    """(what is wrong, a value outside of what the rule allows)"""
    if rule.get("maximum", 1 << 60) < 1 << 60:  # one more must still be a number of JSON's
        yield "too large", rule["maximum"] + 1
    if "minimum" in rule:
        yield "too small", rule["minimum"] - 1
    if "maxLength" in rule:
        yield "too long", "x" * (rule["maxLength"] + 1)
    if rule.get("minLength"):
        yield "too short", ""
    if "enum" in rule:
        yield "no choice", "no such choice"
    if "maxItems" in rule:
        yield "too many", ["a"] * (rule["maxItems"] + 1)
    if rule.get("minItems"):
        yield "too few", []
    if "items" in rule:
        for what, value in beyond(rule["items"]):
            yield f"an item {what}", [value]


def traces(server):
    """Whatever a call could leave: sessions, sandboxes, processes, files."""
    page = server.request("GET", "/metrics").body.decode()
    counters = re.findall(
        r"^(belljar_(?:sessions|sandboxes|pool|kernel|package)\S*) (\S+)$", page, re.M
    )
    files = set(pathlib.Path(server.place).rglob("*"))
    return dict(counters), files, below(server)


def settled(server):
    """Its traces when what belongs to its start is over."""
    seen = [traces(server)]

    def is_over():
        time.sleep(0.5)
        seen.append(traces(server))
        return seen[-1] == seen[-2]

    wait_until(is_over)
    return seen[-1]


@line("S5.1", "Name clashes")
def test_every_argument_is_checked_and_named(server):
    session = server.session()
    tools = session.call("tools/list")["tools"]
    assert tools and all(list(cases(tool)) for tool in tools)
    before = settled(server)
    assert before[0]["belljar_sessions_total"] == "0" and before[0]["belljar_sandboxes"] == "0"
    for tool in tools:
        name = tool["name"]
        for what, arguments, wrong in cases(tool):
            result = session.call("tools/call", belljar.call_tool(name, arguments), timeout=60)
            said = belljar.text_of(result)
            shown = f"{name}: {what}: {json.dumps(arguments)[:200]} → {said[:200]}"
            assert result.get("isError"), shown
            # The tool's own name may have that of an argument in it.
            assert re.search(rf"\b{wrong}\b", said.replace(name, "")), shown
    assert settled(server) == before
