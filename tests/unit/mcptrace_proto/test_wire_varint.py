"""The wire itself, byte by byte: edges of varints, tags, lengths and groups."""

from __future__ import annotations

import pytest

from mcptrace_proto._wire_varint import (
    fields,
    read_delimited,
    read_double,
    read_fixed32,
    read_fixed64,
    read_int32,
    read_int64,
    read_tag,
    read_text,
    read_uint32,
    read_varint,
    skip,
    varint,
)
from mcptrace_proto.wire import DecodeError, TooLarge

GROUP, GROUP_END = b"\x0b", b"\x0c"  # start and end of a group with field number 1


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        ((1 << 32) - 1, "ffffffff0f"),
        ((1 << 64) - 1, "ffffffffffffffffff01"),
    ],
)
def test_a_varint_is_written_and_read(number: int, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert varint(number) == raw
    assert read_varint(raw, 0, len(raw)) == (number, len(raw))


def test_a_varint_longer_than_needed_is_read() -> None:
    assert read_varint(b"\x81\x80\x00", 0, 3) == (1, 3)


def test_bits_beyond_the_64th_fall_off() -> None:
    assert read_varint(b"\xff" * 9 + b"\x7f", 0, 10) == ((1 << 64) - 1, 10)


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (read_int64, varint((1 << 64) - 1), -1),
        (read_int64, varint(1 << 63), -(1 << 63)),
        (read_int32, varint((1 << 64) - 5), -5),
        (read_int32, varint((1 << 32) + 7), 7),
        (read_int32, varint(1 << 31), -(1 << 31)),
        (read_uint32, varint((1 << 32) + 7), 7),
        (read_uint32, varint((1 << 32) - 1), (1 << 32) - 1),
        (read_fixed32, b"\x01\x00\x00\x80", 0x80000001),
        (read_fixed64, b"\x01\x00\x00\x00\x00\x00\x00\x80", (1 << 63) + 1),
        (read_double, bytes.fromhex("000000000000f83f"), 1.5),
        (read_text, b"\x03\xe2\x82\xac", "\u20ac"),
        (read_delimited, b"\x81\x00a", (2, 3)),
    ],
)
def test_a_value_is_read_with_its_sign_and_width(read: object, raw: bytes, value: object) -> None:
    found = read(raw, 0, len(raw))  # type: ignore[operator]
    assert found == (value if isinstance(value, tuple) else (value, len(raw)))


@pytest.mark.parametrize(
    ("read", "raw", "reason", "position"),
    [
        (read_varint, b"", "truncated varint", 0),
        (read_varint, b"\x80\x80", "truncated varint", 0),
        (read_varint, b"\x80" * 11, "varint of more than 10 bytes", 0),
        (read_tag, b"\x00", "field number 0", 0),
        (read_tag, b"\x07", "field number 0", 0),
        (read_tag, b"\x88\x80\x80\x80\x10", "tag of more than 32 bits", 0),
        (read_tag, b"\x88\x80\x80\x80\x80\x00", "varint of more than 5 bytes", 0),
        (read_delimited, b"\x02a", "length 2 runs past the end", 0),
        (read_delimited, b"\x81\x80\x80\x80\x80\x00a", "varint of more than 5 bytes", 0),
        (read_delimited, b"\xff\xff\xff\xff\x7f", "length 34359738367 runs past the end", 0),
        (read_text, b"\x03ab\xff", "invalid UTF-8", 3),
        (read_text, b"\x03\xed\xa0\x80", "invalid UTF-8", 1),
        (read_fixed64, b"\x00" * 7, "truncated 64-bit field", 0),
        (read_fixed32, b"\x00" * 3, "truncated 32-bit field", 0),
        (read_double, b"\x00" * 7, "truncated double", 0),
    ],
)
def test_a_fault_is_reported_where_it_is(
    read: object, raw: bytes, reason: str, position: int
) -> None:
    padded = b"\xaa\xaa" + raw  # positions are those of the whole buffer
    with pytest.raises(DecodeError) as caught:
        read(padded, 2, len(padded))  # type: ignore[operator]
    assert (caught.value.reason, caught.value.position) == (reason, position + 2)


@pytest.mark.parametrize(
    "read", [read_varint, read_tag, read_delimited, read_text, read_fixed32, read_fixed64]
)
def test_nothing_is_read_past_the_end_that_was_given(read: object) -> None:
    with pytest.raises(DecodeError):
        read(b"\x88" + b"\x01" * 20, 0, 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    "field",
    [
        b"\x08\x96\x01",
        b"\x09" + bytes(8),
        b"\x0a\x03abc",
        b"\x0d" + bytes(4),
        GROUP + GROUP_END,
        GROUP + b"\x08\x01" + GROUP + GROUP_END + GROUP_END,
        GROUP + b"\x13\x14" + GROUP_END,
    ],
)
def test_an_unknown_field_is_stepped_over_whole(field: bytes) -> None:
    assert skip(field, field[0], 1, len(field)) == len(field)
    assert list(fields(field + b"\x10\x05", 0, len(field) + 2))[1] == (
        0x10,
        len(field),
        len(field) + 1,
        len(field) + 2,
    )


@pytest.mark.parametrize(
    ("field", "reason", "position"),
    [
        (b"\x0e", "wire type 6", 1),
        (b"\x0f", "wire type 7", 1),
        (GROUP_END, "end of a group that was not started", 1),
        (GROUP, "group without an end", 1),
        (GROUP + b"\x14", "end of a group that was not started", 2),
        (GROUP + b"\x00" + GROUP_END, "field number 0", 1),
    ],
)
def test_a_field_that_cannot_be_stepped_over_is_a_fault(
    field: bytes, reason: str, position: int
) -> None:
    with pytest.raises(DecodeError) as caught:
        skip(field, field[0], 1, len(field))
    assert (caught.value.reason, caught.value.position) == (reason, position)


def test_groups_nest_a_hundred_deep_and_no_deeper() -> None:
    deep = GROUP * 100 + GROUP_END * 100
    assert skip(deep, deep[0], 1, len(deep)) == len(deep)
    deeper = GROUP * 101 + GROUP_END * 101
    with pytest.raises(TooLarge) as caught:
        skip(deeper, deeper[0], 1, len(deeper))
    assert (caught.value.what, caught.value.size, caught.value.limit) == (
        "nesting depth of groups",
        101,
        100,
    )
