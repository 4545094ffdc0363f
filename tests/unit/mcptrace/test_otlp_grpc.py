from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan
from mcptrace.config import ConfigError
from mcptrace.exporters import build_otlp_exporter
from mcptrace.exporters.otlp import OtlpExporter, Reply, encode_protobuf
from mcptrace.exporters.otlp_grpc import NO_SCHEME, RECONNECT_AFTER, GrpcTransport
from mcptrace.retry import RetrySchedule
from mcptrace_proto.wire import encode_status

Make = Callable[..., FinishedSpan]
Exporters = Callable[..., OtlpExporter]
DELIVERED = ExportResult(ExportOutcome.DELIVERED)


@pytest.fixture
def exporter() -> Iterator[Exporters]:
    """Makes exporters whose backoff is ``wait_seconds`` each time."""
    made: list[OtlpExporter] = []

    def make(endpoint: str, wait_seconds: float = 0.0, **options: Any) -> OtlpExporter:
        out = OtlpExporter(
            GrpcTransport(endpoint, **options),
            encode_protobuf,
            timeout_seconds=5.0,
            schedule=lambda: RetrySchedule(repeat(wait_seconds)),
        )
        made.append(out)
        return out

    yield make
    for out in made:
        out.shutdown()


def fails(code: grpc.StatusCode, details: bytes | None = None) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        if details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, "because")

    return answer


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_spans_and_metadata_arrive(
    exporter: Exporters, grpc_receiver: Any, finished: Make, compression: str
) -> None:
    out = exporter(grpc_receiver.endpoint, headers={"X-Key": "v"}, compression=compression)
    assert out.export([finished("a"), finished("b")], 5.0) == DELIVERED
    assert grpc_receiver.names() == ["a", "b"]
    assert grpc_receiver.metadata[0]["x-key"] == "v"


def test_status_codes_follow_the_table(
    exporter: Exporters, grpc_receiver: Any, finished: Make
) -> None:
    out = exporter(grpc_receiver.endpoint)
    retried = []
    for code in grpc.StatusCode:
        if code is grpc.StatusCode.OK:
            continue
        grpc_receiver.script = [fails(code)]
        result = out.export([finished()], 5.0)
        if result == DELIVERED:
            retried.append(code.name)
        else:
            assert result == ExportResult(
                ExportOutcome.REJECTED, message=f"gRPC {code.name}: because"
            )
    assert sorted(retried) == [
        "ABORTED",
        "CANCELLED",
        "DATA_LOSS",
        "DEADLINE_EXCEEDED",
        "OUT_OF_RANGE",
        "UNAVAILABLE",
    ]


def test_resource_exhausted_is_retried_only_with_retry_info(
    exporter: Exporters, grpc_receiver: Any, finished: Make
) -> None:
    later = encode_status(8, "slow down", 0.05)
    grpc_receiver.script = [fails(grpc.StatusCode.RESOURCE_EXHAUSTED, later)]
    out = exporter(grpc_receiver.endpoint, wait_seconds=60.0)
    assert out.export([finished()], 5.0) == DELIVERED
    assert len(grpc_receiver.requests) == 2


def test_retry_info_beyond_the_deadline_gives_up_at_once(
    exporter: Exporters, grpc_receiver: Any, finished: Make
) -> None:
    later = encode_status(14, "slow down", 3600.0)
    grpc_receiver.script = [fails(grpc.StatusCode.UNAVAILABLE, later)]
    result = exporter(grpc_receiver.endpoint).export([finished()], 5.0)
    assert result.outcome is ExportOutcome.EXHAUSTED
    assert len(grpc_receiver.requests) == 1


def test_batch_too_large_for_the_server_is_split(
    exporter: Exporters, grpc_receiver: Any, finished: Make
) -> None:
    grpc_receiver.script = [fails(grpc.StatusCode.RESOURCE_EXHAUSTED)] * 2
    spans = [finished(name + "x" * 40_000) for name in "abcd"]
    result = exporter(grpc_receiver.endpoint).export(spans, 5.0)
    assert (result.outcome, dict(result.dropped)) == (ExportOutcome.DELIVERED, {})
    sizes = [
        len(request.resource_spans[0].scope_spans[0].spans) for request in grpc_receiver.requests
    ]
    assert sizes == [4, 2, 1, 1, 2]


def test_partial_success_is_reported(
    exporter: Exporters, grpc_receiver: Any, finished: Make
) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=1, error_message="m")
    grpc_receiver.script = [lambda *_: ExportTraceServiceResponse(partial_success=partial)]
    result = exporter(grpc_receiver.endpoint).export([finished(), finished()], 5.0)
    assert result == ExportResult(ExportOutcome.DELIVERED, 1, "m")


def test_new_channel_after_unavailable_in_a_row(grpc_server: Any, finished: Make) -> None:
    first = grpc_server()
    transport = GrpcTransport(first.endpoint)
    body = encode_protobuf([finished("a")])
    first.script = [fails(grpc.StatusCode.UNAVAILABLE)] * RECONNECT_AFTER
    channels = []
    for _ in range(RECONNECT_AFTER):
        assert transport.send(body, 5.0).reply is Reply.LATER
        channels.append(transport._channel)
    assert channels[0] is channels[1] is not None
    assert channels[2] is None
    assert transport.send(body, 5.0).reply is Reply.TAKEN
    transport.close()


def test_unreachable_receiver_is_given_up_at_the_deadline(
    exporter: Exporters, finished: Make
) -> None:
    out = exporter("http://127.0.0.1:1", wait_seconds=0.05)
    result = out.export([finished()], 0.5)
    assert result.outcome is ExportOutcome.EXHAUSTED
    assert result.message.startswith("gRPC UNAVAILABLE")


def test_shutdown_ends_a_call_in_flight(grpc_receiver: Any, finished: Make) -> None:
    transport = GrpcTransport(grpc_receiver.endpoint)

    def close_meanwhile(request: Any, context: Any) -> Any:
        transport.close()
        return ExportTraceServiceResponse()

    grpc_receiver.script = [close_meanwhile]
    assert transport.send(encode_protobuf([finished()]), 30.0).reply is Reply.LATER
    assert transport.send(encode_protobuf([finished()]), 30.0).message == "closed"


def test_tls_delivers_and_plain_text_does_not(
    tmp_path: Path, grpc_server: Any, exporter: Exporters, finished: Make
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {cert} "
        "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())], cert.read_bytes(), require_client_auth=True
    )
    receiver = grpc_server(credentials=credentials)
    known = exporter(
        receiver.endpoint,
        certificate=str(cert),
        client_key=str(key),
        client_certificate=str(cert),
    )
    assert known.export([finished("a")], 5.0) == DELIVERED
    plain = exporter(receiver.endpoint.replace("https", "http"), wait_seconds=9.0)
    assert plain.export([finished("b")], 2.0).outcome is ExportOutcome.EXHAUSTED
    assert receiver.names() == ["a"]


@pytest.mark.parametrize(
    ("endpoint", "insecure", "expected"),
    [
        ("http://collector", False, ("collector:4317", False)),
        ("https://collector:1", True, ("collector:1", True)),
        ("http://[::1]:5", False, ("[::1]:5", False)),
        ("collector:4317", False, ("collector:4317", True)),
        ("collector:4317", True, ("collector:4317", False)),
        ("unix:/run/otlp.sock", True, ("unix:/run/otlp.sock", False)),
    ],
)
def test_scheme_decides_about_tls_before_insecure(
    endpoint: str, insecure: bool, expected: tuple[str, bool]
) -> None:
    transport = GrpcTransport(endpoint, insecure=insecure)
    assert (transport._target, transport._credentials is not None) == expected


@pytest.mark.parametrize(("scheme", "named"), [("", True), ("https://", False)])
def test_failed_handshake_without_a_scheme_names_the_remedy(
    grpc_receiver: Any, scheme: str, named: bool
) -> None:
    target = grpc_receiver.endpoint.removeprefix("http://")
    transport = GrpcTransport(scheme + target)
    answer = transport.send(b"", 5.0)
    transport.close()
    assert answer.reply is Reply.LATER
    assert "andshake failed" in answer.message
    assert (NO_SCHEME in answer.message) == named


def test_unreadable_tls_file_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match=r"/no/such\.pem"):
        build_otlp_exporter("grpc", "https://h:1", certificate="/no/such.pem")


def test_missing_grpcio_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigError, match=r"mcptrace\[grpc\]"):
        build_otlp_exporter("grpc", "http://h:1")


FORK_SCRIPT = textwrap.dedent("""
    import os, sys
    from mcptrace.api import FinishedSpan
    from mcptrace.exporters import build_otlp_exporter
    from mcptrace_proto.model import Resource, Scope, SpanData

    def span(name):
        data = SpanData(trace_id=b"t" * 16, span_id=b"s" * 8, name=name)
        return FinishedSpan(data, Scope(), Resource())

    out = build_otlp_exporter("grpc", sys.argv[1])
    print(out.export([span("parent")], 10.0).outcome)
    child = os.fork()
    if child == 0:
        outcome = out.export([span("child")], 10.0).outcome
        os._exit(0 if outcome.value == "delivered" else 1)
    _, status = os.waitpid(child, 0)
    print(out.export([span("parent again")], 10.0).outcome, status)
    out.shutdown()
""")


def test_child_of_a_fork_exports_on_a_channel_of_its_own(grpc_receiver: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_SCRIPT, grpc_receiver.endpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split("\n")[:2]) == (
        0,
        ["ExportOutcome.DELIVERED", "ExportOutcome.DELIVERED 0"],
    ), done.stderr
    assert grpc_receiver.names() == ["child", "parent", "parent again"]
