"""From what an operator wrote about a destination to its exporter.

Knows every type of exporter; nothing is opened here (``start`` does that).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from mcptrace_collector.clock import Clock
from mcptrace_collector.config import ExporterConfig, join_endpoint
from mcptrace_collector.pipeline import Exporter

from .json_lines import JsonLinesExporter
from .otlp_grpc import OtlpGrpcExporter
from .otlp_http import OtlpHttpExporter

TRACES_PATH = "/v1/traces"
DEFAULT_GRPC_PORT = 4317


def build_exporter(name: str, config: ExporterConfig, clock: Clock) -> Exporter:
    """The exporter of one destination; ``config`` has passed the checks of its own room."""
    if config.type == "json_lines":
        return JsonLinesExporter(
            Path(config.path), rotate_bytes=config.rotate_bytes, rotate_keep=config.rotate_keep
        )
    if config.type == "otlp_http":
        return OtlpHttpExporter(
            name,
            traces_url(config.endpoint),
            clock=clock,
            headers=config.headers,
            compression=config.compression,
            timeout_seconds=config.timeout_seconds,
            tls=config.tls,
        )
    return OtlpGrpcExporter(
        name,
        grpc_target(config.endpoint),
        clock=clock,
        plaintext=config.plaintext,
        headers=config.headers,
        compression=config.compression,
        timeout_seconds=config.timeout_seconds,
        tls=config.tls,
    )


def traces_url(endpoint: str) -> str:
    """A URL with a path is used as it is, one without gets OTLP's."""
    parts = urlsplit(endpoint)
    if parts.path.strip("/"):
        return endpoint
    return urlunsplit(parts._replace(path=TRACES_PATH))


def grpc_target(endpoint: str) -> str:
    """``host:port`` of a gRPC endpoint, which may be written as a URL."""
    if "://" not in endpoint:
        return endpoint
    parts = urlsplit(endpoint)
    return join_endpoint(parts.hostname or "", parts.port or DEFAULT_GRPC_PORT)
