"""The records of model.py as OTLP/JSON.

Output is compact UTF-8: ids in lower-case hex, 64-bit integers as strings, enums as
numbers, defaults left out.  Text with lone surrogates is written with ``?``, as on the
protobuf wire.  Raises what _wire_encode.py raises, for the same values.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import TypeAlias

from mcptrace_proto._wire_encode import utf8
from mcptrace_proto._wire_rpc import RETRY_INFO_URL, split_duration
from mcptrace_proto._wire_varint import UINT32_MASK, UINT64_MASK
from mcptrace_proto.errors import TooLarge
from mcptrace_proto.limits import DEPTH_CEILING
from mcptrace_proto.model import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    ResourceSpans,
    ScopeSpans,
    SpanData,
)

Object: TypeAlias = "dict[str, object]"


def encode_request_json(groups: Iterable[ResourceSpans]) -> bytes:
    """Encode one ExportTraceServiceRequest in OTLP/JSON."""
    return _dump(_present({"resourceSpans": [_resource_spans(group) for group in groups]}))


def encode_response_json(rejected_spans: int = 0, error_message: str = "") -> bytes:
    """Encode an ExportTraceServiceResponse; full success is the empty object."""
    partial = _present({"rejectedSpans": _decimal(rejected_spans), "errorMessage": error_message})
    return _dump(_present({"partialSuccess": partial}))


def encode_status_json(code: int, message: str, retry_after_seconds: float | None = None) -> bytes:
    """Encode a google.rpc.Status, with RetryInfo when ``retry_after_seconds`` is given."""
    details: list[Object] = []
    if retry_after_seconds is not None:
        seconds, nanos = split_duration(retry_after_seconds)
        delay = f"{seconds}.{nanos:09d}s" if nanos else f"{seconds}s"
        details.append({"@type": RETRY_INFO_URL, "retryDelay": delay})
    return _dump(_present({"code": code, "message": message, "details": details}))


def _dump(value: Object) -> bytes:
    return utf8(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _present(fields: Object) -> Object:
    """Leave out what is at its default: zero, empty text, no items."""
    return {name: value for name, value in fields.items() if value}


def _decimal(number: int) -> str:
    """A 64-bit integer; zero, the default, is empty."""
    return str(number) if number else ""


def _resource_spans(group: ResourceSpans) -> Object:
    resource = _present(
        {
            "attributes": _key_values(group.resource.attributes),
            "droppedAttributesCount": group.resource.dropped_attributes_count & UINT32_MASK,
        }
    )
    return _present(
        {
            "resource": resource,
            "scopeSpans": [_scope_spans(scope_spans) for scope_spans in group.scope_spans],
            "schemaUrl": group.schema_url,
        }
    )


def _scope_spans(group: ScopeSpans) -> Object:
    scope = _present(
        {
            "name": group.scope.name,
            "version": group.scope.version,
            "attributes": _key_values(group.scope.attributes),
            "droppedAttributesCount": group.scope.dropped_attributes_count & UINT32_MASK,
        }
    )
    return _present(
        {
            "scope": scope,
            "spans": [_span(span) for span in group.spans],
            "schemaUrl": group.schema_url,
        }
    )


def _span(span: SpanData) -> Object:
    return _present(
        {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "traceState": span.trace_state,
            "parentSpanId": span.parent_span_id.hex(),
            "flags": span.flags & UINT32_MASK,
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": _decimal(span.start_time_unix_nano & UINT64_MASK),
            "endTimeUnixNano": _decimal(span.end_time_unix_nano & UINT64_MASK),
            "attributes": _key_values(span.attributes),
            "droppedAttributesCount": span.dropped_attributes_count & UINT32_MASK,
            "events": [_event(event) for event in span.events],
            "droppedEventsCount": span.dropped_events_count & UINT32_MASK,
            "links": [_link(link) for link in span.links],
            "droppedLinksCount": span.dropped_links_count & UINT32_MASK,
            "status": _present({"message": span.status_message, "code": span.status_code}),
        }
    )


def _event(event: Event) -> Object:
    return _present(
        {
            "timeUnixNano": _decimal(event.time_unix_nano & UINT64_MASK),
            "name": event.name,
            "attributes": _key_values(event.attributes),
            "droppedAttributesCount": event.dropped_attributes_count & UINT32_MASK,
        }
    )


def _link(link: Link) -> Object:
    return _present(
        {
            "traceId": link.trace_id.hex(),
            "spanId": link.span_id.hex(),
            "traceState": link.trace_state,
            "attributes": _key_values(link.attributes),
            "droppedAttributesCount": link.dropped_attributes_count & UINT32_MASK,
            "flags": link.flags & UINT32_MASK,
        }
    )


def _key_values(attributes: Attributes, depth: int = 1) -> list[Object]:
    return [{"key": key, "value": _any_value(value, depth)} for key, value in attributes.items()]


def _any_value(value: AttributeValue, depth: int) -> Object:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise TooLarge("bits of an integer value", value.bit_length() + 1, 64)
        return {"intValue": str(int(value))}
    if isinstance(value, float):
        return {"doubleValue": _double(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    return {} if value is None else _container(value, depth)


def _container(value: list[AttributeValue] | dict[str, AttributeValue], depth: int) -> Object:
    if depth >= DEPTH_CEILING:
        raise TooLarge("nesting depth of a value", depth + 1, DEPTH_CEILING)
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _key_values(value, depth + 1)}}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_any_value(item, depth + 1) for item in value]}}
    raise TypeError(f"{type(value).__name__} is not an attribute value")


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
