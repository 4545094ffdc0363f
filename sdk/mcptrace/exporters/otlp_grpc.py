"""OTLP over gRPC, with bytes that we encoded ourselves; grpcio is imported when built.

Always true:
  * after RECONNECT_AFTER answers UNAVAILABLE in a row the channel is a new one, so that a
    receiver that came back at another address is found;
  * a forked child never touches its parent's channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcptrace.config import ConfigError
from mcptrace.exporters.otlp import RESPONSE_BYTES_MAX, Answer, Reply
from mcptrace_proto.errors import WireError
from mcptrace_proto.retry import GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE, grpc_retryable
from mcptrace_proto.wire import decode_response, decode_status

if TYPE_CHECKING:
    import grpc

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
STATUS_DETAILS = "grpc-status-details-bin"
RECONNECT_AFTER = 3
DEFAULT_PORT = 4317
NO_SCHEME = (
    " (an endpoint without a scheme is TLS: for plain text put http:// before it or set "
    "OTEL_EXPORTER_OTLP_INSECURE=true)"
)
SPLIT_BYTES_MIN = 64 * 1024
"""RESOURCE_EXHAUSTED says "too large" and "quota" alike; no receiver's limit is below this."""


class GrpcTransport:
    """Calls Export with raw bytes.  ``endpoint``: http(s)://host:port or a gRPC target.

    ``insecure`` counts where the endpoint names no scheme: without it that is TLS, on loopback
    too, as the specification has it.  Raises ConfigError when grpcio is missing or a TLS file
    cannot be read.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        compression: str = "none",
        certificate: str = "",
        client_key: str = "",
        client_certificate: str = "",
        insecure: bool = False,
        user_agent: str = "mcptrace",
    ) -> None:
        try:
            import grpc
        except ImportError:
            raise ConfigError(
                "protocol 'grpc' needs grpcio: install mcptrace[grpc], or use http/protobuf"
            ) from None
        self._grpc = grpc
        self.endpoint = endpoint
        self._target, secure = _target(endpoint, insecure)
        self._credentials: Any = None
        self._remedy = NO_SCHEME if secure and "://" not in endpoint else ""
        if secure:
            self._credentials = grpc.ssl_channel_credentials(
                _read(certificate), _read(client_key), _read(client_certificate)
            )
        self._metadata = [(name.lower(), value) for name, value in (headers or {}).items()]
        self._compression = (
            grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression
        )
        self._options = [
            ("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),
            ("grpc.primary_user_agent", user_agent),
        ]
        self._channel: grpc.Channel | None = None
        self._call: Any = None
        self._unavailable_in_a_row = 0
        self._of_parents: list[object] = []
        self._closed = False

    def send(self, body: bytes, timeout_seconds: float) -> Answer:
        if self._closed:
            return Answer(Reply.LATER, "closed")
        if self._channel is None:
            self._connect()
        try:
            reply = self._call(
                body,
                timeout=timeout_seconds,
                metadata=self._metadata,
                compression=self._compression,
            )
        except self._grpc.RpcError as error:
            return self._failure(error, len(body))
        except ValueError as error:  # the channel was closed by close()
            return Answer(Reply.LATER, str(error))
        self._unavailable_in_a_row = 0
        try:
            rejected, message = decode_response(reply)
        except WireError as error:
            return Answer(Reply.TAKEN, f"the answer cannot be read: {error}")
        return Answer(Reply.TAKEN, message, max(0, rejected))

    def reset_after_fork(self) -> None:
        # Kept, for ever: to close or to free it would talk to threads that are not here.
        self._of_parents += [self._channel, self._call]
        self._channel = self._call = None
        self._unavailable_in_a_row = 0

    def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _connect(self) -> None:
        grpc = self._grpc
        if self._credentials is None:
            self._channel = grpc.insecure_channel(self._target, self._options)
        else:
            self._channel = grpc.secure_channel(self._target, self._credentials, self._options)
        self._call = self._channel.unary_unary(METHOD, None, None)

    def _failure(self, error: Any, body_bytes: int) -> Answer:
        code: int = error.code().value[0]
        message = f"gRPC {error.code().name}: {error.details()}"
        if "handshake" in message.lower():
            message += self._remedy
        if code == GRPC_UNAVAILABLE:
            self._unavailable_in_a_row += 1
            if self._unavailable_in_a_row >= RECONNECT_AFTER and self._channel is not None:
                self._channel.close()
                self._channel = self._call = None
                self._unavailable_in_a_row = 0
        else:
            self._unavailable_in_a_row = 0
        wait = _retry_info(error.trailing_metadata())
        if grpc_retryable(code, wait is not None):
            return Answer(Reply.LATER, message, retry_after_seconds=wait)
        if code == GRPC_RESOURCE_EXHAUSTED and body_bytes > SPLIT_BYTES_MIN:
            return Answer(Reply.TOO_LARGE, message)
        return Answer(Reply.NEVER, message)


def _target(endpoint: str, insecure: bool) -> tuple[str, bool]:
    """The gRPC target, and whether TLS is wanted (OTLP exporter specification, "insecure")."""
    if endpoint.startswith(("http://", "https://")):
        parts = urlsplit(endpoint)
        if not parts.hostname:
            raise ConfigError(f"endpoint={endpoint!r}: expected http://host:port")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{host}:{parts.port or DEFAULT_PORT}", parts.scheme == "https"
    return endpoint, not insecure


def _retry_info(metadata: Any) -> float | None:
    """The delay in seconds that a receiver asked for."""
    for name, value in metadata or ():
        if name == STATUS_DETAILS and isinstance(value, bytes):
            try:
                return decode_status(value)[2]
            except WireError:
                return None
    return None


def _read(name: str) -> bytes | None:
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS file {name}: {error.strerror}") from error
