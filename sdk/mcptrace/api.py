"""The contracts between the SDK's rooms, and nothing else.

A finished span travels as a FinishedSpan through SpanProcessors to a SpanExporter.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Span

from mcptrace_proto.model import Resource, Scope, SpanData


@dataclass(slots=True)
class FinishedSpan:
    """A span after its end, with where it came from.  Nobody changes it any more."""

    data: SpanData
    scope: Scope
    resource: Resource
    schema_url: str = ""
    """Of the scope; a scope record stands for one schema only."""
    bytes_estimated: int = 0
    """What it holds in memory, measured once at its end; 0 where nobody has."""


class SpanProcessor(Protocol):
    """Sees spans at start and end.  Runs on the caller's thread; must not block or raise."""

    def on_start(self, span: Span, parent_context: Context | None) -> None: ...

    def on_end(self, span: FinishedSpan) -> None:
        """Take a kept span.  Called once per span, after the sampling decision."""

    def force_flush(self, timeout_seconds: float) -> bool:
        """Hand everything taken so far to the exporter; False when the deadline passed first."""

    def shutdown(self, timeout_seconds: float) -> None:
        """Flush and stop, within the deadline.  Later spans are dropped and counted."""


class ExportOutcome(enum.Enum):
    """What became of a batch."""

    DELIVERED = "delivered"
    REJECTED = "rejected"  # the receiver said never
    EXHAUSTED = "retry_exhausted"  # the deadline passed while it said later


ENCODE = "encode"  # not expressible in OTLP
OVERSIZE = "oversize"  # alone too large for the receiver


@dataclass(slots=True, frozen=True)
class ExportResult:
    """``rejected_spans`` counts spans refused by a partial success inside a DELIVERED batch.

    ``dropped`` counts spans that left the batch on the way, because it was split or one could
    not be encoded: by ENCODE, OVERSIZE or the value of an outcome.  ``outcome`` speaks of the
    others.
    """

    outcome: ExportOutcome
    rejected_spans: int = 0
    message: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)


class SpanExporter(Protocol):
    """Sends batches.  Called by one thread at a time; never on a request's thread."""

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        """Deliver or give up before ``deadline_seconds`` from now; must not raise."""

    def shutdown(self) -> None:
        """Close connections and make a running ``export`` return soon."""
