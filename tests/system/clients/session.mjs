// One session with the official TypeScript client: lists, calls, progress and cancel, or one call whose stream the test cuts; one JSON line a fact.
//   node session.mjs URL all | node session.mjs URL call TOOL JSON-ARGUMENTS
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, what, tool, args] = process.argv.slice(2);
const tell = (fact, value) => console.log(JSON.stringify({ fact, value }));
const textOf = result => result.content.map(block => block.text ?? '').join('\n');

const sse = new URL(url).pathname.startsWith('/sse');
const transport = new (sse ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url));
const client = new Client({ name: 'system-test', version: '1' }, { capabilities: {} });
client.onerror = error => tell('transport', error.message);
await client.connect(transport);
tell('connected', { server: client.getServerVersion()?.name, revision: transport.protocolVersion ?? transport._protocolVersion, session: !!transport.sessionId });

if (what === 'call') {
  const result = await client.callTool({ name: tool, arguments: JSON.parse(args) }, undefined, {
    timeout: 50_000, onprogress: p => tell('progress', p.progress) });
  tell('result', textOf(result));
} else {
  tell('tools', (await client.listTools()).tools.map(t => t.name));
  tell('text', textOf(await client.callTool({ name: 'test_simple_text' })));
  const seen = [];
  await client.callTool({ name: 'test_tool_with_progress' }, undefined, { onprogress: p => seen.push([p.progress, p.total, p.message]) });
  tell('progress', seen);

  const cancel = new AbortController(), started = performance.now();
  setTimeout(() => cancel.abort('enough'), 600);
  try {
    await client.callTool({ name: 'slow_compute', arguments: { seconds: 2 } }, undefined, { signal: cancel.signal });
    tell('cancelled', { ms: null });
  } catch (error) {
    tell('cancelled', { ms: Math.round(performance.now() - started), message: String(error.message ?? error) });
  }
  // The session is none the worse for it.
  tell('after', textOf(await client.callTool({ name: 'test_simple_text' })));
}
await transport.terminateSession?.();
await client.close();
tell('closed', true);
