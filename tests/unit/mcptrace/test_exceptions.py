"""Exceptions described, and told apart by what they call themselves."""

from __future__ import annotations

import asyncio
import concurrent.futures

import grpc
import pytest
import requests

from mcptrace.exceptions import describe, is_abandonment, is_timeout, type_name


class Outer:
    class InnerError(Exception):
        """Nested, as some libraries do."""


def test_types_are_named_with_their_module_but_for_built_in_ones() -> None:
    assert type_name(ValueError()) == "ValueError"
    assert type_name(Outer.InnerError()) == f"{__name__}.Outer.InnerError"


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        asyncio.TimeoutError(),
        concurrent.futures.TimeoutError(),
        requests.exceptions.ReadTimeout(),
        requests.exceptions.ConnectTimeout(),
        grpc.FutureTimeoutError(),
    ],
)
def test_timeouts_of_many_libraries_are_timeouts(error: BaseException) -> None:
    assert is_timeout(error)


@pytest.mark.parametrize("error", [ValueError("timeout"), ConnectionError(), OSError()])
def test_other_errors_are_none(error: BaseException) -> None:
    assert not is_timeout(error)


def test_a_caller_that_goes_away_is_no_error() -> None:
    assert is_abandonment(GeneratorExit())
    assert is_abandonment(asyncio.CancelledError())
    assert is_abandonment(concurrent.futures.CancelledError())
    assert not is_abandonment(KeyboardInterrupt())


def test_the_stack_is_made_once_and_kept_on_the_exception() -> None:
    error = ValueError("x")
    first = describe(error, escaped=False)
    assert describe(error, escaped=True) == {**first, "exception.escaped": "True"}
    assert first == {
        "exception.type": "ValueError",
        "exception.message": "x",
        "exception.stacktrace": "ValueError: x\n",
    }
