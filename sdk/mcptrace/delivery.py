"""From a verdict to the processors: what is written on a kept span, and what is refused.

    decide ─▶ stamp (th, reason, adjusted count) ─▶ filter ─▶ schema ─▶ processors

The only part of the SDK that knows all of these.  Runs on the thread that ended the span;
nothing here raises, every span that goes no further is counted under its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from mcptrace.api import FinishedSpan, SpanProcessor
from mcptrace.clock import Clock
from mcptrace.guard import Counters, guard, warn_rarely
from mcptrace.local_trace import LocalTrace
from mcptrace.sampling import Sampler
from mcptrace_proto.model import STATUS_ERROR, SpanData
from mcptrace_proto.sampling.decision import (
    CRITICAL_REASONS,
    FORCED,
    SAMPLED_OUT,
    Decision,
    sampling_attributes,
)
from mcptrace_proto.sampling.threshold import with_threshold
from mcptrace_proto.schema import (
    Enforcement,
    InferenceSpan,
    enforce,
    is_inference,
    read_inference,
    violation_attributes,
)

SpanFilter = Callable[[SpanData], bool]
"""False drops a kept span.  It must not change what it is shown."""

FLAG_SAMPLED = 0x01


class Delivery:
    """The Settler of a provider.  ``processors`` is replaced, never changed in place."""

    def __init__(
        self,
        sampler: Sampler,
        enforcement: Enforcement,
        span_filter: SpanFilter | None,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.processors: tuple[SpanProcessor, ...] = ()
        self.closed = False
        self._sampler = sampler
        self._enforcement = enforcement
        self._filter = span_filter
        self._clock = clock
        self._counters = counters
        self._lock = threading.RLock()

    def decide(self, trace: LocalTrace, spans: Sequence[FinishedSpan]) -> Decision:
        """One verdict.  Should the sampler fail, the trace is kept: losing it is worse."""
        verdict = Decision(True, FORCED, None, 1.0, "")
        with guard("sampling", self._counters):
            views = [(span.data, _inference(span.data)) for span in spans]
            state = trace.head.trace_state
            with self._lock:
                verdict = self._sampler.decide(
                    trace.head.rule,
                    trace.trace_id.to_bytes(16, "big"),
                    state.to_header() if state else "",
                    views,
                    self._clock.monotonic_ns() / 1e9,
                )
        return verdict

    def decide_late(self, trace: LocalTrace, span: FinishedSpan, verdict: Decision) -> Decision:
        """Follow the trace, unless it was dropped and this span alone is critical.

        An inference is always shown to the sampler, so that its latency is known; other
        spans only when they may turn the verdict: each showing counts as traffic.
        """
        failed = span.data.status_code == STATUS_ERROR
        if _inference(span.data) is None and (verdict.keep or not failed):
            return verdict
        alone = self.decide(trace, (span,))
        critical = alone.reason in CRITICAL_REASONS
        return alone if critical and not verdict.keep else verdict

    def deliver(self, trace: LocalTrace, spans: Sequence[FinishedSpan], verdict: Decision) -> None:
        kept = spans
        if self._sampler.per_span and verdict.reason not in CRITICAL_REASONS:
            # The user's sampler spoke for each span; the trace's verdict is its root's only.
            kept = [span for span in spans if span.data.flags & FLAG_SAMPLED]
            if not verdict.keep:
                verdict = Decision(True, FORCED, None, 1.0, verdict.key)
        elif not verdict.keep:
            kept = ()
        if len(kept) < len(spans):
            self._counters.add(SAMPLED_OUT, len(spans) - len(kept))
        states: dict[str, str] = {}  # the spans of a trace nearly always share one
        for span in kept:
            with guard("span delivery", self._counters):
                _stamp(span.data, verdict, states)
                self._deliver_one(span)

    def reset_after_fork(self) -> None:
        """Another thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def _deliver_one(self, span: FinishedSpan) -> None:
        data = span.data
        if not self._passes_filter(data):
            self._counters.add("filtered")
            return
        if not self._conforms(data):
            return
        if self.closed:
            self._counters.add("already_shutdown")
            return
        for processor in self.processors:
            with guard("span processor", self._counters):
                processor.on_end(span)

    def _passes_filter(self, data: SpanData) -> bool:
        """A filter that fails keeps the span."""
        passes = True
        if self._filter is not None:
            with guard("span filter", self._counters):
                passes = bool(self._filter(data))
        return passes

    def _conforms(self, data: SpanData) -> bool:
        found = enforce(self._enforcement, data, _inference(data))
        if found.violations:
            self._counters.add("schema_violation")
            if not found.export:
                self._counters.add("schema_refused")
                warn_rarely("mcptrace: span %r refused: %s", data.name, found.violations)
                return False
            data.attributes.update(violation_attributes(found, data.attributes))
        return True


def _inference(data: SpanData) -> InferenceSpan | None:
    return read_inference(data.attributes) if is_inference(data.attributes) else None


def _stamp(data: SpanData, verdict: Decision, states: dict[str, str]) -> None:
    """Say why the span is here and, where that is known, how many it stands for.

    The sampled flag tells the truth about this copy: processors of others drop spans
    without it.  ``states`` remembers rewritten tracestates of this trace.
    """
    data.flags |= FLAG_SAMPLED
    state = states.get(data.trace_state)
    if state is None:
        state = with_threshold(data.trace_state, verdict.threshold)
        states[data.trace_state] = state
    data.trace_state = state
    data.attributes.update(sampling_attributes(verdict))
