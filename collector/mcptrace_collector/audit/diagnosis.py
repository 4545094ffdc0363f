"""Naming the record to blame, once the chain of a log is seen to be broken.

Pure: given the first line that does not follow, the one before it and the one after it,
says what was done and to which record.  A verdict about three lines, so it costs nothing
while a log is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from mcptrace_collector.audit.layout import LayoutError, decode_record
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import leaf_hash


class Line(NamedTuple):
    """A stored record without its newline, and where it stands; lines count from 1."""

    segment: str
    number: int
    content: bytes


@dataclass(slots=True, frozen=True)
class BadRecord:
    """The first record that is wrong: its index, where it stands or should, and what is wrong."""

    index: int
    segment: str
    line: int
    what: str


class Tampered(Exception):
    """The log is not what its writer wrote.  ``bad`` is None where no record can be named."""

    def __init__(self, what: str, bad: BadRecord | None) -> None:
        super().__init__(what)
        self.bad = bad


def explain(
    line: Line, previous: Line | None, following: bytes, *, log_id: str, expected: int
) -> Tampered:
    """Why ``line``, standing where record ``expected`` should, is not that record.

    ``following`` is the content of the next line of the segment, empty where there is none.
    """
    try:
        record = decode_record(line.content)
    except LayoutError as error:
        return damaged(line, expected, str(error))
    after = _decoded(following)
    if record["log"] != log_id:
        return _bad(line, expected, "is of another log")
    if record["index"] == expected:
        return _broken_link(line, previous, after, expected)
    return _bad(line, *_wrong_place(line, previous, after, record["index"], expected=expected))


def damaged(line: Line, index: int, what: str) -> Tampered:
    """``line``, in the place of record ``index``, is not a record at all."""
    return _bad(line, index, f"altered: {what}")


def misplaced_segment(name: str, first: int, expected: int) -> Tampered:
    """A segment that does not begin where the one before it ends."""
    if first > expected:
        what = f"missing, up to {first - 1}: a segment or the end of one is gone"
        return Tampered(f"{name} should begin at {expected}", BadRecord(expected, name, 1, what))
    what = f"stands before {name} already: the segment is not of this log's order"
    return Tampered(f"{name} should begin at {expected}", BadRecord(first, name, 1, what))


def _broken_link(
    line: Line, previous: Line | None, after: dict[str, Any] | None, index: int
) -> Tampered:
    """The place is right, the hash of the record before is not: one of the two was altered."""
    if previous is None:
        return _bad(line, index, "altered: the first record follows from nothing")
    vouched_for = (
        after is not None
        and after["index"] == index + 1
        and after["prev"] == leaf_hash(line.content, sm3).hex()
    )
    if vouched_for:
        return _bad(previous, index - 1, f"altered: record {index} holds another hash of it")
    if after is not None:
        return _bad(line, index, "altered: it follows from nothing and nothing follows from it")
    return _bad(previous, index - 1, f"altered, or record {index}, the last one, was")


def _wrong_place(
    line: Line, previous: Line | None, after: dict[str, Any] | None, index: int, *, expected: int
) -> tuple[int, str]:
    """Record ``index`` stands where ``expected`` should: which one is to blame, and for what."""
    next_index = None if after is None else after["index"]
    if previous is not None and previous.content == line.content:
        return index, "stands here twice"
    if next_index == expected + 1:
        return expected, f"altered or replaced: it says it is record {index}"
    if index > expected:
        if next_index == expected:
            return expected, f"reordered: record {index} stands before it"
        return expected, f"missing, up to {index - 1}: record {index} stands here"
    if index == expected - 1:
        return index, "claimed by two records"
    return expected, f"displaced: record {index} was inserted here or stands here again"


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        return decode_record(line)
    except LayoutError:
        return None


def _bad(line: Line, index: int, what: str) -> Tampered:
    bad = BadRecord(index, line.segment, line.number, what)
    return Tampered(f"record {index} {what}", bad)
