"""docs/mappings.md is the table of the code, and nobody's memory of it."""

from __future__ import annotations

from pathlib import Path

from mcptrace_collector.normalize import markdown_table
from mcptrace_collector.normalize.dialects import DIALECTS

PAGE = Path(__file__).parents[4] / "docs" / "mappings.md"


def test_the_page_is_in_step_with_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown_table()


def test_the_page_names_every_convention_and_every_source() -> None:
    text = markdown_table()
    for dialect in DIALECTS:
        assert f"`{dialect.name}`" in text
        for sources in dialect.cells.values():
            for source in sources:
                assert f"`{source.label}`" in text
