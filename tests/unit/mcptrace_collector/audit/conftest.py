"""A small real log on disk, for the tests of the audit room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcptrace_collector.audit import AuditLog

Build = Callable[..., list[bytes]]


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def unix_nano(self) -> int:
        return 1_764_547_200_000_000_000


@pytest.fixture
def build() -> Build:
    """build(directory, records, segment_records=3, nonce=b"n") -> the stored lines."""

    def _build(
        directory: Path, records: int, segment_records: int = 3, nonce: bytes = b"n"
    ) -> list[bytes]:
        log = AuditLog(
            directory, segment_records, clock=FixedClock(), random_bytes=lambda n: nonce * n
        )
        log.open()
        chain = log.chain()
        lines = [
            chain.next("config_change", {"version": "1", "n": n}, 1_000 + n) for n in range(records)
        ]
        log.append([(line.index, line.line) for line in lines])
        log.close()
        return [line.line for line in lines]

    return _build
