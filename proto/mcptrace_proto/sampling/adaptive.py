"""Sampling rates that follow the load: a budget of kept traces per second, shared by keys.

Pure: time is an argument, in seconds on any clock; steps back count as no time.

Each key's traffic is estimated by exponential smoothing of irregular arrivals, once slowly
(for a steady rate) and once fast (for a burst).  A few times a second the budget is divided:
every key gets an equal part, what a key cannot use goes to the others.  A key's rate goes
down at once and up by at most a fifth every five seconds.

Cold start: a new key begins at the highest rate, and its first second is reckoned as a whole
one, so that a burst at the very start is seen as one.

Always true: every rate is within [rate_min, rate_max]; there are at most ``max_keys`` keys and
one more that the others share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mcptrace_proto.sampling.threshold import threshold_from_probability

OTHER_KEY = "_other"
SLOW_SECONDS, FAST_SECONDS = 10.0, 0.5
BURST = 1.5  # the fast estimate counts when it is this many times the slow one
DIVIDE_SECONDS = 0.25
RISE, RISE_SECONDS = 1.2, 5.0
STEPS_PER_OCTAVE = 8  # rates are rounded to these, so that neighbours share a threshold
FORGET_SECONDS = 600.0


@dataclass(slots=True)
class _Smoothed:
    """Arrivals per second by exponential smoothing over irregular intervals."""

    horizon_seconds: float
    count: float = 0.0
    window: float = 0.0

    def pass_time(self, seconds: float) -> None:
        decay = math.exp(-seconds / self.horizon_seconds)
        self.count *= decay
        self.window = self.window * decay + seconds

    def per_second(self) -> float:
        # Under one horizon (or one second) of history the estimate would be all noise.
        window = max(self.window, min(1.0, self.horizon_seconds))
        # The smoothed window tends to the horizon, the smoothed count to rate x horizon.
        return self.count / window


@dataclass(slots=True)
class _Key:
    rate: float
    threshold: int
    seen_at: float
    slow: _Smoothed
    fast: _Smoothed

    def arrive(self, now: float, weight: float) -> None:
        self.pass_time(now)
        self.slow.count += weight
        self.fast.count += weight

    def pass_time(self, now: float) -> None:
        seconds = now - self.seen_at
        if seconds > 0:
            self.slow.pass_time(seconds)
            self.fast.pass_time(seconds)
        self.seen_at = now

    def per_second(self) -> float:
        slow, fast = self.slow.per_second(), self.fast.per_second()
        return fast if fast > BURST * slow else slow


class AdaptiveRate:
    """Thresholds for ordinary traces.

    Args:
        target_per_second: kept traces per second, all keys together.
        rate_min, rate_max: bounds of every key's probability; they win over the target.
        max_keys: keys with a rate of their own.
    """

    def __init__(
        self,
        target_per_second: float,
        rate_min: float = 0.001,
        rate_max: float = 0.1,
        max_keys: int = 500,
    ) -> None:
        if not 0 < rate_min <= rate_max <= 1:
            raise ValueError(f"0 < rate_min ({rate_min}) <= rate_max ({rate_max}) <= 1 must hold")
        if not target_per_second > 0:
            raise ValueError(f"target_per_second ({target_per_second}) must be above 0")
        self._target = target_per_second
        self._rate_min = rate_min
        self._rate_max = rate_max
        self._max_keys = max_keys
        self._keys: dict[str, _Key] = {}
        self._divided_at = -math.inf

    def observe(self, key: str, now_seconds: float, weight: float = 1.0) -> int:
        """Count one trace of ``key`` that stands for ``weight``; the threshold to apply to it."""
        state = self._state(key, now_seconds)
        state.arrive(now_seconds, weight)
        since = now_seconds - self._divided_at
        if since >= DIVIDE_SECONDS or since < 0:
            self._divide(now_seconds, min(since, RISE_SECONDS))
        return state.threshold

    def rates(self) -> dict[str, float]:
        """The probability applied now, by key."""
        return {key: state.rate for key, state in self._keys.items()}

    def _state(self, key: str, now: float) -> _Key:
        state = self._keys.get(key)
        if state is None:
            if len(self._keys) >= self._max_keys and key != OTHER_KEY:
                return self._state(OTHER_KEY, now)
            rate = self._rate_max
            state = _Key(
                rate,
                threshold_from_probability(rate),
                now,
                _Smoothed(SLOW_SECONDS),
                _Smoothed(FAST_SECONDS),
            )
            self._keys[key] = state
        return state

    def _divide(self, now: float, since: float) -> None:
        self._divided_at = now
        stale = [key for key, state in self._keys.items() if now - state.seen_at > FORGET_SECONDS]
        for key in stale:
            del self._keys[key]
        traffic: list[tuple[float, _Key]] = []
        for state in self._keys.values():
            idle = now - state.seen_at
            # Decay without touching the state: a key keeps its history while it is silent.
            traffic.append((state.per_second() * math.exp(-max(0.0, idle) / SLOW_SECONDS), state))
        traffic.sort(key=lambda entry: entry[0])
        budget, left = self._target, len(traffic)
        rise = RISE ** (max(0.0, since) / RISE_SECONDS)
        for per_second, state in traffic:
            share = budget / left
            used = min(share, per_second * self._rate_max)
            budget -= used
            left -= 1
            wanted = share / per_second if per_second > 0 else self._rate_max
            rate = min(wanted, state.rate * rise)
            state.rate = min(max(rate, self._rate_min), self._rate_max)
            state.threshold = threshold_from_probability(self._stepped(state.rate))

    def _stepped(self, rate: float) -> float:
        step: float = 2.0 ** (round(math.log2(rate) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE)
        return min(max(step, self._rate_min), self._rate_max)
