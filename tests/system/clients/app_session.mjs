// One session on the facade with a TypeScript client: what was negotiated, the tools, one call; one JSON line a fact.
//   node app_session.mjs v1|v2 URL | node app_session.mjs stdio COMMAND [ARGUMENT...]
const [kind, ...rest] = process.argv.slice(2);
const tell = (fact, value) => console.log(JSON.stringify({ fact, value }));
const me = { name: 'system-test', version: '1' };

let client, transport, revision;
if (kind === 'v2') {
  const sdk = await import('@modelcontextprotocol/client');
  transport = new sdk.StreamableHTTPClientTransport(new URL(rest[0]));
  client = new sdk.Client(me, { capabilities: {} });
} else {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  client = new Client(me, { capabilities: {} });
  if (kind === 'v1') {
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    transport = new StreamableHTTPClientTransport(new URL(rest[0]));
  } else {
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    transport = new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env });
    transport.setProtocolVersion = version => { revision = version; };
  }
}
await client.connect(transport);
tell('revision', revision ?? client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion);
tell('tools', (await client.listTools()).tools.map(tool => tool.name));
const result = await client.callTool({ name: 'list_instances', arguments: {} });
tell('text', result.content.map(block => block.text ?? '').join('\n'));
await transport.terminateSession?.();
await client.close();
