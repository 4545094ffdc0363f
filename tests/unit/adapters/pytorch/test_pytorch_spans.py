"""What modules and tensors say about an inference, with stand-ins that only have attributes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcptrace_pytorch import spans


def _tensor(*shape: int, dtype: str = "torch.float32", device: str | None = "cpu") -> Any:
    return SimpleNamespace(shape=shape, dtype=dtype, device=device)


class Ranker:
    def __init__(self, *parameters: Any, **fields: Any) -> None:
        self._parameters = parameters
        self.__dict__.update(fields)

    def parameters(self) -> Any:
        return iter(self._parameters)


class OptimizedModule(Ranker): ...


class DataParallel(Ranker): ...


def _of_package(home: str, *parameters: Any) -> Any:
    return type("Module", (Ranker,), {"__module__": home})(*parameters)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Ranker(), True),
        (Ranker(_tensor(2)), True),
        (_of_package("torch.nn.modules.activation"), False),
        (_of_package("torch.nn.modules.linear", _tensor(2)), True),
        (_of_package("torch.jit._script"), True),
        (_of_package("vllm.model_executor.models.llama", _tensor(2)), False),
        (_of_package("vllmish", _tensor(2)), True),
    ],
)
def test_what_is_a_model(module: Any, expected: bool) -> None:
    assert spans.is_model(module) is expected


def _named(name_or_path: str) -> Any:
    return Ranker(config=SimpleNamespace(name_or_path=name_or_path))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (Ranker(), "Ranker"),
        (Ranker(_mcptrace_name="ranker-7"), "ranker-7"),
        (Ranker(_mcptrace_name=7), "Ranker"),
        (_named("org/ranker"), "org/ranker"),
        (_named("/srv/models/ranker-7/"), "ranker-7"),
        (_named("./ranker-7"), "ranker-7"),
        (_named("C:\\models\\ranker-7"), "ranker-7"),
        (_named(""), "Ranker"),
        (Ranker(original_name="Scripted"), "Scripted"),
        (OptimizedModule(_orig_mod=Ranker()), "Ranker"),
        (DataParallel(module=OptimizedModule(_orig_mod=_named("org/ranker"))), "org/ranker"),
        (_named("n" * 300), "n" * 256),
    ],
)
def test_the_name_of_a_model(module: Any, name: str) -> None:
    assert spans.model_name(module) == name


def test_attributes_say_where_on_what_and_how_much() -> None:
    module = Ranker(_tensor(8, 8, dtype="torch.bfloat16", device="cuda:1"))
    assert spans.attributes(module, ("text", _tensor(4, 8)), {"mask": _tensor(9)}) == {
        "mcptrace.pytorch.module": f"{__name__}.Ranker",
        "mcptrace.pytorch.device": "cuda:1",
        "mcptrace.pytorch.dtype": "bfloat16",
        "mcptrace.pytorch.input_shape": [4, 8],
        "mcptrace.pytorch.batch_size": 4,
    }


def test_without_weights_the_input_says_where_and_one_dimension_is_no_batch() -> None:
    assert spans.attributes(Ranker(), (), {"rows": _tensor(3, device=None)}) == {
        "mcptrace.pytorch.module": f"{__name__}.Ranker",
        "mcptrace.pytorch.dtype": "float32",
        "mcptrace.pytorch.input_shape": [3],
    }


def test_without_tensors_only_the_class_is_told() -> None:
    assert spans.attributes(Ranker(), ("text",), {}) == {
        "mcptrace.pytorch.module": f"{__name__}.Ranker"
    }


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        (("by position",), {"inputs": "by name"}, "by position"),
        ((), {"input_ids": "by name"}, "by name"),
        ((), {"inputs": None, "input_ids": "second name"}, "second name"),
        ((), {}, None),
    ],
)
def test_an_argument_is_found_by_position_or_any_name(
    args: Any, kwargs: Any, found: str | None
) -> None:
    assert spans.argument(args, kwargs, 0, "inputs", "input_ids") == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ([{"pad_token_id": 0}, SimpleNamespace(eos_token_id=2)], (0, frozenset({2}))),
        ([{}, None, SimpleNamespace(eos_token_id=[5, 2])], (2, frozenset({2, 5}))),
        ([{"eos_token_id": 9}, {"eos_token_id": 2, "pad_token_id": 3}], (3, frozenset({9}))),
        ([{}], (None, frozenset())),
    ],
)
def test_padding_and_end_come_from_the_nearest_setting(settings: Any, found: Any) -> None:
    assert spans.end_tokens(settings) == found


@pytest.mark.parametrize(
    ("rows", "padding", "ends", "found"),
    [
        ([[4, 5, 6]], 0, {2}, (3, False)),
        ([[4, 2, 0, 0], [4, 5, 6, 2]], 0, {2}, (6, True)),
        ([[4, 2, 0, 0], [4, 5, 6, 7]], 0, {2}, (6, False)),
        ([[4, 2, 2, 2]], 2, {2}, (2, True)),  # the first is the model's own
        ([[4, 5, 6, 2]], 2, {2}, (4, True)),
        ([[4, 5]], None, set(), (2, False)),
        ([[]], 0, {2}, (0, False)),
    ],
)
def test_padding_is_not_generated(rows: Any, padding: Any, ends: Any, found: Any) -> None:
    assert spans.generated(rows, padding, ends) == found
