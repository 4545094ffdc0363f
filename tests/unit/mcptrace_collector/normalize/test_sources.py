"""Places of values: each is looked up where it says, and bad event times are not believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcptrace_collector.normalize.sources import Place, Source, event_times, fetch, interval_ms
from mcptrace_collector.pipeline import SpanRecord

MakeRecord = Callable[..., SpanRecord]

PLACES: list[tuple[Source, dict[str, Any], Any]] = [
    (Source(Place.ATTRIBUTE, "a"), {"a": 5}, 5),
    (Source(Place.ATTRIBUTE, "b"), {"a": 5}, None),
    (Source(Place.ATTRIBUTE, "a", words={"llm": "chat"}), {"a": "LLM"}, "chat"),
    (Source(Place.ATTRIBUTE, "a", words={"llm": "chat"}), {"a": "Else"}, "Else"),
    (Source(Place.MEMBER, "a", "x"), {"a": '{"x": 3}'}, 3),
    (Source(Place.MEMBER, "a", "x"), {"a": {"x": 4}}, 4),
    (Source(Place.MEMBER, "a", "x"), {"a": "[1]"}, None),
    (Source(Place.MEMBER, "a", "x"), {"a": "{"}, None),
    (Source(Place.RESOURCE, "service.name"), {}, "svc"),
    (Source(Place.RESOURCE, "unnamed"), {}, None),
    (Source(Place.CONFIG, "key"), {}, "configured"),
    (Source(Place.CONFIG, "other"), {}, None),
    (Source(Place.CONSTANT, "infer"), {}, "infer"),
    (Source(Place.SPAN_NAME, words={"chat": "chat"}), {}, "chat"),
    (Source(Place.SPAN_NAME, words={"infer": "infer"}), {}, None),
    (Source(Place.PREFIX, "a", words={"c-": "chat"}), {"a": "c-1"}, "chat"),
    (Source(Place.PREFIX, "a", words={"c-": "chat"}), {"a": "d-1"}, None),
    (Source(Place.PREFIX, "a", words={"c-": "chat"}), {"a": 1}, None),
    (Source(Place.DURATION), {}, 250.0),
    (Source(Place.BETWEEN, "first", "last"), {}, 90.0),
    (Source(Place.BETWEEN, "last", "first"), {}, None),
    (Source(Place.BETWEEN, "first", "boot"), {}, None),
    (Source(Place.UNTIL, "first"), {}, 10.0),
    (Source(Place.UNTIL, "early"), {}, None),
    (Source(Place.UNTIL, "absent"), {}, None),
    (Source(Place.UNTIL_TIME, "a"), {"a": "2026-12-01T00:50:56.030Z"}, 30.0),
    (Source(Place.UNTIL_TIME, "a"), {"a": "2026-12-01T00:50:55.970Z"}, None),
    (Source(Place.UNTIL_TIME, "a"), {"a": "soon"}, None),
]


@pytest.mark.parametrize(("source", "attributes", "expected"), PLACES)
def test_a_source_is_looked_up_in_its_place(
    make_record: MakeRecord, source: Source, attributes: dict[str, Any], expected: object
) -> None:
    record = make_record(
        attributes,
        name="chat m",
        events=(("first", 10.0), ("last", 100.0), ("boot", -2_325_822.6), ("early", -1.0)),
        resource={"service.name": "svc", "unnamed": "unknown_service:python"},
    )
    assert fetch(source, record, {"key": "configured"}) == expected


@pytest.mark.parametrize(
    ("at_ms", "believed"),
    [(-5.000001, False), (-5.0, True), (0.0, True), (250.0, True), (255.0, True), (255.1, False)],
)
def test_an_event_counts_within_five_milliseconds_of_its_span(
    make_record: MakeRecord, at_ms: float, believed: bool
) -> None:
    span = make_record({}, events=(("e", at_ms),)).data
    assert (next(event_times(span, "e"), None) is not None) is believed


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(1_000_000, 3_500_000, 2.5), (5, 5, 0.0), (6, 5, None), (None, 5, None), (5, None, None)],
)
def test_an_interval_never_runs_backwards(
    start: int | None, end: int | None, expected: float | None
) -> None:
    assert interval_ms(start, end) == expected
