"""What is a conforming v2.3 inference, what is not, and what is written beside what is there."""

from __future__ import annotations

import math

import pytest

from mcptrace_proto.model import SpanData
from mcptrace_proto.schema import (
    INVALID,
    NOT_REPORTED,
    VIOLATION_CODES,
    Enforcement,
    InferenceSpan,
    TokenUsage,
    Verdict,
    enforce,
    inference_attributes,
    is_inference,
    read_inference,
    validate,
    violation_attributes,
)

CONFORMING = {
    "mcptrace.protocol_version": "v2.3",
    "mcptrace.model_name": "tiny",
    "mcptrace.inference_latency_ms": 12.5,
    "mcptrace.token_usage.input": 5,
    "mcptrace.token_usage.output": 7,
    "mcptrace.token_usage.total": 12,
}
GONE = object()


def span(span_id: bytes = b"12345678", **changes) -> SpanData:
    """A conforming span with the given attributes (without ``mcptrace.``) changed or GONE."""
    attributes = {**CONFORMING, **{f"mcptrace.{key}": value for key, value in changes.items()}}
    kept = {key: value for key, value in attributes.items() if value is not GONE}
    return SpanData(bytes(16), span_id, attributes=kept)


def violations(**changes) -> list[str]:
    judged = span(**changes)
    return validate(judged, read_inference(judged.attributes))


def test_a_conforming_span_has_no_violation():
    assert violations() == []


# One change to a conforming span, and everything that is then wrong with it.
FOUND = [
    ({"span_id": b""}, ["span_id:missing"]),
    ({"span_id": bytes(8)}, ["span_id:invalid"]),
    ({"span_id": b"1234"}, ["span_id:invalid"]),
    ({"protocol_version": GONE}, ["protocol_version:missing"]),
    ({"protocol_version": "v2.2"}, ["protocol_version:unsupported"]),
    ({"protocol_version": 2.3}, ["protocol_version:unsupported"]),
    ({"model_name": GONE}, ["model_name:missing"]),
    ({"model_name": None}, ["model_name:missing"]),
    ({"model_name": 7}, ["model_name:invalid"]),
    ({"model_name": ""}, ["model_name:empty"]),
    ({"model_name": " \t"}, ["model_name:empty"]),
    ({"model_name": "m" * 257}, ["model_name:too_long"]),
    ({"model_version": 1}, ["model_version:invalid"]),
    ({"operation": ["chat"]}, ["operation:invalid"]),
    ({"provider": True}, ["provider:invalid"]),
    ({"request_id": b"id"}, ["request_id:invalid"]),
    ({"finish_reason": {"why": "stop"}}, ["finish_reason:invalid"]),
    ({"inference_latency_ms": GONE}, ["inference_latency_ms:missing"]),
    ({"inference_latency_ms": None}, ["inference_latency_ms:missing"]),
    ({"inference_latency_ms": -0.1}, ["inference_latency_ms:invalid"]),
    ({"inference_latency_ms": "12.5"}, ["inference_latency_ms:invalid"]),
    ({"inference_latency_ms": True}, ["inference_latency_ms:invalid"]),
    ({"inference_latency_ms": 10**400}, ["inference_latency_ms:invalid"]),
    ({"ttft_ms": math.nan}, ["ttft_ms:invalid"]),
    ({"queue_ms": math.inf}, ["queue_ms:invalid"]),
    ({"streaming": "true"}, ["streaming:invalid"]),
    ({"token_usage.input": -1}, ["token_usage.input:invalid"]),
    ({"token_usage.output": 7.0}, ["token_usage.output:invalid"]),
    ({"token_usage.total": "12"}, ["token_usage.total:invalid"]),
    ({"token_usage.cached": True}, ["token_usage.cached:invalid"]),
    ({"token_usage.reasoning": 1 << 63}, ["token_usage.reasoning:invalid"]),
    ({"token_usage.input": GONE}, ["token_usage.input:missing"]),
    ({"token_usage.output": GONE}, ["token_usage.output:missing"]),
    ({"token_usage.output": None}, ["token_usage.output:missing"]),
    (
        {
            "token_usage.output": GONE,
            "token_usage.unknown.output": "aborted",
            "token_usage.total": GONE,
        },
        ["token_usage.total:missing"],
    ),
    ({"token_usage.unknown.input": "not_reported"}, ["token_usage.input:conflict"]),
    ({"token_usage.unknown.output": 3}, ["token_usage.output:conflict"]),
    ({"token_usage.unknown.total": "aborted"}, ["token_usage.total:conflict"]),
    ({"token_usage.total": 13}, ["token_usage.total:conflict"]),
    (
        {
            "token_usage.output": GONE,
            "token_usage.unknown.output": "aborted",
            "token_usage.total": 4,
        },
        ["token_usage.total:conflict"],
    ),
    (
        {"token_usage.cached": 2, "token_usage.unknown.cached": "aborted"},
        ["token_usage.cached:conflict"],
    ),
    (
        {"token_usage.reasoning": 2, "token_usage.unknown.reasoning": "aborted"},
        ["token_usage.reasoning:conflict"],
    ),
    (
        {"token_usage.input": GONE, "token_usage.unknown.input": "Who knows"},
        ["token_usage.input:invalid_reason"],
    ),
    (
        {"token_usage.output": GONE, "token_usage.unknown.output": 0},
        ["token_usage.output:invalid_reason"],
    ),
    (
        {
            "token_usage.output": GONE,
            "token_usage.unknown.output": "aborted",
            "token_usage.total": GONE,
            "token_usage.unknown.total": "",
        },
        ["token_usage.total:invalid_reason"],
    ),
    ({"token_usage.unknown.cached": "?"}, ["token_usage.cached:invalid_reason"]),
    ({"token_usage.unknown.reasoning": "r" * 65}, ["token_usage.reasoning:invalid_reason"]),
    ({"token_usage.cached": 6}, ["token_usage.cached:exceeds_input"]),
    ({"token_usage.reasoning": 8}, ["token_usage.reasoning:exceeds_output"]),
    ({"token_usage.estimated": 1}, ["token_usage.estimated:invalid"]),
]


@pytest.mark.parametrize(("changes", "found"), FOUND, ids=lambda value: str(value)[:60])
def test_each_change_is_found_and_nothing_else(changes, found):
    assert violations(**changes) == found


def test_the_table_above_has_every_code_and_no_other():
    assert {code for _, found in FOUND for code in found} == VIOLATION_CODES


@pytest.mark.parametrize(
    "changes",
    [
        {"span_id": b"\x00" * 7 + b"\x01"},
        {"model_name": "m" * 256},
        {"inference_latency_ms": 0},
        {"inference_latency_ms": 12},
        {"ttft_ms": 0.0, "queue_ms": 3, "streaming": False},
        {"token_usage.total": GONE},  # it follows from the other two
        {"token_usage.cached": 5, "token_usage.reasoning": 7, "token_usage.estimated": True},
        {"token_usage.cached": 0, "token_usage.reasoning": 0},
        {"token_usage.unknown.cached": "reason_of_our_own_2"},
        {"token_usage.input": 0, "token_usage.output": 0, "token_usage.total": 0},
        {
            "token_usage.input": 0,
            "token_usage.output": (1 << 63) - 1,
            "token_usage.total": (1 << 63) - 1,
        },
        {
            "token_usage.input": GONE,
            "token_usage.unknown.input": "not_reported",
            "token_usage.total": 7,
        },
    ],
    ids=str,
)
def test_what_is_allowed_is_not_found(changes):
    assert violations(**changes) == []


def test_a_span_with_nothing_right_is_described_field_by_field_in_order():
    judged = SpanData(attributes={"mcptrace.streaming": 1})
    assert validate(judged, read_inference(judged.attributes)) == [
        "span_id:missing",
        "protocol_version:missing",
        "model_name:missing",
        "inference_latency_ms:missing",
        "streaming:invalid",
        "token_usage.input:missing",
        "token_usage.output:missing",
        "token_usage.total:missing",
    ]


def test_a_view_that_did_not_come_from_the_span_is_judged_too():
    view = InferenceSpan("tiny", inference_latency_ms=math.nan, token_usage=TokenUsage(input=-1))
    judged = SpanData(span_id=b"12345678", attributes={"mcptrace.protocol_version": "v2.3"})
    assert validate(judged, view) == [
        "inference_latency_ms:invalid",
        "token_usage.input:invalid",
        "token_usage.output:missing",
        "token_usage.total:missing",
    ]


# --- the three states of a count ------------------------------------------------------------


def test_zero_is_a_value():
    assert read_inference({"mcptrace.token_usage.cached": 0}).token_usage == TokenUsage(cached=0)


def test_absent_is_neither_zero_nor_unknown_for_a_reason():
    assert read_inference({"mcptrace.model_name": "m"}) == InferenceSpan("m")


def test_unknown_has_its_reason():
    read = read_inference({"mcptrace.token_usage.unknown.output": "abandoned"})
    assert read.token_usage == TokenUsage(unknown={"output": "abandoned"})


def test_what_cannot_be_a_count_is_unknown_as_invalid_whatever_else_is_said():
    read = read_inference(
        {"mcptrace.token_usage.input": "many", "mcptrace.token_usage.unknown.input": "aborted"}
    )
    assert read.token_usage == TokenUsage(unknown={"input": INVALID})


def test_a_total_is_derived_only_from_two_known_counts():
    one = read_inference({"mcptrace.token_usage.input": 3})
    two = read_inference({"mcptrace.token_usage.input": 3, "mcptrace.token_usage.output": 0})
    assert (one.token_usage.total, two.token_usage.total) == (None, 3)


@pytest.mark.parametrize(
    ("usage", "completed"),
    [
        (TokenUsage(), {"unknown": dict.fromkeys(("input", "output", "total"), NOT_REPORTED)}),
        (TokenUsage(2, 3), {"input": 2, "output": 3, "total": 5}),
        (
            TokenUsage(2, unknown={"output": "aborted"}),
            {"input": 2, "unknown": {"output": "aborted", "total": "aborted"}},
        ),
        (
            TokenUsage(-2, 3),
            {"output": 3, "unknown": {"input": INVALID, "total": NOT_REPORTED}},
        ),
        (TokenUsage(2, 3, unknown={"input": "aborted"}), {"input": 2, "output": 3, "total": 5}),
        (
            TokenUsage(2, 3, unknown={"total": "aborted"}, estimated=True),
            {"input": 2, "output": 3, "unknown": {"total": "aborted"}, "estimated": True},
        ),
        (
            TokenUsage((1 << 63) - 1, 1),
            {"input": (1 << 63) - 1, "output": 1, "unknown": {"total": NOT_REPORTED}},
        ),
    ],
    ids=str,
)
def test_completion_gives_every_mandatory_count_one_state(usage, completed):
    assert usage.completed() == TokenUsage(**completed)


# --- writing --------------------------------------------------------------------------------


def test_everything_is_written_under_our_names_and_beside_them():
    view = InferenceSpan(
        model_name="tiny",
        model_version="3",
        operation="chat",
        provider="vllm",
        request_id="r-1",
        finish_reason="stop",
        inference_latency_ms=250.0,
        ttft_ms=20.0,
        queue_ms=1.5,
        streaming=True,
        token_usage=TokenUsage(5, 7, None, 2, 1, estimated=True),
    )
    assert inference_attributes(view, {}) == {
        "mcptrace.protocol_version": "v2.3",
        "mcptrace.model_name": "tiny",
        "mcptrace.model_version": "3",
        "mcptrace.operation": "chat",
        "mcptrace.provider": "vllm",
        "mcptrace.request_id": "r-1",
        "mcptrace.finish_reason": "stop",
        "mcptrace.inference_latency_ms": 250.0,
        "mcptrace.ttft_ms": 20.0,
        "mcptrace.queue_ms": 1.5,
        "mcptrace.streaming": True,
        "mcptrace.token_usage.input": 5,
        "mcptrace.token_usage.output": 7,
        "mcptrace.token_usage.total": 12,
        "mcptrace.token_usage.cached": 2,
        "mcptrace.token_usage.reasoning": 1,
        "mcptrace.token_usage.estimated": True,
        "gen_ai.request.model": "tiny",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.response.id": "r-1",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": 0.02,
    }


def test_what_is_not_known_is_written_as_unknown_and_not_as_a_genai_number():
    assert inference_attributes(InferenceSpan("m", streaming=False), {}) == {
        "mcptrace.protocol_version": "v2.3",
        "mcptrace.model_name": "m",
        "mcptrace.streaming": False,
        "mcptrace.token_usage.unknown.input": "not_reported",
        "mcptrace.token_usage.unknown.output": "not_reported",
        "mcptrace.token_usage.unknown.total": "not_reported",
        "gen_ai.request.model": "m",
    }


def test_invalid_values_are_not_written():
    view = InferenceSpan(inference_latency_ms=-1.0, ttft_ms=math.nan, queue_ms=math.inf)
    assert not any("_ms" in name or "time_to" in name for name in inference_attributes(view, {}))


def test_no_name_that_the_span_carries_is_written_again():
    present = {
        "mcptrace.model_name": "as it came",
        "gen_ai.request.model": "alias",
        "gen_ai.usage.output_tokens": 99,
        "mcptrace.protocol_version": "v9",
        "mcptrace.ttft_ms": None,
    }
    added = inference_attributes(
        InferenceSpan("m", ttft_ms=1.0, token_usage=TokenUsage(1, 2)), present
    )
    assert added == {
        "mcptrace.token_usage.input": 1,
        "mcptrace.token_usage.output": 2,
        "mcptrace.token_usage.total": 3,
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.response.time_to_first_chunk": 0.001,
    }


@pytest.mark.parametrize(
    "present",
    [{"mcptrace.token_usage.input": 4}, {"mcptrace.token_usage.unknown.input": "aborted"}],
    ids=str,
)
def test_a_count_never_gets_a_second_state(present):
    known = inference_attributes(InferenceSpan(token_usage=TokenUsage(input=9)), present)
    unknown = inference_attributes(InferenceSpan(), present)
    assert [
        name for name in (*known, *unknown) if name.endswith(("usage.input", "unknown.input"))
    ] == []


# --- what is an inference, and what becomes of one that does not conform --------------------


@pytest.mark.parametrize(
    ("attributes", "speaks"),
    [
        ({}, False),
        ({"mcptrace.protocol_version": "v2.3", "mcptrace.sampling.reason": "error"}, False),
        ({"mcptrace.source.convention": "vllm", "mcptrace.audit.log_index": 3}, False),
        ({"gen_ai.request.model": "m"}, False),
        ({"mcptrace.model_name": "m"}, True),
        ({"mcptrace.token_usage.unknown.input": "aborted"}, True),
        ({"mcptrace.streaming": None}, True),
    ],
    ids=str,
)
def test_only_names_of_an_inference_make_one(attributes, speaks):
    assert is_inference(attributes) is speaks


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        (Enforcement.STRICT, Verdict(False, ("model_name:missing",))),
        (Enforcement.WARN, Verdict(True, ("model_name:missing",))),
        (Enforcement.OFF, Verdict(True)),
    ],
)
def test_the_level_says_what_becomes_of_a_span_that_does_not_conform(level, verdict):
    wrong = span(model_name=GONE)
    assert enforce(level, wrong, read_inference(wrong.attributes)) == verdict


@pytest.mark.parametrize("level", Enforcement)
def test_conforming_spans_and_spans_that_are_no_inference_pass_at_every_level(level):
    right = span()
    assert enforce(level, right, read_inference(right.attributes)) == Verdict(True)
    assert enforce(level, SpanData(), None) == Verdict(True)


def test_judging_changes_no_span():
    judged, same = span(model_name=3), span(model_name=3)
    enforce(Enforcement.WARN, judged, read_inference(judged.attributes))
    assert judged == same


@pytest.mark.parametrize(
    ("earlier", "written"),
    [
        ({}, {"mcptrace.schema.violations": ["a:missing", "b:invalid"]}),
        (
            {"mcptrace.schema.violations": ["b:invalid", "c:empty"]},
            {"mcptrace.schema.violations": ["b:invalid", "c:empty", "a:missing"]},
        ),
        ({"mcptrace.schema.violations": ["b:invalid", "a:missing"]}, {}),
        (
            {"mcptrace.schema.violations": "not a list"},
            {"mcptrace.schema.violations": ["a:missing", "b:invalid"]},
        ),
    ],
    ids=str,
)
def test_violations_are_added_to_those_found_earlier(earlier, written):
    assert violation_attributes(Verdict(True, ("a:missing", "b:invalid")), earlier) == written


def test_nothing_found_is_nothing_written():
    assert violation_attributes(Verdict(True), {}) == {}
