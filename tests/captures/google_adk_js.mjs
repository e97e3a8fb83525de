// Spans of Google ADK for JavaScript (@google/adk 2.0.0), which it emits by itself; the model is scripted.
//
//   npm i @google/adk@2.0.0 zod@4 @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node google_adk_js.mjs OUT.json                                         # beside node_modules
//
// ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=false hides all content.
import { writeFileSync } from 'node:fs';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { z } from 'zod';

const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
const { BaseLlm, FunctionTool, InMemoryRunner, LlmAgent } = await import('@google/adk');

class Scripted extends BaseLlm {
  constructor(answers) { super({ model: 'scripted-1' }); this.answers = answers; }
  async *generateContentAsync() {
    const answer = this.answers.shift();
    const parts = typeof answer === 'string' ? [{ text: answer }]
      : answer.map(([id, name, args]) => ({ functionCall: { id, name, args } }));
    const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 };
    yield { content: { role: 'model', parts }, usageMetadata };
  }
}
const text = z.string();
const made = (name, shape, execute) => new FunctionTool({ name, description: 'a tool', parameters: z.object(shape), execute });

const searchOrders = made('search_orders', { customer: text }, ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new LlmAgent({
  name: 'bob', description: 'finds orders', tools: [searchOrders],
  model: new Scripted([[['call_12', 'search_orders', { customer: 'Bob' }]], 'bob found A-1']),
});
const alice = new LlmAgent({
  name: 'alice', instruction: 'You help.', subAgents: [bob],
  tools: [
    searchOrders,
    made('read_config', { path: text }, ({ path }) => { throw new Error(`no such file: ${path}`); }),
    made('list_files', { path: text }, () => []),
    made('kb_search', { query: text }, () => 'No results found'),
    made('lookup_none', { key: text }, () => ''),
    made('touch', { path: text }, () => undefined),
    made('now', {}, () => 'noon'),
  ],
  model: new Scripted([
    [['call_1', 'search_orders', { customer: 'Zoë' }]],
    [['call_2', 'search_orders', { customer: 'Zoë' }]],
    [['call_3', 'read_config', { path: '/etc/app.yaml' }]],
    [['call_4', 'list_files', { path: '/tmp' }], ['call_5', 'kb_search', { query: 'refund' }],
      ['call_6', 'lookup_none', { key: 'x' }], ['call_7', 'touch', { path: '/tmp/a' }]],
    [['call_8', 'now', {}]],
    'first answer',
    [['call_10', 'search_orders', { customer: 'Zoë' }]],
    [['call_t', 'transfer_to_agent', { agentName: 'bob' }]],
  ]),
});

// Two user turns of one session; in the second one the work is handed over.
const runner = new InMemoryRunner({ agent: alice, appName: 'shop' });
await runner.sessionService.createSession({ appName: 'shop', userId: 'u', sessionId: 'chat-7' });
for (const asked of ['find the orders', 'search again']) {
  const newMessage = { role: 'user', parts: [{ text: asked }] };
  for await (const event of runner.runAsync({ userId: 'u', sessionId: 'chat-7', newMessage })) {
    if (event.errorMessage) console.log(event.errorMessage);
  }
}
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(process.argv[2], JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
