"""Exceptions as attributes of a span's event.

Formatting a stack is by far the most expensive thing a span can be asked for, and an
exception usually crosses several spans.  The text is therefore made once per exception and
kept on it, where it lives exactly as long as the exception does.
"""

from __future__ import annotations

import traceback
from typing import Any

from mcptrace.guard import text_of

STACKTRACE_CHARS_MAX = 16_384
_KEPT_AS = "__mcptrace_stacktrace__"


def type_name(exception: BaseException) -> str:
    """The qualified name, without the module for built-in types (semantic conventions)."""
    kind = type(exception)
    if kind.__module__ in ("builtins", "", None):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def describe(exception: BaseException, escaped: bool) -> dict[str, Any]:
    """exception.type, .message and .stacktrace (at most its last STACKTRACE_CHARS_MAX)."""
    described: dict[str, Any] = {
        "exception.type": type_name(exception),
        "exception.message": text_of(exception),
        "exception.stacktrace": _stacktrace(exception),
    }
    if escaped:
        described["exception.escaped"] = "True"
    return described


def summary(exception: BaseException) -> str:
    """The text of a status: what is seen at a glance of an exception."""
    return f"{type(exception).__name__}: {text_of(exception)}"


def _stacktrace(exception: BaseException) -> str:
    kept = exception.__dict__.get(_KEPT_AS)
    if isinstance(kept, str):
        return kept
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    text = "".join(lines)[-STACKTRACE_CHARS_MAX:]
    exception.__dict__[_KEPT_AS] = text
    return text


def is_timeout(exception: BaseException) -> bool:
    """Whether the type, or one it derives from, calls itself a timeout.

    By name, because every client library has its own: TimeoutError, requests.Timeout,
    httpx.ReadTimeout, grpc's DeadlineExceeded.
    """
    return any(
        "Timeout" in kind.__name__ or kind.__name__ == "DeadlineExceeded"
        for kind in type(exception).__mro__
    )


def is_abandonment(exception: BaseException) -> bool:
    """Whether the caller went away: a closed generator or a cancelled task."""
    return isinstance(exception, GeneratorExit) or any(
        kind.__name__ == "CancelledError" for kind in type(exception).__mro__
    )
