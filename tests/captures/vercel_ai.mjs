// Spans of the Vercel AI SDK, v6 (ai 6.0.326) and v7 (ai 7.0.173, @ai-sdk/otel 1.0.173), with a scripted model.
//
//   npm i ai@6.0.326 zod@4 @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}      # v7: and @ai-sdk/otel
//   node vercel_ai.mjs OUT.json [nocontent] [legacy]                                           # beside node_modules
//
// `nocontent` switches recordInputs and recordOutputs off, `legacy` (v7) registers LegacyOpenTelemetry.
import { readFileSync, writeFileSync } from 'node:fs';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import * as ai from 'ai';
import { z } from 'zod';

const [out, ...switches] = process.argv.slice(2);
const content = !switches.includes('nocontent');
const major = Number(JSON.parse(readFileSync('node_modules/ai/package.json', 'utf8')).version.split('.')[0]);

const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
if (major >= 7) {
  const { LegacyOpenTelemetry, OpenTelemetry } = await import('@ai-sdk/otel');
  ai.registerTelemetry(switches.includes('legacy') ? new LegacyOpenTelemetry() : new OpenTelemetry({ runtimeContext: true }));
}

const usage = {
  inputTokens: { total: 10, noCache: 10, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 5, text: 5, reasoning: undefined },
};
const call = (id, toolName, input) => ({ type: 'tool-call', toolCallId: id, toolName, input: JSON.stringify(input) });

function scripted(answers) {
  const next = () => {
    const answer = answers.shift();
    if (answer === undefined) throw new Error('the script is over');
    return typeof answer === 'string' ? [{ type: 'text', text: answer }] : answer;
  };
  const finish = parts => parts.some(part => part.type === 'tool-call') ? 'tool-calls' : 'stop';
  return {
    specificationVersion: major >= 7 ? 'v4' : 'v3',
    provider: 'scripted',
    modelId: 'scripted-1',
    supportedUrls: {},
    doGenerate: async () => {
      const parts = next();
      return { content: parts, finishReason: { unified: finish(parts), raw: undefined }, usage, warnings: [] };
    },
    doStream: async () => {
      const parts = next();
      const chunks = parts.flatMap(part => part.type === 'text'
        ? [{ type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: part.text }, { type: 'text-end', id: 't' }]
        : [part]);
      const all = [{ type: 'stream-start', warnings: [] }, ...chunks,
        { type: 'finish', finishReason: { unified: finish(parts), raw: undefined }, usage }];
      return { stream: new ReadableStream({ start(to) { all.forEach(one => to.enqueue(one)); to.close(); } }) };
    },
  };
}

const telemetry = functionId => {
  const common = { isEnabled: true, functionId, recordInputs: content, recordOutputs: content };
  return major >= 7
    ? { telemetry: { ...common, includeRuntimeContext: { sessionId: true } }, runtimeContext: { sessionId: 'chat-7' } }
    : { experimental_telemetry: { ...common, metadata: { sessionId: 'chat-7' } } };
};
const tool = (shape, execute, extra) =>
  ai.tool({ description: 'a tool', inputSchema: z.object(shape), execute, ...extra });
const text = z.string();

const searchOrders = tool({ customer: text }, async ({ customer }) => ({ orders: [`A-1 for ${customer}`] }));
const bob = new ai.ToolLoopAgent({
  model: scripted([[call('call_9', 'search_orders', { customer: 'Bob' })], 'bob found A-1']),
  tools: { search_orders: searchOrders },
  ...telemetry('bob'),
});
const alice = new ai.ToolLoopAgent({
  model: scripted([
    [call('call_1', 'search_orders', { customer: 'Zoë' })],
    [call('call_2', 'search_orders', { customer: 'Zoë' })],
    [call('call_3', 'read_config', { path: '/etc/app.yaml' })],
    [call('call_4', 'list_files', { path: '/tmp' }), call('call_5', 'kb_search', { query: 'refund' }),
      call('call_6', 'lookup_none', { key: 'x' }), call('call_12', 'touch', { path: '/tmp/a' })],
    [call('call_7', 'no_such_tool', { a: 1 })],
    [call('call_8', 'ask_bob', { question: 'orders of Bob?' })],
    'first answer',
    [call('call_10', 'search_orders', { customer: 'Zoë' })],
    [call('call_11', 'delete_all', { scope: 'prod' })],
    'not deleted',
  ]),
  instructions: 'You help.',
  tools: {
    search_orders: searchOrders,
    read_config: tool({ path: text }, async ({ path }) => { throw new Error(`no such file: ${path}`); }),
    list_files: tool({ path: text }, async () => []),
    kb_search: tool({ query: text }, async () => 'No results found'),
    lookup_none: tool({ key: text }, async () => ''),
    touch: tool({ path: text }, async () => undefined),
    ask_bob: tool({ question: text }, async ({ question }) => (await bob.generate({ prompt: question })).text),
    delete_all: tool({ scope: text }, async () => 'deleted', major >= 7 ? {} : { needsApproval: true }),
  },
  ...(major >= 7 ? { toolApproval: { delete_all: 'user-approval' } } : {}),
  ...telemetry('alice'),
});

// First user turn; then a second one, streamed, in which the user refuses a call.
const messages = [{ role: 'user', content: 'find the orders' }];
const answered = async result => messages.push(...((await result.responseMessages) ?? (await result.response).messages));
await answered(await alice.generate({ messages }));
messages.push({ role: 'user', content: 'search again and delete all' });
const streamed = await alice.stream({ messages });
await streamed.consumeStream();
const asked = (await streamed.content).find(part => part.type === 'tool-approval-request');
await answered(streamed);
const refusal = { approvalId: asked.approvalId, approved: false, reason: 'User denied the deletion' };
messages.push({ role: 'tool', content: [{ type: 'tool-approval-response', ...refusal }] });
await alice.generate({ messages });

// A run that is aborted while its tool waits, by an agent without a name.
const abort = new AbortController();
const waiting = (_, { abortSignal }) => new Promise((_, reject) => {
  abortSignal.addEventListener('abort', () => reject(abortSignal.reason));
  abort.abort();
});
const nameless = new ai.ToolLoopAgent({
  model: scripted([[call('call_13', 'wait_for', { job: 'a' })], 'never sent']),
  tools: { wait_for: tool({ job: text }, waiting) },
  ...telemetry(undefined),
});
await nameless.generate({ prompt: 'wait', abortSignal: abort.signal }).catch(error => console.log(error.name));

const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
