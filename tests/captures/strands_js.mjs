// Spans of Strands Agents for TypeScript (@strands-agents/sdk 1.19.0), which it emits by itself; the model is scripted.
//
//   npm i @strands-agents/sdk@1.19.0 @modelcontextprotocol/sdk zod@4 \
//     @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node strands_js.mjs OUT.json                                            # beside node_modules
//
// By default content stands in span events; OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental gives the newest
// conventions.
import { writeFileSync } from 'node:fs';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { Agent, BeforeToolCallEvent, Model, tool } from '@strands-agents/sdk';
import { z } from 'zod';

const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();

class Scripted extends Model {
  constructor(answers) { super(); this.answers = answers; }
  getConfig() { return { modelId: 'scripted-1' }; }
  updateConfig() {}
  async *stream() {
    const answer = this.answers.shift();
    const asks = typeof answer !== 'string';
    yield { type: 'modelMessageStartEvent', role: 'assistant' };
    for (const [toolUseId, name, input] of asks ? answer : [[]]) {
      yield { type: 'modelContentBlockStartEvent', ...(asks ? { start: { type: 'toolUseStart', name, toolUseId } } : {}) };
      yield {
        type: 'modelContentBlockDeltaEvent',
        delta: asks ? { type: 'toolUseInputDelta', input: JSON.stringify(input) } : { type: 'textDelta', text: answer },
      };
      yield { type: 'modelContentBlockStopEvent' };
    }
    yield { type: 'modelMessageStopEvent', stopReason: asks ? 'toolUse' : 'endTurn' };
    yield { type: 'modelMetadataEvent', usage: { inputTokens: 10, outputTokens: 5, totalTokens: 15 } };
  }
}
const text = z.string();
const made = (name, shape, callback) => tool({ name, description: 'a tool', inputSchema: z.object(shape), callback });
const traceAttributes = { 'session.id': 'chat-7' };

const searchOrders = made('search_orders', { customer: text }, ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new Agent({
  name: 'bob', description: 'finds orders', printer: false, tools: [searchOrders], traceAttributes,
  model: new Scripted([[['call_12', 'search_orders', { customer: 'Bob' }]], 'bob found A-1']),
});
const alice = new Agent({
  name: 'alice', systemPrompt: 'You help.', printer: false, traceAttributes,
  tools: [
    searchOrders,
    made('read_config', { path: text }, ({ path }) => { throw new Error(`no such file: ${path}`); }),
    made('list_files', { path: text }, () => []),
    made('kb_search', { query: text }, () => 'No results found'),
    made('lookup_none', { key: text }, () => ''),
    made('touch', { path: text }, () => undefined),
    made('now', {}, () => 'noon'),
    made('send_mail', { to: text }, () => 'sent'),
    made('ask_bob', { question: text }, async ({ question }) => String(await bob.invoke(question))),
  ],
  model: new Scripted([
    [['call_1', 'search_orders', { customer: 'Zoë' }]],
    [['call_2', 'search_orders', { customer: 'Zoë' }]],
    [['call_3', 'read_config', { path: '/etc/app.yaml' }]],
    [['call_4', 'list_files', { path: '/tmp' }], ['call_5', 'kb_search', { query: 'refund' }],
      ['call_6', 'lookup_none', { key: 'x' }], ['call_7', 'touch', { path: '/tmp/a' }]],
    [['call_8', 'now', {}]],
    [['call_u', 'no_such_tool', { a: 1 }]],
    [['call_9', 'send_mail', { to: 'a@example.org' }]],
    [['call_b', 'ask_bob', { question: 'orders of Bob?' }]],
    'first answer',
    [['call_10', 'search_orders', { customer: 'Zoë' }]],
    'second answer',
  ]),
});
// A hook that cancels a call in place of a person.
alice.addHook(BeforeToolCallEvent, event => {
  if (event.toolUse.name === 'send_mail') event.cancel = 'The call was rejected by the user.';
});

await alice.invoke('find the orders');
await alice.invoke('search again');
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(process.argv[2], JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
