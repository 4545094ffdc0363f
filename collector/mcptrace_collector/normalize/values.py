"""From what emitters write to what the schema means: counts, texts, times, flags.

Pure and total: every function takes any attribute value and answers None for what it cannot
read; none raises.  Knows no attribute names.

Always true:
  * a count is an int from 0 to TOKENS_MAX, never a bool;
  * a duration is a finite float from 0 to DURATION_MS_MAX milliseconds;
  * a text is not blank and can be encoded as UTF-8.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta, timezone
from typing import TypeGuard

from mcptrace_proto.model import AttributeValue

# Beyond these a number is a mistake of unit or of sign, not a measurement.
TOKENS_MAX = 1_000_000_000
DURATION_MS_MAX = 31 * 24 * 3600 * 1000.0
# JSON inside an attribute is read up to here; usage objects have a few hundred characters.
JSON_CHARS_MAX = 65536

_WHOLE_NUMBER = re.compile(r"\s*[0-9]{1,19}(\.0*)?\s*")
_NUMBER = re.compile(r"\s*[0-9]{1,19}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def is_empty(value: AttributeValue) -> bool:
    """Whether an emitter said nothing: no value, a blank text, an empty array or map."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value in ([], {}, b"")


def count(value: AttributeValue) -> int | None:
    """A token count from an int, a whole double or a decimal text."""
    if isinstance(value, str):
        value = int(value.split(".")[0]) if _WHOLE_NUMBER.fullmatch(value) else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not _is_int(value) or not 0 <= value <= TOKENS_MAX:
        return None
    return value


def milliseconds(value: AttributeValue, scale: float) -> float | None:
    """A duration in milliseconds; ``scale`` is the milliseconds in one unit of ``value``."""
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value > DURATION_MS_MAX:  # no unit is smaller than a millisecond
        return None
    number = value * scale
    return number if math.isfinite(number) and 0.0 <= number <= DURATION_MS_MAX else None


def text(value: AttributeValue) -> str | None:
    """A text; of an array, or of an array written as JSON, the first text in it.

    Integers are written out: model versions and request ids are numbers at some emitters.
    """
    if isinstance(value, str) and value.startswith("["):
        parsed = parse_json(value)
        value = parsed if isinstance(parsed, list) else value
    if isinstance(value, list):
        return next((item for item in value if isinstance(item, str) and _is_text(item)), None)
    if _is_int(value):
        return str(value)
    return value if isinstance(value, str) and _is_text(value) else None


def flag(value: AttributeValue) -> bool | None:
    """A bool, or the words true and false."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def parse_json(value: AttributeValue) -> AttributeValue:
    """What a JSON text says; None for anything that is not JSON, and beyond JSON_CHARS_MAX."""
    if not isinstance(value, str) or len(value) > JSON_CHARS_MAX:
        return None
    try:
        parsed: AttributeValue = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed


def unix_nano(value: AttributeValue) -> int | None:
    """Nanoseconds since 1970 of an ISO 8601 time, quoted or not; without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    stamp = value.strip().strip('"')
    if stamp.endswith(("Z", "z")):
        stamp = stamp[:-1] + "+00:00"
    try:
        moment = datetime.fromisoformat(stamp)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // _MICROSECOND * 1000
    except (ValueError, OverflowError):
        return None


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: str) -> bool:
    if not value.strip():
        return False
    try:
        value.encode()  # JSON can spell half a surrogate pair, the wire cannot carry it
    except UnicodeEncodeError:
        return False
    return True
