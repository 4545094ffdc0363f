"""Processors and exporters written for the stock SDK, on our spans.

With stock.py the only place that imports ``opentelemetry.sdk``, and only once somebody
brought an object of its classes.  A ReadableSpan is built from the finished record, so that
stock parts see what is exported: with the sampled flag, the reason and the threshold.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan
from mcptrace_proto import model

FLAG_IS_REMOTE = 0x200
KINDS = {kind.value + 1: kind for kind in SpanKind}


class Bounded:
    """Runs what takes no timeout on a daemon thread, and waits only so long for it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def call(self, function: Callable[[], Any], timeout_seconds: float) -> Any:
        """The function's result, or False when it did not return in time or raised."""
        results: list[Any] = []
        thread = threading.Thread(
            target=lambda: results.append(function()), name=f"mcptrace-{self._what}", daemon=True
        )
        thread.start()
        thread.join(timeout_seconds)
        return results[0] if results else False


class ProcessorAdapter:
    """A stock SpanProcessor as one of ours."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        # Typed for the stock span class; ours has everything that is read from it.
        self._processor.on_start(span, parent_context)  # type: ignore[arg-type]

    def on_end(self, span: FinishedSpan) -> None:
        self._processor.on_end(readable(span))

    def force_flush(self, timeout_seconds: float) -> bool:
        millis = int(timeout_seconds * 1000)
        result = Bounded("flush").call(lambda: self._processor.force_flush(millis), timeout_seconds)
        return result is not False

    def shutdown(self, timeout_seconds: float) -> None:
        Bounded("shutdown").call(self._processor.shutdown, timeout_seconds)


class ExporterAdapter:
    """A stock SpanExporter as one of ours; it has no deadline of its own."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        began = time.monotonic()
        outcome = self._exporter.export([readable(span) for span in spans])
        if outcome is SpanExportResult.SUCCESS:
            return ExportResult(ExportOutcome.DELIVERED)
        late = time.monotonic() - began >= deadline_seconds
        kind = ExportOutcome.EXHAUSTED if late else ExportOutcome.REJECTED
        return ExportResult(kind, message=type(self._exporter).__name__ + " failed")

    def shutdown(self) -> None:
        self._exporter.shutdown()


def readable(span: FinishedSpan) -> ReadableSpan:
    """The stock SDK's view of a finished span."""
    data = span.data
    flags, state = TraceFlags(data.flags & 0xFF), _trace_state(data.trace_state)
    trace_id = int.from_bytes(data.trace_id, "big")
    parent = None
    if data.parent_span_id:
        parent = SpanContext(
            trace_id,
            int.from_bytes(data.parent_span_id, "big"),
            bool(data.flags & FLAG_IS_REMOTE),
            flags,
            state,
        )
    return ReadableSpan(
        name=data.name,
        context=SpanContext(trace_id, int.from_bytes(data.span_id, "big"), False, flags, state),
        parent=parent,
        resource=_resource(span.resource),
        attributes=_bounded(data.attributes, data.dropped_attributes_count),
        events=_bounded_list([_event(event) for event in data.events], data.dropped_events_count),
        links=_bounded_list([_link(link) for link in data.links], data.dropped_links_count),
        kind=KINDS.get(data.kind, SpanKind.INTERNAL),
        status=_status(data),
        start_time=data.start_time_unix_nano,
        end_time=data.end_time_unix_nano,
        instrumentation_scope=InstrumentationScope(
            span.scope.name,
            span.scope.version,
            span.schema_url or None,
            _frozen(span.scope.attributes),
        ),
    )


def _status(data: model.SpanData) -> Status:
    code = StatusCode(data.status_code)
    return Status(code, data.status_message or None) if code is StatusCode.ERROR else Status(code)


def _link(link: model.Link) -> Link:
    context = SpanContext(
        int.from_bytes(link.trace_id, "big"),
        int.from_bytes(link.span_id, "big"),
        bool(link.flags & FLAG_IS_REMOTE),
        TraceFlags(link.flags & 0xFF),
        _trace_state(link.trace_state),
    )
    return Link(context, _bounded(link.attributes, link.dropped_attributes_count))


def _event(event: model.Event) -> Event:
    attributes = _bounded(event.attributes, event.dropped_attributes_count)
    return Event(event.name, attributes, event.time_unix_nano)


def _bounded(attributes: model.Attributes, dropped: int) -> Mapping[str, Any]:
    """Attributes as stock parts read them: how many were dropped is on the mapping."""
    frozen = _frozen(attributes)
    if not dropped:
        return frozen
    bounded = BoundedAttributes()
    bounded._dict = frozen  # as it is: the limits were applied when it was set
    bounded.dropped = dropped
    return bounded


def _bounded_list(items: list[Any], dropped: int) -> Sequence[Any]:
    if not dropped:
        return items
    bounded: Any = BoundedList.from_seq(len(items), items)
    bounded.dropped = dropped
    return bounded  # type: ignore[no-any-return]


def _resource(resource: model.Resource) -> Resource:
    return Resource(_frozen(resource.attributes))


def _trace_state(text: str) -> TraceState:
    return TraceState.from_header([text]) if text else TraceState()


def _frozen(attributes: model.Attributes) -> dict[str, Any]:
    """Lists as tuples: the stock SDK hashes resources and scopes."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
    }
