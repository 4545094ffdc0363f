"""The trace table: spans gathered by trace until a verdict is due.

Pure: no I/O, no clock, no tasks.  ``now`` is always an argument, in seconds on any clock
that does not go back.  One task owns a table; there is no lock.

    first span ──────────────── decision_wait ───────────────▶ due
         local root arrives ─── settle ───▶ due (if earlier)

Always true:
  * every held trace has exactly one live deadline; older heap entries are ignored;
  * ``bytes_held`` is the sum of the held traces' estimates; over ``bytes_max`` the traces
    nearest to their deadline are handed out early, so that it holds again;
  * a trace that has been handed out is not held any more.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from mcptrace_collector.pipeline import SpanRecord

# A decoded span costs about this much beside a multiple of its wire bytes (measured with
# tracemalloc over inference spans of 300 to 3000 bytes).
SPAN_OVERHEAD_BYTES = 1500
DECODED_FACTOR = 4
ATTRIBUTE_BYTES = 64  # beside that, where they are many and short
ITEM_OVERHEAD_BYTES = 250  # an event or a link, of which an empty one has hardly any bytes

# opentelemetry-proto SpanFlags: CONTEXT_HAS_IS_REMOTE_MASK and CONTEXT_IS_REMOTE_MASK
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200


@dataclass(slots=True)
class OpenTrace:
    """A trace without a verdict."""

    trace_id: bytes
    deadline: float
    records: list[SpanRecord] = field(default_factory=list)
    spans: dict[bytes, bytes] = field(default_factory=dict)  # span id -> wire bytes
    bytes_held: int = 0


def estimated_bytes(record: SpanRecord) -> int:
    """What a held span costs in memory, in bytes."""
    items = len(record.data.events) + len(record.data.links)
    return (
        SPAN_OVERHEAD_BYTES
        + DECODED_FACTOR * len(record.raw)
        + ATTRIBUTE_BYTES * len(record.data.attributes)
        + ITEM_OVERHEAD_BYTES * items
    )


def is_local_root(record: SpanRecord) -> bool:
    """No parent, or a parent that is known to live in another process."""
    data = record.data
    if not any(data.parent_span_id):  # some emitters write a missing parent as eight zero bytes
        return True
    return data.flags & (_HAS_IS_REMOTE | _IS_REMOTE) == _HAS_IS_REMOTE | _IS_REMOTE


class TraceTable:
    """``decision_wait_seconds`` counts from a trace's first span, ``settle_seconds`` from a
    local root: what arrives later is a late span."""

    def __init__(
        self, *, decision_wait_seconds: float, settle_seconds: float, bytes_max: int
    ) -> None:
        self._decision_wait_seconds = decision_wait_seconds
        self._settle_seconds = settle_seconds
        self._bytes_max = bytes_max
        self._traces: dict[bytes, OpenTrace] = {}
        self._deadlines: list[tuple[float, bytes]] = []
        self.bytes_held = 0
        self.spans_held = 0

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def bytes_over(self) -> int:
        """What is held beyond the bound until ``overflow`` is called."""
        return max(0, self.bytes_held - self._bytes_max)

    def holds(self, trace_id: bytes) -> bool:
        return trace_id in self._traces

    def add(self, record: SpanRecord, now: float) -> bool:
        """Hold one span; False when the trace already has this very span, byte for byte."""
        trace = self._traces.get(record.data.trace_id)
        if trace is None:
            trace = self._open(record.data.trace_id, now)
        elif trace.spans.get(record.data.span_id) == record.raw:
            return False
        trace.spans[record.data.span_id] = record.raw
        trace.records.append(record)
        cost = estimated_bytes(record)
        trace.bytes_held += cost
        self.bytes_held += cost
        self.spans_held += 1
        if is_local_root(record):
            self._due_by(trace, now + self._settle_seconds)
        return True

    def due(self, now: float) -> list[OpenTrace]:
        """Hand out the traces whose deadline has come, oldest deadline first."""
        out: list[OpenTrace] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            trace = self._pop()
            if trace is not None:
                out.append(trace)
        return out

    def overflow(self) -> list[OpenTrace]:
        """Hand out the traces nearest to their deadline until the byte bound holds again."""
        out: list[OpenTrace] = []
        while self.bytes_held > self._bytes_max and self._deadlines:
            trace = self._pop()
            if trace is not None:
                out.append(trace)
        return out

    def drain(self) -> list[OpenTrace]:
        """Hand out everything, for shutdown."""
        return self.due(float("inf"))

    def _open(self, trace_id: bytes, now: float) -> OpenTrace:
        trace = OpenTrace(trace_id, now + self._decision_wait_seconds)
        self._traces[trace_id] = trace
        heapq.heappush(self._deadlines, (trace.deadline, trace_id))
        return trace

    def _due_by(self, trace: OpenTrace, deadline: float) -> None:
        if deadline < trace.deadline:
            trace.deadline = deadline
            heapq.heappush(self._deadlines, (deadline, trace.trace_id))

    def _pop(self) -> OpenTrace | None:
        deadline, trace_id = heapq.heappop(self._deadlines)
        trace = self._traces.get(trace_id)
        if trace is None or trace.deadline != deadline:
            return None  # replaced by an earlier deadline, or handed out already
        del self._traces[trace_id]
        self.bytes_held -= trace.bytes_held
        self.spans_held -= len(trace.records)
        return trace
