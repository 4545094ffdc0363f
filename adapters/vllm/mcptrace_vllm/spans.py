"""What vLLM's ``RequestOutput`` says about an inference.

Pure: outputs are read by their attributes, vLLM is not imported.  Times of the engine are
compared only with each other: its clock is not the program's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROVIDER = "vllm"

REQUESTS = "mcptrace.vllm.requests"  # int, on the span of the call: how many prompts it answered
SEQUENCES = "mcptrace.vllm.sequences"  # int, sampled for one prompt (``n``), where more than one
PREEMPTIONS = "mcptrace.vllm.preemptions"  # int, where there were any

MODEL_NAME_CHARS_MAX = 256


@dataclass(slots=True, frozen=True)
class Request:
    """One prompt and its answers.  None where vLLM does not say; times in ms."""

    request_id: str | None
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int
    cached_tokens: int | None
    arrival_unix_nano: int | None
    latency_ms: float | None
    ttft_ms: float | None
    queue_ms: float | None
    attributes: dict[str, Any]


def model_name(llm: Any) -> str:
    """The name the model is served by; of a folder only its own name."""
    config = getattr(llm, "model_config", None) or getattr(llm.llm_engine, "model_config", None)
    name = getattr(config, "served_model_name", None)
    if isinstance(name, list | tuple):
        name = name[0] if name else None
    name = str(name or getattr(config, "model", None) or "unknown")
    if name.startswith(("/", ".", "~")):
        name = name.rstrip("/").rpartition("/")[2]
    return name[:MODEL_NAME_CHARS_MAX]


def request(output: Any) -> Request:
    """Read one RequestOutput."""
    answers = list(output.outputs)
    arrival, latency, ttft, queued = _times(getattr(output, "metrics", None))
    prompt = output.prompt_token_ids
    attributes: dict[str, Any] = {}
    if len(answers) > 1:
        attributes[SEQUENCES] = len(answers)
    preemptions = getattr(getattr(output, "metrics", None), "num_preemptions", 0)
    if preemptions:
        attributes[PREEMPTIONS] = preemptions
    return Request(
        request_id=str(output.request_id) if output.request_id is not None else None,
        finish_reason=answers[0].finish_reason if answers else None,
        input_tokens=None if prompt is None else len(prompt),
        output_tokens=sum(len(answer.token_ids) for answer in answers),
        cached_tokens=getattr(output, "num_cached_tokens", None),
        arrival_unix_nano=arrival,
        latency_ms=latency,
        ttft_ms=ttft,
        queue_ms=queued,
        attributes=attributes,
    )


def _times(metrics: Any) -> tuple[int | None, float | None, float | None, float | None]:
    """(arrival in Unix ns, latency, time to first token, time in queue; in ms).

    vLLM's RequestStateStats: ``arrival_time`` is wall time, the ``_ts`` are the engine's
    monotonic clock, ``first_token_latency`` counts from the arrival; all seconds, 0 for never.
    """

    def said(name: str) -> float | None:
        value = getattr(metrics, name, None)
        return float(value) if isinstance(value, int | float) and value > 0 else None

    arrival = said("arrival_time")
    first, last = said("first_token_ts"), said("last_token_ts")
    ttft = said("first_token_latency")
    queued, scheduled = said("queued_ts"), said("scheduled_ts")
    latency = None
    if ttft is not None and first is not None and last is not None:
        latency = (ttft + max(0.0, last - first)) * 1e3
    waited = None
    if queued is not None and scheduled is not None:
        waited = max(0.0, scheduled - queued) * 1e3
    return (
        None if arrival is None else round(arrival * 1e6) * 1000,  # a double knows no more
        latency,
        None if ttft is None else ttft * 1e3,
        waited,
    )
