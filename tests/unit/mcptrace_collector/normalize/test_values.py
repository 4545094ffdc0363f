"""Values of emitters: what is a count, a duration, a text, a flag, and what is not."""

from __future__ import annotations

import pytest

from mcptrace_collector.normalize import values
from mcptrace_proto.model import AttributeValue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12, 12),
        (0, 0),
        (12.0, 12),
        ("12", 12),
        (" 12.0 ", 12),
        (values.TOKENS_MAX, values.TOKENS_MAX),
        (values.TOKENS_MAX + 1, None),
        (-1, None),
        (True, None),
        (1.5, None),
        (float("nan"), None),
        (float("inf"), None),
        ("-3", None),
        ("1_000", None),
        ("12 tokens", None),
        ("9" * 400, None),
        ([12], None),
        ({}, None),
        (b"12", None),
        (None, None),
    ],
)
def test_a_count_is_a_whole_number_in_bounds(value: AttributeValue, expected: int | None) -> None:
    assert values.count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.25, 250.0),
        (2, 2000.0),
        ("0.5", 500.0),
        ("1e-3", 1.0),
        (0.0, 0.0),
        (-0.1, None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        ("nan", None),
        ("1_0", None),
        (10**400, None),
        (3e6, None),
        (None, None),
    ],
)
def test_seconds_become_milliseconds(value: AttributeValue, expected: float | None) -> None:
    assert values.milliseconds(value, 1000.0) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("stop", "stop"),
        (["stop", "length"], "stop"),
        (["", "length"], "length"),
        ('["length"]', "length"),
        ("[odd", "[odd"),
        ("[1]", None),
        (3, "3"),
        (True, None),
        (1.5, None),
        ("  ", None),
        ('["\\ud800"]', None),
        ("[" * 60000, "[" * 60000),
        ({"a": 1}, None),
    ],
)
def test_a_text_is_the_first_that_says_anything(
    value: AttributeValue, expected: str | None
) -> None:
    assert values.text(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), ("False", False), (" true ", True), ("yes", None), (1, None), (None, None)],
)
def test_a_flag_is_a_bool_or_its_word(value: AttributeValue, expected: bool | None) -> None:
    assert values.flag(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:01.500Z", 1_500_000_000),
        ('"1970-01-01T01:00:01.500000+01:00"', 1_500_000_000),
        ("1970-01-01T00:00:02", 2_000_000_000),
        ("0000-00-00T00:00:00", None),
        ("soon", None),
        (7, None),
    ],
)
def test_an_iso_time_becomes_unix_nanoseconds(value: AttributeValue, expected: int | None) -> None:
    assert values.unix_nano(value) == expected


@pytest.mark.parametrize("value", [None, "", "  ", [], {}, b""])
def test_nothing_said_is_empty(value: AttributeValue) -> None:
    assert values.is_empty(value)


@pytest.mark.parametrize("value", [0, 0.0, False, "0", [0], float("nan")])
def test_zero_is_something_said(value: AttributeValue) -> None:
    assert not values.is_empty(value)
