from __future__ import annotations

import pytest

from mcptrace_collector.errors import (
    BadRequest,
    Codes,
    CollectorError,
    Permanent,
    RequestTooLarge,
    Retryable,
    UnsupportedMedia,
)
from mcptrace_collector.receivers.refusal import (
    MESSAGE_CHARS_MAX,
    codes_of,
    delay_of,
    message_of,
    reason_of,
)


@pytest.mark.parametrize(
    ("error", "codes", "reason", "delay"),
    [
        (Retryable("later", 2.5), Codes(503, 14), "busy", 2.5),
        (BadRequest("what"), Codes(400, 3), "malformed", None),
        (RequestTooLarge("big"), Codes(413, 8), "too_large", None),
        (UnsupportedMedia("br"), Codes(415, 12), "unsupported_media", None),
        (Permanent("no"), Codes(400, 3), "refused", None),
        (CollectorError("else"), Codes(400, 3), "refused", None),
    ],
)
def test_every_error_has_its_codes_its_label_and_its_delay(
    error: CollectorError, codes: Codes, reason: str, delay: float | None
) -> None:
    assert (codes_of(error), reason_of(error), delay_of(error)) == (codes, reason, delay)


def test_a_message_has_a_bounded_length() -> None:
    assert message_of(BadRequest("x" * 10_000)) == "x" * MESSAGE_CHARS_MAX
