from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.errors import Permanent, Retryable
from mcptrace_collector.exporters.answers import RESPONSE_BYTES_MAX
from mcptrace_collector.exporters.otlp_http import OtlpHttpExporter
from mcptrace_proto.json import encode_response_json

Answer = Callable[[web.BaseRequest], Coroutine[Any, Any, web.StreamResponse]]


def export(answer: Answer) -> tuple[int, list[str]]:
    """Export once to a server with this answer: what export returned, and the paths asked for."""
    paths: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        paths.append(request.path)
        return await answer(request)

    async def run() -> int:
        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
        exporter = OtlpHttpExporter("peer", url, clock=SystemClock(), timeout_seconds=5.0)
        await exporter.start()
        try:
            return await exporter.export(b"", 0)
        finally:
            await exporter.shutdown()
            await runner.cleanup()

    return asyncio.run(asyncio.wait_for(run(), 30.0)), paths


def test_an_answer_in_json_is_read_as_json() -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        body = encode_response_json(2, "old")
        return web.Response(body=body, content_type="application/json")

    assert export(answer) == (2, ["/v1/traces"])


def test_a_redirect_is_not_followed() -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    with pytest.raises(Permanent, match="HTTP 307"):
        export(answer)


def test_a_cookie_is_not_taken() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        assert "Cookie" not in request.headers
        return web.Response(headers={"Set-Cookie": "a=b; Path=/"})

    assert export(answer)[0] == 0


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        endless = web.StreamResponse()
        await endless.prepare(request)
        for _ in range(4 * RESPONSE_BYTES_MAX // 65536):
            await endless.write(b"\xff" * 65536)
        await asyncio.Event().wait()
        return endless

    assert export(answer)[0] == 0


def test_before_start_it_is_not_running() -> None:
    exporter = OtlpHttpExporter("peer", "http://127.0.0.1:1/v1/traces", clock=SystemClock())
    with pytest.raises(Retryable, match="not running"):
        asyncio.run(exporter.export(b"", 0))
