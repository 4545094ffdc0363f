"""Spans of a real vLLM: every request is an inference, with the tokens the client was told of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto.schema import validate

LoadCapture = Callable[[str], list[SpanRecord]]

CAPTURES = Path(__file__).parents[3] / "data" / "captures" / "vllm"
FILES = [path.name for path in sorted(CAPTURES.glob("*.pb"))]


@pytest.mark.parametrize("file", FILES)
def test_request_spans_are_inferences_and_start_up_spans_are_left_alone(
    load_capture: LoadCapture, file: str
) -> None:
    for record in load_capture("vllm/" + file):
        raw = record.raw
        Normalizer(vllm_model="tiny").normalize(record)
        if record.data.name != "llm_request":
            assert (record.inference, record.raw) == (None, raw)
            continue
        view, attributes = record.inference, record.data.attributes
        assert view is not None
        assert validate(record.data, view) == []
        assert (view.model_name, view.provider) == ("tiny", "vllm")
        assert view.request_id == attributes["gen_ai.request.id"]
        assert view.inference_latency_ms == attributes["gen_ai.latency.e2e"] * 1000
        assert view.ttft_ms == attributes["gen_ai.latency.time_to_first_token"] * 1000
        assert view.queue_ms == attributes["gen_ai.latency.time_in_queue"] * 1000


def usage_told_to_the_client(path: Path) -> tuple[str, dict[str, Any]] | None:
    """The trace id of the request and the ``usage`` of its answer; None where it has none."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = re.search(r'"usage":(\{"prompt_tokens".*?\})(?:,"[a-z_]+":|\})', text)
    trace = re.search(r"00-([0-9a-f]{32})-", text)
    if found is None or trace is None:
        return None
    usage, _ = json.JSONDecoder().raw_decode(text, found.start(1))
    return trace.group(1), usage


@pytest.mark.parametrize(
    ("file", "requests"),
    [("chat_stream", 1), ("completion", 1), ("n2", 2), ("stop_string", 1)],
)
def test_tokens_are_those_that_the_client_was_told(
    load_capture: LoadCapture, file: str, requests: int
) -> None:
    told = usage_told_to_the_client(CAPTURES / f"{file}.http")
    assert told is not None
    trace_id, usage = told
    records = load_capture("vllm/serve_004.pb")
    spans = [record for record in records if record.data.trace_id.hex() == trace_id]
    for record in spans:
        Normalizer().normalize(record)
    counts = [record.inference.token_usage for record in spans if record.inference is not None]
    assert len(counts) == requests
    # The prompt is shared by the sequences of a request, the output is not.
    assert {count.input for count in counts} == {usage["prompt_tokens"]}
    assert sum(count.output or 0 for count in counts) == usage["completion_tokens"]
    assert all(count.total == (count.input or 0) + (count.output or 0) for count in counts)


def test_every_request_span_has_tokens(load_capture: LoadCapture) -> None:
    records = load_capture("vllm/serve_004.pb vllm/offline_002.pb vllm/offline_inproc_001.pb")
    requests = [record for record in records if record.data.name == "llm_request"]
    for record in requests:
        Normalizer().normalize(record)
    assert len(requests) == 22
    for record in requests:
        assert record.inference is not None
        usage, attributes = record.inference.token_usage, record.data.attributes
        assert usage.input == attributes["gen_ai.usage.prompt_tokens"]
        assert usage.output == attributes["gen_ai.usage.completion_tokens"]
        assert attributes["gen_ai.usage.input_tokens"] == usage.input
        assert attributes["mcptrace.token_usage.output"] == usage.output


def test_requests_that_vllm_made_no_span_for_have_none(load_capture: LoadCapture) -> None:
    seen = {record.data.trace_id.hex() for record in load_capture("vllm/serve_004.pb")}
    for file in ("abort", "bad_model", "too_long"):
        text = (CAPTURES / f"{file}.http").read_text(encoding="utf-8", errors="replace")
        trace = re.search(r"00-([0-9a-f]{32})-", text)
        assert trace is not None
        assert trace.group(1) not in seen
