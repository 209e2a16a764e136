"""The Python SDK: both eras. Does what observe.mjs does, and tells it the same way.

Modes are the SDK's own words: "auto" (its default), "legacy", or a date to pin.
"""

import json
import sys

import anyio

import mcp
from mcp import types

WATCHED = "test://watched-resource"


def text(result):
    return "\n".join(getattr(block, "text", block.type) for block in result.content)


async def answer(context, params):
    content = {"name": "Ann", "username": "Ann", "email": "ann@example.com"}
    return types.ElicitResult(action="accept", content=content)


async def progress(client):
    seen = []

    async def on_progress(done, total, message):
        seen.append(done)

    await client.call_tool("test_tool_with_progress", progress_callback=on_progress)
    return seen


async def cancel(client):
    """Gives up a call that is under way, and waits until its handler has noticed."""

    async def count():
        return int(text(await client.call_tool("test_cancel_count")))

    async def on_progress(done, total, message):
        scope.cancel()

    before, outcome = await count(), "answered"
    with anyio.CancelScope() as scope:
        await client.call_tool("test_slow", {"seconds": 30}, progress_callback=on_progress)
    if scope.cancelled_caught:
        outcome = "gave up"
    for _ in range(200):
        if await count() != before:
            break
        await anyio.sleep(0.05)
    return {"outcome": outcome, "noticed": await count() - before}


async def follow(client, stateless, updates, uri, *change):
    """The URI of which the client is told that it has changed."""
    with anyio.move_on_after(10):
        if stateless:
            async with client.listen(resource_subscriptions=[uri]) as subscription:
                await client.call_tool(*change)
                async for event in subscription:
                    return event.uri
        await client.subscribe_resource(uri)
        await client.call_tool(*change)
        return await updates.receive()
    return "no update came"


async def ask(client, stateless):
    if stateless:
        return await client.call_tool("test_input_required_result_elicitation")
    return await client.call_tool("test_elicitation", {"message": "Who?"})


async def fixture(client, stateless, updates):
    mirrored = {"region": "Zürich", "priority": 7}
    prompt_args = {"arg1": "a", "arg2": "b"}
    ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    return {
        "seen": (await client.call_tool("test_revision")).structured_content,
        "text": text(await client.call_tool("test_simple_text")),
        "mixed": text(await client.call_tool("test_multiple_content_types")),
        "failed": (await client.call_tool("test_error_handling")).is_error,
        "mirrored": text(await client.call_tool("test_mirrored_headers", mirrored)),
        "resource": (await client.read_resource("test://static-text")).contents[0].text,
        "template": json.loads(
            (await client.read_resource("test://template/7/data")).contents[0].text
        )["id"],
        "prompt": (await client.get_prompt("test_prompt_with_arguments", prompt_args))
        .messages[0]
        .content.text,
        "completion": (
            await client.complete(ref, {"name": "arg1", "value": "par"})
        ).completion.values,
        "progress": await progress(client),
        "cancelled": await cancel(client),
        "updated": await follow(
            client, stateless, updates, WATCHED, "test_trigger_resource_update"
        ),
        "asked": text(await ask(client, stateless)),
    }


async def belljar(client, stateless, updates):
    result = await client.call_tool("execute_code", {"code": "print(1 + 1)"})
    session = {"session_id": result.structured_content["session_id"]}
    uri = f"kernel://{session['session_id']}/note.txt"

    async def read():
        return (await client.read_resource(uri)).contents[0].text

    note = {**session, "path": "note.txt", "content": "made"}
    await client.call_tool("sandbox_write_file", note)
    before = await read()
    more = {**session, "language": "bash", "code": "echo more >>note.txt"}
    updated = await follow(client, stateless, updates, uri, "execute_code", more)
    prompt = await client.get_prompt("run_code", {"task": "Say hello."})
    return {
        "failed": bool(result.is_error),
        "text": text(result),
        "prompt": prompt.messages[0].content.text,
        "listed": uri in [str(one.uri) for one in (await client.list_resources()).resources],
        "file": [before, await read()],
        "updated": str(updated) == uri,
    }


async def main(config):
    if config["transport"] == "http":
        target = config["url"]
    else:
        command, *args = config["command"]
        target = mcp.StdioServerParameters(command=command, args=args)
    send, updates = anyio.create_memory_object_stream(10)

    async def on_message(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            await send.send(str(message.params.uri))

    client = mcp.Client(
        target,
        mode=config["mode"],
        elicitation_callback=answer,
        message_handler=on_message,
        client_info=types.Implementation(name="belljar-tests", version="1"),
    )
    async with client:
        stateless = client.protocol_version >= "2026-07-28"
        tools = (await client.list_tools()).tools
        steps = {"fixture": fixture, "belljar": belljar}[config["server"]]
        observed = {
            "revision": client.protocol_version,
            "stateless": stateless,
            "tools": [tool.name for tool in tools],
            **await steps(client, stateless, updates),
        }
    print(json.dumps(observed))


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
