"""The one send path of OTLP: encode, split, send, wait, send again, until a deadline.

What differs between HTTP and gRPC is a Transport: it sends a body once and says in four
words what the receiver answered.  Here is what follows from that.

Always true:
  * ``export`` returns before its deadline, or soon after ``shutdown``;
  * an answer that the specification calls permanent is never sent again; "too large" and
    what cannot be encoded is split in two until the one span that is at fault is alone;
  * at most one line a minute is logged, whatever the receiver does.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mcptrace.api import ENCODE, OVERSIZE, ExportOutcome, ExportResult, FinishedSpan
from mcptrace.retry import RetrySchedule
from mcptrace_proto.errors import WireError
from mcptrace_proto.json import encode_request_json
from mcptrace_proto.model import ResourceSpans, ScopeSpans
from mcptrace_proto.wire import encode_request

logger = logging.getLogger("mcptrace")

REQUEST_BYTES_MAX = 3_500_000
"""Below the 4 MiB that gRPC servers accept unless told otherwise, with room for framing."""
SPAN_BYTES_MAX = 64 * 1024 * 1024
"""OTLP specification 1.11: a client sends no request larger than this."""
RESPONSE_BYTES_MAX = 4 * 1024 * 1024
LOG_INTERVAL_SECONDS = 60.0


class Reply(enum.Enum):
    """What a receiver said to one request."""

    TAKEN = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()
    TOO_LARGE = enum.auto()


@dataclass(slots=True, frozen=True)
class Answer:
    """``rejected_spans`` of a partial success; ``retry_after_seconds`` when it was named."""

    reply: Reply
    message: str = ""
    rejected_spans: int = 0
    retry_after_seconds: float | None = None


class Transport(Protocol):
    """Sends one body at a time, from one thread."""

    endpoint: str

    def send(self, body: bytes, timeout_seconds: float) -> Answer:
        """Send once.  Network trouble is an Answer too; nothing is raised."""

    def reset_after_fork(self) -> None:
        """Let go of the parent's connection without speaking on it."""

    def close(self) -> None:
        """Close the connection; called from another thread, a running ``send`` returns."""


class OtlpExporter:
    """A SpanExporter over a Transport.

    ``timeout_seconds`` bounds one request, the deadline given to ``export`` all of them.
    """

    def __init__(
        self,
        transport: Transport,
        encode: Callable[[Sequence[FinishedSpan]], bytes],
        *,
        timeout_seconds: float = 10.0,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        schedule: Callable[[], RetrySchedule] = RetrySchedule,
    ) -> None:
        self._transport = transport
        self._encode = encode
        self._timeout_seconds = timeout_seconds
        self._request_bytes_max = request_bytes_max
        self._schedule = schedule
        self._pid = os.getpid()
        self._stopped = threading.Event()
        self._next_log = 0.0

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        """Deliver or give up within ``deadline_seconds``."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._stopped = threading.Event()
            self._transport.reset_after_fork()
        if not spans:
            return ExportResult(ExportOutcome.DELIVERED)
        return self._deliver(spans, time.monotonic() + deadline_seconds)

    def shutdown(self) -> None:
        self._stopped.set()
        self._transport.close()

    def _deliver(self, spans: Sequence[FinishedSpan], deadline: float) -> ExportResult:
        try:
            body = self._encode(spans)
        except (WireError, TypeError, ValueError) as error:
            return self._split(spans, deadline, ENCODE, f"a span cannot be encoded: {error}")
        if len(body) > SPAN_BYTES_MAX or (len(body) > self._request_bytes_max and len(spans) > 1):
            return self._split(spans, deadline, OVERSIZE, f"a span of {len(body)} bytes")
        answer = self._send(body, deadline)
        if answer.reply is Reply.TOO_LARGE:
            return self._split(spans, deadline, OVERSIZE, answer.message)
        if answer.reply is Reply.TAKEN:
            if answer.rejected_spans or answer.message:
                self._log("%d spans refused: %s", answer.rejected_spans, answer.message)
            return ExportResult(ExportOutcome.DELIVERED, answer.rejected_spans, answer.message)
        self._log("%d spans dropped: %s", len(spans), answer.message)
        never = answer.reply is Reply.NEVER
        outcome = ExportOutcome.REJECTED if never else ExportOutcome.EXHAUSTED
        return ExportResult(outcome, message=answer.message)

    def _split(
        self, spans: Sequence[FinishedSpan], deadline: float, reason: str, message: str
    ) -> ExportResult:
        """Deliver both halves; a single span is at the end of its way."""
        if len(spans) == 1:
            self._log("1 span dropped (%s): %s", reason, message)
            return ExportResult(ExportOutcome.DELIVERED, message=message, dropped={reason: 1})
        middle = len(spans) // 2
        halves = [spans[:middle], spans[middle:]]
        results = [(len(half), self._deliver(half, deadline)) for half in halves]
        return _merged(results)

    def _send(self, body: bytes, deadline: float) -> Answer:
        """Send until an answer is final or the time is over."""
        schedule = self._schedule()
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._stopped.is_set():
                return Answer(Reply.LATER, "no time left")
            answer = self._transport.send(body, min(remaining, self._timeout_seconds))
            if answer.reply is not Reply.LATER:
                return answer
            wait = schedule.next_wait(deadline - time.monotonic(), answer.retry_after_seconds)
            if wait is None or self._stopped.is_set():
                return answer
            self._log("will try again: %s", answer.message)
            self._stopped.wait(wait)

    def _log(self, text: str, *arguments: object) -> None:
        now = time.monotonic()
        if now >= self._next_log:
            self._next_log = now + LOG_INTERVAL_SECONDS
            logger.warning("mcptrace: %s: %s", self._transport.endpoint, text % arguments)


def _merged(results: Sequence[tuple[int, ExportResult]]) -> ExportResult:
    """One result for the parts of a batch: parts that were not delivered become ``dropped``."""
    rejected = 0
    message = ""
    dropped: dict[str, int] = {}
    for size, result in results:
        rest = size - sum(result.dropped.values())
        rejected += result.rejected_spans
        message = message or result.message
        for reason, count in result.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        if result.outcome is not ExportOutcome.DELIVERED:
            reason = result.outcome.value
            dropped[reason] = dropped.get(reason, 0) + rest
    return ExportResult(ExportOutcome.DELIVERED, rejected, message, dropped)


def encode_protobuf(spans: Sequence[FinishedSpan]) -> bytes:
    """An ExportTraceServiceRequest in protobuf."""
    return encode_request(grouped(spans))


def encode_json(spans: Sequence[FinishedSpan]) -> bytes:
    """An ExportTraceServiceRequest in OTLP/JSON."""
    return encode_request_json(grouped(spans))


def grouped(spans: Sequence[FinishedSpan]) -> list[ResourceSpans]:
    """Spans by resource and scope, each in order of first appearance.

    Told apart by identity: a provider has one resource, a tracer one scope.
    """
    resources: dict[int, ResourceSpans] = {}
    scopes: dict[tuple[int, int], ScopeSpans] = {}
    for span in spans:
        key = (id(span.resource), id(span.scope))
        scope_spans = scopes.get(key)
        if scope_spans is None:
            scope_spans = scopes[key] = ScopeSpans(span.scope, schema_url=span.schema_url)
            group = resources.get(key[0])
            if group is None:
                group = resources[key[0]] = ResourceSpans(span.resource)
            group.scope_spans.append(scope_spans)
        scope_spans.spans.append(span.data)
    return list(resources.values())
