"""Consistent probability sampling: thresholds, randomness and the ``ot`` entry of tracestate.

The arithmetic of the OpenTelemetry specification ("TraceState: Probability Sampling").  A
threshold T and a randomness R are integers of 56 bits, and a trace is kept iff R >= T, so two
parties with the same T agree without talking, and a lower T keeps a superset.

Always true:
  * what ``encode_threshold`` writes is the number that was compared: thresholds are rounded
    when they are made, never when they are written;
  * ``rv`` and sub-keys of others are carried on as they came; a malformed ``ot`` entry counts
    as absent and is not passed on.
"""

from __future__ import annotations

import re

RANDOM_BITS = 56
MAX = 1 << RANDOM_BITS
HEX_DIGITS = RANDOM_BITS // 4

DEFAULT_PRECISION = 4  # hex digits after the leading f's; the specification's default
OT_VALUE_CHARS_MAX = 256
TRACE_STATE_MEMBERS_MAX = 32  # W3C Trace Context, section 3.3.1.1

_VENDOR = "ot"
_TH = re.compile(r"[0-9a-f]{1,14}")
_RV = re.compile(r"[0-9a-f]{14}")
_SUB_KEY = re.compile(r"[a-z][a-z0-9]*")
_SUB_VALUE = re.compile(r"[A-Za-z0-9._-]*")


def threshold_from_probability(p: float, precision: int = DEFAULT_PRECISION) -> int:
    """The threshold for keeping a share ``p``, rounded to ``precision`` significant hex digits.

    Leading f digits do not count as significant, so the relative error of the share stays
    below 1/2000 at the default precision however small it is.  Raises ValueError outside
    2**-56 <= p <= 1 or 1 <= precision <= 14.
    """
    if not 1.0 / MAX <= p <= 1.0:
        raise ValueError(f"sampling probability {p!r} is not between 2**-56 and 1")
    if not 1 <= precision <= HEX_DIGITS:
        raise ValueError(f"threshold precision {precision!r} is not between 1 and {HEX_DIGITS}")
    # p * 2**56 is exact in a double; (1 - p) * 2**56 is not.
    threshold = MAX - round(p * MAX)
    leading = (MAX - 1) ^ threshold  # its highest set bit is the first bit that is not 1
    leading_f_digits = (RANDOM_BITS - leading.bit_length()) // 4
    dropped_bits = 4 * max(0, HEX_DIGITS - leading_f_digits - precision)
    if dropped_bits:
        threshold = (threshold + (1 << (dropped_bits - 1))) >> dropped_bits << dropped_bits
    return threshold


def probability(threshold: int) -> float:
    """The share that R >= ``threshold`` keeps."""
    return (MAX - threshold) / MAX


def adjusted_count(threshold: int) -> float:
    """How many traces one kept trace stands for: M / (M - T)."""
    return MAX / (MAX - threshold)


def encode_threshold(threshold: int) -> str:
    """The ``th`` value: 14 hex digits with trailing zeros dropped, and ``0`` for keep all."""
    if not 0 <= threshold < MAX:
        raise ValueError(f"threshold {threshold!r} is not within 56 bits")
    return f"{threshold:014x}".rstrip("0") or "0"


def parse_threshold(text: str) -> int | None:
    """The number in a ``th`` value, None when it is malformed.

    The pattern comes first because ``int(text, 16)`` also takes signs, ``0x`` and ``_``.
    """
    if _TH.fullmatch(text) is None:
        return None
    return int(text.ljust(HEX_DIGITS, "0"), 16)


def randomness(trace_id: bytes, trace_state: str) -> int:
    """R: the explicit ``rv`` when there is a valid one, else the low 56 bits of the trace id.

    The bits are presumed random whether or not the flag for it is set: the flag is lost by
    every propagator of the first Trace Context level.
    """
    if trace_state:
        text = (_sub_keys(trace_state) or {}).get("rv", "")
        if _RV.fullmatch(text) is not None:
            return int(text, 16)
    return int.from_bytes(trace_id[-7:], "big")


def ot_threshold(trace_state: str) -> int | None:
    """The threshold that an earlier stage applied, None when unknown."""
    if not trace_state:
        return None
    text = (_sub_keys(trace_state) or {}).get("th")
    return None if text is None else parse_threshold(text)


def with_threshold(trace_state: str, threshold: int | None) -> str:
    """``trace_state`` with ``th`` set, or erased when ``threshold`` is None.

    Only the ``ot`` member changes; it moves to the front, as W3C asks of a changed member.
    When it would pass 256 characters, sub-keys of others give way from the right; when the
    list would pass 32 members, the last one does.
    """
    members = _members(trace_state)
    others = [member for member in members if member.partition("=")[0] != _VENDOR]
    known = _sub_keys(trace_state)
    sub_keys = dict(known or {})
    before = sub_keys.pop("th", None)
    after = None if threshold is None else encode_threshold(threshold)
    if before == after and (known is not None or len(others) == len(members)):
        return trace_state
    value = _join_sub_keys(after, sub_keys)
    if value:
        others.insert(0, f"{_VENDOR}={value}")
    return ",".join(others[:TRACE_STATE_MEMBERS_MAX])


def _members(trace_state: str) -> list[str]:
    stripped = (member.strip(" \t") for member in trace_state.split(","))
    return [member for member in stripped if member]


def _sub_keys(trace_state: str) -> dict[str, str] | None:
    """The sub-keys of the ``ot`` member in order; None when it is absent or malformed."""
    if "ot=" not in trace_state:
        return None
    for member in _members(trace_state):
        key, separator, value = member.partition("=")
        if key == _VENDOR and separator:
            return _parse_sub_keys(value)
    return None


def _parse_sub_keys(value: str) -> dict[str, str] | None:
    if len(value) > OT_VALUE_CHARS_MAX:
        return None
    found: dict[str, str] = {}
    for pair in value.split(";"):
        key, separator, text = pair.partition(":")
        well_formed = separator and _SUB_KEY.fullmatch(key) and _SUB_VALUE.fullmatch(text)
        if not well_formed or key in found:
            return None
        found[key] = text
    return found


def _join_sub_keys(threshold: str | None, sub_keys: dict[str, str]) -> str:
    """``th`` first, then ``rv``, then the rest in the order they came, within the limit."""
    rest = dict(sub_keys)
    randomness_text = rest.pop("rv", None)
    pairs = [] if threshold is None else [f"th:{threshold}"]
    if randomness_text is not None:
        pairs.append(f"rv:{randomness_text}")
    fixed = len(pairs)
    pairs += [f"{key}:{text}" for key, text in rest.items()]
    while len(pairs) > fixed and len(";".join(pairs)) > OT_VALUE_CHARS_MAX:
        pairs.pop()
    return ";".join(pairs)
