"""Parts of ours for the stock SDK's TracerProvider: sampler, span processor, exporter.

    sampler = McpTraceSampler()
    provider = TracerProvider(sampler=sampler)
    batch = BatchSpanProcessor(FastOTLPSpanExporter())
    provider.add_span_processor(McpTraceSpanProcessor(batch, sampler))

Each works alone too.  The sampler records every trace and only estimates at the start; the
processor holds the spans of a local trace back until its root ends, decides, and hands the
kept ones on, marked as sampled and with reason and threshold.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace as trace_api
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace import sampling as stock_sampling
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mcptrace.api import ExportOutcome
from mcptrace.config import ConfigError, SdkConfig, load_config
from mcptrace.exporters import HTTP_JSON, build_otlp_exporter
from mcptrace.guard import Counters, guard, warn_rarely
from mcptrace.processor import EXPORTED, count_result
from mcptrace.sampling import Rule, Sampler, Start, TraceEndSampler, View, build_sampler
from mcptrace.stock_records import encode_readable, encode_readable_json, rewritten, span_data
from mcptrace_proto import semconv
from mcptrace_proto.sampling.decision import (
    CRITICAL_REASONS,
    SAMPLED_OUT,
    Decision,
    sampling_attributes,
)
from mcptrace_proto.sampling.threshold import with_threshold
from mcptrace_proto.schema import (
    Enforcement,
    enforce,
    is_inference,
    read_inference,
    violation_attributes,
)

SPANS_HELD_MAX = 16_384
"""Spans held back in all local traces together; beyond, the oldest trace is decided early."""
TRACES_MAX = 16_384
"""Local traces that may be under way; beyond, the oldest is decided early."""
VERDICTS_MAX = 4096
"""Traces whose verdict is remembered for spans that end after their local root."""


class McpTraceSampler(stock_sampling.Sampler):
    """Our sampler for the stock SDK: records every trace, samples consistently at the start.

    ``config`` takes fields of SdkConfig by name (``sampler``, ``target_per_second`` ...);
    what is not given comes from the environment.  Raises ConfigError.
    """

    def __init__(self, **config: Any) -> None:
        self.config = load_config(config)
        self.end_sampler: Sampler = build_sampler(self.config)

    def should_sample(  # noqa: PLR0917 - the stock SDK calls it so
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace_api.SpanKind | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace_api.Link] | None = None,
        trace_state: trace_api.TraceState | None = None,
    ) -> stock_sampling.SamplingResult:
        parent = trace_api.get_current_span(parent_context).get_span_context()
        if parent.is_valid and not parent.is_remote:
            # Inside a local trace its root has spoken: same flag, same tracestate.
            decision = stock_sampling.Decision.RECORD_ONLY
            if parent.trace_flags.sampled:
                decision = stock_sampling.Decision.RECORD_AND_SAMPLE
            return stock_sampling.SamplingResult(decision, None, parent.trace_state)
        head = self.end_sampler.head(
            Start(
                parent_context,
                parent if parent.is_valid else None,
                trace_id,
                name,
                kind or trace_api.SpanKind.INTERNAL,
                attributes,
                links,
            )
        )
        if not head.record:
            decision = stock_sampling.Decision.DROP
        elif head.sampled:
            decision = stock_sampling.Decision.RECORD_AND_SAMPLE
        else:
            decision = stock_sampling.Decision.RECORD_ONLY
        return stock_sampling.SamplingResult(decision, None, head.trace_state)

    def get_description(self) -> str:
        return f"McpTraceSampler{{{self.config.sampler}}}"


@dataclass(slots=True)
class _LocalTrace:
    """The spans of one trace that ended, until as many local roots ended as began."""

    rule: Rule
    roots: int = 0
    ended: list[ReadableSpan] = field(default_factory=list)


class McpTraceSpanProcessor(SpanProcessor):
    """Stamps, decides at the end of the local root, enforces the schema, then hands on.

    Args:
        next_processor: the stock SDK's processor that gets the kept spans.
        sampler: the provider's McpTraceSampler.  None: whatever the provider's sampler
            marked as sampled is kept, and of the rest what was recorded and is critical.
        schema_enforcement: "strict", "warn" or "off".

    Spans not handed on are counted in ``counters``.  Raises ConfigError for what is no processor.
    """

    def __init__(
        self,
        next_processor: SpanProcessor,
        sampler: McpTraceSampler | None = None,
        schema_enforcement: str = "warn",
    ) -> None:
        if not isinstance(next_processor, SpanProcessor):
            raise ConfigError(
                f"next_processor={next_processor!r}: expected a SpanProcessor; "
                "wrap an exporter in a BatchSpanProcessor"
            )
        self._next = next_processor
        self._end_sampler = sampler.end_sampler if sampler is not None else _keeping()
        self._follows_flags = sampler is None
        self._enforcement = Enforcement(schema_enforcement)
        self.counters = Counters()
        self.reset_in_child()
        if hasattr(os, "register_at_fork"):
            _reset_in_children(weakref.ref(self))

    def reset_in_child(self) -> None:
        """The traces begun by the parent are the parent's."""
        self._lock = threading.RLock()
        self._traces: OrderedDict[int, _LocalTrace] = OrderedDict()
        self._verdicts: OrderedDict[int, tuple[Rule, Decision]] = OrderedDict()
        self._spans_held = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        kept: list[ReadableSpan] = []
        with guard("stock on_start", self.counters):
            span.set_attribute(semconv.PROTOCOL_VERSION, semconv.PROTOCOL_VERSION_VALUE)
            context = span.get_span_context()
            assert context is not None
            if _is_local_root(span):
                with self._lock:
                    trace = self._traces.get(context.trace_id)
                    if trace is None:
                        if len(self._traces) >= TRACES_MAX:  # roots that never end
                            self.counters.add("local_trace_decided_early")
                            kept = self._settle(next(iter(self._traces)))
                        trace = self._traces[context.trace_id] = _LocalTrace(self._rule(span))
                    trace.roots += 1
        self._hand_on(kept)
        self._next.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        with guard("stock on_end", self.counters):
            context = span.get_span_context()
            assert context is not None
            kept: list[ReadableSpan] = []
            with self._lock:
                trace = self._traces.get(context.trace_id)
                if trace is None:
                    kept = self._decide_late(context.trace_id, span)
                else:
                    trace.ended.append(span)
                    self._spans_held += 1
                    trace.roots -= _is_local_root(span)
                    if trace.roots <= 0:
                        kept = self._settle(context.trace_id)
                    elif self._spans_held > SPANS_HELD_MAX:
                        kept = self._settle(next(iter(self._traces)))
            self._hand_on(kept)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._next.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """Decide what is held and shut the next processor down."""
        with guard("stock shutdown", self.counters):
            while True:
                with self._lock:
                    if not self._traces:
                        break
                    kept = self._settle(next(iter(self._traces)))
                self._hand_on(kept)
        self._next.shutdown()

    def _hand_on(self, spans: Sequence[ReadableSpan]) -> None:
        for span in spans:
            self._next.on_end(span)

    def _rule(self, root: Span) -> Rule:
        """What the end comes to for a trace that is not critical (see sampling.Rule)."""
        context, parent = root.get_span_context(), root.parent
        assert context is not None
        if self._follows_flags:
            return Rule.KEEP if context.trace_flags.sampled else Rule.CRITICAL_ONLY
        if parent is not None:
            return Rule.PARENT if parent.trace_flags.sampled else Rule.CRITICAL_ONLY
        return Rule.PROBABILITY

    def _settle(self, trace_id: int) -> list[ReadableSpan]:
        """Decide a trace; returns its kept spans, marked.  Spans that follow are late."""
        trace = self._traces.pop(trace_id)
        self._spans_held -= len(trace.ended)
        if not trace.ended:
            return []
        views = _views(trace.ended)
        verdict = self._decide(trace_id, trace.rule, views)
        self._verdicts[trace_id] = (trace.rule, verdict)
        if len(self._verdicts) > VERDICTS_MAX:
            self._verdicts.popitem(last=False)
        return self._kept(trace.ended, views, verdict)

    def _decide_late(self, trace_id: int, span: ReadableSpan) -> list[ReadableSpan]:
        """Follow the trace's verdict, unless it was no and this span alone is critical."""
        rule, verdict = self._verdicts.get(trace_id, (Rule.CRITICAL_ONLY, None))
        views = _views([span])
        if verdict is None or not verdict.keep:
            alone = self._decide(trace_id, rule, views)
            if verdict is None or alone.reason in CRITICAL_REASONS:
                verdict = alone
        return self._kept([span], views, verdict)

    def _decide(self, trace_id: int, rule: Rule, views: Sequence[View]) -> Decision:
        state = views[0][0].trace_state
        return self._end_sampler.decide(
            rule, trace_id.to_bytes(16, "big"), state, views, time.monotonic()
        )

    def _kept(
        self, spans: Sequence[ReadableSpan], views: Sequence[View], verdict: Decision
    ) -> list[ReadableSpan]:
        """The spans that go on, with what is to be written on them."""
        if not verdict.keep:
            self.counters.add(SAMPLED_OUT, len(spans))
            return []
        kept = []
        for span, (data, view) in zip(spans, views, strict=True):
            found = enforce(self._enforcement, data, view)
            if found.violations:
                self.counters.add("schema_violation")
                if not found.export:
                    self.counters.add("schema_refused")
                    warn_rarely("mcptrace: span %r refused: %s", data.name, found.violations)
                    continue
                data.attributes.update(violation_attributes(found, data.attributes))
            data.attributes.update(sampling_attributes(verdict))
            state = with_threshold(data.trace_state, verdict.threshold)
            kept.append(rewritten(span, data.attributes, state))
        return kept


class FastOTLPSpanExporter(SpanExporter):
    """The OTLP exporter for the stock SDK, with our encoder and send path.

    Arguments are those of SdkConfig; what is not given comes from the OTEL_EXPORTER_OTLP_*
    variables.  Counts of spans are in ``counters``.  Raises ConfigError.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        protocol: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        compression: str | None = None,
        **config: Any,
    ) -> None:
        settings = load_config(
            {
                "endpoint": endpoint,
                "protocol": protocol,
                "headers": headers,
                "timeout_seconds": timeout_seconds,
                "compression": compression,
                **config,
            }
        )
        self.counters = Counters()
        self._deadline_seconds = settings.export_timeout_seconds
        self._exporter = _readable_exporter(settings)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """FAILURE only when no span of the batch was taken; partial losses are counted."""
        before = self.counters.snapshot().get(EXPORTED, 0)
        result = self._exporter.export(spans, self._deadline_seconds)
        count_result(self.counters, result, len(spans))
        taken = self.counters.snapshot().get(EXPORTED, 0) > before
        whole = result.outcome is ExportOutcome.DELIVERED and not result.dropped
        return SpanExportResult.SUCCESS if taken or whole else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held here."""
        return True


def _readable_exporter(config: SdkConfig) -> Any:
    return build_otlp_exporter(
        config.protocol,
        config.endpoint,
        headers=config.headers,
        timeout_seconds=config.timeout_seconds,
        compression=config.compression,
        certificate=config.certificate,
        client_key=config.client_key,
        client_certificate=config.client_certificate,
        insecure=config.insecure,
        request_bytes_max=config.request_bytes_max,
        encode=encode_readable_json if config.protocol == HTTP_JSON else encode_readable,
    )


def _views(spans: Sequence[ReadableSpan]) -> list[View]:
    views: list[View] = []
    for span in spans:
        data = span_data(span)
        inference = is_inference(data.attributes)
        views.append((data, read_inference(data.attributes) if inference else None))
    return views


def _is_local_root(span: ReadableSpan) -> bool:
    return span.parent is None or span.parent.is_remote


def _keeping() -> Sampler:
    """Knows what is critical; the rules KEEP and CRITICAL_ONLY do the rest."""
    from mcptrace_proto.sampling.verdict import SamplingSettings

    return TraceEndSampler(SamplingSettings())


def _reset_in_children(processor: weakref.ref[McpTraceSpanProcessor]) -> None:
    """Reset a processor in every child that is forked while it lives."""

    def reset() -> None:
        alive = processor()
        if alive is not None:
            alive.reset_in_child()

    os.register_at_fork(after_in_child=reset)
