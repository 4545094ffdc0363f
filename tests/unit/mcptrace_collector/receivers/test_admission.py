from __future__ import annotations

import pytest

from mcptrace_collector.errors import RequestTooLarge, Retryable
from mcptrace_collector.receivers.admission import BUSY_RETRY_SECONDS, ByteBudget


def test_a_reservation_gives_everything_back_at_its_end() -> None:
    budget = ByteBudget(100)
    with budget.reservation() as held:
        held.grow(30)
        held.grow(20)
        assert (held.held, budget.used) == (50, 50)
    assert budget.used == 0


def test_a_failed_request_gives_everything_back() -> None:
    budget = ByteBudget(100)

    def fail() -> None:
        with budget.reservation() as held:
            held.grow(30)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert budget.used == 0


def test_what_does_not_fit_beside_others_is_to_come_back_later() -> None:
    budget = ByteBudget(100)
    with budget.reservation() as first, budget.reservation() as second:
        first.grow(60)
        with pytest.raises(Retryable) as refusal:
            second.grow(41)
        assert refusal.value.after_seconds == BUSY_RETRY_SECONDS
        second.grow(40)
        assert budget.used == 100


def test_what_could_never_fit_is_refused_for_good() -> None:
    budget = ByteBudget(100)
    with budget.reservation() as held:
        held.grow(60)
        with pytest.raises(RequestTooLarge):
            held.grow(41)
        assert budget.used == 60
