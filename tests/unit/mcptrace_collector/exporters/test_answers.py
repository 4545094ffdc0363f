from __future__ import annotations

import logging

import pytest

from mcptrace_collector.clock import LOG_INTERVAL_SECONDS
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_collector.exporters.answers import (
    PROTOBUF,
    SPLIT_BYTES_MIN,
    PartialSuccess,
    check_size,
    grpc_error,
    http_error,
    media_type,
)
from mcptrace_proto.json import encode_response_json
from mcptrace_proto.wire import encode_response, encode_status


class FixedClock:
    """Stands still unless told; wall time is 1 December 2026, 00:00:00 UTC."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def unix_nano(self) -> int:
        return 1_796_083_200 * 1_000_000_000


CLOCK = FixedClock()

HTTP = [(code, Retryable) for code in (429, 502, 503, 504)]
HTTP += [(413, RequestTooLarge)]  # type: ignore[list-item]
HTTP += [(code, Permanent) for code in (301, 307, 400, 401, 403, 404, 408, 415, 500, 501, 505)]  # type: ignore[misc]


@pytest.mark.parametrize(("code", "expected"), HTTP)
def test_http_statuses_mean_what_otlp_says(code: int, expected: type[Exception]) -> None:
    error = http_error(code, {}, b"", CLOCK)
    assert (type(error), str(error)) == (expected, f"HTTP {code}")


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 0.0),
        ("7", 7.0),
        ("Tue, 01 Dec 2026 00:01:30 GMT", 90.0),
        ("Mon, 30 Nov 2026 00:00:00 GMT", 0.0),
        ("soon", 0.0),
    ],
)
def test_the_delay_is_the_one_that_was_named(retry_after: str | None, seconds: float) -> None:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    error = http_error(503, headers, b"", CLOCK)
    assert isinstance(error, Retryable)
    assert error.after_seconds == seconds


def test_a_status_in_the_body_is_part_of_the_text_but_not_of_the_verdict() -> None:
    headers = {"Content-Type": "application/x-protobuf; charset=binary"}
    status = encode_status(14, "try again " + "x" * 1000, 3.0)
    error = http_error(400, headers, status, CLOCK)
    assert type(error) is Permanent
    assert str(error).startswith("HTTP 400: try again xxx")
    assert len(str(error)) < 400
    assert str(http_error(400, headers, b"\xff", CLOCK)) == "HTTP 400"
    assert str(http_error(400, {"Content-Type": "text/html"}, status, CLOCK)) == "HTTP 400"


@pytest.mark.parametrize("code", range(1, 17))
def test_grpc_statuses_mean_what_otlp_says(code: int) -> None:
    retryable = code in (1, 4, 10, 11, 14, 15)
    error = grpc_error(code, "why", None, 100)
    assert type(error) is (Retryable if retryable else Permanent)
    assert str(error) == f"gRPC status {code}: why"


def test_resource_exhausted_depends_on_retry_info_and_size() -> None:
    with_info = grpc_error(8, "", encode_status(8, "", 2.5), 10 * SPLIT_BYTES_MIN)
    assert isinstance(with_info, Retryable)
    assert with_info.after_seconds == 2.5
    assert type(grpc_error(8, "", encode_status(8, ""), SPLIT_BYTES_MIN + 1)) is RequestTooLarge
    assert type(grpc_error(8, "", None, SPLIT_BYTES_MIN)) is Permanent


def test_details_that_cannot_be_read_name_no_delay() -> None:
    error = grpc_error(14, "", b"\xff", 1)
    assert isinstance(error, Retryable)
    assert error.after_seconds == 0.0


def test_a_request_over_64_mib_is_not_sent() -> None:
    check_size(bytes(64 * 1024 * 1024))
    with pytest.raises(RequestTooLarge):
        check_size(bytes(64 * 1024 * 1024 + 1))


@pytest.mark.parametrize(
    ("body", "json", "rejected"),
    [
        (b"", False, 0),
        (encode_response(3, "old"), False, 3),
        (encode_response(0, "a warning"), False, 0),
        (encode_response(-3, "nonsense"), False, 0),
        (b"{}", True, 0),
        (encode_response_json(3, "old"), True, 3),
        (b"\xff\xff", False, 0),
        (b"nonsense", True, 0),
    ],
)
def test_an_answer_of_success_gives_the_spans_refused(
    body: bytes, json: bool, rejected: int
) -> None:
    assert PartialSuccess("peer", FixedClock()).rejected(body, json=json) == rejected


def test_what_destinations_say_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FixedClock()
    partial = PartialSuccess("peer", clock)
    with caplog.at_level(logging.WARNING):
        partial.rejected(b"")
        for second in (0.0, LOG_INTERVAL_SECONDS - 1, LOG_INTERVAL_SECONDS):
            clock.now = second
            partial.rejected(encode_response(3, "old"))
    line = "destination peer refused 3 spans and said: old"
    assert [record.getMessage() for record in caplog.records] == [line, line]


def test_the_media_type_is_without_parameters_and_case() -> None:
    assert media_type({"Content-Type": "Application/X-Protobuf ; v=1"}) == PROTOBUF
    assert media_type({}) == ""
