"""What a sender may rely on, whatever the destination is: check_exporter and its scenarios.

The destinations are real servers on loopback that answer with the official messages, and a
real file.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest
from aiohttp import web
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb2

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_collector.exporters import JsonLinesExporter, OtlpGrpcExporter, OtlpHttpExporter
from mcptrace_collector.pipeline import Exporter
from mcptrace_proto import wire
from mcptrace_proto.json import decode_request_json

# For the scenario that waits for it, and all others.
SHORT_SECONDS, PATIENT_SECONDS = 0.3, 30.0
TRACE_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def request(name: str) -> bytes:
    message = service_pb2.ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    span.name, span.trace_id, span.span_id = name, b"\1" * 16, b"\2" * 8
    return message.SerializeToString()


BODY, OTHER = request("one"), request("another")
LARGE = request("x" * 200_000)
PARTIAL = service_pb2.ExportTraceServiceResponse()
PARTIAL.partial_success.rejected_spans = 3
PARTIAL.partial_success.error_message = "three are too old"


class Rig(Protocol):
    """An exporter and its destination.  ``set`` chooses how the destination will answer."""

    exporter: Exporter
    received: list[bytes]

    async def set(self, behaviour: str) -> None:
        """yes, partial, later, never, too_large, dies, silent, or gone."""


# -- the scenarios ----------------------------------------------------------------------------


async def delivers(rig: Rig) -> None:
    assert await rig.exporter.export(BODY, 1) == 0
    assert await rig.exporter.export(OTHER, 1) == 0
    assert rig.received == [BODY, OTHER]


async def delivers_many_at_once(rig: Rig) -> None:
    bodies = [request(f"span {number}") for number in range(20)]
    rejected = await asyncio.gather(*[rig.exporter.export(body, 1) for body in bodies])
    assert rejected == [0] * 20
    assert sorted(rig.received) == sorted(bodies)


async def partial_success_is_a_count(rig: Rig) -> None:
    await rig.set("partial")
    assert await rig.exporter.export(BODY, 5) == 3
    assert rig.received == [BODY]


async def later_is_retryable_with_its_delay(rig: Rig) -> None:
    await rig.set("later")
    with pytest.raises(Retryable) as refusal:
        await rig.exporter.export(BODY, 1)
    assert refusal.value.after_seconds == 7.0
    await rig.set("yes")
    assert await rig.exporter.export(BODY, 1) == 0


async def never_is_permanent(rig: Rig) -> None:
    await rig.set("never")
    with pytest.raises(Permanent) as refusal:
        await rig.exporter.export(BODY, 1)
    assert type(refusal.value) is Permanent
    assert "not like this" in str(refusal.value)


async def too_large_is_said_as_such(rig: Rig) -> None:
    await rig.set("too_large")
    with pytest.raises(RequestTooLarge):
        await rig.exporter.export(LARGE, 1)


async def what_no_receiver_must_take_is_not_sent(rig: Rig) -> None:
    with pytest.raises(RequestTooLarge):
        await rig.exporter.export(bytes(64 * 1024 * 1024 + 1), 1)
    assert rig.received == []


async def a_dead_destination_is_retryable_and_found_again(rig: Rig) -> None:
    assert await rig.exporter.export(BODY, 1) == 0
    await rig.set("gone")
    for _ in range(4):
        with pytest.raises(Retryable) as refusal:
            await rig.exporter.export(BODY, 1)
        assert refusal.value.after_seconds == 0.0
    await rig.set("yes")
    while OTHER not in rig.received:
        try:
            assert await rig.exporter.export(OTHER, 1) == 0
        except Retryable:  # a client may wait before it connects anew, but not for long
            await asyncio.sleep(0.05)
    assert rig.received == [BODY, OTHER]


async def a_destination_that_dies_while_answering_is_retryable(rig: Rig) -> None:
    await rig.set("dies")
    with pytest.raises(Retryable):
        await rig.exporter.export(BODY, 1)


async def a_silent_destination_is_retryable_after_the_timeout(rig: Rig) -> None:
    await rig.set("silent")
    with pytest.raises(Retryable):
        await asyncio.wait_for(rig.exporter.export(BODY, 1), PATIENT_SECONDS)


async def stopping_twice_is_stopping_once(rig: Rig) -> None:
    await rig.exporter.shutdown()
    await rig.exporter.shutdown()
    with pytest.raises(Retryable):
        await rig.exporter.export(BODY, 1)


ANY_EXPORTER = [
    delivers,
    delivers_many_at_once,
    later_is_retryable_with_its_delay,
    stopping_twice_is_stopping_once,
]
NETWORK_EXPORTER = [
    *ANY_EXPORTER,
    partial_success_is_a_count,
    never_is_permanent,
    too_large_is_said_as_such,
    what_no_receiver_must_take_is_not_sent,
    a_dead_destination_is_retryable_and_found_again,
    a_destination_that_dies_while_answering_is_retryable,
    a_silent_destination_is_retryable_after_the_timeout,
]

Make = Callable[[], AbstractAsyncContextManager[Rig]]


def check_exporter(make: Make, scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    """Run one scenario on a fresh exporter and destination."""

    async def run() -> None:
        async with make() as rig:
            await rig.exporter.start()
            try:
                await scenario(rig)
            finally:
                await rig.exporter.shutdown()

    asyncio.run(asyncio.wait_for(run(), 60.0))


# -- destinations -----------------------------------------------------------------------------


SERVED = ("yes", "partial", "later", "never", "too_large")


class NetworkRig:
    """A destination that keeps its port when it goes away and comes back."""

    exporter: Exporter

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.behaviour = ""
        self._raw: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def set(self, behaviour: str) -> None:
        serving = self.behaviour in SERVED and behaviour in SERVED
        self.behaviour = behaviour
        if serving:
            return
        await self.stop()
        if behaviour in ("dies", "silent"):
            self._raw = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        elif behaviour != "gone":
            await self.serve()

    async def stop(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw = None
            for talk in self._talks:
                talk.cancel()
            await asyncio.gather(*self._talks, return_exceptions=True)
        await self.stop_serving()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Close in the middle of an answer, or read and say nothing."""
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            if self.behaviour == "dies":
                await reader.read(100)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal")
                await writer.drain()
            else:
                while await reader.read(65536):
                    pass
        finally:
            writer.transport.abort()
            self._talks.discard(talk)

    async def serve(self) -> None: ...

    async def stop_serving(self) -> None: ...


class HttpRig(NetworkRig):
    _runner: web.ServerRunner | None = None

    async def serve(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop_serving(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, posted: web.BaseRequest) -> web.Response:
        assert (posted.method, posted.path) == ("POST", "/v1/traces")
        assert posted.content_type == "application/x-protobuf"
        body = await posted.read()  # aiohttp inflates what says that it is gzip
        self.headers.append(dict(posted.headers))
        if self.behaviour in ("yes", "partial"):
            service_pb2.ExportTraceServiceRequest.FromString(body)
            self.received.append(body)
        refusal = status_pb2.Status(code=3, message="not like this").SerializeToString()
        code, content, headers = {
            "yes": (200, b"", {}),
            "partial": (200, PARTIAL.SerializeToString(), {}),
            "later": (503, b"", {"Retry-After": "7"}),
            "never": (400, refusal, {}),
            "too_large": (413, b"", {}),
        }[self.behaviour]
        return web.Response(
            status=code, body=content, headers=headers, content_type="application/x-protobuf"
        )


class GrpcRig(NetworkRig):
    _server: grpc.aio.Server | None = None

    async def serve(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._answer, service_pb2.ExportTraceServiceRequest.FromString
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(TRACE_SERVICE, {"Export": handler}),)
        )
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def stop_serving(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def _answer(self, message: Any, context: Any) -> bytes:
        self.headers.append(dict(context.invocation_metadata()))
        if self.behaviour == "later":
            detail = any_pb2.Any()
            delay = duration_pb2.Duration(seconds=7)
            detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
            status = status_pb2.Status(code=14, details=[detail])
            trailers = (("grpc-status-details-bin", status.SerializeToString()),)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "later", trailers)
        if self.behaviour == "never":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not like this")
        if self.behaviour == "too_large":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")
        self.received.append(message.SerializeToString())
        return PARTIAL.SerializeToString() if self.behaviour == "partial" else b""


@asynccontextmanager
async def http_rig(
    compression: str, headers: dict[str, str], timeout_seconds: float
) -> AsyncIterator[HttpRig]:
    rig = HttpRig()
    await rig.set("yes")
    rig.exporter = OtlpHttpExporter(
        "peer",
        f"http://127.0.0.1:{rig.port}/v1/traces",
        clock=SystemClock(),
        headers=headers,
        compression=compression,
        timeout_seconds=timeout_seconds,
    )
    try:
        yield rig
    finally:
        await rig.stop()


@asynccontextmanager
async def grpc_rig(
    compression: str, headers: dict[str, str], timeout_seconds: float
) -> AsyncIterator[GrpcRig]:
    rig = GrpcRig()
    await rig.set("yes")
    rig.exporter = OtlpGrpcExporter(
        "peer",
        f"127.0.0.1:{rig.port}",
        clock=SystemClock(),
        plaintext=True,
        headers=headers,
        compression=compression,
        timeout_seconds=timeout_seconds,
    )
    try:
        yield rig
    finally:
        await rig.stop()


class FileRig:
    """A file on a disk that is full when told to be: for a while no file may grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exporter = JsonLinesExporter(path)

    @property
    def received(self) -> list[bytes]:
        lines = self.path.read_bytes().splitlines()
        return [wire.encode_request(decode_request_json(line)) for line in lines]


async def a_full_disk_is_retryable_and_leaves_whole_lines(rig: Rig) -> None:
    assert isinstance(rig, FileRig)
    assert await rig.exporter.export(BODY, 1) == 0
    before = rig.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for the beginning of the line only, so that a part of it is really written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(Retryable) as refusal:
            await rig.exporter.export(OTHER, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refusal.value.after_seconds > 0
    assert rig.path.read_bytes() == before
    assert await rig.exporter.export(OTHER, 1) == 0
    assert rig.received == [BODY, OTHER]


async def what_is_no_request_is_permanent(rig: Rig) -> None:
    with pytest.raises(Permanent):
        await rig.exporter.export(b"abc", 1)
    assert rig.received == []


FILE_EXPORTER = [
    *(each for each in ANY_EXPORTER if each is not later_is_retryable_with_its_delay),
    a_full_disk_is_retryable_and_leaves_whole_lines,
    what_is_no_request_is_permanent,
]


def named(scenario: Callable[..., Any]) -> str:
    return scenario.__name__


@pytest.mark.parametrize("scenario", NETWORK_EXPORTER, ids=named)
@pytest.mark.parametrize("compression", ["gzip", "none"])
@pytest.mark.parametrize("rig", [http_rig, grpc_rig], ids=named)
def test_network_exporter(rig: Any, compression: str, scenario: Any) -> None:
    silent = scenario is a_silent_destination_is_retryable_after_the_timeout
    timeout_seconds = SHORT_SECONDS if silent else PATIENT_SECONDS
    check_exporter(lambda: rig(compression, {}, timeout_seconds), scenario)


@pytest.mark.parametrize("scenario", FILE_EXPORTER, ids=named)
def test_file_exporter(tmp_path: Path, scenario: Any) -> None:
    @asynccontextmanager
    async def make() -> AsyncIterator[Rig]:
        yield FileRig(tmp_path / "spans.jsonl")  # type: ignore[misc]

    check_exporter(make, scenario)


@pytest.mark.parametrize(
    ("rig", "encoding"), [(http_rig, "Content-Encoding"), (grpc_rig, "grpc-encoding")]
)
def test_headers_and_compression_reach_the_destination(rig: Any, encoding: str) -> None:
    async def check(rig: Rig) -> None:
        assert isinstance(rig, NetworkRig)
        assert await rig.exporter.export(LARGE, 1) == 0
        names = {name.lower(): value for name, value in rig.headers[0].items()}
        assert names["api-key"] == "secret"
        if isinstance(rig, HttpRig):  # grpcio keeps its own header to itself
            assert names[encoding.lower()] == "gzip"

    check_exporter(lambda: rig("gzip", {"Api-Key": "secret"}, PATIENT_SECONDS), check)


def test_a_line_is_an_export_request_in_otlp_json(tmp_path: Path) -> None:
    async def run() -> None:
        exporter = JsonLinesExporter(tmp_path / "new" / "spans.jsonl")
        await exporter.start()
        await exporter.export(BODY + OTHER, 2)
        await exporter.shutdown()

    asyncio.run(run())
    (line,) = (tmp_path / "new" / "spans.jsonl").read_text().splitlines()
    spans = [
        span
        for resource_spans in json.loads(line)["resourceSpans"]
        for scope_spans in resource_spans["scopeSpans"]
        for span in scope_spans["spans"]
    ]
    ids = {"traceId": "01" * 16, "spanId": "02" * 8}
    assert spans == [{**ids, "name": "one"}, {**ids, "name": "another"}]


def test_http_bodies_are_gzip_on_the_wire() -> None:
    async def run() -> None:
        seen: asyncio.Queue[bytes] = asyncio.Queue()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await seen.put(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        exporter = OtlpHttpExporter(
            "peer", f"http://127.0.0.1:{port}/v1/traces", clock=SystemClock()
        )
        await exporter.start()
        for body in (BODY, LARGE):
            assert await exporter.export(body, 1) == 0
            assert gzip.decompress(await seen.get()) == body
        await exporter.shutdown()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 60.0))
