"""The mapping table: which conventions are understood, and how each one is recognised.

One row, a ``Dialect``, for each convention, in the order in which they are tried; its cells are
in cells.py.  Data and nothing else: read.py applies it, describe.py prints it as
docs/mappings.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcptrace_collector.normalize import cells
from mcptrace_collector.normalize.cells import INFERENCE_OPERATIONS, Cells
from mcptrace_proto import semconv

# Operations that only contain inferences, or have nothing to do with one.
OTHER_OPERATIONS = frozenset(
    {
        *("execute_tool", "create_agent", "invoke_agent", "invoke_workflow", "retrieval"),
        *("plan", "fetch_response", "create_memory", "search_memory", "update_memory"),
        *("upsert_memory", "delete_memory", "create_memory_store", "delete_memory_store"),
    }
)


_MODALITIES = ("text", "image", "audio")
_LEGACY_NAMES = frozenset(
    {"llm.vendor", "llm.request.model", "llm.response.model", "llm.usage.prompt_tokens"}
)
_OPENLIT_NAMES = frozenset(
    {
        *("gen_ai.server.time_to_first_token", "gen_ai.usage.cost", "gen_ai.endpoint"),
        *("gen_ai.application_name", "gen_ai.request.is_stream", "gen_ai.sdk.version"),
    }
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One convention.

    A span speaks it when it carries one of ``names``, or a name under one of ``roots`` (the
    part before the first dot), and all of ``also``.  It is an inference when ``kind_name``
    holds one of ``kinds``; when it has no kind, or one that is unknown and ``kinds_closed`` is
    not set, it is an inference if it carries one of ``evidence``.
    """

    name: str
    title: str
    cells: Cells
    names: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    kind_name: str = semconv.GEN_AI_OPERATION_NAME
    kinds: frozenset[str] = INFERENCE_OPERATIONS
    kinds_closed: bool = False
    evidence: frozenset[str] = frozenset()


# MCP-Trace names are read by mcptrace_proto.schema and win over every cell of every row; these
# are what fills the fields about which a span of ours says nothing.
NATIVE = Dialect("mcptrace", "MCP-Trace v2.3 (`mcptrace.*` names first, always)", cells.GEN_AI_1_37)

DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        "triton",
        "Triton Inference Server, OpenTelemetry mode",
        cells.TRITON,
        names=frozenset({"triton.model_name"}),
        evidence=frozenset({"triton.model_name"}),
    ),
    Dialect(
        "sglang",
        "SGLang",
        cells.SGLANG,
        names=cells.LATENCY_NAMES,
        also=frozenset({"rid"}),
        evidence=cells.LATENCY_NAMES,
    ),
    Dialect("vllm", "vLLM", cells.VLLM, names=cells.LATENCY_NAMES, evidence=cells.LATENCY_NAMES),
    Dialect(
        "openinference",
        "OpenInference",
        cells.OPENINFERENCE,
        names=frozenset({"openinference.span.kind"}),
        kind_name="openinference.span.kind",
        kinds=frozenset({"llm", "embedding"}),
        kinds_closed=True,
    ),
    Dialect(
        "vercel_ai",
        "Vercel AI SDK",
        cells.VERCEL,
        names=frozenset({"ai.operationId"}),
        kind_name="ai.operationId",
        kinds=frozenset(cells.VERCEL_OPERATIONS),
        kinds_closed=True,
    ),
    Dialect(
        "langfuse",
        "Langfuse",
        cells.LANGFUSE,
        names=frozenset({"langfuse.observation.type", "langfuse.observation.model.name"}),
        kind_name="langfuse.observation.type",
        kinds=frozenset({"generation", "embedding"}),
        kinds_closed=True,
        evidence=frozenset({"langfuse.observation.model.name"}),
    ),
    Dialect(
        "langsmith",
        "LangSmith",
        cells.LANGSMITH,
        names=frozenset({"langsmith.span.kind"}),
        kind_name="langsmith.span.kind",
        kinds=frozenset({"llm", "embedding"}),
        kinds_closed=True,
    ),
    Dialect(
        "llm_legacy",
        "`llm.*` of before the GenAI conventions",
        cells.LEGACY,
        names=_LEGACY_NAMES,
        kind_name="llm.request.type",
        kinds=frozenset({"chat", "completion", "embedding"}),
        evidence=_LEGACY_NAMES,
    ),
    Dialect(
        "openlit",
        "OpenLIT",
        cells.OPENLIT,
        names=_OPENLIT_NAMES,
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "openllmetry",
        "OpenLLMetry (Traceloop)",
        cells.OPENLLMETRY,
        names=frozenset(
            {
                *("llm.request.type", "llm.is_streaming", "llm.usage.total_tokens"),
                *("gen_ai.is_streaming", "gen_ai.completion.0.finish_reason"),
                *("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.reasoning_tokens"),
            }
        ),
        roots=frozenset({"traceloop"}),
        # Every value of this name is a workflow, task, agent or tool.
        kind_name="traceloop.span.kind",
        kinds=frozenset(),
        kinds_closed=True,
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "otel_genai_0.1.0",
        "OpenTelemetry GenAI 0.1.0",
        cells.GEN_AI_0_1,
        names=frozenset(
            {
                "gen_ai.usage.cache_write.input_tokens",
                "gen_ai.request.reasoning.level",
                "gen_ai.request.previous_response.id",
                "gen_ai.prompt.version",
                *(f"gen_ai.usage.{modality}.input_tokens" for modality in _MODALITIES),
                *(f"gen_ai.usage.{modality}.output_tokens" for modality in _MODALITIES),
            }
        ),
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "otel_genai_1.37",
        "OpenTelemetry GenAI 1.37 to 1.41",
        cells.GEN_AI_1_37,
        names=frozenset({semconv.GEN_AI_PROVIDER_NAME}),
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "otel_genai_pre_1.27",
        "OpenTelemetry GenAI before 1.27",
        cells.GEN_AI_OLD,
        names=frozenset({"gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"}),
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "otel_genai_1.27",
        "OpenTelemetry GenAI 1.27 to 1.36",
        cells.GEN_AI_1_27,
        names=frozenset({"gen_ai.system"}),
        evidence=cells.GEN_AI_EVIDENCE,
    ),
    Dialect(
        "otel_genai",
        "OpenTelemetry GenAI of no certain version",
        cells.GEN_AI_1_37,
        roots=frozenset({"gen_ai"}),
        evidence=cells.GEN_AI_EVIDENCE,
    ),
)
