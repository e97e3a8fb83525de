// Spans of TanStack AI (@tanstack/ai 0.58.0, its otelMiddleware); a local server answers for the model.
//
//   npm i @tanstack/ai@0.58.0 @tanstack/ai-openai@0.23.1 openai zod@4 \
//     @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node tanstack_ai.mjs OUT.json [nocontent]                               # beside node_modules
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { trace } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { chat, maxIterations, toolDefinition } from '@tanstack/ai';
import { otelMiddleware } from '@tanstack/ai/middlewares/otel';
import { createOpenaiChatCompletions } from '@tanstack/ai-openai';
import { z } from 'zod';

const [out, ...switches] = process.argv.slice(2);
const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();

// Chat completions as they are streamed; the next answer is text, or calls as [id, tool, arguments].
const answers = [
  [['call_1', 'search_orders', { customer: 'Zoë' }]],
  [['call_2', 'search_orders', { customer: 'Zoë' }]],
  [['call_3', 'read_config', { path: '/etc/app.yaml' }]],
  [['call_4', 'list_files', { path: '/tmp' }], ['call_5', 'kb_search', { query: 'refund' }],
    ['call_6', 'lookup_none', { key: 'x' }], ['call_7', 'touch', { path: '/tmp/a' }]],
  [['call_8', 'now', {}]],
  [['call_u', 'no_such_tool', { a: 1 }]],
  'first answer',
  [['call_10', 'search_orders', { customer: 'Zoë' }]],
  'second answer',
];
const server = createServer((request, reply) => {
  const answer = answers.shift();
  const asks = typeof answer !== 'string';
  const common = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'scripted-1' };
  const tool_calls = asks && answer.map(([id, name, args], index) =>
    ({ index, id, type: 'function', function: { name, arguments: JSON.stringify(args) } }));
  const delta = { role: 'assistant', ...(asks ? { tool_calls } : { content: answer }) };
  const chunks = [
    { ...common, choices: [{ index: 0, delta, finish_reason: null }] },
    { ...common, choices: [{ index: 0, delta: {}, finish_reason: asks ? 'tool_calls' : 'stop' }] },
    { ...common, choices: [], usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } },
  ];
  reply.setHeader('content-type', 'text/event-stream');
  request.resume().on('end', () => reply.end(chunks.map(one => `data: ${JSON.stringify(one)}\n\n`).join('') + 'data: [DONE]\n\n'));
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const adapter = createOpenaiChatCompletions('gpt-4o', 'none', { baseURL: `http://127.0.0.1:${server.address().port}/v1` });

const text = z.string();
const made = (name, shape, run) => toolDefinition({ name, description: 'a tool', inputSchema: z.object(shape) }).server(run);
const tools = [
  made('search_orders', { customer: text }, ({ customer }) => ({ orders: [`A-1 for ${customer}`] })),
  made('read_config', { path: text }, ({ path }) => { throw new Error(`no such file: ${path}`); }),
  made('list_files', { path: text }, () => []),
  made('kb_search', { query: text }, () => 'No results found'),
  made('lookup_none', { key: text }, () => ''),
  made('touch', { path: text }, () => undefined),
  made('now', {}, () => 'noon'),
];
const middleware = [otelMiddleware({
  tracer: trace.getTracer('shop'), captureContent: !switches.includes('nocontent'),
  attributeEnricher: () => ({ 'gen_ai.conversation.id': 'chat-7' }),
})];

// Two user turns of one conversation.
const messages = [];
for (const content of ['find the orders', 'search again']) {
  messages.push({ role: 'user', content });
  let answer = '';
  for await (const chunk of chat({ adapter, messages, tools, agentLoopStrategy: maxIterations(20), middleware })) {
    if (chunk.type === 'TEXT_MESSAGE_CONTENT') answer += chunk.delta;
  }
  messages.push({ role: 'assistant', content: answer });
}
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
