"""How long an exporter waits before it sends the same request again, or that it gives up.

Pure: time is an argument.  Which answers may be retried is in mcptrace_proto.retry.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcptrace_proto.retry import backoff_delays


class RetrySchedule:
    """The waits of one request."""

    def __init__(self, delays: Iterator[float] | None = None) -> None:
        self._delays = backoff_delays() if delays is None else delays

    def next_wait(
        self, remaining_seconds: float, retry_after_seconds: float | None = None
    ) -> float | None:
        """Seconds to wait, or None when the time that remains would be over by then.

        A delay that the receiver asked for replaces the backoff's own (OTLP specification,
        "OTLP/HTTP Throttling"); the backoff advances all the same.
        """
        delay = next(self._delays)
        if retry_after_seconds is not None:
            delay = retry_after_seconds
        return delay if delay < remaining_seconds else None
