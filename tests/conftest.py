"""Real peers for the end-to-end and crash tests: a collector process and stock OTLP receivers.

The receivers are built from the official opentelemetry-proto messages and grpcio's own
servicer, so nothing of ours judges ours.
"""

from __future__ import annotations

import gzip
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

DEADLINE_SECONDS = 20.0


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Poll a real event until it is there, or fail saying what never came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen within {seconds} s")


class StockReceiver:
    """An OTLP receiver over gRPC and HTTP/protobuf that keeps every request."""

    def __init__(self) -> None:
        self.requests: list[service_pb2.ExportTraceServiceRequest] = []
        self._lock = threading.Lock()
        receiver = self

        class Servicer(service_grpc.TraceServiceServicer):  # type: ignore[misc]
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
                receiver.keep(request)
                return service_pb2.ExportTraceServiceResponse()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.keep(service_pb2.ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._grpc = grpc.server(futures.ThreadPoolExecutor(4))
        service_grpc.add_TraceServiceServicer_to_server(Servicer(), self._grpc)
        self.grpc_endpoint = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.http_endpoint = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def keep(self, request: service_pb2.ExportTraceServiceRequest) -> None:
        with self._lock:
            self.requests.append(request)

    def spans(self) -> list[tuple[Any, Any, trace_pb2.Span]]:
        """Every span received, as (resource, scope, span)."""
        with self._lock:
            requests = list(self.requests)
        return [
            (resource_spans.resource, scope_spans.scope, span)
            for request in requests
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]

    def stop(self) -> None:
        self._grpc.stop(0).wait()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class CollectorProcess:
    """`mcptrace-collector run` as a process of its own, on free ports."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.directory = directory
        self.config_file = directory / "collector.yaml"
        self.log_file = directory / "collector.log"
        directory.mkdir(parents=True, exist_ok=True)
        base: dict[str, Any] = {
            "data_dir": str(directory / "data"),
            "receivers": {
                "otlp_grpc": {"endpoint": "127.0.0.1:0"},
                "otlp_http": {"endpoint": "127.0.0.1:0"},
            },
            "admin": {"endpoint": "127.0.0.1:0"},
            "sampling": {"enabled": False, "settle_seconds": 0.1, "decision_wait_seconds": 0.5},
        }
        for key, value in settings.items():
            base[key] = {**base[key], **value} if isinstance(base.get(key), dict) else value
        self.config_file.write_text(json.dumps(base))  # JSON is YAML
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def start(self) -> CollectorProcess:
        command = ["-m", "mcptrace_collector", "run", "--config", str(self.config_file)]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        wait_for(self._ready, "the collector's start")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the collector ended with {self.process.returncode}:\n{self.log()}")
        return "mcptrace-collector is ready" in self.log()

    def log(self) -> str:
        return self.log_file.read_text()

    def endpoint(self, name: str) -> str:
        """``host:port`` of otlp_grpc, otlp_http or admin."""
        match = re.search(rf"{name} listens on (\S+)", self.log())
        assert match, self.log()
        return match[1]

    def get(self, path: str) -> bytes:
        url = f"http://{self.endpoint('admin')}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            content: bytes = answer.read()
            return content

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/status"))
        return found

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """``wait_until(condition)`` gives the first true value of ``condition()``, or fails."""
    return lambda condition, what="the expected event", seconds=DEADLINE_SECONDS: wait_for(
        condition, what, seconds
    )


@pytest.fixture
def receiver() -> Iterator[StockReceiver]:
    stock = StockReceiver()
    yield stock
    stock.stop()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Callable[..., CollectorProcess]]:
    """Start collectors with given settings; whatever still runs at the end is killed."""
    running: list[CollectorProcess] = []

    def start(**settings: Any) -> CollectorProcess:
        process = CollectorProcess(tmp_path / f"collector{len(running)}", settings)
        running.append(process)
        return process.start()

    yield start
    for process in running:
        if process.process is not None and process.process.poll() is None:
            process.kill()
