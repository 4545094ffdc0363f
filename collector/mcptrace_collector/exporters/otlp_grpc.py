"""OTLP over gRPC to one destination, with bytes that are encoded already.

Source: OTLP specification 1.11, "OTLP/gRPC" and its failures.

Always true: one call is one request within ``timeout_seconds``; after RECONNECT_AFTER answers
UNAVAILABLE in a row the channel is a new one, so that a receiver that came back at another
address is found; calls under way on the old one are not cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from mcptrace_collector.clock import Clock
from mcptrace_collector.config import TlsClientConfig
from mcptrace_collector.errors import Retryable
from mcptrace_proto.retry import GRPC_UNAVAILABLE

from .answers import RESPONSE_BYTES_MAX, PartialSuccess, check_size, grpc_error
from .tls import grpc_credentials

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
STATUS_DETAILS = "grpc-status-details-bin"
RECONNECT_AFTER = 3
RECONNECT_MILLISECONDS, RECONNECT_MILLISECONDS_MAX = 500, 5_000


class OtlpGrpcExporter:
    """Calls Export at ``target``, a ``host:port``."""

    def __init__(
        self,
        destination: str,
        target: str,
        *,
        clock: Clock,
        plaintext: bool = False,
        headers: Mapping[str, str] | None = None,
        compression: str = "gzip",
        timeout_seconds: float = 10.0,
        tls: TlsClientConfig | None = None,
    ) -> None:
        self._target = target
        self._plaintext = plaintext
        self._metadata = tuple((name.lower(), value) for name, value in (headers or {}).items())
        self._compression = (
            grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression
        )
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._partial = PartialSuccess(destination, clock)
        self._credentials: grpc.ChannelCredentials | None = None
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None  # grpc-stubs cannot say "no serializer"
        self._unavailable_in_a_row = 0
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Make the channel; it connects with the first call.  Raises ConfigError."""
        if not self._plaintext:
            self._credentials = grpc_credentials(self._tls)
        self._connect()

    async def export(self, body: bytes, spans: int) -> int:
        """Send once; see pipeline.Exporter."""
        check_size(body)
        if self._channel is None:
            raise Retryable("the exporter is not running", 0.0)
        try:
            answer: bytes = await self._call(
                body,
                timeout=self._timeout_seconds,
                metadata=self._metadata,
                compression=self._compression,
            )
        except grpc.aio.AioRpcError as error:
            code: int = error.code().value[0]
            self._note_unavailable(code == GRPC_UNAVAILABLE)
            details = _details(error.trailing_metadata())
            raise grpc_error(code, error.details() or "", details, len(body)) from error
        self._note_unavailable(False)
        return self._partial.rejected(answer)

    async def shutdown(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _connect(self) -> None:
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),
            # Channels of one process to one target share connections unless told not to.
            ("grpc.use_local_subchannel_pool", 1),
            # The sender waits between attempts; gRPC must not wait up to two minutes on top.
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MILLISECONDS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MILLISECONDS_MAX),
        ]
        if self._tls is not None and self._tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(self._target, options)
        else:
            channel = grpc.aio.secure_channel(self._target, self._credentials, options)
        self._channel = channel
        self._call = channel.unary_unary(METHOD, None, None)

    def _note_unavailable(self, unavailable: bool) -> None:
        self._unavailable_in_a_row = self._unavailable_in_a_row + 1 if unavailable else 0
        if self._unavailable_in_a_row < RECONNECT_AFTER or self._channel is None:
            return
        self._unavailable_in_a_row = 0
        old = self._channel
        self._connect()
        closing = asyncio.create_task(old.close(self._timeout_seconds), name="close channel")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _details(metadata: Iterable[Any] | None) -> bytes | None:
    """The serialised google.rpc.Status of an answer."""
    for name, value in metadata or ():
        if name == STATUS_DETAILS and isinstance(value, bytes):
            return value
    return None
