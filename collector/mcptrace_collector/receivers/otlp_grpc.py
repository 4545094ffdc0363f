"""OTLP over gRPC: TraceService/Export on raw bytes, and the standard health check.

    headers ─▶ reserve ─▶ message within time ─▶ inflate ─▶ Intake ─▶ answer

Export is served as a stream of one message, which is the same on the wire: so the handler
runs before the message is read, and can say no, or stop waiting, first.  gRPC's own
decompression is switched off, since it happens where nobody counts the bytes against the
budget; a message is recognised by its first bytes instead.  An ExportTraceServiceRequest
cannot begin with those of gzip (1f: no such wire type) and does not begin with those of zlib
(78: field 15, which OTLP has not).

Always true: a yes is sent after the intake has the request, never before; a request never
inflates past ``max_request_bytes``.

Sources: OTLP specification 1.11, "OTLP/gRPC"; gRPC health checking protocol (health.proto).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal, NoReturn, TypeAlias

import grpc

from mcptrace_collector.config import TlsServerConfig, join_endpoint, parse_endpoint
from mcptrace_collector.errors import BadRequest, CollectorError, ConfigError
from mcptrace_collector.pipeline import Intake
from mcptrace_proto.wire import encode_response, encode_status

from .admission import ByteBudget, Reservation
from .inflate import DEFLATE, GZIP, Inflater
from .refusal import (
    DEADLINE_EXCEEDED,
    TIMEOUT,
    Refused,
    codes_of,
    delay_of,
    message_of,
    reason_of,
    uncounted,
)
from .tls import grpc_credentials

TRANSPORT = "grpc"
TRACE_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
HEALTH_SERVICE = "grpc.health.v1.Health"
STATUS_DETAILS = "grpc-status-details-bin"
DEFAULT_MAX_REQUEST_BYTES = 64 * 1024 * 1024

# While gRPC assembles a message its size is not known here, so every call in that state holds
# what peers send at most unless told otherwise, and the true size afterwards.
ASSEMBLING_BYTES = 4 * 1024 * 1024
# A small budget must still let some calls in at a time.
ASSEMBLING_CALLS_MIN = 8

KEEPALIVE_MILLISECONDS = 60_000
KEEPALIVE_TIMEOUT_MILLISECONDS = 20_000
CLIENT_PING_INTERVAL_MILLISECONDS = 10_000
STREAMS_PER_CONNECTION_MAX = 128
METADATA_BYTES_MAX = 16 * 1024

# HealthCheckRequest has one field (1, service); HealthCheckResponse too (1, status; 1 SERVING).
_SERVING = b"\x08\x01"
_WHOLE_SERVER = (b"", b"\x0a\x00")
_TRACE_SERVER = b"\x0a" + bytes([len(TRACE_SERVICE)]) + TRACE_SERVICE.encode()

_STATUS = {code.value[0]: code for code in grpc.StatusCode}

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class OtlpGrpcReceiver:
    """One listening address; ``start`` binds it, ``shutdown`` may be called at any time."""

    def __init__(
        self,
        endpoint: str,
        intake: Intake,
        budget: ByteBudget,
        *,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        request_timeout_seconds: float = 30.0,
        tls: TlsServerConfig | None = None,
        refused: Refused = uncounted,
    ) -> None:
        self._host, self._port = parse_endpoint("receivers.otlp_grpc.endpoint", endpoint)
        self._intake = intake
        self._budget = budget
        self._max_request_bytes = min(max_request_bytes, budget.limit)
        self._assembling_bytes = min(
            ASSEMBLING_BYTES, self._max_request_bytes, budget.limit // ASSEMBLING_CALLS_MIN
        )
        self._timeout_seconds = request_timeout_seconds
        self._tls = tls
        self._refused = refused
        self._server: grpc.aio.Server | None = None

    @property
    def endpoint(self) -> str:
        """``host:port`` as bound, once started."""
        return join_endpoint(self._host, self._port)

    async def start(self) -> None:
        """Bind and answer.  Raises ConfigError when that cannot be done."""
        server = grpc.aio.server(options=self._options())
        export = grpc.stream_unary_rpc_method_handler(self._export)
        check = grpc.unary_unary_rpc_method_handler(_check_health)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(TRACE_SERVICE, {"Export": export}),
                grpc.method_handlers_generic_handler(HEALTH_SERVICE, {"Check": check}),
            )
        )
        try:
            if self._tls is not None:
                port = server.add_secure_port(self.endpoint, grpc_credentials(self._tls))
            else:
                port = server.add_insecure_port(self.endpoint)
        except RuntimeError as error:  # grpcio's way to say that it cannot bind
            raise ConfigError(
                f"receivers.otlp_grpc.endpoint is {self.endpoint!r}, which cannot be listened "
                f"on; free it or choose another"
            ) from error
        await server.start()
        self._server = server
        self._port = port

    async def shutdown(self, timeout_seconds: float) -> None:
        """Take nothing more, and let what is running finish within ``timeout_seconds``."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(timeout_seconds)

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.so_reuseport", 0),  # two collectors on one port would share its requests
            ("grpc.per_message_decompression", 0),
            ("grpc.max_receive_message_length", self._max_request_bytes),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
            ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
            ("grpc.keepalive_permit_without_calls", 1),
            (
                "grpc.http2.min_ping_interval_without_data_ms",
                CLIENT_PING_INTERVAL_MILLISECONDS,
            ),
        ]

    # -- one request -------------------------------------------------------------------------

    async def _export(self, messages: AsyncIterator[bytes], context: _Context) -> bytes:
        try:
            with self._budget.reservation() as held:
                body = await self._body(messages, held)
                admitted = await self._intake.consume(body, transport=TRANSPORT, json=False)
        except _TooSlow:
            self._refused(TRANSPORT, TIMEOUT)
            text = f"the request did not arrive within {self._timeout_seconds} s"
            await _abort(context, DEADLINE_EXCEEDED, text)
        except CollectorError as error:
            self._refused(TRANSPORT, reason_of(error))
            await _abort(context, codes_of(error).grpc, message_of(error), delay_of(error))
        return encode_response(admitted.rejected, admitted.message)

    async def _body(self, messages: AsyncIterator[bytes], held: Reservation) -> bytes:
        """The inflated message.  Raises BadRequest, RequestTooLarge or Retryable."""
        held.grow(self._assembling_bytes)
        try:
            message = await asyncio.wait_for(_first(messages), self._timeout_seconds)
        except asyncio.TimeoutError:
            raise _TooSlow from None
        held.release()
        if message is None:
            raise BadRequest("there is no message in the call")
        held.grow(len(message))
        encoding = compression_of(message)
        if encoding is None:
            return message
        inflater = Inflater(encoding, self._max_request_bytes, held.grow)
        inflater.feed(message)
        return inflater.finish()


class _TooSlow(Exception):
    """A message that did not arrive in time."""


async def _first(messages: AsyncIterator[bytes]) -> bytes | None:
    """The first message of a call, None when it ends without one."""
    async for message in messages:
        return message
    return None


def compression_of(message: bytes) -> Literal["gzip", "deflate"] | None:
    """How a message is compressed, by the bytes that no ExportTraceServiceRequest begins with."""
    if message[:2] == b"\x1f\x8b":
        return GZIP
    # RFC 1950 2.2: method 8, window 7, and the two bytes as a number are a multiple of 31.
    if message[:1] == b"\x78" and len(message) > 1 and int.from_bytes(message[:2], "big") % 31 == 0:
        return DEFLATE
    return None


async def _check_health(request: bytes, context: _Context) -> bytes:
    """Health/Check: this server serves, and so does its trace service."""
    if request not in (*_WHOLE_SERVER, _TRACE_SERVER):
        await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
    return _SERVING


async def _abort(
    context: _Context, code: int, message: str, retry_after_seconds: float | None = None
) -> NoReturn:
    details = encode_status(code, message, retry_after_seconds)
    await context.abort(_STATUS[code], message, ((STATUS_DETAILS, details),))
    raise AssertionError("abort always raises")
