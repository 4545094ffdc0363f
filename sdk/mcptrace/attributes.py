"""Attribute values as the wire takes them, within limits.

Values are frozen when they are set: lists and mappings are copied, so that a later
change by the caller does not reach the span.  What the wire cannot carry becomes text, as
the specification allows; an attribute with an unusable key, one over the count limit, and
one whose conversion fails is dropped and counted.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any

from mcptrace.guard import guard
from mcptrace_proto.model import Attributes, AttributeValue

DEPTH_MAX = 16
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_PLAIN = frozenset({bool, float, bytes, type(None)})


def clean_value(value: Any, length_max: int | None, depth: int = 0) -> AttributeValue:
    """One value as str, bool, int, float, bytes, None, list or dict.

    Strings are cut to ``length_max`` characters at every level.  Raises ValueError where
    nesting passes DEPTH_MAX, and whatever the value's own conversion to text raises.
    """
    if isinstance(value, str):
        # A subclass, such as a member of a str Enum, becomes the text that it is.
        text = value if type(value) is str else str.__str__(value)
        return text if length_max is None else text[:length_max]
    if value is None or isinstance(value, bool | float | bytes):
        return value
    if isinstance(value, int | numbers.Integral):
        number = int(value)
        return number if INT64_MIN <= number <= INT64_MAX else str(number)
    if isinstance(value, numbers.Real):
        return float(value)
    return _clean_composite(value, length_max, depth)


def _clean_composite(value: Any, length_max: int | None, depth: int) -> AttributeValue:
    if depth >= DEPTH_MAX:
        raise ValueError("attribute value is nested too deeply")
    if isinstance(value, Mapping):
        return {
            str(key): clean_value(item, length_max, depth + 1) for key, item in value.items() if key
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
    if (
        (kind is str and length_max is None)
        or kind in _PLAIN
        or (kind is int and INT64_MIN <= value <= INT64_MAX)
    ):
        attributes[key] = value
        return True
    with guard("attribute value"):  # the value's own conversion may raise anything
        try:
            attributes[key] = clean_value(value, length_max)
        except (ValueError, TypeError, AttributeError, RuntimeError, LookupError, ArithmeticError):
            return False
        return True
    return False
