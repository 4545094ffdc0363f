"""docs/schema.md names every attribute and every violation that the code has, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcptrace_proto import semconv
from mcptrace_proto.model import SpanData
from mcptrace_proto.schema import (
    COUNTS,
    UNKNOWN_REASONS,
    VIOLATION_CODES,
    inference_attributes,
    read_inference,
    validate,
)

PAGE = (Path(__file__).parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]

CONSTANTS = {
    value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str) and value.startswith(("mcptrace.", "gen_ai."))
}
PREFIXES = (semconv.TOKENS_UNKNOWN_PREFIX, semconv.SOURCE_PREFIX)


def _section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_name_of_ours_is_on_the_page() -> None:
    ours = {name for name in CONSTANTS if name.startswith("mcptrace.")}
    assert {name for name in ours if f"`{name}" not in PAGE} == set()


def test_every_name_on_the_page_is_one_that_the_code_has() -> None:
    named = set(re.findall(r"[`\"]((?:mcptrace|gen_ai)\.[a-z0-9_.]+)[`\"]", PAGE))
    unknown = {name for name in named - CONSTANTS if not name.startswith(PREFIXES)}
    assert unknown == set()


def test_the_table_of_violations_is_what_can_be_found() -> None:
    codes = re.findall(r"`([a-z0-9_.]+:[a-z_]+)`", _section("Violations"))
    assert sorted(codes) == sorted(VIOLATION_CODES)


def test_reasons_on_the_page_are_those_of_the_code() -> None:
    reasons = re.findall(r"^\| `([a-z_]+)` \|", _section("Token usage"), re.MULTILINE)
    assert set(reasons) == UNKNOWN_REASONS


def test_every_count_has_its_row() -> None:
    rows = re.findall(r"`mcptrace\.token_usage\.(\w+)` \| int", _section("Token usage"))
    assert rows == list(COUNTS)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=["stream", "no tokens", "left"])
def test_an_example_conforms_and_is_complete(example: dict[str, object]) -> None:
    view = read_inference(example)
    assert validate(SpanData(span_id=b"12345678", attributes=example), view) == []
    assert inference_attributes(view, example) == {}
    assert inference_attributes(view, {}) == example
