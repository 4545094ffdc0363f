"""What a call of a Triton client says about an inference, and what its failure was.

Pure: arguments, answers and errors are read by their attributes; tritonclient is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROVIDER = "triton"
OPERATION = "infer"

PROTOCOL = "mcptrace.triton.protocol"  # "http" or "grpc"
INPUT_NAMES = "mcptrace.triton.input_names"  # string[]
INPUT_SHAPE = "mcptrace.triton.input_shape"  # int[], of the first input
SEQUENCE_ID = "mcptrace.triton.sequence_id"  # as text: it may pass 63 bits

INPUTS_MAX = 16

TIMEOUT, ABANDONED = "timeout", "abandoned"
_ENDINGS = {"DEADLINE_EXCEEDED": TIMEOUT, "CANCELLED": ABANDONED}


def attributes(protocol: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent: by which protocol, which inputs, in which sequence."""
    inputs = list(arguments.get("inputs") or ())[:INPUTS_MAX]
    found: dict[str, Any] = {PROTOCOL: protocol, INPUT_NAMES: [each.name() for each in inputs]}
    if inputs:
        found[INPUT_SHAPE] = [int(size) for size in inputs[0].shape()]
    sequence = arguments.get("sequence_id")
    if sequence:
        found[SEQUENCE_ID] = str(sequence)
    return found


def with_context(headers: Mapping[str, str] | None, carrier: Mapping[str, str]) -> dict[str, str]:
    """The caller's headers and those of ``carrier`` that the caller has not set; a new dict.

    Names are compared without case and sent in lower case, as gRPC wants them.
    """
    merged = dict(headers or {})
    taken = {name.lower() for name in merged}
    for name, value in carrier.items():
        if name.lower() not in taken:
            merged[name.lower()] = value
    return merged


def request_id(span_id: int) -> str:
    """What an unnamed request is called, so that its spans on the server find this one."""
    return f"{span_id:016x}"


def model_version(response: Any) -> str | None:
    """The version that answered: of a dict over HTTP, of a message over gRPC."""
    version = (
        response.get("model_version")
        if isinstance(response, Mapping)
        else getattr(response, "model_version", None)
    )
    return str(version) if version else None


def status(error: BaseException) -> str | None:
    """The server's or the channel's status, such as "404" or "NOT_FOUND"; None if it has none."""
    told = getattr(error, "status", None)
    value = told() if callable(told) else None
    return value.rpartition(".")[2] if isinstance(value, str) and value else None


def ending(status: str | None) -> str | None:
    """The finish reason that a status stands for; None for any other failure."""
    return _ENDINGS.get(status or "")
