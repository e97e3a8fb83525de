// Spans of a bare OpenAI client in JavaScript (openai 7.57.0), around a loop of the application, by OpenLLMetry
// (@traceloop/instrumentation-openai 0.27.0) or OpenInference (@arizeai/openinference-instrumentation-openai 4.2.7).
//
//   npm i openai@7.57.0 @traceloop/instrumentation-openai@0.27.0 @arizeai/openinference-instrumentation-openai@4.2.7 \
//     @opentelemetry/{api,sdk-trace-node,resources,otlp-transformer}
//   node openai_client_js.mjs OUT.json traceloop|openinference                # beside node_modules
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import OpenAI from 'openai';

const [out, kind] = process.argv.slice(2);
const exporter = new InMemorySpanExporter();
const resource = resourceFromAttributes({ 'service.name': 'capture-app' });
const provider = new NodeTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const { OpenAIInstrumentation } = kind === 'traceloop'
  ? await import('@traceloop/instrumentation-openai')
  : await import('@arizeai/openinference-instrumentation-openai');
const instrumentation = new OpenAIInstrumentation();
instrumentation.setTracerProvider(provider);
instrumentation.manuallyInstrument(OpenAI);

// The Responses API, with one answer a request, in order.
const call = (call_id, name, args) => ({ type: 'function_call', id: `fc_${call_id}`, call_id, name, arguments: JSON.stringify(args), status: 'completed' });
const say = text => ({ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text, annotations: [] }] });
const answers = [
  [call('call_1', 'search_orders', { customer: 'Zoë' })],
  [call('call_2', 'search_orders', { customer: 'Zoë' })],
  [call('call_3', 'search_orders', { customer: 'Zoë' })],
  [call('call_4', 'list_files', { path: '/tmp' }), call('call_5', 'read_config', { path: '/etc/app.yaml' })],
  [say('first answer')],
];
const server = createServer((request, reply) => {
  request.resume();
  request.on('end', () => {
    reply.setHeader('content-type', 'application/json');
    reply.end(JSON.stringify({
      id: `resp_${answers.length}`, object: 'response', created_at: 1, model: 'scripted-1', status: 'completed', error: null,
      output: answers.shift(), parallel_tool_calls: true, tool_choice: 'auto', tools: [],
      usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
    }));
  });
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const client = new OpenAI({ baseURL: `http://127.0.0.1:${server.address().port}/v1`, apiKey: 'none' });

const results = { search_orders: '{"orders": ["A-1 for Zoë"]}', list_files: '[]', read_config: 'Error: no such file' };
const tools = Object.keys(results).map(name => ({ type: 'function', name, parameters: { type: 'object', properties: {} } }));
await provider.getTracer('app').startActiveSpan('request', async span => {
  const input = [{ role: 'user', content: 'find the orders' }];
  for (;;) {
    const { output } = await client.responses.create({ model: 'scripted-1', input, tools });
    const calls = output.filter(one => one.type === 'function_call');
    input.push(...output, ...calls.map(one => ({ type: 'function_call_output', call_id: one.call_id, output: results[one.name] })));
    if (calls.length === 0) break;
  }
  span.end();
});
await provider.forceFlush();
const spans = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(exporter.getFinishedSpans())));
writeFileSync(out, JSON.stringify(spans, null, 1) + '\n');
process.exit(0);
