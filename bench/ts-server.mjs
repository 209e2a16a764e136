// The server to compare with: TypeScript SDK v2, doing what belljar does in the load test. Stateless
// requests go through the SDK's own handler; a handshake session keeps one server and transport, the
// SDK's fastest way. The tools it lists are given as JSON in TOOLS, so that both answer alike.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

// The SDK is installed with the test tools.
const require = createRequire(new URL('../tests/node/package.json', import.meta.url));
const { NodeStreamableHTTPServerTransport, toNodeHandler } = require('@modelcontextprotocol/node');
const { createMcpHandler, Server } = require('@modelcontextprotocol/server');

const tools = JSON.parse(process.env.TOOLS ?? '[]');

function makeServer() {
    const server = new Server({ name: 'ts', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler('tools/list', () => ({ tools }));
    return server;
}

const stateless = toNodeHandler(createMcpHandler(makeServer, { legacy: 'reject' }));
const sessions = new Map();

async function handshake(req, res) {
    let transport = sessions.get(req.headers['mcp-session-id']);
    if (!transport) {
        transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            enableJsonResponse: true,
            onsessioninitialized: id => sessions.set(id, transport),
        });
        await makeServer().connect(transport);
    }
    await transport.handleRequest(req, res);
}

const http = createServer((req, res) =>
    req.headers['mcp-protocol-version'] === '2026-07-28' ? stateless(req, res) : handshake(req, res));

http.listen(0, '127.0.0.1', () =>
    process.stderr.write(`listening on http://127.0.0.1:${http.address().port}/mcp\n`));
process.on('SIGTERM', () => process.exit(0));
