"""Answers on the wire: ExportTraceServiceResponse and google.rpc.Status."""

from __future__ import annotations

import math

import pytest

from mcptrace_proto import wire
from mcptrace_proto._wire_rpc import split_duration
from mcptrace_proto.wire import DecodeError

RETRY_INFO_ANY = (
    "0a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f"
)


def status(detail: str) -> bytes:
    body = bytes.fromhex(detail)
    return b"\x1a" + bytes((len(body),)) + body


@pytest.mark.parametrize(
    ("rejected", "message", "encoded"),
    [
        (0, "", ""),
        (3, "", "0a020803"),
        (0, "m", "0a0312016d"),
        (300, "m", "0a0608ac0212016d"),
        (-1, "", "0a0b08ffffffffffffffffff01"),
    ],
)
def test_a_response_is_written_and_read(rejected: int, message: str, encoded: str) -> None:
    assert wire.encode_response(rejected, message) == bytes.fromhex(encoded)
    assert wire.decode_response(bytes.fromhex(encoded)) == (rejected, message)


def test_a_response_in_parts_is_merged_and_unknown_fields_are_stepped_over() -> None:
    assert wire.decode_response(bytes.fromhex("1005 0a020803 0a05 1a00 12016d")) == (3, "m")


@pytest.mark.parametrize("damaged", ["0a", "0a0208", "0a0312 01ff", "0a0112", "0c"])
def test_a_damaged_response_is_refused(damaged: str) -> None:
    with pytest.raises(DecodeError):
        wire.decode_response(bytes.fromhex(damaged))


@pytest.mark.parametrize(
    ("seconds", "detail"),
    [
        (0.0, "12020a00"),
        (2.0, "12040a020802"),
        (0.5, "12080a061080cab5ee01"),
        (1.25, "12090a07080110 80e59a77"),
    ],
)
def test_a_delay_travels_in_a_retry_info(seconds: float, detail: str) -> None:
    encoded = wire.encode_status(14, "busy", seconds)
    assert encoded == b"\x08\x0e\x12\x04busy" + status(RETRY_INFO_ANY + detail)
    assert wire.decode_status(encoded) == (14, "busy", seconds)


def test_a_status_without_a_delay_has_none() -> None:
    assert wire.encode_status(0, "") == b""
    assert wire.decode_status(b"") == (0, "", None)
    assert wire.decode_status(wire.encode_status(-1, "m")) == (-1, "m", None)


@pytest.mark.parametrize(
    ("detail", "delay"),
    [
        (RETRY_INFO_ANY, 0.0),
        (RETRY_INFO_ANY + "1200", 0.0),
        (RETRY_INFO_ANY + "120d0a0b08ffffffffffffffffff01", 0.0),
        ("0a16" + b"/google.rpc.RetryInfo2".hex() + "12040a020802", None),
        ("0a15" + b"/google.rpc.RetryInfo".hex() + "12040a020802", 2.0),
        ("0a016f" + "12040a020802", None),
        ("12040a020802", None),
        ("", None),
    ],
)
def test_only_a_retry_info_is_a_delay_and_it_is_never_negative(
    detail: str, delay: float | None
) -> None:
    assert wire.decode_status(status(detail)) == (0, "", delay)


def test_unknown_fields_are_stepped_over_at_every_level() -> None:
    unknown = "d205027878"
    retry_info = f"{unknown}0a07{unknown}0802"
    detail = RETRY_INFO_ANY + unknown + f"12{len(retry_info) // 2:02x}" + retry_info
    assert wire.decode_status(bytes.fromhex(unknown) + status(detail)) == (0, "", 2.0)


def test_details_of_other_kinds_do_not_hide_the_delay() -> None:
    other = status("0a016f1200")
    retry = status(RETRY_INFO_ANY + "12040a020802")
    assert wire.decode_status(other + retry + other) == (0, "", 2.0)


@pytest.mark.parametrize(
    ("seconds", "parts"),
    [
        (0.0, (0, 0)),
        (-1.0, (0, 0)),
        (math.nan, (0, 0)),
        (0.9999999999, (1, 0)),
        (1.5, (1, 500_000_000)),
        (math.inf, (315_576_000_000, 0)),
    ],
)
def test_a_delay_is_split_within_what_a_duration_can_hold(
    seconds: float, parts: tuple[int, int]
) -> None:
    assert split_duration(seconds) == parts
