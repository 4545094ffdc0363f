"""The verdict on one trace: critical, over p99, forced, or by probability.

    timeout ─▶ error ─▶ p99 (found here, or stated by a sampler before us) ─▶ forced ─▶ R >= T

Pure: time is an argument.  Not thread-safe; one caller at a time.

A threshold that was applied before us is never lowered: the one applied is the larger of
both.  A critical trace stands for itself alone (adjusted count 1) when every trace of its
stratum reaches us; where an upstream sampler thinned the population first, its threshold
stays (OpenTelemetry, tracestate probability sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcptrace_proto import semconv
from mcptrace_proto.model import SpanData
from mcptrace_proto.sampling.adaptive import AdaptiveRate
from mcptrace_proto.sampling.critical import critical_reason
from mcptrace_proto.sampling.decision import (
    CRITICAL_REASONS,
    ERROR,
    P99,
    PROBABILITY,
    SAMPLED_OUT,
    TIMEOUT,
    Decision,
)
from mcptrace_proto.sampling.latency import LatencyWatch
from mcptrace_proto.sampling.threshold import adjusted_count, ot_threshold, randomness
from mcptrace_proto.schema import InferenceSpan

KEY_CHARS_MAX = 200

View = tuple[SpanData, InferenceSpan | None]


@dataclass(slots=True, frozen=True)
class SamplingSettings:
    """``timeout_ms`` is the latency from which a span counts as timed out; None for no limit."""

    target_per_second: float = 10.0
    rate_min: float = 0.001
    rate_max: float = 0.1
    timeout_ms: float | None = None
    latency_quantile: float = 0.99
    latency_window_seconds: float = 300.0
    latency_warmup: int = 500
    keys_max: int = 500


class TraceSampler:
    """Decides traces one after the other and learns the load and the latencies from them."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._timeout_ms = settings.timeout_ms
        self._rate = AdaptiveRate(
            settings.target_per_second, settings.rate_min, settings.rate_max, settings.keys_max
        )
        self._latency = LatencyWatch(
            settings.latency_quantile,
            settings.latency_window_seconds,
            settings.latency_warmup,
            settings.keys_max,
        )

    def decide(
        self,
        trace_id: bytes,
        trace_state: str,
        spans: Sequence[View],
        now_seconds: float,
        forced: str | None = None,
    ) -> Decision:
        """The verdict on the spans of one trace together.

        Every inference latency is learnt from, whatever the verdict.  ``forced`` keeps a trace
        that is not critical, for that reason and with an unknown probability.
        """
        key = budget_key(spans)
        upstream = ot_threshold(trace_state)
        weight = 1.0 if upstream is None else adjusted_count(upstream)
        applied = self._rate.observe(key, now_seconds, weight)
        reason = self.critical(spans, now_seconds)
        if reason is not None:
            threshold = upstream or 0
            return Decision(True, reason, threshold, adjusted_count(threshold), key)
        if forced is not None:
            return Decision(True, forced, None, 1.0, key)
        threshold = applied if upstream is None else max(applied, upstream)
        keep = randomness(trace_id, trace_state) >= threshold
        reason = PROBABILITY if keep else SAMPLED_OUT
        return Decision(keep, reason, threshold, adjusted_count(threshold), key)

    def rates(self) -> dict[str, float]:
        """The probability applied to ordinary traces now, by budget key."""
        return self._rate.rates()

    def critical(self, spans: Sequence[View], now: float) -> str | None:
        """Why these spans must be kept whatever the load; their latencies are learnt from."""
        found = {critical_reason(span, view, self._timeout_ms) for span, view in spans}
        # Every one is learnt from, so none may be passed over once a slow one is found.
        slow = [self._is_slow(view, now) for _, view in spans]
        if True in slow:
            found.add(P99)
        found |= {stated for span, _ in spans if (stated := _stated_reason(span)) is not None}
        return next((reason for reason in (TIMEOUT, ERROR, P99) if reason in found), None)

    def _is_slow(self, view: InferenceSpan | None, now: float) -> bool:
        if view is None or view.inference_latency_ms is None:
            return False
        key = f"{view.model_name}|{view.operation}|{bool(view.streaming)}"[:KEY_CHARS_MAX]
        return self._latency.observe(key, view.inference_latency_ms, now)


def budget_key(spans: Sequence[View]) -> str:
    """Model and operation of the trace's first inference, or the name of its root span."""
    for _, view in spans:
        if view is not None:
            return f"{view.model_name or ''}|{view.operation or ''}"[:KEY_CHARS_MAX]
    root = next((span for span, _ in spans if not any(span.parent_span_id)), None)
    name = (root or spans[0][0]).name if spans else ""
    return f"|{name}"[:KEY_CHARS_MAX]


def _stated_reason(span: SpanData) -> str | None:
    """The critical reason for which a sampler before us kept this span."""
    stated = span.attributes.get(semconv.SAMPLING_REASON)
    return stated if isinstance(stated, str) and stated in CRITICAL_REASONS else None
