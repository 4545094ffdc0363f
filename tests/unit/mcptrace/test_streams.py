"""How a stream ends is how its span ends, and no context is held while the caller has the item."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from mcptrace import guard
from mcptrace.testing import Capture, FixedClock, captured_spans
from mcptrace_proto.schema import InferenceSpan, read_inference


def _view(capture: Capture) -> InferenceSpan:
    capture.provider.force_flush()
    (data,) = capture.spans
    return read_inference(data.attributes)


def _tokens(clock: FixedClock, fail: BaseException | None = None) -> Iterator[str]:
    for item in "abc":
        clock.advance(milliseconds=10)
        assert trace.get_current_span().is_recording()
        yield item
    if fail is not None:
        raise fail


async def _async_tokens(fail: BaseException | None = None) -> AsyncIterator[str]:
    for item in "abc":
        await asyncio.sleep(0)
        assert trace.get_current_span().is_recording()
        yield item
    if fail is not None:
        raise fail


def test_an_exhausted_stream_stops_and_knows_its_first_token() -> None:
    clock = FixedClock()
    with captured_spans(clock=clock) as capture:
        span = capture.tracer.start_inference("m")
        seen = []
        for item in span.wrap_stream(_tokens(clock)):
            assert trace.get_current_span() is trace.INVALID_SPAN
            seen.append(item)
        view = _view(capture)
    assert seen == ["a", "b", "c"]
    assert (view.finish_reason, view.streaming) == ("stop", True)
    assert (view.ttft_ms, view.inference_latency_ms) == (10.0, 30.0)


def test_the_observer_reads_counts_and_reason_off_the_items() -> None:
    def observe(span: Any, item: dict[str, int]) -> None:
        if "usage" in item:
            span.record_tokens(input=2, output=item["usage"])
            span.record_finish_reason("length")

    with captured_spans() as capture:
        span = capture.tracer.start_inference("m")
        items = [{"text": 1}, {"usage": 3}]
        assert list(span.wrap_stream(items, observe)) == items
        view = _view(capture)
    assert (view.finish_reason, view.token_usage.total) == ("length", 5)


def test_an_observer_that_raises_disturbs_nothing() -> None:
    def observe(span: Any, item: str) -> None:
        raise ValueError("observer")

    with captured_spans(reraise=False) as capture:
        span = capture.tracer.start_inference("m")
        assert list(span.wrap_stream("ab", observe)) == ["a", "b"]
        assert _view(capture).finish_reason == "stop"
        assert capture.provider.stats() == {"internal_error": 2}


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("x"), "error"), (TimeoutError("x"), "timeout")]
)
def test_a_stream_that_raises_fails(error: Exception, reason: str) -> None:
    with captured_spans() as capture:
        stream = capture.tracer.start_inference("m").wrap_stream(_tokens(FixedClock(), error))
        with pytest.raises(type(error)):
            list(stream)
        assert _view(capture).finish_reason == reason


def test_leaving_the_loop_early_abandons() -> None:
    with captured_spans() as capture:
        span = capture.tracer.start_inference("m")
        for _ in span.wrap_stream(_tokens(FixedClock())):
            break
        gc.collect()
        assert _view(capture).finish_reason == "abandoned"


def test_closing_abandons_at_once_and_closes_the_source() -> None:
    closed = []

    def source() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    with captured_spans() as capture:
        with capture.tracer.start_inference("m").wrap_stream(source()) as stream:
            next(stream)
        assert closed == [True]
        assert len(capture.spans) == 1
        assert _view(capture).finish_reason == "abandoned"


def test_an_error_in_the_callers_block_is_the_streams_error() -> None:
    with captured_spans() as capture:
        stream = capture.tracer.start_inference("m").wrap_stream(iter("abc"))
        next(stream)
        with pytest.raises(ValueError, match="mine"), stream:
            raise ValueError("mine")
        assert _view(capture).finish_reason == "error"


def test_a_stream_handed_out_of_the_block_ends_the_span_later() -> None:
    def answer(capture: Capture) -> Iterator[str]:
        with capture.tracer.start_inference("m") as span:
            return span.wrap_stream("abc")

    with captured_spans() as capture:
        stream = answer(capture)
        assert trace.get_current_span() is trace.INVALID_SPAN
        assert capture.spans == []
        assert list(stream) == ["a", "b", "c"]
        assert _view(capture).finish_reason == "stop"


def _in_block(capture: Capture, source: Iterator[str]) -> Iterator[str]:
    """What a service does: it reads the stream inside the block, and then knows the counts."""
    with capture.tracer.start_inference("m") as span:
        yield from span.wrap_stream(source)
        span.record_tokens(input=1, output=3)


def test_a_stream_that_ends_inside_the_block_leaves_the_end_to_the_block() -> None:
    with captured_spans() as capture:
        assert list(_in_block(capture, iter("abc"))) == ["a", "b", "c"]
        view = _view(capture)
        assert capture.provider.stats() == {}
    assert (view.finish_reason, view.token_usage.total) == ("stop", 4)


def test_a_reason_given_after_the_stream_inside_the_block_stands() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            list(span.wrap_stream("abc"))
            span.finish("length")
        assert _view(capture).finish_reason == "length"


def test_a_stream_left_early_inside_the_block_is_abandoned_with_what_was_recorded() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            for _ in span.wrap_stream(_tokens(FixedClock())):
                break
            gc.collect()
            span.record_tokens(output=1)
        assert len(capture.spans) == 1
        view = _view(capture)
    assert (view.finish_reason, view.token_usage.output) == ("abandoned", 1)


def test_an_error_of_the_stream_that_leaves_the_block_too_is_one_error() -> None:
    with captured_spans() as capture:
        with pytest.raises(ValueError, match="x"):
            list(_in_block(capture, _tokens(FixedClock(), ValueError("x"))))
        (data,) = capture.spans
        assert [event.name for event in data.events] == ["exception"]
        assert (_view(capture).finish_reason, data.status_code) == ("error", 2)


def test_of_two_streams_the_last_one_ends_the_span() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            one, two = span.wrap_stream("ab"), span.wrap_stream("cd")
        assert list(one) == ["a", "b"]
        assert capture.spans == []
        assert list(two) == ["c", "d"]
        assert _view(capture).finish_reason == "stop"


class _Both:
    """As litellm's streams, which are plain and async in one."""

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __aiter__(self) -> AsyncIterator[str]:
        return _async_tokens()


def test_what_is_plain_and_async_is_plain_unless_asked_for_async() -> None:
    async def consume(stream: Any) -> list[str]:
        return [item async for item in stream]

    with captured_spans() as capture:
        plain: Any = capture.tracer.start_inference("m").wrap_stream(_Both())
        assert list(plain) == ["a", "b"]
        stream = capture.tracer.start_inference("m").wrap_async_stream(_Both())
        assert asyncio.run(consume(stream)) == ["a", "b", "c"]
        assert len(capture.spans) == 2


@pytest.mark.parametrize("method", ["wrap_stream", "wrap_async_stream"])
def test_what_is_no_stream_comes_back_and_the_block_ends_the_span(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard._Switch.next_warning_seconds = 0.0
    thing = object()
    with captured_spans() as capture:
        with capture.tracer.start_inference("m") as span:
            assert getattr(span, method)(thing) is thing
        assert len(capture.spans) == 1
        assert capture.provider.stats() == {"bad_argument": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "mcptrace: span 'chat m': object is no stream, and not traced"
    ]
    with captured_spans(sampler="always_off") as capture:
        assert getattr(capture.tracer.start_inference("m"), method)(thing) is thing


def test_other_attributes_of_the_source_show_through() -> None:
    class Source(list[int]):
        response_id = "r-9"

    with captured_spans() as capture:
        stream = capture.tracer.start_inference("m").wrap_stream(Source([1]))
        assert stream.response_id == "r-9"
        assert not hasattr(stream, "no_such_thing")
        assert list(stream) == [1]


def test_an_exhausted_async_stream_stops() -> None:
    async def consume(capture: Capture) -> list[str]:
        span = capture.tracer.start_inference("m")
        seen = []
        async for item in span.wrap_stream(_async_tokens()):
            assert trace.get_current_span() is trace.INVALID_SPAN
            seen.append(item)
        return seen

    with captured_spans() as capture:
        assert asyncio.run(consume(capture)) == ["a", "b", "c"]
        assert _view(capture).finish_reason == "stop"


@pytest.mark.parametrize("close", [True, False])
def test_an_async_stream_left_early_is_abandoned_without_a_word(
    close: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume(capture: Capture) -> None:
        stream = capture.tracer.start_inference("m").wrap_stream(_async_tokens())
        async for _ in stream:
            break
        if close:
            await stream.aclose()

    with captured_spans() as capture:
        asyncio.run(consume(capture))
        gc.collect()
        assert _view(capture).finish_reason == "abandoned"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("x"), "error"), (TimeoutError("x"), "timeout")]
)
def test_an_async_stream_that_raises_fails(error: Exception, reason: str) -> None:
    async def consume(capture: Capture) -> None:
        span = capture.tracer.start_inference("m")
        async with span.wrap_stream(_async_tokens(error)) as stream:
            async for _ in stream:
                pass

    with captured_spans() as capture:
        with pytest.raises(type(error)):
            asyncio.run(consume(capture))
        assert _view(capture).finish_reason == reason


def test_a_cancelled_consumer_abandons() -> None:
    async def never() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def consume(stream: Any, started: asyncio.Event) -> None:
        async for _ in stream:
            started.set()

    async def run(capture: Capture) -> None:
        started = asyncio.Event()
        stream = capture.tracer.start_inference("m").wrap_stream(never())
        task = asyncio.ensure_future(consume(stream, started))
        await started.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with captured_spans() as capture:
        asyncio.run(run(capture))
        assert _view(capture).finish_reason == "abandoned"
