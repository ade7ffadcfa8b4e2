// The same as stdio_steps.py with the official TypeScript client: calls on the stdin of a server that it starts.
//   node stdio_steps.mjs STEPS COMMAND [ARGUMENT...]
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [steps, command, ...args] = process.argv.slice(2);
const tell = (fact, value) => console.log(JSON.stringify({ fact, value }));

const transport = new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
let revision;
transport.setProtocolVersion = version => { revision = version; };
const client = new Client({ name: 'system-test', version: '1' }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.onerror = error => tell('transport', error.message);
client.setRequestHandler(ElicitRequestSchema, request => {
  tell('asked', request.params.message);
  return { action: 'accept', content: Object.fromEntries(Object.keys(request.params.requestedSchema.properties).map(key => [key, 'Ada'])) };
});
client.setRequestHandler(CreateMessageRequestSchema, () => ({ role: 'assistant', model: 'none', content: { type: 'text', text: 'Paris' } }));
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///scenes' }] }));
await client.connect(transport);
tell('connected', { server: client.getServerVersion()?.name, revision });
tell('tools', (await client.listTools()).tools.map(tool => tool.name));
for (const [tool, values, file] of JSON.parse(readFileSync(steps, 'utf8'))) {
  while (file && !existsSync(file)) await sleep(20);
  tell('begun', tool);
  try {
    const result = await client.callTool({ name: tool, arguments: values }, undefined, { timeout: 50_000, onprogress: note => tell('progress', note.progress) });
    tell('result', result.content.map(block => block.text ?? '').join('\n'));
  } catch (error) {
    tell('error', { message: String(error.message ?? error), data: error.data });
  }
}
await client.close();
tell('closed', true);
