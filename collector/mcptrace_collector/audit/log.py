"""The audit log's files, written: lines in, in order, each once, safe when ``append`` returns.

    append:  write whole lines ─▶ fsync ─▶ checkpoint.tmp ─▶ fsync ─▶ rename ─▶ fsync directory

The caller commits lines to its own outbox first and deletes them from it after ``append``
returned, so this is the redo of a committed list: after a crash or an OSError it appends the
same lines again, and those already stored are compared and skipped.

Always true between calls:
  * every stored line ends with a newline and follows from the one before;
  * a checkpoint never speaks of a record that is not on the disk;
  * a failed append has left no trace, or the next call removes it before anything else.

One thread owns a log.  Another process is kept out by a lock that dies with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mcptrace_collector.audit.chain import AuditChain
from mcptrace_collector.audit.files import DiskFiles, Files
from mcptrace_collector.audit.layout import (
    CHECKPOINT_FILE,
    IDENTITY_FILE,
    LINE_BYTES_MAX,
    LOCK_FILE,
    NONCE_BYTES,
    SEGMENT_RECORDS,
    SMALL_FILE_BYTES_MAX,
    STATE_FILE,
    TEMPORARY_SUFFIX,
    ZERO_HASH,
    AuditError,
    Checkpoint,
    Identity,
    LayoutError,
    State,
    decode_checkpoint,
    decode_identity,
    decode_state,
    origin,
    record_prefix,
    segment_name,
)
from mcptrace_collector.audit.recovery import Tail, read_tail, segment_indices
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import CompactRange, leaf_hash
from mcptrace_collector.clock import Clock, SystemClock

# The state is only a short cut for the next start; it trails by at most this many records.
STATE_RECORDS = 16384


@dataclass(slots=True, frozen=True)
class Recovery:
    """What ``open`` found and did.  ``messages`` are sentences for the collector's log."""

    created: bool
    size: int
    rehashed_records: int
    cut_bytes: int
    messages: tuple[str, ...]


class AuditLog:
    """One log in one directory.  Call ``open`` first; ``close`` when done."""

    def __init__(
        self,
        directory: Path,
        segment_records: int = SEGMENT_RECORDS,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if segment_records < 1:
            raise ValueError("a segment holds at least one record")
        self._directory = directory
        self._segment_records = segment_records
        self._clock: Clock = clock or SystemClock()
        self._files: Files = files or DiskFiles()
        self._random_bytes = random_bytes
        self._lock: int | None = None
        self._log_id = ""
        self._tail = Tail(0, ZERO_HASH, CompactRange(sm3))
        self._checkpoint_size = 0
        self._state_size = 0
        self._torn = False  # the files hold part of a failed append

    @property
    def log_id(self) -> str:
        return self._log_id

    @property
    def size(self) -> int:
        """Records stored and safe."""
        return self._tail.size

    def chain(self) -> AuditChain:
        """A chain that continues after the last stored record."""
        self._require_open()
        return AuditChain(self._log_id, self._tail.size, self._tail.head)

    def owns(self, line: bytes) -> bool:
        """Whether a record was made for this log."""
        head = record_prefix(self._log_id, 0, ZERO_HASH).partition(b'"index"')[0]
        return line.startswith(head)

    def open(self) -> Recovery:
        """Create the log, or find its end and make it whole.

        Raises AuditError when another process has it or its records are not what its
        checkpoint says, OSError when the disk refuses.
        """
        if self._lock is not None:
            raise AuditError(f"{self._directory}: the audit log is open already")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._release_lock)
            recovery = self._recover()
            on_failure.pop_all()
        return recovery

    def append(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Store records (index, bytes without newline), and return when they are safe.

        The indices must be consecutive.  Those already stored must be the same bytes and are
        skipped.  Raises AuditError on a gap or a difference, and OSError when the disk
        refuses: then call again with the same lines, later.
        """
        self._require_open()
        if self._torn:
            self._undo()
        new = self._skip_stored(lines)
        if new:
            self._store(new)
        self._prove()

    def close(self) -> None:
        """Give the log back; does nothing on a log that is not open."""
        if self._lock is None:
            return
        # Without the state the next start reads more, and nothing else.
        with contextlib.suppress(OSError):
            if not self._torn and self._state_size != self._tail.size == self._checkpoint_size:
                self._write_state()
        self._release_lock()

    # --- opening ------------------------------------------------------------------------

    def _recover(self) -> Recovery:
        created = not (self._directory / IDENTITY_FILE).exists()
        if created:
            self._create()
        self._log_id = self._read_identity().log_id
        checkpoint = self._read_checkpoint()
        state, messages = self._read_state(checkpoint)
        tail = read_tail(self._directory, checkpoint, state)
        self._tail = tail
        self._checkpoint_size = checkpoint.size
        self._state_size = state.size
        if tail.cut_reason:
            self._undo()
            messages.append(
                f"cut {tail.cut_bytes} bytes of an unfinished append: {tail.cut_reason}"
            )
        if tail.size > checkpoint.size:
            # Perhaps written but never synced; nobody may rely on them before they are.
            segments = segment_indices(self._directory)
            for first in segments[max(bisect_right(segments, checkpoint.size) - 1, 0) :]:
                self._files.sync(self._directory / segment_name(first))
            self._files.sync_directory(self._directory)
            messages.append(f"{tail.size - checkpoint.size} records had no checkpoint yet")
        self._prove()
        return Recovery(created, tail.size, tail.rehashed_records, tail.cut_bytes, tuple(messages))

    def _create(self) -> None:
        if segment_indices(self._directory):
            raise AuditError(
                f"{self._directory}: segments but no {IDENTITY_FILE}; put the file back or "
                "start another log in an empty directory"
            )
        identity = Identity(self._clock.unix_nano(), self._random_bytes(NONCE_BYTES))
        empty = Checkpoint(origin(identity.log_id), 0, CompactRange(sm3).root())
        # The identity comes last: a log without one has never existed.
        self._replace(CHECKPOINT_FILE, empty.encode())
        self._replace(IDENTITY_FILE, identity.encode())
        self._files.sync_directory(self._directory.parent)

    def _read_identity(self) -> Identity:
        try:
            return decode_identity(self._read(IDENTITY_FILE))
        except LayoutError as error:
            raise AuditError(f"{self._directory}: {error}; put the right file back") from None

    def _read_checkpoint(self) -> Checkpoint:
        try:
            checkpoint = decode_checkpoint(self._read(CHECKPOINT_FILE))
        except FileNotFoundError:
            raise AuditError(
                f"{self._directory}: no {CHECKPOINT_FILE}; put it back from where you keep "
                "copies, or start another log in an empty directory"
            ) from None
        except LayoutError as error:
            raise AuditError(f"{self._directory}: {CHECKPOINT_FILE}: {error}") from None
        if checkpoint.origin != origin(self._log_id):
            raise AuditError(f"{self._directory}: {CHECKPOINT_FILE} is that of another log")
        return checkpoint

    def _read_state(self, checkpoint: Checkpoint) -> tuple[State, list[str]]:
        """Where to start reading: the stored state if it can be this log's, else the beginning."""
        beginning = State(self._log_id, 0, ZERO_HASH, ())
        try:
            state = decode_state(self._read(STATE_FILE))
        except FileNotFoundError:
            return beginning, []
        except LayoutError as error:
            return beginning, [f"{error}: reading the whole log"]
        if state.log_id != self._log_id or state.size > checkpoint.size:
            return beginning, [f"{STATE_FILE} does not fit the checkpoint: reading the whole log"]
        return state, []

    def _read(self, name: str) -> bytes:
        with (self._directory / name).open("rb") as file:
            return file.read(SMALL_FILE_BYTES_MAX)

    # --- appending ----------------------------------------------------------------------

    def _skip_stored(self, lines: Sequence[tuple[int, bytes]]) -> list[bytes]:
        """The lines that are not stored yet, all of ``lines`` being consecutive."""
        if not lines:
            return []
        first = lines[0][0]
        if [index for index, _ in lines] != list(range(first, first + len(lines))):
            raise AuditError(f"indices from {first} on are not consecutive")
        if first > self._tail.size:
            raise AuditError(f"record {first} offered, {self._tail.size} expected")
        known = min(self._tail.size - first, len(lines))
        for (index, line), stored in zip(lines, self._stored(first, known), strict=False):
            if line != stored:
                raise AuditError(f"record {index} is stored already, with other bytes")
        return [line for _, line in lines[known:]]

    def _stored(self, first: int, count: int) -> list[bytes]:
        """``count`` stored records from index ``first`` on."""
        found: list[bytes] = []
        segments = segment_indices(self._directory)
        for start in segments[max(bisect_right(segments, first) - 1, 0) :]:
            if len(found) == count:
                break
            with (self._directory / segment_name(start)).open("rb") as segment:
                skip = max(first - start, 0)
                lines = islice(segment, skip, skip + count - len(found))
                found += [line.rstrip(b"\n") for line in lines]
        return found

    def _store(self, lines: Sequence[bytes]) -> None:
        """Write and sync; the log's state moves only when all of it is on the disk."""
        after, pieces = self._plan(lines)
        self._torn = True
        try:
            for first, content in pieces:
                path = self._directory / segment_name(first)
                self._files.write_at_end(path, content)
                self._files.sync(path)
            if after.segment != self._tail.segment or self._tail.segment_bytes == 0:
                self._files.sync_directory(self._directory)
        except OSError:
            # If even this fails, the next append begins with it.
            with contextlib.suppress(OSError):
                self._undo()
            raise
        self._torn = False
        self._tail = after

    def _plan(self, lines: Sequence[bytes]) -> tuple[Tail, list[tuple[int, bytes]]]:
        """The end of the log once ``lines`` are in it, and what to write to which segment."""
        tail = self._tail
        size, head, tree = tail.size, tail.head, tail.tree.copy()
        pieces: list[tuple[int, bytearray]] = [(tail.segment, bytearray())]
        for line in lines:
            if not line.startswith(record_prefix(self._log_id, size, head)):
                raise AuditError(f"record {size} does not follow from the one stored before it")
            if b"\n" in line or len(line) > LINE_BYTES_MAX:
                raise AuditError(f"record {size} is not one line of at most {LINE_BYTES_MAX} bytes")
            if size - pieces[-1][0] >= self._segment_records:
                pieces.append((size, bytearray()))
            pieces[-1][1].extend(line + b"\n")
            head = leaf_hash(line, sm3)
            tree.append(head)
            size += 1
        segment, content = pieces[-1]
        before = tail.segment_bytes if segment == tail.segment else 0
        after = Tail(size, head, tree, segment, before + len(content))
        return after, [(first, bytes(piece)) for first, piece in pieces if piece]

    def _undo(self) -> None:
        """Make the files end where the log ends."""
        path = self._directory / segment_name(self._tail.segment)
        if path.exists():
            self._files.truncate(path, self._tail.segment_bytes)
            self._files.sync(path)
        for first in segment_indices(self._directory):
            if first > self._tail.segment:
                self._files.remove(self._directory / segment_name(first))
        self._files.sync_directory(self._directory)
        self._torn = False

    def _prove(self) -> None:
        """Bring checkpoint and state up to the records, where they are behind."""
        if self._checkpoint_size != self._tail.size:
            root = self._tail.tree.root()
            checkpoint = Checkpoint(origin(self._log_id), self._tail.size, root)
            self._replace(CHECKPOINT_FILE, checkpoint.encode())
            self._checkpoint_size = self._tail.size
        if self._tail.size - self._state_size >= STATE_RECORDS:
            self._write_state()

    def _write_state(self) -> None:
        tail = self._tail
        state = State(self._log_id, tail.size, tail.head, tail.tree.nodes)
        self._replace(STATE_FILE, state.encode())
        self._state_size = tail.size

    def _replace(self, name: str, content: bytes) -> None:
        """Give a small file new content, all of it or none."""
        temporary = self._directory / (name + TEMPORARY_SUFFIX)
        self._files.remove(temporary)
        self._files.write_at_end(temporary, content)
        self._files.sync(temporary)
        self._files.replace(temporary, self._directory / name)
        self._files.sync_directory(self._directory)

    # --- one writer ---------------------------------------------------------------------

    def _take_lock(self) -> None:
        lock = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise AuditError(
                f"{self._directory}: another process writes this audit log; "
                "stop it or give this collector a directory of its own"
            ) from None
        self._lock = lock

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _require_open(self) -> None:
        if self._lock is None:
            raise AuditError(f"{self._directory}: the audit log is not open")
