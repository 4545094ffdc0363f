"""The Triton adapter on the real client against a real tritonserver with the Python backend."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mcptrace_triton
from mcptrace.testing import Capture, captured_spans
from mcptrace_proto import schema

# The client's and its libraries' deprecations are not ours to answer for.
pytestmark = [pytest.mark.needs_triton, pytest.mark.filterwarnings("ignore")]

STOP_SECONDS = 20
GRPC_TRIES = 25

# Doubles its input; a negative first number is an error, a large one takes that many seconds.
MODEL = """
import time

import triton_python_backend_utils as backend


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        numbers = backend.get_input_tensor_by_name(request, "NUMBERS").as_numpy()
        first = float(numbers.flat[0])
        if first < 0:
            error = backend.TritonError("negative numbers cannot be doubled")
            return backend.InferenceResponse(output_tensors=[], error=error)
        if first >= 1000:
            time.sleep(first / 1000)
        return backend.InferenceResponse([backend.Tensor("DOUBLED", numbers * 2)])
"""
MODEL_CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "NUMBERS" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "DOUBLED" data_type: TYPE_FP32 dims: [ 3 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


def _free_ports(count: int) -> list[int]:
    """Ports that were free together; tritonserver cannot tell which one it took for 0."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    log_file: Path
    http: str
    grpc: str

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log_file.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"http://{self.http}/v2/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _backends(packages: Path, directory: Path) -> Path:
    """The Python backend with the stub of this Python, which the wheel keeps elsewhere."""
    backends = directory / "backends"
    shutil.copytree(packages / "pytriton/tritonserver/backends", backends)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stubs = packages / "pytriton/tritonserver/python_backend_stubs"
    stub = backends / "python/triton_python_backend_stub"
    shutil.copy(stubs / version / stub.name, stub)
    stub.chmod(0o755)
    return backends


def _repository(directory: Path) -> Path:
    model = directory / "models/doubler"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(MODEL_CONFIG)
    (model / "1/model.py").write_text(MODEL)
    return model.parent


def _start(directory: Path, traces_url: str) -> Server:
    packages = Path(sysconfig.get_path("purelib"))
    directory.mkdir(exist_ok=True)
    http, grpc, metrics = _free_ports(3)
    tracing = [
        "mode=opentelemetry",
        f"opentelemetry,url={traces_url}",
        "opentelemetry,bsp_schedule_delay=100",
        "level=TIMESTAMPS",
        "rate=1",
    ]
    command = [
        str(packages / "pytriton/tritonserver/bin/tritonserver"),
        f"--model-repository={_repository(directory)}",
        f"--backend-directory={_backends(packages, directory)}",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc")),
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        f"--metrics-port={metrics}",
        "--allow-gpu-metrics=false",
        "--exit-timeout-secs=5",
        *(part for setting in tracing if traces_url for part in ("--trace-config", setting)),
    ]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    # The Python inside the backend finds this environment by PATH, and its own library and
    # those of the wheel by the loader's path.
    libraries = (packages / "nvidia_pytriton.libs", Path(sys.base_prefix) / "lib")
    environment["PATH"] = f"{Path(sys.prefix) / 'bin'}:{environment['PATH']}"
    environment["LD_LIBRARY_PATH"] = ":".join(str(library) for library in libraries)
    log_file = directory / "tritonserver.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    return Server(process, log_file, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


@pytest.fixture(scope="module")
def triton(framework: Callable[..., Any]) -> Any:
    framework("pytriton", "TRITON")
    return framework("tritonclient", "TRITON")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: Any, triton: Any) -> Iterator[Callable[[str], Server]]:
    running: list[Server] = []

    def start(traces_url: str = "") -> Server:
        running.append(_start(tmp_path_factory.mktemp("triton"), traces_url))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def quiet_server(servers: Callable[..., Server]) -> Server:
    """A server that makes no spans, for what only the client sees."""
    return servers()


@pytest.fixture
def server(quiet_server: Server, wait_until: Any) -> Server:
    wait_until(quiet_server.is_ready, "the server's start")
    return quiet_server


@pytest.fixture
def capture(triton: Any) -> Iterator[Capture]:
    with captured_spans() as captured:
        mcptrace_triton.install(captured.provider)
        yield captured
        mcptrace_triton.uninstall()


@pytest.fixture
def client(server: Server) -> Iterator[Callable[[str], Any]]:
    """``client("http")``: a synchronous client, closed at the end."""
    opened: list[Any] = []

    def connect(protocol: str, **options: Any) -> Any:
        module = importlib.import_module(f"tritonclient.{protocol}")
        opened.append(module.InferenceServerClient(getattr(server, protocol), **options))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def _inputs(protocol: str, first: float = 1) -> list[Any]:
    import numpy

    module = importlib.import_module(f"tritonclient.{protocol}")
    numbers = module.InferInput("NUMBERS", [1, 3], "FP32")
    numbers.set_data_from_numpy(numpy.array([[first, 2, 3]], dtype=numpy.float32))
    return [numbers]


def _doubled(result: Any) -> list[float]:
    numbers: list[float] = result.as_numpy("DOUBLED").ravel().tolist()
    return numbers


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_is_one_valid_client_span(
    protocol: str, client: Callable[..., Any], capture: Capture
) -> None:
    result = client(protocol).infer("doubler", _inputs(protocol))
    assert _doubled(result) == [2, 4, 6]
    (span,) = capture.spans
    view = schema.read_inference(span.attributes)
    assert (span.name, span.kind, span.status_code) == ("infer doubler", 3, 0)
    assert (view.model_name, view.model_version, view.operation) == ("doubler", "1", "infer")
    assert (view.provider, view.finish_reason) == ("triton", None)
    assert view.request_id == span.span_id.hex()
    assert view.token_usage.unknown == dict.fromkeys(schema.MANDATORY_COUNTS, "not_reported")
    assert {k: v for k, v in span.attributes.items() if k.startswith("mcptrace.triton.")} == {
        "mcptrace.triton.protocol": protocol,
        "mcptrace.triton.input_names": ["NUMBERS"],
        "mcptrace.triton.input_shape": [1, 3],
    }
    assert schema.validate(span, view) == []


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_callers_request_id_and_arguments_are_left_alone(
    protocol: str, client: Callable[..., Any], capture: Capture
) -> None:
    headers = {"X-Mine": "1"} if protocol == "http" else {"x-mine": "1"}
    before = dict(headers)
    result = client(protocol).infer(
        "doubler", _inputs(protocol), "1", None, "mine-7", headers=headers
    )
    response = result.get_response()
    answered = response["id"] if protocol == "http" else response.id
    (span,) = capture.spans
    assert (answered, headers) == ("mine-7", before)
    assert span.attributes["mcptrace.request_id"] == "mine-7"


@pytest.mark.parametrize(
    ("protocol", "asked", "status"),
    [
        ("http", ("doubler", -1), "500"),
        ("grpc", ("doubler", -1), "INTERNAL"),
        ("http", ("nobody", 1), "404"),
        ("grpc", ("nobody", 1), "NOT_FOUND"),
    ],
)
def test_a_failure_is_recorded_with_its_status_and_goes_on(
    protocol: str,
    asked: tuple[str, float],
    status: str,
    client: Callable[..., Any],
    capture: Capture,
) -> None:
    model, first = asked
    error_type = importlib.import_module("tritonclient.utils").InferenceServerException
    with pytest.raises(error_type):
        client(protocol).infer(model, _inputs(protocol, first))
    (span,) = capture.spans
    assert (span.status_code, span.attributes["error.type"]) == (2, status)
    assert span.attributes["mcptrace.finish_reason"] == "error"
    assert span.attributes["mcptrace.token_usage.unknown.output"] == "aborted"


def test_a_deadline_that_passed_is_a_timeout_over_grpc(
    client: Callable[..., Any], capture: Capture
) -> None:
    with pytest.raises(Exception, match="Deadline"):
        client("grpc").infer("doubler", _inputs("grpc", 1000), client_timeout=0.2)
    (span,) = capture.spans
    assert span.attributes["error.type"] == "DEADLINE_EXCEEDED"
    assert (span.status_code, span.attributes["mcptrace.finish_reason"]) == (2, "timeout")


def test_a_network_timeout_is_a_timeout_over_http(
    client: Callable[..., Any], capture: Capture
) -> None:
    with pytest.raises(TimeoutError):
        client("http", network_timeout=0.2).infer("doubler", _inputs("http", 1000))
    (span,) = capture.spans
    assert span.attributes["error.type"] == "TimeoutError"
    assert (span.status_code, span.attributes["mcptrace.finish_reason"]) == (2, "timeout")


def test_a_wrong_call_fails_as_without_the_adapter(
    client: Callable[..., Any], capture: Capture
) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        client("http").infer("doubler", _inputs("http"), colour="red")
    assert capture.spans == []


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_asyncio_clients_are_traced_under_the_current_span(
    protocol: str, server: Server, capture: Capture
) -> None:
    module = importlib.import_module(f"tritonclient.{protocol}.aio")

    async def ask() -> list[list[float]]:
        client = module.InferenceServerClient(getattr(server, protocol))
        assert asyncio.iscoroutinefunction(client.infer)
        with capture.tracer.start_as_current_span("page"):
            results = await asyncio.gather(
                *(client.infer("doubler", _inputs(protocol, first)) for first in (1, 5))
            )
            with pytest.raises(Exception, match="negative"):
                await client.infer("doubler", _inputs(protocol, -1))
        await client.close()
        return [_doubled(result) for result in results]

    assert asyncio.run(ask()) == [[2, 4, 6], [10, 4, 6]]
    *requests, page = capture.spans
    assert [span.name for span in requests] == ["infer doubler"] * 3
    assert {span.parent_span_id for span in requests} == {page.span_id}
    assert [span.status_code for span in requests] == [0, 0, 2]


def test_a_cancelled_asyncio_request_is_abandoned(server: Server, capture: Capture) -> None:
    module = importlib.import_module("tritonclient.grpc.aio")

    async def ask() -> None:
        client = module.InferenceServerClient(server.grpc)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.infer("doubler", _inputs("grpc", 1000)), 0.2)
        await client.close()

    asyncio.run(ask())
    (span,) = capture.spans
    assert span.attributes["mcptrace.finish_reason"] == "abandoned"


def test_the_callback_of_a_grpc_request_ends_its_span(
    client: Callable[..., Any], capture: Capture
) -> None:
    answers: list[tuple[Any, Any]] = []
    arrived = threading.Semaphore(0)

    def answered(result: Any, error: Any) -> None:
        answers.append((result, error))
        arrived.release()

    grpc = client("grpc")
    for first in (4, -1):
        grpc.async_infer("doubler", _inputs("grpc", first), answered)
        assert arrived.acquire(timeout=20)
    (result, none), (nothing, error) = answers
    assert (_doubled(result), none, nothing) == ([8, 4, 6], None, None)
    assert "negative" in str(error)
    good, bad = capture.spans
    assert (good.status_code, bad.status_code) == (0, 2)
    assert good.attributes["mcptrace.request_id"] == result.get_response().id == good.span_id.hex()
    assert bad.attributes["error.type"] == "INTERNAL"


def test_taking_the_result_of_an_http_request_ends_its_span(
    client: Callable[..., Any], capture: Capture
) -> None:
    handle_type = importlib.import_module("tritonclient.http").InferAsyncRequest
    request = client("http").async_infer("doubler", _inputs("http", 7))
    assert isinstance(request, handle_type)
    assert capture.spans == []
    assert _doubled(request.get_result()) == [14, 4, 6]
    assert [span.name for span in capture.spans] == ["infer doubler"]


def test_asking_too_early_for_the_result_of_an_http_request_is_no_failure(
    client: Callable[..., Any], capture: Capture
) -> None:
    request = client("http").async_infer("doubler", _inputs("http", 1000))
    with pytest.raises(Exception, match="failed to obtain"):
        request.get_result(block=False)
    assert capture.spans == []
    assert _doubled(request.get_result()) == [2000, 4, 6]
    assert [span.status_code for span in capture.spans] == [0]


def test_nothing_listening_is_a_recorded_failure(triton: Any, capture: Capture) -> None:
    module = importlib.import_module("tritonclient.http")
    client = module.InferenceServerClient(f"127.0.0.1:{_free_ports(1)[0]}")
    with pytest.raises(ConnectionRefusedError):
        client.infer("doubler", _inputs("http"))
    client.close()
    (span,) = capture.spans
    assert (span.status_code, span.attributes["error.type"]) == (2, "ConnectionRefusedError")


def test_installing_twice_makes_one_span_and_uninstalling_puts_everything_back(
    client: Callable[..., Any], triton: Any
) -> None:
    http = client("http")
    original = type(http).__dict__["infer"]
    with captured_spans() as captured:
        mcptrace_triton.install(captured.provider)
        mcptrace_triton.install(captured.provider)
        http.infer("doubler", _inputs("http"))
        mcptrace_triton.uninstall()
        mcptrace_triton.uninstall()
        assert type(http).__dict__["infer"] is original
        result = http.infer("doubler", _inputs("http"))
    assert len(captured.spans) == 1
    assert result.get_response().get("id", "") == ""


def test_under_a_patch_of_somebody_else_we_go_quiet_and_come_back_once(
    client: Callable[..., Any], triton: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client("http")
    asked: list[str] = []
    with captured_spans() as captured:
        mcptrace_triton.install(captured.provider)
        ours = type(http).infer

        def theirs(self: Any, model_name: str, *args: Any, **kwargs: Any) -> Any:
            asked.append(model_name)
            return ours(self, model_name, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(type(http), "infer", theirs)
            mcptrace_triton.uninstall()
            http.infer("doubler", _inputs("http"))
            assert captured.spans == []
            mcptrace_triton.install(captured.provider)
            http.infer("doubler", _inputs("http"))
        mcptrace_triton.uninstall()
    assert asked == ["doubler", "doubler"]
    assert len(captured.spans) == 1


def _attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }


@pytest.fixture
def tracing_server(
    servers: Callable[[str], Server],
    collector: Callable[..., Any],
    receiver: Any,
    wait_until: Any,
) -> Server:
    """A server that sends its spans through a collector to ``receiver``."""
    running = collector(
        exporters={
            "peer": {"type": "otlp_grpc", "endpoint": receiver.grpc_endpoint, "insecure": True}
        }
    )
    server = servers(f"http://{running.endpoint('otlp_http')}/v1/traces")
    wait_until(server.is_ready, "the server's start")
    return server


def _models(receiver: Any) -> list[Any]:
    """Triton's model spans that have arrived."""
    return [span for _, _, span in receiver.spans() if span.name == "doubler"]


def test_the_servers_spans_become_children_and_arrive_as_valid_inferences(
    tracing_server: Server, receiver: Any, wait_until: Any, capture: Capture
) -> None:
    module = importlib.import_module("tritonclient.http")
    client = module.InferenceServerClient(tracing_server.http)
    client.infer("doubler", _inputs("http"))
    client.close()
    (sent,) = capture.spans
    (model,) = wait_until(lambda: _models(receiver), "the model span")
    spans = {span.span_id: span for _, _, span in receiver.spans()}
    request = spans[model.parent_span_id]
    assert (request.name, request.parent_span_id) == ("InferRequest", sent.span_id)
    assert {model.trace_id, request.trace_id} == {sent.trace_id}
    found = _attributes(model)
    assert found["triton.request_id"] == sent.span_id.hex()
    assert found["mcptrace.protocol_version"] == "v2.3"
    assert found["mcptrace.model_name"] == "doubler"
    assert found["mcptrace.inference_latency_ms"] > 0
    assert found["mcptrace.token_usage.unknown.input"] == "not_reported"
    assert "mcptrace.schema.violations" not in found


def test_over_grpc_the_request_id_tells_whose_spans_they_are(
    tracing_server: Server, receiver: Any, wait_until: Any, capture: Capture
) -> None:
    # This server loses the context of some gRPC requests, as many as it likes; never the id.
    module = importlib.import_module("tritonclient.grpc")
    client = module.InferenceServerClient(tracing_server.grpc)
    for _ in range(GRPC_TRIES):
        client.infer("doubler", _inputs("grpc"))
    with capture.tracer.start_as_current_span("stream"):
        answers: list[tuple[Any, Any]] = []
        client.start_stream(lambda result, error: answers.append((result, error)))
        for _ in range(GRPC_TRIES):
            client.async_stream_infer("doubler", _inputs("grpc"))
        client.stop_stream()
    client.close()
    assert [_doubled(result) for result, _ in answers] == [[2, 4, 6]] * GRPC_TRIES
    *sent, stream = capture.spans
    models = wait_until(
        lambda: len(found := _models(receiver)) == 2 * GRPC_TRIES and found, "the model spans"
    )
    asked = {span.span_id.hex(): span for span in sent}
    named = {_attributes(span).get("triton.request_id", ""): span for span in models}
    assert named.keys() - {""} == asked.keys()
    assert any(named[name].trace_id == span.trace_id for name, span in asked.items())
    assert any(model.trace_id == stream.trace_id for model in models)
