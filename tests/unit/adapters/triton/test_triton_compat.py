"""Which methods of a Triton client are hooked."""

from __future__ import annotations

import pytest

from mcptrace_triton import compat
from mcptrace_triton.compat import Style


@pytest.mark.parametrize(
    ("style", "parameters"),
    [
        (Style.RETURNS, {"self", "model_name", "request_id", "headers", "later"}),
        (Style.CALLBACK, {"model_name", "request_id", "headers", "callback"}),
        (Style.STREAM, {"headers"}),
    ],
)
def test_a_method_with_what_is_needed_is_hooked(style: Style, parameters: set[str]) -> None:
    assert compat.refusal("infer", style, parameters) == ""


@pytest.mark.parametrize(
    ("style", "parameters", "lacking"),
    [
        (Style.RETURNS, {"model_name"}, "headers, request_id"),
        (Style.CALLBACK, {"model_name", "request_id", "headers"}, "callback"),
        (Style.STREAM, set(), "headers"),
    ],
)
def test_a_method_without_is_refused_with_the_reason(
    style: Style, parameters: set[str], lacking: str
) -> None:
    refusal = f"infer of tritonclient is not traced: it takes no {lacking}"
    assert compat.refusal("infer", style, parameters) == refusal


def test_every_module_speaks_http_or_grpc() -> None:
    assert {compat.protocol(module) for module in compat.HOOKS} == {"http", "grpc"}
