"""What is said seldom is said at once, and again only when the interval has passed."""

from __future__ import annotations

from mcptrace_collector.clock import LOG_INTERVAL_SECONDS, Seldom


class Clock:
    now = 5.0

    def monotonic(self) -> float:
        return self.now

    def unix_nano(self) -> int:
        return int(self.now * 1e9)


def test_one_yes_an_interval() -> None:
    clock = Clock()
    seldom = Seldom(clock)
    answers = []
    for passed in (0.0, 0.0, LOG_INTERVAL_SECONDS - 1, 1.0, 1.0):
        clock.now += passed
        answers.append(seldom.due())
    assert answers == [True, False, False, True, False]
