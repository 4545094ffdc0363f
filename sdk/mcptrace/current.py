"""Making a span the current one, without a generator and without ever complaining.

Detaching tolerates a foreign context: a caller may enter in one task or thread and leave in
another, and that is nothing a user of a traced program can act on.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any

from opentelemetry import context as context_api
from opentelemetry import trace as trace_api
from opentelemetry.trace import Status, StatusCode

from mcptrace.exceptions import summary
from mcptrace.guard import guard

logger = logging.getLogger("mcptrace")


def attach_span(span: trace_api.Span) -> object:
    """Make ``span`` current in this context; undo with ``detach``."""
    return context_api.attach(trace_api.set_span_in_context(span))


def detach(token: Any) -> None:
    """Undo an attach.  In a context where it did not happen, nothing is changed."""
    if not isinstance(token, Token):  # a runtime context other than contextvars
        context_api.detach(token)
        return
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        logger.debug("mcptrace: a span's context was left in another context", exc_info=True)


def mark_failed(span: trace_api.Span, error: BaseException, record: bool, status: bool) -> None:
    """Note that ``error`` left the block of ``span``."""
    if not span.is_recording():
        return
    with guard("span failure"):
        if record:
            span.record_exception(error)
        if status:
            span.set_status(Status(StatusCode.ERROR, summary(error)))


class CurrentSpan(contextlib.AbstractContextManager[trace_api.Span]):
    """What ``start_as_current_span`` returns: a context manager and a decorator.

    The span starts on entering, not on construction, so that one decorator can serve many
    calls, also of coroutine functions.
    """

    __slots__ = ("_end_on_exit", "_record", "_span", "_start", "_status", "_token")

    def __init__(
        self, start: Callable[[], trace_api.Span], record: bool, status: bool, end_on_exit: bool
    ) -> None:
        self._start = start
        self._record = record
        self._status = status
        self._end_on_exit = end_on_exit

    def __enter__(self) -> trace_api.Span:
        span = self._span = self._start()
        self._token = attach_span(span)
        return span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        detach(self._token)
        # As in the API's use_span: a GeneratorExit or CancelledError is not a failure.
        if isinstance(error, Exception):
            mark_failed(self._span, error, self._record, self._status)
        if self._end_on_exit:
            self._span.end()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def fresh() -> CurrentSpan:
            return CurrentSpan(self._start, self._record, self._status, self._end_on_exit)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
                with fresh():
                    return await function(*args, **kwargs)

            return traced_coroutine

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with fresh():
                return function(*args, **kwargs)

        return traced
