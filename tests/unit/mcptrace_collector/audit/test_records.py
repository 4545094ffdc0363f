from __future__ import annotations

import math

from mcptrace_collector.audit import layout, records
from mcptrace_collector.audit.layout import ZERO_HASH, decode_record, encode_record
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv, wire
from mcptrace_proto.model import STATUS_ERROR, Event, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision
from mcptrace_proto.schema import InferenceSpan, TokenUsage

SECRET = "my secret prompt"
KEPT = Decision(True, "probability", 0xE6 << 48, 10.0, "tiny/chat")


def span_record(**attributes) -> SpanRecord:
    data = SpanData(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        name=SECRET,
        status_code=STATUS_ERROR,
        status_message=SECRET,
        events=[Event(1, "exception", {"exception.message": SECRET})],
        attributes={
            "gen_ai.prompt": SECRET,
            "http.request.header.authorization": SECRET,
            semconv.ERROR_TYPE: "TimeoutError",
            semconv.SOURCE_CONVENTION: "gen_ai",
            semconv.SCHEMA_VIOLATIONS: ["model_name:missing"],
            **attributes,
        },
    )
    resource = {"service.name": "chat", "host.ip": SECRET}
    return SpanRecord(wire.encode_span(data), data, SpanSource(), resource)


VIEW = InferenceSpan(
    model_name="tiny",
    model_version="3",
    operation="chat",
    provider="vllm",
    request_id=SECRET,
    finish_reason="stop",
    inference_latency_ms=12.5,
    ttft_ms=math.nan,
    queue_ms=1.0,
    streaming=True,
    token_usage=TokenUsage(input=10, output=20, total=30, unknown={"cached": "not_reported"}),
)


def test_an_inference_is_recorded_field_for_field():
    record = span_record()
    assert records.inference_fields(record, VIEW, KEPT, "acme") == {
        "trace_id": "74" * 16,
        "span_id": "73" * 8,
        "model_name": "tiny",
        "model_version": "3",
        "provider": "vllm",
        "operation": "chat",
        "inference_latency_ms": 12.5,
        "token_usage": {
            "input": 10,
            "output": 20,
            "total": 30,
            "cached": None,
            "reasoning": None,
            "estimated": False,
            "unknown": {"cached": "not_reported"},
        },
        "ttft_ms": None,
        "finish_reason": "stop",
        "status": "error",
        "error_type": "TimeoutError",
        "tenant": "acme",
        "service_name": "chat",
        "sampling": {"reason": "probability", "threshold": "e6", "adjusted_count": 10.0},
        "source_convention": "gen_ai",
        "violations": ["model_name:missing"],
        "span_hash": sm3(record.raw).hex(),
    }


def test_a_span_that_is_no_inference_has_the_common_fields():
    fields = records.span_fields(span_record(), KEPT, None)
    inference = records.inference_fields(span_record(), VIEW, KEPT, None)
    assert fields == {name: inference[name] for name in fields}
    assert "model_name" not in fields


def test_no_content_reaches_a_record():
    record = span_record(**{semconv.ERROR_TYPE: SECRET, semconv.SCHEMA_VIOLATIONS: [SECRET, 7]})
    fields = records.inference_fields(record, VIEW, KEPT, None)
    assert SECRET not in repr(fields)
    assert (fields["error_type"], fields["violations"]) == ("_OTHER", ["_OTHER", "_OTHER"])


def test_attributes_of_the_wrong_type_are_left_out():
    record = span_record(**{semconv.ERROR_TYPE: 7, semconv.SCHEMA_VIOLATIONS: "x"})
    record.resource = {"service.name": ["a"]}
    fields = records.span_fields(record, KEPT, None)
    assert (fields["error_type"], fields["violations"], fields["service_name"]) == (None, [], None)


def test_an_unknown_threshold_is_null():
    decision = Decision(True, "parent", None, math.inf, "")
    assert records.span_fields(span_record(), decision, None)["sampling"] == {
        "reason": "parent",
        "threshold": None,
        "adjusted_count": None,
    }


def test_the_longest_record_fits_a_line():
    wide = "\U0001f600" * 10_000
    view = InferenceSpan(
        model_name=wide,
        model_version=wide,
        operation=wide,
        provider=wide,
        request_id=wide,
        finish_reason=wide,
        inference_latency_ms=1e308,
        ttft_ms=1e308,
        queue_ms=None,
        streaming=None,
        token_usage=TokenUsage(unknown={"x" * n: "y" * 128 for n in range(200)}),
    )
    record = span_record(**{semconv.SCHEMA_VIOLATIONS: ["v" * 128] * 1000})
    record.resource = {"service.name": wide}
    fields = records.inference_fields(record, view, KEPT, wide)
    assert len(fields["model_name"]) == records.NAME_CHARS_MAX
    line = encode_record("0" * 32, 0, ZERO_HASH, time_unix_nano=0, kind="inference", fields=fields)
    assert len(line) < layout.LINE_BYTES_MAX / 4


def test_sampled_out_counts_add_up_and_are_sorted():
    counts = {("b", "probability"): 2, ("a", "probability"): 5, ("a", "parent"): 1}
    assert records.sampled_out_fields(counts, 10, 20) == {
        "from_unix_nano": 10,
        "to_unix_nano": 20,
        "spans": 8,
        "counts": [
            {"key": "a", "reason": "parent", "spans": 1},
            {"key": "a", "reason": "probability", "spans": 5},
            {"key": "b", "reason": "probability", "spans": 2},
        ],
    }


def test_too_many_keys_are_added_up_and_fit_a_line():
    wide = "\U0001f600" * 300
    counts = {(f"{n}{wide}", "probability"): n + 1 for n in range(5000)}
    fields = records.sampled_out_fields(counts, 0, 1)
    assert fields["spans"] == sum(counts.values())
    assert sum(entry["spans"] for entry in fields["counts"]) == fields["spans"]
    assert len(fields["counts"]) == records.SAMPLED_OUT_KEYS_MAX + 1
    decode_record(
        encode_record("0" * 32, 0, ZERO_HASH, time_unix_nano=0, kind="sampled_out", fields=fields)
    )


def test_the_configuration_is_recorded_as_its_digest():
    assert records.configuration_fields("1.2", "a: é\n") == {
        "version": "1.2",
        "config_sm3": sm3("a: é\n".encode()).hex(),
    }
