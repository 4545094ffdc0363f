"""Is a log what its writer wrote?  Reads a directory, believes none of it, names what is wrong.

Shares with the writer only the format (layout), the tree and SM3.  Streams: memory does not
grow with the log, and no line longer than the format allows is read.

What each thing found on the way proves:
  * a record's first bytes: its log, its place, and the hash of the record before it;
  * the checkpoint: all records up to its size;
  * an anchor, a checkpoint kept elsewhere: that the log was not rewritten or shortened since;
  * nothing: records beyond every checkpoint (status UNPROVEN), or that the collector told
    the truth when it wrote.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from mcptrace_collector.audit import diagnosis
from mcptrace_collector.audit.diagnosis import BadRecord, Line, Tampered
from mcptrace_collector.audit.layout import (
    CHECKPOINT_FILE,
    IDENTITY_FILE,
    LINE_BYTES_MAX,
    LOCK_FILE,
    SMALL_FILE_BYTES_MAX,
    STATE_FILE,
    TEMPORARY_SUFFIX,
    ZERO_HASH,
    Checkpoint,
    LayoutError,
    State,
    decode_checkpoint,
    decode_identity,
    decode_record,
    decode_state,
    origin,
    record_prefix,
    segment_first_index,
    segment_name,
)
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import CompactRange, leaf_hash

_KNOWN_FILES = {IDENTITY_FILE, CHECKPOINT_FILE, STATE_FILE, LOCK_FILE}


class Status(enum.Enum):
    """The verdict; the value is the exit code of ``mcptrace audit verify``."""

    OK = 0
    TAMPERED = 1
    UNREADABLE = 2
    UNPROVEN = 3

    @property
    def exit_code(self) -> int:
        return self.value


@dataclass(slots=True)
class Report:
    """``records`` were read and fit together; the first ``size`` of them are proven.

    ``root`` is the tree's root over ``records``, in hex.  ``first_bad`` names the first
    record that is wrong, where one can be named.
    """

    status: Status = Status.OK
    log_id: str = ""
    records: int = 0
    size: int = 0
    root: str = ""
    first_bad: BadRecord | None = None
    messages: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The report for people, one fact a line."""
        verdict = self.status.name.lower()
        messages = self.messages
        if self.first_bad is not None:
            bad = self.first_bad
            lines = [
                f"{verdict}: read up to record {bad.index}, {bad.segment} line {bad.line}",
                found := f"record {bad.index} {bad.what}",
            ]
            messages = [message for message in messages if message != found]
        else:
            lines = [f"{verdict}: {self.records} records, {self.size} proven"]
        if self.log_id:
            root = f", root {self.root}" if self.root else ""
            lines.append(f"log {self.log_id}{root}")
        return "\n".join(lines + messages)


class _Proof(NamedTuple):
    """A root that the first ``size`` records must have."""

    name: str
    size: int
    root: bytes


class _Unreadable(Exception):
    """There is nothing here to judge."""


def verify_log(directory: Path, anchor: Path | None = None) -> Report:
    """Verify the log in ``directory``, also against a checkpoint file kept elsewhere.

    Never raises for what it finds: errors of the disk make the report UNREADABLE.
    """
    report = Report()
    try:
        _verify(directory, anchor, report)
    except Tampered as found:
        report.status = Status.TAMPERED
        report.first_bad = found.bad
        report.messages.append(str(found))
    except (_Unreadable, OSError) as error:
        report.status = Status.UNREADABLE
        report.messages.append(str(error))
    return report


def _verify(directory: Path, anchor: Path | None, report: Report) -> None:
    segments = _list_directory(directory, report)
    report.log_id = _read_log_id(directory)
    proofs = []
    if anchor is not None:
        proofs.append(_read_anchor(anchor, report.log_id))
    checkpoint = _read_checkpoint(directory, report.log_id)
    if checkpoint is None:
        report.messages.append(f"there is no {CHECKPOINT_FILE}")
    else:
        proofs.append(_Proof("the checkpoint", checkpoint.size, checkpoint.root))
    state = _read_state(directory, report.log_id)
    proven = max((proof.size for proof in proofs), default=0)
    walk = _Walk(directory, report, proofs, state, proven)
    walk.check_proofs()
    for first, following in zip_longest(segments, segments[1:]):
        walk.read_segment(first, following)
    walk.finish()
    report.size = proven
    if walk.partial or report.records > proven or not proofs:
        report.status = Status.UNPROVEN
        report.messages.append(
            f"the tail is unproven: no checkpoint speaks of what follows record {proven - 1}"
            if proven
            else "the tail is unproven: no checkpoint speaks of any record"
        )


class _Walk:
    """One pass over the records in order."""

    def __init__(
        self,
        directory: Path,
        report: Report,
        proofs: list[_Proof],
        state: State | None,
        proven: int,
    ) -> None:
        self._directory = directory
        self._report = report
        self._proofs = proofs
        self._state = state
        self._proven = proven
        self._tree = CompactRange(sm3)
        self._head = ZERO_HASH
        self._previous: Line | None = None
        self._time_unix_nano = 0
        self._clock_went_back = 0
        self._disagreements: list[Tampered] = []
        self.partial = False

    def read_segment(self, first: int, following: int | None) -> None:
        """Read the segment that begins with record ``first``; ``following`` names the next."""
        name = segment_name(first)
        if first != self._tree.size:
            raise diagnosis.misplaced_segment(name, first, self._tree.size)
        with (self._directory / name).open("rb") as lines:
            number = 0
            while stored := lines.readline(LINE_BYTES_MAX + 2):
                number += 1
                line = Line(name, number, stored[:-1])
                if not stored.endswith(b"\n"):
                    self._partial_line(Line(name, number, stored), last=following is None)
                    return
                if not self._follows(line):
                    after = lines.readline(LINE_BYTES_MAX + 2) or self._first_line(following)
                    raise diagnosis.explain(
                        line,
                        self._previous,
                        after.rstrip(b"\n"),
                        log_id=self._report.log_id,
                        expected=self._tree.size,
                    )
                self._accept(line)

    def check_proofs(self) -> None:
        """Compare with every proof about the records read so far, and no more.

        A disagreement is kept until the end: a broken link further on says more exactly
        which record is to blame.
        """
        size = self._tree.size
        for proof in self._proofs:
            if proof.size != size:
                continue
            if self._tree.root() != proof.root:
                self._disagreements.append(self._disagreement(proof))
            else:
                self._report.messages.append(f"the first {size} records are those of {proof.name}")
        state = self._state
        if state is None or state.size != size:
            return
        if (state.head, state.nodes) != (self._head, self._tree.nodes):
            what = f"{STATE_FILE} does not fit the first {size} records"
            self._disagreements.append(Tampered(what, None))

    def finish(self) -> None:
        """Judge the whole, all segments having been read."""
        size = self._tree.size
        self._report.root = self._tree.root().hex()
        if self._clock_went_back:
            self._report.messages.append(
                f"times the writer's clock went back: {self._clock_went_back}"
            )
        if self._disagreements:
            raise self._disagreements[0]
        if size < self._proven:
            raise self._missing_tail()
        if self._state is not None and self._state.size > size:
            raise Tampered(f"{STATE_FILE} speaks of {self._state.size} records", None)

    def _follows(self, line: Line) -> bool:
        return line.content.startswith(
            record_prefix(self._report.log_id, self._tree.size, self._head)
        )

    def _first_line(self, segment: int | None) -> bytes:
        if segment is None:
            return b""
        with (self._directory / segment_name(segment)).open("rb") as lines:
            return lines.readline(LINE_BYTES_MAX + 2)

    def _accept(self, line: Line) -> None:
        try:
            record = decode_record(line.content)
        except LayoutError as error:
            raise diagnosis.damaged(line, self._tree.size, str(error)) from None
        time_unix_nano = record["time_unix_nano"]
        if time_unix_nano < self._time_unix_nano:
            self._clock_went_back += 1
        self._time_unix_nano = time_unix_nano
        self._head = leaf_hash(line.content, sm3)
        self._tree.append(self._head)
        self._previous = line
        self._report.records = self._tree.size
        self.check_proofs()

    def _partial_line(self, line: Line, *, last: bool) -> None:
        index = self._tree.size
        if len(line.content) > LINE_BYTES_MAX:
            raise diagnosis.damaged(line, index, f"longer than {LINE_BYTES_MAX} bytes")
        if not last or index < self._proven:
            raise diagnosis.damaged(line, index, "the line is cut short")
        self.partial = True
        self._report.messages.append(
            f"{line.segment} ends in {len(line.content)} bytes of an incomplete record {index}"
        )

    def _disagreement(self, proof: _Proof) -> Tampered:
        what = (
            f"the first {proof.size} records do not have the root of {proof.name}, though they "
            "follow from each other: the last of them was altered, or everything since an "
            f"altered one was written anew, or {proof.name} is not this log's"
        )
        previous = self._previous
        if previous is None or proof.name == _ANCHOR:
            return Tampered(what, None)
        bad = BadRecord(proof.size - 1, previous.segment, previous.number, "does not fit the root")
        return Tampered(what, bad)

    def _missing_tail(self) -> Tampered:
        size, proven = self._tree.size, self._proven
        segment, line = (
            (self._previous.segment, self._previous.number + 1)
            if self._previous is not None
            else (segment_name(0), 1)
        )
        what = f"missing, like all up to {proven - 1}: the log was shortened or taken back"
        bad = BadRecord(size, segment, line, what)
        return Tampered(f"{size} records where a checkpoint proves {proven}", bad)


_ANCHOR = "the anchor"


def _list_directory(directory: Path, report: Report) -> list[int]:
    segments: list[int] = []
    names = sorted(path.name for path in directory.iterdir())
    for name in names:
        first = segment_first_index(name)
        if first is not None:
            segments.append(first)
        elif name not in _KNOWN_FILES and not name.endswith(TEMPORARY_SUFFIX):
            report.messages.append(f"{name!r} is not part of a log; not looked at")
    if not segments and IDENTITY_FILE not in names and CHECKPOINT_FILE not in names:
        raise _Unreadable(f"{directory} does not hold an audit log")
    return sorted(segments)


def _read_log_id(directory: Path) -> str:
    try:
        return decode_identity(_read(directory / IDENTITY_FILE)).log_id
    except FileNotFoundError:
        raise Tampered(f"{IDENTITY_FILE} is missing", None) from None
    except LayoutError as error:
        raise Tampered(str(error), None) from None


def _read_checkpoint(directory: Path, log_id: str) -> Checkpoint | None:
    try:
        checkpoint = decode_checkpoint(_read(directory / CHECKPOINT_FILE))
    except FileNotFoundError:
        return None
    except LayoutError as error:
        raise Tampered(f"{CHECKPOINT_FILE}: {error}", None) from None
    if checkpoint.origin != origin(log_id):
        raise Tampered(f"{CHECKPOINT_FILE} is of {checkpoint.origin!r:.120}, not of this log", None)
    return checkpoint


def _read_anchor(path: Path, log_id: str) -> _Proof:
    try:
        checkpoint = decode_checkpoint(_read(path))
    except (LayoutError, OSError) as error:
        raise _Unreadable(f"the anchor {path} cannot be read: {error}") from None
    if checkpoint.origin != origin(log_id):
        raise Tampered(f"the anchor is of {checkpoint.origin!r:.120}, not of this log", None)
    return _Proof(_ANCHOR, checkpoint.size, checkpoint.root)


def _read_state(directory: Path, log_id: str) -> State | None:
    try:
        state = decode_state(_read(directory / STATE_FILE))
    except FileNotFoundError:
        return None
    except LayoutError as error:
        raise Tampered(str(error), None) from None
    if state.log_id != log_id:
        raise Tampered(f"{STATE_FILE} is that of another log", None)
    return state


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SMALL_FILE_BYTES_MAX)
