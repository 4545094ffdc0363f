"""Sampling rates that follow the load: a budget of kept traces per second, shared by keys.

Pure: time is an argument, in seconds on any clock; steps back count as no time.

Each key's traffic is estimated by exponential smoothing over SLOW_SECONDS.  A second estimate
over FAST_SECONDS finds bursts: when it is far above the first, the first forgets and starts
again from it.  A few times a second, and as soon as a key spends far more than its share, the
budget is divided: every key gets an equal part, what a key cannot use goes to the others.  A
key's rate goes down at once and up by at most a fifth every five seconds.

Cold start: a new key begins at the highest rate, and what came in its first second is taken
for that second's whole traffic, so that a burst at the very start is seen as one.

Always true: every rate is within [rate_min, rate_max]; there are at most ``max_keys`` keys and
one more that the others share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mcptrace_proto.sampling.threshold import threshold_from_probability

OTHER_KEY = "_other"
SLOW_SECONDS, FAST_SECONDS = 10.0, 0.5
BURST = 1.5  # traffic or spending of this many times what was expected is a burst...
BURST_ARRIVALS = 10.0  # ...when it is more than the noise of a few arrivals, too
DIVIDE_SECONDS = 0.25
RISE, RISE_SECONDS = 1.2, 5.0
STEPS_PER_OCTAVE = 8  # rates are rounded to these, so that neighbours share a threshold
FORGET_SECONDS = 600.0
SHORTEST_SECONDS = 1.0  # a shorter history is taken for one of this length


@dataclass(slots=True)
class _Smoothed:
    """Arrivals, and the time in which they came, both fading away over ``horizon_seconds``."""

    horizon_seconds: float
    count: float = 0.0
    window_seconds: float = 0.0

    def pass_time(self, seconds: float) -> None:
        decay = math.exp(-seconds / self.horizon_seconds)
        self.count *= decay
        # The time fades while it passes, or a long silence would hide the burst after it.
        faded = self.horizon_seconds * (1.0 - decay)
        self.window_seconds = self.window_seconds * decay + faded

    def per_second(self, idle_seconds: float = 0.0) -> float:
        """The rate after ``idle_seconds`` more without arrivals."""
        decay = math.exp(-idle_seconds / self.horizon_seconds) if idle_seconds > 0 else 1.0
        window = self.window_seconds * decay + self.horizon_seconds * (1.0 - decay)
        return self.count * decay / max(window, SHORTEST_SECONDS)


@dataclass(slots=True)
class _Key:
    rate: float
    threshold: int
    share: float  # of the budget, traces per second
    seen_at: float
    slow: _Smoothed = field(default_factory=lambda: _Smoothed(SLOW_SECONDS))
    fast: _Smoothed = field(default_factory=lambda: _Smoothed(FAST_SECONDS))

    def arrive(self, now: float, weight: float) -> None:
        slow, fast = self.slow, self.fast
        seconds = now - self.seen_at
        self.seen_at = now
        if seconds > 0:
            slow.pass_time(seconds)
            fast.pass_time(seconds)
        slow.count += weight
        fast.count += weight
        # What the slow estimate would have put into the fast window, multiplied out.
        expected = slow.count * fast.window_seconds
        unusual = fast.count - BURST_ARRIVALS * weight
        if unusual * slow.window_seconds > BURST * expected:
            slow.count, slow.window_seconds = fast.count, fast.window_seconds


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
        if not 0 < target_per_second < math.inf:
            raise ValueError(f"target_per_second ({target_per_second}) must be above 0 and finite")
        self._target = target_per_second
        self._rate_min = rate_min
        self._rate_max = rate_max
        self._max_keys = max_keys
        self._threshold_max_rate = threshold_from_probability(rate_max)
        self._keys: dict[str, _Key] = {}
        self._divided_at = -math.inf

    def observe(self, key: str, now_seconds: float, weight: float = 1.0) -> int:
        """Count one trace of ``key`` that stands for ``weight``; the threshold to apply to it."""
        state = self._state(key, now_seconds)
        # At the lowest rate a trace is charged as one at most: more it cannot cost.
        state.arrive(now_seconds, min(weight, 1.0 / self._rate_min))
        self._divided_at = min(self._divided_at, now_seconds)
        spends_too_much = (
            state.rate > self._rate_min
            and state.slow.per_second() * state.rate > BURST * state.share
        )
        if spends_too_much or now_seconds - self._divided_at >= DIVIDE_SECONDS:
            self._divide(now_seconds)
        return state.threshold

    def rates(self) -> dict[str, float]:
        """The probability applied now, by key."""
        return {key: self._stepped(state.rate) for key, state in self._keys.items()}

    def _state(self, key: str, now: float) -> _Key:
        state = self._keys.get(key)
        if state is None:
            if len(self._keys) >= self._max_keys and key != OTHER_KEY:
                return self._state(OTHER_KEY, now)
            share = self._target / (len(self._keys) + 1)
            state = _Key(self._rate_max, self._threshold_max_rate, share, now)
            self._keys[key] = state
        return state

    def _divide(self, now: float) -> None:
        since = min(now - self._divided_at, FORGET_SECONDS)
        self._divided_at = now
        stale = [key for key, state in self._keys.items() if now - state.seen_at > FORGET_SECONDS]
        for key in stale:
            del self._keys[key]
        traffic = [
            (state.slow.per_second(now - state.seen_at), state) for state in self._keys.values()
        ]
        traffic.sort(key=lambda entry: entry[0])
        budget, left = self._target, len(traffic)
        rise = RISE ** (since / RISE_SECONDS)
        for per_second, state in traffic:
            state.share = budget / left
            budget -= min(state.share, per_second * self._rate_max)
            left -= 1
            wanted = state.share / per_second if per_second > 0 else self._rate_max
            rate = min(max(min(wanted, state.rate * rise), self._rate_min), self._rate_max)
            if rate != state.rate:
                state.rate = rate
                state.threshold = threshold_from_probability(self._stepped(rate))

    def _stepped(self, rate: float) -> float:
        """The nearest step below ``rate_max``, or ``rate_min`` itself."""
        if rate <= self._rate_min:
            return self._rate_min
        steps = round(math.log2(self._rate_max / rate) * STEPS_PER_OCTAVE)
        step: float = self._rate_max * 2.0 ** (-steps / STEPS_PER_OCTAVE)
        return max(step, self._rate_min)
