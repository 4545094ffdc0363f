from __future__ import annotations

import asyncio

import grpc
import pytest

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.errors import Retryable
from mcptrace_collector.exporters.otlp_grpc import RECONNECT_AFTER, OtlpGrpcExporter


async def unavailable(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "later")
    return b""


async def slow(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    await asyncio.sleep(0.3)  # the work of a real receiver
    return b""


async def serve(handler: object) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    methods = {"Export": grpc.unary_unary_rpc_method_handler(handler)}
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return server, target


def test_the_channel_is_a_new_one_after_enough_refusals_and_not_before() -> None:
    async def run() -> list[bool]:
        server, target = await serve(unavailable)
        exporter = OtlpGrpcExporter("peer", target, clock=SystemClock(), plaintext=True)
        await exporter.start()
        changed = []
        for _ in range(2 * RECONNECT_AFTER):
            before = exporter._channel
            with pytest.raises(Retryable):
                await exporter.export(b"", 0)
            changed.append(exporter._channel is not before)
        await exporter.shutdown()
        await server.stop(None)
        return changed

    assert asyncio.run(asyncio.wait_for(run(), 30.0)) == [False, False, True] * 2


def test_calls_under_way_survive_a_new_channel() -> None:
    async def run() -> int:
        server, target = await serve(slow)
        exporter = OtlpGrpcExporter("peer", target, clock=SystemClock(), plaintext=True)
        await exporter.start()
        under_way = asyncio.create_task(exporter.export(b"", 0))
        await asyncio.sleep(0)
        for _ in range(RECONNECT_AFTER):
            exporter._note_unavailable(True)
        rejected = await under_way
        await exporter.shutdown()
        await server.stop(None)
        return rejected

    assert asyncio.run(asyncio.wait_for(run(), 30.0)) == 0


def test_before_start_it_is_not_running() -> None:
    exporter = OtlpGrpcExporter("peer", "127.0.0.1:1", clock=SystemClock())
    with pytest.raises(Retryable, match="not running"):
        asyncio.run(exporter.export(b"", 0))
