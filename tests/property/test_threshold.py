"""What holds for every threshold and every tracestate."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_proto.sampling.threshold import (
    MAX,
    adjusted_count,
    encode_threshold,
    ot_threshold,
    parse_threshold,
    probability,
    randomness,
    threshold_from_probability,
    with_threshold,
)

EXAMPLES = settings(max_examples=200, deadline=None)

probabilities = st.floats(2.0**-56, 1.0) | st.floats(-56.0, 0.0).map(lambda power: 2.0**power)
thresholds = st.integers(0, MAX - 1)
trace_ids = st.binary(min_size=16, max_size=16)

sub_keys = st.dictionaries(
    st.from_regex(r"[a-su-z][a-z0-9]{0,3}", fullmatch=True).filter(lambda key: key != "rv"),
    st.from_regex(r"[A-Za-z0-9._-]{0,8}", fullmatch=True),
    max_size=4,
)
vendors = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9]{2,5}", fullmatch=True),
    st.from_regex(r"[a-z0-9:;=]{1,8}", fullmatch=True),
    max_size=4,
)


@st.composite
def trace_states(draw) -> tuple[str, list[str], str | None, dict[str, str]]:
    """A valid tracestate, its other members, its rv and the sub-keys of others in it."""
    others = [f"{key}={value}" for key, value in draw(vendors).items()]
    rv = draw(st.none() | st.from_regex(r"[0-9a-f]{14}", fullmatch=True))
    rest = draw(sub_keys)
    pairs = [] if rv is None else [f"rv:{rv}"]
    pairs += [f"{key}:{value}" for key, value in rest.items()]
    th = draw(st.none() | thresholds)
    if th is not None:
        pairs.insert(draw(st.integers(0, len(pairs))), f"th:{encode_threshold(th)}")
    members = list(others)
    if pairs:
        members.insert(draw(st.integers(0, len(members))), "ot=" + ";".join(pairs))
    return ",".join(members), others, rv, rest


@EXAMPLES
@given(probabilities, st.integers(1, 14))
def test_rounding_keeps_the_probability_near_and_the_digits_few(p, precision):
    threshold = threshold_from_probability(p, precision)
    assert 0 <= threshold < MAX
    assert len(encode_threshold(threshold).lstrip("f")) <= precision
    # Half a unit in the last digit, against a share of at least one unit of the first one; and
    # half of 2**-56, below which no threshold can say.
    assert abs(probability(threshold) - p) <= p * 0.5 * 16.0 ** (1 - precision) + 0.5 / MAX
    assert threshold_from_probability(probability(threshold), precision) == threshold


@EXAMPLES
@given(probabilities, probabilities)
def test_a_larger_probability_never_has_the_larger_threshold(p, q):
    low, high = sorted((p, q))
    assert threshold_from_probability(high) <= threshold_from_probability(low)


@EXAMPLES
@given(thresholds)
def test_what_is_written_is_read_back_exactly_in_its_shortest_spelling(threshold):
    text = encode_threshold(threshold)
    assert parse_threshold(text) == threshold
    assert re.fullmatch(r"0|[0-9a-f]{0,13}[1-9a-f]", text)
    assert adjusted_count(threshold) >= 1.0


@EXAMPLES
@given(trace_ids, thresholds, thresholds)
def test_a_lower_threshold_keeps_everything_that_a_higher_one_keeps(trace_id, a, b):
    drawn = randomness(trace_id, "")
    assert 0 <= drawn < MAX
    assert (drawn >= max(a, b)) == (drawn >= a and drawn >= b)


@EXAMPLES
@given(trace_states(), st.none() | thresholds, trace_ids)
def test_the_threshold_is_replaced_and_everything_else_is_carried_on(built, threshold, trace_id):
    before, others, rv, rest = built
    after = with_threshold(before, threshold)
    members = after.split(",") if after else []
    ours = [member for member in members if member.startswith("ot=")]
    assert [member for member in members if not member.startswith("ot=")] == others
    assert ot_threshold(after) == threshold
    expected = {} if threshold is None else {"th": encode_threshold(threshold)}
    expected |= ({} if rv is None else {"rv": rv}) | rest
    found = dict(pair.split(":", 1) for member in ours for pair in member[3:].split(";"))
    assert found == expected
    assert randomness(trace_id, after) == randomness(trace_id, before)
    assert with_threshold(after, threshold) == after


@EXAMPLES
@given(st.text(st.sampled_from("ot=th:rv;,8fE \t_-x\u00e9"), max_size=60), st.none() | thresholds)
def test_no_text_at_all_breaks_the_reading(text, threshold):
    assert ot_threshold(with_threshold(text, threshold)) == threshold
    assert 0 <= randomness(bytes(16), text) < MAX
