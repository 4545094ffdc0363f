"""OTLP over HTTP to one destination, in protobuf.

Source: OTLP specification 1.11, "OTLP/HTTP" and its failures.

Always true: one call is one request within ``timeout_seconds``; redirects are not followed,
since spans and credentials go where the operator said and nowhere else.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping

import aiohttp

from mcptrace_collector.clock import Clock
from mcptrace_collector.config import TlsClientConfig
from mcptrace_collector.errors import Retryable

from .answers import (
    JSON,
    PROTOBUF,
    RESPONSE_BYTES_MAX,
    PartialSuccess,
    check_size,
    http_error,
    media_type,
)
from .tls import http_context

# Level 1 costs half of zlib's default and leaves few bytes more.
GZIP_LEVEL = 1
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
# Below this the event loop is held up for less than a thread costs.
COMPRESS_INLINE_BYTES_MAX = 32 * 1024


class OtlpHttpExporter:
    """Posts each body to ``url``, which is used as it is."""

    def __init__(
        self,
        destination: str,
        url: str,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        compression: str = "gzip",
        timeout_seconds: float = 10.0,
        tls: TlsClientConfig | None = None,
    ) -> None:
        self._url = url
        self._clock = clock
        self._gzip = compression == "gzip"
        # An inflated answer would have to be bounded too; a few bytes are not worth it.
        self._headers = {**(headers or {}), "Content-Type": PROTOBUF, "Accept-Encoding": "identity"}
        if self._gzip:
            self._headers["Content-Encoding"] = "gzip"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._tls = tls
        self._server_name = tls.server_name if tls is not None else None
        self._partial = PartialSuccess(destination, clock)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make the connection pool; nothing is connected yet.  Raises ConfigError."""
        connector = aiohttp.TCPConnector(ssl=http_context(self._tls))
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def export(self, body: bytes, spans: int) -> int:
        """Send once; see pipeline.Exporter."""
        check_size(body)
        if self._session is None:
            raise Retryable("the exporter is not running", 0.0)
        try:
            async with self._session.post(
                self._url,
                data=await self._encoded(body),
                headers=self._headers,
                allow_redirects=False,
                server_hostname=self._server_name,
            ) as answer:
                content = await _read(answer.content)
        except (aiohttp.ClientError, OSError) as error:
            raise Retryable(f"{type(error).__name__}: {error}", 0.0) from error
        except asyncio.TimeoutError as error:
            raise Retryable(f"no answer within {self._timeout.total} s", 0.0) from error
        if not 200 <= answer.status < 300:
            raise http_error(answer.status, answer.headers, content, self._clock)
        return self._partial.rejected(content, json=media_type(answer.headers) == JSON)

    async def shutdown(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _encoded(self, body: bytes) -> bytes:
        if not self._gzip:
            return body
        if len(body) <= COMPRESS_INLINE_BYTES_MAX:
            return _gzipped(body)
        return await asyncio.to_thread(_gzipped, body)


def _gzipped(body: bytes) -> bytes:
    stream = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return stream.compress(body) + stream.flush()


async def _read(content: aiohttp.StreamReader) -> bytes:
    """The answer's body, or its first part: what is beyond the limit is not read."""
    parts: list[bytes] = []
    size = 0
    while size < RESPONSE_BYTES_MAX and (part := await content.readany()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
