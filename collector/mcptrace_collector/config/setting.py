"""What a configuration field says about itself, and how the tree is walked.

Everything that is known of a setting stands in its dataclass field: type, default, and in
the metadata what it means, its unit, its bounds and the version that brought it.  Reading,
checking, printing and docs/config.md all come from here, so they cannot disagree.

Pure: no files, no environment.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_METADATA_KEY = "mcptrace"


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts about one field.  ``minimum`` and ``maximum`` are inclusive."""

    doc: str
    unit: str = ""  # "bytes", "seconds", "ms", ...; bytes also read 64MiB
    since: str = "0.1"
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False  # never shown, neither by print-config nor in an error
    file: bool = False  # names a file that must be readable when the configuration is loaded


def setting(
    default: Any = dataclasses.MISSING,
    *,
    factory: Callable[[], Any] | None = None,
    doc: str,
    unit: str = "",
    since: str = "0.1",
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
    file: bool = False,
) -> Any:
    """A dataclass field that carries a Setting; without default and factory it is required."""
    metadata = {_METADATA_KEY: Setting(doc, unit, since, minimum, maximum, secret, file)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the tree with its type taken apart.

    Exactly one of these is so: ``section`` (a nested dataclass), ``entries`` (a mapping from
    free names to a dataclass), ``mapping`` (a mapping from text to text), or ``scalar`` (str,
    bool, int, float) with ``choices`` when only some words are allowed.
    """

    name: str
    setting: Setting
    optional: bool
    default: Any  # dataclasses.MISSING when the field is required
    section: type | None = None
    entries: type | None = None
    mapping: bool = False
    scalar: type | None = None
    choices: tuple[str, ...] = ()


def fields_of(section: type) -> tuple[Field, ...]:
    """The fields of a configuration dataclass, in the order in which they are written."""
    hints = typing.get_type_hints(section)
    return tuple(_field(f, hints[f.name]) for f in dataclasses.fields(section))


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        optional = True
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    common = {
        "name": field.name,
        "setting": field.metadata[_METADATA_KEY],
        "optional": optional,
        "default": default,
    }
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return Field(**common, scalar=str, choices=typing.get_args(hint))
    if origin is Mapping:
        value = typing.get_args(hint)[1]
        if dataclasses.is_dataclass(value):
            return Field(**common, entries=typing.cast(type, value))
        return Field(**common, mapping=True)
    if dataclasses.is_dataclass(hint):
        return Field(**common, section=typing.cast(type, hint))
    return Field(**common, scalar=hint)


def scalar_paths(section: type, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all single values that have a fixed name, depth first.

    Entries of mappings have names that the user chooses and are left out.
    """
    for field in fields_of(section):
        path = (*prefix, field.name)
        if field.section is not None:
            yield from scalar_paths(field.section, path)
        elif field.scalar is not None:
            yield path
