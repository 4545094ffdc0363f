"""Sampling in the SDK: what a span's start decides, and what the end of its trace does.

At the start (``head``) of a local root only three things are settled: whether to record at
all, the sampled flag that goes downstream, and the rule for the end.  The flag of a new
trace is an estimate: R >= T with the threshold applied last.  Because R is shared, services
downstream keep a superset or a subset of what we keep, never an unrelated set.  A trace that
turns out critical only at its end was propagated as not sampled; downstream, only spans that
are critical themselves survive.

At the end (``decide``) critical traces are kept whatever the rule, because every one was
recorded; everything else follows the rule.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceState

from mcptrace.config import ConfigError, SdkConfig
from mcptrace.guard import guard
from mcptrace_proto.model import SpanData
from mcptrace_proto.sampling import threshold
from mcptrace_proto.sampling.decision import (
    CRITICAL_REASONS,
    FORCED,
    PARENT,
    SAMPLED_OUT,
    Decision,
)
from mcptrace_proto.schema import InferenceSpan

if TYPE_CHECKING:
    from mcptrace_proto.sampling.verdict import SamplingSettings

View = tuple[SpanData, InferenceSpan | None]


class Rule(enum.Enum):
    """What the end of a trace that is not critical comes to."""

    PROBABILITY = "probability"  # R >= T, T adapted to the load
    PARENT = "parent"  # kept: the remote parent was
    KEEP = "keep"  # kept: a sampler of the user's said so
    CRITICAL_ONLY = "critical_only"  # dropped


@dataclass(slots=True, frozen=True)
class Head:
    """What a start settles.  ``attributes`` come from a sampler of the user's."""

    record: bool
    sampled: bool
    trace_state: TraceState
    rule: Rule
    attributes: Mapping[str, Any] | None = None


@dataclass(slots=True, frozen=True)
class Start:
    """What a sampler may look at when a span starts."""

    context: Context | None
    parent: SpanContext | None
    trace_id: int
    name: str
    kind: SpanKind
    attributes: Mapping[str, Any] | None
    links: Sequence[Link] | None


class Sampler(Protocol):
    """Asked on the thread that starts or ends a span; ``decide`` by one thread at a time."""

    per_span: bool
    """Whether ``head`` is asked for every span, not only for local roots."""

    def head(self, start: Start) -> Head: ...

    def decide(
        self, rule: Rule, trace_id: bytes, trace_state: str, spans: Sequence[View], now: float
    ) -> Decision:
        """The verdict on spans of one trace; ``now`` in seconds, monotonic."""


class TraceEndSampler:
    """Critical traces always; others by an adaptive or fixed probability, or by the parent.

    Args:
        settings: rates and limits; a fixed probability has equal minimum and maximum.
        follow_parent: a trace with a remote parent follows its sampled flag.
        record_roots: False drops traces that begin here without recording (always_off).
    """

    per_span = False

    def __init__(
        self, settings: SamplingSettings, follow_parent: bool = True, record_roots: bool = True
    ) -> None:
        from mcptrace_proto.sampling.verdict import TraceSampler

        self._verdicts = TraceSampler(settings)
        self._follow_parent = follow_parent
        self._record_roots = record_roots
        self._last_threshold = threshold.threshold_from_probability(settings.rate_max)

    def head(self, start: Start) -> Head:
        parent = start.parent
        if parent is not None and self._follow_parent:
            sampled = parent.trace_flags.sampled
            rule = Rule.PARENT if sampled else Rule.CRITICAL_ONLY
            record = sampled or self._record_roots
            return Head(record, sampled, _followed_state(start, sampled), rule)
        state = parent.trace_state if parent is not None else TraceState()
        text = state.to_header() if state else ""
        trace_id = start.trace_id.to_bytes(16, "big")
        sampled = threshold.randomness(trace_id, text) >= self._last_threshold
        applied = self._last_threshold if sampled else None
        if not self._record_roots:
            sampled, applied = False, None
        state = _with_threshold(state, applied)
        return Head(self._record_roots, sampled, state, Rule.PROBABILITY)

    def decide(
        self, rule: Rule, trace_id: bytes, trace_state: str, spans: Sequence[View], now: float
    ) -> Decision:
        # Nothing was dropped before us: the th here is the head's own estimate, or what the
        # parent's process applied to itself.  It must not limit what is critical.
        unthinned = threshold.with_threshold(trace_state, None)
        forced = PARENT if rule is Rule.PARENT else FORCED if rule is Rule.KEEP else None
        decision = self._verdicts.decide(trace_id, unthinned, spans, now, forced)
        if decision.reason in CRITICAL_REASONS:
            return decision
        if rule is Rule.CRITICAL_ONLY:
            return Decision(False, SAMPLED_OUT, None, 1.0, decision.key)
        if rule is Rule.PROBABILITY:
            if decision.threshold is not None:
                self._last_threshold = decision.threshold
            return decision
        return _followed(decision.key, forced or FORCED, trace_state)


class StockSampler:
    """A sampler written for the stock SDK (``should_sample``), asked for every span.

    DROP is not recorded; RECORD_ONLY is recorded and kept when critical;
    RECORD_AND_SAMPLE is kept.  ``settings`` serve to find out what is critical.
    """

    per_span = True

    def __init__(self, sampler: Any, settings: SamplingSettings) -> None:
        self._sampler = sampler
        self._end = TraceEndSampler(settings)

    def head(self, start: Start) -> Head:
        """What the sampler says; should it fail, the span is kept: losing it is worse."""
        parent = start.parent
        state = parent.trace_state if parent is not None else TraceState()
        head = Head(True, True, state, Rule.KEEP)
        with guard("sampler"):
            head = self._ask(start)
        return head

    def _ask(self, start: Start) -> Head:
        result = self._sampler.should_sample(
            start.context,
            start.trace_id,
            start.name,
            start.kind,
            start.attributes,
            start.links or (),
        )
        record = bool(result.decision.is_recording())
        sampled = bool(result.decision.is_sampled())
        return Head(
            record,
            sampled,
            result.trace_state or TraceState(),
            Rule.KEEP if sampled else Rule.CRITICAL_ONLY,
            result.attributes,
        )

    def decide(
        self, rule: Rule, trace_id: bytes, trace_state: str, spans: Sequence[View], now: float
    ) -> Decision:
        return self._end.decide(rule, trace_id, trace_state, spans, now)


def build_sampler(config: SdkConfig, given: Any = None) -> Sampler:
    """The sampler that the configuration names, or the one ``given``.

    ``given`` is a Sampler, or a sampler of the stock SDK.  Raises ConfigError otherwise.
    """
    from mcptrace_proto.sampling.verdict import SamplingSettings

    settings = SamplingSettings(
        target_per_second=config.target_per_second,
        rate_min=config.rate_min,
        rate_max=config.rate_max,
        timeout_ms=config.timeout_limit_ms,
    )
    if given is not None:
        if hasattr(given, "should_sample"):
            return StockSampler(given, settings)
        if hasattr(given, "head") and hasattr(given, "decide"):
            return given  # type: ignore[no-any-return]
        raise ConfigError(f"sampler={given!r}: expected should_sample, or head and decide")
    return _named_sampler(config, settings)


def _named_sampler(config: SdkConfig, settings: SamplingSettings) -> Sampler:
    name = config.sampler
    if name == "mcptrace_adaptive":
        if config.sampler_arg:
            settings = replace(settings, target_per_second=config.sampler_arg)
        return TraceEndSampler(settings)
    follow_parent = name.startswith("parentbased_")
    kind = name.removeprefix("parentbased_")
    share = 1.0
    if kind == "traceidratio" and config.sampler_arg is not None:
        share = config.sampler_arg
    record_roots = kind != "always_off" and share >= 1.0 / threshold.MAX
    if record_roots:
        settings = replace(settings, rate_min=share, rate_max=share)
    return TraceEndSampler(settings, follow_parent, record_roots)


def _followed(key: str, reason: str, trace_state: str) -> Decision:
    """Kept because somebody said so, with the threshold that they wrote, if any."""
    applied = threshold.ot_threshold(trace_state)
    count = 1.0 if applied is None else threshold.adjusted_count(applied)
    return Decision(True, reason, applied, count, key)


def _followed_state(start: Start, sampled: bool) -> TraceState:
    """The parent's tracestate; without ``th`` where the flag contradicts R >= T.

    (TraceState probability sampling, rules for a child that follows its parent.)
    """
    assert start.parent is not None
    state = start.parent.trace_state
    text = state.to_header() if state else ""
    applied = threshold.ot_threshold(text)
    if applied is None:
        return state
    within = threshold.randomness(start.trace_id.to_bytes(16, "big"), text) >= applied
    return state if within == sampled else _with_threshold(state, None)


def _with_threshold(state: TraceState, applied: int | None) -> TraceState:
    before = state.to_header() if state else ""
    after = threshold.with_threshold(before, applied)
    return state if after == before else TraceState.from_header([after])
