"""The service's life: it can be told to stop at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.config import load
from mcptrace_collector.durable import Store
from mcptrace_collector.errors import Retryable
from mcptrace_collector.pipeline import Settlement
from mcptrace_collector.service import Service, start_unless_told_to_stop


def test_a_start_that_waits_for_the_disk_ends_when_told_to_stop(tmp_path: Path) -> None:
    async def refuse(settlement: Settlement) -> None:
        raise Retryable("database or disk is full")

    async def session() -> bool:
        config = load(None, [f"data_dir={tmp_path}", "shutdown_timeout_seconds=0.2"], environ={})
        service = Service(config, SystemClock())
        service._store.settle = refuse  # type: ignore[method-assign]
        stopping = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, stopping.set)
        try:
            return await start_unless_told_to_stop(service, stopping)
        finally:
            await service.stop()

    assert asyncio.run(asyncio.wait_for(session(), 30.0)) is False


def test_records_of_a_log_that_is_gone_are_kept_and_the_collector_starts(tmp_path: Path) -> None:
    config = load(None, [f"data_dir={tmp_path}", "admin.enabled=false"], environ={})
    orphan = b'{"v":1,"log":"another","index":7,"prev":"00"}'

    async def leave_an_orphan() -> None:
        store = Store(tmp_path, journal_bytes_max=1 << 20)
        store.start()
        await store.settle(Settlement(audit_lines=[(7, orphan)]))
        await store.close()

    asyncio.run(leave_an_orphan())
    service = Service(config, SystemClock())
    asyncio.run(service.stop())
    assert (tmp_path / "audit-orphaned.jsonl").read_bytes() == orphan + b"\n"
    store = Store(tmp_path, journal_bytes_max=1 << 20)
    assert store.outbox() == []
    asyncio.run(store.close())
