"""Spans of other SDKs pass through the collector to a stock receiver, complete field for field."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def without_ours(span: trace_pb2.Span, sent: trace_pb2.Span) -> trace_pb2.Span:
    """The span as it was before the collector added to it."""
    before = trace_pb2.Span()
    before.CopyFrom(span)
    names = {attribute.key for attribute in sent.attributes}
    kept = [attribute for attribute in before.attributes if attribute.key in names]
    added = [attribute.key for attribute in before.attributes if attribute.key not in names]
    assert all(key.startswith(("mcptrace.", "gen_ai.")) for key in added), added
    del before.attributes[:]
    before.attributes.extend(kept)
    assert before.trace_state == "ot=th:0"
    before.trace_state = sent.trace_state
    return before


def stock_spans(exporter: SpanExporter) -> list[trace_pb2.Span]:
    """Send a small trace of the stock SDK; returns it as the stock encoder puts it."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "stock"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("stock.tracer", "1.4", attributes={"scope": "attribute"})
    linked = trace.Link(
        trace.SpanContext(0xABC, 0xDEF, False, trace.TraceFlags(1)), {"why": "retry"}
    )
    with (
        tracer.start_as_current_span("GET /", kind=trace.SpanKind.SERVER, links=[linked]),
        tracer.start_as_current_span(
            "chat tiny",
            attributes={
                "gen_ai.provider.name": "openai",
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "tiny",
                "gen_ai.usage.input_tokens": 12,
                "gen_ai.usage.output_tokens": 3,
                "list": ["a", "b"],
                "numbers": [1, 2],
                "half": 0.5,
                "yes": True,
                "text": "Grüße, 世界",
            },
        ) as span,
    ):
        span.add_event("first_token", {"index": 0})
        span.set_status(trace.StatusCode.ERROR, "overloaded")
    provider.force_flush()
    finished = memory.get_finished_spans()
    assert exporter.export(finished).name == "SUCCESS"
    exporter.shutdown()
    request = encode_spans(finished)
    return [s for r in request.resource_spans for ss in r.scope_spans for s in ss.spans]


@pytest.mark.parametrize("protocol", ["grpc", "grpc-gzip", "http", "http-gzip"])
@pytest.mark.parametrize("onward", ["otlp_grpc", "otlp_http"])
def test_a_stock_sdk_reaches_a_stock_receiver(
    protocol: str, onward: str, receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    endpoint = receiver.grpc_endpoint if onward == "otlp_grpc" else receiver.http_endpoint
    running = collector(
        exporters={"peer": {"type": onward, "endpoint": endpoint, "insecure": True}}
    )
    exporter: SpanExporter
    if protocol.startswith("grpc"):
        import grpc

        compression = grpc.Compression.Gzip if "gzip" in protocol else None
        exporter = GrpcExporter(
            endpoint=f"http://{running.endpoint('otlp_grpc')}", compression=compression
        )
    else:
        exporter = HttpExporter(
            endpoint=f"http://{running.endpoint('otlp_http')}/v1/traces",
            compression=Compression.Gzip if "gzip" in protocol else Compression.NoCompression,
        )
    sent = {span.span_id: span for span in stock_spans(exporter)}
    received = wait_until(lambda: len(receiver.spans()) >= len(sent) and receiver.spans())
    assert len(received) == len(sent)
    for resource, scope, span in received:
        assert without_ours(span, sent[span.span_id]) == sent[span.span_id]
        assert {a.key: a.value.string_value for a in resource.attributes}["service.name"] == "stock"
        assert (scope.name, scope.version) == ("stock.tracer", "1.4")
        assert scope.attributes[0].value.string_value == "attribute"
    assert running.stop() == 0
    assert "the balance is exact" in running.log()


NODE = Path(__file__).parents[1] / "node"


@pytest.mark.needs_node
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_js_client_reaches_a_stock_receiver(
    compression: str, receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    if shutil.which("node") is None or not (NODE / "node_modules").exists():
        assert not os.environ.get("MCPTRACE_REQUIRE_NODE"), "run `npm ci` in tests/node"
        pytest.skip("Node.js or its packages are not installed (make test-node installs them)")
    running = collector(
        exporters={
            "peer": {"type": "otlp_grpc", "endpoint": receiver.grpc_endpoint, "insecure": True}
        }
    )
    url = f"http://{running.endpoint('otlp_http')}/v1/traces"
    done = subprocess.run(
        ["node", str(NODE / "send.mjs"), url, compression],
        capture_output=True,
        check=True,
        timeout=60,
    )
    ids = json.loads(done.stdout)
    received = wait_until(lambda: len(receiver.spans()) >= 2 and receiver.spans())
    spans = {span.span_id.hex(): span for _, _, span in received}
    parent, child = spans[ids["parent"]["spanId"]], spans[ids["child"]["spanId"]]
    assert parent.trace_id.hex() == child.trace_id.hex() == ids["parent"]["traceId"]
    assert child.parent_span_id == parent.span_id
    assert (parent.kind, child.kind) == (trace_pb2.Span.SPAN_KIND_SERVER, 3)
    values = {a.key: a.value for a in child.attributes}
    assert values["big"].int_value == 9007199254740991
    assert values["half"].double_value == 0.5
    assert values["yes"].bool_value is True
    assert [v.string_value for v in values["list"].array_value.values] == ["a", "b"]
    assert values["text"].string_value == "Grüße, 世界"
    assert values["mcptrace.model_name"].string_value == "tiny"
    assert values["mcptrace.token_usage.total"].int_value == 15
    assert (child.status.code, child.status.message) == (2, "overloaded")
    assert [event.name for event in child.events] == ["first_token"]
    assert child.end_time_unix_nano >= child.start_time_unix_nano > 0
    resource, scope, _ = received[0]
    assert {a.key: a.value.string_value for a in resource.attributes}["service.version"] == "1.2"
    assert (scope.name, scope.version) == ("js-tracer", "0.9")
