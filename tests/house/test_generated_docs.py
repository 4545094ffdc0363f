"""Generated pages are what the code says now, and every metric that is counted is in the table."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from mcptrace_collector.telemetry import METRICS

ROOT = Path(__file__).parents[2]


def _generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = _generator().pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_is_as_generated(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run: python docs/generate.py"


def test_every_metric_named_in_the_code_is_in_the_table_with_its_labels() -> None:
    table = {metric.name: set(metric.labels) for metric in METRICS}
    wrong = [
        f"{where} {name} {sorted(labels)}"
        for where, name, method, labels in _counted()
        if name not in table or (method != "watch" and labels != table[name])
    ]
    assert wrong == []


def test_every_metric_in_the_table_is_filled_by_the_code() -> None:
    filled = {name for _, name, _, _ in _counted()}
    assert [m.name for m in METRICS if not m.ledger and m.name not in filled] == []


def _counted() -> list[tuple[str, str, str, set[str]]]:
    """(where, name, method, labels) of every metric that the collector names."""
    counted = []
    for path in sorted((ROOT / "collector").rglob("*.py")):
        owners = ("telemetry", "self") if path.name == "telemetry.py" else ("telemetry",)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = _named_metric(node, owners)
            if named is not None:
                counted.append((f"{path.name}:{node.lineno}", *named))
    return counted


def _named_metric(node: ast.AST, owners: tuple[str, ...]) -> tuple[str, str, set[str]] | None:
    """(name, method, labels) of a call such as ``telemetry.count("late_spans_total", 3)``."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name, function = node.args[0], node.func
    if isinstance(function, ast.Attribute) and ast.unparse(function.value).endswith(owners):
        method = function.attr
    elif isinstance(function, ast.Name):  # watch = telemetry.watch
        method = function.id
    else:
        return None
    if method not in ("count", "observe", "watch") or not isinstance(name, ast.Constant):
        return None
    labels = {keyword.arg for keyword in node.keywords if keyword.arg} - {"n", "seconds"}
    return name.value, method, labels
