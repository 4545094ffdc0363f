"""The bounded buffer between the threads that end spans and the one that exports them.

Pure: no clock, no thread, no lock.  Whoever calls it sees to it that one thread at a time
does.  Sizes are estimates of what a span holds in memory, in bytes.

Always true:
  * ``len(buffer)`` and ``buffer.bytes_held`` never pass the limits of the settings, except
    that one span alone may be larger than ``queue_bytes_max``;
  * spans leave in the order in which they came; a full buffer refuses the newest.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from mcptrace.api import FinishedSpan
from mcptrace_proto.model import SpanData

# What the records themselves take, measured on CPython 3.11 and rounded up.
SPAN_BYTES = 700
ATTRIBUTE_BYTES = 100
EVENT_BYTES = 400
LINK_BYTES = 300
ITEM_BYTES = 32  # of a list: the reference and a number


@dataclass(slots=True, frozen=True)
class BatchSettings:
    """Limits of one batch processor.  The defaults are those of the OpenTelemetry SDK."""

    schedule_delay_seconds: float = 5.0
    export_timeout_seconds: float = 30.0
    shutdown_timeout_seconds: float = 5.0
    queue_spans_max: int = 2048
    queue_bytes_max: int = 64 * 1024 * 1024
    batch_spans_max: int = 512
    batch_bytes_max: int = 3_500_000


class BatchBuffer:
    """Spans waiting for export, bounded in number and bytes."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._spans: deque[tuple[FinishedSpan, int]] = deque()
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._spans)

    def put(self, span: FinishedSpan, size: int) -> bool:
        """Take a span of ``size`` estimated bytes; False when there is no room for it."""
        settings = self._settings
        if len(self._spans) >= settings.queue_spans_max:
            return False
        if self._spans and self.bytes_held + size > settings.queue_bytes_max:
            return False
        self._spans.append((span, size))
        self.bytes_held += size
        return True

    def batch_is_due(self) -> bool:
        """Whether enough is held to fill a batch."""
        settings = self._settings
        return (
            len(self._spans) >= settings.batch_spans_max
            or self.bytes_held >= settings.batch_bytes_max
        )

    def take(self) -> list[FinishedSpan]:
        """Remove and return the oldest spans, one batch at most; empty when nothing is held."""
        batch: list[FinishedSpan] = []
        batch_bytes = 0
        while self._spans and len(batch) < self._settings.batch_spans_max:
            span, size = self._spans[0]
            if batch and batch_bytes + size > self._settings.batch_bytes_max:
                break
            self._spans.popleft()
            self.bytes_held -= size
            batch.append(span)
            batch_bytes += size
        return batch

    def clear(self) -> int:
        """Throw everything away; returns how many spans that were."""
        count = len(self._spans)
        self._spans.clear()
        self.bytes_held = 0
        return count


def estimated_bytes(span: SpanData) -> int:
    """About how much memory a span holds.  Cheap: no text is encoded, only measured."""
    total = SPAN_BYTES + _text_bytes(span.name) + _text_bytes(span.status_message)
    total += ATTRIBUTE_BYTES * len(span.attributes) + _content_bytes(span.attributes)
    for event in span.events:
        total += EVENT_BYTES + _text_bytes(event.name) + ATTRIBUTE_BYTES * len(event.attributes)
        total += _content_bytes(event.attributes)
    for link in span.links:
        total += LINK_BYTES + ATTRIBUTE_BYTES * len(link.attributes)
        total += _content_bytes(link.attributes)
    return total


def _content_bytes(attributes: Mapping[str, object]) -> int:
    """Sizes of names, texts, bytes and everything inside lists and maps."""
    total = 0
    pending: list[object] = []
    for name, value in attributes.items():
        total += len(name)
        if type(value) is str:  # what nearly all of them are, measured without a call
            total += len(value) if value.isascii() else sys.getsizeof(value)
        elif isinstance(value, (str, bytes, list, tuple, dict)):
            pending.append(value)
    while pending:
        value = pending.pop()
        if isinstance(value, (str, bytes)):
            total += _text_bytes(value)
        elif isinstance(value, dict):
            total += ATTRIBUTE_BYTES * len(value) + sum(map(len, value))
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            total += ITEM_BYTES * len(value)
            pending.extend(value)
    return total


def _text_bytes(text: str | bytes) -> int:
    """One byte a character, but up to four in memory where a text is not ASCII."""
    plain = isinstance(text, bytes) or text.isascii()
    return len(text) if plain else sys.getsizeof(text)
