"""Every attribute name the product writes, and the GenAI names it writes beside them.

docs/schema.md is the specification; this is the one place in the code where a name is
spelled.  Names that are only *read* from other emitters live in the collector's
dialect table.
"""

from __future__ import annotations

PROTOCOL_VERSION_VALUE = "v2.3"

# MCP-Trace v2.3
PROTOCOL_VERSION = "mcptrace.protocol_version"
MODEL_NAME = "mcptrace.model_name"
MODEL_VERSION = "mcptrace.model_version"
INFERENCE_LATENCY_MS = "mcptrace.inference_latency_ms"  # double, milliseconds
TTFT_MS = "mcptrace.ttft_ms"  # double, milliseconds
QUEUE_MS = "mcptrace.queue_ms"  # double, milliseconds
OPERATION = "mcptrace.operation"
PROVIDER = "mcptrace.provider"
REQUEST_ID = "mcptrace.request_id"
FINISH_REASON = "mcptrace.finish_reason"
STREAMING = "mcptrace.streaming"  # bool

TOKEN_USAGE_PREFIX = "mcptrace.token_usage."
TOKENS_INPUT = "mcptrace.token_usage.input"
TOKENS_OUTPUT = "mcptrace.token_usage.output"
TOKENS_TOTAL = "mcptrace.token_usage.total"
TOKENS_CACHED = "mcptrace.token_usage.cached"
TOKENS_REASONING = "mcptrace.token_usage.reasoning"
TOKENS_ESTIMATED = "mcptrace.token_usage.estimated"  # bool
# Third state of a count: why it is not known, e.g. mcptrace.token_usage.unknown.input
TOKENS_UNKNOWN_PREFIX = "mcptrace.token_usage.unknown."

SCHEMA_VIOLATIONS = "mcptrace.schema.violations"  # string[]
SOURCE_CONVENTION = "mcptrace.source.convention"
SOURCE_PREFIX = "mcptrace.source."

SAMPLING_REASON = "mcptrace.sampling.reason"
SAMPLING_ADJUSTED_COUNT = "mcptrace.sampling.adjusted_count"  # double

AUDIT_LEAF_HASH = "mcptrace.audit.leaf_hash"  # hex string
AUDIT_LOG_INDEX = "mcptrace.audit.log_index"  # int

# OpenTelemetry GenAI (semantic conventions 1.41), written beside ours
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
GEN_AI_REQUEST_STREAM = "gen_ai.request.stream"
GEN_AI_FINISH_REASONS = "gen_ai.response.finish_reasons"  # string[]
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"  # double, seconds
ERROR_TYPE = "error.type"
