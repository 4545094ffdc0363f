"""Which answers of an OTLP receiver mean "try later", and how long to wait.

Pure: the current time is an argument and the random draw can be given.  One table serves
the SDK's exporters and the collector's.  Source: OTLP specification 1.11, "Failures" and
"OTLP/HTTP Throttling", "OTLP/gRPC Throttling".

Always true:
  * a status that is not in a table here is permanent;
  * every delay is finite and between zero and the stated maximum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

# Everything else in 4xx and 5xx, 408 and 500 among them, must not be retried.
HTTP_RETRYABLE = frozenset({429, 502, 503, 504})

# google.rpc.Code numbers, which are also the gRPC status codes.
GRPC_CANCELLED = 1
GRPC_DEADLINE_EXCEEDED = 4
GRPC_RESOURCE_EXHAUSTED = 8
GRPC_ABORTED = 10
GRPC_OUT_OF_RANGE = 11
GRPC_UNAVAILABLE = 14
GRPC_DATA_LOSS = 15

GRPC_RETRYABLE = frozenset(
    {
        GRPC_CANCELLED,
        GRPC_DEADLINE_EXCEEDED,
        GRPC_ABORTED,
        GRPC_OUT_OF_RANGE,
        GRPC_UNAVAILABLE,
        GRPC_DATA_LOSS,
    }
)

BACKOFF_INITIAL_SECONDS = 1.0
BACKOFF_MULTIPLIER = 2.0
BACKOFF_SECONDS_MAX = 30.0
RETRY_AFTER_SECONDS_MAX = 3600.0

_operating_system_random = random.SystemRandom().random


def http_retryable(code: int) -> bool:
    """Whether an HTTP status asks the client to send the same request again."""
    return code in HTTP_RETRYABLE


def grpc_retryable(code: int, has_retry_info: bool = False) -> bool:
    """Whether a gRPC status asks the client to send the same request again.

    RESOURCE_EXHAUSTED counts only with a RetryInfo detail: without one it means "too large".
    """
    return code in GRPC_RETRYABLE or (code == GRPC_RESOURCE_EXHAUSTED and has_retry_info)


def parse_retry_after(value: str | None, now_unix: float) -> float | None:
    """Seconds to wait from a Retry-After header: delay-seconds or an HTTP-date (RFC 9110 10.2.3).

    None when the header is missing or neither form; a date in the past is 0.0; the result
    never passes RETRY_AFTER_SECONDS_MAX.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        # More digits than this is past the maximum whatever they are.
        seconds = float(text) if len(text) <= 10 else RETRY_AFTER_SECONDS_MAX
        return min(seconds, RETRY_AFTER_SECONDS_MAX)
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
        seconds = moment.timestamp() - now_unix
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)


def backoff_delays(
    initial_seconds: float = BACKOFF_INITIAL_SECONDS,
    multiplier: float = BACKOFF_MULTIPLIER,
    seconds_max: float = BACKOFF_SECONDS_MAX,
    draw: Callable[[], float] = _operating_system_random,
) -> Iterator[float]:
    """Endless delays in seconds: each uniform between zero and a ceiling that grows (full jitter).

    ``draw`` gives numbers in [0, 1).  The default asks the operating system, so forked
    children never wait in step with their parent.
    """
    ceiling = min(initial_seconds, seconds_max)
    while True:
        yield draw() * ceiling
        ceiling = min(ceiling * multiplier, seconds_max)
