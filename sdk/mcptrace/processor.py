"""The batch processor: from the threads that end spans to the exporter, on one thread of ours.

    on_end ──▶ buffer (bounded) ──▶ worker ──▶ exporter.export(batch, deadline)
      │ full: newest dropped          │ wakes on a full batch, a flush, or the delay
      └ lock busy: contended ─────────┘ merges what came while the lock was busy

It knows nothing of the wire, nor of sampling: whatever arrives is to be exported.

Always true:
  * ``on_end`` takes no lock that it would have to wait for and raises nothing;
  * the thread starts with the first span, is a daemon, and never outlives ``shutdown`` by
    holding it up; after a fork the child has its own thread, buffer and counts;
  * every span taken is counted once: exported, or dropped with its reason.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress

from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY as SUPPRESS_INSTRUMENTATION
from opentelemetry.context import Context
from opentelemetry.trace import Span

from mcptrace import process_exit
from mcptrace.api import ENCODE, OVERSIZE, ExportOutcome, ExportResult, FinishedSpan, SpanExporter
from mcptrace.batch import BatchBuffer, BatchSettings, estimated_bytes
from mcptrace.guard import Counters, guard

logger = logging.getLogger("mcptrace")

EXPORTED = "exported"
QUEUE_FULL = "queue_full"
AFTER_SHUTDOWN = "shutdown"
PARTIAL_REJECTED = "partial_rejected"
LOSSES = (
    QUEUE_FULL,
    AFTER_SHUTDOWN,
    PARTIAL_REJECTED,
    ExportOutcome.REJECTED.value,
    ExportOutcome.EXHAUSTED.value,
    ENCODE,
    OVERSIZE,
)
"""Why a span that was to be exported was not."""

CONTENDED_SPANS_MAX = 256
"""Spans that may wait beside the buffer while another thread holds its lock."""
DELAY_SECONDS_MIN = 0.01
GRACE_SECONDS_MAX = 0.5
"""The part of a shutdown's time that is left for an interrupted export to return."""
LOCK_SECONDS_MAX = 0.1
"""How long a shutdown waits for the lock before it goes on without."""


class BatchProcessor:
    """A SpanProcessor that exports in batches.

    ``counters`` may be shared; spans exported and lost (LOSSES) are counted there.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        settings: BatchSettings | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._exporter = exporter
        self._settings = settings or BatchSettings()
        self.counters = counters or Counters()
        self._closed = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            _reset_in_children(weakref.ref(self))

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._buffer = BatchBuffer(self._settings)
        self._contended: deque[tuple[FinishedSpan, int]] = deque()
        self._lock = threading.Lock()
        # A lock as a bell: C code only, so that a span ended by a finalizer may ring it too.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._flushes: deque[threading.Lock] = deque()
        self._thread: threading.Thread | None = None
        self._stop_at: float | None = None
        self._in_flight = 0
        self._abandoned = False

    def reset_in_child(self) -> None:
        """The parent's spans are the parent's to send; its thread and its locks are not here."""
        self._reset()
        self.counters.reset_after_fork()

    # --- on the caller's thread -----------------------------------------------------------

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        return None

    def on_end(self, span: FinishedSpan) -> None:
        with guard("batch processor", self.counters):
            if self._pid != os.getpid():  # forked by C code, which runs no Python hooks
                self.reset_in_child()
            if self._closed:
                self.counters.add(AFTER_SHUTDOWN)
                return
            size = span.bytes_estimated or estimated_bytes(span.data)
            if self._lock.acquire(blocking=False):
                try:
                    self._admit(span, size)
                finally:
                    self._lock.release()
            elif len(self._contended) < CONTENDED_SPANS_MAX:
                self._contended.append((span, size))
                if self._abandoned:  # a shutdown ended in between and will not look again
                    self._give_up()
            else:
                self.counters.add(QUEUE_FULL)

    def _admit(self, span: FinishedSpan, size: int) -> None:
        """Put a span into the buffer, after those that came while the lock was busy."""
        if self._abandoned:
            self.counters.add(AFTER_SHUTDOWN)
            return
        if self._contended:
            self._merge_contended()
        if not self._buffer.put(span, size):
            self.counters.add(QUEUE_FULL)
        if self._thread is None or not self._thread.is_alive():
            self._start_thread()
        if self._buffer.batch_is_due():
            self._ring()

    def _merge_contended(self) -> None:
        while self._contended:
            if not self._buffer.put(*self._contended.popleft()):
                self.counters.add(QUEUE_FULL)

    def _start_thread(self) -> None:
        process_exit.call_at_exit(self._exit)
        thread = threading.Thread(target=self._run, name="mcptrace-export", daemon=True)
        # At the interpreter's end no thread can start: shutdown drains on its own thread then.
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _ring(self) -> None:
        if self._bell.locked():
            with suppress(RuntimeError):  # somebody rang in between
                self._bell.release()

    def force_flush(self, timeout_seconds: float) -> bool:
        """Export everything taken so far; False when ``timeout_seconds`` passed first."""
        if self._pid != os.getpid():
            self.reset_in_child()
        thread = self._thread
        if self._closed or thread is None or not thread.is_alive():
            return len(self._buffer) + len(self._contended) == 0
        done = threading.Lock()
        done.acquire()
        self._flushes.append(done)
        self._ring()
        return done.acquire(timeout=max(0.0, timeout_seconds))

    def shutdown(self, timeout_seconds: float | None = None) -> None:
        """Flush and stop within ``timeout_seconds`` (default: the settings'), then say what was
        lost.  Once only; later calls return at once.
        """
        if self._pid != os.getpid():
            self.reset_in_child()
        if self._closed:
            return
        self._closed = True
        process_exit.forget(self._exit)
        if timeout_seconds is None:
            timeout_seconds = self._settings.shutdown_timeout_seconds
        grace = min(GRACE_SECONDS_MAX, timeout_seconds * 0.2)
        self._stop_at = time.monotonic() + timeout_seconds - grace
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._ring()
            thread.join(timeout_seconds - grace)
            interrupted = thread.is_alive()
            self._exporter.shutdown()
            if interrupted:
                thread.join(grace)
        else:
            self._drain(len(self._buffer) + len(self._contended))
            self._exporter.shutdown()
        self._give_up()
        self._report()

    def _exit(self) -> None:
        with guard("exit", self.counters):
            self.shutdown()

    def _give_up(self) -> None:
        """Count what is still here; whatever the worker does from now on counts no more."""
        # Not for ever: in a signal handler the frame that holds the lock is our own caller's.
        locked = self._lock.acquire(timeout=LOCK_SECONDS_MAX)
        try:
            self._abandoned = True
            lost = self._in_flight + self._buffer.clear()
            self._in_flight = 0
            with suppress(IndexError):
                while True:
                    self._contended.popleft()
                    lost += 1
        finally:
            if locked:
                self._lock.release()
        if lost:
            self.counters.add(AFTER_SHUTDOWN, lost)

    def _report(self) -> None:
        counts = self.counters.snapshot()
        exported = counts.get(EXPORTED, 0)
        lost = [f"{reason} {counts[reason]}" for reason in LOSSES if reason in counts]
        if lost:
            logger.warning(
                "mcptrace: %d spans exported; not exported: %s", exported, ", ".join(lost)
            )
        else:
            logger.debug("mcptrace: %d spans exported, none lost", exported)

    # --- on the worker's thread -----------------------------------------------------------

    def _run(self) -> None:
        delay = max(DELAY_SECONDS_MIN, self._settings.schedule_delay_seconds)
        while True:
            rung = self._bell.acquire(timeout=delay)
            flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
            stopping = self._stop_at is not None
            held = len(self._buffer) + len(self._contended)
            self._drain(held if flushes or stopping or not rung else 0)
            for done in flushes:
                done.release()
            if stopping:
                return

    def _drain(self, spans: int) -> None:
        """Export the ``spans`` oldest spans, and then whatever fills whole batches."""
        while True:
            with self._lock:
                self._merge_contended()
                if spans <= 0 and not self._buffer.batch_is_due():
                    return
                if self._stop_at is not None and time.monotonic() >= self._stop_at:
                    return
                batch = self._buffer.take()
                if not batch:
                    return
                self._in_flight = len(batch)
            spans -= len(batch)
            self._export(batch)

    def _export(self, batch: list[FinishedSpan]) -> None:
        deadline = self._settings.export_timeout_seconds
        if self._stop_at is not None:
            deadline = min(deadline, max(0.0, self._stop_at - time.monotonic()))
        result: object = None
        # What an exporter's own transport does must not be traced, or it would never end.
        token = context_api.attach(context_api.set_value(SUPPRESS_INSTRUMENTATION, True))
        try:
            with guard("exporter", self.counters):
                result = self._exporter.export(batch, deadline)
                if not isinstance(result, ExportResult):
                    raise TypeError(f"export returned {result!r}, which is no ExportResult")
        finally:  # also where the exporter ends this thread by SystemExit
            context_api.detach(token)
            self._settle(result, len(batch))

    def _settle(self, result: object, spans: int) -> None:
        with self._lock:
            if self._abandoned:
                return
            self._in_flight = 0
        if not isinstance(result, ExportResult):
            result = ExportResult(ExportOutcome.REJECTED, message="the exporter failed")
        count_result(self.counters, result, spans)


def count_result(counters: Counters, result: ExportResult, spans: int) -> None:
    """Add what became of a batch of ``spans`` spans; each is counted once."""
    for reason, count in result.dropped.items():
        counters.add(reason, count)
        spans -= count
    if result.outcome is not ExportOutcome.DELIVERED:
        if spans > 0:
            counters.add(result.outcome.value, spans)
        return
    refused = min(max(0, result.rejected_spans), max(0, spans))
    if refused:
        counters.add(PARTIAL_REJECTED, refused)
    if spans > refused:
        counters.add(EXPORTED, spans - refused)


def _reset_in_children(processor: weakref.ref[BatchProcessor]) -> None:
    """Reset a processor in every child that is forked while it lives."""

    def reset() -> None:
        alive = processor()
        if alive is not None:
            alive.reset_in_child()

    os.register_at_fork(after_in_child=reset)
