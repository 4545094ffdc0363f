"""Configuration as it was written: text with its source, before any meaning is given to it.

All values stay text until the tree's types say what they are, whether they come from YAML,
the environment or the command line.  So `007` stays a header value, `off` a word, and one
rule for numbers and truth values holds everywhere.

Pure: YAML text comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcptrace_collector.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Text:
    """A value and where it was written, for messages."""

    value: str
    source: str


class Section(dict[str, "Node"]):
    """A mapping and where it was written."""

    def __init__(self, source: str, entries: Mapping[str, Node] | None = None) -> None:
        super().__init__(entries or {})
        self.source = source


Node: TypeAlias = Text | Section


def parse_yaml(document: str, source: str) -> Section:
    """Read a YAML mapping.  Raises ConfigError for broken YAML, lists and repeated keys."""
    import yaml

    class Loader(yaml.BaseLoader):
        """Text only, and a key may stand once."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                where = f"{source}, line {key.start_mark.line + 1}"
                if not isinstance(key.value, str):
                    raise ConfigError(f"{where}: a list or mapping is no name of a setting")
                if key.value in seen:
                    raise ConfigError(f"{where}: {key.value!r} is written twice")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        # BaseLoader builds nothing but text, lists and dicts.
        loaded = yaml.load(document, Loader=Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source} is not YAML: {_one_line(error)}") from error
    if loaded is None or loaded == "":
        return Section(source)
    if not isinstance(loaded, dict):
        raise ConfigError(f"{source} must hold a mapping of settings at its top")
    tree = _node(loaded, source, ())
    assert isinstance(tree, Section)
    return tree


def put(tree: Section, path: tuple[str, ...], text: Text) -> None:
    """Set one value, over whatever stood at its place."""
    at = tree
    for name in path[:-1]:
        below = at.get(name)
        if not isinstance(below, Section):
            below = at[name] = Section(text.source)
        at = below
    at[path[-1]] = text


def _node(value: object, source: str, path: tuple[object, ...]) -> Node:
    if isinstance(value, dict):
        # A mapping that holds itself (a YAML anchor) would never end; no setting is so deep.
        if len(path) > 8:
            raise ConfigError(f"{source}: {'.'.join(map(str, path))} is nested too deeply")
        entries = {str(key): _node(below, source, (*path, key)) for key, below in value.items()}
        return Section(source, entries)
    if isinstance(value, list):
        where = ".".join(map(str, path))
        raise ConfigError(f"{source}: {where} is a list; no setting is one, write `name: value`")
    return Text(str(value), source)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
