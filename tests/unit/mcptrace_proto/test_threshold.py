"""The numbers of consistent probability sampling, and the spelling of ``ot`` in tracestate."""

from __future__ import annotations

import pytest

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

TRACE_ID = bytes.fromhex("0102030405060708ff0a0b0c0d0e0f10")
HALF = 1 << 55


@pytest.mark.parametrize(
    ("p", "exact", "rounded", "means", "counts_as"),
    [
        (1.0, "0", "0", 1.0, 1.0),
        (0.5, "8", "8", 0.5, 2.0),
        (0.25, "c", "c", 0.25, 4.0),
        (0.1, "e6666666666666", "e666", 0.10000610, 9.9994),
        (0.05, "f3333333333333", "f3333", 0.05000019, 19.9999),
        (0.02, "fae147ae147ae1", "fae14", 0.02000046, 49.9989),
        (0.01, "fd70a3d70a3d71", "fd70a", 0.01000023, 99.9977),
        (0.005, "feb851eb851eb8", "feb85", 0.00500011, 199.9954),
        (0.002, "ff7ced916872b", "ff7cee", 0.00199997, 500.0064),
        (0.001, "ffbe76c8b43958", "ffbe77", 0.00099999, 1000.0129),
    ],
)
def test_probabilities_become_these_thresholds(p, exact, rounded, means, counts_as):
    threshold = threshold_from_probability(p)
    assert encode_threshold(threshold_from_probability(p, precision=14)) == exact
    assert encode_threshold(threshold) == rounded
    assert round(probability(threshold), 8) == means
    assert round(adjusted_count(threshold), 4) == counts_as


def test_the_smallest_probability_keeps_one_trace_in_two_to_the_56():
    assert threshold_from_probability(2.0**-56) == MAX - 1
    assert adjusted_count(MAX - 1) == float(MAX)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.0000001, 2.0**-57, float("nan"), float("inf")])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="is not between"):
        threshold_from_probability(p)


@pytest.mark.parametrize("precision", [0, 15, -1])
def test_what_is_no_precision_is_refused(precision):
    with pytest.raises(ValueError, match="precision"):
        threshold_from_probability(0.5, precision)


@pytest.mark.parametrize("threshold", [-1, MAX])
def test_what_is_no_threshold_is_not_written(threshold):
    with pytest.raises(ValueError, match="56 bits"):
        encode_threshold(threshold)


@pytest.mark.parametrize(
    ("text", "threshold"),
    [("0", 0), ("8", HALF), ("80000000000000", HALF), ("c", 3 << 54), ("f" * 14, MAX - 1)],
)
def test_a_threshold_is_padded_on_the_right(text, threshold):
    assert parse_threshold(text) == threshold


@pytest.mark.parametrize(
    "text",
    ["", "f" * 15, "E666", "-1", "+1", "0x1", "1_0", " 8", "8 ", "8\n", "g", "0.5", "\u0668"],
    ids=repr,
)
def test_only_lower_case_hex_is_a_threshold(text):
    assert parse_threshold(text) is None


# --- randomness -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trace_state",
    ["", "ot=th:8", "ot=rv:8", "ot=rv:ABCDEF01234567", "ot=rv:00000000000001;rv:00000000000002",
     "vendor=rv:00000000000001", "ot:rv:00000000000001"],
)  # fmt: skip
def test_randomness_is_the_low_56_bits_of_the_trace_id(trace_state):
    assert randomness(TRACE_ID, trace_state) == 0x0A0B0C0D0E0F10


@pytest.mark.parametrize(
    "trace_state",
    ["ot=rv:00000000000abc", "ot=th:8;rv:00000000000abc;x:y", "a=b, ot=rv:00000000000abc ,c=d"],
)
def test_an_explicit_randomness_wins(trace_state):
    assert randomness(TRACE_ID, trace_state) == 0xABC


# --- tracestate -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace_state", "threshold"),
    [
        ("", None),
        ("ot=", None),
        ("ot=rv:00000000000abc", None),
        ("ot=th:8", HALF),
        ("ot=th:0", 0),
        ("other=th:8", None),
        ("xot=th:8", None),
        ("ot=th:8;th:0", None),
        ("ot=th:8;", None),
        ("ot=th:8;Bad:1", None),
        ("ot=th:8;a:b c", None),
        ("ot=th:E6", None),
        (" vendor=x ,\tot=th:8 ", HALF),
        ("ot=th:8;x:" + "y" * 256, None),
        ("ot=th:8,ot=th:0", HALF),
    ],
)
def test_the_threshold_of_an_earlier_stage(trace_state, threshold):
    assert ot_threshold(trace_state) == threshold


@pytest.mark.parametrize(
    ("before", "threshold", "after"),
    [
        ("", HALF, "ot=th:8"),
        ("", None, ""),
        ("ot=th:c", HALF, "ot=th:8"),
        ("ot=th:c", None, ""),
        ("ot=rv:00000000000abc", HALF, "ot=th:8;rv:00000000000abc"),
        ("ot=th:c;rv:00000000000abc", None, "ot=rv:00000000000abc"),
        ("ot=q:1;th:c;rv:00000000000abc;z:", HALF, "ot=th:8;rv:00000000000abc;q:1;z:"),
        ("a=1,ot=th:c,b=2", HALF, "ot=th:8,a=1,b=2"),
        ("a=1,ot=th:c,b=2", None, "a=1,b=2"),
        ("a=1,b=2", None, "a=1,b=2"),
        ("a=1,ot=th:8,b=2", HALF, "a=1,ot=th:8,b=2"),  # nothing changes, so nothing moves
        ("a=1,ot=th:80,b=2", HALF, "ot=th:8,a=1,b=2"),  # the spelling was not the shortest
        ("a=1,ot=BROKEN", HALF, "ot=th:8,a=1"),
        ("a=1,ot=BROKEN", None, "a=1"),
        ("a=x=y,b=", HALF, "ot=th:8,a=x=y,b="),
        ("ot=th:c,ot=rv:00000000000abc", HALF, "ot=th:8"),
    ],
)
def test_only_the_threshold_changes(before, threshold, after):
    assert with_threshold(before, threshold) == after


def test_sub_keys_of_others_give_way_when_256_characters_are_passed():
    others = [f"k{number}:{'v' * 40}" for number in range(5)] + ["kx:" + "w" * 15]
    before = "ot=rv:00000000000abc;" + ";".join(others)
    after = with_threshold(before, HALF)
    assert len(before) - len("ot=") == 256
    assert after == "ot=th:8;rv:00000000000abc;" + ";".join(others[:-1])


def test_the_last_of_32_members_gives_way_to_ours():
    others = [f"v{number}=1" for number in range(32)]
    assert with_threshold(",".join(others), HALF).split(",") == ["ot=th:8", *others[:31]]
    assert with_threshold(",".join(others), None).split(",") == others
