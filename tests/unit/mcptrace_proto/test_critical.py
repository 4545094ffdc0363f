"""Every way in which a span says that it failed or was too late."""

from __future__ import annotations

import pytest

from mcptrace_proto.model import STATUS_ERROR, STATUS_OK, Event, SpanData
from mcptrace_proto.sampling.critical import critical_reason
from mcptrace_proto.schema import InferenceSpan

MS = 1_000_000


def exception(kind: object) -> SpanData:
    return SpanData(events=[Event(1, "exception", {"exception.type": kind})])


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        (SpanData(), None),
        (SpanData(status_code=STATUS_OK), None),
        (SpanData(status_code=STATUS_ERROR), "error"),
        (SpanData(events=[Event(1, "first token")]), None),
        (exception("ValueError"), "error"),
        (exception(None), "error"),
        (exception(7), "error"),
        (exception("TimeoutError"), "timeout"),
        (exception("asyncio.exceptions.TimeoutError"), "timeout"),
        (exception("httpx.ReadTimeout"), "timeout"),
        (exception("asyncio.exceptions.CancelledError"), "timeout"),
        (exception("requests.exceptions.ConnectTimeout"), "timeout"),
        (exception("google.api_core.exceptions.DeadlineExceeded"), "timeout"),
        (exception("my.NoTimeoutAtAll"), "error"),
    ],
    ids=str,
)
def test_status_and_exceptions(span, reason):
    assert critical_reason(span, None) == reason


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"error.type": "500"}, "error"),
        ({"error.type": "_OTHER"}, "error"),
        ({"error.type": "timeout"}, "timeout"),
        ({"error.type": "DEADLINE_EXCEEDED"}, "timeout"),
        ({"error.type": "504"}, "timeout"),
        ({"error.type": "httpx.PoolTimeout"}, "timeout"),
        ({"http.response.status_code": 200}, None),
        ({"http.response.status_code": 404}, None),
        ({"http.response.status_code": 408}, "timeout"),
        ({"http.response.status_code": 500}, "error"),
        ({"http.response.status_code": 504}, "timeout"),
        ({"http.status_code": "503"}, "error"),
        ({"http.status_code": "\u0665\u0660\u0660"}, None),
        ({"http.response.status_code": True}, None),
        ({"http.response.status_code": [500]}, None),
        ({"rpc.grpc.status_code": 0}, None),
        ({"rpc.grpc.status_code": 5}, None),
        ({"rpc.grpc.status_code": 13}, "error"),
        ({"rpc.grpc.status_code": 4}, "timeout"),
        ({"rpc.response.status_code": "14"}, "error"),
    ],
    ids=str,
)
def test_attributes(attributes, reason):
    assert critical_reason(SpanData(attributes=attributes), None) == reason


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [
        (None, None),
        ("stop", None),
        ("length", None),
        ("abandoned", None),
        ("error", "error"),
        ("abort", "error"),
        ("timeout", "timeout"),
        ("deadline_exceeded", "timeout"),
        ("cancelled", "timeout"),
    ],
)
def test_finish_reasons(finish_reason, reason):
    assert critical_reason(SpanData(), InferenceSpan(finish_reason=finish_reason)) == reason


def test_a_timeout_wins_over_an_error():
    span = SpanData(
        status_code=STATUS_ERROR,
        events=[Event(1, "exception", {"exception.type": "KeyError"})],
        attributes={"http.response.status_code": 504, "error.type": "ValueError"},
    )
    assert critical_reason(span, None) == "timeout"


@pytest.mark.parametrize(
    ("duration_ms", "latency_ms", "reason"),
    [(99, None, None), (100, None, "timeout"), (500, 99.9, None), (1, 100.0, "timeout")],
)
def test_a_limit_is_held_against_the_latency_or_else_the_duration(duration_ms, latency_ms, reason):
    span = SpanData(start_time_unix_nano=5, end_time_unix_nano=5 + duration_ms * MS)
    view = None if latency_ms is None else InferenceSpan(inference_latency_ms=latency_ms)
    assert critical_reason(span, view, timeout_ms=100.0) == reason
    assert critical_reason(span, view) is None
