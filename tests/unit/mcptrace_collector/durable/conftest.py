"""Databases that a test leaves open, as a killed process would, are closed after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mcptrace_collector.durable.database import Database


@pytest.fixture(autouse=True)
def close_databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[Database] = []
    construct = Database.__init__

    def noted(self: Database, *arguments: Any) -> None:
        construct(self, *arguments)
        opened.append(self)

    monkeypatch.setattr(Database, "__init__", noted)
    yield
    for database in opened:
        database.close()
