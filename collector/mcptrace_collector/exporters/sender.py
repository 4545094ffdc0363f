"""One destination's delivery: take from its queue, send, and release after the answer.

    queue ──take──▶ [batch][batch]…  up to in_flight_max at once ──answer──▶ release

Serialised requests concatenate, so a batch is the queue's bodies end to end.

Always true: an item leaves the queue only after the receiver's final word on it; one dead
destination delays nobody else; a batch refused as too large is halved until it fits or is
a single item.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcptrace_collector.clock import Clock, Seldom
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_collector.pipeline import DeliveryQueue, Exporter, QueueItem
from mcptrace_proto.retry import backoff_delays

log = logging.getLogger(__name__)

# Reasons for spans that a destination did not get.
REJECTED = "rejected"  # partial success: the receiver refused these spans
PERMANENT = "permanent"
TOO_LARGE = "too_large"
RETRY_EXHAUSTED = "retry_exhausted"

AFTER_SECONDS_MAX = 300.0  # a destination's own delay is honoured up to here


@dataclass(slots=True, frozen=True)
class SenderSettings:
    """``retry_elapsed_max_seconds`` 0 retries for ever."""

    batch_spans_max: int = 2000
    batch_bytes_max: int = 3 * 1024 * 1024
    in_flight_max: int = 4
    retry_initial_seconds: float = 1.0
    retry_max_seconds: float = 30.0
    retry_elapsed_max_seconds: float = 0.0


class Sender:
    """Runs as one task per destination; ``wake`` after each commit that filled the queue."""

    def __init__(
        self,
        destination: str,
        exporter: Exporter,
        queue: DeliveryQueue,
        clock: Clock,
        settings: SenderSettings,
        *,
        attempted: Callable[[str, str], None] = lambda destination, outcome: None,
    ) -> None:
        self.destination = destination
        self._exporter = exporter
        self._queue = queue
        self._clock = clock
        self._settings = settings
        self._attempted = attempted
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.in_flight_max)
        self._deliveries: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._cursor = 0
        self._lines = Seldom(clock)

    async def start(self) -> None:
        await self._exporter.start()
        self._task = asyncio.create_task(self._run(), name=f"sender {self.destination}")

    def wake(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def shutdown(self, timeout_seconds: float) -> bool:
        """Send what is queued within the deadline; False when something had to stay.

        Without a ``start`` there is nothing to wait for.
        """
        if self._task is None:
            await self._exporter.shutdown()
            return False
        self.wake()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
            drained = True
        except asyncio.TimeoutError:
            drained = False
        tasks = [self._task, *self._deliveries]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exporter.shutdown()
        return drained

    async def _run(self) -> None:
        while True:
            await self._slots.acquire()
            batch = await self._next_batch()
            self._cursor = batch[-1].position
            delivery = asyncio.create_task(self._deliver(batch))
            self._deliveries.add(delivery)
            delivery.add_done_callback(self._delivered)

    def _delivered(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.discard(delivery)
        self._slots.release()
        if not delivery.cancelled() and (fault := delivery.exception()) is not None:
            # The items stay on the queue and are sent again after a restart.
            log.error("a delivery to %s failed: %r", self.destination, fault)
        self._wake.set()

    async def _next_batch(self) -> list[QueueItem]:
        while True:
            self._wake.clear()
            settings = self._settings
            try:
                batch = await self._queue.take(
                    self.destination,
                    self._cursor,
                    settings.batch_spans_max,
                    settings.batch_bytes_max,
                )
            except Retryable as later:
                await asyncio.sleep(later.after_seconds)
                continue
            if batch:
                return batch
            if not self._deliveries:
                self._idle.set()
            await self._wake.wait()

    async def _deliver(self, batch: Sequence[QueueItem]) -> None:
        spans = sum(item.spans for item in batch)
        body = b"".join(item.body for item in batch)
        failed: dict[str, int] = {}
        try:
            rejected = await self._send(body, spans)
            if rejected:
                failed[REJECTED] = min(rejected, spans)
        except RequestTooLarge as refusal:
            if len(batch) > 1:
                half = len(batch) // 2
                await self._deliver(batch[:half])
                await self._deliver(batch[half:])
                return
            failed[TOO_LARGE] = spans
            self._say("refused %d spans as too large: %s", spans, refusal)
        except Permanent as refusal:
            failed[PERMANENT] = spans
            self._say("refused %d spans for good: %s", spans, refusal)
        except Retryable as last:
            failed[RETRY_EXHAUSTED] = spans
            self._say("did not take %d spans in time: %s", spans, last)
        await self._release(batch, failed)

    async def _send(self, body: bytes, spans: int) -> int:
        """Send until an answer is final.  Raises Permanent, or Retryable past the elapsed limit."""
        settings = self._settings
        delays: Iterator[float] = backoff_delays(
            settings.retry_initial_seconds, 2.0, settings.retry_max_seconds
        )
        started = self._clock.monotonic()
        for delay in delays:
            try:
                rejected = await self._exporter.export(body, spans)
            except Permanent:
                self._attempted(self.destination, "permanent")
                raise
            except Retryable as later:
                self._attempted(self.destination, "retryable")
                wait = max(delay, min(later.after_seconds, AFTER_SECONDS_MAX))
                elapsed = self._clock.monotonic() - started + wait
                if 0 < settings.retry_elapsed_max_seconds < elapsed:
                    raise
                self._say("is not taking spans, trying again: %s", later)
                await asyncio.sleep(wait)
            else:
                self._attempted(self.destination, "success")
                return rejected
        raise AssertionError("backoff_delays is endless")

    async def _release(self, batch: Sequence[QueueItem], failed: dict[str, int]) -> None:
        while True:
            try:
                await self._queue.release(self.destination, batch, failed)
                return
            except Retryable as later:
                await asyncio.sleep(later.after_seconds)

    def _say(self, message: str, *args: object) -> None:
        """One line a minute, however often it happens; the metrics have the counts."""
        if self._lines.due():
            log.warning("destination %s " + message, self.destination, *args)  # noqa: G003
