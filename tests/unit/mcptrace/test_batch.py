from __future__ import annotations

import sys
from collections.abc import Callable

from mcptrace.api import FinishedSpan
from mcptrace.batch import (
    ATTRIBUTE_BYTES,
    EVENT_BYTES,
    ITEM_BYTES,
    LINK_BYTES,
    SPAN_BYTES,
    BatchBuffer,
    BatchSettings,
    estimated_bytes,
)
from mcptrace_proto.model import Event, Link, SpanData

Make = Callable[..., FinishedSpan]


def test_full_buffer_refuses_the_newest(finished: Make) -> None:
    buffer = BatchBuffer(BatchSettings(queue_spans_max=2))
    spans = [finished(str(number)) for number in range(3)]
    assert [buffer.put(span, 10) for span in spans] == [True, True, False]
    assert (buffer.take(), len(buffer), buffer.bytes_held) == (spans[:2], 0, 0)


def test_buffer_is_bounded_in_bytes_but_takes_one_large_span(finished: Make) -> None:
    buffer = BatchBuffer(BatchSettings(queue_bytes_max=100))
    assert [buffer.put(finished(), size) for size in (500, 1)] == [True, False]
    assert len(buffer.take()) == 1
    assert [buffer.put(finished(), size) for size in (60, 40, 1)] == [True, True, False]
    assert buffer.bytes_held == 100


def test_batches_are_bounded_in_spans_and_bytes_and_keep_the_order(finished: Make) -> None:
    buffer = BatchBuffer(BatchSettings(batch_spans_max=3, batch_bytes_max=100))
    spans = [finished(str(number)) for number in range(6)]
    for span, size in zip(spans, (10, 10, 10, 90, 20, 500), strict=True):
        buffer.put(span, size)
    batches = [buffer.take() for _ in range(5)]
    assert batches == [spans[:3], [spans[3]], [spans[4]], [spans[5]], []]


def test_batch_is_due_when_spans_or_bytes_fill_one(finished: Make) -> None:
    buffer = BatchBuffer(BatchSettings(batch_spans_max=2, batch_bytes_max=100))
    assert not buffer.batch_is_due()
    buffer.put(finished(), 99)
    assert not buffer.batch_is_due()
    buffer.put(finished(), 1)
    assert buffer.batch_is_due()
    assert buffer.clear() == 2
    buffer.put(finished(), 100)
    assert buffer.batch_is_due()


def test_clear_says_how_many_it_threw_away(finished: Make) -> None:
    buffer = BatchBuffer(BatchSettings())
    buffer.put(finished(), 5)
    assert (buffer.clear(), len(buffer), buffer.bytes_held, buffer.clear()) == (1, 0, 0, 0)


def test_estimate_is_no_less_than_what_texts_and_numbers_take() -> None:
    wide = "\U0001f600" * 1000
    assert estimated_bytes(SpanData(attributes={"t": wide})) > SPAN_BYTES + 4000
    numbers = [float(number) for number in range(1000)]
    size = 8 * len(numbers) + sum(map(sys.getsizeof, numbers))
    assert estimated_bytes(SpanData(attributes={"n": list(numbers)})) > size


def test_estimate_counts_text_wherever_it_is() -> None:
    assert estimated_bytes(SpanData()) == SPAN_BYTES
    text = "x" * 1000
    assert estimated_bytes(SpanData(name=text, status_message=text)) == SPAN_BYTES + 2000
    attributes = {"a": text, "b": text.encode(), "c": [text, [text]], "d": {"e": text}, "f": 1}
    names = len("abcde") + len("f")
    content = 5000 + names + ITEM_BYTES * 3 + ATTRIBUTE_BYTES
    held = 5 * ATTRIBUTE_BYTES + content
    assert estimated_bytes(SpanData(attributes=attributes)) == SPAN_BYTES + held
    events = [Event(attributes=attributes)]
    assert estimated_bytes(SpanData(events=events)) == SPAN_BYTES + EVENT_BYTES + held
    named = [Event(name=text)]
    assert estimated_bytes(SpanData(events=named)) == SPAN_BYTES + EVENT_BYTES + 1000
    links = [Link(attributes=attributes)]
    assert estimated_bytes(SpanData(links=links)) == SPAN_BYTES + LINK_BYTES + held
