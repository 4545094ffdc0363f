"""The metrics in Prometheus' text format.

Knows the table's shape, not what it counts.  Process metrics (``process_*``) come from the
Prometheus client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mcptrace_collector.telemetry import LATENCY_BUCKETS, Distribution, Family, Telemetry


def prometheus_text(telemetry: Telemetry) -> Callable[[], bytes]:
    """Make a function that writes out all metrics as they are at its call."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Families(telemetry))
    return lambda: generate_latest(registry)


class _Families(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return [_exposed(family) for family in self._telemetry.families()]


def _exposed(family: Family) -> Metric:
    metric = family.metric
    name, meaning, labels = metric.full_name, metric.meaning, metric.labels
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, meaning, labels=labels)
        for key, distribution in family.distributions.items():
            histogram.add_metric(key, _cumulative(distribution), distribution.sum)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    exposed = kind(name, meaning, labels=labels)
    for key, value in family.values.items():
        exposed.add_metric(key, value)
    return exposed


def _cumulative(distribution: Distribution) -> Sequence[tuple[str, float]]:
    total = 0.0
    buckets: list[tuple[str, float]] = []
    bounds = [*(f"{bound:g}" for bound in LATENCY_BUCKETS), "+Inf"]
    for bound, count in zip(bounds, distribution.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
