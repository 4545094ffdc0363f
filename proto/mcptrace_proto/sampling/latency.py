"""Latency quantiles of a stream, by key, with a bounded relative error.

Pure: time is an argument, in seconds on any clock; steps back are ignored.

``QuantileSketch`` counts values in buckets whose bounds grow by a constant factor (DDSketch,
Masson et al., VLDB 2019): every answer is within ``relative_error`` of the true quantile,
whatever the distribution.  ``LatencyWatch`` keeps two windows for each key, so that its
threshold forgets what is older than two window lengths.

A threshold is the upper bound of the quantile's bucket, not a guess inside it: were it a guess,
then of many equal latencies all could be above.

Always true: a sketch has at most BUCKETS_MAX buckets, the lowest are joined beyond that; a
watch has at most ``keys_max`` keys, later ones share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

RELATIVE_ERROR = 0.01
WATCH_RELATIVE_ERROR = 0.005  # half, because a bucket's upper bound is twice as far off
BUCKETS_MAX = 2048
SMALLEST = 1e-6  # milliseconds; everything below counts as this
OTHER_KEY = "_other"
REFRESH_SECONDS = 1.0
REFRESH_SHARE = 16  # a threshold is reckoned anew after 1/16 more values at the latest


class QuantileSketch:
    """Counts of positive values, mergeable without loss."""

    __slots__ = ("_buckets", "_gamma_log", "count", "relative_error")

    def __init__(self, relative_error: float = RELATIVE_ERROR) -> None:
        self.relative_error = relative_error
        self.count = 0
        self._gamma_log = math.log((1 + relative_error) / (1 - relative_error))
        self._buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count one finite value; what is below SMALLEST counts as SMALLEST."""
        bucket = math.ceil(math.log(max(value, SMALLEST)) / self._gamma_log)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        if len(self._buckets) > BUCKETS_MAX:
            self._join_lowest()

    def merge(self, other: QuantileSketch) -> None:
        """Count everything that ``other`` has counted.  Both must have the same error."""
        if other.relative_error != self.relative_error:
            raise ValueError("sketches of different relative error cannot be merged")
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += other.count
        while len(self._buckets) > BUCKETS_MAX:
            self._join_lowest()

    def quantile(self, q: float) -> float:
        """The value at quantile ``q`` in [0, 1].  Raises ValueError when nothing was counted."""
        gamma = math.exp(self._gamma_log)
        return 2 * math.exp(self._bucket_at(q) * self._gamma_log) / (gamma + 1)

    def quantile_bound(self, q: float) -> float:
        """The upper bound of the bucket with quantile ``q``: no value of it is above.

        At most twice the relative error above the quantile.  Raises ValueError when nothing
        was counted.
        """
        # A value on the very bound must not pass it by a rounding of the last bit.
        return math.exp(self._bucket_at(q) * self._gamma_log) * (1 + 1e-9)

    def _bucket_at(self, q: float) -> int:
        if not self.count:
            raise ValueError("an empty sketch has no quantiles")
        rank = q * (self.count - 1)
        seen = 0
        bucket = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen > rank:
                break
        return bucket

    def _join_lowest(self) -> None:
        lowest, next_lowest = sorted(self._buckets)[:2]
        self._buckets[next_lowest] += self._buckets.pop(lowest)


def _sketch() -> QuantileSketch:
    return QuantileSketch(WATCH_RELATIVE_ERROR)


@dataclass(slots=True)
class _Windows:
    """The current and the previous window of one key, and the threshold of both together."""

    began: float
    current: QuantileSketch = field(default_factory=_sketch)
    previous: QuantileSketch = field(default_factory=_sketch)
    threshold: float = math.inf
    refreshed_at: float = -math.inf
    refreshed_count: int = 0


class LatencyWatch:
    """Says which latencies are above their key's recent quantile.

    Args:
        quantile: such as 0.99.
        window_seconds: length of one window; a threshold reflects one to two of them.
        warmup: values of a key to be seen before any of them counts as above.
        keys_max: keys with windows of their own.
    """

    def __init__(
        self,
        quantile: float = 0.99,
        window_seconds: float = 300.0,
        warmup: int = 500,
        keys_max: int = 500,
    ) -> None:
        self._quantile = quantile
        self._window_seconds = window_seconds
        self._warmup = max(warmup, 1)
        self._keys_max = keys_max
        self._keys: dict[str, _Windows] = {}
        self._swept_at = -math.inf

    def observe(self, key: str, latency_ms: float, now_seconds: float) -> bool:
        """Count one latency; True when it is strictly above what was the quantile before it."""
        if not 0 <= latency_ms < math.inf:
            return False
        windows = self._windows(key, now_seconds)
        self._rotate(windows, now_seconds)
        seen = windows.current.count + windows.previous.count
        if seen >= self._warmup:
            fresh = 0 <= now_seconds - windows.refreshed_at < REFRESH_SECONDS
            if not fresh or seen - windows.refreshed_count >= seen // REFRESH_SHARE:
                self._refresh(windows, now_seconds, seen)
        else:
            windows.threshold = math.inf
        windows.current.add(latency_ms)
        return latency_ms > windows.threshold

    def threshold_ms(self, key: str) -> float | None:
        """The latency above which spans of ``key`` are kept; None before its warm-up."""
        windows = self._keys.get(key)
        if windows is None or windows.threshold == math.inf:
            return None
        return windows.threshold

    def _windows(self, key: str, now: float) -> _Windows:
        windows = self._keys.get(key)
        if windows is None:
            if len(self._keys) >= self._keys_max:
                self._sweep(now)
            if len(self._keys) >= self._keys_max and key != OTHER_KEY:
                return self._windows(OTHER_KEY, now)
            windows = self._keys[key] = _Windows(now)
        return windows

    def _sweep(self, now: float) -> None:
        """Make room: forget keys of which nothing came for two windows; once a window."""
        if 0 <= now - self._swept_at < self._window_seconds:
            return
        self._swept_at = now
        limit = now - 2 * self._window_seconds
        for key in [key for key, windows in self._keys.items() if windows.began <= limit]:
            del self._keys[key]

    def _rotate(self, windows: _Windows, now: float) -> None:
        windows.began = min(windows.began, now)
        age = now - windows.began
        if age < self._window_seconds:
            return
        long_ago = age >= 2 * self._window_seconds
        windows.previous = _sketch() if long_ago else windows.current
        windows.current = _sketch()
        windows.began = now

    def _refresh(self, windows: _Windows, now: float, seen: int) -> None:
        both = _sketch()
        both.merge(windows.previous)
        both.merge(windows.current)
        windows.threshold = both.quantile_bound(self._quantile)
        windows.refreshed_at = now
        windows.refreshed_count = seen
