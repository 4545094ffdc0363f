"""An inference span says model, tokens, latency and how it ended, in all of our ways to end."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from mcptrace import InferenceSpan, guard
from mcptrace.testing import Capture, FixedClock, captured_spans
from mcptrace_proto.model import SpanData
from mcptrace_proto.schema import read_inference as read
from mcptrace_proto.schema import validate


def _one(capture: Capture) -> SpanData:
    (data,) = capture.spans
    return data


def test_a_whole_inference_is_written_in_both_vocabularies() -> None:
    clock = FixedClock()
    with captured_spans(clock=clock) as capture:
        with capture.tracer.start_inference(
            "tiny-1",
            "chat",
            provider="acme",
            request_id="r-1",
            model_version="2",
            streaming=True,
            queue_ms=1.5,
            kind=SpanKind.CLIENT,
            attributes={"tenant": "blue"},
        ) as span:
            clock.advance(milliseconds=20)
            span.record_first_token()
            clock.advance(milliseconds=30)
            span.record_first_token()
            span.record_tokens(input=12, cached=4)
            span.record_tokens(output=40, reasoning=10)
            span.finish("length")
        data = _one(capture)
    assert data.name == "chat tiny-1"
    assert data.kind == 3
    assert data.attributes == {
        "tenant": "blue",
        "mcptrace.protocol_version": "v2.3",
        "mcptrace.model_name": "tiny-1",
        "mcptrace.model_version": "2",
        "mcptrace.operation": "chat",
        "mcptrace.provider": "acme",
        "mcptrace.request_id": "r-1",
        "mcptrace.finish_reason": "length",
        "mcptrace.inference_latency_ms": 50.0,
        "mcptrace.ttft_ms": 20.0,
        "mcptrace.queue_ms": 1.5,
        "mcptrace.streaming": True,
        "mcptrace.token_usage.input": 12,
        "mcptrace.token_usage.output": 40,
        "mcptrace.token_usage.total": 52,
        "mcptrace.token_usage.cached": 4,
        "mcptrace.token_usage.reasoning": 10,
        "gen_ai.request.model": "tiny-1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.response.id": "r-1",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.time_to_first_chunk": 0.02,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 10,
        "mcptrace.sampling.reason": "probability",
        "mcptrace.sampling.adjusted_count": 1.0,
    }
    assert validate(data, read(data.attributes)) == []


def test_counts_that_nobody_recorded_are_unknown_and_zero_is_a_count() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_inference("m")
        span.record_tokens(output=0, estimated=True)
        span.finish()
        usage = read(_one(capture).attributes).token_usage
    assert (usage.input, usage.output, usage.total, usage.estimated) == (None, 0, None, True)
    assert usage.unknown == {"input": "not_reported", "total": "not_reported"}


def test_of_several_counts_for_a_field_the_last_one_stands() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            for count in (1, 2, 3):
                span.record_tokens(7, count)
        usage = read(_one(capture).attributes).token_usage
    assert (usage.input, usage.output, usage.total) == (7, 3, 10)


def test_counts_of_numpys_integers_are_counts_and_booleans_are_not() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            span.record_tokens(input=numpy.int64(5), output=numpy.uint8(1))  # type: ignore[arg-type]
        usage = read(_one(capture).attributes).token_usage
        assert (usage.input, usage.output, usage.total) == (5, 1, 6)
        assert type(usage.input) is int


def test_a_latency_that_is_given_overrides_the_measured_one() -> None:
    with captured_spans() as capture:
        capture.tracer.start_inference("m").finish(latency_ms=12.5)
        assert read(_one(capture).attributes).inference_latency_ms == 12.5


def test_ending_as_a_plain_span_leaves_a_valid_inference() -> None:
    with captured_spans() as capture:
        capture.tracer.start_inference("m").end()
        data = _one(capture)
    view = read(data.attributes)
    assert (validate(data, view), view.finish_reason) == ([], None)


def test_attributes_that_the_caller_set_are_not_overwritten() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("asked") as span:
            span.set_attribute("gen_ai.response.model", "answered")
            span.set_attribute("mcptrace.model_version", "mine")
        attributes = _one(capture).attributes
    assert attributes["mcptrace.model_version"] == "mine"
    assert attributes["gen_ai.response.model"] == "answered"


class ReadTimeout(Exception):
    """As HTTP client libraries call theirs."""


@pytest.mark.parametrize(
    ("error", "reason", "error_type", "because"),
    [
        (ValueError("bad"), "error", "ValueError", "aborted"),
        (TimeoutError("slow"), "timeout", "TimeoutError", "aborted"),
        (ReadTimeout("slow"), "timeout", f"{__name__}.ReadTimeout", "aborted"),
        (GeneratorExit(), "abandoned", None, "abandoned"),
        (KeyboardInterrupt(), "error", "KeyboardInterrupt", "aborted"),
    ],
)
def test_what_leaves_the_block_says_how_it_ended(
    error: BaseException, reason: str, error_type: str | None, because: str
) -> None:
    with captured_spans() as capture:
        with pytest.raises(type(error)), capture.tracer.start_inference("m"):
            raise error
        data = _one(capture)
    view = read(data.attributes)
    assert (view.finish_reason, view.token_usage.unknown["input"]) == (reason, because)
    assert data.attributes.get("error.type") == error_type
    assert data.status_code == (0 if error_type is None else 2)
    assert [event.name for event in data.events] == ([] if error_type is None else ["exception"])


def test_a_timeout_around_a_cancelled_inference_is_kept_whatever_the_rate() -> None:
    async def ask(capture: Capture) -> None:
        with capture.tracer.start_inference("m"):
            await asyncio.Event().wait()

    async def run(capture: Capture) -> None:
        for _ in range(20):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ask(capture), 0.001)

    with captured_spans(sampler="mcptrace_adaptive", rate_min=1e-9, rate_max=1e-9) as capture:
        asyncio.run(run(capture))
        spans = capture.spans
    assert len(spans) == 20
    for span in spans:
        assert read(span.attributes).finish_reason == "abandoned"
        assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"
        assert span.attributes["mcptrace.sampling.reason"] == "timeout"
        assert (span.status_code, span.events) == (0, [])


def test_the_span_is_current_in_its_block_only() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_inference("m")
        assert trace.get_current_span() is trace.INVALID_SPAN
        with span:
            assert trace.get_current_span() is span
            capture.tracer.start_span("inside").end()
        assert trace.get_current_span() is trace.INVALID_SPAN
        inside, outer = capture.spans
        assert inside.parent_span_id == outer.span_id


def test_async_blocks_work_alike_and_nest() -> None:
    async def ask(capture: Capture) -> None:
        async with capture.tracer.start_inference("outer") as span:
            await asyncio.sleep(0)
            async with capture.tracer.start_inference("inner"):
                await asyncio.sleep(0)
            assert trace.get_current_span() is span

    with captured_spans() as capture:
        asyncio.run(ask(capture))
        inner, outer = capture.spans
        assert inner.parent_span_id == outer.span_id
        assert read(outer.attributes).finish_reason is None


def test_a_reason_that_nobody_gave_is_not_made_up_and_a_recorded_one_stands() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m"):
            pass
        capture.tracer.start_inference("m").finish()
        with capture.tracer.start_inference("m") as span:
            span.record_finish_reason("length")
        reasons = [read(data.attributes).finish_reason for data in capture.spans]
    assert reasons == [None, None, "length"]


def test_an_inference_that_nobody_holds_ends_as_abandoned() -> None:
    clock = FixedClock()
    with captured_spans(clock=clock) as capture:
        capture.tracer.start_inference("m")
        gc.collect()
        clock.advance(seconds=9)
        capture.provider.force_flush()
        view = read(_one(capture).attributes)
    assert (view.finish_reason, view.inference_latency_ms) == ("abandoned", 0.0)
    assert view.token_usage.unknown["output"] == "abandoned"


def test_the_next_root_ends_what_was_abandoned() -> None:
    with captured_spans() as capture:
        capture.tracer.start_inference("m")
        gc.collect()
        assert capture.spans == []
        capture.tracer.start_span("next")
        assert [data.name for data in capture.spans] == ["chat m"]


def test_an_abandoned_inference_never_works_inside_the_collector() -> None:
    """A finalizer that ran the pipeline could meet a lock that its own thread holds."""
    with captured_spans() as capture:
        span: Any = capture.tracer.start_inference("m")
        with capture.provider.traces.lock:
            helper = threading.Thread(target=span.__del__)
            helper.start()
            helper.join(5)
            assert not helper.is_alive()
        span.finish()
        capture.provider.force_flush()
        assert len(capture.spans) == 1


def test_inferences_that_still_run_at_the_end_are_abandoned_and_exported() -> None:
    with captured_spans() as capture:
        held = capture.tracer.start_inference("held")
        with capture.tracer.start_span("parent") as parent:
            context = trace.set_span_in_context(parent)
            stream = capture.tracer.start_inference("m", context=context).wrap_stream("abc")
            next(stream)
        capture.provider.shutdown()
        held.finish("stop")
        list(stream)
        reasons = {data.name: read(data.attributes).finish_reason for data in capture.spans}
    assert reasons == {"chat held": "abandoned", "chat m": "abandoned", "parent": None}


def test_only_inferences_that_run_are_known() -> None:
    with captured_spans() as capture:
        running = capture.tracer.start_inference("m")
        for end in ("finish", "end"):
            getattr(capture.tracer.start_inference("m"), end)()
        capture.tracer.start_inference("m")
        gc.collect()
        capture.provider.force_flush()
        assert list(capture.provider.traces.live) == [id(running)]


def test_finishing_twice_counts_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    guard._Switch.next_warning_seconds = 0.0
    with captured_spans() as capture:
        span = capture.tracer.start_inference("m")
        span.finish("stop")
        span.finish("length")
        span.record_tokens(input=1)
        span.record_finish_reason("length")
        span.fail(ValueError())
        assert isinstance(span, InferenceSpan)
        assert read(_one(capture).attributes).finish_reason == "stop"
        assert capture.provider.stats() == {"used_after_end": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "mcptrace: span 'chat m' was used after its end; nothing is changed"
    ]


def test_bad_arguments_never_raise_and_are_a_violation() -> None:
    bad: Any = object()
    with captured_spans(reraise=False) as capture:
        with capture.tracer.start_inference(bad, bad) as span:
            span.record_tokens(input=bad, output=-3)
        data = _one(capture)
    assert "mcptrace.schema.violations" in data.attributes
