"""From text to the tree: every value read as its field's type says, or refused.

A refusal names where the value was written, the setting, the value and what would be right;
the value of a secret is never shown.  Pure.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from typing import Any, TypeVar

from mcptrace_collector.errors import ConfigError

from .node import Node, Section, Text
from .setting import Field, fields_of

T = TypeVar("T")

_NULLS = frozenset({"", "~", "null"})
_BYTES = re.compile(r"([0-9]{1,18})\s*(B|KiB|MiB|GiB|TiB)?")
_BYTE_FACTORS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
# No path, address or name has these; a lone surrogate is a byte that was not UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ENTRY_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def read_section(section: type[T], node: Section, path: str = "", default: T | None = None) -> T:
    """Build a section from what was written; what was not keeps its default.

    ``default`` is the instance whose values stand in for missing ones, where the place in the
    tree has other defaults than the class.  Raises ConfigError.
    """
    fields = {field.name: field for field in fields_of(section)}
    for name, below in node.items():
        if name not in fields:
            raise _unknown(name, below, path, list(fields))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        fallback = field.default if default is None else getattr(default, name)
        if name in node:
            values[name] = _read(field, node[name], _join(path, name), fallback)
        elif fallback is dataclasses.MISSING:
            raise ConfigError(f"{node.source}: {_join(path, name)} is missing; {field.setting.doc}")
        else:
            values[name] = fallback
    return section(**values)


def _read(field: Field, node: Node, path: str, default: Any) -> Any:
    if field.scalar is not None:
        if isinstance(node, Section):
            raise ConfigError(f"{node.source}: {path} is a mapping, but must be one value")
        if field.optional and node.value in _NULLS:
            return None
        return _scalar(field, node, path)
    if isinstance(node, Text):
        if node.value in _NULLS and field.entries is None:
            return default  # a heading with nothing below it
        raise ConfigError(
            f"{node.source}: {path} is {_shown(field, node.value)}, but must be a mapping"
        )
    if field.section is not None:
        return read_section(field.section, node, path, default)
    if field.mapping:
        return {name: _entry_text(field, below, _join(path, name)) for name, below in node.items()}
    assert field.entries is not None
    return {
        name: read_section(field.entries, _entry(name, below, path), _join(path, name))
        for name, below in node.items()
    }


def _entry(name: str, node: Node, path: str) -> Section:
    if not _ENTRY_NAME.fullmatch(name):
        raise ConfigError(
            f"{node.source}: {path} has the name {name!r}; names are lower-case letters, digits "
            f"and _, begin with a letter and are at most 63 long"
        )
    if isinstance(node, Text):
        raise ConfigError(
            f"{node.source}: {_join(path, name)} is {node.value!r}, but must be a mapping"
        )
    return node


def _entry_text(field: Field, node: Node, path: str) -> str:
    if isinstance(node, Section):
        raise ConfigError(f"{node.source}: {path} is a mapping, but must be one value")
    if _CONTROL.search(node.value):
        shown = _shown(field, node.value)
        raise ConfigError(f"{node.source}: {path} is {shown}, but must be on one line, as UTF-8")
    return node.value


def _scalar(field: Field, text: Text, path: str) -> str | bool | int | float:
    value = parse_scalar(field, text.value)
    if value is None:
        shown = _shown(field, text.value)
        hint = ""
        if field.choices and (near := difflib.get_close_matches(text.value, field.choices, 1)):
            hint = f"; did you mean {near[0]!r}?"
        raise ConfigError(f"{text.source}: {path} is {shown}, but must be {expected(field)}{hint}")
    return value


def parse_scalar(field: Field, text: str) -> str | bool | int | float | None:
    """Read one value as the field's type; None when it is not one, or out of bounds."""
    if field.choices:
        return text if text in field.choices else None
    if field.scalar is str:
        return None if _CONTROL.search(text) else text
    if field.scalar is bool:
        return {"true": True, "false": False}.get(text.lower())
    value = _integer(field, text) if field.scalar is int else _number(text)
    low, high = field.setting.minimum, field.setting.maximum
    if value is None or (low is not None and value < low) or (high is not None and value > high):
        return None
    return value


def _integer(field: Field, text: str) -> int | None:
    if field.setting.unit == "bytes" and (match := _BYTES.fullmatch(text)):
        return int(match[1]) * _BYTE_FACTORS[match[2]]
    return int(text) if _INTEGER.fullmatch(text) else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def expected(field: Field) -> str:
    """What a value of this field may be, in words."""
    if field.choices:
        return " or ".join(f"'{choice}'" for choice in field.choices)
    if field.scalar is bool:
        return "true or false"
    if field.scalar is str:
        return "text without control characters"
    kind = "a whole number" if field.scalar is int else "a number"
    if field.setting.unit == "bytes":
        kind = "a whole number of bytes (or such as 64MiB)"
    elif field.setting.unit:
        kind += f" of {field.setting.unit}"
    low, high = field.setting.minimum, field.setting.maximum
    if low is not None and high is not None:
        return f"{kind} from {low:.15g} to {high:.15g}"
    if low is not None:
        return f"{kind}, at least {low:.15g}"
    return kind


def _unknown(name: str, node: Node, path: str, known: list[str]) -> ConfigError:
    near = difflib.get_close_matches(name, known, 1, cutoff=0.6)
    remedy = f"did you mean {near[0]!r}?" if near else f"known here are {', '.join(known)}"
    return ConfigError(f"{node.source}: {_join(path, name)} is not a setting; {remedy}")


def _shown(field: Field, value: str) -> str:
    return "a value that is not shown" if field.setting.secret else repr(value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
