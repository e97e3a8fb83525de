// Spans of Genkit (genkit 1.42.0), with a scripted model.
//
//   npm i --legacy-peer-deps genkit@1.42.0 @opentelemetry/sdk-trace-node@1.25.1 @opentelemetry/otlp-transformer@0.52.1
//   node genkit.mjs OUT.json                                                # beside node_modules
import { writeFileSync } from 'node:fs';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { InMemorySessionStore, genkit, z } from 'genkit/beta';
import { enableTelemetry, flushTracing } from 'genkit/tracing';

const exporter = new InMemorySpanExporter();
await enableTelemetry({
  serviceName: 'capture-app', autoDetectResources: false, spanProcessors: [new SimpleSpanProcessor(exporter)],
});
const ai = genkit({});

const call = (ref, name, input) => ({ toolRequest: { ref, name, input } });
const scripted = (name, answers) => ai.defineModel({ name, supports: { tools: true, multiturn: true } }, async () => {
  const answer = answers.shift();
  const content = typeof answer === 'string' ? [{ text: answer }] : answer;
  return { finishReason: 'stop', message: { role: 'model', content }, usage: { inputTokens: 10, outputTokens: 5 } };
});
const tool = (name, shape, run) => ai.defineTool({ name, description: 'a tool', inputSchema: z.object(shape) }, run);
const text = z.string();

const searchOrders = tool('search_orders', { customer: text }, async ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = scripted('scripted/bob', [[call('call_9', 'search_orders', { customer: 'Bob' })], 'bob found A-1']);
const deleteAll = ai.defineInterrupt({
  name: 'delete_all', description: 'a tool', inputSchema: z.object({ scope: text }), outputSchema: text,
});
const alice = ai.defineAgent({
  name: 'alice', system: 'You help.', maxTurns: 12, store: new InMemorySessionStore(),
  tools: [
    searchOrders,
    tool('list_files', { path: text }, async () => []),
    tool('kb_search', { query: text }, async () => 'No results found'),
    tool('lookup_none', { key: text }, async () => ''),
    tool('touch', { path: text }, async () => undefined),
    tool('now', {}, async () => 'noon'),
    tool('ask_bob', { question: text }, async ({ question }) =>
      (await ai.generate({ model: bob, prompt: question, tools: [searchOrders] })).text),
    tool('read_config', { path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    deleteAll,
  ],
  model: scripted('scripted/alice', [
    [call('call_1', 'search_orders', { customer: 'Zoë' })],
    [call('call_2', 'search_orders', { customer: 'Zoë' })],
    [call('call_3', 'search_orders', { customer: 'Zoë' })],
    [call('call_4', 'list_files', { path: '/tmp' }), call('call_5', 'kb_search', { query: 'refund' }),
      call('call_6', 'lookup_none', { key: 'x' }), call('call_12', 'touch', { path: '/tmp/a' })],
    [call('call_7', 'now', {})],
    [call('call_8', 'ask_bob', { question: 'orders of Bob?' })],
    'first answer',
    [call('call_10', 'search_orders', { customer: 'Zoë' })],
    [call('call_11', 'delete_all', { scope: 'prod' })],
    'not deleted',
    [call('call_13', 'read_config', { path: '/etc/app.yaml' })],
  ]),
});

// Two user turns of one chat; in the second one a person refuses a call. Then a tool raises, which ends its turn.
const chat = alice.chat();
await chat.send('find the orders');
const asked = await chat.send('search again and delete all');
const denied = asked.interrupts[0].respond('User denied the deletion');
console.log((await chat.resume({ respond: [denied] })).text);
console.log((await chat.send('read the configuration').catch(error => error)).finishReason);

// Without an agent: a flow that generates, whose model asks for an unknown tool.
const carol = scripted('scripted/carol', [
  [call('call_14', 'search_orders', { customer: 'Eve' })], [call('call_15', 'no_such_tool', { a: 1 })],
]);
const flow = ai.defineFlow('support', async prompt => (await ai.generate({ model: carol, prompt, tools: [searchOrders] })).text);
await flow('orders of Eve?').catch(error => console.log(String(error)));

await flushTracing();
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(process.argv[2], JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
