"""Where batches of spans go.  One function builds an OTLP exporter from plain settings."""

from __future__ import annotations

from collections.abc import Mapping

from mcptrace.api import SpanExporter

GRPC = "grpc"
HTTP_JSON = "http/json"


def build_exporter(
    protocol: str = "http/protobuf",
    endpoint: str = "http://localhost:4318/v1/traces",
    *,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 10.0,
    compression: str = "none",
    certificate: str = "",
    client_key: str = "",
    client_certificate: str = "",
    insecure: bool = False,
    request_bytes_max: int = 3_500_000,
) -> SpanExporter:
    """An exporter for http/protobuf, http/json or grpc; opens no connection yet.

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
    encode = encode_json if protocol == HTTP_JSON else encode_protobuf
    return OtlpExporter(
        transport,
        encode,
        timeout_seconds=timeout_seconds,
        request_bytes_max=request_bytes_max,
    )
