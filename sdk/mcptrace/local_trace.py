"""Local traces: the spans of one trace in this process, held until their local root ends.

A local root is a span without a live parent of ours in this process.  It opens a LocalTrace;
finished spans wait in it, and when the root ends one verdict is reached for all of them:

    root starts ── children end (held) ── root ends ── verdict ── kept: delivered, else counted
                                              ▲                        ▲
                     a bound is reached ──────┘   ended later: follow ─┘

What always holds:
  * every finished span is delivered once, or counted; none waits for ever;
  * a trace has one verdict; only a critical span that ends later may turn a no into a yes;
  * the spans held in one trace and the bytes held in all of them are bounded;
  * finalizers (garbage collection) only append to ``orphans``: they may run while any lock is
    held, so the work is done by the next start of a root, flush or shutdown.

It knows neither sampling rules nor exporters: ``Settler`` does.  Verdicts are reached on the
thread that ends the span.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from opentelemetry.trace import SpanContext

from mcptrace.api import FinishedSpan
from mcptrace.clock import Clock
from mcptrace.guard import Counters
from mcptrace_proto.sampling.decision import Decision

if TYPE_CHECKING:
    from mcptrace.sampling import Head


LIVE_INFERENCES_MAX = 65_536
"""Inferences known while they run, so that the end of the program ends them too."""


class Orphan(Protocol):
    """What garbage collection found unfinished; ``adopt`` finishes it on an ordinary thread."""

    def adopt(self) -> None: ...


class Live(Orphan, Protocol):
    """An inference that runs; ``abandon`` makes it an orphan unless it has ended."""

    def abandon(self) -> None: ...


class Settler(Protocol):
    """What a trace's end leads to.  Neither method raises."""

    def decide(self, trace: LocalTrace, spans: Sequence[FinishedSpan]) -> Decision:
        """The verdict on ``spans`` together."""

    def decide_late(self, trace: LocalTrace, span: FinishedSpan, verdict: Decision) -> Decision:
        """The verdict on a span that ended after its trace's ``verdict``."""

    def deliver(self, trace: LocalTrace, spans: Sequence[FinishedSpan], verdict: Decision) -> None:
        """Hand on or count spans whose verdict is known."""


class LocalTrace:
    """The part of one trace that this process sees.  Fields are guarded by the table's lock."""

    __slots__ = (
        "__weakref__",
        "bytes_held",
        "deciding",
        "generation",
        "head",
        "held",
        "mono_ns",
        "parent",
        "table",
        "trace_id",
        "verdict",
        "wall_ns",
    )

    def __init__(
        self,
        table: LocalTraces,
        trace_id: int,
        parent: SpanContext | None,
        head: Head,
    ) -> None:
        self.table = table
        self.generation = table.generation
        self.trace_id = trace_id
        self.parent = parent
        self.head = head
        self.wall_ns = table.clock.wall_ns()
        self.mono_ns = table.clock.monotonic_ns()
        self.held: list[FinishedSpan] = []
        self.bytes_held = 0
        self.deciding = False
        self.verdict: Decision | None = None

    def now_ns(self) -> int:
        """Unix time by the wall clock at the root's start plus monotonic time since.

        All times of a local trace come from here: they agree with each other even when the
        wall clock is set meanwhile.
        """
        return self.wall_ns + self.table.clock.monotonic_ns() - self.mono_ns

    def adopt(self) -> None:
        self.table.settle(self, "root_never_ended")

    def __del__(self) -> None:
        if self.held and self.verdict is None and not self.deciding:
            table = self.table
            if self.generation == table.generation:  # a fork's copy is its parent's to deliver
                table.orphans.append(self)


class LocalTraces:
    """The undecided traces of a provider.  One lock; no work is done while it is held."""

    def __init__(
        self, settler: Settler, clock: Clock, counters: Counters, spans_max: int, bytes_max: int
    ) -> None:
        self.clock = clock
        self.spans_max = spans_max
        self.bytes_max = bytes_max
        self.generation = os.getpid()
        # Re-entrant, because a destructor of the user's may end a span while we hold it.
        self.lock = threading.RLock()
        self.orphans: deque[Orphan] = deque()
        # By id, each set and removed in one operation: no lock while an inference starts.
        self.live: dict[int, weakref.ref[Live]] = {}
        self.spans_held = 0
        self.bytes_held = 0
        self._settler = settler
        self._counters = counters
        self._holding: dict[int, weakref.ref[LocalTrace]] = {}

    def finish(self, trace: LocalTrace, span: FinishedSpan, size: int, is_root: bool) -> None:
        """Take a finished span of about ``size`` bytes: hold it, or settle its trace."""
        with self.lock:
            waiting = trace.verdict is None
            if waiting:
                self._hold(trace, span, size)
                full = len(trace.held) > self.spans_max or self.bytes_held > self.bytes_max
                if trace.deciding or not (is_root or full):
                    return
        if waiting:
            self.settle(trace, "" if is_root else "local_trace_decided_early")
        else:
            self._late(trace, span)

    def settle(self, trace: LocalTrace, why_early: str = "") -> None:
        """Reach the verdict on what is held; ``why_early`` counts one that the root did not ask."""
        with self.lock:
            if trace.deciding or trace.verdict is not None:
                return
            trace.deciding = True
            spans = self._take(trace)
        if why_early:
            self._counters.add(why_early)
        verdict = self._settler.decide(trace, spans)
        with self.lock:
            trace.verdict = verdict
            meanwhile = self._take(trace)
        self._settler.deliver(trace, spans, verdict)
        for span in meanwhile:
            self._late(trace, span)

    def settle_all(self) -> None:
        """Reach a verdict on every waiting trace; the program is about to end."""
        for reference in list(self._holding.values()):
            trace = reference()
            if trace is not None:
                self.settle(trace, "undecided_at_shutdown")

    def adopt_orphans(self) -> None:
        """Finish what garbage collection found: abandoned inferences, traces without an end."""
        while True:
            try:
                orphan = self.orphans.popleft()
            except IndexError:
                return
            orphan.adopt()

    def end_live(self) -> None:
        """End the inferences that still run as abandoned; the program is about to end."""
        for reference in list(self.live.values()):
            inference = reference()
            if inference is not None:
                inference.abandon()
        self.adopt_orphans()

    def reset_after_fork(self) -> None:
        """Forget the parent's traces: the parent will deliver them.  The lock may be held."""
        self.lock = threading.RLock()
        self.generation = os.getpid()
        self.orphans = deque()
        self.live = {}
        self.spans_held = 0
        self.bytes_held = 0
        self._holding = {}

    def _late(self, trace: LocalTrace, span: FinishedSpan) -> None:
        before = trace.verdict
        assert before is not None
        verdict = self._settler.decide_late(trace, span, before)
        if verdict is not before:
            with self.lock:
                trace.verdict = verdict
        self._settler.deliver(trace, (span,), verdict)

    def _hold(self, trace: LocalTrace, span: FinishedSpan, size: int) -> None:
        if not trace.held:
            self._holding[id(trace)] = weakref.ref(trace)
        trace.held.append(span)
        trace.bytes_held += size
        self.spans_held += 1
        self.bytes_held += size

    def _take(self, trace: LocalTrace) -> list[FinishedSpan]:
        spans = trace.held
        if spans:
            self._holding.pop(id(trace), None)
            self.spans_held -= len(spans)
            self.bytes_held -= trace.bytes_held
            trace.held = []
            trace.bytes_held = 0
        return spans
