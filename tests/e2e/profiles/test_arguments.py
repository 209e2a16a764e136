"""Every argument of every tool of every profile: a wrong type, a missing one, an unknown one, one out of
range is an error that names the argument, and nothing is started."""

import json

import belljar
import pytest
from lines import line
from profiles_client import NAMES, Profile, descendants

WRONG = {
    "string": [3, True, [], {}],
    "integer": ["3", 1.5, True],
    "number": ["3", True, []],
    "boolean": ["true", 1],
    "array": ["a", {}, [3]],
    "object": ["a", [], 3],
}


@pytest.fixture(scope="module", params=["default", *NAMES])
def server(request):
    with Profile(request.param, "--no-zygote") as server:
        server.tools = server.submit("tools/list").result()["tools"]
        yield server


def filled(schema, *, but=None):
    """Arguments that would do, but for one."""
    samples = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": ["a"]}
    return {
        name: schema["properties"][name].get("default", samples.get(kind_of(schema, name), {}))
        for name in schema.get("required", [])
        if name != but
    }


def kind_of(schema, name):
    kind = schema["properties"][name]["type"]
    return kind if isinstance(kind, str) else next(each for each in kind if each != "null")


def cases(tools):
    """(tool, what, arguments, the argument that is wrong)"""
    for tool in tools:
        schema = tool["inputSchema"]
        yield tool["name"], "unknown", {**filled(schema), "no_such": 1}, "no_such"
        for name in schema["properties"]:
            rest = filled(schema, but=name)
            if name in schema.get("required", []):
                yield tool["name"], "missing", rest, name
                yield tool["name"], "null", {**rest, name: None}, name
            for value in WRONG[kind_of(schema, name)]:
                yield tool["name"], f"{value!r}", {**rest, name: value}, name
            yield from beyond(tool["name"], schema["properties"][name], name, rest)


def beyond(tool, rule, name, rest):
    if rule.get("maximum", 1 << 60) < 1 << 60:  # one more must still be a number of JSON's
        yield tool, "too large", {**rest, name: rule["maximum"] + 1}, name
    if "minimum" in rule:
        yield tool, "too small", {**rest, name: rule["minimum"] - 1}, name
    if "maxLength" in rule:
        yield tool, "too long", {**rest, name: "x" * (rule["maxLength"] + 1)}, name
    if rule.get("minLength"):
        yield tool, "too short", {**rest, name: ""}, name
    if "maxItems" in rule:
        yield tool, "too many", {**rest, name: ["a"] * (rule["maxItems"] + 1)}, name
    if "enum" in rule:
        yield tool, "no choice", {**rest, name: "no such choice"}, name


@line("S5.1", "Name clashes")
def test_every_argument_is_checked_and_named(server):
    checked, processes = 0, descendants(server.pid)
    for tool, what, arguments, wrong in cases(server.tools):
        result = server.submit("tools/call", belljar.call_tool(tool, arguments)).result(60)
        said = belljar.text_of(result)
        shown = json.dumps(arguments)[:200]
        assert result.get("isError"), f"{tool}: {what}: {shown} → {said[:200]}"
        assert wrong in said, f"{tool}: {what}: {shown} → {said[:200]}"
        checked += 1
    assert checked >= 5
    assert descendants(server.pid) <= processes  # no sandbox was made
