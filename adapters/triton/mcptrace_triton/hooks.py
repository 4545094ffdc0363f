"""Where the adapter touches tritonclient: methods of its four ``InferenceServerClient`` classes.

What always holds:
  * results, exceptions and their order are those of the client; its arguments are changed in
    two places only: headers carry the trace context, and a request without an id gets one;
  * what the caller set himself, a ``traceparent`` or a request id, stays as it is;
  * the span is current while the client sends, and not in the caller's callback.

The id is there because a server may lose the context on the way: it then comes back as
``triton.request_id`` on a trace of its own, and tells which span it belongs to.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from inspect import BoundArguments
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt
from opentelemetry import trace as trace_api
from opentelemetry.trace import SpanKind, Status, StatusCode

from mcptrace.guard import guard
from mcptrace.inference import AnyInferenceSpan, InferenceSpan
from mcptrace.patching import Patches
from mcptrace_proto import semconv
from mcptrace_triton import compat, spans
from mcptrace_triton.compat import Style

if TYPE_CHECKING:
    _ObjectProxy = wrapt.ObjectProxy[Any]
else:
    _ObjectProxy = wrapt.ObjectProxy  # generic for type checkers only

SCOPE = "mcptrace_triton"

logger = logging.getLogger("mcptrace")


def install(tracer_provider: Any = None) -> None:
    """Trace requests from now on, with ``init``'s provider unless another one is given."""
    _patches.install(tracer_provider)


def uninstall() -> None:
    """Put back what was there.  Where somebody has patched over us we stay, and pass through."""
    _patches.uninstall()


def _patch(module: ModuleType) -> None:
    owner = getattr(module, compat.CLASS)
    for name, style in compat.HOOKS[module.__name__].items():
        if name in vars(owner):
            traced = functools.partial(_TRACED[style], compat.protocol(module.__name__))
            _patches.replace(owner, name, functools.partial(_wrapped, name, style, traced))


def _wrapped(name: str, style: Style, traced: Callable[..., Any], before: Any) -> Any:
    """What stands in for a method; None where it is not understood."""
    reason = compat.refusal(name, style, inspect.signature(before).parameters)
    if reason:
        logger.warning("mcptrace: %s", reason)
        return None
    return wrapt.FunctionWrapper(before, traced)


_patches = Patches(compat.HOOKS, _patch)


# -- one call ------------------------------------------------------------------------------


def _begin(
    protocol: str, wrapped: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[AnyInferenceSpan, BoundArguments] | None:
    """The span of a call and its arguments to send; None where the call is to pass untouched."""
    tracer = _patches.tracer(SCOPE)
    bound = _bound(wrapped, args, kwargs)
    if tracer is None or bound is None:
        return None
    given = bound.arguments
    span = tracer.start_inference(
        str(given["model_name"]),
        spans.OPERATION,
        provider=spans.PROVIDER,
        request_id=given.get("request_id") or None,
        model_version=given.get("model_version") or None,
        kind=SpanKind.CLIENT,
    )
    with guard("triton adapter"):
        span.set_attributes(spans.attributes(protocol, given))
    with guard("triton adapter"):
        _hand_on(given, span)
        context = span.get_span_context()
        if context.is_valid and not given.get("request_id"):
            given["request_id"] = spans.request_id(context.span_id)
            if isinstance(span, InferenceSpan):
                span.inference.request_id = given["request_id"]
    return span, bound


def _bound(wrapped: Callable[..., Any], args: Any, kwargs: Any) -> BoundArguments | None:
    try:
        return inspect.signature(wrapped).bind(*args, **kwargs)
    except TypeError:  # let the client complain itself
        return None


def _hand_on(arguments: dict[str, Any], span: trace_api.Span) -> None:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace_api.set_span_in_context(span))
    arguments["headers"] = spans.with_context(arguments.get("headers"), carrier)


def _succeeded(span: AnyInferenceSpan, result: Any) -> None:
    if isinstance(span, InferenceSpan) and span.is_recording():
        with guard("triton adapter"):
            version = spans.model_version(result.get_response())
            span.inference.model_version = version or span.inference.model_version
        span.finish()


def _failed(span: AnyInferenceSpan, error: BaseException) -> None:
    if not span.is_recording():
        return
    with guard("triton adapter"):
        status = spans.status(error)
        if status is not None:
            span.set_attribute(semconv.ERROR_TYPE, status)
        ending = spans.ending(status)
        if ending == spans.TIMEOUT:  # the client has one type for all; its status tells
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        if ending is not None:
            span.finish(ending)
    span.fail(error)


# -- by how the result comes ---------------------------------------------------------------


def _returns(protocol: str, wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    begun = _begin(protocol, wrapped, args, kwargs)
    if begun is None:
        return wrapped(*args, **kwargs)
    span, bound = begun
    with span:
        try:
            result = wrapped(*bound.args, **bound.kwargs)
        except BaseException as error:
            _failed(span, error)
            raise
        _succeeded(span, result)
    return result


async def _coroutine(protocol: str, wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    begun = _begin(protocol, wrapped, args, kwargs)
    if begun is None:
        return await wrapped(*args, **kwargs)
    span, bound = begun
    with span:
        try:
            result = await wrapped(*bound.args, **bound.kwargs)
        except BaseException as error:
            _failed(span, error)
            raise
        _succeeded(span, result)
    return result


def _callback(protocol: str, wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    begun = _begin(protocol, wrapped, args, kwargs)
    if begun is None:
        return wrapped(*args, **kwargs)
    span, bound = begun
    callback = bound.arguments["callback"]

    def answered(result: Any, error: Any) -> Any:
        if error is None:
            _succeeded(span, result)
        else:
            _failed(span, error)
        return callback(result=result, error=error)

    bound.arguments["callback"] = answered
    return _sent(span, wrapped, bound)


def _handle(protocol: str, wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    begun = _begin(protocol, wrapped, args, kwargs)
    if begun is None:
        return wrapped(*args, **kwargs)
    span, bound = begun
    return _TracedRequest(_sent(span, wrapped, bound), span)


def _sent(span: AnyInferenceSpan, wrapped: Any, bound: BoundArguments) -> Any:
    """Send under the span and leave it open for the answer."""
    with trace_api.use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            return wrapped(*bound.args, **bound.kwargs)
        except BaseException as error:
            _failed(span, error)
            raise


class _TracedRequest(_ObjectProxy):
    """An InferAsyncRequest whose span ends when its result is taken."""

    def __init__(self, request: Any, span: AnyInferenceSpan) -> None:
        super().__init__(request)
        self._self_span = span

    def get_result(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self.__wrapped__.get_result(*args, **kwargs)
        except BaseException as error:
            # The client's own exception without a status says "not yet": one may ask again.
            if not hasattr(error, "status") or spans.status(error) is not None:
                _failed(self._self_span, error)
            raise
        _succeeded(self._self_span, result)
        return result


def _stream(protocol: str, wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    """One context for the whole stream: that of the span in which it is opened."""
    current = trace_api.get_current_span()
    bound = _bound(wrapped, args, kwargs)
    if _patches.tracer(SCOPE) is None or bound is None or not current.get_span_context().is_valid:
        return wrapped(*args, **kwargs)
    with guard("triton adapter"):
        _hand_on(bound.arguments, current)
    return wrapped(*bound.args, **bound.kwargs)


_TRACED = {
    Style.RETURNS: _returns,
    Style.COROUTINE: _coroutine,
    Style.CALLBACK: _callback,
    Style.HANDLE: _handle,
    Style.STREAM: _stream,
}
