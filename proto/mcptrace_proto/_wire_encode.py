"""The records of model.py as OTLP protobuf bytes.

Output is canonical: fields in the order of their numbers, defaults left out, attributes in
the order of the dict.  It is byte for byte what official protobuf writes, except that an
empty Resource, Scope or Status is left out too.  Text that cannot be UTF-8 (lone
surrogates) is written with ``?``: a name must not cost a span.

Raises TooLarge for an integer of more than 64 bits and for values nested deeper than
DEPTH_CEILING, TypeError for a value that is not an AttributeValue.
"""

# ruff: noqa: PLR0912 - one branch a field, in the order of the wire

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mcptrace_proto import _wire_tags as tags
from mcptrace_proto._wire_varint import (
    DOUBLE_STRUCT,
    FIXED32_STRUCT,
    FIXED64_STRUCT,
    UINT32_MASK,
    UINT64_MASK,
    varint,
)
from mcptrace_proto.errors import TooLarge
from mcptrace_proto.limits import DEPTH_CEILING
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

# A tag or a length below 128 is one byte, and nearly all are.
_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def encode_span(span: SpanData) -> bytes:
    """Encode one Span message body."""
    parts: list[bytes] = []
    if span.trace_id:
        parts += delimited(tags.SPAN_TRACE_ID, span.trace_id)
    if span.span_id:
        parts += delimited(tags.SPAN_SPAN_ID, span.span_id)
    if span.trace_state:
        parts += delimited(tags.SPAN_TRACE_STATE, utf8(span.trace_state))
    if span.parent_span_id:
        parts += delimited(tags.SPAN_PARENT_SPAN_ID, span.parent_span_id)
    if span.name:
        parts += delimited(tags.SPAN_NAME, utf8(span.name))
    if span.kind:
        parts += integer(tags.SPAN_KIND, span.kind)
    if span.start_time_unix_nano:
        parts += fixed64(tags.SPAN_START_TIME, span.start_time_unix_nano)
    if span.end_time_unix_nano:
        parts += fixed64(tags.SPAN_END_TIME, span.end_time_unix_nano)
    if span.attributes:
        parts += attribute_parts(tags.SPAN_ATTRIBUTES, span.attributes)
    if span.dropped_attributes_count:
        parts += uint32(tags.SPAN_DROPPED_ATTRIBUTES, span.dropped_attributes_count)
    for event in span.events:
        parts += delimited(tags.SPAN_EVENTS, _event(event))
    if span.dropped_events_count:
        parts += uint32(tags.SPAN_DROPPED_EVENTS, span.dropped_events_count)
    for link in span.links:
        parts += delimited(tags.SPAN_LINKS, _link(link))
    if span.dropped_links_count:
        parts += uint32(tags.SPAN_DROPPED_LINKS, span.dropped_links_count)
    if span.status_code or span.status_message:
        parts += delimited(tags.SPAN_STATUS, _status(span))
    if span.flags:
        parts += fixed32(tags.SPAN_FLAGS, span.flags)
    return b"".join(parts)


def encode_resource(resource: Resource) -> bytes:
    """Encode one Resource message."""
    parts = attribute_parts(tags.RESOURCE_ATTRIBUTES, resource.attributes)
    if resource.dropped_attributes_count:
        parts += uint32(tags.RESOURCE_DROPPED_ATTRIBUTES, resource.dropped_attributes_count)
    return b"".join(parts)


def encode_scope(scope: Scope) -> bytes:
    """Encode one InstrumentationScope message."""
    parts: list[bytes] = []
    if scope.name:
        parts += delimited(tags.SCOPE_NAME, utf8(scope.name))
    if scope.version:
        parts += delimited(tags.SCOPE_VERSION, utf8(scope.version))
    parts += attribute_parts(tags.SCOPE_ATTRIBUTES, scope.attributes)
    if scope.dropped_attributes_count:
        parts += uint32(tags.SCOPE_DROPPED_ATTRIBUTES, scope.dropped_attributes_count)
    return b"".join(parts)


def encode_request(groups: Iterable[ResourceSpans]) -> bytes:
    """Encode one ExportTraceServiceRequest."""
    parts: list[bytes] = []
    for group in groups:
        items = [_scope_spans(scope_spans) for scope_spans in group.scope_spans]
        body = encode_group(encode_resource(group.resource), items, group.schema_url)
        parts += delimited(tags.REQUEST_RESOURCE_SPANS, body)
    return b"".join(parts)


def _scope_spans(group: ScopeSpans) -> bytes:
    spans = [encode_span(span) for span in group.spans]
    return encode_group(encode_scope(group.scope), spans, group.schema_url)


def encode_group(source: bytes, items: Sequence[bytes], schema_url: str) -> bytes:
    """Encode a ResourceSpans or a ScopeSpans, which have the same three fields."""
    parts: list[bytes] = []
    if source:
        parts += delimited(tags.GROUP_SOURCE, source)
    for item in items:
        parts += delimited(tags.GROUP_ITEMS, item)
    if schema_url:
        parts += delimited(tags.GROUP_SCHEMA_URL, utf8(schema_url))
    return b"".join(parts)


def append_attributes(span: bytes, attributes: Attributes) -> bytes:
    """Append attributes to an encoded Span; repeated fields may be appended anywhere."""
    return b"".join((span, *attribute_parts(tags.SPAN_ATTRIBUTES, attributes)))


def _event(event: Event) -> bytes:
    parts: list[bytes] = []
    if event.time_unix_nano:
        parts += fixed64(tags.EVENT_TIME, event.time_unix_nano)
    if event.name:
        parts += delimited(tags.EVENT_NAME, utf8(event.name))
    parts += attribute_parts(tags.EVENT_ATTRIBUTES, event.attributes)
    if event.dropped_attributes_count:
        parts += uint32(tags.EVENT_DROPPED_ATTRIBUTES, event.dropped_attributes_count)
    return b"".join(parts)


def _link(link: Link) -> bytes:
    parts: list[bytes] = []
    if link.trace_id:
        parts += delimited(tags.LINK_TRACE_ID, link.trace_id)
    if link.span_id:
        parts += delimited(tags.LINK_SPAN_ID, link.span_id)
    if link.trace_state:
        parts += delimited(tags.LINK_TRACE_STATE, utf8(link.trace_state))
    parts += attribute_parts(tags.LINK_ATTRIBUTES, link.attributes)
    if link.dropped_attributes_count:
        parts += uint32(tags.LINK_DROPPED_ATTRIBUTES, link.dropped_attributes_count)
    if link.flags:
        parts += fixed32(tags.LINK_FLAGS, link.flags)
    return b"".join(parts)


def _status(span: SpanData) -> bytes:
    parts: list[bytes] = []
    if span.status_message:
        parts += delimited(tags.STATUS_MESSAGE, utf8(span.status_message))
    if span.status_code:
        parts += integer(tags.STATUS_CODE, span.status_code)
    return b"".join(parts)


# --- fields: each returns its parts, ready to be joined ---------------------------------


def size(number: int) -> bytes:
    """A tag or a length as a varint."""
    return _ONE_BYTE[number] if number < 0x80 else varint(number)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def delimited(tag: int, payload: bytes) -> tuple[bytes, ...]:
    return size(tag), size(len(payload)), payload


def integer(tag: int, number: int) -> tuple[bytes, ...]:
    """An int32, int64 or enum; negative numbers take ten bytes."""
    return size(tag), varint(number & UINT64_MASK)


def uint32(tag: int, number: int) -> tuple[bytes, ...]:
    return size(tag), varint(number & UINT32_MASK)


def fixed64(tag: int, number: int) -> tuple[bytes, ...]:
    return size(tag), FIXED64_STRUCT.pack(number & UINT64_MASK)


def fixed32(tag: int, number: int) -> tuple[bytes, ...]:
    return size(tag), FIXED32_STRUCT.pack(number & UINT32_MASK)


# --- attributes -------------------------------------------------------------------------


def attribute_parts(tag: int, attributes: Attributes, depth: int = 1) -> list[bytes]:
    """One KeyValue field per attribute; ``depth`` is that of their values."""
    parts: list[bytes] = []
    for key, value in attributes.items():
        name = utf8(key)
        writer = _WRITERS.get(type(value)) or _writer_of_subclass(value)
        any_value = writer(value, depth)
        key_field = b"\x0a" + size(len(name)) + name if name else b""
        key_value = b"".join((key_field, b"\x12", size(len(any_value)), any_value))
        parts += (size(tag), size(len(key_value)), key_value)
    return parts


def _any_value(value: AttributeValue, depth: int) -> bytes:
    return (_WRITERS.get(type(value)) or _writer_of_subclass(value))(value, depth)


def _write_text(value: str, depth: int) -> bytes:
    text = utf8(value)
    return b"\x0a" + size(len(text)) + text


def _write_bool(value: bool, depth: int) -> bytes:
    return b"\x10\x01" if value else b"\x10\x00"


def _write_int(value: int, depth: int) -> bytes:
    if 0 <= value < 0x80:
        return b"\x18" + _ONE_BYTE[value]
    if not -(1 << 63) <= value < 1 << 63:
        raise TooLarge("bits of an integer value", value.bit_length() + 1, 64)
    return b"\x18" + varint(value & UINT64_MASK)


def _write_double(value: float, depth: int) -> bytes:
    return b"\x21" + DOUBLE_STRUCT.pack(value)


def _write_array(values: Sequence[AttributeValue], depth: int) -> bytes:
    if depth >= DEPTH_CEILING:
        raise TooLarge("nesting depth of a value", depth + 1, DEPTH_CEILING)
    parts: list[bytes] = []
    for value in values:
        parts += delimited(tags.LIST_VALUES, _any_value(value, depth + 1))
    return b"".join(delimited(tags.ANY_ARRAY, b"".join(parts)))


def _write_key_values(values: dict[str, AttributeValue], depth: int) -> bytes:
    if depth >= DEPTH_CEILING:
        raise TooLarge("nesting depth of a value", depth + 1, DEPTH_CEILING)
    parts = attribute_parts(tags.LIST_VALUES, values, depth + 1)
    return b"".join(delimited(tags.ANY_KEY_VALUES, b"".join(parts)))


def _write_bytes(value: bytes, depth: int) -> bytes:
    return b"".join(delimited(tags.ANY_BYTES, value))


def _write_nothing(value: None, depth: int) -> bytes:
    return b""


_WRITERS: dict[type, Callable[..., bytes]] = {
    str: _write_text,
    bool: _write_bool,
    int: _write_int,
    float: _write_double,
    bytes: _write_bytes,
    list: _write_array,
    tuple: _write_array,
    dict: _write_key_values,
    type(None): _write_nothing,
}


def _writer_of_subclass(value: object) -> Callable[..., bytes]:
    """Enums of strings and numbers, numpy's float64 and other children of the plain types."""
    for plain, writer in _WRITERS.items():
        if isinstance(value, plain):
            return writer
    raise TypeError(f"{type(value).__name__} is not an attribute value")
