// Spans of LangChain.js (langchain 1.5.14) by OpenInference (@arizeai/openinference-instrumentation-langchain 4.1.1) or
// OpenLLMetry (@traceloop/instrumentation-langchain 0.27.0), with a scripted model.
//
//   npm i langchain@1.5.14 @langchain/core@1.4.0 @langchain/langgraph@1.7.3 zod@4 \
//     @arizeai/openinference-instrumentation-langchain@4.1.1 @traceloop/instrumentation-langchain@0.27.0 \
//     @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node langchain_js.mjs OUT.json openinference|traceloop                  # beside node_modules
import { writeFileSync } from 'node:fs';
import * as callbackManagerModule from '@langchain/core/callbacks/manager';
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { createAgent, tool } from 'langchain';
import { z } from 'zod';

const [out, kind] = process.argv.slice(2);
const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
const provider = new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const openinference = kind === 'openinference';
const { LangChainInstrumentation } = openinference
  ? await import('@arizeai/openinference-instrumentation-langchain')
  : await import('@traceloop/instrumentation-langchain');
const instrumentation = new LangChainInstrumentation();
instrumentation.setTracerProvider(provider);
instrumentation.manuallyInstrument(openinference ? callbackManagerModule : { callbackManagerModule });

class Scripted extends BaseChatModel {
  constructor(answers) { super({}); this.answers = answers; }
  _llmType() { return 'scripted'; }
  bindTools() { return this; }
  async _generate() {
    const answer = this.answers.shift();
    const [content, tool_calls] = typeof answer === 'string' ? [answer, []] : ['', answer];
    const usage_metadata = { input_tokens: 10, output_tokens: 5, total_tokens: 15 };
    const tokenUsage = { promptTokens: 10, completionTokens: 5, totalTokens: 15 };
    const message = new AIMessage({ content, tool_calls, usage_metadata });
    return { generations: [{ text: content, message }], llmOutput: { tokenUsage } };
  }
}
const call = (id, name, args) => ({ id, name, args, type: 'tool_call' });
const text = z.string();
const made = (name, shape, run) => tool(run, { name, description: 'a tool', schema: z.object(shape) });

const searchOrders = made('search_orders', { customer: text }, async ({ customer }) =>
  JSON.stringify({ orders: [`A-1 for ${customer}`] }));
const bob = createAgent({
  name: 'bob', tools: [searchOrders],
  model: new Scripted([[call('call_9', 'search_orders', { customer: 'Bob' })], 'bob found A-1']),
});
const alice = createAgent({
  name: 'alice', checkpointer: new MemorySaver(),
  model: new Scripted([
    [call('call_1', 'search_orders', { customer: 'Zoë' })],
    [call('call_2', 'search_orders', { customer: 'Zoë' })],
    [call('call_3', 'search_orders', { customer: 'Zoë' })],
    [call('call_5', 'list_files', { path: '/tmp' }), call('call_6', 'kb_search', { query: 'refund' })],
    [call('call_7', 'no_such_tool', { a: 1 })],
    [call('call_12', 'now', {})],
    [call('call_8', 'ask_bob', { question: 'orders of Bob?' })],
    'first answer',
    [call('call_10', 'search_orders', { customer: 'Zoë' })],
    [call('call_4', 'read_config', { path: '/etc/app.yaml' })],
    'second answer',
  ]),
  tools: [
    searchOrders,
    made('list_files', { path: text }, async () => []),
    made('kb_search', { query: text }, async () => 'No results found'),
    made('now', {}, async () => 'noon'),
    made('read_config', { path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    made('ask_bob', { question: text }, async ({ question }) =>
      (await bob.invoke({ messages: [{ role: 'user', content: question }] })).messages.at(-1).content),
  ],
});

// Two user turns of one thread, each within a span of the application.
const tracer = provider.getTracer('app');
for (const content of ['find the orders', 'search again']) {
  await tracer.startActiveSpan('request', async span => {
    const config = { configurable: { thread_id: 'chat-7' } };
    const answer = await alice.invoke({ messages: [{ role: 'user', content }] }, config);
    console.log(answer.messages.at(-1).content);
    span.end();
  });
}
await provider.forceFlush();
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
