"""Values are frozen, within limits, and never raise."""

from __future__ import annotations

import enum
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace.attributes import DEPTH_MAX, clean_attributes, clean_value, put


class Colour(str, enum.Enum):
    RED = "red"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text today")


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ("text", "text"),
        (True, True),
        (7, 7),
        (1 << 70, str(1 << 70)),
        (-(1 << 63), -(1 << 63)),
        (1.5, 1.5),
        (None, None),
        (b"raw", b"raw"),
        (bytearray(b"raw"), b"raw"),
        (Colour.RED, "red"),
        (("a", 1, [2.0]), ["a", 1, [2.0]]),
        ({"k": (1, 2), "": 3, 4: "four"}, {"k": [1, 2], "4": "four"}),
        (numpy.int64(5), 5),
        (numpy.float32(0.5), 0.5),
        (ValueError("why"), "why"),
    ],
)
def test_every_value_becomes_one_that_the_wire_carries(value: Any, cleaned: Any) -> None:
    result = clean_value(value, None)
    assert (result, type(result)) == (cleaned, type(cleaned))


def test_strings_are_cut_at_every_level() -> None:
    assert clean_value(["abcdef", {"k": "abcdef"}], 3) == ["abc", {"k": "abc"}]


def test_later_changes_by_the_caller_do_not_reach_the_span() -> None:
    mine = [1, 2]
    cleaned, _ = clean_attributes({"list": mine}, 10, None)
    mine.append(3)
    assert cleaned == {"list": [1, 2]}


def test_a_value_that_contains_itself_is_dropped_and_counted() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert clean_attributes({"endless": endless, "fine": 1}, 10, None) == ({"fine": 1}, 1)


def test_nesting_up_to_the_limit_is_kept() -> None:
    nested: Any = "deep"
    for _ in range(DEPTH_MAX):
        nested = [nested]
    assert clean_value(nested, None) == nested


def test_a_value_whose_text_raises_is_dropped_and_counted() -> None:
    assert clean_attributes({"hostile": Hostile()}, 10, None) == ({}, 1)


@pytest.mark.parametrize("key", ["", None, 3, b"bytes"])
def test_an_unusable_key_is_dropped(key: Any) -> None:
    target: dict[str, Any] = {}
    assert (put(target, key, 1, 10, None), target) == (False, {})


def test_over_the_count_limit_new_keys_are_dropped_and_known_ones_replaced() -> None:
    target: dict[str, Any] = {"a": 1, "b": 2}
    assert put(target, "c", 3, 2, None) is False
    assert put(target, "a", 9, 2, None) is True
    assert target == {"a": 9, "b": 2}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def _is_wire_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_wire_value(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_wire_value(item) for key, item in value.items())
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) in (str, bool, float, bytes)


@settings(max_examples=100, deadline=None)
@given(values)
def test_whatever_is_set_is_a_wire_value_or_dropped(value: Any) -> None:
    cleaned, dropped = clean_attributes({"key": value}, 1, 5)
    assert len(cleaned) + dropped == 1
    assert all(_is_wire_value(item) for item in cleaned.values())
