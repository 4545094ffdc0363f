"""Every row of the table: a span as that emitter writes it, and the inference that it describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.normalize.dialects import DIALECTS, NATIVE
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto.schema import InferenceSpan, TokenUsage, validate

MakeRecord = Callable[..., SpanRecord]
NOT_REPORTED = {"input": "not_reported", "output": "not_reported", "total": "not_reported"}

GENAI_0_1 = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
    "gen_ai.response.model": "gpt-5-2026-08-01",
    "gen_ai.response.id": "r-1",
    "gen_ai.response.finish_reasons": ["stop", "length"],
    "gen_ai.response.time_to_first_chunk": 0.125,
    "gen_ai.request.stream": True,
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 40,
    "gen_ai.usage.cache_read.input_tokens": 60,
    "gen_ai.usage.cache_write.input_tokens": 5,
    "gen_ai.usage.reasoning.output_tokens": 30,
}
CHAT = InferenceSpan(
    model_name="gpt-5-2026-08-01",
    operation="chat",
    provider="openai",
    request_id="r-1",
    finish_reason="stop",
    inference_latency_ms=250.0,
    ttft_ms=125.0,
    streaming=True,
    token_usage=TokenUsage(100, 40, 140, cached=60, reasoning=30),
)


def inference(**fields: Any) -> InferenceSpan:
    """An inference of 250 ms without token counts, but for what is given."""
    fields.setdefault("inference_latency_ms", 250.0)
    fields.setdefault("token_usage", TokenUsage(unknown=dict(NOT_REPORTED)))
    return InferenceSpan(**fields)


ROWS: list[tuple[str, dict[str, Any], dict[str, Any], InferenceSpan]] = [
    ("otel_genai_0.1.0", GENAI_0_1, {}, CHAT),
    (
        "otel_genai_1.37",
        {name: value for name, value in GENAI_0_1.items() if "cache_write" not in name},
        {},
        CHAT,
    ),
    (
        "otel_genai_1.27",
        {
            "gen_ai.system": "az.ai.openai",
            "gen_ai.operation.name": "text_completion",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": "7",
            "gen_ai.usage.output_tokens": 3.0,
        },
        {},
        inference(
            model_name="gpt-4o",
            operation="text_completion",
            provider="azure.ai.openai",
            token_usage=TokenUsage(7, 3, 10),
        ),
    ),
    (
        "otel_genai_pre_1.27",
        {
            "gen_ai.system": "openai",
            "gen_ai.response.model": "gpt-4",
            "gen_ai.usage.prompt_tokens": 7,
            "gen_ai.usage.completion_tokens": 0,
        },
        {"name": "chat gpt-4"},
        inference(
            model_name="gpt-4",
            operation="chat",
            provider="openai",
            token_usage=TokenUsage(7, 0, 7),
        ),
    ),
    (
        "otel_genai",
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "bge"},
        {},
        inference(model_name="bge", operation="embeddings"),
    ),
    (
        "openinference",
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "claude",
            "llm.provider": "anthropic",
            "llm.finish_reason": "end_turn",
            "llm.token_count.prompt": 10,
            "llm.token_count.completion": 5,
            "llm.token_count.total": 15,
            "llm.token_count.prompt_details.cache_read": 90,
            "llm.token_count.prompt_details.cache_write": 20,
        },
        {"events": (("First Token Stream Event", 80.0),)},
        inference(
            model_name="claude",
            operation="chat",
            provider="anthropic",
            finish_reason="end_turn",
            ttft_ms=80.0,
            token_usage=TokenUsage(120, 5, 125, cached=90),
        ),
    ),
    (
        "openllmetry",
        {
            "traceloop.workflow.name": "answer",
            "llm.request.type": "completion",
            "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 9,
            "gen_ai.usage.output_tokens": 2,
            "llm.usage.total_tokens": 12,
            "gen_ai.usage.cache_read_input_tokens": 4,
            "gen_ai.completion.0.finish_reason": "length",
            "llm.is_streaming": False,
        },
        {},
        inference(
            model_name="gpt-4o",
            operation="text_completion",
            provider="OpenAI",
            finish_reason="length",
            streaming=False,
            token_usage=TokenUsage(9, 2, 11, cached=4),
        ),
    ),
    (
        "llm_legacy",
        {
            "llm.vendor": "Cohere",
            "llm.request.type": "chat",
            "llm.request.model": "command",
            "llm.usage.prompt_tokens": 3,
            "llm.usage.completion_tokens": 4,
            "llm.usage.total_tokens": 7,
        },
        {},
        inference(
            model_name="command",
            operation="chat",
            provider="Cohere",
            token_usage=TokenUsage(3, 4, 7),
        ),
    ),
    (
        "vllm",
        {
            "gen_ai.latency.e2e": 0.2,
            "gen_ai.latency.time_to_first_token": 0.05,
            "gen_ai.latency.time_in_queue": 0.01,
            "gen_ai.usage.prompt_tokens": 10,
            "gen_ai.usage.completion_tokens": 8,
            "gen_ai.usage.cached_tokens": 4,
            "gen_ai.request.id": "cmpl-1-0",
        },
        {"name": "llm_request", "resource": {"service.name": "llama"}},
        inference(
            model_name="llama",
            operation="text_completion",
            provider="vllm",
            request_id="cmpl-1-0",
            inference_latency_ms=200.0,
            ttft_ms=50.0,
            queue_ms=10.0,
            token_usage=TokenUsage(10, 8, 18, cached=4),
        ),
    ),
    (
        "sglang",
        {
            "rid": "0a1b",
            "module": "sglang::request",
            "gen_ai.response.model": "qwen",
            "gen_ai.response.finish_reasons": '["stop"]',
            "gen_ai.latency.e2e": 0.25,
            "gen_ai.usage.prompt_tokens": 10,
            "gen_ai.usage.completion_tokens": 8,
        },
        {},
        inference(
            model_name="qwen",
            operation="chat",
            provider="sglang",
            finish_reason="stop",
            token_usage=TokenUsage(10, 8, 18),
        ),
    ),
    (
        "triton",
        {"triton.model_name": "resnet", "triton.model_version": 3, "triton.request_id": "q"},
        {"events": (("REQUEST_START", 10.0), ("QUEUE_START", 11.0), ("REQUEST_END", 240.0))},
        inference(
            model_name="resnet",
            model_version="3",
            operation="infer",
            provider="triton",
            request_id="q",
            inference_latency_ms=230.0,
        ),
    ),
    (
        "vercel_ai",
        {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.id": "gpt-4o",
            "ai.model.provider": "openai.chat",
            "ai.response.finishReason": "stop",
            "ai.response.msToFirstChunk": 90.5,
            "ai.usage.promptTokens": 5,
            "ai.usage.completionTokens": 6,
        },
        {},
        inference(
            model_name="gpt-4o",
            operation="chat",
            provider="openai.chat",
            finish_reason="stop",
            ttft_ms=90.5,
            token_usage=TokenUsage(5, 6, 11),
        ),
    ),
    (
        "langfuse",
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.name": "gpt-4o",
            "langfuse.observation.usage_details": '{"input": 5, "output": 6, "total": 11}',
            "langfuse.observation.completion_start_time": '"2026-12-01T00:50:56.040000Z"',
        },
        {},
        inference(
            model_name="gpt-4o",
            operation="generate_content",
            ttft_ms=40.0,
            token_usage=TokenUsage(5, 6, 11),
        ),
    ),
    (
        "langsmith",
        {
            "langsmith.span.kind": "llm",
            "gen_ai.system": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 6,
            "gen_ai.usage.input_token_details": '{"cache_read": 2}',
            "langsmith.request.streaming": "true",
        },
        {"events": (("new_token", 33.0), ("new_token", 44.0))},
        inference(
            model_name="gpt-4o",
            operation="chat",
            provider="openai",
            ttft_ms=33.0,
            streaming=True,
            token_usage=TokenUsage(5, 6, 11, cached=2),
        ),
    ),
    (
        "openlit",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.system": "ollama",
            "gen_ai.request.model": "phi",
            "gen_ai.server.time_to_first_token": 0.02,
            "gen_ai.request.is_stream": True,
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.usage.reasoning_tokens": 6,
        },
        {},
        inference(
            model_name="phi",
            operation="chat",
            provider="ollama",
            ttft_ms=20.0,
            streaming=True,
            token_usage=TokenUsage(5, 8, 13, reasoning=6),
        ),
    ),
    (
        "mcptrace",
        {
            "mcptrace.protocol_version": "v2.3",
            "mcptrace.model_name": "mine",
            "mcptrace.inference_latency_ms": 12.5,
            "mcptrace.token_usage.input": 1,
            "mcptrace.token_usage.output": 2,
            "mcptrace.token_usage.total": 3,
            "gen_ai.usage.input_tokens": 99,
            "gen_ai.operation.name": "chat",
        },
        {},
        inference(
            model_name="mine",
            operation="chat",
            inference_latency_ms=12.5,
            token_usage=TokenUsage(1, 2, 3),
        ),
    ),
]


@pytest.mark.parametrize(
    ("convention", "attributes", "more", "expected"), ROWS, ids=[row[0] for row in ROWS]
)
def test_a_span_of_each_convention_becomes_a_valid_inference_span(
    make_record: MakeRecord,
    convention: str,
    attributes: dict[str, Any],
    more: dict[str, Any],
    expected: InferenceSpan,
) -> None:
    record = make_record(attributes, **more)
    found = Normalizer().normalize(record)
    assert record.inference == expected
    assert (found.violations, found.drop) == ((), False)
    assert validate(record.data, expected) == []
    assert record.data.attributes["mcptrace.source.convention"] == convention
    assert record.data.attributes["mcptrace.protocol_version"] == "v2.3"
    assert attributes.items() <= record.data.attributes.items()


def test_every_row_of_the_table_has_its_example() -> None:
    assert {row[0] for row in ROWS} == {dialect.name for dialect in (NATIVE, *DIALECTS)}


NOT_INFERENCES = [
    {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 3},
    {"openinference.span.kind": "TOOL"},
    {"openinference.span.kind": "AGENT"},
    {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"},
    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"},
    {"gen_ai.operation.name": "fetch_response", "gen_ai.response.model": "m"},
    {"gen_ai.agent.name": "a"},
    {"traceloop.span.kind": "workflow", "gen_ai.request.model": "m"},
    {"langsmith.span.kind": "chain", "gen_ai.request.model": "m"},
    {"langfuse.observation.type": "span"},
    {"ai.operationId": "ai.generateText", "ai.model.id": "m", "ai.usage.promptTokens": 3},
    {"mcptrace.sampling.reason": "error", "mcptrace.source.convention": "vllm"},
    {"http.request.method": "POST"},
    {},
]


@pytest.mark.parametrize("attributes", NOT_INFERENCES, ids=[str(row) for row in NOT_INFERENCES])
def test_a_span_that_is_no_inference_is_left_as_it_came(
    make_record: MakeRecord, attributes: dict[str, Any]
) -> None:
    record = make_record(attributes)
    raw = record.raw
    found = Normalizer().normalize(record)
    assert (record.raw, record.inference, record.data.attributes) == (raw, None, attributes)
    assert (found.violations, found.drop, found.changes) == ((), False, ())
