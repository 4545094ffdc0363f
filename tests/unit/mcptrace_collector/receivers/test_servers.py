from __future__ import annotations

import asyncio
import socket
import zlib
from typing import Any

import pytest

from mcptrace_collector.errors import ConfigError
from mcptrace_collector.pipeline import Admitted
from mcptrace_collector.receivers import ByteBudget, OtlpGrpcReceiver, OtlpHttpReceiver, admit
from mcptrace_collector.receivers.otlp_grpc import compression_of

KINDS = pytest.mark.parametrize("kind", [OtlpHttpReceiver, OtlpGrpcReceiver])


class AdmittingIntake:
    async def consume(self, body: bytes, *, transport: str, json: bool) -> Admitted:
        return admit(body)


def build(kind: Any, endpoint: str) -> Any:
    return kind(endpoint, AdmittingIntake(), ByteBudget(1 << 20))


@KINDS
def test_port_0_becomes_the_port_that_was_bound(kind: Any) -> None:
    async def run() -> None:
        receiver = build(kind, "127.0.0.1:0")
        assert receiver.endpoint == "127.0.0.1:0"
        await receiver.start()
        host, port = receiver.endpoint.split(":")
        socket.create_connection((host, int(port))).close()
        await receiver.shutdown(1.0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))

    asyncio.run(run())


@KINDS
def test_an_address_of_version_6_is_written_in_brackets(kind: Any) -> None:
    async def run() -> None:
        receiver = build(kind, "[::1]:0")
        await receiver.start()
        host, _, port = receiver.endpoint.rpartition(":")
        assert host == "[::1]"
        assert int(port) > 0
        await receiver.shutdown(1.0)

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    asyncio.run(run())


@KINDS
def test_a_taken_port_is_a_configuration_error(kind: Any) -> None:
    async def run() -> None:
        first = build(kind, "127.0.0.1:0")
        await first.start()
        second = build(kind, first.endpoint)
        with pytest.raises(ConfigError, match=f"{first.endpoint}.*cannot be listened on"):
            await second.start()
        await second.shutdown(1.0)
        await first.shutdown(1.0)

    asyncio.run(run())


@KINDS
def test_shutdown_without_start_and_twice_is_nothing(kind: Any) -> None:
    async def run() -> None:
        receiver = build(kind, "127.0.0.1:0")
        await receiver.shutdown(1.0)
        await receiver.start()
        await receiver.shutdown(1.0)
        await receiver.shutdown(1.0)

    asyncio.run(run())


@KINDS
def test_an_endpoint_that_is_none_is_a_configuration_error(kind: Any) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        build(kind, "4317")


@pytest.mark.parametrize(
    ("message", "compression"),
    [
        (b"", None),
        (b"\x0a\x00", None),
        (b"\x78", None),
        (b"\x78\x02", None),
        (b"\x1f\x8b\x08", "gzip"),
        *((zlib.compress(b"spans", level), "deflate") for level in range(10)),
    ],
)
def test_compression_is_known_by_its_first_bytes(message: bytes, compression: str | None) -> None:
    assert compression_of(message) == compression
