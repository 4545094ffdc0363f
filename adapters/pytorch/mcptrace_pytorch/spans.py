"""What a module and its inputs say about an inference: name, attributes, token counts.

Pure: modules and tensors are read by their attributes and never computed with; torch is not
imported.  What a model does not say is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mcptrace_proto.schema import MANDATORY_COUNTS, NOT_APPLICABLE

PROVIDER = "pytorch"
FORWARD = "forward"
GENERATE = "text_completion"

MODULE = "mcptrace.pytorch.module"  # qualified name of the module's class
DEVICE = "mcptrace.pytorch.device"  # "cpu", "cuda:0"
DTYPE = "mcptrace.pytorch.dtype"  # "float32"
INPUT_SHAPE = "mcptrace.pytorch.input_shape"  # int[], of the first tensor given
BATCH_SIZE = "mcptrace.pytorch.batch_size"  # its first dimension, where it has two or more

NO_TOKENS = dict.fromkeys(MANDATORY_COUNTS, NOT_APPLICABLE)
"""A plain module computes on tensors: nobody can say what a token would be."""

ENGINES = ("vllm", "sglang", "tensorrt_llm")
"""Packages whose modules run steps of many requests at once: no step is an inference."""

WRAPPER_DEPTH_MAX = 4
MODEL_NAME_CHARS_MAX = 256

_BUILDING_BLOCKS = "torch.nn.modules."


def is_model(module: Any) -> bool:
    """Whether a call of this module is an inference of its own.

    An activation, a loss or a pooling of torch.nn has no weights: it is arithmetic on the way.
    """
    home = type(module).__module__
    if home.partition(".")[0] in ENGINES:
        return False
    return not home.startswith(_BUILDING_BLOCKS) or first_parameter(module) is not None


def unwrapped(module: Any) -> Any:
    """The model itself, out of torch.compile's and (distributed) data-parallel wrappers."""
    for _ in range(WRAPPER_DEPTH_MAX):
        kind = type(module).__name__
        if kind == "OptimizedModule":
            module = module._orig_mod
        elif kind in ("DataParallel", "DistributedDataParallel"):
            module = module.module
        else:
            break
    return module


def model_name(module: Any) -> str:
    """``_mcptrace_name`` if set, else the name a Hugging Face model was loaded by, else the class.

    Of a model loaded from a folder only the folder's own name is told.
    """
    module = unwrapped(module)
    given = getattr(module, "_mcptrace_name", None)
    if not isinstance(given, str) or not given:
        given = getattr(getattr(module, "config", None), "name_or_path", None)
    if not isinstance(given, str) or not given:
        given = getattr(module, "original_name", None)  # a ScriptModule's own class
    if not isinstance(given, str) or not given:
        given = type(module).__name__
    if given.startswith(("/", ".", "~")) or "\\" in given:
        given = given.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return given[:MODEL_NAME_CHARS_MAX]


def attributes(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Where it runs, on what, and how much of it."""
    module = unwrapped(module)
    kind = type(module)
    found: dict[str, Any] = {MODULE: f"{kind.__module__}.{kind.__qualname__}"}
    given = first_tensor((*args, *kwargs.values()))
    weights = first_parameter(module)
    placed = given if weights is None else weights
    if placed is not None:
        if getattr(placed, "device", None) is not None:
            found[DEVICE] = str(placed.device)
        found[DTYPE] = str(placed.dtype).rpartition(".")[2]
    if given is not None:
        shape = [int(size) for size in given.shape]
        found[INPUT_SHAPE] = shape
        if len(shape) >= 2:
            found[BATCH_SIZE] = shape[0]
    return found


def first_parameter(module: Any) -> Any:
    parameters = getattr(module, "parameters", None)
    return next(iter(parameters()), None) if callable(parameters) else None


def first_tensor(values: Iterable[Any]) -> Any:
    """The first value with a shape and a dtype; containers are not searched."""
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return value
    return None


def argument(args: Sequence[Any], kwargs: Mapping[str, Any], position: int, *names: str) -> Any:
    """An argument of a call that may be given by position or by any of its names; or None."""
    if len(args) > position:
        return args[position]
    return next((kwargs[name] for name in names if kwargs.get(name) is not None), None)


def end_tokens(settings: Sequence[Any]) -> tuple[int | None, frozenset[int]]:
    """(padding, ends) from the first of the settings that says each, as ``generate`` reads them.

    ``settings`` are the call's keywords and the generation configurations, nearest first.
    """
    eos = _first(settings, "eos_token_id")
    ends = frozenset(eos if isinstance(eos, list | tuple) else () if eos is None else (eos,))
    padding = _first(settings, "pad_token_id")
    return (padding if isinstance(padding, int) else min(ends, default=None)), ends


def _first(settings: Sequence[Any], name: str) -> Any:
    for source in settings:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None:
            return value
    return None


def generated(
    rows: Sequence[Sequence[int]], padding: int | None, ends: Collection[int]
) -> tuple[int, bool]:
    """(tokens, all ended) of generated rows.

    A row that ended before the longest one is filled up with padding, which is often the end
    token itself: then the first one was the model's and the others are not.
    """
    tokens, all_ended = 0, True
    for row in rows:
        length = len(row)
        while length and row[length - 1] == padding:
            length -= 1
        if length < len(row) and padding in ends:
            length += 1
        tokens += length
        all_ended = all_ended and length > 0 and row[length - 1] in ends
    return tokens, all_ended
