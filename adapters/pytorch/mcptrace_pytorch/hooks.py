"""Where the adapter touches PyTorch: ``Module.__call__``, and ``generate`` of Transformers.

What always holds:
  * a model gives the same results, and raises the same exceptions, as without the adapter;
  * only the outermost call is traced, with gradients off and the module in evaluation mode;
  * within an inference span there is no second one: the forwards of a ``generate`` or of the
    program's own ``start_inference`` are steps of it;
  * code that torch.compile or torch.export reads sees the original call and nothing of ours.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import wrapt
from opentelemetry import trace as trace_api

from mcptrace.guard import guard
from mcptrace.inference import AnyInferenceSpan, InferenceSpan, NonRecordingInference
from mcptrace.patching import Patches
from mcptrace_pytorch import compat, spans

SCOPE = "mcptrace_pytorch"

logger = logging.getLogger("mcptrace")

_inside_root: ContextVar[bool] = ContextVar("mcptrace_pytorch_inside_root", default=False)


def install(tracer_provider: Any = None) -> None:
    """Trace inferences from now on, with ``init``'s provider unless another one is given."""
    _patches.install(tracer_provider)


def uninstall() -> None:
    """Put back what was there.  Where somebody has patched over us we stay, and pass through."""
    _patches.uninstall()


def _patch(module: ModuleType) -> None:
    package = module.__name__.partition(".")[0]
    version = str(getattr(sys.modules[package], "__version__", ""))
    reason = compat.refusal(module.__name__, version)
    if reason:
        logger.warning("mcptrace: %s", reason)
    elif module.__name__ == compat.TORCH:
        _patches.replace(module.nn.Module, "__call__", _traced_call(module))
    else:
        _patches.replace(module.GenerationMixin, "generate", _traced_generate)


_patches = Patches(compat.MODULES, _patch)


def _traced_call(torch: Any) -> Callable[[Any], Any]:
    """What stands in for ``Module.__call__``.

    A plain function and no wrapt object: torch.compile has to read through it, and folds
    ``is_compiling()`` to True.  Every layer of every model passes here: the tests that turn
    most calls away come first.
    """
    is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_compiling() or is_grad_enabled() or _inside_root.get():
                return original(self, *args, **kwargs)
            return _outermost(original, self, args, kwargs)

        return __call__

    return make


def _outermost(original: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # A frozen TorchScript module, which is always for inference, has no such attribute any more.
    if not _patches.active or getattr(module, "training", False):
        return original(module, *args, **kwargs)
    span = _start(module, spans.FORWARD, args, kwargs)
    if isinstance(span, InferenceSpan):
        span.inference.token_usage.unknown.update(spans.NO_TOKENS)
    token = _inside_root.set(True)
    try:
        if span is None:
            return original(module, *args, **kwargs)
        with span:
            return original(module, *args, **kwargs)
    finally:
        _inside_root.reset(token)


@wrapt.decorator
def _traced_generate(
    wrapped: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Around ``GenerationMixin.generate``; it switches gradients off itself."""
    if not _patches.active or _inside_root.get():
        return wrapped(*args, **kwargs)
    span = _start(model, spans.GENERATE, args, kwargs)
    token = _inside_root.set(True)
    try:
        if span is None:
            return wrapped(*args, **kwargs)
        with span:
            result = wrapped(*args, **kwargs)
            if isinstance(span, InferenceSpan):
                with guard("pytorch adapter"):
                    _record_tokens(span, model, args, kwargs, result)
            return result
    finally:
        _inside_root.reset(token)


def _start(
    module: Any, operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyInferenceSpan | None:
    """The span of a root call; None where nobody takes spans or this is no inference."""
    span: AnyInferenceSpan | None = None
    with guard("pytorch adapter"):
        tracer = _patches.tracer(SCOPE)
        current = trace_api.get_current_span()
        if tracer is None or isinstance(current, InferenceSpan | NonRecordingInference):
            return None
        if spans.is_model(module):
            span = tracer.start_inference(
                spans.model_name(module), operation, provider=spans.PROVIDER
            )
    if isinstance(span, InferenceSpan):
        with guard("pytorch adapter"):
            span.set_attributes(spans.attributes(module, args, kwargs))
    return span


def _record_tokens(
    span: InferenceSpan, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
) -> None:
    ids = spans.argument(args, kwargs, 0, "inputs", "input_ids")
    mask = kwargs.get("attention_mask")
    sequences = getattr(result, "sequences", result)
    skip = 1 if model.config.is_encoder_decoder else 0  # the token that a decoder starts from
    if ids is not None:
        span.record_tokens(input=int(mask.sum()) if mask is not None else int(ids.numel()))
        skip = skip or int(ids.shape[-1])
    given = spans.argument(args, kwargs, 1, "generation_config")
    settings = [kwargs, given, model.generation_config]
    rows = sequences[:, skip:].tolist()
    tokens, all_ended = spans.generated(rows, *spans.end_tokens(settings))
    span.record_tokens(output=tokens)
    # With conditions of the caller's own nobody says which one ended it.
    if not kwargs.get("stopping_criteria") and not kwargs.get("stop_strings"):
        span.record_finish_reason("stop" if all_ended else "length")
