"""Rates follow the load within their bounds: down at once, up slowly, and share one budget."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from mcptrace_proto.sampling.adaptive import OTHER_KEY, AdaptiveRate
from mcptrace_proto.sampling.threshold import encode_threshold, probability


def arrivals(
    load: dict[str, float], begin: float, end: float, seed: int = 1
) -> Iterator[tuple[float, str]]:
    """Poisson arrivals (time, key) of ``load`` traces per second and key, in order of time."""
    rng = random.Random(seed)
    total = sum(load.values())
    now = begin + rng.expovariate(total)
    while now < end:
        yield now, rng.choices(list(load), list(load.values()))[0]
        now += rng.expovariate(total)


def run(rates: AdaptiveRate, load: dict[str, float], begin: float, end: float) -> list[float]:
    """Kept traces in each whole second, as the sum of the probabilities that were applied."""
    kept = [0.0] * round(end - begin)
    for now, key in arrivals(load, begin, end):
        kept[int(now - begin)] += probability(rates.observe(key, now))
    return kept


def test_a_new_key_begins_at_the_highest_rate():
    assert encode_threshold(AdaptiveRate(10.0).observe("k", 0.0)) == "e666"


@pytest.mark.parametrize(
    ("before", "after", "target"),
    [(10.0, 1000.0, 10.0), (100.0, 10_000.0, 20.0), (5.0, 500.0, 3.0)],
)
def test_a_hundredfold_load_is_back_at_the_target_within_ten_seconds(before, after, target):
    rates = AdaptiveRate(target)
    run(rates, {"k": before}, 0.0, 60.0)
    kept = run(rates, {"k": after}, 60.0, 90.0)
    assert [f"second {i}: {k:.1f}" for i, k in enumerate(kept) if i >= 2 and k > 2 * target] == []
    settled = sum(kept[10:]) / len(kept[10:])
    assert settled == pytest.approx(target, rel=0.2)
    assert kept[10] == pytest.approx(target, rel=0.3)  # one second of Poisson arrivals


def test_a_burst_at_the_very_start_is_seen_as_one():
    kept = run(AdaptiveRate(10.0), {"k": 5000.0}, 0.0, 20.0)
    assert kept[0] < 8 * 10.0  # the highest rate alone would have kept 500
    assert max(kept[2:]) < 20.0
    assert sum(kept[10:]) / 10 == pytest.approx(10.0, rel=0.2)


def test_a_burst_after_a_long_silence_is_seen_as_one():
    rates = AdaptiveRate(10.0)
    run(rates, {"k": 1000.0}, 0.0, 30.0)
    kept = run(rates, {"k": 5000.0}, 430.0, 450.0)
    assert max(kept[2:]) < 20.0
    assert sum(kept[10:]) / 10 == pytest.approx(10.0, rel=0.2)


def test_a_steady_load_keeps_the_target():
    rates = AdaptiveRate(10.0)
    kept = run(rates, {"k": 300.0}, 0.0, 120.0)
    assert sum(kept[20:]) / 100 == pytest.approx(10.0, rel=0.1)


def test_recovery_is_gradual_and_complete():
    rates = AdaptiveRate(10.0)
    run(rates, {"k": 5000.0}, 0.0, 20.0)
    seen = [rates.rates()["k"]]
    for begin in range(20, 260, 5):
        run(rates, {"k": 20.0}, begin, begin + 5)
        seen.append(rates.rates()["k"])
    # A fifth in five seconds, and the rounding to an eighth of an octave at both ends.
    assert [b / a for a, b in pairwise(seen) if b / a > 1.2 * 2 ** (1 / 8)] == []
    assert seen == sorted(seen)
    assert seen[0] < 0.003
    assert seen[-1] == 0.1


def test_unused_budget_goes_to_the_keys_that_can_use_it():
    rates = AdaptiveRate(20.0)
    run(rates, {"busy": 1000.0, "quiet": 10.0, "calm": 30.0}, 0.0, 60.0)
    # quiet and calm take all they may, 1 and 3 a second; the other 16 are for busy.
    found = rates.rates()
    assert (found["quiet"], found["calm"]) == (0.1, 0.1)
    assert found["busy"] == pytest.approx(0.016, rel=0.15)


def test_keys_that_want_more_than_there_is_share_evenly():
    rates = AdaptiveRate(20.0)
    run(rates, {"a": 500.0, "b": 2000.0}, 0.0, 60.0)
    assert rates.rates() == {
        "a": pytest.approx(10 / 500, rel=0.15),
        "b": pytest.approx(10 / 2000, rel=0.15),
    }


def test_bounds_win_over_the_target():
    rates = AdaptiveRate(1.0, rate_min=0.01, rate_max=0.05)
    run(rates, {"busy": 3000.0}, 0.0, 20.0)
    assert rates.rates() == {"busy": 0.01}
    idle = AdaptiveRate(1000.0, rate_min=0.01, rate_max=0.05)
    run(idle, {"idle": 5.0}, 0.0, 20.0)
    assert idle.rates() == {"idle": 0.05}


def test_equal_bounds_are_a_fixed_probability():
    rates = AdaptiveRate(1.0, rate_min=0.02, rate_max=0.02)
    thresholds = {rates.observe("k", now) for now, _ in arrivals({"k": 800.0}, 0.0, 5.0)}
    assert {encode_threshold(threshold) for threshold in thresholds} == {"fae14"}


def test_a_trace_that_stands_for_many_is_counted_as_many():
    single, weighted = AdaptiveRate(10.0), AdaptiveRate(10.0)
    for now, key in arrivals({"k": 1000.0}, 0.0, 30.0):
        single.observe(key, now)
    for now, key in arrivals({"k": 50.0}, 0.0, 30.0):
        weighted.observe(key, now, weight=20.0)
    assert weighted.rates()["k"] == pytest.approx(single.rates()["k"], rel=0.35)


def test_an_absurd_weight_is_charged_as_one_trace_at_the_lowest_rate():
    rates = AdaptiveRate(10.0)
    for second in range(120):
        rates.observe("k", float(second), weight=2.0**56)
    assert rates.rates() == {"k": pytest.approx(0.01, rel=0.15)}


def test_keys_are_bounded_and_forgotten():
    rates = AdaptiveRate(10.0, max_keys=3)
    for number in range(50):
        rates.observe(f"key {number}", number * 0.01)
    assert set(rates.rates()) == {"key 0", "key 1", "key 2", OTHER_KEY}
    rates.observe("key 1", 700.0)
    rates.observe("new", 701.0)
    assert set(rates.rates()) == {"key 1", "new"}


def test_a_clock_that_steps_back_counts_as_no_time():
    rates = AdaptiveRate(10.0)
    run(rates, {"k": 1000.0}, 1000.0, 1030.0)
    before = rates.rates()["k"]
    rates.observe("k", 10.0)
    assert rates.rates()["k"] <= before
    kept = run(rates, {"k": 1000.0}, 10.0, 40.0)
    assert max(kept[2:]) < 20.0
    assert sum(kept[10:]) / 20 == pytest.approx(10.0, rel=0.2)


def test_rates_recover_after_a_clock_stepped_back():
    rates = AdaptiveRate(10.0)
    run(rates, {"k": 5000.0}, 10_000.0, 10_010.0)
    run(rates, {"k": 20.0}, 10.0, 70.0)
    assert rates.rates()["k"] > 0.01


def test_neighbours_share_a_threshold():
    rates = AdaptiveRate(10.0)
    run(rates, {"k": 500.0}, 0.0, 30.0)
    thresholds = {rates.observe(key, now) for now, key in arrivals({"k": 500.0}, 30.0, 60.0)}
    assert len(thresholds) <= 4


@pytest.mark.parametrize(
    "arguments",
    [
        (0.0,),
        (-1.0,),
        (float("nan"),),
        (float("inf"),),
        (1.0, 0.0),
        (1.0, 0.2, 0.1),
        (1.0, 0.1, 1.1),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ValueError, match="must"):
        AdaptiveRate(*arguments)
