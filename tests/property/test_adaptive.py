"""What holds for adaptive rates whatever arrives, in whatever order of time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_proto.sampling.adaptive import AdaptiveRate
from mcptrace_proto.sampling.threshold import threshold_from_probability

observations = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.floats(-5.0, 5.0) | st.sampled_from([0.0, 0.0001, 1000.0, -1000.0, 1e9]),
        st.floats(1.0, 2.0**56),
    ),
    max_size=60,
)
bounds = st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)).map(sorted)


@settings(max_examples=150, deadline=None)
@given(observations, bounds, st.floats(1e-3, 1e6), st.integers(1, 4))
def test_rates_stay_within_their_bounds_and_keys_within_theirs(steps, bounds, target, max_keys):
    low, high = bounds
    rates = AdaptiveRate(target, low, high, max_keys)
    now = 0.0
    for key, step, weight in steps:
        now += step
        threshold = rates.observe(key, now, weight)
        assert threshold_from_probability(high) <= threshold <= threshold_from_probability(low)
        assert [rate for rate in rates.rates().values() if not low <= rate <= high] == []
        assert len(rates.rates()) <= max_keys + 1
