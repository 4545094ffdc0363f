"""What travels between the rooms of the collector, and the contracts at their doors.

    receivers ─▶ intake ─▶ journal ─▶ normalize ─▶ sampling ─▶ settle ─▶ queues ─▶ exporters
                          (durable)                           (audit + one durable commit)

A span is its wire bytes.  ``SpanRecord.raw`` is the truth that is hashed and forwarded;
``data`` is what those bytes say, decoded once at the intake.  A room that adds to a span
appends to ``raw`` and to ``data.attributes`` together (see ``SpanRecord.annotate``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from mcptrace_proto import wire
from mcptrace_proto.model import Attributes, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision
from mcptrace_proto.schema import InferenceSpan


@dataclass(slots=True, frozen=True)
class Origin:
    """Which span of which journal record this is; (0, n) numbers start at the record's first."""

    position: int
    ordinal: int


@dataclass(slots=True)
class SpanRecord:
    """One span on its way through the rooms."""

    raw: bytes
    data: SpanData
    source: SpanSource
    resource: Attributes
    origin: Origin = Origin(0, 0)
    inference: InferenceSpan | None = None  # set by the normaliser on inference spans

    def annotate(self, attributes: Attributes) -> None:
        """Append attributes to the wire bytes and to the view.

        For names the span does not carry yet; to replace one, ``remove`` it first.
        """
        self.raw = wire.append_attributes(self.raw, attributes)
        self.data.attributes.update(attributes)

    def remove(self, names: Set[str]) -> None:
        """Take attributes off the wire bytes and the view."""
        self.raw = wire.remove_attributes(self.raw, names)
        for name in names:
            self.data.attributes.pop(name, None)


@dataclass(slots=True)
class Admitted:
    """A request that decoded: its spans, and how many were refused one by one and why."""

    body: bytes  # protobuf, whatever the client spoke
    records: list[SpanRecord]
    rejected: int = 0
    message: str = ""


@dataclass(slots=True)
class DecidedTrace:
    trace_id: bytes
    records: list[SpanRecord]
    decision: Decision
    bytes_held: int = 0  # what the records cost in memory, estimated when the verdict was reached


@dataclass(slots=True)
class QueueItem:
    """One forwardable unit: an ExportTraceServiceRequest body waiting for one destination."""

    position: int
    body: bytes
    spans: int


@dataclass(slots=True)
class Settlement:
    """Everything that becomes true in one durable commit.

    ``payloads`` is (body, span count) for each destination's queue; ``audit_lines`` are
    (index, stored bytes) in order; ``dropped`` counts spans by reason; ``settled`` are the
    origins whose spans are decided with this commit, kept or dropped.  ``sampled_out`` adds
    to the spans by "key reason" that no audit record has mentioned yet; the record that
    mentions them takes them off again.
    """

    payloads: list[tuple[str, bytes, int]] = field(default_factory=list)
    audit_lines: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)  # spans by reason
    sampled_out: dict[str, int] = field(default_factory=dict)
    settled: list[Origin] = field(default_factory=list)


class Intake(Protocol):
    """The receivers' one door into the collector."""

    async def consume(self, body: bytes, *, transport: str, json: bool) -> Admitted:
        """Admit one request; returns when it is as safe as ``durability`` promises.

        Raises BadRequest, RequestTooLarge or Retryable.
        """


class Exporter(Protocol):
    """One destination.  A call sends one body; there may be several calls in flight."""

    async def start(self) -> None: ...

    async def export(self, body: bytes, spans: int) -> int:
        """Deliver one ExportTraceServiceRequest; returns spans rejected by partial success.

        Raises Retryable (with the receiver's own delay when it named one) or Permanent.
        """

    async def shutdown(self) -> None: ...


class DeliveryQueue(Protocol):
    """What a sender needs of the store: read ahead, and take off what is delivered."""

    async def take(
        self, destination: str, after: int, spans_max: int, bytes_max: int
    ) -> list[QueueItem]: ...

    async def release(
        self, destination: str, items: Sequence[QueueItem], failed: dict[str, int]
    ) -> None: ...
