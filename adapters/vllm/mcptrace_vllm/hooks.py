"""Where the adapter touches vLLM: ``LLM.generate`` and ``LLM.chat``.

    LLM.generate            the call: a plain span, current while the engine runs
    ├─ text_completion m    one inference span for each prompt
    └─ text_completion m

What always holds:
  * results and exceptions are vLLM's own;
  * the spans of the prompts are made when the call returns, from what vLLM measured; a call
    that fails has one inference span, failed, because vLLM then answers none of its prompts.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import wrapt

from mcptrace.guard import guard
from mcptrace.inference import InferenceSpan
from mcptrace.patching import Patches
from mcptrace.tracer import Tracer
from mcptrace_vllm import compat, spans

SCOPE = "mcptrace_vllm"

logger = logging.getLogger("mcptrace")

_inside_call: ContextVar[bool] = ContextVar("mcptrace_vllm_inside_call", default=False)


def install(tracer_provider: Any = None) -> None:
    """Trace requests from now on, with ``init``'s provider unless another one is given."""
    _patches.install(tracer_provider)


def uninstall() -> None:
    """Put back what was there.  Where somebody has patched over us we stay, and pass through."""
    _patches.uninstall()


def _patch(module: ModuleType) -> None:
    reason = compat.refusal(str(getattr(sys.modules["vllm"], "__version__", "")))
    if reason:
        logger.warning("mcptrace: %s", reason)
        return
    owner = getattr(module, compat.CLASS)
    for name in compat.METHODS:
        if name in vars(owner):
            _patches.replace(owner, name, functools.partial(_wrapped, name))


def _wrapped(name: str, before: Any) -> Any:
    return wrapt.FunctionWrapper(before, functools.partial(_traced, name))


_patches = Patches((compat.MODULE,), _patch)


def _traced(method: str, wrapped: Any, llm: Any, args: Any, kwargs: Any) -> Any:
    tracer = _patches.tracer(SCOPE)
    if tracer is None or _inside_call.get():
        return wrapped(*args, **kwargs)
    name, operation = _model_name(llm), compat.METHODS[method]
    began_unix_nano = time.time_ns()
    token = _inside_call.set(True)
    try:
        with tracer.start_as_current_span(f"{compat.CLASS}.{method}") as call:
            try:
                outputs = wrapped(*args, **kwargs)
            except BaseException as error:
                tracer.start_inference(
                    name, operation, provider=spans.PROVIDER, start_time=began_unix_nano
                ).fail(error)
                raise
            with guard("vllm adapter"):
                call.set_attribute(spans.REQUESTS, len(outputs))
                for output in outputs:
                    _record(tracer, name, operation, began_unix_nano, spans.request(output))
    finally:
        _inside_call.reset(token)
    return outputs


def _model_name(llm: Any) -> str:
    name = "unknown"
    with guard("vllm adapter"):
        name = spans.model_name(llm)
    return name


def _record(
    tracer: Tracer,
    name: str,
    operation: str,
    began_unix_nano: int,
    request: spans.Request,
) -> None:
    """The inference span of one prompt, at the time when vLLM worked on it."""
    start = request.arrival_unix_nano or began_unix_nano
    span = tracer.start_inference(
        name,
        operation,
        provider=spans.PROVIDER,
        request_id=request.request_id,
        queue_ms=request.queue_ms,
        attributes=request.attributes,
        start_time=start,
    )
    if not isinstance(span, InferenceSpan):
        return
    span.inference.ttft_ms = request.ttft_ms
    span.record_tokens(
        input=request.input_tokens, output=request.output_tokens, cached=request.cached_tokens
    )
    latency = request.latency_ms
    end = None if latency is None else start + round(latency * 1e6)
    span.finish(request.finish_reason, latency, end)
