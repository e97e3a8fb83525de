// Spans of VoltAgent (@voltagent/core 2.10.0), with a scripted model.
//
//   npm i @voltagent/core@2.10.0 @ai-sdk/openai-compatible ai zod@4 @opentelemetry/{api,sdk-trace-base,otlp-transformer}
//   node voltagent.mjs OUT.json                                             # beside node_modules
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Agent, createTool, VoltAgentObservability } from '@voltagent/core';
import { z } from 'zod';
const [out] = process.argv.slice(2);
const exporter = new InMemorySpanExporter();
const observability = new VoltAgentObservability({ serviceName: 'capture-app', spanProcessors: [new SimpleSpanProcessor(exporter)] });
const call = (id, name, args) => ({ id, type: 'function', function: { name, arguments: JSON.stringify(args) } });
const zoe = { customer: 'Zoë' };
const answers = [
  [call('call_1', 'search_orders', zoe)],
  [call('call_2', 'search_orders', zoe)],
  [call('call_3', 'search_orders', zoe)],
  [call('call_4', 'read_config', { path: '/etc/app.yaml' })],
  [call('call_5', 'list_files', { path: '/tmp' }), call('call_6', 'kb_search', { query: 'refund' })],
  [call('call_7', 'no_such_tool', { a: 1 })],
  [call('call_8', 'now', {}), call('call_13', 'touch', { path: '/tmp/a' })],
  [call('call_9', 'delegate_task', { task: 'orders of Bob?', targetAgents: ['bob'] })],
  [call('call_10', 'search_orders', { customer: 'Bob' })],
  'bob found A-1',
  'first answer',
  [call('call_11', 'search_orders', zoe)],
  [call('call_12', 'delete_all', { scope: 'prod' })],
];
const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const chunk = fields => `data: ${JSON.stringify({ id: `chatcmpl-${answers.length}`, created: 1, model: 'scripted-1', ...fields })}\n\n`;
// Chat completions, with one answer a request, in order. Sub-agents stream.
const server = createServer((request, reply) => {
  let body = '';
  request.on('data', part => { body += part; });
  request.on('end', () => {
    const answer = answers.shift();
    const asks = typeof answer !== 'string';
    const finish_reason = asks ? 'tool_calls' : 'stop';
    const streamed = JSON.parse(body).stream;
    reply.setHeader('content-type', streamed ? 'text/event-stream' : 'application/json');
    if (streamed) {
      const deltas = asks ? answer.map((one, index) => ({ tool_calls: [{ index, ...one }] })) : [{ content: answer }];
      const chunks = deltas.map(delta => chunk({ choices: [{ index: 0, delta: { role: 'assistant', ...delta }, finish_reason: null }] }));
      reply.end([...chunks, chunk({ choices: [{ index: 0, delta: {}, finish_reason }] }), chunk({ choices: [], usage }), 'data: [DONE]\n\n'].join(''));
    } else {
      const message = { role: 'assistant', content: asks ? null : answer, ...(asks ? { tool_calls: answer } : {}) };
      reply.end(chunk({ choices: [{ index: 0, message, finish_reason }], usage }).slice('data: '.length));
    }
  });
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const model = createOpenAICompatible({ name: 'scripted', baseURL: `http://127.0.0.1:${server.address().port}/v1`, apiKey: 'none', includeUsage: true })('scripted-1');
const text = z.string();
const tool = (name, shape, execute, extra = {}) => createTool({ name, description: 'a tool', parameters: z.object(shape), execute, ...extra });
const searchOrders = tool('search_orders', { customer: text }, async ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new Agent({ name: 'bob', instructions: 'You find.', model, tools: [searchOrders], observability });
const alice = new Agent({
  name: 'alice', instructions: 'You help.', model, subAgents: [bob], observability, maxSteps: 20,
  tools: [searchOrders,
    tool('read_config', { path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    tool('list_files', { path: text }, async () => []),
    tool('kb_search', { query: text }, async () => 'No results found'),
    tool('touch', { path: text }, async () => undefined),
    tool('now', {}, async () => 'noon'),
    tool('delete_all', { scope: text }, async () => 'deleted', { needsApproval: true }),
  ],
});
// Two user turns of one conversation; the second one ends with a call that a person must approve.
for (const words of ['find the orders', 'search again and delete all']) {
  console.log((await alice.generateText(words, { conversationId: 'chat-7', userId: 'zoe' })).text);
}
await observability.flush?.();
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
