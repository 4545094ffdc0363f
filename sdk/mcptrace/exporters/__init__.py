"""Where batches of spans go: builds the exporter that a configuration names.

The modules are imported when they are needed: ssl, http.client and grpc cost a program
that exports elsewhere nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcptrace.api import SpanExporter
from mcptrace.config import SdkConfig

CONSOLE = "console"
GRPC = "grpc"
HTTP_JSON = "http/json"


def build_exporter(config: SdkConfig) -> SpanExporter:
    """The exporter of a configuration whose ``traces_exporter`` is not none."""
    if config.traces_exporter == CONSOLE:
        from mcptrace.exporters.console import ConsoleExporter

        return ConsoleExporter()
    return build_otlp_exporter(
        config.protocol,
        config.endpoint,
        headers=config.headers,
        timeout_seconds=config.timeout_seconds,
        compression=config.compression,
        certificate=config.certificate,
        client_key=config.client_key,
        client_certificate=config.client_certificate,
        insecure=config.insecure,
        request_bytes_max=config.request_bytes_max,
    )


def build_otlp_exporter(
    protocol: str,
    endpoint: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 10.0,
    compression: str = "none",
    certificate: str = "",
    client_key: str = "",
    client_certificate: str = "",
    insecure: bool = False,
    request_bytes_max: int = 3_500_000,
    encode: Callable[[Sequence[Any]], bytes] | None = None,
) -> SpanExporter:
    """An exporter for http/protobuf, http/json or grpc; opens no connection yet.

    ``encode`` turns a batch into a request body; None is our own encoder for the protocol.
    ``endpoint`` is the full address for HTTP (with its path), host and port for gRPC.  Raises
    ConfigError for what cannot work: a bad address, an unreadable TLS file, missing grpcio.
    """
    from mcptrace.exporters.otlp import OtlpExporter, Transport, encode_json, encode_protobuf

    transport: Transport
    if protocol == GRPC:
        from mcptrace.exporters.otlp_grpc import GrpcTransport

        transport = GrpcTransport(
            endpoint,
            headers=headers,
            compression=compression,
            certificate=certificate,
            client_key=client_key,
            client_certificate=client_certificate,
            insecure=insecure,
        )
    else:
        from mcptrace.exporters.otlp_http import JSON, PROTOBUF, HttpTransport, tls_context

        secure = endpoint.startswith("https:")
        transport = HttpTransport(
            endpoint,
            content_type=JSON if protocol == HTTP_JSON else PROTOBUF,
            headers=headers,
            compression=compression,
            tls=tls_context(certificate, client_key, client_certificate) if secure else None,
        )
    return OtlpExporter(
        transport,
        encode or (encode_json if protocol == HTTP_JSON else encode_protobuf),
        timeout_seconds=timeout_seconds,
        request_bytes_max=request_bytes_max,
    )
