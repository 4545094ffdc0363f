"""What vLLM's outputs say about an inference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcptrace_vllm import spans


def _answer(tokens: int, reason: str | None = "stop") -> Any:
    return SimpleNamespace(token_ids=list(range(tokens)), finish_reason=reason)


def _output(**fields: Any) -> Any:
    plain = {
        "request_id": "7",
        "prompt_token_ids": [1, 2, 3],
        "outputs": [_answer(4)],
        "metrics": None,
        "num_cached_tokens": None,
    }
    return SimpleNamespace(**{**plain, **fields})


METRICS = SimpleNamespace(
    arrival_time=1_700_000_000.25,
    queued_ts=50.0,
    scheduled_ts=50.125,
    first_token_ts=50.5,
    last_token_ts=52.0,
    first_token_latency=0.75,
    num_preemptions=2,
)


def test_a_measured_output_says_everything() -> None:
    output = _output(outputs=[_answer(4, "length"), _answer(5)], metrics=METRICS)
    output.num_cached_tokens = 2
    assert spans.request(output) == spans.Request(
        request_id="7",
        finish_reason="length",
        input_tokens=3,
        output_tokens=9,
        cached_tokens=2,
        arrival_unix_nano=1_700_000_000_250_000_000,
        latency_ms=2250.0,  # 0.75 s to the first token, 1.5 s from there to the last
        ttft_ms=750.0,
        queue_ms=125.0,
        attributes={"mcptrace.vllm.sequences": 2, "mcptrace.vllm.preemptions": 2},
    )


def test_without_metrics_no_time_is_made_up() -> None:
    assert spans.request(_output(prompt_token_ids=None)) == spans.Request(
        request_id="7",
        finish_reason="stop",
        input_tokens=None,
        output_tokens=4,
        cached_tokens=None,
        arrival_unix_nano=None,
        latency_ms=None,
        ttft_ms=None,
        queue_ms=None,
        attributes={},
    )


def test_times_that_never_came_are_zero_in_vllm_and_unknown_here() -> None:
    never = SimpleNamespace(**dict.fromkeys(vars(METRICS), 0.0))
    request = spans.request(_output(metrics=never, outputs=[]))
    assert (request.arrival_unix_nano, request.latency_ms) == (None, None)
    assert (request.ttft_ms, request.queue_ms) == (None, None)
    assert (request.output_tokens, request.finish_reason) == (0, None)


@pytest.mark.parametrize(
    ("served", "model", "name"),
    [
        ("tiny", "org/tiny-model", "tiny"),
        (["tiny", "alias"], "org/tiny-model", "tiny"),
        (None, "org/tiny-model", "org/tiny-model"),
        ([], "/srv/models/tiny/", "tiny"),
        ("/srv/models/tiny", "x", "tiny"),
        (None, "", "unknown"),
        ("n" * 300, "", "n" * 256),
    ],
)
def test_the_name_of_the_model(served: Any, model: str, name: str) -> None:
    config = SimpleNamespace(served_model_name=served, model=model)
    assert spans.model_name(SimpleNamespace(model_config=config)) == name
    engine = SimpleNamespace(model_config=config)  # as older versions have it
    assert spans.model_name(SimpleNamespace(llm_engine=engine)) == name
