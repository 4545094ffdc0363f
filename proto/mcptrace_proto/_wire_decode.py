"""OTLP trace messages from protobuf bytes to the records of model.py.

Positions are absolute in the buffer that was handed in.  Fields may come in any order and
more than once, as protobuf demands: the last scalar wins, a repeated Status, Resource,
Scope or value is merged into the first.  Unknown fields are stepped over.  An id of a
wrong length is no fault of the wire; it is returned as it stands.
"""

# ruff: noqa: PLR0912, PLR0917 - a reader is (record, bytes, from, to, limits), a branch a field

from __future__ import annotations

from mcptrace_proto import _wire_tags as tags
from mcptrace_proto._wire_varint import (
    read_bytes,
    read_delimited,
    read_double,
    read_fixed32,
    read_fixed64,
    read_int32,
    read_int64,
    read_tag,
    read_text,
    read_uint32,
    read_varint,
    skip,
)
from mcptrace_proto.errors import TooLarge
from mcptrace_proto.limits import DEFAULT_LIMITS, Counter, Limits
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


def decode_span(span: bytes, limits: Limits = DEFAULT_LIMITS) -> SpanData:
    """Decode one Span message (its body, without an outer tag)."""
    return _read_span(span, 0, len(span), limits)


def decode_resource(resource: bytes, limits: Limits = DEFAULT_LIMITS) -> Resource:
    """Decode one Resource message; entity_refs are not part of the record."""
    record = Resource()
    _read_resource(record, resource, 0, len(resource), limits)
    return record


def decode_scope(scope: bytes, limits: Limits = DEFAULT_LIMITS) -> Scope:
    """Decode one InstrumentationScope message."""
    record = Scope()
    _read_scope(record, scope, 0, len(scope), limits)
    return record


def decode_request(body: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ResourceSpans]:
    """Decode one ExportTraceServiceRequest."""
    groups: list[ResourceSpans] = []
    counter = Counter(limits)
    pos, end = 0, len(body)
    while pos < end:
        tag, pos = read_tag(body, pos, end)
        if tag == tags.REQUEST_RESOURCE_SPANS:
            start, pos = read_delimited(body, pos, end)
            counter.group()
            groups.append(_read_resource_spans(body, start, pos, counter))
        else:
            pos = skip(body, tag, pos, end)
    return groups


def _read_resource_spans(buf: bytes, pos: int, end: int, counter: Counter) -> ResourceSpans:
    group = ResourceSpans()
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.GROUP_ITEMS:
            start, pos = read_delimited(buf, pos, end)
            counter.group()
            group.scope_spans.append(_read_scope_spans(buf, start, pos, counter))
        elif tag == tags.GROUP_SOURCE:
            start, pos = read_delimited(buf, pos, end)
            _read_resource(group.resource, buf, start, pos, counter.limits)
        elif tag == tags.GROUP_SCHEMA_URL:
            group.schema_url, pos = read_text(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)
    return group


def _read_scope_spans(buf: bytes, pos: int, end: int, counter: Counter) -> ScopeSpans:
    group = ScopeSpans()
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.GROUP_ITEMS:
            start, pos = read_delimited(buf, pos, end)
            counter.span()
            group.spans.append(_read_span(buf, start, pos, counter.limits))
        elif tag == tags.GROUP_SOURCE:
            start, pos = read_delimited(buf, pos, end)
            _read_scope(group.scope, buf, start, pos, counter.limits)
        elif tag == tags.GROUP_SCHEMA_URL:
            group.schema_url, pos = read_text(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)
    return group


def _read_resource(record: Resource, buf: bytes, pos: int, end: int, limits: Limits) -> None:
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.RESOURCE_ATTRIBUTES:
            pos = _read_attribute(record.attributes, buf, pos, end, limits)
        elif tag == tags.RESOURCE_DROPPED_ATTRIBUTES:
            record.dropped_attributes_count, pos = read_uint32(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)


def _read_scope(record: Scope, buf: bytes, pos: int, end: int, limits: Limits) -> None:
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.SCOPE_NAME:
            record.name, pos = read_text(buf, pos, end)
        elif tag == tags.SCOPE_VERSION:
            record.version, pos = read_text(buf, pos, end)
        elif tag == tags.SCOPE_ATTRIBUTES:
            pos = _read_attribute(record.attributes, buf, pos, end, limits)
        elif tag == tags.SCOPE_DROPPED_ATTRIBUTES:
            record.dropped_attributes_count, pos = read_uint32(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)


def _read_span(buf: bytes, pos: int, end: int, limits: Limits) -> SpanData:
    span = SpanData()
    attributes = span.attributes
    while pos < end:
        # Most tags are one byte with a field number above zero; the rest go the long way.
        tag = buf[pos]
        if 8 <= tag < 0x80:
            pos += 1
        else:
            tag, pos = read_tag(buf, pos, end)
        if tag == tags.SPAN_ATTRIBUTES:
            pos = _read_attribute(attributes, buf, pos, end, limits)
        elif tag == tags.SPAN_TRACE_ID:
            span.trace_id, pos = read_bytes(buf, pos, end)
        elif tag == tags.SPAN_SPAN_ID:
            span.span_id, pos = read_bytes(buf, pos, end)
        elif tag == tags.SPAN_PARENT_SPAN_ID:
            span.parent_span_id, pos = read_bytes(buf, pos, end)
        elif tag == tags.SPAN_NAME:
            span.name, pos = read_text(buf, pos, end)
        elif tag == tags.SPAN_KIND:
            span.kind, pos = read_int32(buf, pos, end)
        elif tag == tags.SPAN_START_TIME:
            span.start_time_unix_nano, pos = read_fixed64(buf, pos, end)
        elif tag == tags.SPAN_END_TIME:
            span.end_time_unix_nano, pos = read_fixed64(buf, pos, end)
        else:
            pos = _read_rare_span_field(span, tag, buf, pos, end, limits)
    return span


def _read_rare_span_field(
    span: SpanData, tag: int, buf: bytes, pos: int, end: int, limits: Limits
) -> int:
    if tag == tags.SPAN_FLAGS:
        span.flags, pos = read_fixed32(buf, pos, end)
    elif tag == tags.SPAN_STATUS:
        start, pos = read_delimited(buf, pos, end)
        _read_status(span, buf, start, pos)
    elif tag == tags.SPAN_EVENTS:
        start, pos = read_delimited(buf, pos, end)
        if len(span.events) >= limits.max_events:
            raise TooLarge("number of events", len(span.events) + 1, limits.max_events)
        span.events.append(_read_event(buf, start, pos, limits))
    elif tag == tags.SPAN_LINKS:
        start, pos = read_delimited(buf, pos, end)
        if len(span.links) >= limits.max_links:
            raise TooLarge("number of links", len(span.links) + 1, limits.max_links)
        span.links.append(_read_link(buf, start, pos, limits))
    elif tag == tags.SPAN_TRACE_STATE:
        span.trace_state, pos = read_text(buf, pos, end)
    elif tag == tags.SPAN_DROPPED_ATTRIBUTES:
        span.dropped_attributes_count, pos = read_uint32(buf, pos, end)
    elif tag == tags.SPAN_DROPPED_EVENTS:
        span.dropped_events_count, pos = read_uint32(buf, pos, end)
    elif tag == tags.SPAN_DROPPED_LINKS:
        span.dropped_links_count, pos = read_uint32(buf, pos, end)
    else:
        pos = skip(buf, tag, pos, end)
    return pos


def _read_status(span: SpanData, buf: bytes, pos: int, end: int) -> None:
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.STATUS_CODE:
            span.status_code, pos = read_int32(buf, pos, end)
        elif tag == tags.STATUS_MESSAGE:
            span.status_message, pos = read_text(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)


def _read_event(buf: bytes, pos: int, end: int, limits: Limits) -> Event:
    event = Event()
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.EVENT_TIME:
            event.time_unix_nano, pos = read_fixed64(buf, pos, end)
        elif tag == tags.EVENT_NAME:
            event.name, pos = read_text(buf, pos, end)
        elif tag == tags.EVENT_ATTRIBUTES:
            pos = _read_attribute(event.attributes, buf, pos, end, limits)
        elif tag == tags.EVENT_DROPPED_ATTRIBUTES:
            event.dropped_attributes_count, pos = read_uint32(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)
    return event


def _read_link(buf: bytes, pos: int, end: int, limits: Limits) -> Link:
    link = Link()
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.LINK_TRACE_ID:
            link.trace_id, pos = read_bytes(buf, pos, end)
        elif tag == tags.LINK_SPAN_ID:
            link.span_id, pos = read_bytes(buf, pos, end)
        elif tag == tags.LINK_TRACE_STATE:
            link.trace_state, pos = read_text(buf, pos, end)
        elif tag == tags.LINK_ATTRIBUTES:
            pos = _read_attribute(link.attributes, buf, pos, end, limits)
        elif tag == tags.LINK_DROPPED_ATTRIBUTES:
            link.dropped_attributes_count, pos = read_uint32(buf, pos, end)
        elif tag == tags.LINK_FLAGS:
            link.flags, pos = read_fixed32(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)
    return link


def _read_attribute(
    attributes: Attributes, buf: bytes, pos: int, end: int, limits: Limits, depth: int = 1
) -> int:
    """Read one length and KeyValue into ``attributes``; ``depth`` is that of its value."""
    pos, stop = read_delimited(buf, pos, end)
    key = ""
    value: AttributeValue = None
    while pos < stop:
        tag = buf[pos]
        if 8 <= tag < 0x80:
            pos += 1
        else:
            tag, pos = read_tag(buf, pos, stop)
        if tag == tags.KEY_VALUE_KEY:
            key, pos = read_text(buf, pos, stop)
        elif tag == tags.KEY_VALUE_VALUE:
            start, pos = read_delimited(buf, pos, stop)
            value = _read_value(value, buf, start, pos, limits, depth)
        else:
            pos = skip(buf, tag, pos, stop)
    attributes[key] = value
    if len(attributes) > limits.max_attributes:
        raise TooLarge("number of attributes", len(attributes), limits.max_attributes)
    return stop


def _read_value(
    value: AttributeValue, buf: bytes, pos: int, end: int, limits: Limits, depth: int
) -> AttributeValue:
    """Read one AnyValue on top of ``value``, what an earlier part of the same message set."""
    if depth > limits.max_depth:
        raise TooLarge("nesting depth of a value", depth, limits.max_depth)
    while pos < end:
        tag = buf[pos]
        if 8 <= tag < 0x80:
            pos += 1
        else:
            tag, pos = read_tag(buf, pos, end)
        if tag == tags.ANY_STRING:
            value, pos = read_text(buf, pos, end)
        elif tag == tags.ANY_INT:
            value, pos = read_int64(buf, pos, end)
        elif tag == tags.ANY_DOUBLE:
            value, pos = read_double(buf, pos, end)
        elif tag == tags.ANY_BOOL:
            number, pos = read_varint(buf, pos, end)
            value = number != 0
        elif tag == tags.ANY_ARRAY:
            start, pos = read_delimited(buf, pos, end)
            value = value if isinstance(value, list) else []
            _read_array(value, buf, start, pos, limits, depth + 1)
        elif tag == tags.ANY_KEY_VALUES:
            start, pos = read_delimited(buf, pos, end)
            value = value if isinstance(value, dict) else {}
            _read_key_values(value, buf, start, pos, limits, depth + 1)
        elif tag == tags.ANY_BYTES:
            value, pos = read_bytes(buf, pos, end)
        else:
            pos = skip(buf, tag, pos, end)
            if tag == tags.ANY_STRING_INDEX:
                value = None
    return value


def _read_array(
    values: list[AttributeValue], buf: bytes, pos: int, end: int, limits: Limits, depth: int
) -> None:
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.LIST_VALUES:
            start, pos = read_delimited(buf, pos, end)
            if len(values) >= limits.max_array_values:
                raise TooLarge("length of an array", len(values) + 1, limits.max_array_values)
            values.append(_read_value(None, buf, start, pos, limits, depth))
        else:
            pos = skip(buf, tag, pos, end)


def _read_key_values(
    values: dict[str, AttributeValue], buf: bytes, pos: int, end: int, limits: Limits, depth: int
) -> None:
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.LIST_VALUES:
            pos = _read_attribute(values, buf, pos, end, limits, depth)
        else:
            pos = skip(buf, tag, pos, end)
