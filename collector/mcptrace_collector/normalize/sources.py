"""Where a value of a span can come from, as data, and how each such place is looked up.

A ``Source`` is one cell of the mapping table.  ``fetch`` reads it from a span; it answers the
raw value, and values.py makes a count, text or duration of it.

Pure and total.  Event times are believed only within EVENT_SLACK of the span: servers stamp
some events with the time a socket fell idle or the machine booted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mcptrace_collector.normalize import values
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto.model import AttributeValue, Event, SpanData

EVENT_SLACK_NANO = 5_000_000
NANO_PER_MS = 1e6


class Place(enum.Enum):
    """The kinds of places."""

    ATTRIBUTE = "attribute"  # the span attribute called key
    MEMBER = "member"  # the member called detail of a JSON object in the attribute called key
    RESOURCE = "resource"  # the resource attribute called key
    CONFIG = "config"  # the collector's setting called key
    CONSTANT = "constant"  # key itself
    SPAN_NAME = "span name"  # the first word of the span's name, if it is among words
    PREFIX = "prefix"  # the word for how the attribute called key begins
    DURATION = "duration"  # end of the span less its start
    BETWEEN = "between"  # from the event called key to the event called detail
    UNTIL = "until"  # from the start of the span to the event called key
    UNTIL_TIME = "until time"  # from the start of the span to the time in the attribute key


@dataclass(frozen=True, slots=True)
class Source:
    """``scale`` is the milliseconds in a unit of the value; ``words`` translates texts."""

    place: Place
    key: str = ""
    detail: str = ""
    scale: float = 1.0
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How the table and ``mcptrace.source.*`` name this source."""
        return _LABELS[self.place].format(key=self.key, detail=self.detail)


_LABELS = {
    Place.ATTRIBUTE: "{key}",
    Place.MEMBER: "{key}[{detail}]",
    Place.RESOURCE: "resource:{key}",
    Place.CONFIG: "config:{key}",
    Place.CONSTANT: "constant:{key}",
    Place.SPAN_NAME: "span_name",
    Place.PREFIX: "prefix:{key}",
    Place.DURATION: "span_duration",
    Place.BETWEEN: "events:{key}..{detail}",
    Place.UNTIL: "event:{key}",
    Place.UNTIL_TIME: "time:{key}",
}


def fetch(source: Source, record: SpanRecord, config: Mapping[str, str]) -> AttributeValue:
    """The raw value at ``source``, translated; None where there is none."""
    value = _LOOKUPS[source.place](source, record, config)
    if source.words and isinstance(value, str):
        return source.words.get(value.strip().lower(), value)
    return value


def event_times(span: SpanData, name: str) -> Iterator[int]:
    """Times of the events called ``name`` that can belong to the span, in the order sent."""
    for event in span.events:
        if event.name == name and _believable(span, event):
            yield event.time_unix_nano


def _believable(span: SpanData, event: Event) -> bool:
    earliest = span.start_time_unix_nano - EVENT_SLACK_NANO
    return earliest <= event.time_unix_nano <= span.end_time_unix_nano + EVENT_SLACK_NANO


def interval_ms(start_nano: int | None, end_nano: int | None) -> float | None:
    """Milliseconds from one time to another; None when either is unknown or it runs backwards."""
    if start_nano is None or end_nano is None or end_nano < start_nano:
        return None
    return (end_nano - start_nano) / NANO_PER_MS


def _member(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    value = record.data.attributes.get(source.key)
    holder = value if isinstance(value, dict) else values.parse_json(value)
    return holder.get(source.detail) if isinstance(holder, dict) else None


def _resource(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    value = record.resource.get(source.key)
    # What SDKs write when nobody named the service says nothing about a model either.
    if isinstance(value, str) and value.startswith("unknown_service"):
        return None
    return value


def _span_name(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    first, _, _ = record.data.name.partition(" ")
    return first if first in source.words else None


def _prefix(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    value = record.data.attributes.get(source.key)
    if not isinstance(value, str):
        return None
    return next((word for start, word in source.words.items() if value.startswith(start)), None)


def _duration(_source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    span = record.data
    return interval_ms(span.start_time_unix_nano, span.end_time_unix_nano)


def _between(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    start = next(event_times(record.data, source.key), None)
    return interval_ms(start, next(event_times(record.data, source.detail), None))


def _until(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    span = record.data
    return interval_ms(span.start_time_unix_nano, next(event_times(span, source.key), None))


def _until_time(source: Source, record: SpanRecord, _config: Mapping[str, str]) -> AttributeValue:
    moment = values.unix_nano(record.data.attributes.get(source.key))
    return interval_ms(record.data.start_time_unix_nano, moment)


_LOOKUPS: dict[Place, Callable[[Source, SpanRecord, Mapping[str, str]], AttributeValue]] = {
    Place.ATTRIBUTE: lambda source, record, _: record.data.attributes.get(source.key),
    Place.MEMBER: _member,
    Place.RESOURCE: _resource,
    Place.CONFIG: lambda source, _, config: config.get(source.key),
    Place.CONSTANT: lambda source, _record, _config: source.key,
    Place.SPAN_NAME: _span_name,
    Place.PREFIX: _prefix,
    Place.DURATION: _duration,
    Place.BETWEEN: _between,
    Place.UNTIL: _until,
    Place.UNTIL_TIME: _until_time,
}
