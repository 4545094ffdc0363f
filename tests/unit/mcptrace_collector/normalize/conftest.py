"""Spans for the room: made by hand, or as real servers sent them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import wire
from mcptrace_proto.json import decode_request_json
from mcptrace_proto.model import Attributes, Event, SpanData, SpanSource

CAPTURES = Path(__file__).parents[3] / "data" / "captures"
START_NANO = 1_796_086_256_000_000_000
MS = 1_000_000

MakeRecord = Callable[..., SpanRecord]
LoadCapture = Callable[[str], list[SpanRecord]]


def _record(span: SpanData, resource: Attributes) -> SpanRecord:
    raw = wire.encode_span(span)
    return SpanRecord(raw, wire.decode_span(raw), SpanSource(), resource)


@pytest.fixture
def make_record() -> MakeRecord:
    """A span of 250 ms with these attributes; events are (name, milliseconds after the start)."""

    def make(
        attributes: Attributes,
        *,
        name: str = "span",
        events: tuple[tuple[str, float], ...] = (),
        resource: Attributes | None = None,
        duration_ms: int = 250,
    ) -> SpanRecord:
        span = SpanData(
            trace_id=bytes(range(16)),
            span_id=bytes(range(1, 9)),
            name=name,
            start_time_unix_nano=START_NANO,
            end_time_unix_nano=START_NANO + duration_ms * MS,
            attributes=attributes,
            events=[Event(START_NANO + int(at_ms * MS), event) for event, at_ms in events],
        )
        return _record(span, resource or {})

    return make


@pytest.fixture
def load_capture() -> LoadCapture:
    """The spans of a capture, e.g. ``triton/bls.json``; several names are parted by spaces."""

    def load(names: str) -> list[SpanRecord]:
        return [record for name in names.split() for record in _spans(CAPTURES / name)]

    return load


def _spans(path: Path) -> Iterator[SpanRecord]:
    body = path.read_bytes()
    decode = decode_request_json if path.suffix == ".json" else wire.decode_request
    for resource_spans in decode(body):
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _record(span, resource_spans.resource.attributes)
