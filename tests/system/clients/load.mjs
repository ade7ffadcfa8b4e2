// The same as load.py with the official TypeScript client: several sessions, which call side by side what a test writes for each round.
//   node load.mjs FOLDER '{"NAME": "URL", ...}'
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [folder, sessions] = process.argv.slice(2);
const tell = (fact, value) => console.log(JSON.stringify({ fact, value }));
const toldText = text => (text.length <= 100 ? text : createHash('sha256').update(text).digest('hex'));

async function oneCall(client, [call, tool, args]) {
  let opened = false;
  const onresumptiontoken = () => { if (!opened) { opened = true; tell('open', call); } };
  try {
    const result = await client.callTool({ name: tool, arguments: args }, undefined, { timeout: 90_000, onresumptiontoken });
    tell('result', [call, toldText(result.content.map(block => block.text ?? '').join('\n'))]);
  } catch (error) {
    tell('result', [call, `failed: ${error.message ?? error}`]);
  }
}

async function oneSession(name, url) {
  const transport = new StreamableHTTPClientTransport(new URL(url));
  const client = new Client({ name: 'system-test', version: '1' }, { capabilities: {} });
  client.onerror = error => tell('transport', error.message);
  await client.connect(transport);
  tell('connected', [name, transport.sessionId]);
  for (let number = 1; ; number++) {
    const plan = `${folder}/round-${number}.json`;
    while (!existsSync(plan) && !existsSync(`${folder}/stop`)) await sleep(20);
    if (!existsSync(plan)) break;
    await Promise.all(JSON.parse(readFileSync(plan))[name].map(one => oneCall(client, one)));
  }
  tell('closed', [name, transport.sessionId]);
  await client.close();
}

await Promise.all(Object.entries(JSON.parse(sessions)).map(one => oneSession(...one)));
