"""The records of the wire: OTLP trace data as Python values.

Field names follow opentelemetry-proto (trace/v1, common/v1, resource/v1).  The
records are plain data and are treated as immutable once handed on; they are not
frozen because a frozen slotted dataclass costs twice as much to build.

Attribute values map to AnyValue by Python type: str, bool, int (64 bit signed), float,
bytes, list (array), dict (kvlist), None (an AnyValue with nothing set).  Where a message
carries the same key twice the last one wins in this view; raw bytes keep both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

AttributeValue: TypeAlias = (
    str | bool | int | float | bytes | list["AttributeValue"] | dict[str, "AttributeValue"] | None
)
Attributes: TypeAlias = dict[str, AttributeValue]

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8

# opentelemetry-proto trace.v1 Span.SpanKind and Status.StatusCode
KIND_UNSPECIFIED, KIND_INTERNAL, KIND_SERVER, KIND_CLIENT, KIND_PRODUCER, KIND_CONSUMER = range(6)
STATUS_UNSET, STATUS_OK, STATUS_ERROR = range(3)


@dataclass(slots=True)
class Event:
    time_unix_nano: int = 0
    name: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0


@dataclass(slots=True)
class Link:
    trace_id: bytes = b""
    span_id: bytes = b""
    trace_state: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    flags: int = 0


@dataclass(slots=True)
class SpanData:
    """One finished span.  Ids are raw bytes; an empty ``parent_span_id`` means a root."""

    trace_id: bytes = b""
    span_id: bytes = b""
    parent_span_id: bytes = b""
    name: str = ""
    kind: int = KIND_UNSPECIFIED
    start_time_unix_nano: int = 0
    end_time_unix_nano: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    status_code: int = STATUS_UNSET
    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    dropped_attributes_count: int = 0
    dropped_events_count: int = 0
    dropped_links_count: int = 0


@dataclass(slots=True)
class Resource:
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0


@dataclass(slots=True)
class Scope:
    name: str = ""
    version: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0


@dataclass(slots=True)
class ScopeSpans:
    scope: Scope = field(default_factory=Scope)
    spans: list[SpanData] = field(default_factory=list)
    schema_url: str = ""


@dataclass(slots=True)
class ResourceSpans:
    resource: Resource = field(default_factory=Resource)
    scope_spans: list[ScopeSpans] = field(default_factory=list)
    schema_url: str = ""


@dataclass(slots=True, frozen=True)
class SpanSource:
    """Where spans come from, still as wire bytes: one Resource and one Scope message.

    Hashable, so that spans can be regrouped on export without decoding either.
    """

    resource: bytes = b""
    resource_schema_url: str = ""
    scope: bytes = b""
    scope_schema_url: str = ""


@dataclass(slots=True)
class RawSpans:
    """Spans of one source as untouched slices of a request; each is one Span message body."""

    source: SpanSource
    spans: list[bytes] = field(default_factory=list)
