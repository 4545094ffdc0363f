"""A sketch against exact quantiles."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_proto.sampling.latency import LatencyWatch, QuantileSketch

EXAMPLES = settings(max_examples=150, deadline=None)


@st.composite
def lognormal(draw) -> list[float]:
    """Latencies in ms as services have them: lognormal, from microseconds to hours."""
    centre, width = draw(st.floats(-6.0, 15.0)), draw(st.floats(0.0, 2.0))
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    return [rng.lognormvariate(centre, width) for _ in range(draw(st.integers(1, 400)))]


latencies = lognormal() | st.lists(st.floats(1e-5, 1e9), min_size=1, max_size=50)
quantiles = st.floats(0.0, 1.0) | st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0])


def sketched(values: list[float]) -> QuantileSketch:
    sketch = QuantileSketch()
    for value in values:
        sketch.add(value)
    return sketch


def exact(values: list[float], q: float) -> float:
    return sorted(values)[math.floor(q * (len(values) - 1))]


@EXAMPLES
@given(latencies, quantiles)
def test_every_quantile_is_within_one_percent(values, q):
    assert sketched(values).quantile(q) == pytest.approx(exact(values, q), rel=0.01 + 1e-9)


@EXAMPLES
@given(latencies, quantiles)
def test_the_bound_is_never_below_the_quantile_and_at_most_two_percent_above(values, q):
    bound, true = sketched(values).quantile_bound(q), exact(values, q)
    assert true <= bound <= true * (1.01 / 0.99) * (1 + 1e-8)


@EXAMPLES
@given(latencies, latencies)
def test_merging_is_counting_everything_in_one(some, others):
    merged, both = sketched(some), sketched(some + others)
    merged.merge(sketched(others))
    assert (merged._buckets, merged.count) == (both._buckets, both.count)


@EXAMPLES
@given(latencies)
def test_what_is_called_slow_is_above_the_exact_quantile_of_what_came_before(values):
    watch = LatencyWatch(warmup=5)
    for number, value in enumerate(values):
        # More than a second between two, so that each is judged by all that came before it.
        if watch.observe("k", value, number * 1.001 / 5):
            assert number >= 5
