"""Local traces: one verdict, nothing lost, nothing unbounded."""

from __future__ import annotations

import gc
import threading
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import StatusCode

from mcptrace.testing import captured_spans

ADJUSTED = "mcptrace.sampling.adjusted_count"
REASON = "mcptrace.sampling.reason"


def _never(**config: Any) -> Any:
    """Captures with a probability so small that only critical traces are kept."""
    return captured_spans(sampler="traceidratio", sampler_arg=1e-12, **config)


def test_children_wait_for_their_root() -> None:
    with captured_spans() as capture:
        with capture.tracer.start_as_current_span("root"):
            capture.tracer.start_span("child").end()
            assert capture.spans == []
            assert capture.provider.traces.spans_held == 1
        assert [data.name for data in capture.spans] == ["child", "root"]
        assert capture.provider.traces.spans_held == 0


def test_one_error_anywhere_keeps_the_whole_trace() -> None:
    with _never() as capture:
        with capture.tracer.start_as_current_span("root"):
            capture.tracer.start_span("fine").end()
            with capture.tracer.start_span("broken") as broken:
                broken.set_status(StatusCode.ERROR)
        assert [(data.name, data.attributes[REASON]) for data in capture.spans] == [
            ("fine", "error"),
            ("broken", "error"),
            ("root", "error"),
        ]


def test_a_trace_that_is_dropped_is_counted_span_by_span() -> None:
    with _never() as capture:
        with capture.tracer.start_as_current_span("root"):
            capture.tracer.start_span("child").end()
        assert (capture.spans, capture.provider.stats()) == ([], {"sampled_out": 2})


def test_a_child_that_ends_after_its_root_follows_the_verdict() -> None:
    for sampler, names, counts in (
        ("always_on", ["root", "late"], {}),
        ("never", [], {"sampled_out": 2}),
    ):
        with captured_spans() if sampler == "always_on" else _never() as capture:
            with capture.tracer.start_as_current_span("root"):
                late = capture.tracer.start_span("late")
            late.end()
            assert [data.name for data in capture.spans] == names
            assert capture.provider.stats() == counts


def test_a_late_error_is_kept_though_its_trace_was_dropped() -> None:
    with _never() as capture:
        with capture.tracer.start_as_current_span("root") as root:
            late = capture.tracer.start_span("late")
        late.set_status(StatusCode.ERROR)
        late.end()
        capture.tracer.start_span("later", trace.set_span_in_context(root)).end()
        assert [(data.name, data.attributes[REASON]) for data in capture.spans] == [
            ("late", "error"),
            ("later", "error"),
        ]


def test_a_trace_over_its_bound_is_decided_early_and_goes_on() -> None:
    with captured_spans(local_trace_spans_max=10) as capture:
        with capture.tracer.start_as_current_span("root"):
            for number in range(25):
                capture.tracer.start_span(f"child{number}").end()
                assert capture.provider.traces.spans_held <= 10
        assert len(capture.spans) == 26
        assert capture.provider.stats() == {"local_trace_decided_early": 1}


def test_all_traces_together_are_bounded_in_bytes() -> None:
    with captured_spans(local_traces_bytes_max=10_000) as capture:
        roots = [capture.tracer.start_span(f"root{number}") for number in range(20)]
        for root in roots:
            parent = trace.set_span_in_context(root)
            capture.tracer.start_span("child", parent, attributes={"text": "x" * 2000}).end()
            assert capture.provider.traces.bytes_held <= 10_000
        for root in roots:
            root.end()
        assert len(capture.spans) == 40
        assert capture.provider.stats()["local_trace_decided_early"] > 0
        assert capture.provider.traces.bytes_held == 0


def test_a_root_that_never_ends_does_not_take_its_children_along() -> None:
    with captured_spans() as capture:
        root = capture.tracer.start_span("root")
        capture.tracer.start_span("child", trace.set_span_in_context(root)).end()
        del root
        gc.collect()
        capture.provider.force_flush()
        assert [data.name for data in capture.spans] == ["child"]
        assert capture.provider.stats() == {"root_never_ended": 1}


def test_shutdown_decides_what_is_still_waiting() -> None:
    with captured_spans() as capture:
        root = capture.tracer.start_span("root")
        capture.tracer.start_span("child", trace.set_span_in_context(root)).end()
        capture.provider.shutdown()
        assert [data.name for data in capture.spans] == ["child"]
        assert capture.provider.stats() == {"undecided_at_shutdown": 1}


def test_children_on_other_threads_are_neither_lost_nor_doubled() -> None:
    """Children end while their roots do, from four threads."""
    rounds, children = 100, 4
    with captured_spans() as capture:
        for number in range(rounds):
            root = capture.tracer.start_span(f"root{number}")
            parent = trace.set_span_in_context(root)
            barrier = threading.Barrier(children + 1)

            def work(parent: Any = parent, barrier: Any = barrier) -> None:
                span = capture.tracer.start_span("child", parent)
                barrier.wait()
                span.end()

            threads = [threading.Thread(target=work) for _ in range(children)]
            for thread in threads:
                thread.start()
            barrier.wait()
            root.end()
            for thread in threads:
                thread.join()
        spans = capture.spans
        assert len(spans) == rounds * (children + 1)
        assert len({data.span_id for data in spans}) == len(spans)
        assert capture.provider.traces.spans_held == 0
