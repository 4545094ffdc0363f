"""What is kept, why, and how many it stands for."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import sampling as stock
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, TraceState

from mcptrace.config import ConfigError, load_config
from mcptrace.sampling import build_sampler
from mcptrace.testing import FixedClock, SeededIds, captured_spans
from mcptrace_proto.sampling.threshold import (
    MAX,
    adjusted_count,
    ot_threshold,
    randomness,
    threshold_from_probability,
)

REASON = "mcptrace.sampling.reason"
ADJUSTED = "mcptrace.sampling.adjusted_count"


def _remote(sampled: bool, state: str = "", trace_id: int = 1 << 90) -> Any:
    span_context = SpanContext(
        trace_id,
        7,
        True,
        TraceFlags(int(sampled)),
        TraceState.from_header([state]) if state else TraceState(),
    )
    return trace.set_span_in_context(NonRecordingSpan(span_context))


def test_at_one_in_a_thousand_every_error_and_timeout_is_kept_with_its_reason() -> None:
    with captured_spans(
        sampler="traceidratio", sampler_arg=0.001, ids=SeededIds(), clock=FixedClock()
    ) as capture:
        for number in range(3000):
            with capture.tracer.start_inference("m") as span:
                span.record_tokens(input=1, output=1)
                if number % 100 == 0:
                    span.set_status(StatusCode.ERROR, "broken")
                elif number % 100 == 50:
                    span.finish("timeout")
        reasons = [data.attributes[REASON] for data in capture.spans]
        assert (reasons.count("error"), reasons.count("timeout")) == (30, 30)
        kept = [data for data in capture.spans if data.attributes[REASON] == "probability"]
        assert len(kept) < 20
        assert capture.provider.stats() == {"sampled_out": 3000 - len(capture.spans)}
    for data in capture.spans:
        critical = data.attributes[REASON] != "probability"
        applied = ot_threshold(data.trace_state)
        assert applied == (0 if critical else threshold_from_probability(0.001))
        assert applied is not None
        assert data.attributes[ADJUSTED] == adjusted_count(applied)
        assert randomness(data.trace_id, data.trace_state) >= applied


def test_at_one_in_a_thousand_what_is_over_p99_is_kept() -> None:
    clock = FixedClock()
    with captured_spans(
        sampler="traceidratio", sampler_arg=0.001, ids=SeededIds(), clock=clock
    ) as capture:
        for number in range(4000):
            with capture.tracer.start_inference("m") as span:
                span.record_tokens(input=1, output=1)
                clock.advance(milliseconds=10 + number % 7)
        capture.exporter.clear()
        for _ in range(5):
            with capture.tracer.start_inference("m") as span:
                span.record_tokens(input=1, output=1)
                clock.advance(milliseconds=500)
        assert [data.attributes[REASON] for data in capture.spans] == ["p99"] * 5
        assert {data.attributes[ADJUSTED] for data in capture.spans} == {1.0}


def test_a_slow_inference_is_a_timeout_where_a_limit_is_set() -> None:
    clock = FixedClock()
    with captured_spans(
        sampler="traceidratio", sampler_arg=1e-12, timeout_limit_ms=1000, clock=clock
    ) as capture:
        for seconds in (0.5, 1.5):
            with capture.tracer.start_inference("m") as span:
                span.record_tokens(input=1, output=1)
                clock.advance(seconds=seconds)
        assert [data.attributes[REASON] for data in capture.spans] == ["timeout"]


def test_adjusted_counts_add_up_to_the_traffic() -> None:
    traces = 4000
    with captured_spans(sampler="traceidratio", sampler_arg=0.1, ids=SeededIds()) as capture:
        for _ in range(traces):
            capture.tracer.start_span("s").end()
    total = sum(float(data.attributes[ADJUSTED]) for data in capture.spans)  # type: ignore[arg-type]
    # Binomial: the sum's standard deviation is sqrt(n (1-p) / p); five of them.
    assert abs(total - traces) < 5 * math.sqrt(traces * 0.9 / 0.1)


def test_the_adaptive_rate_stays_within_its_bounds_and_what_it_says_is_what_it_did() -> None:
    clock = FixedClock()
    with captured_spans(
        sampler="mcptrace_adaptive", target_per_second=1.0, ids=SeededIds(), clock=clock
    ) as capture:
        for _ in range(20_000):
            capture.tracer.start_span("s").end()
            clock.advance(milliseconds=1)
    assert 0 < len(capture.spans) < 2000
    for data in capture.spans:
        applied = ot_threshold(data.trace_state)
        assert applied is not None
        assert threshold_from_probability(0.1) <= applied <= threshold_from_probability(0.001)
        assert int.from_bytes(data.trace_id, "big") % MAX >= applied
        assert data.attributes[ADJUSTED] == adjusted_count(applied)
    late = [data.attributes[ADJUSTED] for data in capture.spans[-5:]]
    assert all(isinstance(count, float) and count > 100 for count in late)


def test_a_sampled_remote_parent_is_followed_with_its_threshold() -> None:
    trace_id = MAX - 1
    applied = threshold_from_probability(0.25)
    with captured_spans(sampler="parentbased_always_off") as capture:
        parent = _remote(True, "ot=th:c,v=1", trace_id)
        span = capture.tracer.start_span("s", parent)
        assert span.get_span_context().trace_flags.sampled
        span.end()
        (data,) = capture.spans
    assert (data.attributes[REASON], data.attributes[ADJUSTED]) == ("parent", 4.0)
    assert ot_threshold(data.trace_state) == applied
    assert data.trace_state == "ot=th:c,v=1"


def test_an_error_below_a_sampled_parent_stands_for_itself_alone() -> None:
    """Every error is kept here, also below parents that were not sampled."""
    with captured_spans(sampler="mcptrace_adaptive") as capture:
        span = capture.tracer.start_span("s", _remote(True, "ot=th:c", MAX - 1))
        span.set_status(StatusCode.ERROR)
        span.end()
        (data,) = capture.spans
    assert (data.attributes[REASON], data.attributes[ADJUSTED]) == ("error", 1.0)
    assert data.trace_state == "ot=th:0"


def test_a_sampled_parent_without_a_threshold_leaves_the_count_open() -> None:
    with captured_spans(sampler="mcptrace_adaptive") as capture:
        capture.tracer.start_span("s", _remote(True, "v=1")).end()
        (data,) = capture.spans
    assert (data.attributes[REASON], data.trace_state) == ("parent", "v=1")
    assert ADJUSTED not in data.attributes


def test_a_threshold_that_contradicts_the_flag_is_erased() -> None:
    with captured_spans(sampler="mcptrace_adaptive") as capture:
        capture.tracer.start_span("s", _remote(True, "ot=th:c", 1)).end()
        assert [data.trace_state for data in capture.spans] == [""]


def test_below_an_unsampled_remote_parent_only_what_is_critical_is_kept() -> None:
    with captured_spans(sampler="parentbased_always_on") as capture:
        fine = capture.tracer.start_span("fine", _remote(False))
        assert not fine.get_span_context().trace_flags.sampled
        assert fine.is_recording()
        fine.end()
        broken = capture.tracer.start_span("broken", _remote(False))
        broken.set_status(StatusCode.ERROR)
        broken.end()
        assert [(data.name, data.attributes[REASON]) for data in capture.spans] == [
            ("broken", "error")
        ]
        assert capture.provider.stats() == {"sampled_out": 1}


@pytest.mark.parametrize(
    ("sampler", "root", "below_sampled", "below_unsampled"),
    [
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
    ],
)
def test_the_named_samplers_follow_the_parent_or_not(
    sampler: str, root: bool, below_sampled: bool, below_unsampled: bool
) -> None:
    with captured_spans(sampler=sampler) as capture:
        capture.tracer.start_span("root").end()
        capture.tracer.start_span("below_sampled", _remote(True)).end()
        capture.tracer.start_span("below_unsampled", _remote(False)).end()
        wanted = {"root": root, "below_sampled": below_sampled, "below_unsampled": below_unsampled}
        assert {data.name for data in capture.spans} == {n for n, kept in wanted.items() if kept}


def test_what_is_off_propagates_as_not_sampled() -> None:
    with captured_spans(sampler="always_off") as capture:
        span = capture.tracer.start_span("s")
        sent = span.get_span_context()
        assert (span.is_recording(), sent.is_valid, sent.trace_flags.sampled) == (
            False,
            True,
            False,
        )
        child = capture.tracer.start_span("c", trace.set_span_in_context(span))
        assert child.get_span_context().trace_id == sent.trace_id


def test_samplers_of_the_stock_sdk_decide_span_by_span() -> None:
    class ByName(stock.Sampler):
        def should_sample(  # noqa: PLR0917 - the stock SDK's signature
            self,
            parent_context: Any,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            links: Any = None,
            trace_state: Any = None,
        ) -> stock.SamplingResult:
            decision = stock.Decision[name.split(maxsplit=1)[0]]
            return stock.SamplingResult(decision, {**(attributes or {}), "asked": name})

        def get_description(self) -> str:
            return "ByName"

    with captured_spans(sampler=ByName()) as capture:
        tracer = capture.tracer
        assert not tracer.start_span("DROP").is_recording()
        recorded = tracer.start_span("RECORD_ONLY")
        assert recorded.is_recording()
        assert not recorded.get_span_context().trace_flags.sampled
        recorded.end()
        broken = tracer.start_span("RECORD_ONLY broken")
        broken.set_status(StatusCode.ERROR)
        broken.end()
        with tracer.start_as_current_span("RECORD_AND_SAMPLE root", attributes={"a": 1}):
            assert not tracer.start_span("DROP child").is_recording()
            tracer.start_span("RECORD_ONLY child").end()
            tracer.start_span("RECORD_AND_SAMPLE child").end()
        with tracer.start_as_current_span("RECORD_ONLY root"):
            tracer.start_span("RECORD_AND_SAMPLE grandchild").end()
        assert [(data.name, data.attributes[REASON]) for data in capture.spans] == [
            ("RECORD_ONLY broken", "error"),
            ("RECORD_AND_SAMPLE child", "forced"),
            ("RECORD_AND_SAMPLE root", "forced"),
            ("RECORD_AND_SAMPLE grandchild", "forced"),
        ]
        assert capture.spans[2].attributes["asked"] == "RECORD_AND_SAMPLE root"
        assert capture.spans[2].attributes["a"] == 1


@pytest.mark.parametrize(
    ("sampler", "kept"),
    [
        (stock.ALWAYS_ON, True),
        (stock.ALWAYS_OFF, False),
        (stock.ParentBased(stock.ALWAYS_ON), True),
        (stock.TraceIdRatioBased(0.0), False),
        (stock.AlwaysRecordSampler(stock.ALWAYS_OFF), False),
    ],
)
def test_the_stock_samplers_work(sampler: Any, kept: bool) -> None:
    with captured_spans(sampler=sampler) as capture:
        with capture.tracer.start_as_current_span("root"):
            capture.tracer.start_span("child").end()
        assert len(capture.spans) == (2 if kept else 0)


def test_a_sampler_that_raises_loses_no_running_trace() -> None:
    class Broken:
        per_span = False

        def __init__(self) -> None:
            self.inner = build_sampler(load_config({"sampler": "always_on"}, {}))

        def head(self, start: Any) -> Any:
            return self.inner.head(start)

        def decide(self, *args: Any) -> Any:
            raise ValueError("broken")

    with captured_spans(sampler=Broken(), reraise=False) as capture:
        capture.tracer.start_span("s").end()
        assert [data.attributes[REASON] for data in capture.spans] == ["forced"]
        assert capture.provider.stats() == {"internal_error": 1}


@pytest.mark.parametrize("bad", [42, object()])
def test_what_is_no_sampler_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="expected should_sample"):
        build_sampler(load_config({}, {}), bad)


def test_a_ratio_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a probability"):
        load_config({"sampler": "traceidratio", "sampler_arg": 1.5}, {})


@pytest.mark.parametrize("answer", [None, RuntimeError("broken")])
def test_a_stock_sampler_that_fails_keeps_the_trace_whole(answer: object) -> None:
    class Broken:
        def should_sample(self, *_: object, **__: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def get_description(self) -> str:
            return "broken"

    with captured_spans(sampler=Broken(), reraise=False) as capture:
        with capture.tracer.start_as_current_span("root"):
            capture.tracer.start_span("child").end()
        child, root = capture.spans
    assert child.parent_span_id == root.span_id
    assert child.trace_id == root.trace_id
