from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan
from mcptrace.config import ConfigError
from mcptrace.exporters import build_otlp_exporter
from mcptrace.exporters.otlp import OtlpExporter, encode_protobuf
from mcptrace.exporters.otlp_http import HttpTransport, tls_context
from mcptrace.retry import RetrySchedule
from mcptrace_proto.model import Event, Link, Resource, Scope, SpanData
from mcptrace_proto.wire import encode_response, encode_status

Make = Callable[..., FinishedSpan]
DELIVERED = ExportResult(ExportOutcome.DELIVERED)


Exporters = Callable[..., OtlpExporter]


@pytest.fixture
def exporter() -> Iterator[Exporters]:
    """Makes exporters whose backoff is ``wait_seconds`` each time."""
    made: list[OtlpExporter] = []

    def make(
        endpoint: str, wait_seconds: float = 0.0, request_bytes_max: int = 3_500_000, **options: Any
    ) -> OtlpExporter:
        out = OtlpExporter(
            HttpTransport(endpoint, **options),
            encode_protobuf,
            timeout_seconds=5.0,
            request_bytes_max=request_bytes_max,
            schedule=lambda: RetrySchedule(repeat(wait_seconds)),
        )
        made.append(out)
        return out

    yield make
    for out in made:
        out.shutdown()


def test_request_is_what_official_protobuf_reads(exporter: Exporters, http_receiver: Any) -> None:
    data = SpanData(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        parent_span_id=b"p" * 8,
        name="chat",
        kind=3,
        start_time_unix_nano=5,
        end_time_unix_nano=9,
        attributes={"a": "x", "b": 1, "c": [1.5, True], "d": None},
        events=[Event(7, "e", {"k": "v"})],
        links=[Link(b"T" * 16, b"S" * 8)],
        status_code=2,
        status_message="bad",
        trace_state="ot=th:8",
        flags=0x101,
    )
    span = FinishedSpan(data, Scope("scope", "1"), Resource({"service.name": "svc"}))
    result = exporter(http_receiver.endpoint, headers={"x-key": "v"}).export([span], 5.0)
    assert result == DELIVERED
    (request,) = http_receiver.requests()
    (group,) = request.resource_spans
    assert group.resource.attributes[0].value.string_value == "svc"
    (scope_spans,) = group.scope_spans
    assert (scope_spans.scope.name, scope_spans.scope.version) == ("scope", "1")
    (received,) = scope_spans.spans
    assert (received.name, received.trace_state, received.flags) == ("chat", "ot=th:8", 0x101)
    assert (received.status.code, received.status.message) == (2, "bad")
    assert received.attributes[2].value.array_value.values[1].bool_value is True
    headers = http_receiver.headers[0]
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["x-key"] == "v"
    assert "content-encoding" not in headers


def test_spans_are_grouped_by_resource_and_scope(exporter: Exporters, http_receiver: Any) -> None:
    first, second = Resource({"service.name": "1"}), Resource({"service.name": "2"})
    one, two = Scope("one"), Scope("two")
    spans = [
        FinishedSpan(SpanData(name=name), scope, resource)
        for name, scope, resource in [
            ("a", one, first),
            ("b", two, first),
            ("c", one, second),
            ("d", one, first),
        ]
    ]
    exporter(http_receiver.endpoint).export(spans, 5.0)
    shape = [
        [(s.scope.name, [span.name for span in s.spans]) for s in group.scope_spans]
        for group in http_receiver.requests()[0].resource_spans
    ]
    assert shape == [[("one", ["a", "d"]), ("two", ["b"])], [("one", ["c"])]]


def test_the_schema_of_a_scope_is_sent(exporter: Exporters, http_receiver: Any) -> None:
    span = FinishedSpan(SpanData(name="a"), Scope("one"), Resource(), "https://schema/1")
    exporter(http_receiver.endpoint).export([span], 5.0)
    (group,) = http_receiver.requests()[0].resource_spans
    assert [scope.schema_url for scope in group.scope_spans] == ["https://schema/1"]


def test_connection_is_kept_and_replaced_when_the_receiver_closed_it(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    out = exporter(http_receiver.endpoint)
    assert [out.export([finished("a")], 5.0), out.export([finished("b")], 5.0)] == [DELIVERED] * 2
    assert len(http_receiver.connections) == 1
    http_receiver.script = [scripted(headers={"Connection": "close"})]
    assert out.export([finished("c")], 5.0) == DELIVERED
    assert out.export([finished("d")], 5.0) == DELIVERED
    assert len(http_receiver.connections) == 2
    # A connection lost without an answer is one more try on a new one, without any wait.
    http_receiver.script = [scripted(hang_up=True)]
    assert out.export([finished("e")], 5.0) == DELIVERED
    assert http_receiver.names() == ["a", "b", "c", "d", "e", "e"]


def test_credentials_in_the_address_are_sent_and_never_logged(
    exporter: Exporters,
    http_receiver: Any,
    finished: Make,
    scripted: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    http_receiver.script = [scripted(400)]
    endpoint = http_receiver.endpoint.replace("http://", "http://us%40er:secret@") + "?token=secret"
    out = exporter(endpoint)
    out.export([finished()], 5.0)
    assert http_receiver.headers[0]["authorization"] == "Basic dXNAZXI6c2VjcmV0"
    (record,) = caplog.records
    assert http_receiver.endpoint in record.getMessage()
    assert "secret" not in record.getMessage()


def test_gzip_body_is_announced_and_readable(
    exporter: Exporters, http_receiver: Any, finished: Make
) -> None:
    spans = [finished(f"name-{number}") for number in range(100)]
    assert exporter(http_receiver.endpoint, compression="gzip").export(spans, 5.0) == DELIVERED
    headers = http_receiver.headers[0]
    assert headers["content-encoding"] == "gzip"
    assert int(headers["content-length"]) < len(http_receiver.bodies[0]) / 2
    assert len(http_receiver.names()) == 100


def test_json_protocol_sends_json_and_reads_its_partial_success(
    http_receiver: Any, finished: Make, scripted: Any
) -> None:
    body = json.dumps({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "m"}}).encode()
    http_receiver.script = [scripted(headers={"Content-Type": "application/json"}, body=body)]
    out = build_otlp_exporter("http/json", http_receiver.endpoint)
    result = out.export([finished("a"), finished("b")], 5.0)
    out.shutdown()
    assert result == ExportResult(ExportOutcome.DELIVERED, 1, "m")
    assert http_receiver.headers[0]["content-type"] == "application/json"
    groups = json.loads(http_receiver.bodies[0])["resourceSpans"]
    assert [span["name"] for span in groups[0]["scopeSpans"][0]["spans"]] == ["a", "b"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_retryable_status_is_sent_again(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any, status: int
) -> None:
    http_receiver.script = [scripted(status), scripted(status)]
    assert exporter(http_receiver.endpoint).export([finished("a")], 5.0) == DELIVERED
    assert http_receiver.names() == ["a", "a", "a"]


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 408, 415, 500, 501, 505])
def test_any_other_status_is_final(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any, status: int
) -> None:
    body = encode_status(3, "because")
    http_receiver.script = [scripted(status, {"Location": http_receiver.endpoint}, body)]
    result = exporter(http_receiver.endpoint).export([finished("a")], 5.0)
    assert result.outcome is ExportOutcome.REJECTED
    assert result.message.startswith(f"HTTP {status} ")
    assert result.message.endswith(": 'because'")
    assert http_receiver.names() == ["a"]


def test_retry_after_is_waited_for(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    http_receiver.script = [scripted(503, {"Retry-After": "1"})]
    began = time.monotonic()
    out = exporter(http_receiver.endpoint, wait_seconds=0.0)
    assert out.export([finished()], 5.0) == DELIVERED
    assert 1.0 <= time.monotonic() - began < 4.0


@pytest.mark.parametrize("after", ["3600", "Wed, 21 Oct 2115 07:28:00 GMT"])
def test_retry_after_beyond_the_deadline_gives_up_at_once(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any, after: str
) -> None:
    http_receiver.script = [scripted(429, {"Retry-After": after})]
    began = time.monotonic()
    result = exporter(http_receiver.endpoint).export([finished()], 30.0)
    assert result.outcome is ExportOutcome.EXHAUSTED
    assert time.monotonic() - began < 5.0


def test_partial_success_is_counted_and_not_sent_again(
    exporter: Exporters,
    http_receiver: Any,
    finished: Make,
    scripted: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    http_receiver.script = [scripted(body=encode_response(2, "no room"))] * 2
    out = exporter(http_receiver.endpoint)
    spans = [finished(), finished(), finished()]
    expected = ExportResult(ExportOutcome.DELIVERED, 2, "no room")
    assert [out.export(spans, 5.0), out.export(spans, 5.0)] == [expected] * 2
    assert len(http_receiver.bodies) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"mcptrace: {http_receiver.endpoint}: 2 spans refused: no room"
    ]


def test_success_with_a_body_that_is_no_answer_is_still_success(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    http_receiver.script = [
        scripted(headers={"Content-Type": "text/html"}, body=b"<p>ok"),
        scripted(status=202),
        scripted(body=b"\xff\xff"),
    ]
    out = exporter(http_receiver.endpoint)
    results = [out.export([finished()], 5.0) for _ in range(3)]
    assert results[:2] == [DELIVERED] * 2
    assert results[2].outcome is ExportOutcome.DELIVERED
    assert results[2].message.startswith("the answer cannot be read")


def test_answer_beyond_the_cap_is_not_kept(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    http_receiver.script = [scripted(headers={"Content-Type": "text/plain"}, body=b"x" * (5 << 20))]
    out = exporter(http_receiver.endpoint)
    assert [out.export([finished()], 5.0), out.export([finished()], 5.0)] == [DELIVERED] * 2
    assert len(http_receiver.connections) == 2


def test_too_large_batch_is_split_until_one_span_is_alone(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    http_receiver.script = [scripted(413), scripted(), scripted(413), scripted(413), scripted()]
    spans = [finished(name) for name in "abcd"]
    result = exporter(http_receiver.endpoint).export(spans, 5.0)
    assert (result.outcome, dict(result.dropped)) == (ExportOutcome.DELIVERED, {"oversize": 1})
    sizes = [
        [span.name for span in request.resource_spans[0].scope_spans[0].spans]
        for request in http_receiver.requests()
    ]
    assert sizes == [list("abcd"), ["a", "b"], ["c", "d"], ["c"], ["d"]]


def test_batch_over_the_own_limit_is_split_before_it_is_sent(
    exporter: Exporters, http_receiver: Any, finished: Make
) -> None:
    spans = [finished("x" * 1000) for _ in range(8)]
    out = exporter(http_receiver.endpoint, request_bytes_max=3000)
    assert out.export(spans, 5.0) == DELIVERED
    assert [len(body) < 3000 for body in http_receiver.bodies] == [True] * 4
    assert len(http_receiver.names()) == 8


def test_span_that_cannot_be_encoded_is_dropped_alone(
    exporter: Exporters, http_receiver: Any, finished: Make
) -> None:
    bad = finished("bad", attributes={"n": 1 << 70, "o": object()})
    spans = [finished("a"), bad, finished("b"), finished("c")]
    result = exporter(http_receiver.endpoint).export(spans, 5.0)
    assert (result.outcome, dict(result.dropped)) == (ExportOutcome.DELIVERED, {"encode": 1})
    assert http_receiver.names() == ["a", "b", "c"]


def test_parts_of_a_split_batch_are_counted_by_what_became_of_them(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    refusal = scripted(body=encode_response(1, "one"))
    http_receiver.script = [scripted(413), scripted(400), refusal]
    spans = [finished(name) for name in "abcd"]
    result = exporter(http_receiver.endpoint).export(spans, 5.0)
    assert result.outcome is ExportOutcome.DELIVERED
    assert (result.rejected_spans, dict(result.dropped)) == (1, {"rejected": 2})


def test_unreachable_receiver_is_retried_until_the_deadline_and_logged_once(
    exporter: Exporters, finished: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        out = exporter(f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces", wait_seconds=0.05)
        began = time.monotonic()
        result = out.export([finished()], 0.5)
        took = time.monotonic() - began
    assert result.outcome is ExportOutcome.EXHAUSTED
    assert "refused" in result.message
    assert took < 3.0
    assert len(caplog.records) == 1


def test_receiver_that_drips_its_answer_cannot_pass_the_deadline(
    exporter: Exporters, finished: Make
) -> None:
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while not stop.wait(0.05):
                connection.sendall(b"H" if stop.is_set() else b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        out = exporter(f"http://127.0.0.1:{listener.getsockname()[1]}/", wait_seconds=9.0)
        began = time.monotonic()
        result = out.export([finished()], 0.6)
        took = time.monotonic() - began
        stop.set()
        thread.join(5)
    assert result.outcome is ExportOutcome.EXHAUSTED
    assert took < 3.0


def test_shutdown_interrupts_a_request_in_flight(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    hold = threading.Event()
    http_receiver.script = [scripted(hold=hold)]
    out = exporter(http_receiver.endpoint)
    results: list[ExportResult] = []
    thread = threading.Thread(target=lambda: results.append(out.export([finished()], 30.0)))
    thread.start()
    assert http_receiver.arrived.acquire(timeout=10)
    out.shutdown()
    thread.join(10)
    hold.set()
    assert [result.outcome for result in results] == [ExportOutcome.EXHAUSTED]


def test_shutdown_interrupts_the_backoff(
    exporter: Exporters, http_receiver: Any, finished: Make, scripted: Any
) -> None:
    http_receiver.script = [scripted(503)]
    out = exporter(http_receiver.endpoint, wait_seconds=20.0)
    thread = threading.Thread(target=out.export, args=([finished()], 30.0))
    thread.start()
    assert http_receiver.arrived.acquire(timeout=10)
    out.shutdown()
    thread.join(10)
    assert not thread.is_alive()


def test_empty_batch_sends_nothing(exporter: Exporters, http_receiver: Any) -> None:
    assert exporter(http_receiver.endpoint).export([], 5.0) == DELIVERED
    assert http_receiver.bodies == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endpoint": "localhost:4318"}, "endpoint"),
        ({"endpoint": "ftp://host/"}, "endpoint"),
        ({"endpoint": "http://h/", "headers": {"bad name": "v"}}, "header name"),
        ({"endpoint": "http://h/", "headers": {"a": "b\r\nc"}}, "header 'a'"),
        ({"endpoint": "https://h/", "certificate": "/no/such.pem"}, "/no/such.pem"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build_otlp_exporter("http/protobuf", **options)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, used by server and client."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {folder}/key.pem "
        f"-out {folder}/cert.pem -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    return folder


def test_mutual_tls_delivers_and_a_client_without_certificate_does_not(
    exporter: Exporters, certificates: Path, http_server: Any, finished: Make
) -> None:
    cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(cert, key)
    server_tls.verify_mode = ssl.CERT_REQUIRED
    server_tls.load_verify_locations(cert)
    receiver = http_server(tls=server_tls)
    known = exporter(receiver.endpoint, tls=tls_context(cert, key, cert))
    assert known.export([finished("a")], 5.0) == DELIVERED
    unknown = exporter(receiver.endpoint, tls=tls_context(cert, "", ""), wait_seconds=9.0)
    assert unknown.export([finished("b")], 5.0).outcome is ExportOutcome.EXHAUSTED
    stranger = exporter(receiver.endpoint, tls=tls_context("", key, cert), wait_seconds=9.0)
    result = stranger.export([finished("c")], 5.0)
    assert (result.outcome, "certificate verify failed" in result.message) == (
        ExportOutcome.EXHAUSTED,
        True,
    )
    assert receiver.names() == ["a"]


def test_body_of_one_span_is_the_official_encoding(finished: Make) -> None:
    body = encode_protobuf([finished("a", attributes={"k": "v"})])
    assert ExportTraceServiceRequest.FromString(body).SerializeToString() == body
