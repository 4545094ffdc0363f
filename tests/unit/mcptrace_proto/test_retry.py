from __future__ import annotations

from itertools import islice

import pytest

from mcptrace_proto.retry import (
    RETRY_AFTER_SECONDS_MAX,
    backoff_delays,
    grpc_retryable,
    http_retryable,
    parse_retry_after,
)

NOW = 1_445_412_470.0  # Wed, 21 Oct 2015 07:27:50 GMT


def test_only_four_http_statuses_are_retryable() -> None:
    retryable = [code for code in range(100, 600) if http_retryable(code)]
    assert retryable == [429, 502, 503, 504]


@pytest.mark.parametrize(
    ("has_retry_info", "expected"),
    [(False, [1, 4, 10, 11, 14, 15]), (True, [1, 4, 8, 10, 11, 14, 15])],
)
def test_grpc_codes_follow_the_table(has_retry_info: bool, expected: list[int]) -> None:
    assert [code for code in range(17) if grpc_retryable(code, has_retry_info)] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("999999999999999999999", RETRY_AFTER_SECONDS_MAX),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 10.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 2115 07:27:00 GMT", RETRY_AFTER_SECONDS_MAX),
        ("Wed, 99 Oct 2015 07:27:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, expected: float | None) -> None:
    assert parse_retry_after(value, NOW) == expected


def test_backoff_ceiling_doubles_up_to_its_maximum() -> None:
    delays = backoff_delays(1.0, 2.0, 5.0, draw=lambda: 0.5)
    assert list(islice(delays, 5)) == [0.5, 1.0, 2.0, 2.5, 2.5]


def test_backoff_is_jittered_and_never_passes_its_maximum() -> None:
    delays = list(islice(backoff_delays(4.0, 2.0, 8.0), 200))
    assert all(0 <= delay <= 8.0 for delay in delays)
    assert len(set(delays)) == 200
