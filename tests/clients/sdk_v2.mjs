// The TypeScript SDK v2: both eras. Modes: "legacy" and "auto" are its own words; a date pins that
// revision.
import { createRequire } from 'node:module';

import { answer, config, identity, observe } from './observe.mjs';

const require = createRequire(new URL('../node/package.json', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const mode = /^\d/.test(config.mode) ? { pin: config.mode } : config.mode;
const client = new Client(identity, {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode },
});
client.setRequestHandler('elicitation/create', () => answer);

const transport =
    config.transport === 'http'
        ? new StreamableHTTPClientTransport(new URL(config.url))
        : new StdioClientTransport({
              command: config.command[0],
              args: config.command.slice(1),
              stderr: 'inherit',
          });
await client.connect(transport);
const stateless = client.getProtocolEra() === 'modern';

await observe({
    revision: () => client.getNegotiatedProtocolVersion(),
    stateless: () => stateless,
    listTools: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    read: uri => client.readResource({ uri }),
    resources: async () => (await client.listResources()).resources,
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    complete: (name, argument, value) =>
        client.complete({ ref: { type: 'ref/prompt', name }, argument: { name: argument, value } }),
    watch: async (uri, onUpdate) => {
        client.setNotificationHandler('notifications/resources/updated', n => onUpdate(n.params.uri));
        if (stateless) await client.listen({ resourceSubscriptions: [uri] });
        else await client.subscribeResource({ uri });
    },
    ask: () =>
        stateless
            ? client.callTool({ name: 'test_input_required_result_elicitation' })
            : client.callTool({ name: 'test_elicitation', arguments: { message: 'Who?' } }),
    close: async () => {
        if (config.transport === 'http' && !stateless) await transport.terminateSession();
        await client.close();
    },
});
