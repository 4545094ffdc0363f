"""Counting: only what the table has, never more series than the bound."""

from __future__ import annotations

import pytest

from mcptrace_collector.durable import Balance
from mcptrace_collector.telemetry import METRICS, OTHER, SERIES_MAX, Telemetry
from mcptrace_proto.schema import InferenceSpan, TokenUsage


def values(telemetry: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    return next(f.values for f in telemetry.families() if f.metric.name == name)


def test_names_are_unique_and_say_their_kind() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [m.name for m in METRICS if (m.kind == "counter") != m.name.endswith("_total")] == []


def test_counts_add_up_by_label() -> None:
    telemetry = Telemetry()
    telemetry.count("refused_requests_total", transport="grpc", reason="too_large")
    telemetry.count("refused_requests_total", 2, reason="too_large", transport="grpc")
    telemetry.count("late_spans_total", 3)
    assert values(telemetry, "refused_requests_total") == {("grpc", "too_large"): 3}
    assert values(telemetry, "late_spans_total") == {(): 3}
    assert values(telemetry, "duplicate_spans_total") == {(): 0}


def test_an_unknown_metric_or_label_is_a_fault() -> None:
    telemetry = Telemetry()
    with pytest.raises(KeyError):
        telemetry.count("nonesuch_total")
    with pytest.raises(KeyError):
        telemetry.count("normalized_changes_total", colour="red")
    with pytest.raises(ValueError, match="labels"):
        telemetry.count("late_spans_total", colour="red")
    with pytest.raises(ValueError, match="several labels"):
        telemetry.watch("export_attempts_total", lambda: 1)


def test_more_models_than_the_bound_are_counted_together() -> None:
    telemetry = Telemetry()
    for n in range(SERIES_MAX + 50):
        telemetry.inference(InferenceSpan(model_name=f"m{n}", operation="chat"), error=False)
    counted = values(telemetry, "inference_requests_total")
    assert len(counted) == SERIES_MAX
    assert counted[OTHER, OTHER] == 51
    assert sum(counted.values()) == SERIES_MAX + 50


def test_watched_values_are_bounded_too() -> None:
    telemetry = Telemetry()
    telemetry.watch("sampling_rate", lambda: {f"model {n}": 0.5 for n in range(1000)})
    telemetry.watch("trace_table_bytes", lambda: 7)
    assert len(values(telemetry, "sampling_rate")) == SERIES_MAX
    assert values(telemetry, "sampling_rate")["model 0",] == 0.5
    assert values(telemetry, "trace_table_bytes") == {(): 7.0}


def test_an_inference_counts_its_tokens_and_latency() -> None:
    telemetry = Telemetry()
    usage = TokenUsage(input=10, output=5, total=15, cached=0, reasoning=None)
    span = InferenceSpan(
        model_name="m", operation="chat", inference_latency_ms=50.0, ttft_ms=10.0, token_usage=usage
    )
    telemetry.inference(span, error=True)
    telemetry.inference(InferenceSpan(), error=False)
    assert values(telemetry, "inference_requests_total") == {
        ("m", "chat"): 1,
        ("_unknown", "_unknown"): 1,
    }
    assert values(telemetry, "inference_errors_total") == {("m", "chat"): 1}
    assert values(telemetry, "inference_tokens_total") == {("m", "input"): 10, ("m", "output"): 5}
    shown = telemetry.snapshot()
    (latency,) = shown["inference_latency_seconds"]
    assert (latency["model"], latency["sum"]) == ("m", 0.05)
    assert latency["counts"] == [0, 0, 0, 1] + [0] * 11
    # A value on a bound belongs below it.
    assert shown["inference_ttft_seconds"][0]["counts"][0] == 1


def test_the_ledgers_figures_are_shown_as_the_store_has_them() -> None:
    telemetry = Telemetry()
    assert values(telemetry, "kept_spans_total") == {}
    balance = Balance(
        received={"grpc": 5},
        kept={"error": 2},
        dropped={"sampled_out": 1},
        enqueued={"up": 2},
        failed={"up too_large": 1},
        forwarded={"up": 1},
        held=2,
    )
    telemetry.attach_ledger(lambda: balance)
    shown = telemetry.snapshot()
    assert shown["received_spans_total"] == [{"transport": "grpc", "value": 5}]
    assert shown["export_failed_spans_total"] == [
        {"destination": "up", "reason": "too_large", "value": 1}
    ]
    assert (shown["held_spans"], shown["balance_ok"]) == (2, 1)
    balance.held = 3
    assert telemetry.snapshot()["balance_ok"] == 0
