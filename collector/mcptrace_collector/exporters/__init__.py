"""Exporters: deliver what is queued for a destination, and say which of three things happened.

    queue ─▶ Sender ─▶ Exporter.export ─▶ delivered (n spans rejected) · Retryable · Permanent

An exporter sends once and classifies the answer; waiting and trying again is the sender's.
"""

from .build import build_exporter
from .json_lines import JsonLinesExporter
from .otlp_grpc import OtlpGrpcExporter
from .otlp_http import OtlpHttpExporter
from .sender import Sender, SenderSettings

__all__ = [
    "JsonLinesExporter",
    "OtlpGrpcExporter",
    "OtlpHttpExporter",
    "Sender",
    "SenderSettings",
    "build_exporter",
]
