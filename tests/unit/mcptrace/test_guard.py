"""The guard swallows, counts and logs sparingly, and raises again under test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from mcptrace import guard as guard_module
from mcptrace.guard import Counters, guard, reraise_in_tests, warn_rarely


@pytest.fixture(autouse=True)
def _quiet_again() -> Iterator[None]:
    reraise_in_tests(False)
    guard_module._Switch.next_log_seconds = 0.0
    guard_module._Switch.next_warning_seconds = 0.0
    yield
    reraise_in_tests(False)


def test_an_error_is_swallowed_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = Counters()
    with caplog.at_level(logging.WARNING, logger="mcptrace"):
        for _ in range(3):
            with guard("the work", counters):
                raise ValueError("broken\nin detail")
    assert counters.snapshot() == {"internal_error": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "mcptrace: error in the work, ignored: ValueError: broken"
    ]


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_the_traceback_of_an_error_is_for_debugging(
    caplog: pytest.LogCaptureFixture, level: int, shown: bool
) -> None:
    with caplog.at_level(level, logger="mcptrace"), guard("the work"):
        raise ValueError("broken")
    (record,) = caplog.records
    assert bool(record.exc_info) == shown


def test_an_error_does_not_use_up_the_minute_of_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="mcptrace"):
        with guard("the work"):
            raise ValueError("broken")
        for _ in range(3):
            warn_rarely("refused: %s", "model_name:missing")
    assert [record.getMessage() for record in caplog.records] == [
        "mcptrace: error in the work, ignored: ValueError: broken",
        "refused: model_name:missing",
    ]


def test_under_test_the_error_comes_out() -> None:
    reraise_in_tests(True)
    with pytest.raises(ValueError, match="broken"), guard("the work"):
        raise ValueError("broken")


def test_what_is_no_exception_passes() -> None:
    with pytest.raises(KeyboardInterrupt), guard("the work"):
        raise KeyboardInterrupt


def test_counters_start_over_after_a_fork() -> None:
    counters = Counters()
    counters.add("queue_full", 4)
    counters.reset_after_fork()
    counters.add("queue_full")
    assert counters.snapshot() == {"queue_full": 1}
