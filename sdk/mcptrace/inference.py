"""The span of one inference: a span that also knows model, tokens, latency and how it ended.

What always holds:
  * a context is attached only inside a ``with`` block of the span or while a wrapped stream
    is fetching an item, never across a ``yield``;
  * an inference ends exactly once: by ``finish`` or ``end``, by leaving its block, by its
    stream (see streams.py) while no block is open, or as ``abandoned`` when nobody holds it
    any more or the program ends;
  * a count that nobody recorded is unknown, with the reason, and never 0; a finish reason that
    nobody knows is not written.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from opentelemetry.trace import NonRecordingSpan, Status, StatusCode

from mcptrace.current import attach_span, detach
from mcptrace.exceptions import is_abandonment, is_timeout, summary, type_name
from mcptrace.guard import guard, warn_rarely
from mcptrace.local_trace import LIVE_INFERENCES_MAX
from mcptrace.span import Span
from mcptrace.streams import InferenceAsyncStream, InferenceStream, stream_of
from mcptrace_proto import model, schema, semconv

if TYPE_CHECKING:
    from typing_extensions import Self

Item = TypeVar("Item")

STOP, ABANDONED, TIMEOUT, ERROR = "stop", "abandoned", "timeout", "error"

_UNKNOWN_BECAUSE = {
    ABANDONED: schema.ABANDONED,
    TIMEOUT: schema.ABORTED,
    ERROR: schema.ABORTED,
}


class InferenceSpan(Span):
    """Made by ``Tracer.start_inference``."""

    __slots__ = ("_abandoned_ns", "_failure", "_open_streams", "_tokens", "inference")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.inference = schema.InferenceSpan()
        self._tokens: list[object] = []  # one for each open block
        self._open_streams: list[object] = []
        self._failure: BaseException | None = None
        self._abandoned_ns = 0
        live = self._local.table.live
        if len(live) < LIVE_INFERENCES_MAX:
            live[id(self)] = weakref.ref(self)

    # -- what the caller says ----------------------------------------------------------

    def record_first_token(self) -> None:
        """Note the time to the first token; later calls change nothing."""
        if self.inference.ttft_ms is None and self._end_ns is None:
            self.inference.ttft_ms = max(0, self._local.now_ns() - self._start_ns) / 1e6

    def record_tokens(
        self,
        input: int | None = None,
        output: int | None = None,
        *,
        cached: int | None = None,
        reasoning: int | None = None,
        total: int | None = None,
        estimated: bool = False,
    ) -> None:
        """Set token counts.  The last value given for a field counts; nothing is added up.

        ``input`` includes ``cached``, ``output`` includes ``reasoning``.  ``estimated`` says
        that the counts are not the model server's own.
        """
        if self._end_ns is not None:
            self._too_late()
            return
        usage = self.inference.token_usage
        given = {
            "input": input,
            "output": output,
            "cached": cached,
            "reasoning": reasoning,
            "total": total,
        }
        for name, value in given.items():
            if value is not None:
                setattr(usage, name, _plain_count(value))
        if estimated:
            usage.estimated = True

    def record_finish_reason(self, reason: str) -> None:
        """Say why the model stopped, without ending the span."""
        if self._end_ns is not None:
            self._too_late()
            return
        self.inference.finish_reason = reason

    def finish(
        self,
        reason: str | None = None,
        latency_ms: float | None = None,
        end_time: int | None = None,
    ) -> None:
        """End the span.  ``latency_ms`` overrides the duration measured by the span.

        Without ``reason`` the one that was recorded stands, if any: none is made up.
        """
        if self._end_ns is not None:
            self._too_late()
            return
        view = self.inference
        view.finish_reason = reason or view.finish_reason
        if latency_ms is not None:
            view.inference_latency_ms = latency_ms
        self.end(end_time)

    def fail(self, error: BaseException) -> None:
        """End the span as the exception says: abandoned, timeout or error."""
        if self._end_ns is None:
            self._note_failure(error)
            self.finish()

    def _note_failure(self, error: BaseException) -> None:
        """Write down what the exception says, once: it may leave a stream and then a block."""
        if error is self._failure:
            return
        self._failure = error
        if is_abandonment(error):
            self.inference.finish_reason = ABANDONED
            if not isinstance(error, GeneratorExit):
                # A timeout around the task, or a client that hung up: from inside they look
                # alike, and the type makes the span critical (see critical_reason).
                self.set_attribute(semconv.ERROR_TYPE, type_name(error))
            return
        with guard("inference failure", self._tracer.counters):
            self.record_exception(error)
            self.set_status(Status(StatusCode.ERROR, summary(error)))
            if semconv.ERROR_TYPE not in self._attributes:
                self.set_attribute(semconv.ERROR_TYPE, type_name(error))
        self.inference.finish_reason = TIMEOUT if is_timeout(error) else ERROR

    # -- blocks ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._tokens.append(attach_span(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tokens:
            detach(self._tokens.pop())
        if self._end_ns is not None:
            return
        if error is not None:
            self.fail(error)
        elif not self._open_streams:
            self.finish()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    # -- streams -----------------------------------------------------------------------

    @overload
    def wrap_stream(
        self,
        items: Iterable[Item],
        observe: Callable[[InferenceSpan, Item], object] | None = None,
    ) -> InferenceStream[Item]: ...

    @overload
    def wrap_stream(
        self,
        items: AsyncIterable[Item],
        observe: Callable[[InferenceSpan, Item], object] | None = None,
    ) -> InferenceAsyncStream[Item]: ...

    def wrap_stream(
        self, items: Any, observe: Callable[[InferenceSpan, Any], object] | None = None
    ) -> Any:
        """Pass ``items``, plain or async, on; their end ends the span.

        While a ``with`` block of the span is open, the end of the stream only says how it
        ended; leaving the block (or ``finish``) ends the span, so that token counts can still
        be recorded.  A stream that is open when the block is left ends the span itself.

        ``observe`` is called with this span and every item, for example to read the token
        counts off the last one; what it raises is swallowed and counted.  What cannot be
        iterated comes back as it is (counted, and logged).
        """
        return self._wrap(items, observe, False)

    def wrap_async_stream(
        self,
        items: AsyncIterable[Item],
        observe: Callable[[InferenceSpan, Item], object] | None = None,
    ) -> InferenceAsyncStream[Item]:
        """``wrap_stream`` for what can be iterated both ways and is to be async."""
        stream: InferenceAsyncStream[Item] = self._wrap(items, observe, True)
        return stream

    def _wrap(self, items: Any, observe: Any, prefer_async: bool) -> Any:
        counters = self._tracer.counters
        stream = stream_of(self, items, observe, counters, prefer_async=prefer_async)
        if stream is None:
            counters.add("bad_argument")
            kind = type(items).__name__
            warn_rarely("mcptrace: span %r: %s is no stream, and not traced", self._name, kind)
            return items
        self.inference.streaming = True
        self._open_streams.append(None)
        return stream

    def _stream_ended(self, error: BaseException | None = None) -> None:
        """What a wrapped stream says at its end; without an error it is exhausted."""
        # First this and then the look at the blocks, __exit__ the other way round: on two
        # threads one of them sees that the end is its own.
        if self._open_streams:
            self._open_streams.pop()
        if self._end_ns is not None:
            return
        if error is not None:
            self._note_failure(error)
        elif self.inference.finish_reason is None:
            self.inference.finish_reason = STOP
        if not self._tokens and (error is not None or not self._open_streams):
            self.finish()

    def _stream_dropped(self) -> None:
        """What a wrapped stream says when nobody holds it any more; safe in a finalizer."""
        if not self._tokens:
            self.abandon()
        elif self._end_ns is None:
            self.inference.finish_reason = ABANDONED
            if self._open_streams:
                self._open_streams.pop()

    def abandon(self) -> None:
        """Note the time and leave the end to an ordinary thread.

        Safe in a finalizer: it only appends to a deque, whatever locks are held.
        """
        if self._end_ns is None and not self._abandoned_ns:
            local = self._local
            if local.generation == local.table.generation:
                self._abandoned_ns = local.now_ns()
                local.table.orphans.append(self)

    def adopt(self) -> None:
        """End what was left behind, at the time when it was."""
        if self._end_ns is None:
            self.finish(ABANDONED, end_time=self._abandoned_ns)

    def __del__(self) -> None:
        # Only where construction succeeded; "is None" would be wrong for a missing slot.
        if getattr(self, "_abandoned_ns", 1) == 0:
            self.abandon()

    # -- the end -----------------------------------------------------------------------

    def end(self, end_time: int | None = None) -> None:
        super().end(end_time)
        self._failure = None  # it holds its frames, and they hold this span
        self._local.table.live.pop(id(self), None)

    def _final_attributes(self, end_ns: int) -> model.Attributes:
        attributes = super()._final_attributes(end_ns)
        view = self.inference
        if view.inference_latency_ms is None:
            view.inference_latency_ms = max(0, end_ns - self._start_ns) / 1e6
        because = _UNKNOWN_BECAUSE.get(view.finish_reason or "", schema.NOT_REPORTED)
        view.token_usage = view.token_usage.completed(because)
        attributes.update(schema.inference_attributes(view, attributes))
        return attributes


def _plain_count(value: Any) -> Any:
    """A count of numpy's integer types as int; whatever is no count is the schema's to judge."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return value
    return int(value)


class NonRecordingInference(NonRecordingSpan):
    """Stands in where nothing is recorded: the same methods, no effect but the context."""

    _attached: tuple[object, ...] = ()

    def record_first_token(self) -> None:
        """Nothing is recorded."""

    def record_tokens(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is recorded."""

    def record_finish_reason(self, reason: str) -> None:
        """Nothing is recorded."""

    def finish(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is recorded."""

    def fail(self, error: BaseException) -> None:
        """Nothing is recorded."""

    def abandon(self) -> None:
        """Nothing is recorded."""

    @overload
    def wrap_stream(
        self, items: Iterable[Item], observe: Callable[..., object] | None = None
    ) -> InferenceStream[Item]: ...

    @overload
    def wrap_stream(
        self, items: AsyncIterable[Item], observe: Callable[..., object] | None = None
    ) -> InferenceAsyncStream[Item]: ...

    def wrap_stream(self, items: Any, observe: Callable[..., object] | None = None) -> Any:
        return stream_of(self, items) or items

    def wrap_async_stream(
        self, items: AsyncIterable[Item], observe: Callable[..., object] | None = None
    ) -> InferenceAsyncStream[Item]:
        stream: Any = stream_of(self, items, prefer_async=True) or items
        return stream  # type: ignore[no-any-return]

    def _stream_ended(self, error: BaseException | None = None) -> None:
        """Nothing is recorded."""

    def _stream_dropped(self) -> None:
        """Nothing is recorded."""

    def __enter__(self) -> Self:
        self._attached = (*self._attached, attach_span(self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._attached:
            detach(self._attached[-1])
            self._attached = self._attached[:-1]

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exc_info: object) -> None:
        self.__exit__(*exc_info)


AnyInferenceSpan: TypeAlias = InferenceSpan | NonRecordingInference
