"""The store: one fsync for all that wait, nothing half done, and no call lost."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from mcptrace_collector.durable import Store, StoreUnusable
from mcptrace_collector.durable.database import Database
from mcptrace_collector.errors import Retryable
from mcptrace_collector.pipeline import Origin, Settlement

MIB = 1024 * 1024


async def started(directory: Path | None, **limits: int) -> Store:
    store = Store(directory, journal_bytes_max=limits.pop("journal_bytes_max", MIB), **limits)
    store.start()
    return store


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    async def first() -> list[int]:
        store = await started(tmp_path)
        positions = await asyncio.gather(
            *[store.journal(b"body %d" % n, 1, "http") for n in range(100)]
        )
        await store.close()
        return positions

    async def second(positions: list[int]) -> list[bytes]:
        store = Store(tmp_path, journal_bytes_max=MIB)
        assert store.unfinished() == sorted(positions)
        store.start()
        bodies = [(await store.row(position)).body for position in positions]
        await store.close()
        return bodies

    assert asyncio.run(second(asyncio.run(first()))) == [b"body %d" % n for n in range(100)]


def test_waiting_calls_share_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = 0
    committed = Database.committed

    def counted(self: Database) -> None:
        nonlocal commits
        commits += 1
        committed(self)

    async def run() -> None:
        store = await started(tmp_path)
        monkeypatch.setattr(Database, "committed", counted)
        await asyncio.gather(*[store.journal(b"x", 1, "http") for _ in range(200)])
        await store.close()

    asyncio.run(run())
    assert commits < 50


def test_a_full_journal_is_retryable_and_counts_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        store = await started(tmp_path, journal_bytes_max=10)
        position = await store.journal(b"12345678", 1, "http")
        with pytest.raises(Retryable, match="journal is full"):
            await store.journal(b"123", 1, "http")
        await store.settle(Settlement(settled=[Origin(position, 0)], dropped={"sampled_out": 1}))
        await store.journal(b"123", 1, "http")
        assert store.balance.received == {"http": 2}
        assert store.balance.exact
        await store.close()

    asyncio.run(run())


def test_a_nearly_full_disk_is_retryable(tmp_path: Path) -> None:
    async def run() -> None:
        store = await started(tmp_path, disk_reserve_bytes=1 << 60)
        with pytest.raises(Retryable, match="nearly full"):
            await store.journal(b"x", 1, "http")
        assert store.no_room() == "the disk under the data directory is nearly full"
        await store.close()

    asyncio.run(run())


def test_a_failed_commit_fails_its_calls_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        store = await started(tmp_path)
        committed = Database.committed

        def full(self: Database) -> None:
            monkeypatch.setattr(Database, "committed", committed)
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(Database, "committed", full)
        with pytest.raises(Retryable, match="disk is full"):
            await store.journal(b"x", 1, "http")
        assert store.failing is not None
        assert "disk is full" in store.failing
        await store.journal(b"y", 1, "http")
        assert store.failing is None
        assert store.balance.received == {"http": 1}
        assert store.balance.exact
        await store.close()

    asyncio.run(run())


def test_a_fault_in_one_call_does_not_end_the_store(tmp_path: Path) -> None:
    async def run() -> None:
        store = await started(tmp_path)
        with pytest.raises(KeyError):
            await store.settle(Settlement(settled=[Origin(99, 0)]))
        await store.journal(b"y", 1, "http")
        await store.close()

    asyncio.run(run())


def test_a_caller_that_goes_away_does_not_undo_its_work(tmp_path: Path) -> None:
    async def run() -> int:
        store = await started(tmp_path)
        task = asyncio.create_task(store.journal(b"x", 1, "http"))
        await asyncio.sleep(0)
        task.cancel()
        await store.journal(b"y", 1, "http")
        await store.close()
        return store.balance.held

    assert asyncio.run(run()) == 2


def test_memory_durability_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        store = await started(None)
        await store.journal(b"x", 2, "grpc")
        assert store.balance.held == 2
        await store.close()

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnusable, match=r"file is not a database; put a copy"):
        Store(tmp_path, journal_bytes_max=1 << 20)


def test_what_is_stored_is_for_owner_and_group_only(tmp_path: Path) -> None:
    async def run() -> None:
        store = await started(tmp_path / "data")
        await store.journal(b"body", 1, "http")
        paths = [tmp_path / "data", *(tmp_path / "data").iterdir()]
        assert len(paths) > 2  # the write-ahead log too
        assert [path.name for path in paths if path.stat().st_mode & 0o007] == []
        await store.close()

    asyncio.run(run())
