"""Real receivers on loopback sockets, read with the official OTLP messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from mcptrace.api import FinishedSpan
from mcptrace.guard import reraise_in_tests
from mcptrace_proto.model import Resource, Scope, SpanData


@pytest.fixture(autouse=True)
def _no_fault_hides() -> Iterator[None]:
    reraise_in_tests(True)
    yield
    reraise_in_tests(False)


@dataclass
class Scripted:
    """One answer of the HTTP receiver; ``hold`` keeps it back until set."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hold: threading.Event | None = None
    hang_up: bool = False


@dataclass
class HttpReceiver:
    """What came in over HTTP.  ``script`` is used up first; then everything is accepted."""

    endpoint: str = ""
    script: list[Scripted] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def requests(self) -> list[ExportTraceServiceRequest]:
        with self.lock:
            return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    def names(self) -> list[str]:
        """Names of all spans received, sorted."""
        return sorted(
            span.name
            for request in self.requests()
            for group in request.resource_spans
            for scope_spans in group.scope_spans
            for span in scope_spans.spans
        )

    def receive(self, handler: BaseHTTPRequestHandler) -> Scripted:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with self.lock:
            self.bodies.append(body)
            self.headers.append({key.lower(): value for key, value in handler.headers.items()})
            self.connections.add(handler.client_address)
            answer = self.script.pop(0) if self.script else Scripted()
        self.arrived.release()
        return answer


def _handler(receiver: HttpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer = receiver.receive(self)
            if answer.hold is not None:
                answer.hold.wait(30)
            if answer.hang_up:
                self.close_connection = True
                return
            self.send_response(answer.status)
            headers = {"Content-Type": "application/x-protobuf", **answer.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *args: object) -> None:
            return None

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the tests."""


@pytest.fixture
def http_server() -> Iterator[Callable[..., HttpReceiver]]:
    """Starts HTTP receivers; ``port`` 0 takes a free one, ``tls`` wraps the socket."""
    servers: list[_Server] = []

    def start(port: int = 0, tls: Any = None) -> HttpReceiver:
        receiver = HttpReceiver()
        server = _Server(("127.0.0.1", port), _handler(receiver))
        scheme = "http"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        receiver.endpoint = f"{scheme}://127.0.0.1:{server.server_address[1]}/v1/traces"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return receiver

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def http_receiver(http_server: Callable[..., HttpReceiver]) -> HttpReceiver:
    return http_server()


@dataclass
class GrpcReceiver:
    """What came in over gRPC.  ``script`` holds functions of (request, context)."""

    endpoint: str = ""
    script: list[Callable[[Any, Any], Any]] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)

    def names(self) -> list[str]:
        return sorted(
            span.name
            for request in self.requests
            for group in request.resource_spans
            for scope_spans in group.scope_spans
            for span in scope_spans.spans
        )

    def export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.script:
            return self.script.pop(0)(request, context)
        return ExportTraceServiceResponse()


@pytest.fixture
def grpc_server() -> Iterator[Callable[..., GrpcReceiver]]:
    """Starts gRPC receivers with the official servicer; ``port`` 0 takes a free one."""
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

    servers: list[Any] = []

    def start(port: int = 0, credentials: Any = None) -> GrpcReceiver:
        receiver = GrpcReceiver()

        class Servicer(service.TraceServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
                return receiver.export(request, context)

        server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        service.add_TraceServiceServicer_to_server(Servicer(), server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
        server.start()
        receiver.endpoint = f"{'https' if credentials else 'http'}://127.0.0.1:{bound}"
        servers.append(server)
        return receiver

    yield start
    for server in servers:
        server.stop(0).wait(5)


@pytest.fixture
def grpc_receiver(grpc_server: Callable[..., GrpcReceiver]) -> GrpcReceiver:
    return grpc_server()


@pytest.fixture
def finished() -> Callable[..., FinishedSpan]:
    """Makes finished spans of one resource and one scope."""
    resource = Resource({"service.name": "tests"})
    scope = Scope("tests", "1")
    counter = iter(range(1, 1 << 30))

    def make(name: str = "span", **fields: Any) -> FinishedSpan:
        number = next(counter)
        data = SpanData(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            kind=1,
            start_time_unix_nano=1_000_000_000,
            end_time_unix_nano=2_000_000_000,
            **fields,
        )
        return FinishedSpan(data, scope, resource)

    return make


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
