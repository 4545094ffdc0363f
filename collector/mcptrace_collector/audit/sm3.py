"""Which SM3 is used: OpenSSL's through hashlib, or the readable twin.

OpenSSL can be built without SM3 and refuses it in FIPS mode, so its answer is believed
only after it has reproduced the standard's own example.  The twin is correct but about a
thousand times slower; falling back to it is said once, loudly.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Final

from mcptrace_collector.audit import _sm3_py

DIGEST_BYTES: Final = 32
ABC_DIGEST: Final = bytes.fromhex(  # GB/T 32905-2016, appendix A.1
    "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
)

_logger = logging.getLogger(__name__)


def openssl_sm3(name: str = "sm3") -> Callable[[bytes], bytes] | None:
    """hashlib's SM3, or None where it is missing or does not pass the known answer."""
    try:
        prototype = hashlib.new(name)
    except ValueError:
        return None

    def digest(data: bytes) -> bytes:
        state = prototype.copy()  # a copy costs half of a look-up by name
        state.update(data)
        return state.digest()

    return digest if digest(b"abc") == ABC_DIGEST else None


def choose(fast: Callable[[bytes], bytes] | None) -> Callable[[bytes], bytes]:
    """``fast`` if there is one, else the readable twin and a warning."""
    if fast is not None:
        return fast
    _logger.warning(
        "this Python's OpenSSL has no working SM3: the audit log uses a pure Python twin, "
        "about 1000 times slower; install a Python whose OpenSSL provides sm3"
    )
    return _sm3_py.sm3


sm3: Final[Callable[[bytes], bytes]] = choose(openssl_sm3())
