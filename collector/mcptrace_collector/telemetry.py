"""What the collector counts about itself: one table of every metric, and their values.

    rooms ── count, observe, watch ──▶ Telemetry ◀── families, snapshot ── admin
    store ── attach_ledger ─────────────┘

A metric that is not in METRICS cannot be counted, so docs/metrics.md, generated from the
table, is complete.  The ledger's figures are read from the store, where they survive a
restart; all others start at zero with the process.

Always true: a metric never has more than SERIES_MAX series; what comes after is added up
under OTHER.  Any thread may count.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from mcptrace_proto.schema import InferenceSpan

PREFIX = "mcptrace_collector_"
SERIES_MAX = 100
LABEL_CHARS_MAX = 128
OTHER = "_other"
UNKNOWN = "_unknown"

# Upper bounds in seconds, as gen_ai.client.operation.duration of the GenAI conventions has them.
LATENCY_BUCKETS = tuple(0.01 * 2**n for n in range(14))


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table.  ``ledger`` names the figure of the store that it shows."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    unit: str
    meaning: str
    ledger: str = ""

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


def _counter(name: str, labels: str, unit: str, meaning: str, ledger: str = "") -> Metric:
    return Metric(name, "counter", tuple(labels.split()), unit, meaning, ledger)


def _gauge(name: str, labels: str, unit: str, meaning: str, ledger: str = "") -> Metric:
    return Metric(name, "gauge", tuple(labels.split()), unit, meaning, ledger)


def _latency(name: str, meaning: str) -> Metric:
    return Metric(name, "histogram", ("model",), "seconds", meaning)


# In the order in which a span meets them.
METRICS: tuple[Metric, ...] = (
    _gauge("in_flight_bytes", "", "bytes", "Bytes of requests being received now."),
    _counter(
        "refused_requests_total",
        "transport reason",
        "requests",
        "Requests answered with an error; none of their spans count as received.",
    ),
    _counter(
        "rejected_spans_total",
        "transport",
        "spans",
        "Spans refused one by one in requests that were otherwise accepted (partial success).",
    ),
    _counter(
        "received_spans_total",
        "transport",
        "spans",
        "Spans accepted: the client has its yes, or it was lost on the way to the client.",
        "received",
    ),
    _gauge("journal_records", "", "requests", "Requests with undecided spans.", "journal_records"),
    _gauge("journal_bytes", "", "bytes", "Bytes of requests in the journal.", "journal_bytes"),
    _counter(
        "replayed_spans_total",
        "",
        "spans",
        "Spans taken up again from the journal at a start, summed over all starts.",
        "replayed",
    ),
    _counter(
        "normalized_changes_total",
        "change",
        "changes",
        "What the normaliser changed or found on spans, by kind of change.",
    ),
    _counter(
        "schema_violations_total",
        "violation",
        "violations",
        "Violations of the MCP-Trace schema on inference spans, by code.",
    ),
    _counter(
        "inference_requests_total",
        "model operation",
        "requests",
        "Inferences before sampling, here or upstream: a span that an upstream sampler kept "
        "counts as many as its threshold says it stands for, an estimate.",
    ),
    _counter(
        "inference_errors_total",
        "model operation",
        "requests",
        "Of these, those with an error.",
    ),
    _counter(
        "inference_tokens_total",
        "model type",
        "tokens",
        "Tokens of these; unknown counts add nothing.",
    ),
    _latency(
        "inference_latency_seconds",
        "Latency of inferences, weighted in the same way.",
    ),
    _latency("inference_ttft_seconds", "Time to the first token, weighted in the same way."),
    _gauge("trace_table_traces", "", "traces", "Traces waiting for a decision."),
    _gauge("trace_table_spans", "", "spans", "Spans waiting for a decision, in memory."),
    _gauge("trace_table_bytes", "", "bytes", "Bytes of spans waiting for a decision, estimated."),
    _counter("late_spans_total", "", "spans", "Spans that came after their trace was decided."),
    _counter("duplicate_spans_total", "", "spans", "Spans that were received a second time."),
    _counter(
        "early_decisions_total",
        "",
        "traces",
        "Traces decided before their time because the table was full.",
    ),
    _counter("decided_traces_total", "reason", "traces", "Traces decided, by reason."),
    _gauge(
        "sampling_rate",
        "key",
        "",
        "Probability applied to ordinary traces now, by budget (model and operation).",
    ),
    _counter("kept_spans_total", "reason", "spans", "Spans decided to be forwarded.", "kept"),
    _counter("dropped_spans_total", "reason", "spans", "Spans decided to be dropped.", "dropped"),
    _gauge("held_spans", "", "spans", "Spans accepted and not decided yet.", "held"),
    _gauge(
        "balance_ok",
        "",
        "",
        "1 when received = kept + dropped + held, and each destination's spans add up; else 0.",
        "exact",
    ),
    _counter(
        "stalls_total",
        "",
        "waits",
        "Times that settling had to wait for room on the disk or in a queue.",
    ),
    _counter("audit_records_total", "", "records", "Records written to the audit log."),
    _counter("enqueued_spans_total", "destination", "spans", "Spans put on a queue.", "enqueued"),
    _gauge("queue_spans", "destination", "spans", "Spans waiting on a queue.", "queued"),
    _gauge("queue_bytes", "destination", "bytes", "Bytes waiting on a queue.", "queued_bytes"),
    _counter(
        "requeued_spans_total",
        "destination",
        "spans",
        "Spans found on a queue at a start, summed over all starts; some may be sent twice.",
        "requeued",
    ),
    _counter("export_attempts_total", "destination outcome", "requests", "Attempts to send."),
    _counter(
        "forwarded_spans_total",
        "destination",
        "spans",
        "Spans that a destination has acknowledged.",
        "forwarded",
    ),
    _counter(
        "export_failed_spans_total",
        "destination reason",
        "spans",
        "Spans that a destination refused for good or was given up on.",
        "failed",
    ),
)

_BY_NAME = {metric.name: metric for metric in METRICS}

Figures: TypeAlias = float | Mapping[str, float]
"""One value, or a value for each value of a metric's only label."""


class Ledger(Protocol):
    """The durable figures; mappings are by the label of the metric that shows them."""

    @property
    def received(self) -> Mapping[str, int]: ...
    @property
    def kept(self) -> Mapping[str, int]: ...
    @property
    def dropped(self) -> Mapping[str, int]: ...
    @property
    def enqueued(self) -> Mapping[str, int]: ...
    @property
    def forwarded(self) -> Mapping[str, int]: ...
    @property
    def failed(self) -> Mapping[str, int]:
        """By destination and reason, with one space between them."""

    @property
    def requeued(self) -> Mapping[str, int]: ...
    @property
    def replayed(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def journal_records(self) -> int: ...
    @property
    def journal_bytes(self) -> int: ...
    @property
    def queued(self) -> Mapping[str, int]: ...
    @property
    def queued_bytes(self) -> Mapping[str, int]: ...
    @property
    def exact(self) -> bool: ...


@dataclass(slots=True)
class Distribution:
    """A histogram's values: ``counts`` has one more entry than LATENCY_BUCKETS, for the rest."""

    counts: list[float] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS) + 1))
    sum: float = 0.0

    def add(self, value: float, weight: float) -> None:
        self.counts[bisect.bisect_left(LATENCY_BUCKETS, value)] += weight
        self.sum += value * weight


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values by label values; histograms have Distributions."""

    metric: Metric
    values: dict[tuple[str, ...], float]
    distributions: dict[tuple[str, ...], Distribution]


class Telemetry:
    """The values of METRICS in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[tuple[str, ...], float]] = {}
        self._distributions: dict[str, dict[tuple[str, ...], Distribution]] = {}
        self._watched: dict[str, Callable[[], Figures]] = {}
        self._ledger: Callable[[], Ledger] | None = None

    def attach_ledger(self, read: Callable[[], Ledger]) -> None:
        """Show the store's figures; ``read`` is called whenever metrics are asked for."""
        self._ledger = read

    def watch(self, name: str, read: Callable[[], Figures]) -> None:
        """Let ``read`` answer for a metric whenever it is asked for, in place of counting it."""
        if len(_BY_NAME[name].labels) > 1:
            raise ValueError(f"{name} has several labels and cannot be watched")
        self._watched[name] = read

    def count(self, name: str, n: float = 1, **labels: str) -> None:
        """Add to a counter.  An unknown name or wrong labels are a fault of the caller."""
        key = _key(_BY_NAME[name], labels)
        with self._lock:
            series = self._counts.setdefault(name, {})
            key = _bounded(series, key)
            series[key] = series.get(key, 0) + n

    def observe(self, name: str, seconds: float, weight: float = 1.0, **labels: str) -> None:
        """Add one value to a histogram, ``weight`` times."""
        key = _key(_BY_NAME[name], labels)
        with self._lock:
            series = self._distributions.setdefault(name, {})
            key = _bounded(series, key)
            series.setdefault(key, Distribution()).add(seconds, weight)

    def inference(self, span: InferenceSpan, *, error: bool, weight: float = 1.0) -> None:
        """Count one inference before it is sampled here; it stands for ``weight`` of them."""
        model = span.model_name or UNKNOWN
        operation = span.operation or UNKNOWN
        self.count("inference_requests_total", weight, model=model, operation=operation)
        if error:
            self.count("inference_errors_total", weight, model=model, operation=operation)
        usage = span.token_usage
        for kind in ("input", "output", "cached", "reasoning"):
            tokens: int | None = getattr(usage, kind)
            if tokens:
                self.count("inference_tokens_total", tokens * weight, model=model, type=kind)
        if span.inference_latency_ms is not None:
            seconds = span.inference_latency_ms / 1e3
            self.observe("inference_latency_seconds", seconds, weight, model=model)
        if span.ttft_ms is not None:
            self.observe("inference_ttft_seconds", span.ttft_ms / 1e3, weight, model=model)

    def families(self) -> list[Family]:
        """Every metric with its values now, in the order of the table."""
        ledger = self._ledger() if self._ledger is not None else None
        with self._lock:
            counts = {name: dict(series) for name, series in self._counts.items()}
            distributions = {
                name: {key: Distribution(list(d.counts), d.sum) for key, d in series.items()}
                for name, series in self._distributions.items()
            }
        families = []
        for metric in METRICS:
            if metric.ledger:
                values = {} if ledger is None else _series(metric, getattr(ledger, metric.ledger))
            elif metric.name in self._watched:
                values = _series(metric, self._watched[metric.name]())
            else:
                nothing: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0}
                values = {} if metric.kind == "histogram" else counts.get(metric.name, nothing)
            families.append(Family(metric, values, distributions.get(metric.name, {})))
        return families

    def snapshot(self) -> dict[str, object]:
        """All values as JSON types: ``{name: number}`` or ``{name: [{label: ..., value: n}]}``."""
        shown: dict[str, object] = {}
        for family in self.families():
            metric = family.metric
            if metric.kind == "histogram":
                shown[metric.name] = [
                    {
                        **dict(zip(metric.labels, key, strict=True)),
                        "buckets": list(LATENCY_BUCKETS),
                        "counts": distribution.counts,
                        "sum": distribution.sum,
                    }
                    for key, distribution in family.distributions.items()
                ]
            elif metric.labels:
                shown[metric.name] = [
                    {**dict(zip(metric.labels, key, strict=True)), "value": value}
                    for key, value in family.values.items()
                ]
            else:
                shown[metric.name] = family.values.get((), 0)
        return shown


def _key(metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return tuple([labels[name][:LABEL_CHARS_MAX] for name in metric.labels])


def _bounded(series: Mapping[tuple[str, ...], object], key: tuple[str, ...]) -> tuple[str, ...]:
    if key in series or len(series) < SERIES_MAX - 1 or not key:
        return key
    return (OTHER,) * len(key)


def _series(metric: Metric, figures: Figures) -> dict[tuple[str, ...], float]:
    if not isinstance(figures, Mapping):
        return {(): float(figures)}
    values: dict[tuple[str, ...], float] = {}
    for label, value in figures.items():
        parts = tuple(part[:LABEL_CHARS_MAX] for part in label.split(" ", len(metric.labels) - 1))
        key = _bounded(values, parts)
        # Rates do not add up; beyond the bound the last one stands for the others.
        values[key] = value if metric.kind == "gauge" else values.get(key, 0) + value
    return values
