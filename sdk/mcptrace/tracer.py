"""Starting spans: an ``opentelemetry.trace.Tracer``, and ``start_inference`` beside it.

A span joins the LocalTrace of its parent when the parent is a live or ended span of the same
provider in this process; otherwise it is a local root and opens one.  Nothing here raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace as trace_api
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from mcptrace.attributes import clean_attributes
from mcptrace.config import SdkConfig
from mcptrace.current import CurrentSpan
from mcptrace.guard import Counters, guard
from mcptrace.inference import AnyInferenceSpan, InferenceSpan, NonRecordingInference
from mcptrace.local_trace import LocalTrace
from mcptrace.sampling import Head, Start
from mcptrace.span import Span
from mcptrace_proto.model import Scope

if TYPE_CHECKING:
    from mcptrace.provider import TracerProvider

SAMPLED, RANDOM = 0x01, 0x02  # W3C Trace Context level 2, trace-flags
_FLAGS = tuple(TraceFlags(bits) for bits in range(4))

NotRecorded = Callable[[SpanContext], trace_api.Span]


class Family(NamedTuple):
    """Where a new span belongs."""

    local: LocalTrace | None  # None: not recorded
    parent: SpanContext | None
    is_root: bool
    trace_id: int
    head: Head


class Tracer(trace_api.Tracer):
    """Made by a TracerProvider, one for each instrumentation scope."""

    def __init__(self, provider: TracerProvider, scope: Scope, schema_url: str = "") -> None:
        self.provider = provider
        self.scope = scope
        self.schema_url = schema_url
        self.config: SdkConfig = provider.config
        self.counters: Counters = provider.counters

    def start_span(  # noqa: PLR0917 - the API's signature
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace_api.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace_api.Span:
        span: trace_api.Span = trace_api.INVALID_SPAN
        with guard("start_span", self.counters):
            span = self._start(
                Span, NonRecordingSpan, name, context, kind, attributes, links, start_time
            )
            if isinstance(span, Span):
                span._record_exception = record_exception
                span._set_status_on_exception = set_status_on_exception
        return span

    # The API's signature; its own return type is a private class of the API.
    def start_as_current_span(  # type: ignore[override]  # noqa: PLR0917
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace_api.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> CurrentSpan:
        """A context manager and decorator; the span starts when the block is entered."""
        return CurrentSpan(
            lambda: self.start_span(name, context, kind, attributes, links, start_time),
            record_exception,
            set_status_on_exception,
            end_on_exit,
        )

    def start_inference(
        self,
        model: str,
        operation: str = "chat",
        *,
        provider: str | None = None,
        request_id: str | None = None,
        model_version: str | None = None,
        streaming: bool = False,
        queue_ms: float | None = None,
        name: str | None = None,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace_api.Link] | None = None,
        start_time: int | None = None,
    ) -> AnyInferenceSpan:
        """Start the span of one inference, named "operation model" unless ``name`` is given.

        ``kind`` is INTERNAL for a model in this process; use CLIENT for a call to a server.
        ``queue_ms`` is how long the request waited before.  The span is current only inside
        a ``with`` block of it.  Leaving the block ends it, unless a stream that it wrapped is
        still open: then the end of the stream does.
        """
        span: AnyInferenceSpan = NonRecordingInference(trace_api.INVALID_SPAN_CONTEXT)
        with guard("start_inference", self.counters):
            started = self._start(
                InferenceSpan,
                NonRecordingInference,
                name or f"{operation} {model}",
                context,
                kind,
                attributes,
                links,
                start_time,
            )
            assert isinstance(started, InferenceSpan | NonRecordingInference)
            if isinstance(started, InferenceSpan):
                view = started.inference
                view.model_name, view.operation, view.provider = model, operation, provider
                view.request_id, view.model_version = request_id, model_version
                view.streaming, view.queue_ms = streaming, queue_ms
            span = started
        return span

    def _start(  # noqa: PLR0917 - the API's arguments, on the hot path
        self,
        factory: type[Span],
        not_recorded: NotRecorded,
        name: str,
        context: Context | None,
        kind: SpanKind,
        attributes: Mapping[str, Any] | None,
        links: Sequence[trace_api.Link] | None,
        start_time: int | None,
    ) -> trace_api.Span:
        provider = self.provider
        if provider.closed or self.config.disabled:
            return not_recorded(trace_api.get_current_span(context).get_span_context())
        family = self._family(name, context, kind, attributes, links)
        flags = _flags(family)
        if not isinstance(kind, SpanKind):
            self.counters.add("bad_argument")
            kind = SpanKind.INTERNAL
        if family.local is None:
            span_id = provider.ids.span_id()
            return not_recorded(
                SpanContext(family.trace_id, span_id, False, flags, family.head.trace_state)
            )
        span = factory(
            self,
            family.local,
            family.parent,
            family.is_root,
            name,
            kind,
            flags,
            family.head.trace_state,
            start_time,
        )
        given = family.head.attributes if family.head.attributes is not None else attributes
        if given:
            with guard("attributes of start_span", self.counters):
                span._attributes, span._dropped_attributes = clean_attributes(
                    given, self.config.attributes_max, self.config.attribute_length_max
                )
        for link in links or ():
            with guard("link of start_span", self.counters):
                span.add_link(link.context, link.attributes)
        for processor in provider.processors:
            with guard("span processor", self.counters):
                processor.on_start(span, context)
        return span

    def _family(
        self,
        name: str,
        context: Context | None,
        kind: SpanKind,
        attributes: Mapping[str, Any] | None,
        links: Sequence[trace_api.Link] | None,
    ) -> Family:
        provider = self.provider
        table = provider.traces
        current = trace_api.get_current_span(context)
        local = current._local if isinstance(current, Span) else None
        if local is not None and local.table is table and local.generation == table.generation:
            parent = current.get_span_context()
            head = local.head
            if provider.sampler.per_span:
                head = provider.sampler.head(
                    Start(context, parent, local.trace_id, name, kind, attributes, links)
                )
            return Family(local if head.record else None, parent, False, local.trace_id, head)
        if os.getpid() != table.generation:  # forked without Python's hooks
            provider.after_fork()
        if provider.exit_watched_in != table.generation:
            provider.watch_exit()
        if table.orphans:
            table.adopt_orphans()
        context_of_parent = current.get_span_context()
        parent_or_none = context_of_parent if context_of_parent.is_valid else None
        trace_id = (
            parent_or_none.trace_id if parent_or_none is not None else provider.ids.trace_id()
        )
        head = provider.sampler.head(
            Start(context, parent_or_none, trace_id, name, kind, attributes, links)
        )
        local = LocalTrace(table, trace_id, parent_or_none, head) if head.record else None
        return Family(local, parent_or_none, True, trace_id, head)


def _flags(family: Family) -> TraceFlags:
    """Sampled by the head; random when we made the trace id, else as the parent says."""
    random = RANDOM if family.parent is None else int(family.parent.trace_flags) & RANDOM
    return _FLAGS[random | SAMPLED if family.head.sampled else random]
