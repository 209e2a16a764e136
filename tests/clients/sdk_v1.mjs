// The TypeScript SDK v1: handshake era only.
import { createRequire } from 'node:module';

import { answer, config, identity, observe } from './observe.mjs';

const require = createRequire(new URL('../node/package.json', import.meta.url));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const {
    ElicitRequestSchema,
    ResourceUpdatedNotificationSchema,
} = require('@modelcontextprotocol/sdk/types.js');

const client = new Client(identity, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, () => answer);

let revision;
const transport =
    config.transport === 'http'
        ? new StreamableHTTPClientTransport(new URL(config.url))
        : new StdioClientTransport({
              command: config.command[0],
              args: config.command.slice(1),
              stderr: 'inherit',
          });
// The client tells its transport what was agreed on, and nobody else.
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = version => {
    revision = version;
    tell?.(version);
};
await client.connect(transport);

await observe({
    revision: () => revision,
    stateless: () => false,
    listTools: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    read: uri => client.readResource({ uri }),
    resources: async () => (await client.listResources()).resources,
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    complete: (name, argument, value) =>
        client.complete({ ref: { type: 'ref/prompt', name }, argument: { name: argument, value } }),
    watch: async (uri, onUpdate) => {
        client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => onUpdate(n.params.uri));
        await client.subscribeResource({ uri });
    },
    ask: () => client.callTool({ name: 'test_elicitation', arguments: { message: 'Who?' } }),
    close: async () => {
        if (config.transport === 'http') await transport.terminateSession();
        await client.close();
    },
});
