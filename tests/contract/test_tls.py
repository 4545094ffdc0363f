"""TLS at every network door: who is let in, who is trusted, and what is said about bad files."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.config import TlsClientConfig, TlsServerConfig
from mcptrace_collector.errors import ConfigError, Retryable
from mcptrace_collector.exporters import OtlpGrpcExporter, OtlpHttpExporter
from mcptrace_collector.pipeline import Admitted
from mcptrace_collector.receivers import ByteBudget, OtlpGrpcReceiver, OtlpHttpReceiver, admit


def openssl(*arguments: str, directory: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, capture_output=True, check=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server certificate for 127.0.0.1 and mcptrace.test, a client's, and a stranger's."""
    if shutil.which("openssl") is None:
        assert not os.environ.get("CI"), "CI installs openssl"
        pytest.skip("the openssl program makes the certificates")
    where = tmp_path_factory.mktemp("tls")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for ca in ("ca", "stranger"):
        openssl(
            *("req", "-x509", *key, "-keyout", f"{ca}.key", "-out", f"{ca}.pem"),
            *("-days", "2", "-subj", f"/CN={ca}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # Python 3.13 insists
            directory=where,
        )
    names = "subjectAltName=IP:127.0.0.1,DNS:mcptrace.test"
    for name, extension in (("server", names), ("client", "subjectAltName=DNS:client")):
        openssl(
            *("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem"),
            *("-days", "2", "-subj", f"/CN={name}", "-addext", extension),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE"),
            directory=where,
        )
    return where


class CountingIntake:
    def __init__(self) -> None:
        self.requests = 0

    async def consume(self, body: bytes, *, transport: str, json: bool) -> Admitted:
        self.requests += 1
        return admit(body)


def server_tls(files: Path, *, client_ca: bool = False) -> TlsServerConfig:
    return TlsServerConfig(
        cert_file=str(files / "server.pem"),
        key_file=str(files / "server.key"),
        client_ca_file=str(files / "ca.pem") if client_ca else None,
    )


def client_tls(files: Path, *, ca: str = "ca", certificate: bool = False) -> TlsClientConfig:
    return TlsClientConfig(
        ca_file=str(files / f"{ca}.pem"),
        cert_file=str(files / "client.pem") if certificate else None,
        key_file=str(files / "client.key") if certificate else None,
    )


async def deliver(kind: str, server: TlsServerConfig, client: TlsClientConfig) -> int:
    """Send one request through exporter and receiver; returns requests at the intake."""
    intake = CountingIntake()
    receiver_type: Any = OtlpHttpReceiver if kind == "http" else OtlpGrpcReceiver
    receiver = receiver_type("127.0.0.1:0", intake, ByteBudget(1 << 20), tls=server)
    await receiver.start()
    exporter: OtlpHttpExporter | OtlpGrpcExporter
    common: dict[str, Any] = {"clock": SystemClock(), "tls": client, "timeout_seconds": 5.0}
    if kind == "http":
        url = f"https://{receiver.endpoint}/v1/traces"
        exporter = OtlpHttpExporter("peer", url, **common)
    else:
        exporter = OtlpGrpcExporter("peer", receiver.endpoint, **common)
    await exporter.start()
    try:
        await exporter.export(b"", 0)
    finally:
        await exporter.shutdown()
        await receiver.shutdown(1.0)
    return intake.requests


KINDS = pytest.mark.parametrize("kind", ["http", "grpc"])


@KINDS
def test_a_trusted_server_is_spoken_to(kind: str, files: Path) -> None:
    assert asyncio.run(deliver(kind, server_tls(files), client_tls(files))) == 1


@KINDS
def test_a_server_of_another_ca_is_not(kind: str, files: Path) -> None:
    with pytest.raises(Retryable):
        asyncio.run(deliver(kind, server_tls(files), client_tls(files, ca="stranger")))


@KINDS
def test_the_name_in_the_certificate_counts(kind: str, files: Path) -> None:
    right = replace(client_tls(files), server_name="mcptrace.test")
    wrong = replace(client_tls(files), server_name="else.test")
    assert asyncio.run(deliver(kind, server_tls(files), right)) == 1
    with pytest.raises(Retryable):
        asyncio.run(deliver(kind, server_tls(files), wrong))


# asyncio of Python 3.10 forgets to close the transport of a handshake that fails.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*_SSLProtocolTransport")
@KINDS
def test_a_client_must_prove_itself_when_asked(kind: str, files: Path) -> None:
    server = server_tls(files, client_ca=True)
    assert asyncio.run(deliver(kind, server, client_tls(files, certificate=True))) == 1
    with pytest.raises(Retryable):
        asyncio.run(deliver(kind, server, client_tls(files)))


@KINDS
@pytest.mark.parametrize("field", ["cert_file", "key_file", "client_ca_file"])
def test_a_bad_file_of_a_receiver_is_named_before_it_listens(
    kind: str, field: str, files: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not PEM")
    tls = replace(server_tls(files, client_ca=True), **{field: str(bad)})
    receiver_type: Any = OtlpHttpReceiver if kind == "http" else OtlpGrpcReceiver
    receiver = receiver_type("127.0.0.1:0", CountingIntake(), ByteBudget(1 << 20), tls=tls)
    with pytest.raises(ConfigError, match=r"bad\.pem"):
        asyncio.run(receiver.start())


@KINDS
@pytest.mark.parametrize("field", ["ca_file", "cert_file", "key_file"])
def test_a_bad_file_of_an_exporter_is_named_at_its_start(
    kind: str, field: str, files: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not PEM")
    tls = replace(client_tls(files, certificate=True), **{field: str(bad)})
    exporter: Any = (
        OtlpHttpExporter("peer", "https://127.0.0.1:1/v1/traces", clock=SystemClock(), tls=tls)
        if kind == "http"
        else OtlpGrpcExporter("peer", "127.0.0.1:1", clock=SystemClock(), tls=tls)
    )
    with pytest.raises(ConfigError, match=r"bad\.pem"):
        asyncio.run(exporter.start())
