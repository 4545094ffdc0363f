"""A third party's instrumentation on our provider, against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests
from opentelemetry.instrumentation.requests import RequestsInstrumentor

from mcptrace.testing import captured_spans


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(404 if self.path == "/missing" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return None

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", seen
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_requests_are_traced_and_carry_the_context(
    server: tuple[str, list[dict[str, str]]],
) -> None:
    address, seen = server
    instrumentor: Any = RequestsInstrumentor()
    with captured_spans() as capture:
        instrumentor.instrument(tracer_provider=capture.provider)
        try:
            with capture.tracer.start_as_current_span("page"):
                assert requests.get(address + "/ok", timeout=5).status_code == 200
                assert requests.get(address + "/missing", timeout=5).status_code == 404
        finally:
            instrumentor.uninstrument()
    ok, missing, page = capture.spans
    for data, headers in zip((ok, missing), seen, strict=True):
        assert data.parent_span_id == page.span_id
        assert data.kind == 3
        assert headers["traceparent"] == f"00-{data.trace_id.hex()}-{data.span_id.hex()}-03"
        assert headers["tracestate"] == "ot=th:0"
    assert (ok.status_code, missing.status_code) == (0, 2)
    assert missing.attributes["http.status_code"] == 404
    scope = capture.exporter.finished[0].scope
    assert scope.name == "opentelemetry.instrumentation.requests"
