from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import TraceState as State

import mcptrace
from mcptrace import stock
from mcptrace.config import ConfigError
from mcptrace.stock import FastOTLPSpanExporter, McpTraceSampler, McpTraceSpanProcessor
from mcptrace.stock_records import encode_readable
from mcptrace_proto import semconv
from mcptrace_proto.wire import encode_response

Build = Callable[..., tuple[TracerProvider, InMemorySpanExporter]]


@pytest.fixture
def build() -> Iterator[Build]:
    """A stock provider with our processor in front of a stock one, and what came out of it."""
    providers: list[TracerProvider] = []

    def make(
        sampler: Sampler | None = None, enforcement: str = "warn", **config: Any
    ) -> tuple[TracerProvider, InMemorySpanExporter]:
        ours = McpTraceSampler(**config) if sampler is None else None
        memory = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler or ours)
        provider.mcptrace = McpTraceSpanProcessor(SimpleSpanProcessor(memory), ours, enforcement)
        provider.add_span_processor(provider.mcptrace)
        providers.append(provider)
        return provider, memory

    yield make
    for provider in providers:
        provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def remote(sampled: bool, header: str = "") -> Any:
    context = SpanContext(
        0xABC << 64 | 1,
        7,
        is_remote=True,
        trace_flags=TraceFlags(int(sampled)),
        trace_state=State.from_header([header]) if header else State(),
    )
    return trace_api.set_span_in_context(trace_api.NonRecordingSpan(context))


def test_parts_are_had_from_the_package_and_loaded_only_then() -> None:
    code = (
        "import sys, mcptrace; assert 'opentelemetry.sdk' not in sys.modules; "
        "print([getattr(mcptrace, n).__module__ for n in mcptrace._PARTS_FOR_THE_STOCK_SDK])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['mcptrace.stock', 'mcptrace.stock', 'mcptrace.stock']\n"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mcptrace.Nothing


# --- FastOTLPSpanExporter -------------------------------------------------------------------


def some_spans() -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "svc", "list": ["a", "b"]}, "https://schema/r"),
        span_limits=SpanLimits(max_attributes=4, max_events=2, max_links=1),
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("scope", "1.2", "https://schema/s", {"scope.attribute": 5})
    other = provider.get_tracer("other")
    target = SpanContext(0x1234, 0x56, is_remote=True)
    with tracer.start_as_current_span("parent", context=remote(True, "ot=th:8")) as parent:
        parent.set_attribute("text", "grüße")
        parent.set_attribute("numbers", [1, 2, 3])
        parent.set_attribute("yes", True)
        parent.set_attribute("ratio", 0.5)
        parent.set_attribute("one too many", 1)
        for number in range(3):
            parent.add_event(f"event {number}", {"number": number}, timestamp=number + 1)
        links = [Link(target, {"why": "test"}), Link(target)]
        with other.start_as_current_span("child", kind=SpanKind.CLIENT, links=links) as child:
            child.set_status(Status(StatusCode.ERROR, "it broke"))
    provider.shutdown()
    return list(memory.get_finished_spans())


def spans_of(request: ExportTraceServiceRequest) -> list[Any]:
    return [
        span
        for group in request.resource_spans
        for scope_spans in group.scope_spans
        for span in scope_spans.spans
    ]


def test_encoding_is_the_stock_encoders_field_for_field() -> None:
    spans = some_spans()
    ours = ExportTraceServiceRequest.FromString(encode_readable(spans))
    stock = encode_spans(spans)
    stock_request = ExportTraceServiceRequest.FromString(stock.SerializeToString())
    # What the stock encoder leaves out although OTLP has a field for it ...
    for span in spans_of(ours):
        assert span.flags & 0xFF == 1
        span.flags &= ~0xFF
    # ... and what it writes although there is nothing to say.
    for span in spans_of(stock_request):
        if not span.status.ByteSize():
            span.ClearField("status")
    assert ours == stock_request


def test_exporter_delivers_from_a_stock_batch_processor(http_receiver: Any) -> None:
    exporter = FastOTLPSpanExporter(http_receiver.endpoint, compression="gzip")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    for number in range(20):
        provider.get_tracer("t").start_span(f"{number:02}").end()
    assert provider.force_flush()
    provider.shutdown()
    assert http_receiver.names() == [f"{number:02}" for number in range(20)]
    assert exporter.counters.snapshot() == {"exported": 20}


def test_exporter_speaks_grpc_and_json(grpc_receiver: Any, http_receiver: Any) -> None:
    spans = some_spans()
    over_grpc = FastOTLPSpanExporter(grpc_receiver.endpoint, protocol="grpc")
    over_json = FastOTLPSpanExporter(http_receiver.endpoint, protocol="http/json")
    assert over_grpc.export(spans) is SpanExportResult.SUCCESS
    assert over_json.export(spans) is SpanExportResult.SUCCESS
    over_grpc.shutdown()
    over_json.shutdown()
    assert grpc_receiver.names() == ["child", "parent"]
    groups = json.loads(http_receiver.bodies[0])["resourceSpans"]
    assert [scope["spans"][0]["name"] for scope in groups[0]["scopeSpans"]] == ["child", "parent"]


def test_failed_and_partly_taken_batches_are_told_apart(http_receiver: Any, scripted: Any) -> None:
    spans = some_spans()
    exporter = FastOTLPSpanExporter(http_receiver.endpoint)
    http_receiver.script = [scripted(400), scripted(body=encode_response(1, "one"))]
    assert exporter.export(spans) is SpanExportResult.FAILURE
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    assert exporter.force_flush()
    exporter.shutdown()
    assert exporter.counters.snapshot() == {"rejected": 2, "exported": 1, "partial_rejected": 1}


def test_endpoint_comes_from_the_environment_and_a_bad_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, http_receiver: Any
) -> None:
    base = http_receiver.endpoint.removesuffix("/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", base)
    exporter = FastOTLPSpanExporter()
    assert exporter.export(some_spans()) is SpanExportResult.SUCCESS
    exporter.shutdown()
    with pytest.raises(ConfigError):
        FastOTLPSpanExporter("ftp://nowhere")


# --- McpTraceSampler ------------------------------------------------------------------------


def test_every_trace_is_recorded_and_the_flag_is_consistent() -> None:
    sampler = McpTraceSampler(rate_min=0.5, rate_max=0.5)
    provider = TracerProvider(sampler=sampler)
    tracer = provider.get_tracer("t")
    sampled = 0
    for _ in range(400):
        root = tracer.start_span("root")
        child = tracer.start_span("child", context=trace_api.set_span_in_context(root))
        assert [root.is_recording(), child.is_recording()] == [True, True]
        context = root.get_span_context()
        above = context.trace_id & ((1 << 56) - 1) >= 1 << 55
        assert context.trace_flags.sampled == above
        assert child.get_span_context().trace_flags.sampled == above
        assert context.trace_state.get("ot") == ("th:8" if above else None)
        sampled += above
    assert 120 < sampled < 280
    provider.shutdown()


@pytest.mark.parametrize("sampled", [True, False])
def test_remote_parent_is_followed(sampled: bool) -> None:
    provider = TracerProvider(sampler=McpTraceSampler())
    span = provider.get_tracer("t").start_span("server", context=remote(sampled, "v=1"))
    assert (span.is_recording(), span.get_span_context().trace_flags.sampled) == (True, sampled)
    assert span.get_span_context().trace_state.to_header() == "v=1"
    span.end()
    provider.shutdown()


def test_always_off_records_nothing_and_the_sampler_describes_itself() -> None:
    sampler = McpTraceSampler(sampler="always_off")
    provider = TracerProvider(sampler=sampler)
    assert not provider.get_tracer("t").start_span("root").is_recording()
    assert sampler.get_description() == "McpTraceSampler{always_off}"
    provider.shutdown()


# --- McpTraceSpanProcessor ------------------------------------------------------------------


def test_trace_with_an_error_is_kept_whole_whatever_the_rate(build: Build) -> None:
    provider, memory = build(rate_min=1e-9, rate_max=1e-9)
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("root"):
        with tracer.start_as_current_span("broken") as span:
            span.set_status(Status(StatusCode.ERROR, "broken"))
        assert memory.get_finished_spans() == ()  # held until the local root ends
    names = [span.name for span in memory.get_finished_spans()]
    assert names == ["broken", "root"]
    for span in memory.get_finished_spans():
        assert span.get_span_context().trace_flags.sampled
        assert attributes(span)[semconv.SAMPLING_REASON] == "error"
        assert attributes(span)[semconv.PROTOCOL_VERSION] == "v2.3"


def test_rest_is_kept_by_probability_with_its_threshold_and_count(build: Build) -> None:
    provider, memory = build(rate_min=0.25, rate_max=0.25)
    tracer = provider.get_tracer("t")
    for _ in range(400):
        tracer.start_span("plain").end()
    kept = memory.get_finished_spans()
    assert 50 < len(kept) < 160
    assert provider.mcptrace.counters.snapshot() == {"sampled_out": 400 - len(kept)}
    for span in kept:
        context = span.get_span_context()
        assert context.trace_state.get("ot") == "th:c"
        assert context.trace_id & ((1 << 56) - 1) >= 0xC << 52
        assert attributes(span)[semconv.SAMPLING_REASON] == "probability"
        assert attributes(span)[semconv.SAMPLING_ADJUSTED_COUNT] == 4.0


@pytest.mark.parametrize(("sampled", "count"), [(True, 1), (False, 0)])
def test_remote_parents_choice_is_followed_to_the_end(
    build: Build, sampled: bool, count: int
) -> None:
    provider, memory = build()
    header = "ot=th:0" if sampled else ""
    provider.get_tracer("t").start_span("server", context=remote(sampled, header)).end()
    spans = memory.get_finished_spans()
    assert len(spans) == count
    assert [attributes(span)[semconv.SAMPLING_REASON] for span in spans] == ["parent"] * count


def test_other_samplers_are_obeyed(build: Build) -> None:
    provider, memory = build(sampler=ALWAYS_ON)
    provider.get_tracer("t").start_span("a").end()
    silent, nothing = build(sampler=ALWAYS_OFF)
    silent.get_tracer("t").start_span("b").end()
    assert [span.name for span in memory.get_finished_spans()] == ["a"]
    assert nothing.get_finished_spans() == ()


def test_late_span_follows_its_trace_unless_it_is_critical(build: Build) -> None:
    provider, memory = build(rate_min=1e-9, rate_max=1e-9)
    tracer = provider.get_tracer("t")
    root = tracer.start_span("root")
    context = trace_api.set_span_in_context(root)
    late, broken = (tracer.start_span(name, context=context) for name in ("late", "broken"))
    root.end()
    late.end()
    broken.set_status(Status(StatusCode.ERROR))
    broken.end()
    assert [span.name for span in memory.get_finished_spans()] == ["broken"]
    assert provider.mcptrace.counters.snapshot() == {"sampled_out": 2}


def test_roots_that_never_end_are_bounded(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "TRACES_MAX", 2)
    provider, _ = build()
    for _ in range(5):
        provider.get_tracer("t").start_span("never ended")
    assert len(provider.mcptrace._traces) == 2
    assert provider.mcptrace.counters.snapshot() == {"local_trace_decided_early": 3}


def test_two_local_roots_of_one_trace_are_decided_together(build: Build) -> None:
    provider, memory = build()
    tracer = provider.get_tracer("t")
    first = tracer.start_span("first", context=remote(True))
    second = tracer.start_span("second", context=remote(True))
    first.end()
    assert memory.get_finished_spans() == ()
    second.end()
    assert [span.name for span in memory.get_finished_spans()] == ["first", "second"]


@pytest.mark.parametrize(
    ("enforcement", "kept", "counts"),
    [
        ("strict", 0, {"schema_violation": 1, "schema_refused": 1}),
        ("warn", 1, {"schema_violation": 1}),
        ("off", 1, {}),
    ],
)
def test_schema_is_enforced_on_inference_spans(
    build: Build,
    enforcement: str,
    kept: int,
    counts: dict[str, int],
    *,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcptrace.guard._Switch.next_warning_seconds", 0.0)
    provider, memory = build(sampler=ALWAYS_ON, enforcement=enforcement)
    span = provider.get_tracer("t").start_span("chat")
    span.set_attribute(semconv.MODEL_NAME, "m")
    span.end()
    spans = memory.get_finished_spans()
    assert len(spans) == kept
    assert provider.mcptrace.counters.snapshot() == counts
    marked = [semconv.SCHEMA_VIOLATIONS in attributes(span) for span in spans]
    assert marked == [enforcement == "warn"] * kept
    assert ("span 'chat' refused" in caplog.text) == (enforcement == "strict")


def test_shutdown_decides_what_is_held(build: Build) -> None:
    provider, memory = build(sampler=ALWAYS_ON)
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("never ends in time"):
        tracer.start_span("child").end()
        provider.shutdown()
    assert [span.name for span in memory.get_finished_spans()][:1] == ["child"]


def test_everything_else_of_a_span_survives_the_rewriting(build: Build) -> None:
    provider, memory = build(sampler=ALWAYS_ON)
    plain = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(plain))
    tracer = provider.get_tracer("scope", "1")
    links = [Link(SpanContext(1, 2, is_remote=True), {"a": 1})]
    with tracer.start_as_current_span("s", kind=SpanKind.SERVER, links=links) as span:
        span.add_event("e", {"k": ["v"]})
        span.set_attribute("list", (1, 2))
    (before,), (after,) = plain.get_finished_spans(), memory.get_finished_spans()
    added = {semconv.SAMPLING_REASON, semconv.SAMPLING_ADJUSTED_COUNT}
    kept = {key: value for key, value in attributes(after).items() if key not in added}
    assert json.loads(after.to_json()) | {"attributes": 0} == json.loads(before.to_json()) | {
        "attributes": 0
    }
    assert {key: list(v) if isinstance(v, tuple) else v for key, v in kept.items()} == {
        key: list(v) if isinstance(v, tuple) else v for key, v in attributes(before).items()
    }


def test_an_exporter_in_a_processors_place_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="expected a SpanProcessor; wrap an exporter"):
        McpTraceSpanProcessor(InMemorySpanExporter())  # type: ignore[arg-type]
