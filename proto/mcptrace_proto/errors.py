"""Errors of the wire.

WireError
├── DecodeError(reason, position)   the bytes are not what they claim to be: never retry
└── TooLarge(what, size, limit)     a stated limit would be passed: never retry
"""

from __future__ import annotations


class WireError(ValueError):
    """Anything wrong with bytes that came from outside."""


class DecodeError(WireError):
    """Malformed protobuf or JSON.  ``position`` is the byte offset where it was noticed."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at byte {position}")
        self.reason = reason
        self.position = position


class TooLarge(WireError):
    """A named limit would be passed; ``size`` is what was seen so far, in bytes or items."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size}, over the limit of {limit}")
        self.what = what
        self.size = size
        self.limit = limit
