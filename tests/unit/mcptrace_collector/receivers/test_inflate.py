from __future__ import annotations

import gzip
import random
import zlib

import pytest

from mcptrace_collector.errors import BadRequest, RequestTooLarge, Retryable
from mcptrace_collector.receivers.inflate import (
    DEFLATE,
    GZIP,
    GZIP_MEMBERS_MAX,
    INFLATE_STEP_BYTES,
    Inflater,
)

MIB = 1024 * 1024


def unlimited(size: int) -> None:
    """A reserve that always has room."""


def inflate(data: bytes, piece_bytes: int, limit: int = 10 * MIB) -> bytes:
    inflater = Inflater(GZIP, limit, unlimited)
    for start in range(0, len(data), piece_bytes):
        inflater.feed(data[start : start + piece_bytes])
    return inflater.finish()


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000, 10 * MIB])
def test_a_body_is_the_same_in_whatever_pieces_it_arrives(piece_bytes: int) -> None:
    body = random.Random(7).randbytes(2000) + bytes(3000) + b"end"
    assert inflate(gzip.compress(body), piece_bytes) == body


@pytest.mark.parametrize("size", [0, 1, INFLATE_STEP_BYTES, 4 * INFLATE_STEP_BYTES + 1])
def test_sizes_around_a_step_come_out_whole(size: int) -> None:
    body = bytes(size)
    assert inflate(gzip.compress(body), 10 * MIB) == body
    assert inflate(gzip.compress(body), 13) == body


@pytest.mark.parametrize("piece_bytes", [1, 10 * MIB])
def test_members_end_to_end_are_one_body(piece_bytes: int) -> None:
    assert inflate(gzip.compress(b"one") + gzip.compress(b"two"), piece_bytes) == b"onetwo"


def test_the_limit_is_on_what_comes_out_and_is_exact() -> None:
    bomb = gzip.compress(bytes(2 * MIB))
    assert len(inflate(bomb, 100, limit=2 * MIB)) == 2 * MIB
    with pytest.raises(RequestTooLarge, match="inflates to more than 2097151 bytes"):
        inflate(bomb, 100, limit=2 * MIB - 1)


def test_a_bomb_is_stopped_one_step_beyond_the_limit() -> None:
    seen: list[int] = []
    inflater = Inflater(GZIP, MIB, seen.append)
    with pytest.raises(RequestTooLarge):
        inflater.feed(gzip.compress(bytes(100 * MIB)))
    assert sum(seen) <= MIB
    assert max(seen) <= INFLATE_STEP_BYTES


def test_a_refused_reservation_stops_it() -> None:
    def full(size: int) -> None:
        raise Retryable("full")

    with pytest.raises(Retryable):
        Inflater(GZIP, MIB, full).feed(gzip.compress(b"x"))


def test_endless_empty_members_are_too_many() -> None:
    members = gzip.compress(b"") * (GZIP_MEMBERS_MAX + 1)
    with pytest.raises(RequestTooLarge, match="gzip members"):
        inflate(members, 10 * MIB)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "truncated"),
        (gzip.compress(b"abc" * 100)[:-1], "truncated"),
        (gzip.compress(b"abc" * 100)[:12], "truncated"),
        (b"\x0a\x00", "not valid gzip"),
        (gzip.compress(b"abc") + b"trailing", "not valid gzip"),
        (gzip.compress(b"abc")[:-8] + bytes(8), "not valid gzip"),  # wrong checksum
    ],
)
def test_what_is_not_gzip_is_said_to_be_malformed(data: bytes, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        inflate(data, 10 * MIB)


def test_deflate_is_a_zlib_stream_and_nothing_after_it() -> None:
    inflater = Inflater(DEFLATE, MIB, unlimited)
    inflater.feed(zlib.compress(b"spans"))
    assert inflater.finish() == b"spans"
    with pytest.raises(BadRequest, match="after the end"):
        inflater.feed(b"x")
