"""Whatever comes and goes, the batch buffer keeps its limits, its order and its sums."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace.api import FinishedSpan
from mcptrace.batch import BatchBuffer, BatchSettings
from mcptrace_proto.model import Resource, Scope, SpanData

limits = st.builds(
    BatchSettings,
    queue_spans_max=st.integers(1, 6),
    queue_bytes_max=st.integers(1, 60),
    batch_spans_max=st.integers(1, 6),
    batch_bytes_max=st.integers(1, 60),
)
# A number is a span of that size, None takes a batch.
steps = st.lists(st.one_of(st.integers(1, 80), st.none()), max_size=40)


@settings(max_examples=200)
@given(limits, steps)
def test_limits_order_and_sums_always_hold(limits: BatchSettings, steps: list[int | None]) -> None:
    buffer = BatchBuffer(limits)
    model: deque[tuple[FinishedSpan, int]] = deque()
    for step in steps:
        if step is None:
            held_any = bool(model)
            batch = buffer.take()
            expected = [model.popleft() for _ in batch]
            assert [id(span) for span in batch] == [id(span) for span, _ in expected]
            assert len(batch) <= limits.batch_spans_max
            assert len(batch) <= 1 or sum(size for _, size in expected) <= limits.batch_bytes_max
            assert bool(batch) is held_any
        else:
            held = sum(size for _, size in model)
            fits = len(model) < limits.queue_spans_max
            fits = fits and (not model or held + step <= limits.queue_bytes_max)
            span = FinishedSpan(SpanData(), Scope(), Resource())
            assert buffer.put(span, step) is fits
            if fits:
                model.append((span, step))
        assert (len(buffer), buffer.bytes_held) == (len(model), sum(size for _, size in model))
