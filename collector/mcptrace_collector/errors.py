"""Errors of the collector, and what each means to a client.

    CollectorError
    ├── ConfigError        a sentence for the operator; only before start-up is complete
    ├── Retryable          try again: HTTP 503 / gRPC UNAVAILABLE, with a delay
    └── Permanent          never again
        ├── BadRequest     the bytes are not a request: HTTP 400 / INVALID_ARGUMENT
        ├── RequestTooLarge  HTTP 413 / RESOURCE_EXHAUSTED without RetryInfo
        └── UnsupportedMedia HTTP 415 / UNIMPLEMENTED

Classified where they arise, turned into protocol codes in one table (CODES), never told
apart by their text.
"""

from __future__ import annotations

from typing import NamedTuple


class CollectorError(Exception):
    """Base of everything the collector raises on purpose."""


class ConfigError(CollectorError):
    """Configuration that cannot be run; the text names file, key, value and remedy."""


class Retryable(CollectorError):
    """Not now.  ``after_seconds`` is sent as Retry-After and as RetryInfo."""

    def __init__(self, reason: str, after_seconds: float = 1.0) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class Permanent(CollectorError):
    """Never; sending the same again cannot help."""


class BadRequest(Permanent):
    """Undecodable input."""


class RequestTooLarge(Permanent):
    """Over the configured size, counted after decompression."""


class UnsupportedMedia(Permanent):
    """A content type or encoding that is not spoken here."""


class Codes(NamedTuple):
    http: int
    grpc: int  # grpc.StatusCode value


# gRPC: 3 INVALID_ARGUMENT, 8 RESOURCE_EXHAUSTED, 12 UNIMPLEMENTED, 14 UNAVAILABLE
CODES: dict[type[CollectorError], Codes] = {
    Retryable: Codes(503, 14),
    BadRequest: Codes(400, 3),
    RequestTooLarge: Codes(413, 8),
    UnsupportedMedia: Codes(415, 12),
    Permanent: Codes(400, 3),
}
