from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from mcptrace_collector.errors import BadRequest, RequestTooLarge
from mcptrace_collector.pipeline import Origin
from mcptrace_collector.receivers.admit import admit, admit_json
from mcptrace_proto import wire
from mcptrace_proto.limits import Limits
from mcptrace_proto.model import (
    AttributeValue,
    Event,
    Link,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanData,
)

GOOD = SpanData(trace_id=bytes(15) + b"\1", span_id=bytes(7) + b"\1", name="good")


def request(*spans: SpanData, **resource: str) -> bytes:
    group = ResourceSpans(Resource(dict(resource)), [ScopeSpans(Scope("lib"), list(spans))])
    return wire.encode_request([group])


def test_spans_come_with_bytes_view_source_and_resource() -> None:
    body = request(GOOD, service="shop") + request(replace(GOOD, name="other"), service="till")
    admitted = admit(body)
    assert (admitted.body, admitted.rejected, admitted.message) == (body, 0, "")
    assert [record.data.name for record in admitted.records] == ["good", "other"]
    assert [record.raw for record in admitted.records] == [
        wire.encode_span(GOOD),
        wire.encode_span(replace(GOOD, name="other")),
    ]
    assert [record.resource for record in admitted.records] == [
        {"service": "shop"},
        {"service": "till"},
    ]
    assert [wire.decode_scope(record.source.scope).name for record in admitted.records] == [
        "lib",
        "lib",
    ]
    assert [record.origin for record in admitted.records] == [Origin(0, 0), Origin(0, 1)]


@pytest.mark.parametrize("body", [b"", request()])
def test_an_empty_request_is_admitted(body: bytes) -> None:
    assert admit(body).records == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trace_id": b""}, "trace_id has 0 bytes, not 16"),
        ({"trace_id": bytes(15)}, "trace_id has 15 bytes, not 16"),
        ({"trace_id": bytes(16)}, "trace_id is all zeros"),
        ({"span_id": b"\1" * 9}, "span_id has 9 bytes, not 8"),
        ({"span_id": bytes(8)}, "span_id is all zeros"),
        ({"parent_span_id": b"\1"}, "parent_span_id has 1 bytes, not 8"),
        ({"links": [Link(trace_id=b"\1")]}, "a link's trace_id has 1 bytes, not 16"),
        (
            {"links": [Link(trace_id=b"\1" * 16, span_id=b"\1" * 7)]},
            "a link's span_id has 7 bytes, not 8",
        ),
    ],
)
def test_a_span_with_an_id_that_is_none_is_refused_alone(
    wrong: dict[str, Any], message: str
) -> None:
    body = request(GOOD, replace(GOOD, **wrong), replace(GOOD, name="after"))
    admitted = admit(body)
    assert [(r.data.name, r.origin) for r in admitted.records] == [
        ("good", Origin(0, 0)),
        ("after", Origin(0, 1)),
    ]
    assert (admitted.rejected, admitted.message) == (1, f"span refused: {message}")


def test_the_first_cause_is_the_one_named() -> None:
    admitted = admit(request(replace(GOOD, span_id=b""), replace(GOOD, trace_id=b"")))
    assert (admitted.rejected, admitted.records) == (2, [])
    assert admitted.message == "span refused: span_id has 0 bytes, not 8"


def test_a_span_over_a_limit_of_spans_is_refused_alone() -> None:
    big = replace(GOOD, attributes={"a": 1, "b": 2})
    admitted = admit(request(big, GOOD), Limits(max_attributes=1))
    assert [record.data.name for record in admitted.records] == ["good"]
    expected = "span refused: the number of attributes is 2, over the limit of 1"
    assert (admitted.rejected, admitted.message) == (1, expected)


def test_admission_is_the_same_every_time() -> None:
    body = request(replace(GOOD, span_id=b""), GOOD, replace(GOOD, name="last"))
    first, again = admit(body), admit(body)
    assert first == again
    assert [record.origin.ordinal for record in again.records] == [0, 1]


@pytest.mark.parametrize(
    "body",
    [
        b"abc",
        b"\x0a\x05ab",
        b"\x0a\x04\x12\x02\x12\x01",
        request(GOOD)[:-1],
        # a malformed resource, scope and span inside sound framing
        b"\x0a\x06\x0a\x01\xff\x12\x01\x12",
        b"\x0a\x07\x12\x05\x0a\x01\xff\x12\x00",
        b"\x0a\x05\x12\x03\x12\x01\xff",
    ],
)
def test_malformed_protobuf_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not OTLP protobuf"):
        admit(body)


def test_too_many_spans_are_a_request_too_large() -> None:
    with pytest.raises(RequestTooLarge, match="number of spans is 2, over the limit of 1"):
        admit(request(GOOD, GOOD), Limits(max_spans=1))


def test_json_takes_the_same_road() -> None:
    span = {"traceId": GOOD.trace_id.hex(), "spanId": GOOD.span_id.hex(), "name": "good"}
    wrong = {**span, "spanId": "00"}
    group = {
        "resource": {"attributes": [{"key": "service", "value": {"stringValue": "shop"}}]},
        "scopeSpans": [{"scope": {"name": "lib"}, "spans": [span, wrong]}],
    }
    admitted = admit_json(json.dumps({"resourceSpans": [group]}).encode())
    assert admitted.body == request(GOOD, replace(GOOD, span_id=b"\0"), service="shop")
    assert admitted == admit(admitted.body)
    assert (admitted.rejected, admitted.message) == (
        1,
        "span refused: span_id has 1 bytes, not 8",
    )


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"resourceSpans": 1}', b"\xff", b"[" * 100_000]
)
def test_malformed_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not OTLP/JSON"):
        admit_json(body)


def test_json_over_a_limit_is_a_request_too_large() -> None:
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{},{}]}]}]}'
    with pytest.raises(RequestTooLarge, match="number of spans"):
        admit_json(body, Limits(max_spans=1))


def test_a_request_of_empty_events_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nested: AttributeValue = [[1, 2], {"a": [3]}]
    full = SpanData(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        attributes={"list": nested},
        events=[Event(attributes={"a": 1}), Event()],
        links=[Link()],
    )
    body = wire.encode_request([ResourceSpans(scope_spans=[ScopeSpans(spans=[full])])])
    # 1 attribute, 6 values nested in it, 2 events with 1 attribute, 1 link
    # The package re-exports the function under the name of its module.
    module = sys.modules["mcptrace_collector.receivers.admit"]
    monkeypatch.setattr(module, "REQUEST_ITEMS_MAX", 11)
    assert len(admit(body).records) == 1
    monkeypatch.setattr(module, "REQUEST_ITEMS_MAX", 10)
    with pytest.raises(RequestTooLarge, match="number of items in the spans is 11"):
        admit(body)
