"""The protobuf wire itself: varints, tags, lengths, and how to step over what is unknown.

Knows no message.  Readers take the whole buffer with a position and an end, so that every
position in an error is absolute, and no reader ever looks at or past ``end``.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from mcptrace_proto._wire_tags import (
    DELIMITED,
    FIXED32,
    FIXED64,
    GROUP_END,
    GROUP_START,
    VARINT,
)
from mcptrace_proto.errors import DecodeError, TooLarge
from mcptrace_proto.limits import DEPTH_CEILING

UINT64_MASK = (1 << 64) - 1
UINT32_MASK = (1 << 32) - 1
VARINT_BYTES_MAX = 10
TAG_BYTES_MAX = 5  # a tag and a length have 32 bits

FIXED64_STRUCT = Struct("<Q")
FIXED32_STRUCT = Struct("<I")
DOUBLE_STRUCT = Struct("<d")


def varint(value: int) -> bytes:
    """Encode 0 <= value < 2**64; a negative number goes in as ``value & UINT64_MASK``."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read 64 bits; returns (value, next position).  Bits beyond 64 fall off."""
    if pos < end and (value := buf[pos]) < 0x80:
        return value, pos + 1
    return _long_varint(buf, pos, end, VARINT_BYTES_MAX)


def _long_varint(buf: bytes, pos: int, end: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    for index in range(bytes_max):
        at = pos + index
        if at >= end:
            raise DecodeError("truncated varint", pos)
        byte = buf[at]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & UINT64_MASK, at + 1
    raise DecodeError(f"varint of more than {bytes_max} bytes", pos)


def read_tag(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a tag; its field number is not zero and fits in 29 bits."""
    tag, after = _long_varint(buf, pos, end, TAG_BYTES_MAX)
    if tag > UINT32_MASK:
        raise DecodeError("tag of more than 32 bits", pos)
    if tag < 1 << 3:
        raise DecodeError("field number 0", pos)
    return tag, after


def read_delimited(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a length; returns (start, stop) of what it covers, which lies before ``end``."""
    if pos < end and (size := buf[pos]) < 0x80:
        start = pos + 1
    else:
        size, start = _long_varint(buf, pos, end, TAG_BYTES_MAX)
    stop = start + size
    if stop > end:
        raise DecodeError(f"length {size} runs past the end", pos)
    return start, stop


def read_text(buf: bytes, pos: int, end: int) -> tuple[str, int]:
    """Read a length and UTF-8; proto3 refuses strings that are not valid UTF-8."""
    start, stop = read_delimited(buf, pos, end)
    try:
        return buf[start:stop].decode(), stop
    except UnicodeDecodeError as error:
        raise DecodeError("invalid UTF-8", start + error.start) from None


def read_bytes(buf: bytes, pos: int, end: int) -> tuple[bytes, int]:
    start, stop = read_delimited(buf, pos, end)
    return buf[start:stop], stop


def read_fixed64(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos + 8 > end:
        raise DecodeError("truncated 64-bit field", pos)
    return FIXED64_STRUCT.unpack_from(buf, pos)[0], pos + 8


def read_fixed32(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos + 4 > end:
        raise DecodeError("truncated 32-bit field", pos)
    return FIXED32_STRUCT.unpack_from(buf, pos)[0], pos + 4


def read_double(buf: bytes, pos: int, end: int) -> tuple[float, int]:
    if pos + 8 > end:
        raise DecodeError("truncated double", pos)
    return DOUBLE_STRUCT.unpack_from(buf, pos)[0], pos + 8


def read_uint32(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a uint32; as in protobuf the low 32 bits count."""
    value, pos = read_varint(buf, pos, end)
    return value & UINT32_MASK, pos


def read_int32(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read an int32 or an enum (open: any number is kept); the low 32 bits count."""
    value, pos = read_varint(buf, pos, end)
    value &= UINT32_MASK
    return value - ((value & 1 << 31) << 1), pos


def read_int64(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    value, pos = read_varint(buf, pos, end)
    return value - ((value & 1 << 63) << 1), pos


def skip(buf: bytes, tag: int, pos: int, end: int, depth: int = 1) -> int:
    """Step over the field whose tag was just read; returns the next position.

    Groups (wire types 3 and 4, long deprecated) are stepped over when well nested, as
    official parsers do; a group that is not closed or closed twice is an error.
    """
    wire_type = tag & 7
    if wire_type == VARINT:
        return read_varint(buf, pos, end)[1]
    if wire_type == DELIMITED:
        return read_delimited(buf, pos, end)[1]
    if wire_type == FIXED64:
        return read_fixed64(buf, pos, end)[1]
    if wire_type == FIXED32:
        return read_fixed32(buf, pos, end)[1]
    if wire_type == GROUP_START:
        return _skip_group(buf, tag, pos, end, depth)
    if wire_type == GROUP_END:
        raise DecodeError("end of a group that was not started", pos)
    raise DecodeError(f"wire type {wire_type}", pos)


def _skip_group(buf: bytes, start_tag: int, pos: int, end: int, depth: int) -> int:
    if depth > DEPTH_CEILING:
        raise TooLarge("nesting depth of groups", depth, DEPTH_CEILING)
    opened_at = pos
    end_tag = start_tag + 1
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == end_tag:
            return pos
        pos = skip(buf, tag, pos, end, depth + 1)
    raise DecodeError("group without an end", opened_at)


def fields(buf: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk one message: (tag, start of the field, start of its value, stop of the field).

    For a delimited field the value starts after the length.
    """
    while pos < end:
        begin = pos
        # Most tags and lengths are one byte; the rest go the long way.
        tag = buf[pos]
        if 8 <= tag < 0x80:
            pos += 1
        else:
            tag, pos = read_tag(buf, pos, end)
        if tag & 7 == DELIMITED:
            if pos < end and buf[pos] < 0x80 and pos + buf[pos] < end:
                value_start = pos + 1
                pos = value_start + buf[pos]
            else:
                value_start, pos = read_delimited(buf, pos, end)
        else:
            value_start = pos
            pos = skip(buf, tag, pos, end)
        yield tag, begin, value_start, pos
