"""Which methods of tritonclient are hooked, and what they must accept.

Pure.  The client has no version at run time and its methods have been stable for years, so
each method is judged by its own parameters.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

CLASS = "InferenceServerClient"


class Style(enum.Enum):
    """How a method gives its result."""

    RETURNS = "returns"
    COROUTINE = "coroutine"
    CALLBACK = "callback"  # called once, from a thread of the client, with result= and error=
    HANDLE = "handle"  # has get_result()
    STREAM = "stream"  # only the caller's context is handed on


HOOKS = {
    "tritonclient.http": {"infer": Style.RETURNS, "async_infer": Style.HANDLE},
    "tritonclient.grpc": {
        "infer": Style.RETURNS,
        "async_infer": Style.CALLBACK,
        "start_stream": Style.STREAM,
    },
    "tritonclient.http.aio": {"infer": Style.COROUTINE},
    "tritonclient.grpc.aio": {"infer": Style.COROUTINE, "stream_infer": Style.STREAM},
}
"""Methods of CLASS by module; hooked when the module is imported, whenever that is."""


def protocol(module: str) -> str:
    """ "http" or "grpc"."""
    return module.split(".")[1]


def refusal(method: str, style: Style, parameters: Collection[str]) -> str:
    """Why a method is left alone; empty when it is not."""
    needed = {"headers"}
    if style is not Style.STREAM:
        needed |= {"model_name", "request_id"}
    if style is Style.CALLBACK:
        needed.add("callback")
    lacking = sorted(needed - set(parameters))
    if lacking:
        return f"{method} of tritonclient is not traced: it takes no {', '.join(lacking)}"
    return ""
