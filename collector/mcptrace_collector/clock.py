"""Time as an argument: the only file of the collector that asks the machine for it.

Also what is only about time: saying something seldom.
"""

from __future__ import annotations

import time
from typing import Protocol

LOG_INTERVAL_SECONDS = 60.0


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    def unix_nano(self) -> int:
        """Wall time in nanoseconds since 1970, for records that people read."""


class Seldom:
    """Says yes at most once in ``interval_seconds``: for log lines that could come in floods."""

    def __init__(self, clock: Clock, interval_seconds: float = LOG_INTERVAL_SECONDS) -> None:
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._last = float("-inf")

    def due(self) -> bool:
        """Whether the time has come again; a yes starts the next interval."""
        now = self._clock.monotonic()
        if now - self._last < self._interval_seconds:
            return False
        self._last = now
        return True


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def unix_nano(self) -> int:
        return time.time_ns()
