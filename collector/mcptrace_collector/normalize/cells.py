"""The cells of the mapping table: for each convention and field, the sources in their order.

The first source that says anything wins.  Data and nothing else; dialects.py says which spans a
row is for.  The names that the product writes itself are in mcptrace_proto.semconv.

Sources: OpenTelemetry GenAI semantic conventions 1.26 to 1.41 and their successor 0.1.0,
OpenInference, OpenLLMetry, and what the named servers and libraries are seen to send.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcptrace_collector.normalize.sources import Place, Source
from mcptrace_proto import semconv

# Fields, in the order of the table.  All but cache_written are fields of the schema.
TEXTS = ("model_name", "model_version", "operation", "provider", "request_id", "finish_reason")
DURATIONS = ("inference_latency_ms", "ttft_ms", "queue_ms")
FLAGS = ("streaming",)
# cache_written is no field of the schema: it is needed to make an exclusive input inclusive.
TOKENS = ("input", "output", "total", "cached", "reasoning", "cache_written")

Cells = Mapping[str, tuple[Source, ...]]

_SECONDS = 1000.0

PROVIDERS = {  # spellings of earlier conventions
    "az.ai.openai": "azure.ai.openai",
    "az.ai.inference": "azure.ai.inference",
    "xai": "x_ai",
    "gemini": "gcp.gemini",
    "vertex_ai": "gcp.vertex_ai",
}
INFERENCE_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "embeddings"})


def _at(*names: str, scale: float = 1.0) -> tuple[Source, ...]:
    return tuple(Source(Place.ATTRIBUTE, name, scale=scale) for name in names)


def _translated(words: Mapping[str, str], *names: str) -> tuple[Source, ...]:
    return tuple(Source(Place.ATTRIBUTE, name, words=words) for name in names)


def _members(name: str, *members: str) -> tuple[Source, ...]:
    return tuple(Source(Place.MEMBER, name, member) for member in members)


def _resource(*names: str) -> tuple[Source, ...]:
    return tuple(Source(Place.RESOURCE, name) for name in names)


def _config(name: str) -> tuple[Source, ...]:
    return (Source(Place.CONFIG, name),)


def _prefix(words: Mapping[str, str], name: str) -> tuple[Source, ...]:
    return (Source(Place.PREFIX, name, words=words),)


def _constant(value: str) -> tuple[Source, ...]:
    return (Source(Place.CONSTANT, value),)


_DURATION = (Source(Place.DURATION),)
_SAME_WORDS = {word: word for word in sorted(INFERENCE_OPERATIONS)}
_OPERATION_IN_NAME = (Source(Place.SPAN_NAME, words=_SAME_WORDS),)

# The GenAI conventions before 1.27; each later one says what it changes.
GEN_AI_OLD: dict[str, tuple[Source, ...]] = {
    "model_name": _at(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL),
    "operation": _at(semconv.GEN_AI_OPERATION_NAME) + _OPERATION_IN_NAME,
    "provider": _translated(PROVIDERS, "gen_ai.system"),
    "request_id": _at(semconv.GEN_AI_RESPONSE_ID),
    "finish_reason": _at(semconv.GEN_AI_FINISH_REASONS),
    "inference_latency_ms": _DURATION,
    "input": _at("gen_ai.usage.prompt_tokens", semconv.GEN_AI_INPUT_TOKENS),
    "output": _at("gen_ai.usage.completion_tokens", semconv.GEN_AI_OUTPUT_TOKENS),
}
GEN_AI_1_27 = GEN_AI_OLD | {
    "input": _at(semconv.GEN_AI_INPUT_TOKENS, "gen_ai.usage.prompt_tokens"),
    "output": _at(semconv.GEN_AI_OUTPUT_TOKENS, "gen_ai.usage.completion_tokens"),
}
GEN_AI_1_37 = GEN_AI_1_27 | {
    "provider": _translated(PROVIDERS, semconv.GEN_AI_PROVIDER_NAME, "gen_ai.system"),
    "ttft_ms": _at(semconv.GEN_AI_TIME_TO_FIRST_CHUNK, scale=_SECONDS),
    "streaming": _at(semconv.GEN_AI_REQUEST_STREAM),
    "cached": _at(semconv.GEN_AI_CACHE_READ_TOKENS),
    "reasoning": _at(semconv.GEN_AI_REASONING_TOKENS),
    "cache_written": _at("gen_ai.usage.cache_creation.input_tokens"),
}
GEN_AI_0_1 = GEN_AI_1_37 | {
    "cache_written": _at(
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"
    ),
}
GEN_AI_EVIDENCE = frozenset(
    {
        *(semconv.GEN_AI_REQUEST_MODEL, semconv.GEN_AI_RESPONSE_MODEL),
        *(semconv.GEN_AI_INPUT_TOKENS, semconv.GEN_AI_OUTPUT_TOKENS),
        *("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
    }
)

LATENCY_NAMES = frozenset(
    "gen_ai.latency." + tail
    for tail in (
        *("e2e", "time_to_first_token", "time_in_queue", "time_in_model_inference"),
        *("time_in_model_prefill", "time_in_model_decode"),
    )
)
# Both engines use the same names; what differs is said beside them.
_ENGINE: dict[str, tuple[Source, ...]] = {
    "request_id": _at("gen_ai.request.id", semconv.GEN_AI_RESPONSE_ID),
    "finish_reason": _at(semconv.GEN_AI_FINISH_REASONS),
    "inference_latency_ms": _at("gen_ai.latency.e2e", scale=_SECONDS) + _DURATION,
    "ttft_ms": _at("gen_ai.latency.time_to_first_token", scale=_SECONDS),
    "queue_ms": _at("gen_ai.latency.time_in_queue", scale=_SECONDS),
    "input": _at("gen_ai.usage.prompt_tokens", semconv.GEN_AI_INPUT_TOKENS),
    "output": _at("gen_ai.usage.completion_tokens", semconv.GEN_AI_OUTPUT_TOKENS),
    "cached": _at("gen_ai.usage.cached_tokens", semconv.GEN_AI_CACHE_READ_TOKENS),
}
VLLM = _ENGINE | {
    "model_name": _at(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL)
    + _config("normalize.vllm_model")
    + _resource(semconv.MODEL_NAME, semconv.GEN_AI_REQUEST_MODEL, "service.name"),
    # Its server names chat requests so; everything else is a completion.
    "operation": _at(semconv.GEN_AI_OPERATION_NAME)
    + _prefix({"chatcmpl-": "chat"}, "gen_ai.request.id")
    + _constant("text_completion"),
    "provider": _constant("vllm"),
}
SGLANG = _ENGINE | {
    "model_name": _at(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL)
    + _resource(semconv.MODEL_NAME, semconv.GEN_AI_REQUEST_MODEL),
    "operation": _at(semconv.GEN_AI_OPERATION_NAME) + _constant("chat"),
    "provider": _constant("sglang"),
}

TRITON: Cells = {
    "model_name": _at("triton.model_name"),
    "model_version": _at("triton.model_version"),
    "operation": _constant("infer"),
    "provider": _constant("triton"),
    "request_id": _at("triton.request_id"),
    "inference_latency_ms": (Source(Place.BETWEEN, "REQUEST_START", "REQUEST_END"), *_DURATION),
}

OPENINFERENCE: Cells = {
    "model_name": _at(
        "llm.response.model_name",
        "llm.model_name",
        "embedding.model_name",
        "llm.request.model_name",
    ),
    "operation": _translated({"llm": "chat", "embedding": "embeddings"}, "openinference.span.kind"),
    "provider": _translated(PROVIDERS, "llm.provider", "llm.system"),
    "finish_reason": _at("llm.finish_reason"),
    "inference_latency_ms": _DURATION,
    "ttft_ms": (Source(Place.UNTIL, "First Token Stream Event"),),
    "input": _at("llm.token_count.prompt"),
    "output": _at("llm.token_count.completion"),
    "total": _at("llm.token_count.total"),
    "cached": _at("llm.token_count.prompt_details.cache_read"),
    "reasoning": _at("llm.token_count.completion_details.reasoning"),
    "cache_written": _at("llm.token_count.prompt_details.cache_write"),
}

_REQUEST_TYPES = {
    "completion": "text_completion",
    "embedding": "embeddings",
}
OPENLLMETRY = GEN_AI_1_37 | {
    "operation": _translated(_REQUEST_TYPES, "llm.request.type", semconv.GEN_AI_OPERATION_NAME)
    + _OPERATION_IN_NAME,
    "provider": _translated(PROVIDERS, "gen_ai.system", semconv.GEN_AI_PROVIDER_NAME),
    "finish_reason": _at(
        semconv.GEN_AI_FINISH_REASONS,
        "gen_ai.response.finish_reason",
        "gen_ai.completion.0.finish_reason",
        "llm.response.finish_reason",
    ),
    "streaming": _at("gen_ai.is_streaming", "llm.is_streaming", semconv.GEN_AI_REQUEST_STREAM),
    "total": _at("gen_ai.usage.total_tokens", "llm.usage.total_tokens"),
    "cached": _at("gen_ai.usage.cache_read_input_tokens", semconv.GEN_AI_CACHE_READ_TOKENS),
    "reasoning": _at(
        *("gen_ai.usage.reasoning_tokens", "llm.usage.reasoning_tokens"),
        semconv.GEN_AI_REASONING_TOKENS,
    ),
    "cache_written": _at(
        "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_creation.input_tokens"
    ),
}
LEGACY: Cells = {
    "model_name": _at("llm.response.model", "llm.request.model"),
    "operation": _translated(_REQUEST_TYPES, "llm.request.type") + _OPERATION_IN_NAME,
    "provider": _translated(PROVIDERS, "llm.vendor"),
    "finish_reason": _at("llm.response.finish_reason"),
    "inference_latency_ms": _DURATION,
    "streaming": _at("llm.is_streaming"),
    "input": _at("llm.usage.prompt_tokens"),
    "output": _at("llm.usage.completion_tokens"),
    "total": _at("llm.usage.total_tokens"),
    "reasoning": _at("llm.usage.reasoning_tokens"),
}

VERCEL_OPERATIONS = {
    "ai.generatetext.dogenerate": "chat",
    "ai.streamtext.dostream": "chat",
    "ai.generateobject.dogenerate": "chat",
    "ai.streamobject.dostream": "chat",
    "ai.embed.doembed": "embeddings",
    "ai.embedmany.doembed": "embeddings",
}
VERCEL: Cells = {
    "model_name": _at("ai.response.model", "ai.model.id", semconv.GEN_AI_RESPONSE_MODEL)
    + _at(semconv.GEN_AI_REQUEST_MODEL),
    "operation": _translated(VERCEL_OPERATIONS, "ai.operationId"),
    "provider": _translated(PROVIDERS, "ai.model.provider", "gen_ai.system"),
    "request_id": _at("ai.response.id", semconv.GEN_AI_RESPONSE_ID),
    "finish_reason": _at("ai.response.finishReason", semconv.GEN_AI_FINISH_REASONS),
    "inference_latency_ms": _DURATION,
    "ttft_ms": _at("ai.response.msToFirstChunk"),
    "input": _at("ai.usage.inputTokens", "ai.usage.promptTokens", semconv.GEN_AI_INPUT_TOKENS)
    + _at("ai.usage.tokens"),  # of an embedding, which has no other
    "output": _at("ai.usage.outputTokens", "ai.usage.completionTokens")
    + _at(semconv.GEN_AI_OUTPUT_TOKENS),
    "total": _at("ai.usage.totalTokens"),
    "cached": _at("ai.usage.cachedInputTokens"),
    "reasoning": _at("ai.usage.reasoningTokens"),
}

_LANGFUSE_USAGE = "langfuse.observation.usage_details"
LANGFUSE: Cells = {
    "model_name": _at("langfuse.observation.model.name", semconv.GEN_AI_RESPONSE_MODEL)
    + _at(semconv.GEN_AI_REQUEST_MODEL),
    "operation": _translated(
        {"generation": "generate_content", "embedding": "embeddings"}, "langfuse.observation.type"
    ),
    "provider": _translated(PROVIDERS, semconv.GEN_AI_PROVIDER_NAME, "gen_ai.system"),
    "inference_latency_ms": _DURATION,
    "ttft_ms": (Source(Place.UNTIL_TIME, "langfuse.observation.completion_start_time"),),
    "input": _members(_LANGFUSE_USAGE, "input", "prompt_tokens"),
    "output": _members(_LANGFUSE_USAGE, "output", "completion_tokens"),
    "total": _members(_LANGFUSE_USAGE, "total", "total_tokens"),
    "cached": _members(_LANGFUSE_USAGE, "cache_read_input_tokens", "input_cached_tokens"),
    "reasoning": _members(_LANGFUSE_USAGE, "output_reasoning_tokens"),
}
LANGSMITH = GEN_AI_1_37 | {
    "operation": _at(semconv.GEN_AI_OPERATION_NAME)
    + _translated({"llm": "chat", "embedding": "embeddings"}, "langsmith.span.kind"),
    "provider": _translated(PROVIDERS, "gen_ai.system", semconv.GEN_AI_PROVIDER_NAME),
    "ttft_ms": (Source(Place.UNTIL, "new_token"),),
    "streaming": _at("langsmith.request.streaming"),
    "total": _at("gen_ai.usage.total_tokens"),
    "cached": _members("gen_ai.usage.input_token_details", "cache_read"),
    "reasoning": _members("gen_ai.usage.output_token_details", "reasoning"),
    "cache_written": _members("gen_ai.usage.input_token_details", "cache_creation"),
}
OPENLIT = GEN_AI_1_37 | {
    "ttft_ms": _at("gen_ai.server.time_to_first_token", scale=_SECONDS)
    + _at(semconv.GEN_AI_TIME_TO_FIRST_CHUNK, scale=_SECONDS),
    "streaming": _at("gen_ai.request.is_stream", semconv.GEN_AI_REQUEST_STREAM),
    "total": _at("gen_ai.usage.total_tokens"),
    "reasoning": _at("gen_ai.usage.reasoning_tokens", semconv.GEN_AI_REASONING_TOKENS),
}
