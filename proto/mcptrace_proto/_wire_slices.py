"""Requests and spans taken apart and put together as bytes, without decoding spans.

A span's slice is the span: unknown fields inside it survive every function here.  Unknown
fields of a Resource or Scope survive as well, being part of SpanSource; those beside them
in ResourceSpans, ScopeSpans and the request itself do not (OTLP has none today).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import groupby

from mcptrace_proto import _wire_tags as tags
from mcptrace_proto._wire_encode import delimited, encode_group, utf8
from mcptrace_proto._wire_varint import fields
from mcptrace_proto.errors import DecodeError
from mcptrace_proto.limits import DEFAULT_LIMITS, Counter, Limits
from mcptrace_proto.model import RawSpans, SpanSource


def split_request(body: bytes, limits: Limits = DEFAULT_LIMITS) -> list[RawSpans]:
    """Cut an ExportTraceServiceRequest into spans: one RawSpans for each ScopeSpans, in order.

    Framing is checked down to the slices; what is inside a span, resource or scope is not
    (decode_span, decode_resource, decode_scope do that).  A ResourceSpans without
    ScopeSpans yields nothing.
    """
    groups: list[RawSpans] = []
    counter = Counter(limits)
    for tag, _, start, stop in fields(body, 0, len(body)):
        if tag == tags.REQUEST_RESOURCE_SPANS:
            counter.group()
            groups += _split_resource_spans(body, start, stop, counter)
    return groups


def _split_resource_spans(buf: bytes, pos: int, end: int, counter: Counter) -> list[RawSpans]:
    resource: list[bytes] = []  # messages merge by being concatenated
    schema_url = ""
    scope_spans: list[tuple[int, int]] = []
    for tag, _, start, stop in fields(buf, pos, end):
        if tag == tags.GROUP_ITEMS:
            counter.group()
            scope_spans.append((start, stop))
        elif tag == tags.GROUP_SOURCE:
            resource.append(buf[start:stop])
        elif tag == tags.GROUP_SCHEMA_URL:
            schema_url = _text(buf, start, stop)
    of_resource = SpanSource(b"".join(resource), schema_url)
    return [
        _split_scope_spans(buf, start, stop, of_resource, counter) for start, stop in scope_spans
    ]


def _split_scope_spans(
    buf: bytes, pos: int, end: int, of_resource: SpanSource, counter: Counter
) -> RawSpans:
    scope: list[bytes] = []
    schema_url = ""
    spans: list[bytes] = []
    for tag, _, start, stop in fields(buf, pos, end):
        if tag == tags.GROUP_ITEMS:
            counter.span()
            spans.append(buf[start:stop])
        elif tag == tags.GROUP_SOURCE:
            scope.append(buf[start:stop])
        elif tag == tags.GROUP_SCHEMA_URL:
            schema_url = _text(buf, start, stop)
    source = replace(of_resource, scope=b"".join(scope), scope_schema_url=schema_url)
    return RawSpans(source, spans)


def join_request(groups: Iterable[RawSpans]) -> bytes:
    """Put spans together as one ExportTraceServiceRequest.

    Consecutive groups of one source share a ScopeSpans, consecutive sources of one resource
    share a ResourceSpans.  An empty Resource or Scope is left out.
    """
    parts: list[bytes] = []
    for (resource, schema_url), of_resource in groupby(
        groups, lambda group: (group.source.resource, group.source.resource_schema_url)
    ):
        scopes = [
            encode_group(
                source.scope,
                [span for group in of_source for span in group.spans],
                source.scope_schema_url,
            )
            for source, of_source in groupby(of_resource, lambda group: group.source)
        ]
        body = encode_group(resource, scopes, schema_url)
        parts += delimited(tags.REQUEST_RESOURCE_SPANS, body)
    return b"".join(parts)


def remove_attributes(span: bytes, names: AbstractSet[str]) -> bytes:
    """Cut every attribute with one of ``names`` out of an encoded Span.

    All other bytes stay as they are and where they are.
    """
    kept: list[bytes] = []
    kept_to = 0
    for tag, begin, start, stop in fields(span, 0, len(span)):
        if tag == tags.SPAN_ATTRIBUTES and _key(span, start, stop) in names:
            kept.append(span[kept_to:begin])
            kept_to = stop
    if not kept_to:
        return span
    kept.append(span[kept_to:])
    return b"".join(kept)


def set_trace_state(span: bytes, trace_state: str) -> bytes:
    """Replace the trace state of an encoded Span, in its place; empty removes it."""
    new = b"".join(delimited(tags.SPAN_TRACE_STATE, utf8(trace_state))) if trace_state else b""
    parts: list[bytes] = []
    kept_to = 0
    for tag, begin, _, stop in fields(span, 0, len(span)):
        if tag == tags.SPAN_TRACE_STATE:
            parts += (span[kept_to:begin], new)
            new = b""
            kept_to = stop
    parts += (span[kept_to:], new)
    return b"".join(parts)


def _key(buf: bytes, pos: int, end: int) -> str:
    key = ""
    for tag, _, start, stop in fields(buf, pos, end):
        if tag == tags.KEY_VALUE_KEY:
            key = _text(buf, start, stop)
    return key


def _text(buf: bytes, start: int, stop: int) -> str:
    try:
        return buf[start:stop].decode()
    except UnicodeDecodeError as error:
        raise DecodeError("invalid UTF-8", start + error.start) from None
