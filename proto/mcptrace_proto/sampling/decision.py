"""The verdict on one trace, with everything needed to explain it later."""

from __future__ import annotations

from dataclasses import dataclass

from mcptrace_proto import semconv
from mcptrace_proto.model import Attributes

# Reasons, in the order in which they win.
TIMEOUT, ERROR, P99, FORCED, PARENT, PROBABILITY = (
    "timeout",
    "error",
    "p99",
    "forced",
    "parent",
    "probability",
)
CRITICAL_REASONS = frozenset({ERROR, TIMEOUT, P99})
SAMPLED_OUT = "sampled_out"


@dataclass(slots=True, frozen=True)
class Decision:
    """``threshold`` is the 56-bit rejection threshold T that was applied (keep iff R >= T).

    It is None when the probability is not known.  ``adjusted_count`` is M/(M-T) for the
    probability part and 1.0 for a stratum that is kept whole.  ``key`` names the budget
    (model and operation) that was charged.
    """

    keep: bool
    reason: str
    threshold: int | None
    adjusted_count: float
    key: str


def sampling_attributes(decision: Decision) -> Attributes:
    """What a kept span says of its verdict."""
    said: Attributes = {semconv.SAMPLING_REASON: decision.reason}
    if decision.threshold is not None:
        said[semconv.SAMPLING_ADJUSTED_COUNT] = decision.adjusted_count
    return said
