// An OpenTelemetry JS service: sends two spans as OTLP/JSON to argv[2], gzip when argv[3] says so,
// and prints what it sent, so that the test can compare field for field.
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';

const [url, compression = 'none'] = process.argv.slice(2);
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'js-service', 'service.version': '1.2' }),
  spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url, compression }))],
});
const tracer = provider.getTracer('js-tracer', '0.9');
const parent = tracer.startSpan('GET /chat', { kind: SpanKind.SERVER });
const child = tracer.startSpan(
  'chat tiny',
  {
    kind: SpanKind.CLIENT,
    attributes: {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': 'tiny',
      'gen_ai.usage.input_tokens': 12,
      'gen_ai.usage.output_tokens': 3,
      big: 9007199254740991,
      half: 0.5,
      yes: true,
      list: ['a', 'b'],
      text: 'Grüße, 世界',
    },
  },
  trace.setSpan(context.active(), parent),
);
child.addEvent('first_token', { index: 0 });
child.setStatus({ code: SpanStatusCode.ERROR, message: 'overloaded' });
child.end();
parent.end();
await provider.forceFlush();
await provider.shutdown();
const ids = (span) => span.spanContext();
console.log(JSON.stringify({ parent: ids(parent), child: ids(child) }));
