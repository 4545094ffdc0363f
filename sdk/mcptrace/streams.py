"""Streams of an inference: items pass through, and how the stream ends is how the span ends.

    exhausted ─▶ stop (or the recorded reason)      raises ─▶ timeout or error
    closed early, or dropped by the caller ─▶ abandoned

Which of these ends the span at once, and which leaves that to a block, is the span's affair
(see inference.py).  The span is the current one only while an item is being fetched.  These
are classes and not generators: a generator would hold its context across every ``yield``, and
its clean-up would run wherever and whenever garbage collection finds it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mcptrace.current import attach_span, detach
from mcptrace.guard import Counters, guard

if TYPE_CHECKING:
    from typing_extensions import Self

Item = TypeVar("Item")


class StreamedSpan(Protocol):
    """What a stream asks of its span; see InferenceSpan."""

    def record_first_token(self) -> None: ...
    def _stream_ended(self, error: BaseException | None = None) -> None: ...
    def _stream_dropped(self) -> None: ...


Observe = Callable[[Any, Item], object]


class _Stream(Generic[Item]):
    """What both kinds share: the span, its state, and the source's other attributes."""

    def __init__(
        self, span: Any, source: Any, observe: Observe[Item] | None, counters: Counters | None
    ) -> None:
        self._span: Any = span
        self._counters = counters
        self._source: Any = source
        self._observe = observe
        self._open = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a half-built object must not look for itself
            raise AttributeError(name)
        return getattr(self._source, name)

    def _passed(self, item: Item) -> Item:
        self._span.record_first_token()
        if self._observe is not None:
            with guard("stream observer", self._counters):
                self._observe(self._span, item)
        return item

    def _ended(self, error: BaseException | None = None) -> None:
        if self._open:
            self._open = False
            self._span._stream_ended(error)

    def __del__(self) -> None:
        if self.__dict__.get("_open"):
            self._span._stream_dropped()


class InferenceStream(_Stream[Item], Iterator[Item]):
    """Made by ``InferenceSpan.wrap_stream``."""

    def __init__(
        self,
        span: StreamedSpan,
        items: Iterable[Item],
        observe: Observe[Item] | None,
        counters: Counters | None = None,
    ) -> None:
        super().__init__(span, items, observe, counters)
        self._items: Iterator[Item] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        token = attach_span(self._span)
        try:
            if self._items is None:
                self._items = iter(self._source)
            item = next(self._items)
        except StopIteration:
            self._ended()
            raise
        except BaseException as error:
            self._ended(error)
            raise
        finally:
            detach(token)
        return self._passed(item)

    def close(self) -> None:
        """Stop here: closes the source where it can be closed, and ends the span."""
        try:
            close = getattr(self._items or self._source, "close", None)
            if close is not None:
                close()
        finally:
            self._ended(GeneratorExit())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._ended(error)
        self.close()


class InferenceAsyncStream(_Stream[Item], AsyncIterator[Item]):
    """Made by ``InferenceSpan.wrap_stream`` of an async iterable."""

    def __init__(
        self,
        span: StreamedSpan,
        items: AsyncIterable[Item],
        observe: Observe[Item] | None,
        counters: Counters | None = None,
    ) -> None:
        super().__init__(span, items, observe, counters)
        self._items: AsyncIterator[Item] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        token = attach_span(self._span)
        try:
            if self._items is None:
                self._items = self._source.__aiter__()
            item = await self._items.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        except BaseException as error:
            self._ended(error)
            raise
        finally:
            detach(token)
        return self._passed(item)

    async def aclose(self) -> None:
        """Stop here: closes the source where it can be closed, and ends the span."""
        source = self._items or self._source
        try:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()
        finally:
            self._ended(GeneratorExit())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._ended(error)
        await self.aclose()


def stream_of(
    span: StreamedSpan,
    items: Any,
    observe: Observe[Any] | None = None,
    counters: Counters | None = None,
    *,
    prefer_async: bool = False,
) -> InferenceStream[Any] | InferenceAsyncStream[Any] | None:
    """A stream of the kind that ``items`` is; None where it is neither.

    By the type, as ``iter`` looks: an object that answers to every name is no iterable.
    What can be both is plain unless ``prefer_async``.
    """
    kind = type(items)
    plain = hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")
    if hasattr(kind, "__aiter__") and (prefer_async or not plain):
        return InferenceAsyncStream(span, items, observe, counters)
    return InferenceStream(span, items, observe, counters) if plain else None
