"""What the audit log says about a span, and what it never says.

Turns a span, its verdict and its hash into the fields of a record.  Metadata only: no
prompt, no completion, no headers, no request id, no status message, no exception message.
Free text that reaches a record is either a name, cut at NAME_CHARS_MAX, or must look like
a code (``error_type``, ``finish_reason``); what looks like prose becomes OTHER.

Pure.  Knows field names and their order; not indices, hashes of records, or files.
docs/audit.md is the specification of the fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcptrace_collector.audit.layout import HASH_NAME
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_proto import semconv
from mcptrace_proto.model import STATUS_ERROR, STATUS_OK, AttributeValue
from mcptrace_proto.sampling.threshold import encode_threshold

if TYPE_CHECKING:
    from mcptrace_collector.pipeline import SpanRecord
    from mcptrace_proto.sampling.decision import Decision
    from mcptrace_proto.schema import InferenceSpan

NAME_CHARS_MAX: Final = 256
VIOLATIONS_MAX: Final = 32
UNKNOWN_COUNTS_MAX: Final = 16
SAMPLED_OUT_KEYS_MAX: Final = 200
OTHER: Final = "_OTHER"  # the value the semantic conventions give error.type for "something else"

_STATUS: Final = {STATUS_OK: "ok", STATUS_ERROR: "error"}
_CODE: Final = re.compile(r"[A-Za-z0-9_.:/$<>-]{1,128}")


def inference_fields(
    record: SpanRecord, view: InferenceSpan, decision: Decision, tenant: str | None
) -> dict[str, Any]:
    """Fields of the record of one kept inference span, in their fixed order."""
    usage = view.token_usage
    return {
        "trace_id": record.data.trace_id.hex(),
        "span_id": record.data.span_id.hex(),
        "model_name": _name(view.model_name),
        "model_version": _name(view.model_version),
        "provider": _name(view.provider),
        "operation": _name(view.operation),
        "inference_latency_ms": _finite(view.inference_latency_ms),
        "token_usage": {
            "input": usage.input,
            "output": usage.output,
            "total": usage.total,
            "cached": usage.cached,
            "reasoning": usage.reasoning,
            "estimated": usage.estimated,
            "unknown": _unknown(usage.unknown),
        },
        "ttft_ms": _finite(view.ttft_ms),
        "finish_reason": _code(view.finish_reason),
        **_common(record, decision, tenant),
    }


def span_fields(record: SpanRecord, decision: Decision, tenant: str | None) -> dict[str, Any]:
    """Fields of the record of a kept span that is not an inference, in their fixed order."""
    return {
        "trace_id": record.data.trace_id.hex(),
        "span_id": record.data.span_id.hex(),
        **_common(record, decision, tenant),
    }


def sampled_out_fields(
    counts: Mapping[tuple[str, str], int], from_unix_nano: int, to_unix_nano: int
) -> dict[str, Any]:
    """How many spans were not kept in an interval, by (key, reason).

    The keys with the largest counts are named, SAMPLED_OUT_KEYS_MAX at most; the others are
    added up by reason under OTHER, so that the sum is always the whole.
    """
    named: dict[tuple[str, str], int] = {}
    for (key, reason), spans in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        entry = (_name(key) or "", _code(reason) or OTHER)
        if len(named) >= SAMPLED_OUT_KEYS_MAX and entry not in named:
            entry = (OTHER, entry[1])
        named[entry] = named.get(entry, 0) + spans
    return {
        "from_unix_nano": from_unix_nano,
        "to_unix_nano": to_unix_nano,
        "spans": sum(named.values()),
        "counts": [
            {"key": key, "reason": reason, "spans": spans}
            for (key, reason), spans in sorted(named.items())
        ],
    }


def configuration_fields(version: str, configuration: str) -> dict[str, Any]:
    """Fields of start, stop and config_change: what ran, and a digest of how it was set up.

    ``configuration`` is the effective configuration as text, secrets already redacted.
    """
    digest = sm3(configuration.encode("utf-8", "surrogatepass")).hex()
    return {"version": version, f"config_{HASH_NAME}": digest}


def _common(record: SpanRecord, decision: Decision, tenant: str | None) -> dict[str, Any]:
    attributes = record.data.attributes
    threshold = decision.threshold
    return {
        "status": _STATUS.get(record.data.status_code, "unset"),
        "error_type": _code(attributes.get(semconv.ERROR_TYPE)),
        "tenant": _name(tenant),
        "service_name": _name(record.resource.get("service.name")),
        "sampling": {
            "reason": _code(decision.reason),
            "threshold": None if threshold is None else encode_threshold(threshold),
            "adjusted_count": _finite(decision.adjusted_count),
        },
        "source_convention": _code(attributes.get(semconv.SOURCE_CONVENTION)),
        "violations": _violations(attributes.get(semconv.SCHEMA_VIOLATIONS)),
        "span_hash": sm3(record.raw).hex(),
    }


def _name(value: AttributeValue) -> str | None:
    return value[:NAME_CHARS_MAX] if isinstance(value, str) else None


def _code(value: AttributeValue) -> str | None:
    if not isinstance(value, str):
        return None
    return value if _CODE.fullmatch(value) else OTHER


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _unknown(reasons: Mapping[str, str]) -> dict[str, str | None]:
    kept = sorted(reasons.items())[:UNKNOWN_COUNTS_MAX]
    return {_code(name) or OTHER: _code(reason) for name, reason in kept}


def _violations(value: AttributeValue) -> list[str]:
    if not isinstance(value, list):
        return []
    return [_code(violation) or OTHER for violation in value[:VIOLATIONS_MAX]]
