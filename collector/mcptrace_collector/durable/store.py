"""The store: a group-committing thread around the database, awaited from the event loop.

Callers submit work; the thread takes all that waits, runs it in one transaction, commits
once and answers everybody.  The more callers wait, the more share one fsync.

    loop    journal() journal() settle() ack()          results
              │          │         │       │               ▲
              ▼          ▼         ▼       ▼               │
    thread   [ one BEGIN … one COMMIT + fsync … ] ─────────┘

Always true: a call has returned only if its work is committed; a failed commit fails every
call in it with Retryable and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mcptrace_collector.errors import CollectorError, Retryable
from mcptrace_collector.pipeline import QueueItem, Settlement

from .database import Balance, Database, JournalRecord

log = logging.getLogger(__name__)

DATABASE_FILE = "state.db"
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640  # spans may say what nobody else here is to read
GROUP_MAX = 512  # calls in one transaction
RETRY_AFTER_SECONDS = 1.0
MAX_INDEX = (1 << 63) - 1

T = TypeVar("T")
_Work = tuple[Callable[[Database], Any], "asyncio.Future[Any]"]


class StoreUnusable(CollectorError):
    """The database is damaged, not one of ours, or the disk refuses it."""


class Store:
    """Owns the database; one per data directory.

    ``journal_bytes_max`` bounds requests without a verdict, ``disk_reserve_bytes`` is the
    free space below which no new request is taken, so that the work already accepted can
    still be settled and acknowledged.  ``directory`` None keeps everything in memory.
    """

    def __init__(
        self, directory: Path | None, *, journal_bytes_max: int, disk_reserve_bytes: int = 0
    ) -> None:
        """Open at once.  Raises StoreLocked, StoreUnusable or OSError."""
        self._directory = directory
        self._journal_bytes_max = journal_bytes_max
        self._disk_reserve_bytes = disk_reserve_bytes
        if directory is not None:
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            # SQLite would make it readable by everybody; its other files follow this one.
            # One that is there is not opened: closing it again would drop SQLite's locks on it.
            with contextlib.suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(directory / DATABASE_FILE, flags, FILE_MODE))
        self._database = _open(directory / DATABASE_FILE if directory else None)
        self._balance = self._database.balance()
        self._journal_bytes = self._balance.journal_bytes
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self.failing: str | None = None  # why the last commit failed; None when it did not
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- before the loop runs --------------------------------------------------------------

    def unfinished(self) -> list[int]:
        """Positions of the journal rows left by an earlier run.  Only before ``start``."""
        assert self._thread is None
        return self._database.unfinished()

    def outbox(self) -> list[tuple[int, bytes]]:
        """Audit lines left by an earlier run.  Only before ``start``."""
        assert self._thread is None
        return self._database.outbox()

    def forget_outbox(self) -> None:
        """Drop the audit lines of an earlier run, safe elsewhere by now.  Before ``start``."""
        assert self._thread is None
        self._database.begin()
        self._database.clear_outbox(MAX_INDEX)
        self._database.committed()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="mcptrace-store", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Finish what was submitted, then close the file."""
        if self._thread is not None:
            self._work.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        self._database.close()

    # -- from the loop -----------------------------------------------------------------------

    async def journal(self, body: bytes, spans: int, transport: str) -> int:
        """Make one request durable.  Raises Retryable when there is no room for it."""
        if (reason := self.no_room(len(body))) is not None:
            raise Retryable(reason, RETRY_AFTER_SECONDS)
        self._journal_bytes += len(body)  # the admitted, corrected to the durable at each commit
        return await self._submit(lambda db: db.journal(body, spans, transport))

    async def row(self, position: int) -> JournalRecord:
        """Read one journal row; a whole journal would not fit into memory."""
        return await self._submit(lambda db: db.row(position))

    async def settle(self, settlement: Settlement) -> None:
        """Make one settlement true, whole or not at all.  Raises Retryable."""
        await self._submit(lambda db: db.settle(settlement))

    async def take(
        self, destination: str, after: int, spans_max: int, bytes_max: int
    ) -> list[QueueItem]:
        """Read the next items of a queue; they stay until released."""
        return await self._submit(lambda db: db.take(destination, after, spans_max, bytes_max))

    async def release(
        self, destination: str, items: Sequence[QueueItem], failed: dict[str, int]
    ) -> None:
        """Items are delivered, but for ``failed`` spans by reason.  Raises Retryable."""
        await self._submit(lambda db: db.release(destination, items, failed))

    async def clear_outbox(self, below: int) -> None:
        """Audit lines before ``below`` are safe in the log's own files.  Raises Retryable."""
        await self._submit(lambda db: db.clear_outbox(below))

    @property
    def balance(self) -> Balance:
        """The books as of the last commit."""
        return self._balance

    def no_room(self, body_bytes: int = 1) -> str | None:
        """Why a request of so many bytes would not be taken now; None when it would."""
        if self._journal_bytes + body_bytes > self._journal_bytes_max:
            return "the receive journal is full"
        if self._directory is None or not self._disk_reserve_bytes:
            return None
        stat = os.statvfs(self._directory)
        # A body is written twice, to the write-ahead log and to the table, then queued again.
        if stat.f_bavail * stat.f_frsize < self._disk_reserve_bytes + 4 * body_bytes:
            return "the disk under the data directory is nearly full"
        return None

    async def _submit(self, work: Callable[[Database], T]) -> T:
        assert self._loop is not None, "the store is not started"
        future: asyncio.Future[T] = self._loop.create_future()
        self._work.put((work, future))
        # A caller that goes away (a client that hung up) does not undo what it submitted.
        return await asyncio.shield(future)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        running = True
        while running:
            group, running = self._next_group()
            if group:
                self._commit(group)

    def _next_group(self) -> tuple[list[_Work], bool]:
        first = self._work.get()
        if first is None:
            return [], False
        group = [first]
        while len(group) < GROUP_MAX and not self._work.empty():
            item = self._work.get()
            if item is None:
                return group, False
            group.append(item)
        return group, True

    def _commit(self, group: list[_Work]) -> None:
        error: Exception | None = None
        results: list[Any] = []
        try:
            self._database.begin()
            results = [work(self._database) for work, _ in group]
            self._database.committed()
        except (sqlite3.Error, OSError) as cause:
            self._database.rolled_back()
            log.warning("the store could not commit %d calls: %s", len(group), cause)
            error = Retryable(f"the store could not commit: {cause}", RETRY_AFTER_SECONDS)
        except Exception as cause:  # task boundary: a fault in one call must not end the thread
            self._database.rolled_back()
            log.exception("a fault in the store; %d calls are undone", len(group))
            error = cause
        balance = self._database.balance()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answer, group, results, error, balance)

    def _answer(
        self, group: list[_Work], results: list[Any], error: Exception | None, balance: Balance
    ) -> None:
        self._balance = balance
        self._journal_bytes = balance.journal_bytes
        self.failing = None if error is None else str(error)
        for number, (_, future) in enumerate(group):
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(results[number])


def _open(path: Path | None) -> Database:
    try:
        return Database(path)
    except sqlite3.OperationalError as error:  # the disk is full, not writable, …
        raise StoreUnusable(f"{path} cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(
            f"{path} cannot be used: {error}; put a copy back, or move it away with the audit "
            "log to begin anew"
        ) from error
