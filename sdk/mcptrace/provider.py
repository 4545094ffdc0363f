"""The tracer provider: builds the parts, hands out tracers, flushes, stops and survives forks.

Building one starts no thread; the batch processor starts its own with the first span.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from opentelemetry import trace as trace_api

from mcptrace import process_exit
from mcptrace.api import SpanExporter, SpanProcessor
from mcptrace.attributes import clean_attributes
from mcptrace.batch import BatchSettings
from mcptrace.clock import Clock
from mcptrace.config import SdkConfig
from mcptrace.delivery import Delivery, SpanFilter
from mcptrace.guard import Counters, guard
from mcptrace.ids import IdSource, RandomIds
from mcptrace.local_trace import LocalTraces
from mcptrace.resource import after_fork, build_resource
from mcptrace.sampling import build_sampler
from mcptrace.tracer import Tracer
from mcptrace_proto.model import Scope
from mcptrace_proto.schema import Enforcement

TRACERS_MAX = 4096
"""Scopes whose tracer is kept; more come from names made at run time, and get a new one."""


class TracerProvider(trace_api.TracerProvider):
    """An ``opentelemetry.trace.TracerProvider``.

    Args:
        config: from ``load_config``.
        sampler: ours or the stock SDK's; None builds the one that the config names.
        exporter: ours or the stock SDK's; None builds the one that the config names.
        processors: further processors, ours or the stock SDK's.
        span_filter: see ``delivery.SpanFilter``.

    Raises ConfigError for a sampler that is none.
    """

    def __init__(
        self,
        config: SdkConfig,
        *,
        sampler: Any = None,
        exporter: Any = None,
        processors: Iterable[Any] = (),
        span_filter: SpanFilter | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.config = config
        self.counters = Counters()
        self.clock = clock or Clock()
        self.ids: IdSource = ids or RandomIds()
        self.resource = build_resource(config.service_name, config.resource_attributes)
        self.sampler = build_sampler(config, sampler)
        self._delivery = Delivery(
            self.sampler,
            Enforcement(config.schema_enforcement),
            span_filter,
            self.clock,
            self.counters,
        )
        self.traces = LocalTraces(
            self._delivery,
            self.clock,
            self.counters,
            config.local_trace_spans_max,
            config.local_traces_bytes_max,
        )
        self._lock = threading.Lock()
        self._tracers: dict[tuple[Any, ...], Tracer] = {}
        for processor in processors:
            self.add_span_processor(processor)
        if not config.disabled:
            self._add_exporter(exporter)
        self._watch_forks()
        self.watch_exit()

    @property
    def processors(self) -> tuple[SpanProcessor, ...]:
        return self._delivery.processors

    @property
    def closed(self) -> bool:
        return self._delivery.closed

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Tracer:
        """The tracer of a scope; the same one for equal arguments."""
        cleaned, dropped = clean_attributes(attributes, self.config.attributes_max, None)
        scope = Scope(
            str(instrumenting_module_name or ""),
            str(instrumenting_library_version or ""),
            cleaned,
            dropped,
        )
        key = (scope.name, scope.version, schema_url or "", repr(cleaned))
        with self._lock:
            tracer = self._tracers.get(key)
            if tracer is None:
                tracer = Tracer(self, scope, schema_url or "")
                if len(self._tracers) < TRACERS_MAX:
                    self._tracers[key] = tracer
        return tracer

    def add_span_processor(self, processor: Any) -> None:
        """Add a processor of ours or of the stock SDK; spans that end from now on reach it."""
        adapted: SpanProcessor = processor
        stock = _loaded("opentelemetry.sdk.trace")
        if stock is not None and isinstance(processor, stock.SpanProcessor):
            from mcptrace.readable import ProcessorAdapter

            adapted = ProcessorAdapter(processor)
        with self._lock:
            self._delivery.processors = (*self._delivery.processors, adapted)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Finish what was abandoned and export everything that ended; False if out of time."""
        deadline = time.monotonic() + timeout_millis / 1000.0
        self.traces.adopt_orphans()
        return self._each_processor(
            "force_flush",
            lambda processor: processor.force_flush(max(0.0, deadline - time.monotonic())),
        )

    def shutdown(self, timeout_seconds: float | None = None) -> None:
        """End running inferences as abandoned, decide every waiting trace, export, and stop.

        All within the deadline, and only once.
        """
        if self._delivery.closed:
            return
        process_exit.forget(self._exit)
        limit = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit
        self.traces.end_live()
        self.traces.settle_all()
        self._delivery.closed = True
        self._each_processor(
            "shutdown",
            lambda processor: processor.shutdown(max(0.0, deadline - time.monotonic())),
        )

    def stats(self) -> dict[str, int]:
        """Counts by reason, of this provider and of its processors that keep any."""
        totals = self.counters.snapshot()
        for processor in self.processors:
            counters = getattr(processor, "counters", None)
            if isinstance(counters, Counters) and counters is not self.counters:
                for reason, count in counters.snapshot().items():
                    totals[reason] = totals.get(reason, 0) + count
        return totals

    def after_fork(self) -> None:
        """Make this the provider of a child process; the processors see to themselves."""
        self._lock = threading.Lock()
        self.counters.reset_after_fork()
        self.ids.reset_after_fork()
        self._delivery.reset_after_fork()
        self.traces.reset_after_fork()
        self.resource = after_fork(self.resource, self.config.resource_attributes)

    def watch_exit(self) -> None:
        """Shut down when this process ends; to be called once in every process.

        Before any processor asks the same: what we flush is what they export.
        """
        self.exit_watched_in = os.getpid()
        process_exit.call_at_exit(self._exit)

    def _exit(self) -> None:
        with guard("exit", self.counters):
            self.shutdown()

    def _each_processor(self, what: str, act: Callable[[SpanProcessor], object]) -> bool:
        complete = True
        for processor in self.processors:
            done: object = False
            with guard(what, self.counters):
                done = act(processor)
            complete = complete and done is not False
        return complete

    def _add_exporter(self, exporter: Any) -> None:
        """Put the exporter, given or configured, behind a batch processor."""
        built = adapt_exporter(exporter) if exporter is not None else _configured(self.config)
        if built is None:
            return
        from mcptrace.processor import BatchProcessor

        settings = BatchSettings(
            schedule_delay_seconds=self.config.schedule_delay_seconds,
            export_timeout_seconds=self.config.export_timeout_seconds,
            shutdown_timeout_seconds=self.config.shutdown_timeout_seconds,
            queue_spans_max=self.config.queue_spans_max,
            queue_bytes_max=self.config.queue_bytes_max,
            batch_spans_max=self.config.batch_spans_max,
            batch_bytes_max=self.config.request_bytes_max,
        )
        self.add_span_processor(BatchProcessor(built, settings, self.counters))

    def _watch_forks(self) -> None:
        """Start over in the child of a fork."""
        if not hasattr(os, "register_at_fork"):
            return
        reference = weakref.ref(self)

        def in_child() -> None:
            provider = reference()
            if provider is not None:
                provider.after_fork()

        os.register_at_fork(after_in_child=in_child)


def _configured(config: SdkConfig) -> SpanExporter | None:
    """The exporter that the configuration names; its modules are loaded only now."""
    if config.traces_exporter == "none":
        return None
    from mcptrace.exporters import build_exporter

    return build_exporter(config)


def adapt_exporter(exporter: Any) -> SpanExporter | None:
    """An exporter of ours as it is; one of the stock SDK behind an adapter."""
    stock = _loaded("opentelemetry.sdk.trace.export")
    if stock is not None and isinstance(exporter, stock.SpanExporter):
        from mcptrace.readable import ExporterAdapter

        return ExporterAdapter(exporter)
    return exporter  # type: ignore[no-any-return]


def _loaded(module: str) -> ModuleType | None:
    """A module if somebody imported it: no object of its classes can exist otherwise."""
    return sys.modules.get(module)
