from __future__ import annotations

from itertools import repeat

from mcptrace.retry import RetrySchedule


def test_backoff_is_waited_while_time_remains() -> None:
    schedule = RetrySchedule(iter([1.0, 2.0, 4.0]))
    assert [schedule.next_wait(3.0) for _ in range(3)] == [1.0, 2.0, None]


def test_receivers_delay_replaces_the_backoff() -> None:
    schedule = RetrySchedule(iter([1.0, 2.0, 4.0]))
    assert [schedule.next_wait(10.0, 7.0), schedule.next_wait(10.0)] == [7.0, 2.0]


def test_delay_beyond_the_deadline_means_giving_up_now() -> None:
    assert RetrySchedule(repeat(0.0)).next_wait(5.0, 5.0) is None


def test_default_backoff_starts_below_one_second() -> None:
    wait = RetrySchedule().next_wait(60.0)
    assert wait is not None
    assert 0.0 <= wait < 1.0
