"""A span behaves as the specification says, and as the stock SDK does."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider as StockProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from mcptrace.exceptions import STACKTRACE_CHARS_MAX
from mcptrace.span import Span
from mcptrace.testing import EPOCH_NS, FixedClock, SeededIds, captured_spans
from mcptrace_proto.model import Event, SpanData
from mcptrace_proto.model import Link as LinkData

ELSEWHERE = SpanContext(0xA1, 0xB2, True, TraceFlags(3), TraceState([("v", "1")]))
REASON = "mcptrace.sampling.reason"
STAMPS = {
    "mcptrace.protocol_version": "v2.3",
    "mcptrace.sampling.reason": "probability",
    "mcptrace.sampling.adjusted_count": 1.0,
}


def test_everything_that_was_said_is_in_the_record() -> None:
    clock, ids = FixedClock(), SeededIds()
    trace_id, span_id = SeededIds().trace_id(), 0
    with captured_spans(clock=clock, ids=ids) as capture:
        span = capture.tracer.start_span("first", kind=SpanKind.SERVER, attributes={"a": 1})
        span_id = span.get_span_context().span_id
        clock.advance(milliseconds=5)
        span.add_event("ready", {"b": (1, 2)})
        span.add_link(ELSEWHERE, {"c": True})
        span.set_attribute("d", "text")
        span.set_attributes({"e": 2.5})
        span.update_name("second")
        span.set_status(Status(StatusCode.ERROR, "broken"))
        clock.advance(milliseconds=7)
        span.end()
    assert capture.spans == [
        SpanData(
            trace_id=trace_id.to_bytes(16, "big"),
            span_id=span_id.to_bytes(8, "big"),
            name="second",
            kind=2,
            start_time_unix_nano=EPOCH_NS,
            end_time_unix_nano=EPOCH_NS + 12_000_000,
            attributes={
                "a": 1,
                "d": "text",
                "e": 2.5,
                **STAMPS,
                "mcptrace.sampling.reason": "error",
            },
            events=[Event(EPOCH_NS + 5_000_000, "ready", {"b": [1, 2]}, 0)],
            links=[
                LinkData(
                    (0xA1).to_bytes(16, "big"),
                    (0xB2).to_bytes(8, "big"),
                    "v=1",
                    {"c": True},
                    0,
                    0x303,
                )
            ],
            status_code=2,
            status_message="broken",
            trace_state="ot=th:0",
            flags=0x103,
        )
    ]


def test_what_others_read_is_there_while_the_span_lives() -> None:
    clock = FixedClock()
    with captured_spans(clock=clock, service_name="readers") as capture:
        span = capture.tracer.start_span("live", links=[Link(ELSEWHERE, {"x": 1})])
        assert isinstance(span, Span)
        span.add_event("e", {"k": "v"}, timestamp=5)
        assert (span.name, span.kind, span.parent) == ("live", SpanKind.INTERNAL, None)
        assert (span.start_time, span.end_time) == (EPOCH_NS, None)
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes == {}
        assert [tuple(event) for event in span.events] == [("e", {"k": "v"}, 5)]
        assert [(link.context, link.attributes) for link in span.links] == [(ELSEWHERE, {"x": 1})]
        assert span.resource.attributes["service.name"] == "readers"
        assert span.instrumentation_scope.name == "mcptrace.testing"
        assert span.context is span.get_span_context()
        span.end(end_time=EPOCH_NS + 1)
        assert (span.end_time, span.is_recording()) == (EPOCH_NS + 1, False)


def test_after_the_end_nothing_is_set_and_every_attempt_is_counted() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_span("over")
        span.end()
        span.set_attribute("a", 1)
        span.set_attributes({"a": 1})
        span.add_event("late")
        span.add_link(ELSEWHERE)
        span.update_name("late")
        span.set_status(StatusCode.ERROR)
        span.record_exception(ValueError("late"))
        span.end()
        assert len(capture.spans) == 1
        assert (capture.spans[0].name, capture.spans[0].attributes) == ("over", STAMPS)
        assert capture.provider.stats() == {"used_after_end": 8}


def test_limits_are_kept_and_what_is_over_them_is_counted_on_the_span() -> None:
    limits: dict[str, Any] = {
        "attributes_max": 2,
        "events_max": 1,
        "links_max": 1,
        "event_attributes_max": 1,
        "link_attributes_max": 1,
        "attribute_length_max": 3,
    }
    with captured_spans(**limits) as capture:
        span = capture.tracer.start_span("small", attributes={"a": "abcdef", "b": 2, "c": 3})
        span.set_attribute("d", 4)
        for _ in range(2):
            span.add_event("e", {"x": "abcdef", "y": 2})
            span.add_link(ELSEWHERE, {"x": 1, "y": 2})
        span.end()
    (data,) = capture.spans
    assert data.attributes == {"a": "abc", "b": 2, **STAMPS}
    assert (data.dropped_attributes_count, data.dropped_events_count) == (2, 1)
    assert data.dropped_links_count == 1
    assert [(e.attributes, e.dropped_attributes_count) for e in data.events] == [({"x": "abc"}, 1)]
    assert [(x.attributes, x.dropped_attributes_count) for x in data.links] == [({"x": 1}, 1)]


@pytest.mark.parametrize(
    ("calls", "code", "message"),
    [
        ([StatusCode.ERROR], 2, ""),
        ([(StatusCode.ERROR, "why")], 2, "why"),
        ([(StatusCode.OK, "ignored")], 1, ""),
        ([StatusCode.OK, (StatusCode.ERROR, "later")], 1, ""),
        ([(StatusCode.ERROR, "first"), StatusCode.OK], 1, ""),
        ([(StatusCode.ERROR, "first"), StatusCode.UNSET], 2, "first"),
        ([(StatusCode.ERROR, "first"), (StatusCode.ERROR, "second")], 2, "second"),
    ],
)
def test_ok_is_final_and_unset_changes_nothing(calls: list[Any], code: int, message: str) -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_span("s")
        for call in calls:
            span.set_status(*(call if isinstance(call, tuple) else (call,)))
        span.end()
    assert [(s.status_code, s.status_message) for s in capture.spans] == [(code, message)]


class CustomError(Exception):
    """An exception with a module of its own."""


def test_an_exception_becomes_an_event_and_its_stack_is_formatted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import traceback

    formatted: list[object] = []
    real = traceback.format_exception

    def counting(*args: Any, **kwargs: Any) -> list[str]:
        formatted.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(traceback, "format_exception", counting)
    with captured_spans() as capture:
        try:
            with (
                capture.tracer.start_as_current_span("outer"),
                capture.tracer.start_as_current_span("inner"),
            ):
                raise CustomError("deep")
        except CustomError:
            pass
    assert len(formatted) == 1
    inner, outer = capture.spans
    for data in (inner, outer):
        assert (data.status_code, data.status_message) == (2, "CustomError: deep")
        (event,) = data.events
        assert event.name == "exception"
        assert event.attributes["exception.type"] == f"{__name__}.CustomError"
        assert event.attributes["exception.message"] == "deep"
        assert "CustomError: deep" in str(event.attributes["exception.stacktrace"])
    assert inner.parent_span_id == outer.span_id


def test_a_huge_stack_is_cut_to_its_end() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_span("s")
        span.record_exception(ValueError("x" * 3 * STACKTRACE_CHARS_MAX))
        span.end()
    stack = capture.spans[0].events[0].attributes["exception.stacktrace"]
    assert len(str(stack)) == STACKTRACE_CHARS_MAX


def test_of_two_threads_that_end_a_span_one_wins() -> None:
    with captured_spans() as capture:
        spans = [capture.tracer.start_span(f"s{number}") for number in range(200)]
        barrier = threading.Barrier(4)

        def end_all() -> None:
            barrier.wait()
            for span in spans:
                span.end()

        threads = [threading.Thread(target=end_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(data.name for data in capture.spans) == sorted(f"s{n}" for n in range(200))
        assert capture.provider.stats() == {"used_after_end": 600}


def test_bad_arguments_never_raise() -> None:
    bad: Any = object()
    with captured_spans(reraise=False) as capture:
        span = capture.tracer.start_span(bad, kind=SpanKind.CLIENT, attributes={bad: 1, "ok": bad})
        span.set_attributes(bad)
        span.add_event(bad, bad, bad)
        span.add_link(bad, bad)
        span.set_status(bad)
        span.record_exception(bad)
        span.update_name(bad)
        span.end(bad)
        span.end()
        assert len(capture.spans) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": 2},
        {"start_time": "now"},
        {"attributes": ["no pair"]},
        {"links": [None, Link(ELSEWHERE)]},
    ],
)
def test_a_bad_argument_costs_itself_and_not_the_span(arguments: Any) -> None:
    with captured_spans(reraise=False) as capture:
        with capture.tracer.start_as_current_span("root") as root:
            capture.tracer.start_span("child", **arguments).end()
        child, _ = capture.spans
        parent_id = root.get_span_context().span_id.to_bytes(8, "big")
        assert (child.name, child.kind, child.parent_span_id) == ("child", 1, parent_id)
        assert len(child.links) == ("links" in arguments)


@pytest.mark.parametrize(("given", "text"), [(ValueError("boom"), "boom"), (7, "7"), (None, "")])
def test_a_description_that_is_no_text_becomes_one(given: Any, text: str) -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_span("s")
        span.set_status(StatusCode.ERROR, given)
        span.end()
        assert [data.status_message for data in capture.spans] == [text]


def test_a_bad_end_time_still_ends_the_span() -> None:
    clock = FixedClock()
    with captured_spans(clock=clock) as capture:
        bad: Any = "soon"
        capture.tracer.start_span("s").end(bad)
        assert [data.end_time_unix_nano for data in capture.spans] == [EPOCH_NS]
        assert capture.provider.stats() == {"bad_argument": 1}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise Unspeakable


def test_values_and_exceptions_without_a_text_raise_nothing_and_stay_errors() -> None:
    with captured_spans(reraise=False) as capture:
        block = capture.tracer.start_as_current_span("s", attributes={"a": Unspeakable()})
        block.__enter__().set_attribute("b", Unspeakable())
        block.__exit__(Unspeakable, Unspeakable(), None)
        (data,) = capture.spans
        assert (data.attributes, data.dropped_attributes_count) == (STAMPS | {REASON: "error"}, 2)
        assert data.status_message == "Unspeakable: <Unspeakable>"
        assert data.events[0].attributes["exception.message"] == "<Unspeakable>"


def test_a_copy_of_a_span_is_the_span_and_no_pickle_is_made() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_span("s")
        assert copy.copy(span) is span
        assert copy.deepcopy({"request": [span]})["request"][0] is span
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(span)
        span.end()


# --- the stock SDK as the oracle --------------------------------------------------------

keys = st.sampled_from(["a", "b", "c", "d"])
plain = st.one_of(
    st.text(max_size=5),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(-9, 9),
    st.lists(st.integers(-9, 9), max_size=3),
)
attributes = st.dictionaries(keys, plain, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set_attribute"), keys, plain),
        st.tuples(st.just("set_attributes"), attributes),
        st.tuples(st.just("add_event"), keys, attributes, st.integers(1, 99)),
        st.tuples(st.just("add_link"), st.just(ELSEWHERE), attributes),
        st.tuples(st.just("add_link"), st.just(trace.INVALID_SPAN_CONTEXT), attributes),
        st.tuples(st.just("update_name"), keys),
        st.tuples(st.just("set_status"), st.sampled_from(list(StatusCode)), keys),
        st.tuples(st.just("end"), st.integers(1, 99)),
    ),
    max_size=12,
)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from(list(SpanKind)), attributes)
def test_the_same_calls_give_what_the_stock_sdk_gives(
    calls: list[Any], kind: SpanKind, given_attributes: dict[str, Any]
) -> None:
    stock_exporter = InMemorySpanExporter()
    stock = StockProvider(shutdown_on_exit=False)
    stock.add_span_processor(SimpleSpanProcessor(stock_exporter))
    exporter = InMemorySpanExporter()
    with captured_spans(processors=[SimpleSpanProcessor(exporter)]) as capture:
        for tracer in (stock.get_tracer("t"), capture.tracer):
            span = tracer.start_span("n", kind=kind, attributes=given_attributes, start_time=7)
            for name, *arguments in calls:
                described = name != "set_status" or arguments[0] is StatusCode.ERROR
                getattr(span, name)(*(arguments if described else arguments[:1]))
            span.end(100)
    (expected,), (ours,) = stock_exporter.get_finished_spans(), exporter.get_finished_spans()
    said = {
        key: value for key, value in (ours.attributes or {}).items() if not key.startswith("mcp")
    }
    assert said == dict(expected.attributes or {})
    for what in ("name", "kind", "start_time", "end_time", "parent"):
        assert getattr(ours, what) == getattr(expected, what)
    assert (ours.status.status_code, ours.status.description or None) == (
        expected.status.status_code,
        expected.status.description or None,
    )
    assert [(e.name, e.timestamp, dict(e.attributes or {})) for e in ours.events] == [
        (e.name, e.timestamp, dict(e.attributes or {})) for e in expected.events
    ]
    assert [(x.context, dict(x.attributes or {})) for x in ours.links] == [
        (x.context, dict(x.attributes or {})) for x in expected.links
    ]
