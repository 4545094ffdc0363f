"""Processors and exporters of the stock SDK work on our spans."""

from __future__ import annotations

import json
import threading
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from mcptrace import NewTracer, WithExporter, WithSampler, WithServiceName
from mcptrace.api import ExportOutcome
from mcptrace.readable import ExporterAdapter
from mcptrace.testing import captured_spans

ELSEWHERE = SpanContext(0xA1, 0xB2, True, TraceFlags(1), TraceState([("v", "1")]))


def test_a_stock_processor_gets_whole_readable_spans() -> None:
    exporter = InMemorySpanExporter()
    with (
        captured_spans(processors=[SimpleSpanProcessor(exporter)], service_name="stock") as capture,
        capture.tracer.start_as_current_span("root"),
    ):
        child = capture.tracer.start_span(
            "child",
            kind=SpanKind.PRODUCER,
            attributes={"list": [1, 2]},
            links=[Link(ELSEWHERE, {"l": 1})],
        )
        child.add_event("e", {"k": "v"}, timestamp=9)
        child.set_status(StatusCode.ERROR, "why")
        child.end()
    readable_child, readable_root = exporter.get_finished_spans()
    assert isinstance(readable_child, ReadableSpan)
    assert (readable_child.name, readable_child.kind) == ("child", SpanKind.PRODUCER)
    assert readable_child.parent is not None
    assert readable_child.parent.span_id == readable_root.get_span_context().span_id  # type: ignore[union-attr]
    assert readable_child.attributes is not None
    assert readable_child.attributes["list"] == (1, 2)
    assert [(e.name, e.timestamp, dict(e.attributes or {})) for e in readable_child.events] == [
        ("e", 9, {"k": "v"})
    ]
    assert [(x.context, dict(x.attributes or {})) for x in readable_child.links] == [
        (ELSEWHERE, {"l": 1})
    ]
    assert readable_child.status.description == "why"
    assert readable_child.resource.attributes["service.name"] == "stock"
    assert readable_child.instrumentation_scope is not None
    assert readable_child.instrumentation_scope.name == "mcptrace.testing"
    assert '"name": "child"' in readable_child.to_json()


def test_counts_of_what_was_dropped_reach_stock_exporters() -> None:
    exporter = InMemorySpanExporter()
    limits = dict.fromkeys(("attributes_max", "events_max", "links_max"), 1)
    with captured_spans(
        processors=[SimpleSpanProcessor(exporter)], event_attributes_max=0, **limits
    ) as capture:
        span = capture.tracer.start_span("s", attributes={"a": 1, "b": 2, "c": 3})
        for _ in range(3):
            span.add_event("e", {"k": 1})
            span.add_link(ELSEWHERE)
        span.end()
    (read,) = exporter.get_finished_spans()
    assert (read.dropped_attributes, read.dropped_events, read.dropped_links) == (2, 2, 2)
    assert read.events[0].dropped_attributes == 1
    assert json.loads(read.to_json())["attributes"]["a"] == 1


def test_the_schema_of_a_scope_reaches_stock_exporters() -> None:
    exporter = InMemorySpanExporter()
    with captured_spans(processors=[SimpleSpanProcessor(exporter)]) as capture:
        capture.provider.get_tracer("lib", "1", "https://schema/1").start_span("s").end()
    (span,) = exporter.get_finished_spans()
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.schema_url == "https://schema/1"


def test_a_stock_processor_reads_the_live_span_at_its_start() -> None:
    read: list[Any] = []

    class Reader(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            span.set_attribute("from.processor", 1)
            read.append((span.name, span.kind, span.parent, dict(span.attributes)))

    with captured_spans(processors=[Reader()]) as capture:
        capture.tracer.start_span("s", attributes={"a": 1}).end()
        assert capture.spans[0].attributes["from.processor"] == 1
    assert read == [("s", SpanKind.INTERNAL, None, {"a": 1, "from.processor": 1})]


def test_a_kept_error_reaches_stock_exporters_though_it_was_not_sampled_up_front() -> None:
    exporter = InMemorySpanExporter()
    with captured_spans(
        sampler="traceidratio", sampler_arg=1e-12, processors=[SimpleSpanProcessor(exporter)]
    ) as capture:
        capture.tracer.start_span("fine").end()
        span = capture.tracer.start_span("broken")
        span.set_status(StatusCode.ERROR)
        span.end()
    assert [span.name for span in exporter.get_finished_spans()] == ["broken"]


def test_a_stock_exporter_stands_behind_our_batches() -> None:
    exporter = InMemorySpanExporter()
    tracer = NewTracer(WithServiceName("x"), WithExporter(exporter), WithSampler("always_on"))
    tracer.start_span("s").end()
    assert tracer.provider.force_flush()
    assert [span.name for span in exporter.get_finished_spans()] == ["s"]
    assert tracer.provider.stats() == {"exported": 1}
    tracer.provider.shutdown()


def test_a_stock_exporter_that_fails_is_a_rejection() -> None:
    class Failing(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.FAILURE

    result = ExporterAdapter(Failing()).export([], 10.0)
    assert (result.outcome, result.message) == (ExportOutcome.REJECTED, "Failing failed")


def test_a_stock_processor_that_hangs_does_not_hold_up_the_exit() -> None:
    release = threading.Event()

    class Hanging(SpanProcessor):
        def shutdown(self) -> None:
            release.wait(30)

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            release.wait(30)
            return True

    with captured_spans(processors=[Hanging()]) as capture:
        assert capture.provider.force_flush(timeout_millis=20) is False
        capture.provider.shutdown(timeout_seconds=0.02)
    release.set()
