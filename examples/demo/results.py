"""What the demo shows at its end, computed from what was forwarded and from /status."""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from load import Sent

BUCKET_SECONDS = 4
BARS = " ▁▂▃▄▅▆▇█"

Span = dict[str, Any]


def table(sent: Sent, captured: int, status: dict[str, Any], forwarded: Path) -> str:
    """The whole result as text."""
    spans = list(_spans(forwarded))
    balance = status["balance"]
    lines = [
        "what was sent",
        f"  requests to the service   {sent.requests}"
        f"  ({sent.errors} errors, {sent.timeouts} timeouts, {sent.slow} slow by design)",
        f"  captured Triton requests  {captured} export bodies",
        "  (the SDK decides in the service: what it does not keep never reaches the collector)",
        "",
        "what was kept, in traces of the service by reason",
        *_kept(spans, sent),
        "",
        f"sampling rate of ordinary requests, every {BUCKET_SECONDS} s",
        *_rates(spans),
        "",
        "latency and tokens by model, estimated from the weights of what was kept",
        *_models(spans),
        "",
        "model spans in the Triton captures, as the collector counted them before sampling",
        "  (Triton marks no errors and counts no tokens: ordinary requests, of which few are kept)",
        *_captured(status["metrics"]),
        "",
        f"forwarded spans             {sum(balance['forwarded'].values())}"
        f"  (to {', '.join(sorted(balance['forwarded']))})",
    ]
    return "\n".join(lines)


def _kept(spans: list[Span], sent: Sent) -> Iterator[str]:
    ours = [span for span in spans if span["service"] == "tiny-llm"]
    counts = collections.Counter(span["mcptrace.sampling.reason"] for span in ours)
    notes = {
        "error": f"of {sent.errors} sent",
        "timeout": f"of {sent.timeouts} sent",
        "p99": "slower than their model's p99, known after its first 500 requests",
        "probability": "chosen among all the others",
    }
    for reason, number in sorted(counts.items()):
        yield f"  {reason:<12} {number:6}  {notes.get(reason, '')}"
    estimate = sum(map(_weight, ours))
    error = math.sqrt(sum(_weight(span) * (_weight(span) - 1) for span in ours))
    yield (
        f"  their weights estimate {estimate:.0f} +- {1.96 * error:.0f} requests in all"
        f" (95 %); sent were {sent.requests}"
    )


def _rates(spans: list[Span]) -> Iterator[str]:
    rates: dict[int, list[float]] = collections.defaultdict(list)
    ordinary = [
        span
        for span in spans
        if span["service"] == "tiny-llm" and span["mcptrace.sampling.reason"] == "probability"
    ]
    if not ordinary:
        yield "  none was kept"
        return
    first = min(span["start"] for span in ordinary)
    for span in ordinary:
        bucket = int((span["start"] - first) / 1e9 // BUCKET_SECONDS)
        rates[bucket].append(1 / _weight(span))
    for bucket in range(max(rates) + 1):
        here = rates.get(bucket, [])
        if here:
            mean = sum(here) / len(here)
            bar = BARS[min(8, math.ceil(mean / 0.1 * 8))]
            yield f"  {bucket * BUCKET_SECONDS:3} s  {bar}  {mean:7.2%}  ({len(here)} kept)"
        else:
            yield f"  {bucket * BUCKET_SECONDS:3} s           -  (0 kept)"


def _models(spans: list[Span]) -> Iterator[str]:
    """By model, each kept span standing for as many as its weight says."""
    by_model: dict[str, list[Span]] = collections.defaultdict(list)
    for span in spans:
        if "mcptrace.model_name" in span and span["service"] == "tiny-llm":
            by_model[span["mcptrace.model_name"]].append(span)
    yield f"  {'model':<22}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'tokens in':>16}{'out':>16}"
    for model, here in sorted(by_model.items()):
        latencies = sorted((float(s["mcptrace.inference_latency_ms"]), _weight(s)) for s in here)
        yield (
            f"  {model:<22}{sum(map(_weight, here)):9.0f}"
            f"{_quantile(latencies, 0.5):9.2f}{_quantile(latencies, 0.99):9.2f}"
            f"{_tokens(here, 'input'):>16}{_tokens(here, 'output'):>16}"
        )


def _captured(metrics: dict[str, Any]) -> Iterator[str]:
    """From the collector's metrics."""
    counted = {e["model"]: e for e in metrics["inference_latency_seconds"]}
    yield f"  {'model':<22}{'spans':>9}{'mean ms':>9}{'tokens':>11}"
    for entry in sorted(metrics["inference_requests_total"], key=lambda e: e["model"]):
        model, requests = entry["model"], entry["value"]
        if entry["operation"] == "infer":
            mean = 1000 * counted[model]["sum"] / requests
            yield f"  {model:<22}{requests:9.0f}{mean:9.2f}{'unknown':>11}"


def _weight(span: Span) -> float:
    return float(span["mcptrace.sampling.adjusted_count"])


def _quantile(weighted: list[tuple[float, float]], q: float) -> float:
    """The smallest value at which the weights up to it reach the share ``q``."""
    rank, seen = q * sum(weight for _, weight in weighted), 0.0
    for value, weight in weighted:
        seen += weight
        if seen >= rank:
            return value
    return weighted[-1][0]


def _tokens(spans: list[Span], kind: str) -> str:
    """The estimated sum, and half of its 95 % interval."""
    name = f"mcptrace.token_usage.{kind}"
    counted = [(int(span[name]), _weight(span)) for span in spans if name in span]
    if not counted:
        return "unknown"
    error = math.sqrt(sum(tokens * tokens * weight * (weight - 1) for tokens, weight in counted))
    return f"{sum(tokens * weight for tokens, weight in counted):.0f} +-{1.96 * error:.0f}"


def _spans(path: Path) -> Iterator[Span]:
    """Each forwarded span as a flat dict of its attributes, with ``service`` and ``start``."""
    for file in sorted(path.parent.glob(path.name + "*")):
        for line in file.read_text().splitlines():
            for resource_spans in json.loads(line)["resourceSpans"]:
                service = _attributes(resource_spans["resource"]).get("service.name")
                for scope_spans in resource_spans["scopeSpans"]:
                    for span in scope_spans["spans"]:
                        start = int(span["startTimeUnixNano"])
                        yield {**_attributes(span), "service": service, "start": start}


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    return {
        attribute["key"]: next(iter(attribute["value"].values()), None)
        for attribute in record.get("attributes", [])
    }
