// Spans of the OpenAI Agents SDK for JavaScript (@openai/agents 0.20.0) by OpenInference
// (@arizeai/openinference-instrumentation-openai-agents 0.2.15); the model is scripted.
//
//   npm i @openai/agents@0.20.0 @arizeai/openinference-instrumentation-openai-agents@0.2.15 zod@4 \
//     @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node openai_agents_js.mjs OUT.json [hidden] [nocontent] [stream]        # beside node_modules
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setSession } from '@arizeai/openinference-core';
import { OpenAIAgentsInstrumentation } from '@arizeai/openinference-instrumentation-openai-agents';
import * as agents from '@openai/agents';
import { context } from '@opentelemetry/api';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import OpenAI from 'openai';
import { z } from 'zod';

const [out, ...switches] = process.argv.slice(2);
const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
const provider = new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const traceConfig = switches.includes('hidden') ? { hideInputs: true, hideOutputs: true } : {};
new OpenAIAgentsInstrumentation({ tracerProvider: provider, traceConfig }).manuallyInstrument(agents);

// The Responses API, with one answer a request, in order.
const call = (call_id, name, args) => ({ type: 'function_call', id: `fc_${call_id}`, call_id, name, arguments: JSON.stringify(args), status: 'completed' });
const say = text => ({ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text, annotations: [] }] });
const zoe = { customer: 'Zoë' };
const answers = [
  [call('call_1', 'search_orders', zoe)],
  [call('call_2', 'search_orders', zoe)],
  [call('call_3', 'search_orders', zoe)],
  [call('call_4', 'read_config', { path: '/etc/app.yaml' })],
  [call('call_5', 'list_files', { path: '/tmp' }), call('call_6', 'kb_search', { query: 'refund' })],
  [call('call_7', 'now', {})],
  [call('call_8', 'ask_bob', { input: 'orders of Bob?' })],
  [call('call_9', 'search_orders', { customer: 'Bob' })],
  [say('bob found A-1')],
  [say('first answer')],
  [call('call_10', 'search_orders', zoe)],
  [call('call_11', 'delete_all', { scope: 'prod' })],
  [call('call_12', 'transfer_to_carol', {})],
  [call('call_13', 'search_orders', { customer: 'Carol' })],
  [say('second answer')],
];
const server = createServer((request, reply) => {
  let body = '';
  request.on('data', part => { body += part; });
  request.on('end', () => {
    const response = {
      id: `resp_${answers.length}`, object: 'response', created_at: 1, model: 'scripted-1', status: 'completed', error: null,
      output: answers.shift(), parallel_tool_calls: true, tool_choice: 'auto', tools: [],
      usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } },
    };
    const streamed = JSON.parse(body).stream;
    reply.setHeader('content-type', streamed ? 'text/event-stream' : 'application/json');
    const done = { type: 'response.completed', sequence_number: 1, response };
    reply.end(streamed ? `event: response.completed\ndata: ${JSON.stringify(done)}\n\n` : JSON.stringify(response));
  });
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
agents.setDefaultOpenAIClient(new OpenAI({ baseURL: `http://127.0.0.1:${server.address().port}/v1`, apiKey: 'none' }));

const text = z.string();
const tool = (name, shape, execute, extra = {}) => agents.tool({ name, description: 'a tool', parameters: z.object(shape), execute, ...extra });
const searchOrders = tool('search_orders', { customer: text }, async ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new agents.Agent({ name: 'bob', instructions: 'You find.', model: 'scripted-1', tools: [searchOrders] });
const carol = new agents.Agent({ name: 'carol', instructions: 'You find.', model: 'scripted-1', tools: [searchOrders] });
const alice = new agents.Agent({
  name: 'alice', instructions: 'You help.', model: 'scripted-1', handoffs: [carol],
  tools: [
    searchOrders,
    tool('read_config', { path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    tool('list_files', { path: text }, async () => []),
    tool('kb_search', { query: text }, async () => 'No results found'),
    tool('now', {}, async () => 'noon'),
    bob.asTool({ toolName: 'ask_bob', toolDescription: 'finds orders' }),
    tool('delete_all', { scope: text }, async () => 'deleted', { needsApproval: true }),
  ],
});

// Two user turns of one conversation; in the second one a person refuses a call.
const runner = new agents.Runner({ traceIncludeSensitiveData: !switches.includes('nocontent') });
const run = input => context.with(setSession(context.active(), { sessionId: 'chat-7' }), async () => {
  const result = await runner.run(alice, input, { stream: switches.includes('stream'), maxTurns: 20 });
  await result.completed;
  return result;
});
const first = await run('find the orders');
console.log(first.finalOutput);
let second = await run([...first.history, { role: 'user', content: 'search again and delete all' }]);
for (const one of second.interruptions) second.state.reject(one);
second = await run(second.state);
console.log(second.finalOutput);
await agents.getGlobalTraceProvider().forceFlush();
await provider.forceFlush();
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
