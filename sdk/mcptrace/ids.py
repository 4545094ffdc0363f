"""Trace and span ids from the operating system's randomness, a few hundred at a time.

Python's ``random`` is left alone: a program that seeds it would repeat our ids, and we would
disturb its sequence.  All 56 low bits of a trace id are uniform, as consistent sampling and
the W3C random flag ask.
"""

from __future__ import annotations

import os
import struct
from typing import Protocol

WORDS_PER_REFILL = 256
_unpack = struct.Struct(f"<{WORDS_PER_REFILL}Q").unpack


class IdSource(Protocol):
    """Where ids come from.  Called from any thread."""

    def trace_id(self) -> int:
        """128 bits, not zero."""

    def span_id(self) -> int:
        """64 bits, not zero."""

    def reset_after_fork(self) -> None:
        """Forget what the parent process might use as well."""


class RandomIds:
    """Ids of a process.  ``list.pop`` is atomic, so no two threads get the same word."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: list[int] = []

    def span_id(self) -> int:
        while True:
            try:
                word = self._words.pop()
            except IndexError:
                # Two threads may both refill; one set of words is then thrown away unused.
                self._words = list(_unpack(os.urandom(8 * WORDS_PER_REFILL)))
                continue
            if word:
                return word

    def trace_id(self) -> int:
        return self.span_id() << 64 | self.span_id()

    def reset_after_fork(self) -> None:
        self._words = []
