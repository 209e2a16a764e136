// What a TypeScript client does with a server, told as JSON on stdout. The two SDKs differ in how
// they connect and call; each has its own file that adapts it to the functions used here:
//
//     revision()  stateless()  listTools()  call(name, args, options)  read(uri)  prompt(name, args)
//     complete(prompt, argument, value)  watch(uri, onUpdate)  ask()  close()  resources()
//
// The one argument is JSON: mode, transport ("stdio" or "http"), command or url, server.
import { setTimeout as sleep } from 'node:timers/promises';

export const config = JSON.parse(process.argv[2]);
export const identity = { name: 'belljar-tests', version: '1' };
// What the user answers when a server asks.
export const answer = {
    action: 'accept',
    content: { name: 'Ann', username: 'Ann', email: 'ann@example.com' },
};

const text = result => result.content.map(block => block.text ?? block.type).join('\n');

// --- one feature each ---------------------------------------------------------------------------

async function progress(client) {
    const seen = [];
    await client.call('test_tool_with_progress', {}, { onprogress: p => seen.push(p.progress) });
    return seen;
}

// Gives up a call that is under way, and waits until its handler has noticed.
async function cancel(client) {
    const count = async () => Number(text(await client.call('test_cancel_count')));
    const before = await count();
    const stop = new AbortController();
    const outcome = await new Promise(resolve => {
        const options = { signal: stop.signal, onprogress: () => stop.abort('enough') };
        client.call('test_slow', { seconds: 30 }, options).then(
            () => resolve('answered'),
            () => resolve('gave up'),
        );
    });
    for (let i = 0; i < 200 && (await count()) === before; i++) await sleep(50);
    return { outcome, noticed: (await count()) - before };
}

// The URI of which the client is told that it has changed.
async function follow(client, uri, change) {
    let seen;
    const updated = new Promise(resolve => {
        seen = resolve;
    });
    await client.watch(uri, seen);
    await change();
    return await Promise.race([updated, sleep(10000, 'no update came', { ref: false })]);
}

// --- the two servers ----------------------------------------------------------------------------

async function fixture(client) {
    return {
        seen: (await client.call('test_revision')).structuredContent,
        text: text(await client.call('test_simple_text')),
        mixed: text(await client.call('test_multiple_content_types')),
        failed: (await client.call('test_error_handling')).isError,
        mirrored: text(await client.call('test_mirrored_headers', { region: 'Zürich', priority: 7 })),
        resource: (await client.read('test://static-text')).contents[0].text,
        template: JSON.parse((await client.read('test://template/7/data')).contents[0].text).id,
        prompt: (await client.prompt('test_prompt_with_arguments', { arg1: 'a', arg2: 'b' }))
            .messages[0].content.text,
        completion: (await client.complete('test_prompt_with_arguments', 'arg1', 'par')).completion
            .values,
        progress: await progress(client),
        cancelled: await cancel(client),
        updated: await follow(client, 'test://watched-resource', () =>
            client.call('test_trigger_resource_update'),
        ),
        asked: text(await client.ask()),
    };
}

async function belljar(client) {
    const result = await client.call('execute_code', { code: 'print(1 + 1)' });
    const session_id = result.structuredContent.session_id;
    const uri = `kernel://${session_id}/note.txt`;
    await client.call('sandbox_write_file', { session_id, path: 'note.txt', content: 'made' });
    const before = (await client.read(uri)).contents[0].text;
    const updated = await follow(client, uri, () =>
        client.call('execute_code', { session_id, language: 'bash', code: 'echo more >>note.txt' }),
    );
    return {
        failed: result.isError ?? false,
        text: text(result),
        prompt: (await client.prompt('run_code', { task: 'Say hello.' })).messages[0].content.text,
        listed: (await client.resources()).map(one => one.uri).includes(uri),
        file: [before, (await client.read(uri)).contents[0].text],
        updated: updated === uri,
    };
}

export async function observe(client) {
    const tools = await client.listTools();
    const observed = {
        revision: client.revision(),
        stateless: client.stateless(),
        tools: tools.map(tool => tool.name),
        ...(await { fixture, belljar }[config.server](client)),
    };
    await client.close();
    console.log(JSON.stringify(observed));
}
