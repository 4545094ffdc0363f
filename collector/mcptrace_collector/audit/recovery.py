"""Finding where a log ends, so that it can be continued.

Reads from the last stored state on, not the whole log:

    0 ............ state.size ............ checkpoint.size ............ end of file
      not read     hashed again; must      hashed again; cut at the first record
                   be whole and right      that is torn

Records up to the checkpoint were on the disk before the checkpoint was, so anything wrong
there is damage and is refused.  Records beyond it belong to an append that was not
finished: whoever made them still has them and appends them again, so a torn one is cut.

Only reads.  Knows nothing of the lock, or of how the cut is made.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mcptrace_collector.audit.layout import (
    LINE_BYTES_MAX,
    AuditError,
    Checkpoint,
    LayoutError,
    State,
    decode_record,
    record_prefix,
    segment_first_index,
    segment_name,
)
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import CompactRange, leaf_hash

_REMEDY = "keep the directory as evidence, run `mcptrace audit verify` on it, start another log"


@dataclass(slots=True)
class Tail:
    """The end of a log: what is good, and what has to go before the next append.

    ``segment`` is the first index of the segment to append to, ``segment_bytes`` its length
    up to the last good record.  ``cut_bytes`` follow it; later segments are not the log's.
    """

    size: int
    head: bytes
    tree: CompactRange
    segment: int = 0
    segment_bytes: int = 0
    rehashed_records: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""


def segment_indices(directory: Path) -> list[int]:
    """First indices of the segments in ``directory``, in order."""
    found = (segment_first_index(path.name) for path in directory.iterdir())
    return sorted(index for index in found if index is not None)


def read_tail(directory: Path, checkpoint: Checkpoint, state: State) -> Tail:
    """Read the log from ``state`` on.

    Raises AuditError if it does not hold what ``checkpoint`` says, OSError if it is not
    readable.
    """
    tail = Tail(state.size, state.head, CompactRange(sm3, state.size, state.nodes))
    _check_root(tail, checkpoint)
    segments = segment_indices(directory)
    start = bisect_right(segments, state.size) - 1
    for position in range(max(start, 0), len(segments)):
        first = segments[position]
        if first > tail.size:
            _refuse_or_cut(tail, checkpoint, f"{segment_name(first)} does not follow on")
        else:
            tail.segment, tail.segment_bytes = first, 0
            with (directory / segment_name(first)).open("rb") as lines:
                _read_segment(lines, tail, checkpoint, state.log_id)
        if tail.cut_reason:
            break
    if tail.size < checkpoint.size:
        raise AuditError(
            f"{directory}: the log holds {tail.size} records, its checkpoint {checkpoint.size}; "
            + _REMEDY
        )
    return tail


def _read_segment(lines: BinaryIO, tail: Tail, checkpoint: Checkpoint, log_id: str) -> None:
    for _ in range(tail.size - tail.segment):  # known from the state, not hashed again
        known = lines.readline(LINE_BYTES_MAX + 2)
        if not known.endswith(b"\n"):
            raise AuditError(
                f"{segment_name(tail.segment)} is shorter than the stored state; {_REMEDY}"
            )
        tail.segment_bytes += len(known)
    while stored := lines.readline(LINE_BYTES_MAX + 2):
        problem = _problem(stored, tail, log_id)
        if problem is not None:
            _refuse_or_cut(tail, checkpoint, f"record {tail.size} {problem}")
            tail.cut_bytes = lines.seek(0, 2) - tail.segment_bytes
            return
        tail.head = leaf_hash(stored[:-1], sm3)
        tail.tree.append(tail.head)
        tail.size += 1
        tail.segment_bytes += len(stored)
        tail.rehashed_records += 1
        _check_root(tail, checkpoint)


def _problem(stored: bytes, tail: Tail, log_id: str) -> str | None:
    if not stored.endswith(b"\n"):
        return "is incomplete"
    if not stored.startswith(record_prefix(log_id, tail.size, tail.head)):
        return "does not follow from the record before"
    try:
        decode_record(stored[:-1])
    except LayoutError as error:
        return f"is damaged ({error})"
    return None


def _refuse_or_cut(tail: Tail, checkpoint: Checkpoint, reason: str) -> None:
    if tail.size < checkpoint.size:
        raise AuditError(f"{reason}, before the end of the checkpoint; {_REMEDY}")
    tail.cut_reason = reason


def _check_root(tail: Tail, checkpoint: Checkpoint) -> None:
    if tail.size == checkpoint.size and tail.tree.root() != checkpoint.root:
        raise AuditError(
            f"the first {tail.size} records do not add up to the checkpoint; {_REMEDY}"
        )
