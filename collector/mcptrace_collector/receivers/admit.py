"""Which spans of a request are let in, and which are refused one by one.

Pure: the same bytes always give the same records in the same order, with the same ordinals.
The journal relies on it: after a crash a request is admitted again from its bytes, and a
span is known by its ordinal.

    malformed bytes, too many spans        the request is refused
    ids that are no ids, one span too big  that span is refused (partial success)

What is let in decodes everywhere: spans leave in batches with those of others, and a peer
that cannot read one of them would refuse the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcptrace_collector.errors import BadRequest, RequestTooLarge
from mcptrace_collector.pipeline import Admitted, Origin, SpanRecord
from mcptrace_proto import wire
from mcptrace_proto.errors import DecodeError, TooLarge
from mcptrace_proto.json import decode_request_json
from mcptrace_proto.limits import DEFAULT_LIMITS, Limits
from mcptrace_proto.model import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Attributes,
    AttributeValue,
    RawSpans,
    SpanData,
)

# An empty event takes two bytes on the wire and a hundred times that when decoded, so that a
# bound on bytes alone would not bound memory.  Requests as people send them have some
# twenty items in a span and reach this at 60 MiB.
REQUEST_ITEMS_MAX = 2_000_000


def admit(body: bytes, limits: Limits = DEFAULT_LIMITS) -> Admitted:
    """Admit an ExportTraceServiceRequest in protobuf.

    ``Origin.ordinal`` counts the spans let in, from 0.  ``message`` names the first cause of
    a refusal.  Raises BadRequest or RequestTooLarge.
    """
    try:
        return _admit(body, wire.split_request(body, limits), limits)
    except DecodeError as error:
        raise BadRequest(f"the request is not OTLP protobuf: {error}") from error
    except TooLarge as error:
        raise RequestTooLarge(f"in the request, {error}") from error


def admit_json(body: bytes, limits: Limits = DEFAULT_LIMITS) -> Admitted:
    """Admit an ExportTraceServiceRequest in OTLP/JSON, by way of protobuf.

    ``Admitted.body`` is that protobuf.  Raises BadRequest or RequestTooLarge.
    """
    try:
        protobuf = wire.encode_request(decode_request_json(body, limits))
    except DecodeError as error:
        raise BadRequest(f"the request is not OTLP/JSON: {error}") from error
    except TooLarge as error:
        raise RequestTooLarge(f"in the request, {error}") from error
    return admit(protobuf, limits)


def _admit(body: bytes, groups: list[RawSpans], limits: Limits) -> Admitted:
    admitted = Admitted(body, [])
    items = 0
    resources: dict[bytes, Attributes] = {}
    scopes: set[bytes] = set()
    for group in groups:
        source = group.source
        if source.resource not in resources:
            resource = wire.decode_resource(source.resource, limits)
            resources[source.resource] = resource.attributes
        if source.scope not in scopes:
            wire.decode_scope(source.scope, limits)
            scopes.add(source.scope)
        for raw in group.spans:
            try:
                data = wire.decode_span(raw, limits)
                cause = _cause(data)
            except TooLarge as error:
                cause = f"the {error}"
            else:
                items += _items(data)
                if items > REQUEST_ITEMS_MAX:
                    raise TooLarge("number of items in the spans", items, REQUEST_ITEMS_MAX)
            if cause:
                admitted.rejected += 1
                admitted.message = admitted.message or f"span refused: {cause}"
                continue
            origin = Origin(0, len(admitted.records))
            record = SpanRecord(raw, data, source, resources[source.resource], origin)
            admitted.records.append(record)
    return admitted


def _cause(span: SpanData) -> str:
    """Why a span's ids keep it out; empty when they do not (OTLP trace.proto, Span)."""
    checks = [
        _wrong_id("trace_id", span.trace_id, TRACE_ID_BYTES),
        _wrong_id("span_id", span.span_id, SPAN_ID_BYTES),
        _wrong_length("parent_span_id", span.parent_span_id, SPAN_ID_BYTES),
    ]
    for link in span.links:
        checks.append(_wrong_length("a link's trace_id", link.trace_id, TRACE_ID_BYTES))
        checks.append(_wrong_length("a link's span_id", link.span_id, SPAN_ID_BYTES))
    return next((cause for cause in checks if cause), "")


def _wrong_id(name: str, value: bytes, length: int) -> str:
    if len(value) == length:
        return "" if any(value) else f"{name} is all zeros"
    return f"{name} has {len(value)} bytes, not {length}"


def _wrong_length(name: str, value: bytes, length: int) -> str:
    """An id that may be left out."""
    return f"{name} has {len(value)} bytes, not {length}" if len(value) not in (0, length) else ""


def _items(span: SpanData) -> int:
    """Attributes, events, links and the values nested in them: what costs memory by itself."""
    items = len(span.attributes) + _nested(span.attributes)
    owned = [event.attributes for event in span.events] + [link.attributes for link in span.links]
    for attributes in owned:
        items += 1 + len(attributes) + _nested(attributes)
    return items


def _nested(values: Mapping[str, AttributeValue]) -> int:
    items = 0
    open_values = [value for value in values.values() if isinstance(value, list | dict)]
    while open_values:
        value = open_values.pop()
        items += len(value)
        inner = value.values() if isinstance(value, dict) else value
        open_values += [each for each in inner if isinstance(each, list | dict)]
    return items
