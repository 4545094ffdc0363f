"""Attribute values as the wire takes them, within limits.

Pure.  Values are frozen when they are set: lists and mappings are copied, so that a later
change by the caller does not reach the span.  What the wire cannot carry becomes text, as
the specification allows; an attribute with an unusable key, one over the count limit, and
one whose conversion fails is dropped and counted.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any

from mcptrace_proto.model import Attributes, AttributeValue

DEPTH_MAX = 16
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_PLAIN = frozenset({bool, float, bytes, type(None)})


def clean_value(value: Any, length_max: int | None, depth: int = 0) -> AttributeValue:
    """One value as str, bool, int, float, bytes, None, list or dict.

    Strings are cut to ``length_max`` characters at every level.  Raises ValueError where
    nesting passes DEPTH_MAX, and whatever the value's own conversion to text raises.
    """
    kind = type(value)
    if kind is str:
        return value if length_max is None else value[:length_max]  # type: ignore[no-any-return]
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        return clean_value(str.__str__(value), length_max)
    if isinstance(value, bool | float | bytes):
        return value
    if isinstance(value, numbers.Integral):
        number = int(value)
        return number if INT64_MIN <= number <= INT64_MAX else str(number)
    if isinstance(value, numbers.Real):
        return float(value)
    if depth >= DEPTH_MAX:
        raise ValueError("attribute value is nested too deeply")
    if isinstance(value, Mapping):
        return {
            str(key): clean_value(item, length_max, depth + 1)
            for key, item in value.items()
            if key
        }
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        return [clean_value(item, length_max, depth + 1) for item in value]
    return clean_value(str(value), length_max)


def clean_attributes(
    attributes: Mapping[str, Any] | Iterable[tuple[str, Any]] | None,
    count_max: int,
    length_max: int | None,
) -> tuple[Attributes, int]:
    """A new dict of cleaned attributes and how many were dropped."""
    cleaned: Attributes = {}
    if not attributes:
        return cleaned, 0
    dropped = 0
    items = attributes.items() if isinstance(attributes, Mapping) else attributes
    for key, value in items:
        dropped += not put(cleaned, key, value, count_max, length_max)
    return cleaned, dropped


def put(
    attributes: Attributes, key: Any, value: Any, count_max: int, length_max: int | None
) -> bool:
    """Set one attribute; False when it was dropped instead.

    A key that is present is replaced even at the limit (Common specification, "Attribute
    Limits": it is the *new* unique keys that are discarded).
    """
    if not isinstance(key, str) or not key:
        return False
    if len(attributes) >= count_max and key not in attributes:
        return False
    kind = type(value)
    if kind in _PLAIN or (kind is str and length_max is None):
        attributes[key] = value
        return True
    try:
        attributes[key] = clean_value(value, length_max)
    except (ValueError, TypeError, AttributeError, RuntimeError, LookupError, ArithmeticError):
        return False
    return True


def size_bytes(attributes: Attributes) -> int:
    """A rough size in memory and on the wire; exact only in what can be large."""
    total = 64 * len(attributes)
    for value in attributes.values():
        kind = type(value)
        if kind is str or kind is bytes:
            total += len(value)  # type: ignore[arg-type]
        elif kind is list:
            total += sum(16 + len(item) if isinstance(item, str) else 24 for item in value)  # type: ignore[union-attr]
        elif kind is dict:
            total += size_bytes(value)  # type: ignore[arg-type]
    return total
