"""A live span: an ``opentelemetry.trace.Span`` that becomes one SpanData when it ends.

What always holds:
  * setting something takes no lock: dict and list operations are atomic under the GIL (counts
    of what was dropped may then miss a few when threads share one span);
  * values are cleaned when they are set, once; nothing is set after the end (counted);
  * the first ``end`` wins, from whatever thread;
  * no method raises.

It knows neither sampling nor export: at its end it goes to its LocalTrace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from opentelemetry import trace as trace_api
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from mcptrace.api import FinishedSpan
from mcptrace.attributes import clean_attributes, put
from mcptrace.batch import estimated_bytes
from mcptrace.current import mark_failed
from mcptrace.exceptions import describe
from mcptrace.guard import guard, text_of, warn_rarely
from mcptrace.local_trace import LocalTrace
from mcptrace_proto import model, semconv

if TYPE_CHECKING:
    from typing_extensions import Self

    from mcptrace.tracer import Tracer

# opentelemetry-proto Span.flags: bits 8 and 9 above the W3C flags
FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE = 0x100, 0x200


class EventView(NamedTuple):
    """An event as third parties read it from ``span.events``."""

    name: str
    attributes: Mapping[str, Any]
    timestamp: int


class Span(trace_api.Span):
    """Made by a Tracer.  ``attributes`` are cleaned already."""

    __slots__ = (
        "_attributes",
        "_context",
        "_dropped_attributes",
        "_dropped_events",
        "_dropped_links",
        "_end_ns",
        "_events",
        "_flags",
        "_is_root",
        "_kind",
        "_links",
        "_local",
        "_name",
        "_parent",
        "_record_exception",
        "_set_status_on_exception",
        "_span_id",
        "_start_ns",
        "_status_code",
        "_status_text",
        "_trace_state",
        "_tracer",
    )

    def __init__(  # noqa: PLR0917 - made in one place, on the hot path
        self,
        tracer: Tracer,
        local: LocalTrace,
        parent: SpanContext | None,
        is_root: bool,
        name: str,
        kind: SpanKind,
        flags: TraceFlags,
        trace_state: TraceState,
        start_time: int | None,
    ) -> None:
        self._tracer = tracer
        self._local = local
        self._parent = parent
        self._is_root = is_root
        self._name = name
        self._kind = kind
        self._flags = flags
        self._trace_state = trace_state
        self._span_id = tracer.provider.ids.span_id()
        self._context: SpanContext | None = None
        self._attributes: model.Attributes = {}
        self._events: list[model.Event] = []
        self._links: list[tuple[SpanContext, model.Attributes, int]] = []
        self._dropped_attributes = 0
        self._dropped_events = 0
        self._dropped_links = 0
        self._status_code = StatusCode.UNSET
        self._status_text = ""
        self._record_exception = True
        self._set_status_on_exception = True
        self._end_ns: int | None = None
        self._start_ns = self._time_ns(start_time)

    # -- what the API asks for ---------------------------------------------------------

    def get_span_context(self) -> SpanContext:
        context = self._context
        if context is None:
            context = self._context = SpanContext(
                self._local.trace_id, self._span_id, False, self._flags, self._trace_state
            )
        return context

    def is_recording(self) -> bool:
        return self._end_ns is None

    def set_attribute(self, key: str, value: Any) -> None:
        if self._end_ns is not None:
            self._too_late()
            return
        config = self._tracer.config
        if not put(
            self._attributes, key, value, config.attributes_max, config.attribute_length_max
        ):
            self._dropped_attributes += 1

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        with guard("set_attributes", self._tracer.counters):
            for key, value in (attributes or {}).items():
                self.set_attribute(key, value)

    def add_event(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
    ) -> None:
        if self._end_ns is not None:
            self._too_late()
            return
        config = self._tracer.config
        if len(self._events) >= config.events_max:
            self._dropped_events += 1
            return
        with guard("add_event", self._tracer.counters):
            cleaned, dropped = clean_attributes(
                attributes, config.event_attributes_max, config.attribute_length_max
            )
            when = self._time_ns(timestamp)
            self._events.append(model.Event(when, text_of(name), cleaned, dropped))

    def add_link(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Link to ``context``.  One without ids is kept if it says something otherwise."""
        if self._end_ns is not None:
            self._too_late()
            return
        config = self._tracer.config
        with guard("add_link", self._tracer.counters):
            if context is None or not (context.is_valid or attributes or context.trace_state):
                return
            if len(self._links) >= config.links_max:
                self._dropped_links += 1
                return
            cleaned, dropped = clean_attributes(
                attributes, config.link_attributes_max, config.attribute_length_max
            )
            self._links.append((context, cleaned, dropped))

    def update_name(self, name: str) -> None:
        if self._end_ns is not None:
            self._too_late()
            return
        self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """OK is final, UNSET changes nothing, a description counts only with ERROR."""
        if self._end_ns is not None:
            self._too_late()
            return
        if isinstance(status, Status):
            description = status.description
            status = status.status_code
        if self._status_code is StatusCode.OK or status is StatusCode.UNSET:
            return
        if not isinstance(status, StatusCode):
            self._tracer.counters.add("bad_argument")
            return
        self._status_code = status
        if status is not StatusCode.ERROR or not description:
            self._status_text = ""
        else:  # often the exception itself
            self._status_text = description if type(description) is str else text_of(description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        with guard("record_exception", self._tracer.counters):
            self.add_event(
                "exception", {**describe(exception, escaped), **(attributes or {})}, timestamp
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            mark_failed(self, error, self._record_exception, self._set_status_on_exception)
        self.end()

    def end(self, end_time: int | None = None) -> None:
        """End the span, by default now; later calls change nothing."""
        local = self._local
        table = local.table
        with guard("span end", self._tracer.counters):
            when = self._time_ns(end_time)
            with table.lock:
                ended_before = self._end_ns is not None
                if not ended_before:
                    self._end_ns = when
            if ended_before:
                self._too_late()
            elif local.generation != table.generation:
                # A fork's copy of a span of its parent: the parent delivers it.
                self._tracer.counters.add("inherited_after_fork")
            else:
                data = self._data(when)
                tracer = self._tracer
                size = estimated_bytes(data)
                span = FinishedSpan(
                    data, tracer.scope, tracer.provider.resource, tracer.schema_url, size
                )
                table.finish(local, span, size, self._is_root)

    # -- what third parties read -------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> SpanKind:
        return self._kind

    @property
    def context(self) -> SpanContext:
        return self.get_span_context()

    @property
    def parent(self) -> SpanContext | None:
        return self._parent

    @property
    def start_time(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._start_ns

    @property
    def end_time(self) -> int | None:
        """Nanoseconds since the Unix epoch; None while the span is live."""
        return self._end_ns

    @property
    def status(self) -> Status:
        if self._status_code is StatusCode.ERROR:
            return Status(StatusCode.ERROR, self._status_text or None)
        return Status(self._status_code)

    @property
    def attributes(self) -> Mapping[str, Any]:
        return MappingProxyType(self._attributes)

    @property
    def events(self) -> Sequence[EventView]:
        return tuple(
            EventView(event.name, event.attributes, event.time_unix_nano) for event in self._events
        )

    @property
    def links(self) -> Sequence[trace_api.Link]:
        return tuple(trace_api.Link(context, attributes) for context, attributes, _ in self._links)

    @property
    def resource(self) -> model.Resource:
        return self._tracer.provider.resource

    @property
    def instrumentation_scope(self) -> model.Scope:
        return self._tracer.scope

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self._name!r}, context={self.get_span_context()!r})"

    def __copy__(self) -> Self:
        """A span is one thing that happens: there is no second of it."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live span cannot be pickled; send its span context")

    # -- the end -----------------------------------------------------------------------

    def _time_ns(self, given: int | None) -> int:
        """Nanoseconds since the Unix epoch: as given, or now."""
        if given is not None:
            try:
                return int(given)
            except (ValueError, TypeError, OverflowError):
                self._tracer.counters.add("bad_argument")
        return self._local.now_ns()

    def _too_late(self) -> None:
        self._tracer.counters.add("used_after_end")
        warn_rarely("mcptrace: span %r was used after its end; nothing is changed", self._name)

    def _final_attributes(self, end_ns: int) -> model.Attributes:
        """A copy: a thread that is still setting must not disturb the exporter."""
        attributes = dict(self._attributes)
        attributes.setdefault(semconv.PROTOCOL_VERSION, semconv.PROTOCOL_VERSION_VALUE)
        return attributes

    def _data(self, end_ns: int) -> model.SpanData:
        parent = self._parent
        flags = int(self._flags) | FLAG_HAS_IS_REMOTE
        if parent is not None and parent.is_remote:
            flags |= FLAG_IS_REMOTE
        return model.SpanData(
            trace_id=self._local.trace_id.to_bytes(model.TRACE_ID_BYTES, "big"),
            span_id=self._span_id.to_bytes(model.SPAN_ID_BYTES, "big"),
            parent_span_id=(
                b"" if parent is None else parent.span_id.to_bytes(model.SPAN_ID_BYTES, "big")
            ),
            name=text_of(self._name),
            kind=self._kind.value + 1,
            start_time_unix_nano=self._start_ns,
            end_time_unix_nano=end_ns,
            attributes=self._final_attributes(end_ns),
            events=list(self._events),
            links=[_link_data(*link) for link in self._links],
            status_code=self._status_code.value,
            status_message=self._status_text,
            trace_state=self._trace_state.to_header() if self._trace_state else "",
            flags=flags,
            dropped_attributes_count=self._dropped_attributes,
            dropped_events_count=self._dropped_events,
            dropped_links_count=self._dropped_links,
        )


def _link_data(context: SpanContext, attributes: model.Attributes, dropped: int) -> model.Link:
    flags = int(context.trace_flags) | FLAG_HAS_IS_REMOTE
    return model.Link(
        trace_id=context.trace_id.to_bytes(model.TRACE_ID_BYTES, "big"),
        span_id=context.span_id.to_bytes(model.SPAN_ID_BYTES, "big"),
        trace_state=context.trace_state.to_header() if context.trace_state else "",
        attributes=attributes,
        dropped_attributes_count=dropped,
        flags=flags | FLAG_IS_REMOTE if context.is_remote else flags,
    )
