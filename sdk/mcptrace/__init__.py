"""mcptrace: OpenTelemetry tracing for model inference, MCP-Trace schema v2.3.

    tracer = mcptrace.init(service_name="chat")
    with tracer.start_inference(model="tiny-1", operation="chat") as span:
        ...
        span.record_tokens(input=12, output=40)

Importing this starts no thread, opens no socket and reads no environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcptrace.config import ConfigError
from mcptrace.inference import InferenceSpan
from mcptrace.options import (
    NewTracer,
    WithEndpoint,
    WithExporter,
    WithHeaders,
    WithProcessor,
    WithProtocol,
    WithResource,
    WithSampler,
    WithSchemaEnforcement,
    WithServiceName,
    WithSetting,
    WithSpanFilter,
    WithTimeoutLimit,
    WithVersion,
)
from mcptrace.provider import TracerProvider
from mcptrace.resource import VERSION
from mcptrace.setup import force_flush, get_tracer, init, shutdown, stats
from mcptrace.tracer import Tracer

if TYPE_CHECKING:
    from mcptrace.stock import FastOTLPSpanExporter as FastOTLPSpanExporter
    from mcptrace.stock import McpTraceSampler as McpTraceSampler
    from mcptrace.stock import McpTraceSpanProcessor as McpTraceSpanProcessor

__version__ = VERSION

__all__ = [
    "ConfigError",
    "InferenceSpan",
    "NewTracer",
    "Tracer",
    "TracerProvider",
    "WithEndpoint",
    "WithExporter",
    "WithHeaders",
    "WithProcessor",
    "WithProtocol",
    "WithResource",
    "WithSampler",
    "WithSchemaEnforcement",
    "WithServiceName",
    "WithSetting",
    "WithSpanFilter",
    "WithTimeoutLimit",
    "WithVersion",
    "__version__",
    "force_flush",
    "get_tracer",
    "init",
    "shutdown",
    "stats",
]

_PARTS_FOR_THE_STOCK_SDK = ("FastOTLPSpanExporter", "McpTraceSampler", "McpTraceSpanProcessor")


def __getattr__(name: str) -> object:
    """Parts for opentelemetry.sdk are loaded when asked for: only then must it be installed."""
    if name in _PARTS_FOR_THE_STOCK_SDK:
        from mcptrace import stock

        return getattr(stock, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
