"""Decompression that cannot be made to fill the memory.

    feed(piece) ─▶ [zlib, INFLATE_STEP_BYTES of output at a time] ─▶ parts ─▶ finish()

No I/O.  Sources: RFC 1950 (deflate as HTTP and gRPC mean it: a zlib stream), RFC 1952 (gzip:
one or more members, end to end).

Always true: no more than ``limit`` bytes are kept, and at most one step beyond it is ever
inflated; every step is reported to ``reserve`` before the next begins.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, Literal

from mcptrace_collector.errors import BadRequest, RequestTooLarge

INFLATE_STEP_BYTES = 256 * 1024
# An honest gzip stream starts a new member for tens of kilobytes; a member costs a zlib state.
GZIP_MEMBERS_MAX = 4096

GZIP: Final = "gzip"
DEFLATE: Final = "deflate"
_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}


class Inflater:
    """One compressed body, fed as it arrives.

    ``limit`` bounds the inflated size in bytes; ``reserve`` is told of every growth and may
    raise to refuse it.
    """

    def __init__(
        self, encoding: Literal["gzip", "deflate"], limit: int, reserve: Callable[[int], None]
    ) -> None:
        self._encoding = encoding
        self._limit = limit
        self._reserve = reserve
        self._stream = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._members = 1
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Inflate one piece.

        Raises BadRequest for what is not such a stream, RequestTooLarge past the limit, and
        what ``reserve`` raises.
        """
        step_was_full = False
        while data or step_was_full:
            if self._stream.eof:
                self._next_member()
            try:
                part = self._stream.decompress(data, INFLATE_STEP_BYTES)
            except zlib.error as error:
                raise BadRequest(f"the body is not valid {self._encoding}: {error}") from None
            self._keep(part)
            step_was_full = len(part) == INFLATE_STEP_BYTES and not self._stream.eof
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def finish(self) -> bytes:
        """The whole body.  Raises BadRequest when the stream is not at its end."""
        if not self._stream.eof:
            raise BadRequest(f"the body is a truncated {self._encoding} stream")
        return b"".join(self._parts)

    def _next_member(self) -> None:
        self._members += 1
        if self._encoding != GZIP:
            raise BadRequest(f"there are bytes after the end of the {self._encoding} stream")
        if self._members > GZIP_MEMBERS_MAX:
            raise RequestTooLarge(f"the body has more than {GZIP_MEMBERS_MAX} gzip members")
        self._stream = zlib.decompressobj(_WINDOW_BITS[self._encoding])

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise RequestTooLarge(f"the request inflates to more than {self._limit} bytes")
        self._reserve(len(part))
        self._parts.append(part)
