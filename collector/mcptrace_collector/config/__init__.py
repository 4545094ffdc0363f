"""Configuration: one tree of settings, read from YAML, environment and arguments.

    load(file, arguments) ─▶ CollectorConfig      raises ConfigError only, reads nothing at import

Rooms get the part that is theirs and never ask where a value came from.
"""

from .check import is_loopback, join_endpoint, parse_endpoint
from .load import load
from .render import render_docs, render_example, render_yaml
from .tree import (
    AdminConfig,
    AuditConfig,
    CollectorConfig,
    ExporterConfig,
    LimitsConfig,
    NormalizeConfig,
    ReceiverConfig,
    ReceiversConfig,
    SamplingConfig,
    SchemaConfig,
    TlsClientConfig,
    TlsServerConfig,
)

__all__ = [
    "AdminConfig",
    "AuditConfig",
    "CollectorConfig",
    "ExporterConfig",
    "LimitsConfig",
    "NormalizeConfig",
    "ReceiverConfig",
    "ReceiversConfig",
    "SamplingConfig",
    "SchemaConfig",
    "TlsClientConfig",
    "TlsServerConfig",
    "is_loopback",
    "join_endpoint",
    "load",
    "parse_endpoint",
    "render_docs",
    "render_example",
    "render_yaml",
]
