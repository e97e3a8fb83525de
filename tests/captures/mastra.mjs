// Spans of Mastra (@mastra/core 1.71.0, @mastra/observability 1.17.9, @mastra/otel-exporter 1.4.0), with a scripted model.
//
//   npm i --legacy-peer-deps @mastra/{core@1.71.0,observability@1.17.9,otel-exporter@1.4.0} zod@4 \
//     @opentelemetry/{api,exporter-trace-otlp-http}
//   node mastra.mjs OUT.json                                                # Node 22, beside node_modules
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { MockMemory } from '@mastra/core/memory';
import { InMemoryStore } from '@mastra/core/storage';
import { createTool } from '@mastra/core/tools';
import { Observability } from '@mastra/observability';
import { OtelExporter } from '@mastra/otel-exporter';
import { z } from 'zod';

const spans = [];
// The exporter sends OTLP to this server.
const server = createServer((request, reply) => {
  let body = '';
  request.on('data', part => { body += part; });
  request.on('end', () => { spans.push(...JSON.parse(body).resourceSpans ?? []); reply.end('{}'); });
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const endpoint = `http://127.0.0.1:${server.address().port}`;

const usage = { inputTokens: 10, outputTokens: 5, totalTokens: 15 };
const call = (toolCallId, toolName, input) => ({ type: 'tool-call', toolCallId, toolName, input: JSON.stringify(input) });
function scripted(answers) {
  const next = () => {
    const answer = answers.shift();
    const asks = typeof answer !== 'string';
    return { content: asks ? answer : [{ type: 'text', text: answer }], finishReason: asks ? 'tool-calls' : 'stop', usage, warnings: [] };
  };
  return {
    specificationVersion: 'v2', provider: 'scripted', modelId: 'scripted-1', supportedUrls: {},
    doGenerate: async () => next(),
    doStream: async () => {
      const { content, finishReason } = next();
      const parts = content.flatMap((part, id) => part.type === 'text'
        ? [{ type: 'text-start', id: `${id}` }, { type: 'text-delta', id: `${id}`, delta: part.text }, { type: 'text-end', id: `${id}` }]
        : [part]);
      const chunks = [{ type: 'stream-start', warnings: [] }, ...parts, { type: 'finish', finishReason, usage }];
      return { stream: new ReadableStream({ start(control) { chunks.forEach(one => control.enqueue(one)); control.close(); } }) };
    },
  };
}
const text = z.string();
const tool = (id, shape, execute, extra = {}) => createTool({ id, description: 'a tool', inputSchema: z.object(shape), execute, ...extra });

const searchOrders = tool('search_orders', { customer: text }, async ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new Agent({
  id: 'bob', name: 'bob', instructions: 'You find.', description: 'finds orders',
  model: scripted([[call('call_9', 'search_orders', { customer: 'Bob' })], 'bob found A-1']), tools: { search_orders: searchOrders },
});
const alice = new Agent({
  id: 'alice', name: 'alice', instructions: 'You help.', agents: { bob }, memory: new MockMemory(),
  model: scripted([
    [call('call_1', 'search_orders', { customer: 'Zoë' })],
    [call('call_2', 'search_orders', { customer: 'Zoë' })],
    [call('call_3', 'search_orders', { customer: 'Zoë' })],
    [call('call_4', 'list_files', { path: '/tmp' }), call('call_5', 'kb_search', { query: 'refund' }),
      call('call_6', 'lookup_none', { key: 'x' }), call('call_12', 'touch', { path: '/tmp/a' })],
    [call('call_7', 'read_config', { path: '/etc/app.yaml' })],
    [call('call_13', 'now', {})],
    [call('call_14', 'no_such_tool', { a: 1 })],
    [call('call_8', 'agent-bob', { prompt: 'orders of Bob?' })],
    'first answer',
    [call('call_10', 'search_orders', { customer: 'Zoë' })],
    [call('call_11', 'delete_all', { scope: 'prod' })],
    'not deleted',
  ]),
  tools: {
    search_orders: searchOrders,
    list_files: tool('list_files', { path: text }, async () => []),
    kb_search: tool('kb_search', { query: text }, async () => 'No results found'),
    lookup_none: tool('lookup_none', { key: text }, async () => ''),
    touch: tool('touch', { path: text }, async () => null),
    now: tool('now', {}, async () => 'noon'),
    read_config: tool('read_config', { path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    delete_all: tool('delete_all', { scope: text }, async () => 'deleted', { requireApproval: true }),
  },
});
const mastra = new Mastra({
  agents: { alice, bob }, storage: new InMemoryStore(), logger: false,
  observability: new Observability({
    configs: {
      otel: {
        serviceName: 'capture-app',
        exporters: [new OtelExporter({ provider: { custom: { endpoint, protocol: 'http/json' } } })],
      },
    },
  }),
});

// Two user turns of one thread; in the second one a person refuses a call.
const memory = { thread: 'chat-7', resource: 'zoe' };
const agent = mastra.getAgent('alice');
await agent.generate('find the orders', { memory, maxSteps: 15 });
const { runId } = await agent.generate('search again and delete all', { memory, maxSteps: 15 });
console.log((await agent.declineToolCallGenerate({ runId, toolCallId: 'call_11', memory })).text);
await mastra.observability.shutdown();
writeFileSync(process.argv[2], JSON.stringify({ resourceSpans: spans }, null, 1) + '\n');
process.exit(0);
