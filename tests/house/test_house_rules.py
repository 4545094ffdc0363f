"""The rules of the house that a linter does not know."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTER = (
    "proto",
    "sdk",
    "adapters",
    "adapters/pytorch",
    "adapters/vllm",
    "adapters/triton",
    "collector",
)
SOURCES = [
    path
    for top in ("proto", "sdk", "adapters", "collector")
    for path in sorted((ROOT / top).rglob("*.py"))
]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# Files that decide but do nothing: what they need from outside comes as an argument.
PURE = (
    "proto/mcptrace_proto/",
    "collector/mcptrace_collector/normalize/",
    "collector/mcptrace_collector/sampling/table.py",
    "collector/mcptrace_collector/sampling/verdicts.py",
    "collector/mcptrace_collector/audit/layout.py",
    "collector/mcptrace_collector/audit/tree.py",
    "collector/mcptrace_collector/audit/chain.py",
    "collector/mcptrace_collector/audit/_sm3_py.py",
    "collector/mcptrace_collector/config/setting.py",
    "collector/mcptrace_collector/config/tree.py",
    "collector/mcptrace_collector/config/node.py",
    "collector/mcptrace_collector/config/read.py",
    "collector/mcptrace_collector/config/render.py",
    "collector/mcptrace_collector/pipeline.py",
    "collector/mcptrace_collector/errors.py",
)
IMPURE_MODULES = {"asyncio", "threading", "socket", "os", "time", "subprocess"}

# The only readers of the environment: configuration, and choosers between twins.
ENVIRONMENT_READERS = {
    "sdk/mcptrace/config.py",
    "sdk/mcptrace/run.py",
    "collector/mcptrace_collector/config/load.py",
}
CLOCK = "collector/mcptrace_collector/clock.py"
VAGUE_NAMES = {"utils", "helpers", "common", "manager", "base", "util", "misc"}

_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
# Paths and hosts that exist on somebody's machine only.
_PRIVATE = re.compile(
    r"(?<![\w.])/(?:root|work|workspace|home/\w+|Users/\w+)/"
    r"|https?://[\w.-]+\.(?:internal|corp|lan|local|intranet)\b"
)
_BROAD = {"Exception", "BaseException"}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _imports(tree: ast.AST) -> set[str]:
    """Top-level names of everything imported while a program runs, type checking left out."""
    names: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
        pending.extend(ast.iter_child_nodes(node))
    return names


def _published() -> list[Path]:
    """Every text file that a clone has."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked archive has no history; its sources are enough
        return SOURCES
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".proto", ".js", ".json", ""}
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


@pytest.mark.parametrize("folder", OUTER)
def test_outer_folders_are_not_packages(folder: str) -> None:
    # adapters/vllm/__init__.py would shadow the real vllm.
    assert not (ROOT / folder / "__init__.py").exists()


def test_source_roots_shadow_nobody() -> None:
    # adapters/ as a root would make `import vllm` succeed as an empty namespace;
    # proto/opentelemetry would join the user's real namespace package.
    assert str(ROOT / "adapters") not in sys.path
    assert not (ROOT / "proto" / "opentelemetry").exists()


def test_no_generated_descriptors_are_shipped() -> None:
    # protobuf refuses a second, different file of the same name in one process.
    assert [path for path in SOURCES if path.name.endswith(("_pb2.py", "_pb2_grpc.py"))] == []


def test_tests_are_not_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_source_file_keeps_the_house_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    name = _name(path)
    assert ast.get_docstring(tree), "a module says what it is for"
    assert text.count("\n") <= MAX_FILE_LINES
    assert path.stem not in VAGUE_NAMES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name
    imports = _imports(tree)
    if name.startswith(PURE):
        assert not imports & IMPURE_MODULES, "a pure file does nothing by itself"
    if name.startswith("collector/") and name != CLOCK:
        assert "time" not in imports, "time comes from clock.py"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_environment_is_read_by_configuration_only(path: Path) -> None:
    reads = re.findall(r"\bos\.(?:environb?|getenv)\b", path.read_text(encoding="utf-8"))
    assert not reads or _name(path) in ENVIRONMENT_READERS


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_broad_excepts_stand_at_marked_boundaries_only(path: Path) -> None:
    if path.name == "guard.py":
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = (
            {"Exception"} if node.type is None else set(re.findall(r"\w+", ast.unparse(node.type)))
        )
        cleans_up_only = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if caught & _BROAD and not cleans_up_only:
            assert "task boundary" in lines[node.lineno - 1], f"line {node.lineno}"


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{_name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _UNFINISHED.search(line)
    ]
    assert found == []


def test_nothing_published_names_a_private_place() -> None:
    found = [
        f"{_name(path)}:{number}"
        for path in _published()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _PRIVATE.search(line)
    ]
    assert found == []
