"""A tracer taken before the program has set up tracing, as modules do at their import.

Until ``init`` its spans are those of OpenTelemetry's global provider, and its inferences
record nothing; from ``init`` on it is a tracer of the provider that was set up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry import trace as trace_api

from mcptrace.inference import AnyInferenceSpan, NonRecordingInference
from mcptrace.tracer import Tracer


class DeferredTracer(Tracer):
    """``find`` gives the real tracer, or None while there is none."""

    def __init__(self, name: str, version: str | None, find: Callable[[], Tracer | None]) -> None:
        self._before = trace_api.get_tracer(name, version)
        self._find = find
        self._found: Tracer | None = None

    def start_span(self, *arguments: Any, **named: Any) -> trace_api.Span:
        return (self._tracer() or self._before).start_span(*arguments, **named)

    def start_inference(self, *arguments: Any, **named: Any) -> AnyInferenceSpan:
        tracer = self._tracer()
        if tracer is None:
            context = named.get("context")
            return NonRecordingInference(trace_api.get_current_span(context).get_span_context())
        return tracer.start_inference(*arguments, **named)

    def _tracer(self) -> Tracer | None:
        if self._found is None or self._found.provider.closed:
            self._found = self._find()
        return self._found
