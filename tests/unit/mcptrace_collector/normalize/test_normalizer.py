"""What is written on a span, what is judged, and what never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcptrace_collector.normalize import Normalized, Normalizer
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import wire
from mcptrace_proto.schema import Enforcement

MakeRecord = Callable[..., SpanRecord]

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x", "gen_ai.request.model": "m"}
VLLM = {"gen_ai.latency.e2e": 0.1, "gen_ai.usage.prompt_tokens": 1}


def test_the_span_gets_our_names_and_current_genai_names_beside_its_own(
    make_record: MakeRecord,
) -> None:
    record = make_record(
        {
            "gen_ai.system": "xai",
            "gen_ai.request.model": "grok",
            "gen_ai.usage.prompt_tokens": 5,
            "gen_ai.usage.completion_tokens": 6,
        }
    )
    before = dict(record.data.attributes)
    Normalizer().normalize(record)
    added = {name: value for name, value in record.data.attributes.items() if name not in before}
    assert added == {
        "mcptrace.protocol_version": "v2.3",
        "mcptrace.model_name": "grok",
        "mcptrace.provider": "x_ai",
        "mcptrace.inference_latency_ms": 250.0,
        "mcptrace.token_usage.input": 5,
        "mcptrace.token_usage.output": 6,
        "mcptrace.token_usage.total": 11,
        "gen_ai.provider.name": "x_ai",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 6,
        "mcptrace.source.model_name": "gen_ai.request.model",
        "mcptrace.source.convention": "otel_genai_pre_1.27",
    }
    assert wire.decode_span(record.raw) == record.data


@pytest.mark.parametrize("value", [-1, True, float("nan"), "many", 1 << 40, 1.5])
def test_a_count_that_cannot_be_one_is_unknown_as_invalid(
    make_record: MakeRecord, value: object
) -> None:
    record = make_record(
        CHAT | {"gen_ai.usage.input_tokens": value, "gen_ai.usage.output_tokens": 2}
    )
    found = Normalizer().normalize(record)
    assert found == Normalized(
        ("token_usage.input:invalid",), False, ("count_invalid", "translated")
    )
    assert record.data.attributes["mcptrace.token_usage.unknown.input"] == "invalid"
    assert record.data.attributes["mcptrace.token_usage.output"] == 2
    assert record.data.attributes["mcptrace.schema.violations"] == ["token_usage.input:invalid"]


def test_a_total_that_is_not_the_sum_is_replaced_by_the_sum(make_record: MakeRecord) -> None:
    record = make_record(
        {
            "llm.request.model": "m",
            "llm.usage.prompt_tokens": 5,
            "llm.usage.completion_tokens": 6,
            "llm.usage.total_tokens": 99,
        }
    )
    assert Normalizer().normalize(record).changes == ("total_replaced", "translated")
    attributes = record.data.attributes
    assert attributes["mcptrace.token_usage.total"] == 11
    assert attributes["mcptrace.source.token_usage.total"] == "sum:input+output"
    assert attributes["llm.usage.total_tokens"] == 99


def test_a_reported_total_stands_where_a_part_is_unknown(make_record: MakeRecord) -> None:
    record = make_record({"llm.request.model": "m", "llm.usage.total_tokens": 99})
    assert Normalizer().normalize(record).violations == ()
    assert record.data.attributes["mcptrace.token_usage.total"] == 99


def test_more_cached_than_input_means_that_input_was_counted_without(
    make_record: MakeRecord,
) -> None:
    usage = {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 11,
        "gen_ai.usage.cache_creation.input_tokens": 4,
    }
    record = make_record(CHAT | usage)
    assert Normalizer().normalize(record).changes == ("input_made_inclusive", "translated")
    assert record.data.attributes["mcptrace.token_usage.input"] == 25
    assert record.data.attributes["mcptrace.token_usage.total"] == 26
    assert record.data.attributes["gen_ai.usage.input_tokens"] == 10


def test_a_span_without_a_model_is_flagged_and_keeps_none(make_record: MakeRecord) -> None:
    record = make_record({"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x"})
    found = Normalizer().normalize(record)
    assert found.violations == ("model_name:missing",)
    assert record.inference is not None
    assert record.inference.model_name is None
    assert record.data.attributes["mcptrace.schema.violations"] == ["model_name:missing"]


@pytest.mark.parametrize(
    ("enforcement", "expected", "written"),
    [
        (Enforcement.STRICT, Normalized(("model_name:missing",), True, ("translated",)), False),
        (Enforcement.WARN, Normalized(("model_name:missing",), False, ("translated",)), True),
        (Enforcement.OFF, Normalized((), False, ("translated",)), False),
    ],
)
def test_enforcement_drops_flags_or_does_not_look(
    make_record: MakeRecord, enforcement: Enforcement, expected: Normalized, written: bool
) -> None:
    record = make_record({"gen_ai.operation.name": "chat"})
    assert Normalizer(enforcement=enforcement).normalize(record) == expected
    assert ("mcptrace.schema.violations" in record.data.attributes) is written


def test_a_span_of_ours_is_judged_as_it_came_and_completed_all_the_same(
    make_record: MakeRecord,
) -> None:
    record = make_record({"mcptrace.model_name": "m", "gen_ai.usage.input_tokens": 5})
    found = Normalizer().normalize(record)
    assert found.violations == (
        "protocol_version:missing",
        "inference_latency_ms:missing",
        "token_usage.input:missing",
        "token_usage.output:missing",
        "token_usage.total:missing",
    )
    attributes = record.data.attributes
    assert attributes["mcptrace.schema.violations"] == list(found.violations)
    assert attributes["mcptrace.inference_latency_ms"] == 250.0
    assert attributes["mcptrace.token_usage.input"] == 5


def test_violations_of_an_earlier_stage_stay_before_new_ones(make_record: MakeRecord) -> None:
    record = make_record(
        {"gen_ai.operation.name": "chat", "mcptrace.schema.violations": ["span_id:odd"]}
    )
    Normalizer().normalize(record)
    expected = ["span_id:odd", "model_name:missing"]
    assert record.data.attributes["mcptrace.schema.violations"] == expected
    assert wire.decode_span(record.raw) == record.data


def test_a_wrong_recorded_convention_is_replaced(make_record: MakeRecord) -> None:
    record = make_record(CHAT | {"mcptrace.source.convention": "nonsense"})
    Normalizer().normalize(record)
    assert record.data.attributes["mcptrace.source.convention"] == "otel_genai_1.37"
    assert wire.decode_span(record.raw) == record.data


@pytest.mark.parametrize("attributes", [CHAT, {"mcptrace.model_name": "m"}])
def test_a_model_gets_the_name_that_the_operator_gave_it_once(
    make_record: MakeRecord, attributes: dict[str, Any]
) -> None:
    record = make_record(attributes)
    normalizer = Normalizer(model_aliases={"m": "n", "n": "o"})
    normalizer.normalize(record)
    normalizer.normalize(record)
    assert record.inference is not None
    assert record.inference.model_name == "n"
    assert record.data.attributes["mcptrace.model_name"] == "n"
    assert record.data.attributes["mcptrace.source.model_name"] == "alias:m"


@pytest.mark.parametrize(
    ("configured", "resource", "expected", "source"),
    [
        ("tiny", {"service.name": "s"}, "tiny", "config:normalize.vllm_model"),
        (None, {"mcptrace.model_name": "r"}, "r", "resource:mcptrace.model_name"),
        (None, {"service.name": "s"}, "s", "resource:service.name"),
        (None, {"service.name": "unknown_service:python"}, None, None),
    ],
)
def test_the_model_of_vllm_is_configured_or_named_by_the_resource(
    make_record: MakeRecord,
    configured: str | None,
    resource: dict[str, Any],
    expected: str | None,
    source: str | None,
) -> None:
    record = make_record(VLLM, name="llm_request", resource=resource)
    Normalizer(vllm_model=configured).normalize(record)
    assert record.data.attributes.get("mcptrace.model_name") == expected
    assert record.data.attributes.get("mcptrace.source.model_name") == source


@pytest.mark.parametrize(
    ("request_id", "operation"),
    [("chatcmpl-1", "chat"), ("cmpl-1-0", "text_completion"), ("0", "text_completion")],
)
def test_the_operation_of_vllm_is_told_by_its_request_id(
    make_record: MakeRecord, request_id: str, operation: str
) -> None:
    record = make_record(VLLM | {"gen_ai.request.id": request_id})
    Normalizer().normalize(record)
    assert record.data.attributes["mcptrace.operation"] == operation


def test_an_absurd_duration_gives_way_to_the_next_source(make_record: MakeRecord) -> None:
    record = make_record(VLLM | {"gen_ai.latency.e2e": -1.0})
    Normalizer().normalize(record)
    assert record.data.attributes["mcptrace.inference_latency_ms"] == 250.0
    assert record.data.attributes["mcptrace.source.inference_latency_ms"] == "span_duration"


def test_a_span_that_ends_before_it_starts_has_no_latency(make_record: MakeRecord) -> None:
    found = Normalizer().normalize(make_record(CHAT, duration_ms=-1))
    assert found.violations == ("inference_latency_ms:missing",)
