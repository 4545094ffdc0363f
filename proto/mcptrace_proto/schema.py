"""MCP-Trace v2.3 on an OTLP span: how an inference is read, written, judged and enforced.

docs/schema.md is the specification of what this file does; SDK and collector share it, so a
span that one of them passes is never refused by the other at the same level.

A violation is a short stable code, the field and what is wrong with it: ``model_name:missing``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from mcptrace_proto import semconv
from mcptrace_proto._inference import (
    ABANDONED,
    ABORTED,
    COUNT_NAMES,
    COUNTS,
    DURATION_NAMES,
    INVALID,
    MANDATORY_COUNTS,
    NOT_APPLICABLE,
    NOT_REPORTED,
    TEXT_NAMES,
    UNKNOWN_NAMES,
    UNKNOWN_REASONS,
    InferenceSpan,
    TokenUsage,
    duration_ms,
    inference_attributes,
    is_count,
    is_inference,
    read_inference,
)
from mcptrace_proto.model import SPAN_ID_BYTES, Attributes, SpanData

__all__ = [
    "ABANDONED",
    "ABORTED",
    "COUNTS",
    "INVALID",
    "MANDATORY_COUNTS",
    "MODEL_NAME_CHARS_MAX",
    "NOT_APPLICABLE",
    "NOT_REPORTED",
    "UNKNOWN_REASONS",
    "VIOLATION_CODES",
    "Enforcement",
    "InferenceSpan",
    "TokenUsage",
    "Verdict",
    "enforce",
    "inference_attributes",
    "is_inference",
    "read_inference",
    "validate",
    "violation_attributes",
]

MODEL_NAME_CHARS_MAX = 256

# Everything that ``validate`` can find; docs/schema.md explains each.
VIOLATION_CODES = frozenset(
    {
        "span_id:missing",
        "span_id:invalid",
        "protocol_version:missing",
        "protocol_version:unsupported",
        *(f"{name}:invalid" for name in TEXT_NAMES),
        "model_name:missing",
        "model_name:empty",
        "model_name:too_long",
        *(f"{name}:invalid" for name in DURATION_NAMES),
        "inference_latency_ms:missing",
        "streaming:invalid",
        *(f"token_usage.{name}:invalid" for name in COUNTS),
        *(f"token_usage.{name}:conflict" for name in COUNTS),
        *(f"token_usage.{name}:invalid_reason" for name in COUNTS),
        *(f"token_usage.{name}:missing" for name in MANDATORY_COUNTS),
        "token_usage.cached:exceeds_input",
        "token_usage.reasoning:exceeds_output",
        "token_usage.estimated:invalid",
    }
)

_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_SPAN_ID = bytes(SPAN_ID_BYTES)


def validate(span: SpanData, view: InferenceSpan) -> list[str]:
    """The violations of an inference span, in the order of docs/schema.md; empty is conforming.

    A span is judged by what it carries.  One that we write ourselves, or that we translate
    from another convention, is judged after ``inference_attributes`` were added to it; one
    that came speaking MCP-Trace is judged as it came, before anything is filled in.
    """
    found: list[str] = []
    found += _span_id_violations(span.span_id)
    found += _protocol_version_violations(span.attributes)
    found += _text_violations(view, span.attributes)
    found += _duration_violations(view, span.attributes)
    if not isinstance(span.attributes.get(semconv.STREAMING, False), bool):
        found.append("streaming:invalid")
    found += _token_usage_violations(view.token_usage, span.attributes)
    return found


def _span_id_violations(span_id: bytes) -> list[str]:
    if not span_id:
        return ["span_id:missing"]
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN_ID:
        return ["span_id:invalid"]
    return []


def _protocol_version_violations(attributes: Attributes) -> list[str]:
    version = attributes.get(semconv.PROTOCOL_VERSION)
    if version is None:
        return ["protocol_version:missing"]
    if version != semconv.PROTOCOL_VERSION_VALUE:
        return ["protocol_version:unsupported"]
    return []


def _text_violations(view: InferenceSpan, attributes: Attributes) -> list[str]:
    found: list[str] = []
    for name, key in TEXT_NAMES.items():
        if not isinstance(attributes.get(key, ""), (str, type(None))):
            found.append(f"{name}:invalid")
        elif name == "model_name":
            found += _model_name_violations(view.model_name)
    return found


def _model_name_violations(model_name: str | None) -> list[str]:
    if model_name is None:
        return ["model_name:missing"]
    if not model_name.strip():
        return ["model_name:empty"]
    if len(model_name) > MODEL_NAME_CHARS_MAX:
        return ["model_name:too_long"]
    return []


def _duration_violations(view: InferenceSpan, attributes: Attributes) -> list[str]:
    found: list[str] = []
    for name, key in DURATION_NAMES.items():
        for value in (getattr(view, name), attributes.get(key)):
            if value is not None and duration_ms(value) is None:
                found.append(f"{name}:invalid")
                break
    if view.inference_latency_ms is None and "inference_latency_ms:invalid" not in found:
        found.insert(0, "inference_latency_ms:missing")
    return found


def _token_usage_violations(usage: TokenUsage, attributes: Attributes) -> list[str]:
    found: list[str] = []
    valid: dict[str, int] = {}
    for name in COUNTS:
        value = usage.count(name)
        if value is not None and is_count(value):
            valid[name] = value
        problem = _count_problem(name, value, usage.unknown.get(name), attributes)
        if problem is not None:
            found.append(f"token_usage.{name}:{problem}")
    if _total_conflicts(valid) and "token_usage.total:conflict" not in found:
        found.append("token_usage.total:conflict")
    for part, whole in (("cached", "input"), ("reasoning", "output")):
        if part in valid and whole in valid and valid[part] > valid[whole]:
            found.append(f"token_usage.{part}:exceeds_{whole}")
    if not isinstance(attributes.get(semconv.TOKENS_ESTIMATED, False), bool):
        found.append("token_usage.estimated:invalid")
    return found


def _count_problem(
    name: str, value: int | None, reason: str | None, attributes: Attributes
) -> str | None:
    """What is wrong with one count, seen alone."""
    if reason == INVALID or (value is not None and not is_count(value)):
        return "invalid"
    if value is not None:
        # A count has one state: a value and a reason for having none contradict each other.
        contradicted = reason is not None or attributes.get(UNKNOWN_NAMES[name]) is not None
        return "conflict" if contradicted else None
    written = attributes.get(UNKNOWN_NAMES[name])
    for text in (reason, written):
        if text is not None and not (isinstance(text, str) and _REASON.fullmatch(text)):
            return "invalid_reason"
    carried = attributes.get(COUNT_NAMES[name])
    stated = reason is not None or written is not None or carried is not None
    return "missing" if name in MANDATORY_COUNTS and not stated else None


def _total_conflicts(valid: dict[str, int]) -> bool:
    """Whether the total is not input + output, or less than the one of them that is known."""
    if "total" not in valid:
        return False
    parts = [valid[name] for name in ("input", "output") if name in valid]
    return valid["total"] != sum(parts) if len(parts) == 2 else valid["total"] < sum(parts)


class Enforcement(enum.Enum):
    """What becomes of an inference span that does not conform."""

    STRICT = "strict"  # it is not exported; the caller counts and logs it
    WARN = "warn"  # it is exported with its violations
    OFF = "off"  # nobody looks


@dataclass(slots=True, frozen=True)
class Verdict:
    """Whether to export a span, and what was found."""

    export: bool
    violations: tuple[str, ...] = ()


_CONFORMS = Verdict(export=True)


def enforce(level: Enforcement, span: SpanData, view: InferenceSpan | None) -> Verdict:
    """Judge one span at ``level``.  Spans that are no inference (``view`` is None) pass."""
    if view is None or level is Enforcement.OFF:
        return _CONFORMS
    violations = validate(span, view)
    if not violations:
        return _CONFORMS
    return Verdict(export=level is not Enforcement.STRICT, violations=tuple(violations))


def violation_attributes(verdict: Verdict, present: Attributes) -> Attributes:
    """The ``mcptrace.schema.violations`` to put on a span that carries ``present``.

    Violations that an earlier stage wrote stay, and new ones follow.  Empty when there is
    nothing to add.  When the name is present already, its attribute has to be replaced.
    """
    earlier = present.get(semconv.SCHEMA_VIOLATIONS)
    known = [code for code in earlier if isinstance(code, str)] if isinstance(earlier, list) else []
    added = [code for code in verdict.violations if code not in known]
    return {semconv.SCHEMA_VIOLATIONS: [*known, *added]} if added else {}
