"""What a destination's answer means: later, never, or too large.

The tables of OTLP are in mcptrace_proto.retry; here they meet the two transports.  Nothing is
sent or awaited.

Always true: an answer that is not retryable by those tables is Permanent; a delay that the
destination did not name is 0, so that the sender's own backoff decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from mcptrace_collector.clock import Clock, Seldom
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_proto.errors import WireError
from mcptrace_proto.json import decode_response_json
from mcptrace_proto.retry import (
    GRPC_RESOURCE_EXHAUSTED,
    grpc_retryable,
    http_retryable,
    parse_retry_after,
)
from mcptrace_proto.wire import decode_response, decode_status

log = logging.getLogger(__name__)

# OTLP specification 1.11: neither side sends or reads more.
REQUEST_BYTES_MAX = 64 * 1024 * 1024
RESPONSE_BYTES_MAX = 4 * 1024 * 1024

# RESOURCE_EXHAUSTED says "too large" and "over quota" alike; no receiver's limit is below this.
SPLIT_BYTES_MIN = 64 * 1024

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MESSAGE_CHARS_MAX = 300
NANOS_PER_SECOND = 1_000_000_000


def check_size(body: bytes) -> None:
    """Raises RequestTooLarge for what no receiver has to take."""
    if len(body) > REQUEST_BYTES_MAX:
        raise RequestTooLarge(f"a request of {len(body)} bytes, over {REQUEST_BYTES_MAX}")


def http_error(
    code: int, headers: Mapping[str, str], body: bytes, clock: Clock
) -> Retryable | Permanent:
    """The error of an HTTP status outside 2xx."""
    message = f"HTTP {code}{_status_text(headers, body)}"
    if http_retryable(code):
        now_unix = clock.unix_nano() / NANOS_PER_SECOND
        delay = parse_retry_after(headers.get("Retry-After"), now_unix)
        return Retryable(message, delay or 0.0)
    return RequestTooLarge(message) if code == 413 else Permanent(message)


def _status_text(headers: Mapping[str, str], body: bytes) -> str:
    """What a google.rpc.Status says, for the log."""
    if media_type(headers) != PROTOBUF:
        return ""
    try:
        return f": {decode_status(body)[1][:MESSAGE_CHARS_MAX]}"
    except WireError:
        return ""


def grpc_error(
    code: int, message: str, details: bytes | None, body_bytes: int
) -> Retryable | Permanent:
    """The error of a gRPC status.  ``details`` is the grpc-status-details-bin of the answer."""
    text = f"gRPC status {code}: {message[:MESSAGE_CHARS_MAX]}"
    delay = _retry_delay(details)
    if grpc_retryable(code, delay is not None):
        return Retryable(text, delay or 0.0)
    if code == GRPC_RESOURCE_EXHAUSTED and body_bytes > SPLIT_BYTES_MIN:
        return RequestTooLarge(text)
    return Permanent(text)


def _retry_delay(details: bytes | None) -> float | None:
    if details is None:
        return None
    try:
        return decode_status(details)[2]
    except WireError:
        return None


def media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


class PartialSuccess:
    """Reads the answers of success, and logs what destinations say in them, once a minute."""

    def __init__(self, destination: str, clock: Clock) -> None:
        self._destination = destination
        self._lines = Seldom(clock)

    def rejected(self, body: bytes, *, json: bool = False) -> int:
        """Spans that were refused.  An answer that cannot be read is still a yes."""
        try:
            rejected, message = decode_response_json(body) if json else decode_response(body)
        except WireError as error:
            rejected, message = 0, f"an answer that cannot be read ({error})"
        if (rejected or message) and self._lines.due():
            log.warning(
                "destination %s refused %d spans and said: %s",
                self._destination,
                rejected,
                message[:MESSAGE_CHARS_MAX],
            )
        return max(0, rejected)
