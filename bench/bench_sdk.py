"""CPU per span of this SDK and of the stock one, in alternating rounds of one run.

    python bench/bench_sdk.py [--rounds N] [--requests N]

A request is a root and three children, each with 12 attributes, one event and a status.
`kept`: every span is exported over OTLP/HTTP to a sink that counts them, and the count is
checked.  `not kept`: ours at its lowest rate, where it still records everything to keep what
turns out critical; stock with a ratio of zero.  `caller` is the calling thread alone.
"""

from __future__ import annotations

import argparse
import http.server
import json
import statistics
import subprocess
import sys
import threading
import time

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS_PER_REQUEST = 4


class Sink(http.server.BaseHTTPRequestHandler):
    """Counts what arrives."""

    protocol_version = "HTTP/1.1"
    spans = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                Sink.spans += len(scope_spans.spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def build(variant: str, endpoint: str):
    """A tracer and a function that exports everything, for one variant."""
    if variant.startswith("mcptrace"):
        import mcptrace

        sampler = "always_on" if variant.endswith("kept") and "not" not in variant else None
        settings = {} if sampler else {"rate_min": 1e-9, "rate_max": 1e-9}
        tracer = mcptrace.init(
            service_name="bench",
            endpoint=endpoint,
            sampler=sampler,
            queue_spans_max=1_000_000,
            set_global=False,
            **settings,
        )
        return tracer, lambda: mcptrace.force_flush(60)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    ratio = 0.0 if "not" in variant else 1.0
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    exporter = OTLPSpanExporter(endpoint=endpoint + "/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1_000_000))
    return provider.get_tracer("bench"), lambda: provider.force_flush(60_000)


def request(tracer: trace.Tracer, number: int) -> None:
    def fill(span: trace.Span, index: int) -> None:
        for name in ("alpha", "beta", "gamma", "delta", "epsilon"):
            span.set_attribute(f"bench.{name}", "a short value")
        span.set_attribute("bench.unique", f"{number}-{index}")
        for name in ("one", "two", "three"):
            span.set_attribute(f"bench.int.{name}", number)
        for name in ("one", "two", "three"):
            span.set_attribute(f"bench.float.{name}", 0.5)
        span.add_event("first_token", {"index": 0, "text": "a"})
        span.set_status(trace.StatusCode.OK)

    with tracer.start_as_current_span("request", kind=trace.SpanKind.SERVER) as root:
        fill(root, 0)
        for index in range(1, SPANS_PER_REQUEST):
            with tracer.start_as_current_span("step") as span:
                fill(span, index)


def worker(variant: str, endpoint: str) -> None:
    """Run rounds as they are asked for on standard input; print [caller, total] µs a span."""
    tracer, flush = build(variant, endpoint)
    for line in sys.stdin:
        requests = int(line)
        caller, total = time.thread_time(), time.process_time()
        for number in range(requests):
            request(tracer, number)
        caller = time.thread_time() - caller
        flush()
        total = time.process_time() - total
        spans = requests * SPANS_PER_REQUEST
        print(json.dumps([caller / spans * 1e6, total / spans * 1e6]), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--requests", type=int, default=500)
    arguments.add_argument("--worker", nargs=2, metavar=("VARIANT", "ENDPOINT"))
    options = arguments.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{sink.server_port}"
    variants = ["stock kept", "mcptrace kept", "stock not kept", "mcptrace not kept"]
    running = {
        variant: subprocess.Popen(
            [sys.executable, __file__, "--worker", variant, endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for variant in variants
    }
    samples: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for number in range(options.rounds + 1):
        for variant in variants if number % 2 else reversed(variants):
            before = Sink.spans
            process = running[variant]
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{options.requests}\n")
            process.stdin.flush()
            figures = json.loads(process.stdout.readline())
            expected = 0 if "not" in variant else options.requests * SPANS_PER_REQUEST
            arrived = Sink.spans - before
            assert arrived == expected, f"{variant}: {arrived} spans arrived, not {expected}"
            if number:  # the first round warms up
                samples[variant].append(tuple(figures))
    for process in running.values():
        process.communicate()
    print(f"{'variant':<20}{'caller µs':>11}{'total µs':>11}{'stock/ours total':>19}")
    for variant, values in samples.items():
        peer = samples[variant.replace("mcptrace", "stock")]
        ratios = [theirs[1] / ours[1] for theirs, ours in zip(peer, values, strict=True)]
        caller, total = (statistics.median(v[i] for v in values) for i in (0, 1))
        print(f"{variant:<20}{caller:11.1f}{total:11.1f}{statistics.median(ratios):19.2f}")


if __name__ == "__main__":
    main()
