"""Quantiles are as near as promised, and only what is above the recent quantile is called slow."""

from __future__ import annotations

import math
import random

import pytest

from mcptrace_proto.sampling.latency import (
    BUCKETS_MAX,
    OTHER_KEY,
    LatencyWatch,
    QuantileSketch,
)


def test_an_empty_sketch_has_no_quantile():
    with pytest.raises(ValueError, match="empty"):
        QuantileSketch().quantile(0.5)


def test_sketches_of_different_error_do_not_mix():
    with pytest.raises(ValueError, match="relative error"):
        QuantileSketch(0.01).merge(QuantileSketch(0.02))


def test_a_sketch_stays_small_and_its_upper_quantiles_right():
    sketch = QuantileSketch()
    for exponent in range(-6000, 6001):
        sketch.add(math.exp(exponent / 100 * 2))
    assert sketch.count == 12_001
    assert len(sketch._buckets) == BUCKETS_MAX
    assert sketch.quantile(0.99) == pytest.approx(math.exp(5880 / 100 * 2), rel=0.01)


def test_nothing_is_slow_before_the_warm_up():
    watch = LatencyWatch(warmup=100)
    assert [watch.observe("k", 1.0 + number, 0.0) for number in range(100)] == [False] * 100
    assert watch.threshold_ms("k") is None
    assert watch.observe("k", 1000.0, 0.0) is True
    assert watch.threshold_ms("k") == pytest.approx(99.0, rel=0.01)


@pytest.mark.parametrize("latency_ms", [0.0, 1e-9, 1.0, 3.3, 100.0, 12345.678])
def test_of_equal_latencies_none_is_slow(latency_ms):
    watch = LatencyWatch(warmup=10)
    assert not any(watch.observe("k", latency_ms, number / 100) for number in range(1000))


@pytest.mark.parametrize("latency_ms", [-1.0, math.nan, math.inf])
def test_what_is_no_latency_is_not_counted(latency_ms):
    watch = LatencyWatch(warmup=1)
    assert watch.observe("k", latency_ms, 0.0) is False
    watch.observe("k", 1.0, 0.0)
    assert watch.threshold_ms("k") is None  # it was the first


def test_about_a_hundredth_is_slow_and_all_of_it_is_above_the_threshold():
    rng = random.Random(7)
    watch = LatencyWatch()
    slow = 0
    for number in range(20_000):
        latency_ms = rng.lognormvariate(3.0, 1.0)
        if watch.observe("k", latency_ms, number / 200):
            slow += 1
            assert latency_ms > watch.threshold_ms("k")
    assert 0.007 < slow / 20_000 < 0.013


def test_the_threshold_follows_what_was_recent():
    watch = LatencyWatch(window_seconds=300.0, warmup=100)
    for second in range(300):
        watch.observe("k", 1000.0, float(second))
    for second in range(300, 600):
        watch.observe("k", 10.0, float(second))
    assert watch.threshold_ms("k") == pytest.approx(1000.0, rel=0.01)  # still in the window before
    watch.observe("k", 10.0, 600.0)
    assert watch.threshold_ms("k") == pytest.approx(10.0, rel=0.01)
    assert watch.observe("k", 11.0, 602.0) is True


def test_after_a_long_silence_a_key_warms_up_again():
    watch = LatencyWatch(window_seconds=300.0, warmup=100)
    for second in range(200):
        watch.observe("k", 10.0, float(second))
    assert watch.observe("k", 99.0, 200.0) is True
    assert watch.observe("k", 99.0, 5000.0) is False


def test_keys_have_thresholds_of_their_own():
    watch = LatencyWatch(warmup=50)
    for number in range(100):
        watch.observe("small", 1.0 + number / 100, 0.0)
        watch.observe("large", 1000.0 + number, 0.0)
    assert watch.observe("small", 5.0, 1.0) is True
    assert watch.observe("large", 900.0, 1.0) is False


def test_keys_are_bounded_and_idle_ones_make_room():
    watch = LatencyWatch(window_seconds=300.0, warmup=1, keys_max=2)
    for number in range(50):
        watch.observe(f"key {number}", 1.0, 0.0)
    assert set(watch._keys) == {"key 0", "key 1", OTHER_KEY}
    watch.observe("key 1", 1.0, 500.0)
    watch.observe("new", 1.0, 800.0)
    assert set(watch._keys) == {"key 1", "new"}


def test_a_clock_that_steps_back_does_not_keep_what_is_old():
    watch = LatencyWatch(window_seconds=300.0, warmup=100)
    for second in range(200):
        watch.observe("k", 1000.0, 10_000.0 + second)
    for second in range(700):
        watch.observe("k", 10.0, 5.0 + second)
    assert watch.threshold_ms("k") == pytest.approx(10.0, rel=0.01)


def test_a_clock_that_steps_back_does_not_freeze_a_threshold():
    watch = LatencyWatch(window_seconds=1e6, warmup=100)
    for second in range(2000):
        watch.observe("k", 10.0, 10_000.0 + second)
    assert [watch.observe("k", 50.0, 5.0 + second) for second in range(40)][-1] is False
