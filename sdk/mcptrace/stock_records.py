"""The stock SDK's finished spans as our records, and as OTLP bytes.

Knows ``opentelemetry.sdk`` (see readable.py for the other direction).  Private to stock.py.
What the stock encoder leaves out and OTLP has a field for is written as well: the W3C flags
of a span, and the tracestate of a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from mcptrace_proto.json import encode_request_json
from mcptrace_proto.model import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanData,
)
from mcptrace_proto.wire import encode_request

FLAG_HAS_IS_REMOTE = 0x100
FLAG_IS_REMOTE = 0x200


def encode_readable(spans: Sequence[ReadableSpan]) -> bytes:
    """An ExportTraceServiceRequest in protobuf."""
    return encode_request(grouped(spans))


def encode_readable_json(spans: Sequence[ReadableSpan]) -> bytes:
    """An ExportTraceServiceRequest in OTLP/JSON."""
    return encode_request_json(grouped(spans))


def grouped(spans: Sequence[ReadableSpan]) -> list[ResourceSpans]:
    """Spans by resource and scope, each in order of first appearance.

    Told apart by identity, as a provider has one resource and a tracer one scope.
    """
    resources: dict[int, ResourceSpans] = {}
    scopes: dict[tuple[int, int], ScopeSpans] = {}
    for span in spans:
        scope = span.instrumentation_scope
        key = (id(span.resource), id(scope))
        scope_spans = scopes.get(key)
        if scope_spans is None:
            group = resources.get(key[0])
            if group is None:
                attributes = _attributes(span.resource.attributes)
                group = ResourceSpans(Resource(attributes), [], span.resource.schema_url or "")
                resources[key[0]] = group
            scope_spans = ScopeSpans()
            if scope is not None:
                scope_spans.scope = Scope(
                    scope.name, scope.version or "", _attributes(scope.attributes)
                )
                scope_spans.schema_url = scope.schema_url or ""
            scopes[key] = scope_spans
            group.scope_spans.append(scope_spans)
        scope_spans.spans.append(span_data(span))
    return list(resources.values())


def span_data(span: ReadableSpan) -> SpanData:
    """One finished span as a record; nothing is shared with it that may change."""
    context, parent = span.get_span_context(), span.parent
    assert context is not None  # a span that was started has one
    return SpanData(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        parent_span_id=parent.span_id.to_bytes(8, "big") if parent is not None else b"",
        name=span.name,
        kind=span.kind.value + 1,
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        attributes=_attributes(span._attributes),
        events=[
            Event(
                event.timestamp,
                event.name,
                _attributes(event.attributes),
                event.dropped_attributes,
            )
            for event in span.events
        ],
        links=[
            Link(
                link.context.trace_id.to_bytes(16, "big"),
                link.context.span_id.to_bytes(8, "big"),
                _header(link.context.trace_state),
                _attributes(link.attributes),
                link.dropped_attributes,
                _flags(link.context.trace_flags, link.context),
            )
            for link in span.links
        ],
        status_code=span.status.status_code.value,
        status_message=span.status.description or "",
        trace_state=_header(context.trace_state),
        flags=_flags(context.trace_flags, parent),
        dropped_attributes_count=span.dropped_attributes,
        dropped_events_count=span.dropped_events,
        dropped_links_count=span.dropped_links,
    )


def rewritten(span: ReadableSpan, attributes: Attributes, trace_state: str) -> ReadableSpan:
    """A sampled copy with other ``attributes`` and ``trace_state``; all else is the same."""
    before = span.get_span_context()
    assert before is not None
    context = SpanContext(
        before.trace_id,
        before.span_id,
        before.is_remote,
        TraceFlags(before.trace_flags | TraceFlags.SAMPLED),
        TraceState.from_header([trace_state]) if trace_state else TraceState(),
    )
    # Not cleaned again: these values come from a span, and its limits were applied there.
    bounded = BoundedAttributes()
    bounded._dict = dict(attributes)
    bounded.dropped = span.dropped_attributes
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=span.parent,
        resource=span.resource,
        attributes=bounded,
        # The live sequences: they also count what was dropped.
        events=span._events,
        links=span._links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _attributes(attributes: Mapping[str, Any] | None) -> Attributes:
    if not attributes:
        return {}
    # BoundedAttributes looks every key up through Python; the dict behind it does not.
    plain = getattr(attributes, "_dict", attributes)
    return {key: _value(value) for key, value in plain.items()}


def _value(value: Any) -> AttributeValue:
    if isinstance(value, tuple | list):
        return [_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    return value  # type: ignore[no-any-return]


def _header(state: TraceState | None) -> str:
    return state.to_header() if state else ""


def _flags(own: TraceFlags, remote: SpanContext | None) -> int:
    is_remote = remote is not None and remote.is_remote
    return int(own) & 0xFF | FLAG_HAS_IS_REMOTE | (FLAG_IS_REMOTE if is_remote else 0)
