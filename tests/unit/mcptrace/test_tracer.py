"""Spans find their parents: in blocks, decorators, threads, tasks, and across processes."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from mcptrace import provider
from mcptrace.span import Span
from mcptrace.testing import captured_spans
from mcptrace_proto.sampling.threshold import MAX, ot_threshold


def _by_name(capture: Any) -> dict[str, Any]:
    return {data.name: data for data in capture.spans}


def test_tracers_and_spans_are_those_of_the_api() -> None:
    with captured_spans() as capture:
        assert isinstance(capture.provider, trace.TracerProvider)
        assert isinstance(capture.tracer, Tracer)
        span = capture.tracer.start_span("s")
        assert isinstance(span, trace.Span)
        assert trace.get_current_span() is trace.INVALID_SPAN
        with trace.use_span(span, end_on_exit=True):
            assert trace.get_current_span() is span
        assert trace.get_current_span() is trace.INVALID_SPAN
        assert [data.name for data in capture.spans] == ["s"]


def test_use_span_records_what_leaves_its_block() -> None:
    with captured_spans() as capture:
        with (
            pytest.raises(ValueError, match="out"),
            trace.use_span(capture.tracer.start_span("s"), end_on_exit=True),
        ):
            raise ValueError("out")
        (data,) = capture.spans
        assert (data.status_code, data.status_message) == (2, "ValueError: out")
        assert [event.name for event in data.events] == ["exception"]


def test_scopes_named_at_run_time_are_not_kept_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "TRACERS_MAX", 2)
    with captured_spans() as capture:
        for number in range(4):
            capture.provider.get_tracer(f"lib{number}").start_span(f"{number}").end()
        assert [span.name for span in capture.spans] == ["0", "1", "2", "3"]
        assert len(capture.provider._tracers) == 2


def test_equal_scopes_share_a_tracer() -> None:
    with captured_spans() as capture:
        get = capture.provider.get_tracer
        assert get("a", "1", "url", {"k": 1}) is get("a", "1", "url", {"k": 1})
        assert get("a", "1") is not get("a", "2")
        assert get("a", "1").scope.version == "1"


def test_blocks_nest_and_a_failure_is_recorded_unless_told_otherwise() -> None:
    with captured_spans() as capture:
        start = capture.tracer.start_as_current_span
        with start("root") as root, pytest.raises(ValueError, match="x"):  # noqa: SIM117
            with start("child", record_exception=False, set_status_on_exception=False):
                raise ValueError("x")
        assert isinstance(root, Span)
    spans = _by_name(capture)
    assert spans["child"].parent_span_id == spans["root"].span_id
    assert spans["child"].trace_id == spans["root"].trace_id
    assert (spans["child"].status_code, spans["child"].events) == (0, [])
    assert spans["root"].parent_span_id == b""


def test_an_explicit_context_wins_over_the_current_one() -> None:
    with captured_spans() as capture:
        other = capture.tracer.start_span("other")
        with capture.tracer.start_as_current_span("current"):
            capture.tracer.start_span("child", trace.set_span_in_context(other)).end()
            capture.tracer.start_span("root", context.Context()).end()
        other.end()
    spans = _by_name(capture)
    assert spans["child"].parent_span_id == spans["other"].span_id
    assert spans["root"].parent_span_id == b""


def test_a_span_may_outlive_its_block() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_as_current_span("s", end_on_exit=False) as span:
            pass
        assert (span.is_recording(), capture.spans) == (True, [])
        span.end()
        assert len(capture.spans) == 1


def test_the_block_decorates_functions_and_coroutines() -> None:
    with captured_spans() as capture:

        @capture.tracer.start_as_current_span("sync")
        def double(value: int) -> int:
            return 2 * value

        @capture.tracer.start_as_current_span("async")
        async def triple(value: int) -> int:
            await asyncio.sleep(0)
            assert trace.get_current_span().is_recording()
            return 3 * value

        assert [double(1), double(2), asyncio.run(triple(1))] == [2, 4, 3]
        assert [data.name for data in capture.spans] == ["sync", "sync", "async"]
        assert double.__name__ == "double"


def test_a_plain_span_block_ends_the_span_and_records_the_failure() -> None:
    with captured_spans() as capture:
        with pytest.raises(ValueError, match="x"), capture.tracer.start_span("s"):
            raise ValueError("x")
        (data,) = capture.spans
        assert data.events[0].attributes["exception.type"] == "ValueError"


def test_leaving_in_another_context_is_tolerated(caplog: pytest.LogCaptureFixture) -> None:
    with captured_spans() as capture:
        block = capture.tracer.start_as_current_span("s")
        contextvars.copy_context().run(block.__enter__)
        block.__exit__(None, None, None)
        assert [data.name for data in capture.spans] == ["s"]
    assert caplog.records == []


def test_tasks_of_one_loop_keep_their_own_parents() -> None:
    async def request(tracer: Tracer, number: int) -> None:
        with tracer.start_as_current_span(f"root{number}"):
            await asyncio.sleep(0)
            await asyncio.gather(*(work(tracer, number) for _ in range(3)))

    async def work(tracer: Tracer, number: int) -> None:
        with tracer.start_as_current_span(f"child{number}"):
            await asyncio.sleep(0)

    async def everything(tracer: Tracer) -> None:
        await asyncio.gather(*(request(tracer, number) for number in range(5)))

    with captured_spans() as capture:
        asyncio.run(everything(capture.tracer))
    roots = {data.name: data for data in capture.spans if data.name.startswith("root")}
    children = [data for data in capture.spans if data.name.startswith("child")]
    assert (len(roots), len(children)) == (5, 15)
    for child in children:
        root = roots[child.name.replace("child", "root")]
        assert (child.trace_id, child.parent_span_id) == (root.trace_id, root.span_id)


def test_eight_threads_lose_and_double_nothing() -> None:
    traces, children = 250, 3

    def work(tracer: Tracer) -> None:
        for _ in range(traces):
            with tracer.start_as_current_span("root"):
                for _ in range(children):
                    with tracer.start_as_current_span("child") as span:
                        span.set_attribute("k", 1)

    with captured_spans() as capture:
        threads = [threading.Thread(target=work, args=(capture.tracer,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spans = capture.spans
        assert len(spans) == 8 * traces * (1 + children)
        assert len({data.span_id for data in spans}) == len(spans)
        assert capture.provider.stats() == {}
        assert (capture.provider.traces.spans_held, capture.provider.traces.bytes_held) == (0, 0)


def test_a_trace_travels_with_its_state_and_baggage() -> None:
    with captured_spans() as here, captured_spans() as there:
        carrier: dict[str, str] = {}
        with here.tracer.start_as_current_span("client") as client:
            token = context.attach(baggage.set_baggage("tenant", "blue"))
            propagate.inject(carrier)
            context.detach(token)
        sent = client.get_span_context()
        assert carrier == {
            "traceparent": f"00-{sent.trace_id:032x}-{sent.span_id:016x}-03",
            "tracestate": "ot=th:0",
            "baggage": "tenant=blue",
        }
        received = propagate.extract(carrier)
        assert baggage.get_baggage("tenant", received) == "blue"
        with there.tracer.start_as_current_span("server", received):
            pass
    (client_data,), (server_data,) = here.spans, there.spans
    assert server_data.trace_id == client_data.trace_id
    assert server_data.parent_span_id == client_data.span_id
    assert (client_data.flags, server_data.flags) == (0x103, 0x303)


def test_the_flag_sent_downstream_agrees_with_the_threshold_sent() -> None:
    with captured_spans(sampler="traceidratio", sampler_arg=0.25) as capture:
        sampled = 0
        for _ in range(400):
            sent = capture.tracer.start_span("s").get_span_context()
            applied = ot_threshold(sent.trace_state.to_header())
            assert sent.trace_flags.sampled == (applied is not None)
            assert sent.trace_flags.random_trace_id
            if applied is not None:
                assert sent.trace_id % MAX >= applied
                sampled += 1
    assert 50 < sampled < 150


def test_a_child_without_the_random_flag_does_not_claim_it() -> None:
    remote = SpanContext(1 << 100, 5, True, TraceFlags(1), TraceState())
    with captured_spans() as capture:
        parent = trace.set_span_in_context(NonRecordingSpan(remote))
        span = capture.tracer.start_span("s", parent)
        assert span.get_span_context().trace_flags == TraceFlags.SAMPLED


def test_an_ended_parent_still_is_a_parent() -> None:
    with captured_spans() as capture:
        parent = capture.tracer.start_span("parent")
        parent.end()
        capture.tracer.start_span("child", trace.set_span_in_context(parent)).end()
    spans = _by_name(capture)
    assert spans["child"].parent_span_id == spans["parent"].span_id


def test_a_disabled_sdk_records_nothing_and_still_answers() -> None:
    with captured_spans(disabled=True) as capture:
        with capture.tracer.start_as_current_span("s") as span:
            assert span.is_recording() is False
        with capture.tracer.start_inference("m") as inference:
            inference.record_tokens(input=1)
            assert list(inference.wrap_stream([1, 2])) == [1, 2]
        inference.set_status(StatusCode.ERROR)
        assert capture.spans == []


def test_after_shutdown_spans_are_not_recorded() -> None:
    with captured_spans() as capture:
        live = capture.tracer.start_span("live")
        capture.provider.shutdown()
        assert capture.tracer.start_span("late").is_recording() is False
        live.end()
        assert capture.spans == []
        assert capture.provider.stats() == {"already_shutdown": 1}
