"""OTLP over HTTP: POST /v1/traces, in protobuf or JSON, plain or gzip.

    headers ─▶ path, method, type, encoding ─▶ body within time and bytes ─▶ Intake ─▶ answer

Knows the protocol and nothing of what becomes of a request.  Source: OTLP specification 1.11,
"OTLP/HTTP".

Always true:
  * a yes is sent after the intake has the request, never before;
  * every refusal is a google.rpc.Status in the request's own type;
  * no client can hold more than its reserved bytes, nor a connection in silence for longer than
    ``request_timeout_seconds`` before its first request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mcptrace_collector.config import TlsServerConfig, join_endpoint, parse_endpoint
from mcptrace_collector.errors import (
    BadRequest,
    CollectorError,
    ConfigError,
    RequestTooLarge,
    Retryable,
    UnsupportedMedia,
)
from mcptrace_collector.pipeline import Intake
from mcptrace_proto.json import encode_response_json, encode_status_json
from mcptrace_proto.wire import encode_response, encode_status

from .admission import BUSY_RETRY_SECONDS, ByteBudget, Reservation
from .inflate import GZIP, Inflater
from .refusal import (
    DEADLINE_EXCEEDED,
    MALFORMED,
    NO_SUCH_DOOR,
    NOT_FOUND,
    TIMEOUT,
    UNIMPLEMENTED,
    Refused,
    codes_of,
    delay_of,
    message_of,
    reason_of,
    uncounted,
)
from .tls import http_context

log = logging.getLogger(__name__)

TRANSPORT = "http"
SERVER_NAME = "mcptrace-collector"
TRACES_PATH = "/v1/traces"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
DEFAULT_MAX_REQUEST_BYTES = 64 * 1024 * 1024

HEADER_LINE_BYTES_MAX = 8190
HEADERS_MAX = 128
READ_BUFFER_BYTES = 256 * 1024
IDLE_SECONDS = 75.0  # an open connection between two requests
# A refused body is read and thrown away for so long, or the client would not see the answer.
LINGER_SECONDS = 2.0
LAST_WRITE_SECONDS = 1.0  # for writing answers that are ready when the doors close

if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _LoggerAdapter = logging.LoggerAdapter  # not generic at run time before Python 3.11

_IDENTITY = ("", "identity")
_GZIP = ("gzip", "x-gzip")  # RFC 9110 8.4.1.3: the second is the same as the first


class OtlpHttpReceiver:
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
        self._host, self._port = parse_endpoint("receivers.otlp_http.endpoint", endpoint)
        self._intake = intake
        self._budget = budget
        self._max_request_bytes = min(max_request_bytes, budget.limit)
        self._timeout_seconds = request_timeout_seconds
        self._tls = tls
        self._refused = refused
        self._runner: web.ServerRunner | None = None
        self._listener: asyncio.Server | None = None
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @property
    def endpoint(self) -> str:
        """``host:port`` as bound, once started."""
        return join_endpoint(self._host, self._port)

    async def start(self) -> None:
        """Bind and answer.  Raises ConfigError when that cannot be done."""
        context = http_context(self._tls) if self._tls is not None else None
        server = web.Server(
            self._handle,
            access_log=None,
            logger=_ProtocolLog(self._refused),
            auto_decompress=False,  # inflating is ours: aiohttp's has no limit on the total
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            max_line_size=HEADER_LINE_BYTES_MAX,
            max_field_size=HEADER_LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            read_bufsize=READ_BUFFER_BYTES,
        )
        runner = web.ServerRunner(server, shutdown_timeout=LAST_WRITE_SECONDS)
        await runner.setup()
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            protocol = server()
            deadline = loop.call_later(self._timeout_seconds, self._drop_silent, protocol)
            self._silent[protocol] = deadline
            return protocol

        try:
            self._listener = await loop.create_server(
                connection, self._host, self._port, ssl=context
            )
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(
                f"receivers.otlp_http.endpoint is {self.endpoint!r}, which cannot be listened "
                f"on: {error.strerror or error}; free it or choose another"
            ) from error
        self._runner = runner
        self._port = self._listener.sockets[0].getsockname()[1]

    async def shutdown(self, timeout_seconds: float) -> None:
        """Take nothing more, and let what is running finish within ``timeout_seconds``."""
        runner, self._runner = self._runner, None
        if runner is None or self._listener is None:
            return
        self._stopping = True
        self._listener.close()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout_seconds)
            for task in late:
                task.cancel()  # its client has no answer and will send again
        await runner.cleanup()
        for deadline in self._silent.values():
            deadline.cancel()
        self._silent.clear()

    def _drop_silent(self, connection: web.RequestHandler) -> None:
        """Close a connection that has not brought the headers of a request in its time."""
        del self._silent[connection]
        connection.force_close()

    # -- one request -------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (deadline := self._silent.pop(request.protocol, None)) is not None:
            deadline.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            answer = await self._answer(request)
            answer.headers["Server"] = SERVER_NAME
            return answer
        finally:
            self._running.discard(task)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != TRACES_PATH:
            self._refused(TRANSPORT, NO_SUCH_DOOR)
            text = f"there is nothing at {request.path[:200]}; traces are taken at {TRACES_PATH}"
            return _status(request, 404, NOT_FOUND, text)
        if request.method != "POST":
            self._refused(TRANSPORT, NO_SUCH_DOOR)
            refusal = _status(request, 405, UNIMPLEMENTED, f"{TRACES_PATH} takes POST only")
            refusal.headers["Allow"] = "POST"
            return refusal
        try:
            json = _speaks_json(request)
            with self._budget.reservation() as held:
                body = await self._body(request, held)
                admitted = await self._intake.consume(body, transport=TRANSPORT, json=json)
        except _TooSlow:
            self._refused(TRANSPORT, TIMEOUT)
            text = f"the body did not arrive within {self._timeout_seconds} s"
            refusal = _status(request, 408, DEADLINE_EXCEEDED, text)
            refusal.force_close()
            return refusal
        except CollectorError as error:
            self._refused(TRANSPORT, reason_of(error))
            return _refusal(request, error)
        encode = encode_response_json if json else encode_response
        answer = encode(admitted.rejected, admitted.message)
        return web.Response(body=answer, content_type=JSON if json else PROTOBUF)

    async def _body(self, request: web.BaseRequest, held: Reservation) -> bytes:
        """The inflated body.  Raises BadRequest, RequestTooLarge, UnsupportedMedia, Retryable."""
        if self._stopping:
            raise Retryable("the collector is stopping", BUSY_RETRY_SECONDS)
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in (*_IDENTITY, *_GZIP):
            raise UnsupportedMedia(
                f"Content-Encoding {encoding[:100]!r} is not spoken here; send gzip or identity"
            )
        if (request.content_length or 0) > self._max_request_bytes:
            raise self._too_large()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        read = self._inflated if encoding in _GZIP else self._plain
        try:
            return await asyncio.wait_for(read(request, held), self._timeout_seconds)
        except asyncio.TimeoutError:
            raise _TooSlow from None
        except web.RequestPayloadError as error:
            raise BadRequest(f"the body is not what its headers say: {error}") from None

    async def _plain(self, request: web.BaseRequest, held: Reservation) -> bytes:
        parts: list[bytes] = []
        while part := await request.content.readany():
            if held.held + len(part) > self._max_request_bytes:
                raise self._too_large()
            held.grow(len(part))
            parts.append(part)
        return b"".join(parts)

    async def _inflated(self, request: web.BaseRequest, held: Reservation) -> bytes:
        inflater = Inflater(GZIP, self._max_request_bytes, held.grow)
        received = 0
        while part := await request.content.readany():
            received += len(part)
            if received > self._max_request_bytes:
                raise self._too_large()
            inflater.feed(part)
        return inflater.finish()

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"the request is larger than {self._max_request_bytes} bytes")


class _ProtocolLog(_LoggerAdapter):
    """aiohttp's log without the tracebacks that any stranger could write with broken HTTP."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(log, {})
        self._refused = refused

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        fault = options.get("exc_info")
        if isinstance(fault, HttpProcessingError):
            self._refused(TRANSPORT, MALFORMED)
        else:
            super().log(level, msg, *args, **options)


class _TooSlow(Exception):
    """A body that did not arrive in time: HTTP has a code for it (408) that OTLP does not retry."""


def _speaks_json(request: web.BaseRequest) -> bool:
    """Whether the body is JSON, not protobuf.  Raises UnsupportedMedia for any other type."""
    if request.content_type in (PROTOBUF, JSON):
        return request.content_type == JSON
    raise UnsupportedMedia(
        f"Content-Type {request.content_type[:100]!r} is not spoken here; send {PROTOBUF} or {JSON}"
    )


def _refusal(request: web.BaseRequest, error: CollectorError) -> web.Response:
    codes, delay = codes_of(error), delay_of(error)
    refusal = _status(request, codes.http, codes.grpc, message_of(error), delay)
    if delay is not None:
        refusal.headers["Retry-After"] = str(max(1, math.ceil(delay)))
    if isinstance(error, UnsupportedMedia):
        refusal.headers["Accept-Encoding"] = GZIP  # RFC 9110 15.5.16
    return refusal


def _status(
    request: web.BaseRequest,
    http_code: int,
    rpc_code: int,
    message: str,
    retry_after_seconds: float | None = None,
) -> web.Response:
    """A google.rpc.Status as protobuf to those who speak it, as JSON to everybody else."""
    protobuf = request.content_type == PROTOBUF
    encode = encode_status if protobuf else encode_status_json
    return web.Response(
        status=http_code,
        body=encode(rpc_code, message, retry_after_seconds),
        content_type=PROTOBUF if protobuf else JSON,
    )
