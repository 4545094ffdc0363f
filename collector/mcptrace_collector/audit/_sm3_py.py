"""SM3 in plain Python (GB/T 32905-2016, ISO/IEC 10118-3): the readable twin.

The definition that the fast twin must agree with, and the fallback where the
interpreter's OpenSSL was built without SM3.  About a thousand times slower than OpenSSL.

Pure: knows nothing of files, logs or which twin is in use.
"""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 64
DIGEST_BYTES = 32

_WORD = 0xFFFFFFFF

# Section 4.1: the initial value.
_IV = (
    0x7380166F,
    0x4914B2B9,
    0x172442D7,
    0xDA8A0600,
    0xA96F30BC,
    0x163138AA,
    0xE38DEE4D,
    0xB0FB0E4E,
)


def _rotate(x: int, n: int) -> int:
    n %= 32
    return ((x << n) | (x >> (32 - n))) & _WORD


# Section 4.2: the round constants T_j, already rotated as round j uses them.
_T = tuple(_rotate(0x79CC4519 if j < 16 else 0x7A879D8A, j) for j in range(64))


def _p0(x: int) -> int:
    return x ^ _rotate(x, 9) ^ _rotate(x, 17)


def _p1(x: int) -> int:
    return x ^ _rotate(x, 15) ^ _rotate(x, 23)


def _blocks(data: bytes) -> Iterator[bytes]:
    """Section 5.2: the message, a one bit, zeros, and its length in bits as 64 bits."""
    zeros = -(len(data) + 9) % BLOCK_BYTES
    padded = data + b"\x80" + bytes(zeros) + (8 * len(data)).to_bytes(8, "big")
    for start in range(0, len(padded), BLOCK_BYTES):
        yield padded[start : start + BLOCK_BYTES]


def _expand(block: bytes) -> list[int]:
    """Section 5.3.2: sixteen words of message become sixty-eight."""
    w = [int.from_bytes(block[i : i + 4], "big") for i in range(0, BLOCK_BYTES, 4)]
    for j in range(16, 68):
        w.append(
            _p1(w[j - 16] ^ w[j - 9] ^ _rotate(w[j - 3], 15)) ^ _rotate(w[j - 13], 7) ^ w[j - 6]
        )
    return w


def _compress(v: tuple[int, ...], block: bytes) -> tuple[int, ...]:
    """Section 5.3.3: the compression function CF; the names are the standard's."""
    w = _expand(block)
    a, b, c, d, e, f, g, h = v
    for j in range(64):
        ss1 = _rotate((_rotate(a, 12) + e + _T[j]) & _WORD, 7)
        ss2 = ss1 ^ _rotate(a, 12)
        ff = a ^ b ^ c if j < 16 else (a & b) | (a & c) | (b & c)
        gg = e ^ f ^ g if j < 16 else (e & f) | (~e & _WORD & g)
        tt1 = (ff + d + ss2 + (w[j] ^ w[j + 4])) & _WORD
        tt2 = (gg + h + ss1 + w[j]) & _WORD
        a, b, c, d = tt1, a, _rotate(b, 9), c
        e, f, g, h = _p0(tt2), e, _rotate(f, 19), g
    return tuple(old ^ new for old, new in zip(v, (a, b, c, d, e, f, g, h), strict=True))


def sm3(data: bytes) -> bytes:
    """The 32-byte SM3 digest of ``data``."""
    v: tuple[int, ...] = _IV
    for block in _blocks(data):
        v = _compress(v, block)
    return b"".join(word.to_bytes(4, "big") for word in v)
