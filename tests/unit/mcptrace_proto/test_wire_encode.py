"""Encoding by the smallest records that show each rule."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest

from mcptrace_proto import wire
from mcptrace_proto.model import Event, Link, Resource, ResourceSpans, Scope, ScopeSpans, SpanData
from mcptrace_proto.wire import TooLarge


def encoded(value: object) -> str:
    """The AnyValue that stands in a span under the key ``a``, in hex."""
    attributes: Any = {"a": value}
    span = wire.encode_span(SpanData(attributes=attributes))
    prefix = span.index(b"\x0a\x01a\x12") + 4
    length, body = span[prefix], span[prefix + 1 :]
    assert length == len(body) < 128
    return body.hex()


def test_defaults_take_no_bytes() -> None:
    assert wire.encode_span(SpanData()) == b""
    assert wire.encode_resource(Resource()) == b""
    assert wire.encode_scope(Scope()) == b""
    assert wire.encode_request([]) == b""
    assert wire.encode_request([ResourceSpans(scope_spans=[ScopeSpans()])]) == b"\x0a\x02\x12\x00"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"trace_id": b"\x01\xff"}, "0a0201ff"),
        ({"span_id": b"\x0a"}, "12010a"),
        ({"trace_state": "a"}, "1a0161"),
        ({"parent_span_id": b"\x0b"}, "22010b"),
        ({"name": "\u20ac"}, "2a03e282ac"),
        ({"name": "x" * 128}, "2a8001" + "78" * 128),
        ({"kind": 3}, "3003"),
        ({"kind": -1}, "30ffffffffffffffffff01"),
        ({"start_time_unix_nano": (1 << 64) - 1}, "39ffffffffffffffff"),
        ({"end_time_unix_nano": 1}, "410100000000000000"),
        ({"attributes": {"": None}}, "4a021200"),
        ({"dropped_attributes_count": (1 << 32) - 1}, "50ffffffff0f"),
        ({"events": [Event()]}, "5a00"),
        (
            {"events": [Event(5, "e", {"k": None}, 7)]},
            "5a1509050000000000000012 01651a050a016b12002007",
        ),
        ({"dropped_events_count": 2}, "6002"),
        ({"links": [Link()]}, "6a00"),
        (
            {"links": [Link(b"\x01", b"\x02", "s", {"k": None}, 1, 1)]},
            "6a17 0a0101 120102 1a0173 22050a016b1200 2801 3501000000",
        ),
        ({"dropped_links_count": 3}, "7003"),
        ({"status_code": 2, "status_message": "m"}, "7a0512016d1802"),
        ({"flags": 0xFF000301}, "8501010300ff"),
    ],
)
def test_a_field_is_written(fields: dict[str, Any], expected: str) -> None:
    assert wire.encode_span(SpanData(**fields)) == bytes.fromhex(expected)


class Finish(str, enum.Enum):
    STOP = "stop"


class Port(enum.IntEnum):
    GRPC = 4317


class Milliseconds(float):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("", "0a00"),
        ("x", "0a0178"),
        (False, "1000"),
        (True, "1001"),
        (0, "1800"),
        (127, "187f"),
        (128, "188001"),
        (-1, "18ffffffffffffffffff01"),
        (-(1 << 63), "1880808080808080808001"),
        ((1 << 63) - 1, "18ffffffffffffffff7f"),
        (1.5, "21000000000000f83f"),
        (-0.0, "210000000000000080"),
        (math.inf, "21000000000000f07f"),
        ([], "2a00"),
        ([1, None], "2a060a0218010a00"),
        ((1, "x"), "2a090a0218010a030a0178"),
        ({}, "3200"),
        ({"k": []}, "32090a070a016b12022a00"),
        (b"\x00\xff", "3a0200ff"),
        (Finish.STOP, "0a0473746f70"),
        (Port.GRPC, "18dd21"),
        (Milliseconds(1.5), "21000000000000f83f"),
    ],
)
def test_a_value_is_written_by_its_type(value: object, expected: str) -> None:
    assert encoded(value) == expected


def test_lone_surrogates_become_question_marks_everywhere() -> None:
    span = SpanData(name="a\ud800", attributes={"\ud800": "\udfff!"}, trace_state="\ud800")
    decoded = wire.decode_span(wire.encode_span(span))
    assert decoded == SpanData(name="a?", attributes={"?": "?!"}, trace_state="?")


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 200])
def test_an_integer_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(TooLarge) as caught:
        wire.encode_span(SpanData(attributes={"a": number}))
    assert (caught.value.what, caught.value.limit) == ("bits of an integer value", 64)


@pytest.mark.parametrize("container", [lambda inner: [inner], lambda inner: {"k": inner}])
def test_values_nested_over_the_ceiling_are_refused(container: Any) -> None:
    value: Any = 1
    for _ in range(99):
        value = container(value)
    wire.encode_span(SpanData(attributes={"a": value}))
    with pytest.raises(TooLarge) as caught:
        wire.encode_span(SpanData(attributes={"a": container(value)}))
    assert (caught.value.what, caught.value.size, caught.value.limit) == (
        "nesting depth of a value",
        101,
        100,
    )


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TooLarge):
        wire.encode_span(SpanData(attributes={"a": value}))


def test_what_is_no_attribute_value_is_named() -> None:
    bad: Any = {"a": {1, 2}}
    with pytest.raises(TypeError, match="set is not an attribute value"):
        wire.encode_span(SpanData(attributes=bad))


def test_fields_are_in_the_order_of_their_numbers_and_attributes_of_the_dict() -> None:
    span = SpanData(
        flags=1, name="n", trace_id=b"t", attributes={"b": None, "a": None}, status_code=1
    )
    expected = "0a0174 2a016e 4a050a01621200 4a050a01611200 7a021801 850101000000"
    assert wire.encode_span(span) == bytes.fromhex(expected)


def test_a_request_is_written_with_its_groups() -> None:
    scope_spans = ScopeSpans(Scope("s", "v", {"a": None}, 2), [SpanData(name="n")], "u")
    groups = [ResourceSpans(Resource({"r": None}, 1), [scope_spans], "w")]
    expected = (
        "0a29 0a09 0a050a01721200 1001"
        "1219 0a0f 0a0173 120176 1a050a01611200 2002 1203 2a016e 1a0175 1a0177"
    )
    assert wire.encode_request(groups).hex() == bytes.fromhex(expected).hex()
