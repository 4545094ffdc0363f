"""What every client of a receiver may rely on, and what no client can do to it.

Real servers on loopback; clients are raw sockets, grpcio and the stock exporters.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcptrace_collector.errors import CollectorError, Retryable
from mcptrace_collector.pipeline import Admitted
from mcptrace_collector.receivers import (
    ByteBudget,
    OtlpGrpcReceiver,
    OtlpHttpReceiver,
    admit,
    admit_json,
)

KIB, MIB = 1024, 1024 * 1024
MAX_REQUEST_BYTES = MIB
# Tests that wait for a receiver to lose its patience, and all others.
SHORT_SECONDS, PATIENT_SECONDS = 0.3, 30.0
DEADLINE_SECONDS = 15.0
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass
class KeepingIntake:
    """Admits as the collector does, and keeps; ``fault`` is raised instead when set."""

    admitted: list[tuple[str, Admitted]] = field(default_factory=list)
    fault: CollectorError | None = None
    gate: asyncio.Event | None = None

    async def consume(self, body: bytes, *, transport: str, json: bool) -> Admitted:
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        admitted = admit_json(body) if json else admit(body)
        self.admitted.append((transport, admitted))
        return admitted

    @property
    def names(self) -> list[str]:
        return [record.data.name for _, admitted in self.admitted for record in admitted.records]


@dataclass
class Doors:
    http: OtlpHttpReceiver
    grpc: OtlpGrpcReceiver
    intake: KeepingIntake
    budget: ByteBudget
    refused: list[tuple[str, str]]


@asynccontextmanager
async def open_doors(
    budget_bytes: int = 64 * MIB, timeout_seconds: float = PATIENT_SECONDS
) -> AsyncIterator[Doors]:
    """Both receivers on one intake and one budget; at the end nothing may be held of it."""
    intake, budget = KeepingIntake(), ByteBudget(budget_bytes)
    refused: list[tuple[str, str]] = []
    kinds = (OtlpHttpReceiver, OtlpGrpcReceiver)
    http, grpc_receiver = (
        kind(
            "127.0.0.1:0",
            intake,
            budget,
            max_request_bytes=MAX_REQUEST_BYTES,
            request_timeout_seconds=timeout_seconds,
            refused=lambda transport, reason: refused.append((transport, reason)),
        )
        for kind in kinds
    )
    assert isinstance(http, OtlpHttpReceiver)
    assert isinstance(grpc_receiver, OtlpGrpcReceiver)
    await http.start()
    await grpc_receiver.start()
    try:
        yield Doors(http, grpc_receiver, intake, budget, refused)
        assert budget.used == 0
    finally:
        await http.shutdown(5.0)
        await grpc_receiver.shutdown(5.0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60.0))


def request(name: str = "span", **fields: Any) -> service_pb2.ExportTraceServiceRequest:
    message = service_pb2.ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    span.name, span.trace_id, span.span_id = name, b"\1" * 16, b"\2" * 8
    for key, value in fields.items():
        setattr(span, key, value)
    return message


GOOD = request().SerializeToString()


# -- HTTP by raw socket ----------------------------------------------------------------------


@dataclass
class Answer:
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> tuple[int, str]:
        """The google.rpc.Status, read by the official message or by json."""
        if self.headers["content-type"] == PROTOBUF:
            message = status_pb2.Status.FromString(self.body)
            return message.code, message.message
        found = json.loads(self.body)
        return found["code"], found["message"]


async def speak(endpoint: str, data: bytes) -> Answer | None:
    """Send bytes as they are and read one answer; None when the server hangs up without one."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        return await asyncio.wait_for(_read_answer(reader), DEADLINE_SECONDS)
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> Answer | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(first.split()[1]), headers, body)


def post(
    body: bytes = b"", *, path: str = "/v1/traces", method: str = "POST", **headers: str | None
) -> bytes:
    """An HTTP request; a header given as None is left out."""
    fields: dict[str, str | None] = {
        "Host": "localhost",
        "Content_Type": PROTOBUF,
        "Content_Length": str(len(body)),
        **headers,
    }
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{k.replace('_', '-')}: {v}" for k, v in fields.items() if v is not None]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_http_answers_in_the_type_of_the_request() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            as_json = json.dumps(
                {
                    "resourceSpans": [
                        {"scopeSpans": [{"spans": [{"traceId": "01" * 16, "spanId": "02" * 8}]}]}
                    ]
                }
            ).encode()
            for data, content_type, body in (
                (post(GOOD), PROTOBUF, b""),
                (post(), PROTOBUF, b""),
                (post(Content_Length=None), PROTOBUF, b""),
                (post(gzip.compress(GOOD), Content_Encoding="gzip"), PROTOBUF, b""),
                (post(GOOD, Content_Encoding="identity"), PROTOBUF, b""),
                (post(as_json, Content_Type=JSON), JSON, b"{}"),
                (post(as_json, Content_Type="application/json; charset=utf-8"), JSON, b"{}"),
                (
                    post(gzip.compress(as_json), Content_Type=JSON, Content_Encoding="GZIP"),
                    JSON,
                    b"{}",
                ),
            ):
                answer = await speak(doors.http.endpoint, data)
                assert answer is not None
                assert (answer.code, answer.body) == (200, body)
                assert answer.headers["content-type"] == content_type
            assert len(doors.intake.admitted) == 8
            assert {transport for transport, _ in doors.intake.admitted} == {"http"}
            assert doors.refused == []

    run(test)


def test_http_takes_a_body_in_chunks_and_after_expect_continue() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            head = post(Content_Length=None, Transfer_Encoding="chunked")
            chunks = b"".join(b"%x\r\n%s\r\n" % (1, bytes([byte])) for byte in GOOD)
            answer = await speak(doors.http.endpoint, head + chunks + b"0\r\n\r\n")
            assert answer is not None
            assert answer.code == 200
            expecting = post(GOOD, Expect="100-continue")
            answer = await speak(doors.http.endpoint, expecting)
            assert answer is not None
            assert answer.code == 100
            assert doors.intake.names[0] == "span"

    run(test)


def test_partial_success_names_what_was_refused() -> None:
    wrong = request(span_id=b"\3")
    wrong.MergeFrom(request("kept"))

    async def test() -> None:
        async with open_doors() as doors:
            answer = await speak(doors.http.endpoint, post(wrong.SerializeToString()))
            assert answer is not None
            assert answer.code == 200
            over_http = service_pb2.ExportTraceServiceResponse.FromString(answer.body)
            over_grpc = service_pb2.ExportTraceServiceResponse.FromString(
                await call(doors, wrong.SerializeToString())
            )
            for response in (over_http, over_grpc):
                partial = response.partial_success
                assert partial.rejected_spans == 1
                assert partial.error_message == "span refused: span_id has 1 bytes, not 8"
            assert doors.intake.names == ["kept", "kept"]

    run(test)


BOMB = gzip.compress(bytes(100 * MIB))
LARGE = bytes(MAX_REQUEST_BYTES + 1)

# (what the client does, the code it gets, the google.rpc.Code in the body, words of its message)
HOSTILE_HTTP: dict[str, tuple[bytes, int, int, str]] = {
    "malformed protobuf": (post(b"abc"), 400, 3, "not OTLP protobuf"),
    "malformed JSON": (post(b"{", Content_Type=JSON), 400, 3, "not OTLP/JSON"),
    "protobuf said to be JSON": (post(GOOD, Content_Type=JSON), 400, 3, "not OTLP/JSON"),
    "wrong content type": (post(GOOD, Content_Type="text/plain"), 415, 12, "'text/plain'"),
    "no content type": (post(GOOD, Content_Type=None), 415, 12, "is not spoken here"),
    "unknown encoding": (post(GOOD, Content_Encoding="br"), 415, 12, "send gzip"),
    "stacked encodings": (post(GOOD, Content_Encoding="gzip, gzip"), 415, 12, "send gzip"),
    "wrong path": (post(GOOD, path="/v1/metrics"), 404, 5, "/v1/metrics"),
    "wrong method": (post(method="GET"), 405, 12, "POST only"),
    "not gzip": (post(GOOD, Content_Encoding="gzip"), 400, 3, "not valid gzip"),
    "truncated gzip": (
        post(gzip.compress(GOOD)[:-5], Content_Encoding="gzip"),
        400,
        3,
        "truncated gzip",
    ),
    "gzip with garbage after it": (
        post(gzip.compress(GOOD) + b"garbage", Content_Encoding="gzip"),
        400,
        3,
        "not valid gzip",
    ),
    "gzip bomb": (post(BOMB, Content_Encoding="gzip"), 413, 8, "inflates to more than"),
    "too large": (post(LARGE), 413, 8, f"larger than {MAX_REQUEST_BYTES} bytes"),
    "too large, by its own word": (post(Content_Length="999999999999"), 413, 8, "larger than"),
    "too large, in chunks": (
        post(Content_Length=None, Transfer_Encoding="chunked")
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(LARGE), LARGE),
        413,
        8,
        "larger than",
    ),
    "slow body": (post(Content_Length="100"), 408, 4, "did not arrive within"),
}


@pytest.mark.parametrize("case", HOSTILE_HTTP)
def test_hostile_http_gets_its_answer_and_the_next_client_is_served(case: str) -> None:
    data, http_code, rpc_code, words = HOSTILE_HTTP[case]
    timeout_seconds = SHORT_SECONDS if http_code == 408 else PATIENT_SECONDS

    async def test() -> None:
        async with open_doors(timeout_seconds=timeout_seconds) as doors:
            answer = await speak(doors.http.endpoint, data)
            assert answer is not None
            assert answer.code == http_code
            code, message = answer.status
            assert code == rpc_code
            assert words in message
            assert "retry-after" not in answer.headers
            assert [transport for transport, _ in doors.refused] == ["http"]
            assert doors.intake.admitted == []
            served = await speak(doors.http.endpoint, post(GOOD))
            assert served is not None
            assert (served.code, doors.intake.names) == (200, ["span"])

    run(test)


# What is no HTTP is answered by the HTTP library, or by hanging up.
BROKEN_HTTP: dict[str, tuple[bytes, int | None]] = {
    "giant header": (post(X_Giant="a" * 100_000), 400),
    "endless headers": (post(**{f"X_{number}": "a" for number in range(1000)}), 400),
    "giant path": (post(path="/" + "a" * 100_000), 400),
    "negative length": (post(Content_Length="-1"), 400),
    "two lengths": (post(Content_Length="1\r\nContent-Length: 2"), 400),
    "broken chunk": (post(Content_Length=None, Transfer_Encoding="chunked") + b"zz\r\n", 400),
    "nonsense": (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
    "TLS without TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "silence": (b"", None),
    "half a request line": (b"POST /v1/tra", None),
    "half the headers": (post()[:-3], None),
}


@pytest.mark.parametrize("case", BROKEN_HTTP)
def test_broken_http_does_no_harm(case: str, caplog: pytest.LogCaptureFixture) -> None:
    data, code = BROKEN_HTTP[case]
    timeout_seconds = SHORT_SECONDS if code is None else PATIENT_SECONDS

    async def test() -> None:
        async with open_doors(timeout_seconds=timeout_seconds) as doors:
            answer = await speak(doors.http.endpoint, data)
            assert (answer and answer.code) == code
            served = await speak(doors.http.endpoint, post(GOOD))
            assert served is not None
            assert (served.code, doors.intake.names) == (200, ["span"])

    run(test)
    assert caplog.records == []  # strangers cannot write into the log


def test_a_client_that_goes_away_in_its_body_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            host, _, port = doors.http.endpoint.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(post(b"x" * 10, Content_Length="1000"))
            await writer.drain()
            while not doors.budget.used:
                await asyncio.sleep(0)
            writer.close()
            while doors.budget.used:
                await asyncio.sleep(0)
            served = await speak(doors.http.endpoint, post(GOOD))
            assert served is not None
            assert served.code == 200

    run(test)


# -- gRPC -----------------------------------------------------------------------------------


async def call(
    doors: Doors, body: bytes, compression: grpc.Compression = grpc.Compression.NoCompression
) -> bytes:
    async with grpc.aio.insecure_channel(doors.grpc.endpoint) as channel:
        answer: bytes = await channel.unary_unary(EXPORT)(
            body, compression=compression, timeout=DEADLINE_SECONDS
        )
        return answer


def rpc_status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    trailers = dict(error.trailing_metadata())
    return status_pb2.Status.FromString(trailers["grpc-status-details-bin"])


def retry_delay(status: status_pb2.Status) -> float | None:
    info = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return None


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_grpc_takes_every_compression_of_grpcio(compression: grpc.Compression) -> None:
    body = request("x" * 1000).SerializeToString()  # long enough for gRPC to bother

    async def test() -> None:
        async with open_doors() as doors:
            assert await call(doors, body, compression) == b""
            assert await call(doors, b"", compression) == b""
            assert [admitted.body for _, admitted in doors.intake.admitted] == [body, b""]
            assert doors.refused == []

    run(test)


HOSTILE_GRPC: dict[str, tuple[bytes, grpc.Compression, grpc.StatusCode, str]] = {
    "malformed protobuf": (
        b"abc",
        grpc.Compression.NoCompression,
        grpc.StatusCode.INVALID_ARGUMENT,
        "not OTLP protobuf",
    ),
    "gzip bomb": (
        bytes(100 * MIB),
        grpc.Compression.Gzip,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "inflates to more than",
    ),
    "deflate bomb": (
        bytes(100 * MIB),
        grpc.Compression.Deflate,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "inflates to more than",
    ),
    "bomb that does not say it is one": (
        BOMB,
        grpc.Compression.NoCompression,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "inflates to more than",
    ),
    "broken gzip": (
        b"\x1f\x8b broken",
        grpc.Compression.NoCompression,
        grpc.StatusCode.INVALID_ARGUMENT,
        "not valid gzip",
    ),
    "truncated gzip": (
        gzip.compress(GOOD)[:-4],
        grpc.Compression.NoCompression,
        grpc.StatusCode.INVALID_ARGUMENT,
        "truncated gzip",
    ),
    "deflate with bytes after it": (
        zlib.compress(GOOD) + b"x",
        grpc.Compression.NoCompression,
        grpc.StatusCode.INVALID_ARGUMENT,
        "after the end",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_GRPC)
def test_hostile_grpc_gets_its_status_and_the_next_client_is_served(case: str) -> None:
    body, compression, code, words = HOSTILE_GRPC[case]

    async def test() -> None:
        async with open_doors() as doors:
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call(doors, body, compression)
            assert refusal.value.code() == code
            status = rpc_status(refusal.value)
            assert status.code == code.value[0]
            assert words in status.message
            assert retry_delay(status) is None  # never to be sent again
            assert [transport for transport, _ in doors.refused] == ["grpc"]
            assert doors.intake.admitted == []
            assert await call(doors, GOOD) == b""

    run(test)


def test_a_grpc_message_over_the_limit_is_refused_for_good() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call(doors, LARGE)
            assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "grpc-status-details-bin" not in dict(refusal.value.trailing_metadata())
            assert await call(doors, GOOD) == b""

    run(test)


def test_a_grpc_client_that_sends_no_message_is_not_waited_for() -> None:
    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def nothing() -> AsyncIterator[bytes]:
        for message in ():
            yield message

    async def test() -> None:
        async with (
            open_doors(timeout_seconds=SHORT_SECONDS) as doors,
            grpc.aio.insecure_channel(doors.grpc.endpoint) as channel,
        ):
            export = channel.stream_unary(EXPORT)
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await export(silent(), timeout=DEADLINE_SECONDS)
            assert refusal.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert "did not arrive within" in refusal.value.details()
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await export(nothing(), timeout=DEADLINE_SECONDS)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert doors.refused == [("grpc", "timeout"), ("grpc", "malformed")]
            assert await call(doors, GOOD) == b""

    run(test)


def test_grpc_health_and_methods_that_are_not_there() -> None:
    async def test() -> None:
        async with open_doors() as doors, grpc.aio.insecure_channel(doors.grpc.endpoint) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            name = b"opentelemetry.proto.collector.trace.v1.TraceService"
            for asked in (b"", b"\x0a\x00", b"\x0a" + bytes([len(name)]) + name):
                assert await check(asked) == b"\x08\x01"
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await check(b"\x0a\x04else")
            assert refusal.value.code() == grpc.StatusCode.NOT_FOUND
            for method in ("/else.Service/Call", EXPORT.replace("Export", "Import")):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await channel.unary_unary(method)(b"")
                assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED

    run(test)


# -- both -----------------------------------------------------------------------------------


def test_later_is_said_with_a_delay_in_both_protocols() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            doors.intake.fault = Retryable("the disk is full", 2.5)
            for content_type in (PROTOBUF, JSON):
                body = GOOD if content_type == PROTOBUF else b"{}"
                answer = await speak(doors.http.endpoint, post(body, Content_Type=content_type))
                assert answer is not None
                assert (answer.code, answer.headers["retry-after"]) == (503, "3")
                assert answer.status == (14, "the disk is full")
                if content_type == PROTOBUF:
                    assert retry_delay(status_pb2.Status.FromString(answer.body)) == 2.5
                else:
                    assert json.loads(answer.body)["details"][0]["retryDelay"] == "2.500000000s"
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call(doors, GOOD)
            assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE
            assert retry_delay(rpc_status(refusal.value)) == 2.5
            assert doors.refused == [("http", "busy"), ("http", "busy"), ("grpc", "busy")]

    run(test)


def test_one_budget_bounds_both_receivers() -> None:
    large = request("x" * 600 * KIB).SerializeToString()

    async def test() -> None:
        async with open_doors(budget_bytes=MIB) as doors:
            doors.intake.gate = asyncio.Event()
            first = asyncio.create_task(speak(doors.http.endpoint, post(large)))
            while doors.budget.used < len(large):
                await asyncio.sleep(0)
            answer = await speak(doors.http.endpoint, post(large))
            assert answer is not None
            assert (answer.code, answer.headers["retry-after"]) == (503, "1")
            for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await call(doors, large, compression)
                assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE
                assert retry_delay(rpc_status(refusal.value)) == 1.0
            doors.intake.gate.set()
            answer = await first
            assert answer is not None
            assert answer.code == 200
            assert await call(doors, large) == b""

    run(test)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_shutdown_lets_a_running_request_finish_and_takes_no_other(kind: str) -> None:
    async def test() -> None:
        async with open_doors() as doors:
            doors.intake.gate = asyncio.Event()
            running: asyncio.Task[Any]
            if kind == "http":
                running = asyncio.create_task(speak(doors.http.endpoint, post(GOOD)))
            else:
                running = asyncio.create_task(call(doors, GOOD))
            while not doors.budget.used:
                await asyncio.sleep(0)
            receiver = doors.http if kind == "http" else doors.grpc
            stopping = asyncio.create_task(receiver.shutdown(DEADLINE_SECONDS))
            await asyncio.sleep(0)
            if kind == "http":
                with pytest.raises(ConnectionRefusedError):
                    await speak(doors.http.endpoint, post(GOOD))
            doors.intake.gate.set()
            answer = await running
            assert (answer.code if isinstance(answer, Answer) else answer) in (200, b"")
            await stopping
            assert doors.intake.names == ["span"]

    run(test)


def test_shutdown_does_not_wait_longer_than_told() -> None:
    async def test() -> None:
        async with open_doors() as doors:
            doors.intake.gate = asyncio.Event()
            running = [
                asyncio.create_task(speak(doors.http.endpoint, post(GOOD))),
                asyncio.create_task(call(doors, GOOD)),
            ]
            while doors.budget.used < 2 * len(GOOD):
                await asyncio.sleep(0)
            stopping = asyncio.gather(doors.http.shutdown(0.05), doors.grpc.shutdown(0.05))
            await asyncio.wait_for(stopping, DEADLINE_SECONDS)
            unanswered, cut_off = await asyncio.gather(*running, return_exceptions=True)
            assert unanswered is None
            assert isinstance(cut_off, grpc.aio.AioRpcError)
            assert doors.intake.admitted == []

    run(test)


@pytest.mark.parametrize("kind", ["http", "http-gzip", "grpc", "grpc-gzip"])
def test_a_stock_exporter_delivers(kind: str) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    with provider.get_tracer("stock").start_as_current_span("outer"):
        provider.get_tracer("stock").start_span("inner").end()

    def exporter(doors: Doors) -> SpanExporter:
        if kind.startswith("grpc"):
            return GrpcExporter(
                endpoint=f"http://{doors.grpc.endpoint}",
                compression=grpc.Compression.Gzip if "gzip" in kind else None,
            )
        return HttpExporter(
            endpoint=f"http://{doors.http.endpoint}/v1/traces",
            compression=Compression.Gzip if "gzip" in kind else Compression.NoCompression,
        )

    async def test() -> None:
        async with open_doors() as doors:
            stock = exporter(doors)
            outcome = await asyncio.to_thread(stock.export, memory.get_finished_spans())
            await asyncio.to_thread(stock.shutdown)
            assert outcome.name == "SUCCESS"
            assert doors.intake.names == ["inner", "outer"]

    run(test)


BOMBED_SERVER = """
import asyncio
from mcptrace_collector.receivers import ByteBudget, OtlpGrpcReceiver, OtlpHttpReceiver

async def serve():
    budget = ByteBudget(64 << 20)
    doors = [kind("127.0.0.1:0", None, budget, max_request_bytes=8 << 20)
             for kind in (OtlpHttpReceiver, OtlpGrpcReceiver)]
    for door in doors:
        await door.start()
    print(*[door.endpoint for door in doors], flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


def peak_bytes(process: subprocess.Popen[str]) -> int:
    """Most memory the process ever had resident."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    raise AssertionError("no VmHWM")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_bomb_of_100_mib_costs_no_more_than_the_limit(kind: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BOMBED_SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        http, grpc_endpoint = server.stdout.readline().split()

        async def refused() -> None:
            if kind == "http":
                answer = await speak(http, post(BOMB, Content_Encoding="gzip"))
                assert answer is not None
                assert answer.code == 413
                return
            async with grpc.aio.insecure_channel(grpc_endpoint) as channel:
                export = channel.unary_unary(EXPORT)
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await export(bytes(100 * MIB), compression=grpc.Compression.Gzip)
                assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

        async def warm_up() -> None:
            await speak(http, post(b"", Content_Type="text/plain"))
            async with grpc.aio.insecure_channel(grpc_endpoint) as channel:
                await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")

        try:
            asyncio.run(warm_up())
            before = peak_bytes(server)
            asyncio.run(refused())
            # The limit is 8 MiB; the rest is zlib, buffers and what malloc keeps.
            assert peak_bytes(server) - before < 24 * MIB
        finally:
            server.kill()
