"""Requests of a real Triton: model spans leave as valid inference spans, others as they came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import wire
from mcptrace_proto.schema import TokenUsage, validate

LoadCapture = Callable[[str], list[SpanRecord]]

CAPTURES = Path(__file__).parents[3] / "data" / "captures"
NOT_TRACES = {"triton_mode_trace", "trace_setting", "server_metadata", "repository_index"}
FILES = [
    f"triton/{path.name}"
    for path in sorted((CAPTURES / "triton").iterdir())
    if path.suffix in {".json", ".pb"}
    and path.stem not in NOT_TRACES
    and not path.name.startswith(("stats.", "model_"))
]
UNREPORTED = TokenUsage(
    unknown={"input": "not_reported", "output": "not_reported", "total": "not_reported"}
)


def normalized(records: list[SpanRecord]) -> dict[str, SpanRecord]:
    """The records by request id, or by model where there is none, after both steps."""
    normalizer = Normalizer()
    for record in records:
        normalizer.normalize(record)
    normalizer.complete_trace(records)
    models = [record for record in records if record.inference is not None]
    return {
        str(
            record.data.attributes.get("triton.request_id")
            or record.data.attributes["triton.model_name"]
        ): record
        for record in models
    }


def test_all_captures_are_looked_at() -> None:
    assert len(FILES) == 44


@pytest.mark.parametrize("file", FILES)
def test_each_model_span_becomes_valid_and_no_other_span_changes(
    load_capture: LoadCapture, file: str
) -> None:
    normalizer = Normalizer()
    records = load_capture(file)
    before = [(record.raw, dict(record.data.attributes)) for record in records]
    outcomes = [normalizer.normalize(record) for record in records]
    normalizer.complete_trace(records)
    for record, (raw, attributes), outcome in zip(records, before, outcomes, strict=True):
        assert (outcome.violations, outcome.drop) == ((), False)
        assert attributes.items() <= record.data.attributes.items()
        assert wire.decode_span(record.raw) == record.data
        if "triton.model_name" not in attributes:
            assert (record.inference, record.raw) == (None, raw)
            continue
        view = record.inference
        assert view is not None
        assert validate(record.data, view) == []
        assert view.model_name == record.data.name
        assert (view.operation, view.provider, view.model_version) == ("infer", "triton", "1")
        assert view.token_usage == UNREPORTED
        assert record.data.attributes["mcptrace.source.convention"] == "triton"
        assert record.data.attributes["mcptrace.protocol_version"] == "v2.3"


# REQUEST_END less REQUEST_START, and COMPUTE_START less QUEUE_START, reckoned by hand from the
# last nine digits of the times in the files.
LATENCIES = [
    ("grpc_infer_plain.json", "add_sub", 493_375_163 - 491_660_220, 492_793_315 - 491_684_654),
    ("bls.json", "r-bls", 24_728_950, 115_908),
    ("bls.json", "add_sub", 1_582_178, 1_111_234),
    ("http_generate_stream.json", "gs-1", 665_644_751 - 623_597_303, 623_685_476 - 623_623_526),
    ("cache_miss_hit.json", "r-c0", 364_447_375 - 317_046_903, 317_350_020 - 317_075_928),
    ("cache_miss_hit.json", "r-c1", 365_549_553 - 365_484_499, None),
    ("queue_full.2.json", "r-f0", 962_625_061 - 661_826_528, 661_934_007 - 661_847_600),
    ("queue_full.3.json", "r-f1", 1_085_202_999, 784_032_172),
    ("queue_full.4.json", "r-f2", 1_564_219_873, 1_263_431_834),
    ("grpc_stream_decoupled.2.json", "r-s2", 617_120_363 - 501_777_796, 574_941_693 - 501_797_847),
]


@pytest.mark.parametrize(("file", "request_id", "latency_nano", "queue_nano"), LATENCIES)
def test_latency_and_queue_time_come_from_the_events(
    load_capture: LoadCapture,
    file: str,
    request_id: str,
    latency_nano: int,
    queue_nano: int | None,
) -> None:
    record = normalized(load_capture("triton/" + file))[request_id]
    attributes = record.data.attributes
    queue_ms = None if queue_nano is None else queue_nano / 1e6
    assert attributes["mcptrace.inference_latency_ms"] == latency_nano / 1e6
    assert attributes.get("mcptrace.queue_ms") == queue_ms
    assert record.inference is not None
    assert record.inference.queue_ms == queue_ms


def test_a_rejected_request_has_its_duration_as_latency_and_no_invented_error(
    load_capture: LoadCapture,
) -> None:
    record = normalized(load_capture("triton/queue_full.1.json"))["r-f3"]
    attributes = record.data.attributes
    assert attributes["mcptrace.inference_latency_ms"] == 0.040158
    assert attributes["mcptrace.source.inference_latency_ms"] == "span_duration"
    assert not {"mcptrace.queue_ms", "mcptrace.finish_reason", "error.type"} & attributes.keys()
    assert record.data.status_code == 0


def test_boot_time_events_neither_stretch_the_span_nor_get_lost(load_capture: LoadCapture) -> None:
    records = load_capture("triton/http_generate_stream.json")
    (before,) = [record.data for record in records if record.data.name == "InferRequest"]
    times = [event.time_unix_nano for event in before.events]
    assert min(times) < before.start_time_unix_nano - 2_000 * 10**9
    record = normalized(records)["gs-1"]
    (after,) = [wire.decode_span(item.raw) for item in records if item.data.name == "InferRequest"]
    assert (after.end_time_unix_nano - after.start_time_unix_nano) / 1e6 == 42.242695
    assert [event.time_unix_nano for event in after.events] == times
    assert record.data.attributes["mcptrace.ttft_ms"] == (654_722_182 - 623_473_203) / 1e6
    assert record.data.attributes["mcptrace.streaming"] is True


def test_a_stream_over_two_requests_gets_its_first_response_when_the_trace_is_whole(
    load_capture: LoadCapture,
) -> None:
    names = "triton/grpc_stream_decoupled.1.json triton/grpc_stream_decoupled.2.json"
    found = normalized(load_capture(names))
    first, second = found["r-s1"].data.attributes, found["r-s2"].data.attributes
    assert first["mcptrace.ttft_ms"] == (529_809_963 - 498_554_420) / 1e6
    assert second["mcptrace.ttft_ms"] == (605_814_413 - 501_763_170) / 1e6
    assert first["gen_ai.response.time_to_first_chunk"] == (529_809_963 - 498_554_420) / 1e9


def test_a_single_answer_is_no_stream(load_capture: LoadCapture) -> None:
    for file in ("grpc_infer_plain", "http_infer_plain", "bls", "failing_http"):
        for record in normalized(load_capture(f"triton/{file}.json")).values():
            assert not {"mcptrace.ttft_ms", "mcptrace.streaming"} & record.data.attributes.keys()


def test_a_model_that_calls_another_and_the_one_called_are_both_inferences(
    load_capture: LoadCapture,
) -> None:
    found = normalized(load_capture("triton/bls.json"))
    assert {name: record.data.name for name, record in found.items()} == {
        "r-bls": "bls",
        "add_sub": "add_sub",
    }
    assert found["add_sub"].data.parent_span_id == found["r-bls"].data.span_id


def test_completing_a_trace_twice_is_completing_it_once(load_capture: LoadCapture) -> None:
    records = load_capture("triton/http_generate_stream.json")
    normalized(records)
    once = [(record.raw, record.inference) for record in records]
    normalized(records)
    assert [(record.raw, record.inference) for record in records] == once
