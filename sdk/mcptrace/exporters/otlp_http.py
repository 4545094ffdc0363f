"""OTLP over HTTP/1.1 on one persistent connection, with the standard library only.

Always true:
  * redirects are not followed and no answer larger than RESPONSE_BYTES_MAX is kept;
  * connecting, sending and reading the answer share one deadline; only the name lookup
    cannot be interrupted.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from mcptrace.config import ConfigError
from mcptrace.exporters.otlp import RESPONSE_BYTES_MAX, Answer, Reply
from mcptrace_proto.errors import WireError
from mcptrace_proto.json import decode_response_json
from mcptrace_proto.retry import http_retryable, parse_retry_after
from mcptrace_proto.wire import decode_response, decode_status

GZIP_LEVEL = 1
"""Level 1 shrinks spans nearly as well as 6 at less than half the time."""
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MESSAGE_CHARS_MAX = 500

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpTransport:
    """Posts bodies of one content type to ``endpoint``, a full http or https address."""

    def __init__(
        self,
        endpoint: str,
        *,
        content_type: str = PROTOBUF,
        headers: Mapping[str, str] | None = None,
        compression: str = "none",
        tls: ssl.SSLContext | None = None,
        user_agent: str = "mcptrace",
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"endpoint={endpoint!r}: expected http://host:port/path or https")
        # What is logged: a password or a token in the query is not.
        where = parts.netloc.rpartition("@")[2]
        self.endpoint = f"{parts.scheme}://{where}{parts.path}"
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = None
        if parts.scheme == "https":
            self._tls = tls or ssl.create_default_context()
        self._gzip = compression == "gzip"
        self._headers = {"Content-Type": content_type, "User-Agent": user_agent}
        if self._gzip:
            self._headers["Content-Encoding"] = "gzip"
        if parts.username is not None:
            self._headers["Authorization"] = _basic(parts.username, parts.password or "")
        self._headers.update(_checked_headers(headers or {}))
        self._decode = decode_response_json if content_type == JSON else decode_response
        self._content_type = content_type
        self._connection: http.client.HTTPConnection | None = None
        self._sending = False
        self._closed = False

    def send(self, body: bytes, timeout_seconds: float) -> Answer:
        """Post once; a kept connection that the receiver had closed is replaced at once."""
        deadline = time.monotonic() + timeout_seconds
        payload = gzip.compress(body, GZIP_LEVEL, mtime=0) if self._gzip else body
        reused = self._connection is not None
        self._sending = True
        try:
            try:
                return self._exchange(payload, deadline)
            except (ConnectionError, http.client.BadStatusLine):
                if not reused or self._closed:
                    raise
                self._drop_connection()
                return self._exchange(payload, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError is what a TLS socket raises when close() shut it in the middle.
            self._drop_connection()
            return Answer(Reply.LATER, str(error) or type(error).__name__)
        finally:
            self._sending = False
            if self._closed:
                self._drop_connection()

    def reset_after_fork(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            # The descriptor only: an unwrap of TLS would speak on the parent's connection.
            connection.sock.close()

    def close(self) -> None:
        self._closed = True
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes a send that waits on it
        if not self._sending:
            self._drop_connection()

    def _exchange(self, payload: bytes, deadline: float) -> Answer:
        connection = self._connected(deadline)
        connection.sock.settimeout(_remaining(deadline))
        connection.request("POST", self._path, payload, self._headers)
        response = connection.getresponse()
        content = response.read(RESPONSE_BYTES_MAX + 1)
        if len(content) > RESPONSE_BYTES_MAX or response.will_close:
            self._drop_connection()
        return self._answer(response, content[:RESPONSE_BYTES_MAX])

    def _connected(self, deadline: float) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is None:
            timeout = _remaining(deadline)
            if self._tls is not None:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=timeout, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            connection.auto_open = 0
            self._connection = connection
            connection.connect()
        connection.response_class = _response_class(deadline)
        return connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def _answer(self, response: http.client.HTTPResponse, content: bytes) -> Answer:
        code = response.status
        if 200 <= code < 300:
            return self._taken(response, content)
        message = f"HTTP {code} {response.reason}{self._status_message(response, content)}"
        if code == http.client.REQUEST_ENTITY_TOO_LARGE:
            return Answer(Reply.TOO_LARGE, message)
        if http_retryable(code):
            wait = parse_retry_after(response.getheader("Retry-After"), time.time())
            return Answer(Reply.LATER, message, retry_after_seconds=wait)
        return Answer(Reply.NEVER, message)

    def _taken(self, response: http.client.HTTPResponse, content: bytes) -> Answer:
        """Success; the spans count as taken even where the body cannot be read."""
        if not content or not _is_type(response, self._content_type):
            return Answer(Reply.TAKEN)
        try:
            rejected, message = self._decode(content)
        except WireError as error:
            return Answer(Reply.TAKEN, f"the answer cannot be read: {error}")
        return Answer(Reply.TAKEN, message[:MESSAGE_CHARS_MAX], max(0, rejected))

    def _status_message(self, response: http.client.HTTPResponse, content: bytes) -> str:
        """The text of a google.rpc.Status, or of a plain body."""
        if _is_type(response, PROTOBUF):
            try:
                text = decode_status(content)[1]
            except WireError:
                return ""
        else:
            text = content[:MESSAGE_CHARS_MAX].decode("utf-8", "replace")
        return f": {text[:MESSAGE_CHARS_MAX]!r}" if text else ""


def tls_context(certificate: str, client_key: str, client_certificate: str) -> ssl.SSLContext:
    """Trust ``certificate`` (empty: the system's) and present the client's, if any.

    Raises ConfigError naming the files when they cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=certificate or None)
        if client_certificate:
            context.load_cert_chain(client_certificate, client_key or None)
    except (OSError, ValueError) as error:
        files = ", ".join(name for name in (certificate, client_certificate, client_key) if name)
        raise ConfigError(f"TLS files {files}: {error}") from error
    return context


class _DeadlineReader(io.RawIOBase):
    """A socket as a file whose reads all end by one deadline, however slowly bytes drip in."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_remaining(self._deadline))
        return self._sock.recv_into(buffer)


class _Borrowed:
    """What HTTPResponse wants of a socket: only makefile."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._reader = _DeadlineReader(sock, deadline)

    def makefile(self, mode: str) -> IO[bytes]:
        return io.BufferedReader(self._reader)


def _response_class(deadline: float) -> Any:
    """What http.client calls to read an answer; a class only in its annotations."""

    def build(sock: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
        borrowed: Any = _Borrowed(sock, deadline)
        return http.client.HTTPResponse(borrowed, *args, **kwargs)

    return build


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("no answer in time")
    return remaining


def _basic(user: str, password: str) -> str:
    pair = f"{unquote(user)}:{unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _is_type(response: http.client.HTTPResponse, content_type: str) -> bool:
    return (response.getheader("Content-Type") or "").split(";")[0].strip().lower() == content_type


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"header name {name!r} is not valid")
        if any(ord(char) < 32 or ord(char) > 255 for char in value):
            raise ConfigError(f"the value of header {name!r} has characters HTTP cannot carry")
    return dict(headers)
