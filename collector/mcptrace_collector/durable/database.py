"""The database behind the store: tables, statements and the ledger.  One thread uses it.

    journal ──settle──▶ queue (one row per destination) ──ack──▶ gone
       │                  audit_outbox ──flushed to the log──▶ gone
       └── decided: a bit per span, so that a replay takes up only what had no verdict

Every change to a table and to the ledger that counts it happens in the same transaction,
so the ledger is exact after any crash:

    received = kept + dropped + held            held: journal spans without a verdict
    enqueued[d] = forwarded[d] + failed[d] + queued[d]      for every destination d

Nothing here starts or ends a transaction; the store groups calls and commits them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mcptrace_collector.errors import CollectorError
from mcptrace_collector.pipeline import Origin, QueueItem, Settlement

FORMAT_VERSION = 1
# Keys that wait for their audit record; names in spans are without number, the ledger is not.
SAMPLED_OUT_KEYS_MAX = 1000
OTHER = "_OTHER"

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    body BLOB NOT NULL,
    spans INTEGER NOT NULL,
    decided BLOB
);
CREATE TABLE IF NOT EXISTS queue (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    destination TEXT NOT NULL,
    body BLOB NOT NULL,
    spans INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS queue_by_destination ON queue (destination, position);
CREATE TABLE IF NOT EXISTS audit_outbox (number INTEGER PRIMARY KEY, line BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (
    name TEXT NOT NULL, label TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (name, label)
) WITHOUT ROWID;
"""


class StoreLocked(CollectorError):
    """Another process holds the data directory."""


@dataclass(slots=True)
class JournalRecord:
    """A journal row that still has spans without a verdict."""

    position: int
    body: bytes
    spans: int
    decided: int  # bit n is set when span n has its verdict


@dataclass(slots=True)
class _Open:
    """What memory keeps of a journal row."""

    body_bytes: int
    spans: int
    decided: int = 0

    @property
    def undecided(self) -> int:
        return self.spans - self.decided.bit_count()


@dataclass(slots=True)
class Balance:
    """The books at one moment.  All figures count spans but ``*_bytes`` and ``*_records``."""

    received: dict[str, int] = field(default_factory=dict)  # by transport
    kept: dict[str, int] = field(default_factory=dict)  # by reason
    dropped: dict[str, int] = field(default_factory=dict)  # by reason
    enqueued: dict[str, int] = field(default_factory=dict)  # by destination
    forwarded: dict[str, int] = field(default_factory=dict)  # by destination
    failed: dict[str, int] = field(default_factory=dict)  # by "destination reason"
    requeued: dict[str, int] = field(default_factory=dict)  # by destination
    sampled_out: dict[str, int] = field(default_factory=dict)  # by "key reason", not yet audited
    replayed: int = 0
    held: int = 0
    journal_records: int = 0
    journal_bytes: int = 0
    queued: dict[str, int] = field(default_factory=dict)
    queued_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """True when both equations of the ledger hold."""
        if sum(self.received.values()) != (
            sum(self.kept.values()) + sum(self.dropped.values()) + self.held
        ):
            return False
        failed: dict[str, int] = {}
        for label, spans in self.failed.items():
            destination = label.partition(" ")[0]
            failed[destination] = failed.get(destination, 0) + spans
        return all(
            spans == self.forwarded.get(name, 0) + failed.get(name, 0) + self.queued.get(name, 0)
            for name, spans in self.enqueued.items()
        )


class Database:
    """Statements over one open connection, and the sums that memory keeps beside it.

    The sums change only through ``_pending``, applied by ``committed`` and forgotten by
    ``rolled_back``: memory never runs ahead of the disk.
    """

    def __init__(self, path: Path | None) -> None:
        """Open or create the database; ``None`` keeps it in memory.

        Raises StoreLocked when another process has it, sqlite3.Error when it is unusable.
        """
        self._connection = _connect(path)
        self._open: dict[int, _Open] = {}
        self._held = 0
        self._journal_bytes = 0
        self._queued: dict[str, int] = {}
        self._queued_bytes: dict[str, int] = {}
        self._ledger: dict[tuple[str, str], int] = {}
        self._sampled_out: set[str] = set()  # labels in the ledger, or on their way there
        self._pending_open: dict[int, _Open | None] = {}
        self._pending_queue: list[tuple[str, int, int]] = []
        self._pending_ledger: dict[tuple[str, str], int] = {}
        try:
            self._load()
        except BaseException:
            self._connection.close()
            raise

    def _load(self) -> None:
        rows = self._connection.execute(
            "SELECT position, length(body), spans, decided FROM journal"
        )
        for position, body_bytes, spans, decided in rows:
            self._replace(position, _Open(body_bytes, spans, _bits(decided)))
        rows = self._connection.execute(
            "SELECT destination, sum(spans), sum(length(body)) FROM queue GROUP BY destination"
        )
        for destination, spans, body_bytes in rows:
            self._queued[destination] = spans
            self._queued_bytes[destination] = body_bytes
        for name, label, value in self._connection.execute("SELECT * FROM ledger"):
            if value or name != "sampled_out":
                self._ledger[name, label] = value
        self._sampled_out = {label for name, label in self._ledger if name == "sampled_out"}
        self.count("replayed", "", self._held)
        for destination, spans in self._queued.items():
            self.count("requeued", destination, spans)
        self.begin()
        self.committed()

    # -- transactions ------------------------------------------------------------------

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def committed(self) -> None:
        """Write the ledger's changes, commit, and let memory follow."""
        self._connection.executemany(
            "INSERT INTO ledger VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET value = value + excluded.value",
            [(name, label, value) for (name, label), value in self._pending_ledger.items()],
        )
        if any(value < 0 for value in self._pending_ledger.values()):  # a record mentions them
            self._connection.execute("DELETE FROM ledger WHERE name = 'sampled_out' AND value = 0")
        self._connection.execute("COMMIT")
        for key, value in self._pending_ledger.items():
            self._ledger[key] = self._ledger.get(key, 0) + value
            if key[0] == "sampled_out" and not self._ledger[key]:
                del self._ledger[key]
                self._sampled_out.discard(key[1])
        for position, record in self._pending_open.items():
            self._replace(position, record)
        for destination, spans, body_bytes in self._pending_queue:
            self._queued[destination] = self._queued.get(destination, 0) + spans
            self._queued_bytes[destination] = self._queued_bytes.get(destination, 0) + body_bytes
        self._forget()

    def rolled_back(self) -> None:
        """Undo everything since ``begin``, on disk and in memory."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._forget()
        self._sampled_out = {label for name, label in self._ledger if name == "sampled_out"}

    def _replace(self, position: int, record: _Open | None) -> None:
        before = self._open.pop(position, None)
        if before is not None:
            self._held -= before.undecided
            self._journal_bytes -= before.body_bytes
        if record is not None:
            self._open[position] = record
            self._held += record.undecided
            self._journal_bytes += record.body_bytes

    def _forget(self) -> None:
        self._pending_ledger.clear()
        self._pending_open.clear()
        self._pending_queue.clear()

    def count(self, name: str, label: str, spans: int) -> None:
        if spans:
            key = (name, label)
            self._pending_ledger[key] = self._pending_ledger.get(key, 0) + spans

    # -- journal -----------------------------------------------------------------------

    def journal(self, body: bytes, spans: int, transport: str) -> int:
        """Add one request; returns its position, which is never used again."""
        cursor = self._connection.execute(
            "INSERT INTO journal (body, spans) VALUES (?, ?)", (body, spans)
        )
        position = cursor.lastrowid
        assert position is not None
        self._pending_open[position] = _Open(len(body), spans)
        self.count("received", transport, spans)
        return position

    def unfinished(self) -> list[int]:
        """Positions of the rows that a restart must take up again, oldest first."""
        return sorted(self._open)

    def row(self, position: int) -> JournalRecord:
        """One row of the journal.  Raises KeyError when it has been settled."""
        row = self._connection.execute(
            "SELECT body, spans, decided FROM journal WHERE position = ?", (position,)
        ).fetchone()
        if row is None:
            raise KeyError(position)
        body, spans, decided = row
        return JournalRecord(position, body, spans, _bits(decided))

    def settle(self, settlement: Settlement) -> None:
        """Make one settlement true: queues, audit outbox, journal marks and counts."""
        for destination, body, spans in settlement.payloads:
            self._connection.execute(
                "INSERT INTO queue (destination, body, spans) VALUES (?, ?, ?)",
                (destination, body, spans),
            )
            self._pending_queue.append((destination, spans, len(body)))
            self.count("enqueued", destination, spans)
        self._connection.executemany(
            "INSERT INTO audit_outbox VALUES (?, ?)", settlement.audit_lines
        )
        for reason, spans in settlement.kept.items():
            self.count("kept", reason, spans)
        for reason, spans in settlement.dropped.items():
            self.count("dropped", reason, spans)
        for key, spans in settlement.sampled_out.items():
            self.count("sampled_out", self._sampled_out_label(key), spans)
        self._mark(settlement.settled)

    def _sampled_out_label(self, label: str) -> str:
        """The label, or one for all that come when there are too many."""
        if label not in self._sampled_out:
            if len(self._sampled_out) >= SAMPLED_OUT_KEYS_MAX:
                return f"{OTHER} {label.rpartition(' ')[2]}"
            self._sampled_out.add(label)
        return label

    def _mark(self, origins: Iterable[Origin]) -> None:
        touched: dict[int, int] = {}
        for origin in origins:
            touched[origin.position] = touched.get(origin.position, 0) | 1 << origin.ordinal
        for position, bits in touched.items():
            known = self._pending_open.get(position) or self._open[position]
            record = _Open(known.body_bytes, known.spans, known.decided | bits)
            if record.undecided:
                self._connection.execute(
                    "UPDATE journal SET decided = ? WHERE position = ?",
                    (record.decided.to_bytes((record.spans + 7) // 8, "little"), position),
                )
                self._pending_open[position] = record
            else:
                self._connection.execute("DELETE FROM journal WHERE position = ?", (position,))
                self._pending_open[position] = None

    # -- queues ------------------------------------------------------------------------

    def take(self, destination: str, after: int, spans_max: int, bytes_max: int) -> list[QueueItem]:
        """The next items of a destination after a position, within both bounds, at least one."""
        rows = self._connection.execute(
            "SELECT position, body, spans FROM queue"
            " WHERE destination = ? AND position > ? ORDER BY position",
            (destination, after),
        )
        items: list[QueueItem] = []
        spans_left, bytes_left = spans_max, bytes_max
        for position, body, spans in rows:
            if items and (spans > spans_left or len(body) > bytes_left):
                break
            items.append(QueueItem(position, body, spans))
            spans_left -= spans
            bytes_left -= len(body)
        rows.close()
        return items

    def release(self, destination: str, items: Iterable[QueueItem], failed: dict[str, int]) -> None:
        """Take items off a queue; ``failed`` counts, by reason, those that were not delivered."""
        spans = 0
        for item in items:
            self._connection.execute("DELETE FROM queue WHERE position = ?", (item.position,))
            self._pending_queue.append((destination, -item.spans, -len(item.body)))
            spans += item.spans
        self.count("forwarded", destination, spans - sum(failed.values()))
        for reason, lost in failed.items():
            self.count("failed", f"{destination} {reason}", lost)

    # -- audit outbox ------------------------------------------------------------------

    def outbox(self) -> list[tuple[int, bytes]]:
        """Audit lines that are committed but perhaps not yet in the log's files, in order."""
        return list(self._connection.execute("SELECT * FROM audit_outbox ORDER BY number"))

    def clear_outbox(self, below: int) -> None:
        self._connection.execute("DELETE FROM audit_outbox WHERE number < ?", (below,))

    # -- the books ---------------------------------------------------------------------

    def balance(self) -> Balance:
        balance = Balance(
            held=self._held,
            journal_records=len(self._open),
            journal_bytes=self._journal_bytes,
            queued=dict(self._queued),
            queued_bytes=dict(self._queued_bytes),
            replayed=self._ledger.get(("replayed", ""), 0),
        )
        for (name, label), value in self._ledger.items():
            if name != "replayed":
                getattr(balance, name)[label] = value
        return balance

    def close(self) -> None:
        self._connection.close()


def _bits(decided: bytes | None) -> int:
    return int.from_bytes(decided, "little") if decided else 0


def _connect(path: Path | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path or ":memory:", isolation_level=None, check_same_thread=False, timeout=0
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path | None) -> None:
    try:
        # Exclusive locking keeps a second process out for as long as this one lives.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL: a commit has reached the disk, not only the operating system.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreLocked(f"{path} is in use by another process; stop it first") from error
        raise
    connection.executescript(_TABLES)
    (found,) = connection.execute("SELECT max(value) FROM meta WHERE key = 'format'").fetchone()
    if found is None:
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT_VERSION,))
    elif found != FORMAT_VERSION:
        raise sqlite3.DatabaseError(
            f"{path} has format {found}; this version reads format {FORMAT_VERSION}"
        )
