"""What makes a span critical: it failed, or it timed out.

Pure.  Sources: trace.v1 Status; semantic conventions for exceptions, HTTP (5xx), gRPC status
codes; finish reasons of MCP-Trace v2.3.  A timeout is the more specific finding and wins.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcptrace_proto import semconv
from mcptrace_proto.model import STATUS_ERROR, AttributeValue, SpanData
from mcptrace_proto.sampling.decision import ERROR, TIMEOUT
from mcptrace_proto.schema import InferenceSpan

# The last part of the exception types with which frameworks and clients say "too late".
TIMEOUT_EXCEPTIONS = frozenset(
    {
        "TimeoutError",  # Python, asyncio, concurrent.futures, aiohttp
        "timeout",  # socket.timeout before Python 3.10
        "TimeoutException",  # httpx
        "ReadTimeout",
        "WriteTimeout",
        "ConnectTimeout",
        "PoolTimeout",
        "Timeout",  # requests
        "ReadTimeoutError",  # urllib3
        "ConnectTimeoutError",
        "ServerTimeoutError",  # aiohttp
        "SocketTimeoutError",
        "ConnectionTimeoutError",
        "APITimeoutError",  # clients of hosted models
        "DeadlineExceeded",  # google.api_core
        "PyTritonClientTimeoutError",
        "SoftTimeLimitExceeded",  # celery
        "TimeLimitExceeded",
        "CancelledError",  # how a timeout around a task, or a client that hung up, looks inside it
    }
)
TIMEOUT_ERROR_TYPES = frozenset({"timeout", "deadline_exceeded", "4", "408", "499", "504"})
TIMEOUT_HTTP = frozenset({408, 499, 504})  # 499: the client hung up
GRPC_DEADLINE_EXCEEDED = 4
# Codes that are the caller's own doing are no failure of the service (semantic conventions
# for gRPC servers): INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
# FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNAUTHENTICATED are left to the span's status.
GRPC_ERRORS = frozenset({2, 4, 8, 12, 13, 14, 15})
TIMEOUT_FINISH = frozenset({"timeout", "deadline_exceeded", "cancelled"})
ERROR_FINISH = frozenset({"error", "abort", "aborted"})

_HTTP_NAMES = ("http.response.status_code", "http.status_code")
_GRPC_NAMES = ("rpc.grpc.status_code", "rpc.response.status_code")


def critical_reason(
    span: SpanData, view: InferenceSpan | None, timeout_ms: float | None = None
) -> str | None:
    """TIMEOUT, ERROR or None.  ``timeout_ms`` is a limit from which a span counts as timed out.

    The limit is held against the inference latency, or without one the span's duration.
    """
    findings = set(_findings(span, view))
    if TIMEOUT in findings or (timeout_ms is not None and _duration_ms(span, view) >= timeout_ms):
        return TIMEOUT
    return ERROR if findings else None


def _findings(span: SpanData, view: InferenceSpan | None) -> Iterator[str]:
    attributes = span.attributes
    if span.status_code == STATUS_ERROR:
        yield ERROR
    for event in span.events:
        if event.name == "exception":
            yield _of_exception(event.attributes.get("exception.type"))
    if (error_type := attributes.get(semconv.ERROR_TYPE)) is not None:
        known = isinstance(error_type, str) and error_type.lower() in TIMEOUT_ERROR_TYPES
        yield TIMEOUT if known else _of_exception(error_type)
    for name in _HTTP_NAMES:
        code = _integer(attributes.get(name))
        if code in TIMEOUT_HTTP:
            yield TIMEOUT
        elif code is not None and code >= 500:
            yield ERROR
    for name in _GRPC_NAMES:
        code = _integer(attributes.get(name))
        if code == GRPC_DEADLINE_EXCEEDED:
            yield TIMEOUT
        elif code in GRPC_ERRORS:
            yield ERROR
    if view is not None and view.finish_reason in TIMEOUT_FINISH:
        yield TIMEOUT
    elif view is not None and view.finish_reason in ERROR_FINISH:
        yield ERROR


def _of_exception(kind: AttributeValue) -> str:
    last = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    return TIMEOUT if last in TIMEOUT_EXCEPTIONS else ERROR


def _integer(value: AttributeValue) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def _duration_ms(span: SpanData, view: InferenceSpan | None) -> float:
    if view is not None and view.inference_latency_ms is not None:
        return view.inference_latency_ms
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
