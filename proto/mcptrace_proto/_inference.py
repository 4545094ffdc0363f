"""One inference as a value, and how it is read from and written to the attributes of a span.

Private to the package: others come in through schema.py.  The names are in semconv.py; nothing
here knows other emitters' conventions.

Always true:
  * a count is a value (zero included) or unknown with a reason, never a guess;
  * ``inference_attributes`` never writes a value that ``validate`` would call invalid, and
    never a name that the span carries already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from mcptrace_proto import semconv
from mcptrace_proto.model import Attributes, AttributeValue

# Why a count is not known.  Emitters may use reasons of their own in the same form.
NOT_REPORTED = "not_reported"  # the model server said nothing about it
NOT_APPLICABLE = "not_applicable"  # the operation has no such count
ABORTED = "aborted"  # the request ended before the count was known
ABANDONED = "abandoned"  # the caller left a stream before the count was known
INVALID = "invalid"  # something was said, and it cannot be a count; always a violation
UNKNOWN_REASONS = frozenset({NOT_REPORTED, NOT_APPLICABLE, ABORTED, ABANDONED, INVALID})

COUNTS = ("input", "output", "total", "cached", "reasoning")
MANDATORY_COUNTS = ("input", "output", "total")
INT64_MAX = (1 << 63) - 1


@dataclass(slots=True)
class TokenUsage:
    """Token counts of one inference.

    ``input`` includes ``cached`` and ``output`` includes ``reasoning``; they are subsets and
    are never added.  ``unknown`` maps the name of a count to the reason why it is None.
    ``estimated`` says that the counts are this side's own and not the model server's.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    estimated: bool = False
    unknown: dict[str, str] = field(default_factory=dict)

    def count(self, name: str) -> int | None:
        """The count called ``name`` (one of COUNTS)."""
        value: int | None = getattr(self, name)
        return value

    def completed(self, reason: str = NOT_REPORTED) -> TokenUsage:
        """A copy in which every mandatory count has a value or a reason.

        A total that was not given is input + output when both are known; otherwise it is
        unknown for the reason of the count that it lacks.  Values that cannot be counts
        become unknown with the reason ``invalid``.
        """
        values = {name: self.count(name) for name in COUNTS}
        unknown = {name: text for name, text in self.unknown.items() if values.get(name) is None}
        for name, value in values.items():
            if value is not None and not is_count(value):
                values[name] = None
                unknown[name] = INVALID
        for name in ("input", "output"):
            if values[name] is None:
                unknown.setdefault(name, reason)
        if values["total"] is None and "total" not in unknown:
            values["total"] = _sum(values["input"], values["output"])
        if values["total"] is None and "total" not in unknown:
            # An invalid part makes the sum unreported, not invalid a second time.
            lacking = unknown.get("input") or unknown.get("output") or reason
            unknown["total"] = reason if lacking == INVALID else lacking
        return TokenUsage(**values, estimated=self.estimated, unknown=unknown)


@dataclass(slots=True)
class InferenceSpan:
    """What one inference says of itself.  Times are milliseconds; None means not said."""

    model_name: str | None = None
    model_version: str | None = None
    operation: str | None = None
    provider: str | None = None
    request_id: str | None = None
    finish_reason: str | None = None
    inference_latency_ms: float | None = None
    ttft_ms: float | None = None
    queue_ms: float | None = None
    streaming: bool | None = None
    token_usage: TokenUsage = field(default_factory=TokenUsage)


# Attribute names by the field that they carry, in the order in which they are written.
TEXT_NAMES = {
    "model_name": semconv.MODEL_NAME,
    "model_version": semconv.MODEL_VERSION,
    "operation": semconv.OPERATION,
    "provider": semconv.PROVIDER,
    "request_id": semconv.REQUEST_ID,
    "finish_reason": semconv.FINISH_REASON,
}
DURATION_NAMES = {
    "inference_latency_ms": semconv.INFERENCE_LATENCY_MS,
    "ttft_ms": semconv.TTFT_MS,
    "queue_ms": semconv.QUEUE_MS,
}
COUNT_NAMES = {
    "input": semconv.TOKENS_INPUT,
    "output": semconv.TOKENS_OUTPUT,
    "total": semconv.TOKENS_TOTAL,
    "cached": semconv.TOKENS_CACHED,
    "reasoning": semconv.TOKENS_REASONING,
}
UNKNOWN_NAMES = {name: semconv.TOKENS_UNKNOWN_PREFIX + name for name in COUNTS}

_INFERENCE_NAMES = frozenset(
    {
        semconv.STREAMING,
        semconv.TOKENS_ESTIMATED,
        *TEXT_NAMES.values(),
        *DURATION_NAMES.values(),
        *COUNT_NAMES.values(),
        *UNKNOWN_NAMES.values(),
    }
)

_GEN_AI_TEXT = {
    "model_name": semconv.GEN_AI_REQUEST_MODEL,
    "operation": semconv.GEN_AI_OPERATION_NAME,
    "provider": semconv.GEN_AI_PROVIDER_NAME,
    "request_id": semconv.GEN_AI_RESPONSE_ID,
}
# The GenAI conventions have no total: it is the sum of the other two.
_GEN_AI_COUNTS = {
    "input": semconv.GEN_AI_INPUT_TOKENS,
    "output": semconv.GEN_AI_OUTPUT_TOKENS,
    "cached": semconv.GEN_AI_CACHE_READ_TOKENS,
    "reasoning": semconv.GEN_AI_REASONING_TOKENS,
}


def is_inference(attributes: Attributes) -> bool:
    """Whether a span speaks MCP-Trace about an inference.

    Marks that the product leaves on any span (protocol version, sampling, audit, source) do
    not count: the SDK stamps the version on every span, inference or not.
    """
    return not _INFERENCE_NAMES.isdisjoint(attributes)


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value can be a token count: an integer, not a bool, 0 .. 2**63 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX


def duration_ms(value: object) -> float | None:
    """A number of milliseconds as a float; None unless it is a finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


def read_inference(attributes: Attributes) -> InferenceSpan:
    """The inference that the MCP-Trace names describe.

    A value of the wrong type reads as None (a count as unknown, ``invalid``); ``validate``
    sees the attribute itself and reports it.
    """
    get = attributes.get
    streaming = get(semconv.STREAMING)
    return InferenceSpan(
        model_name=_text(get(semconv.MODEL_NAME)),
        model_version=_text(get(semconv.MODEL_VERSION)),
        operation=_text(get(semconv.OPERATION)),
        provider=_text(get(semconv.PROVIDER)),
        request_id=_text(get(semconv.REQUEST_ID)),
        finish_reason=_text(get(semconv.FINISH_REASON)),
        inference_latency_ms=duration_ms(get(semconv.INFERENCE_LATENCY_MS)),
        ttft_ms=duration_ms(get(semconv.TTFT_MS)),
        queue_ms=duration_ms(get(semconv.QUEUE_MS)),
        streaming=streaming if isinstance(streaming, bool) else None,
        token_usage=_read_token_usage(attributes),
    )


def _text(value: AttributeValue) -> str | None:
    return value if isinstance(value, str) else None


def _read_token_usage(attributes: Attributes) -> TokenUsage:
    usage = TokenUsage(estimated=attributes.get(semconv.TOKENS_ESTIMATED) is True)
    for name in COUNTS:
        value = attributes.get(COUNT_NAMES[name])
        if value is None:
            continue
        if is_count(value):
            setattr(usage, name, value)
        else:
            usage.unknown[name] = INVALID
    for name in COUNTS:
        reason = attributes.get(UNKNOWN_NAMES[name])
        if isinstance(reason, str):
            usage.unknown.setdefault(name, reason)
    if usage.total is None and "total" not in usage.unknown:
        usage.total = _sum(usage.input, usage.output)
    return usage


def _sum(input_tokens: int | None, output_tokens: int | None) -> int | None:
    """The derived total: only when both parts are known and the sum is a count itself."""
    if input_tokens is None or output_tokens is None:
        return None
    total = input_tokens + output_tokens
    return total if total <= INT64_MAX else None


def inference_attributes(view: InferenceSpan, present: Attributes) -> Attributes:
    """What to add to a span that carries ``present``, so that it says what ``view`` says.

    MCP-Trace names with the v2.3 stamp, and the GenAI names beside them.  Counts are completed
    first (see ``TokenUsage.completed``).  None and invalid values are left out.
    """
    usage = view.token_usage.completed()
    wanted: Attributes = {semconv.PROTOCOL_VERSION: semconv.PROTOCOL_VERSION_VALUE}
    for name, key in TEXT_NAMES.items():
        wanted[key] = getattr(view, name)
    for name, key in DURATION_NAMES.items():
        wanted[key] = duration_ms(getattr(view, name))
    wanted[semconv.STREAMING] = view.streaming
    for name in COUNTS:
        # The span may already say the other of the two; a count has one state only.
        if COUNT_NAMES[name] in present or UNKNOWN_NAMES[name] in present:
            continue
        wanted[COUNT_NAMES[name]] = usage.count(name)
        wanted[UNKNOWN_NAMES[name]] = usage.unknown.get(name)
    wanted[semconv.TOKENS_ESTIMATED] = True if usage.estimated else None
    wanted.update(_gen_ai_attributes(replace(view, token_usage=usage)))
    return {key: value for key, value in wanted.items() if value is not None and key not in present}


def _gen_ai_attributes(view: InferenceSpan) -> Attributes:
    wanted: Attributes = {}
    for name, key in _GEN_AI_TEXT.items():
        wanted[key] = getattr(view, name)
    for name, key in _GEN_AI_COUNTS.items():
        wanted[key] = view.token_usage.count(name)
    if view.finish_reason is not None:
        wanted[semconv.GEN_AI_FINISH_REASONS] = [view.finish_reason]
    if view.streaming:
        wanted[semconv.GEN_AI_REQUEST_STREAM] = True
    ttft_ms = duration_ms(view.ttft_ms)
    if ttft_ms is not None:
        wanted[semconv.GEN_AI_TIME_TO_FIRST_CHUNK] = ttft_ms / 1000.0
    return wanted
