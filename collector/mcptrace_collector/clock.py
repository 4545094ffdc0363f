"""Time as an argument: the only file of the collector that asks the machine for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    def unix_nano(self) -> int:
        """Wall time in nanoseconds since 1970, for records that people read."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def unix_nano(self) -> int:
        return time.time_ns()
