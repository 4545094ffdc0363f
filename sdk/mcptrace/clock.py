"""Time for spans: a wall clock for when, a monotonic clock for how long.

Both in nanoseconds.  A Clock is an argument everywhere, so that tests own the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Clock:
    """``wall_ns`` since the Unix epoch; ``monotonic_ns`` from any start, never going back."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.perf_counter_ns
