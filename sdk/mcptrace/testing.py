"""For tests: fixed time, seeded ids, and spans collected in memory instead of sent.

    with captured_spans() as capture:
        capture.tracer.start_span("work").end()
    assert [span.name for span in capture.spans] == ["work"]

Inside ``captured_spans`` the SDK's guard raises what it would swallow in production.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span

from mcptrace import guard
from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan
from mcptrace.clock import Clock
from mcptrace.config import load_config
from mcptrace.provider import TracerProvider
from mcptrace.tracer import Tracer
from mcptrace_proto.model import SpanData

MEMORY_SPANS_MAX = 100_000
EPOCH_NS = 1_700_000_000_000_000_000


class InMemoryExporter:
    """A SpanExporter that keeps the first MEMORY_SPANS_MAX spans and counts the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[FinishedSpan] = []
        self.refused = 0

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        with self._lock:
            room = MEMORY_SPANS_MAX - len(self._spans)
            self._spans.extend(spans[:room])
            refused = max(0, len(spans) - room)
            self.refused += refused
        return ExportResult(ExportOutcome.DELIVERED, rejected_spans=refused)

    def shutdown(self) -> None:
        """Keeps what it has."""

    @property
    def finished(self) -> list[FinishedSpan]:
        with self._lock:
            return list(self._spans)

    @property
    def spans(self) -> list[SpanData]:
        return [span.data for span in self.finished]

    def clear(self) -> None:
        with self._lock:
            self._spans.clear()


class ImmediateProcessor:
    """A SpanProcessor that exports every span at once, on the thread that ended it."""

    def __init__(self, exporter: InMemoryExporter) -> None:
        self._exporter = exporter

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        """Nothing to do."""

    def on_end(self, span: FinishedSpan) -> None:
        self._exporter.export((span,), 0.0)

    def force_flush(self, timeout_seconds: float) -> bool:
        return True

    def shutdown(self, timeout_seconds: float) -> None:
        self._exporter.shutdown()


class FixedClock(Clock):
    """Time that stands still until ``advance`` moves it; both clocks move together."""

    __slots__ = ("_now",)

    def __init__(self, wall_ns: int = EPOCH_NS) -> None:
        now = [wall_ns]
        super().__init__(lambda: now[0], lambda: now[0])
        object.__setattr__(self, "_now", now)

    def advance(self, seconds: float = 0.0, milliseconds: float = 0.0) -> None:
        now: list[int] = object.__getattribute__(self, "_now")
        now[0] += round(seconds * 1e9 + milliseconds * 1e6)


class SeededIds:
    """Ids that are the same in every run, and still spread over all bits."""

    def __init__(self, seed: int = 1) -> None:
        self._lock = threading.Lock()
        self._state = seed

    def span_id(self) -> int:
        """The SplitMix64 sequence (Steele, Lea, Flood 2014): uniform and without repeats."""
        mask = (1 << 64) - 1
        with self._lock:
            self._state = (self._state + 0x9E3779B97F4A7C15) & mask
            word = self._state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return (word ^ (word >> 31)) or 1

    def trace_id(self) -> int:
        return self.span_id() << 64 | self.span_id()

    def reset_after_fork(self) -> None:
        """Tests that fork want to see the same ids."""


class Capture:
    """A provider whose spans end up in ``exporter``."""

    def __init__(self, provider: TracerProvider, exporter: InMemoryExporter) -> None:
        self.provider = provider
        self.exporter = exporter
        self.tracer: Tracer = provider.get_tracer("mcptrace.testing")

    @property
    def spans(self) -> list[SpanData]:
        return self.exporter.spans


@contextmanager
def captured_spans(
    *,
    sampler: Any = None,
    processors: Sequence[Any] = (),
    span_filter: Any = None,
    clock: Clock | None = None,
    ids: Any = None,
    reraise: bool = True,
    **config: Any,
) -> Iterator[Capture]:
    """A provider with an in-memory exporter; keeps everything unless told otherwise.

    No environment is read and the global provider is left alone.
    """
    arguments = {"sampler": "always_on", "traces_exporter": "none", **config}
    if isinstance(sampler, str):
        arguments["sampler"], sampler = sampler, None
    exporter = InMemoryExporter()
    before = guard.reraise_in_tests(reraise)
    provider = TracerProvider(
        load_config(arguments, {}),
        sampler=sampler,
        processors=(*processors, ImmediateProcessor(exporter)),
        span_filter=span_filter,
        clock=clock,
        ids=ids,
    )
    try:
        yield Capture(provider, exporter)
    finally:
        provider.shutdown()
        guard.reraise_in_tests(before)
