"""mcptrace: OpenTelemetry tracing for model inference, MCP-Trace schema v2.3.

    tracer = mcptrace.init(service_name="chat")
    with tracer.start_inference(model="tiny-1", operation="chat") as span:
        ...
        span.record_tokens(input=12, output=40)

Importing this starts no thread, opens no socket and reads no environment.
"""

from __future__ import annotations

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
