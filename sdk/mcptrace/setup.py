"""The one provider that ``mcptrace.init`` sets up for a program, and what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from opentelemetry import trace as trace_api

from mcptrace.deferred import DeferredTracer
from mcptrace.delivery import SpanFilter
from mcptrace.guard import guard, logger
from mcptrace.options import SCOPE, build_provider, unheeded
from mcptrace.provider import TracerProvider
from mcptrace.tracer import Tracer


class _Program:
    """Process-wide: what ``init`` built, and from what."""

    lock = threading.Lock()
    provider: TracerProvider | None = None
    arguments: dict[str, Any] = {}  # noqa: RUF012 - one for the whole process
    told = False  # that a later call changes nothing


def init(
    service_name: str | None = None,
    *,
    version: str = "v2.3",
    span_filter: SpanFilter | None = None,
    endpoint: str | None = None,
    protocol: str | None = None,
    sampler: Any = None,
    exporter: Any = None,
    processors: Iterable[Any] = (),
    capture_content: bool | None = None,
    set_global: bool = True,
    **config: Any,
) -> Tracer:
    """Set up tracing for this program and return a tracer.

    A second call changes nothing and returns the tracer of the first; what it asks for in
    vain is logged once.  ``config`` takes every field of SdkConfig by name.  ``set_global``
    also makes it OpenTelemetry's global provider, so that instrumentations of others find it.
    Raises ConfigError.
    """
    arguments = {
        "service_name": service_name,
        "version": version,
        "span_filter": span_filter,
        "endpoint": endpoint,
        "protocol": protocol,
        "sampler": sampler,
        "exporter": exporter,
        "processors": tuple(processors),
        "capture_content": capture_content,
        **config,
    }
    with _Program.lock:
        provider = _Program.provider
        if provider is None or provider.closed:
            provider = _Program.provider = build_provider(arguments)
            _Program.arguments, _Program.told = arguments, False
            if set_global:
                # Warns, and changes nothing, where the program has a provider already.
                trace_api.set_tracer_provider(provider)
            return provider.get_tracer(SCOPE)
        names = unheeded(arguments, _Program.arguments, provider.config)
        tell = bool(names) and not _Program.told
        _Program.told = _Program.told or tell
    if tell:
        logger.warning(
            "mcptrace: tracing is set up already; init changes nothing about %s", ", ".join(names)
        )
    return provider.get_tracer(SCOPE)


def get_tracer(name: str = SCOPE, version: str | None = None) -> Tracer:
    """A tracer for the scope ``name``; one taken before ``init`` comes alive with it."""
    return _tracer(name, version) or DeferredTracer(name, version, lambda: _tracer(name, version))


def _tracer(name: str, version: str | None) -> Tracer | None:
    provider = _Program.provider
    return None if provider is None else provider.get_tracer(name, version)


def force_flush(timeout: float = 30.0) -> bool:
    """Export what has ended; False when ``timeout`` seconds passed first."""
    provider, flushed = _Program.provider, True
    if provider is not None:
        with guard("force_flush", provider.counters):
            flushed = provider.force_flush(int(timeout * 1000))
    return flushed


def shutdown(timeout: float = 5.0) -> None:
    """Export what has ended, within ``timeout`` seconds, and stop."""
    provider = _Program.provider
    if provider is not None:
        with guard("shutdown", provider.counters):
            provider.shutdown(timeout)


def stats() -> dict[str, int]:
    """How many spans were exported, and how many were not, by reason; empty before ``init``."""
    provider = _Program.provider
    return {} if provider is None else provider.stats()
