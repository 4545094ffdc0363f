"""What a refused client is told: the codes of an error, and the metric label for its cause.

Pure.  One place for both receivers; the codes themselves are in errors.CODES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mcptrace_collector.errors import (
    CODES,
    BadRequest,
    Codes,
    CollectorError,
    Permanent,
    RequestTooLarge,
    Retryable,
    UnsupportedMedia,
)

# google.rpc.Code numbers that errors.CODES does not need.
DEADLINE_EXCEEDED, NOT_FOUND, UNIMPLEMENTED = 4, 5, 12

# Labels of refused_requests_total.
MALFORMED, TOO_LARGE, UNSUPPORTED, BUSY = "malformed", "too_large", "unsupported_media", "busy"
REFUSED, TIMEOUT, NO_SUCH_DOOR = "refused", "timeout", "not_found"

_REASONS: dict[type[CollectorError], str] = {
    Retryable: BUSY,
    BadRequest: MALFORMED,
    RequestTooLarge: TOO_LARGE,
    UnsupportedMedia: UNSUPPORTED,
    Permanent: REFUSED,
}

# The answer must stay far below the 4 MiB that a client reads, and below what headers hold.
MESSAGE_CHARS_MAX = 500

Refused: TypeAlias = Callable[[str, str], None]
"""Called with (transport, reason) for every request that is answered with an error."""


def uncounted(transport: str, reason: str) -> None:
    """A Refused that counts nothing."""


def codes_of(error: CollectorError) -> Codes:
    """HTTP and gRPC codes; what is not in the table is a Permanent."""
    return CODES.get(type(error), CODES[Permanent])


def reason_of(error: CollectorError) -> str:
    return _REASONS.get(type(error), REFUSED)


def message_of(error: CollectorError) -> str:
    return str(error)[:MESSAGE_CHARS_MAX]


def delay_of(error: CollectorError) -> float | None:
    """Seconds for Retry-After and RetryInfo; None for what is never to be tried again."""
    return error.after_seconds if isinstance(error, Retryable) else None
