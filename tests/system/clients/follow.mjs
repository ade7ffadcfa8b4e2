// The same as follow.py with the official TypeScript client: one call, with all that comes before its result, and news after it.
//   node follow.mjs URL|COMMAND TOOL JSON-ARGUMENTS FOLDER      COMMAND: a JSON list, a server on stdio
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [server, tool, args, folder] = process.argv.slice(2);
const tell = (fact, value) => console.log(JSON.stringify({ fact, value }));

const [command, ...rest] = server.startsWith('[') ? JSON.parse(server) : [];
const transport = command ? new StdioClientTransport({ command, args: rest, env: process.env, stderr: 'inherit' }) : new StreamableHTTPClientTransport(new URL(server));
const client = new Client({ name: 'system-test', version: '1' }, { capabilities: { elicitation: {} } });
client.onerror = error => tell('transport', error.message);
let onNews;
const news = new Promise(resolve => { onNews = resolve; });
client.setNotificationHandler(LoggingMessageNotificationSchema, note => (note.params.data.n === 0 ? onNews() : tell('log', note.params.data.n)));
client.setRequestHandler(ElicitRequestSchema, request => {
  tell('asked', Number(request.params.message));
  return { action: 'accept', content: { n: Number(request.params.message) } };
});
await client.connect(transport);
await client.setLoggingLevel('info');
tell('connected', transport.sessionId ?? null);

const result = await client.callTool({ name: tool, arguments: JSON.parse(args) }, undefined, {
  timeout: 90_000, onprogress: note => tell('progress', note.progress) });
tell('result', JSON.parse(result.content[0].text));
while (!existsSync(`${folder}/news`)) await sleep(50);
await client.callTool({ name: 'feed', arguments: { first: 0, count: 1, ms: 500 } });
await Promise.race([news, sleep(20_000, undefined, { ref: false }).then(() => { throw new Error('no news'); })]);
tell('news', transport.sessionId ?? null);
await client.close();
