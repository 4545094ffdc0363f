"""What arguments, answers and errors of a Triton client say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcptrace_triton import spans


def _input(name: str, *shape: int) -> Any:
    return SimpleNamespace(name=lambda: name, shape=lambda: list(shape))


def test_attributes_say_what_is_sent() -> None:
    arguments = {"inputs": [_input("IDS", 1, 7), _input("MASK", 1, 7)], "sequence_id": 1 << 63}
    assert spans.attributes("grpc", arguments) == {
        "mcptrace.triton.protocol": "grpc",
        "mcptrace.triton.input_names": ["IDS", "MASK"],
        "mcptrace.triton.input_shape": [1, 7],
        "mcptrace.triton.sequence_id": "9223372036854775808",
    }


def test_only_so_many_inputs_are_named() -> None:
    inputs = [_input(f"I{number}", 1) for number in range(20)]
    named = spans.attributes("http", {"inputs": inputs})["mcptrace.triton.input_names"]
    assert named == [f"I{number}" for number in range(16)]


def test_a_call_without_inputs_says_only_the_protocol() -> None:
    assert spans.attributes("http", {"inputs": None, "sequence_id": 0}) == {
        "mcptrace.triton.protocol": "http",
        "mcptrace.triton.input_names": [],
    }


@pytest.mark.parametrize(
    ("headers", "carrier", "sent"),
    [
        (None, {"traceparent": "ours"}, {"traceparent": "ours"}),
        ({"a": "1"}, {"Traceparent": "ours"}, {"a": "1", "traceparent": "ours"}),
        ({"TraceParent": "theirs"}, {"traceparent": "ours"}, {"TraceParent": "theirs"}),
    ],
)
def test_headers_get_the_context_unless_the_caller_set_it(
    headers: Any, carrier: Any, sent: Any
) -> None:
    before = None if headers is None else dict(headers)
    assert spans.with_context(headers, carrier) == sent
    assert headers == before


def test_the_id_of_a_request_is_the_span_id_in_hex() -> None:
    assert spans.request_id(0xAB) == "00000000000000ab"


@pytest.mark.parametrize(
    ("response", "version"),
    [
        ({"model_version": "3"}, "3"),
        ({}, None),
        (SimpleNamespace(model_version="4"), "4"),
        (SimpleNamespace(model_version=""), None),
        (None, None),
    ],
)
def test_the_version_that_answered(response: Any, version: str | None) -> None:
    assert spans.model_version(response) == version


class _ServerError(Exception):
    def __init__(self, status: Any) -> None:
        self._status = status

    def status(self) -> Any:
        return self._status


@pytest.mark.parametrize(
    ("error", "status", "ending"),
    [
        (_ServerError("StatusCode.DEADLINE_EXCEEDED"), "DEADLINE_EXCEEDED", "timeout"),
        (_ServerError("StatusCode.CANCELLED"), "CANCELLED", "abandoned"),
        (_ServerError("StatusCode.NOT_FOUND"), "NOT_FOUND", None),
        (_ServerError("503"), "503", None),
        (_ServerError(None), None, None),
        (_ServerError(""), None, None),
        (ConnectionRefusedError(), None, None),
    ],
)
def test_what_a_failure_was(error: BaseException, status: str | None, ending: str | None) -> None:
    assert (spans.status(error), spans.ending(spans.status(error))) == (status, ending)
