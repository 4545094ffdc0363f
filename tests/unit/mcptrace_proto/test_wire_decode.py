"""Decoding by the smallest bytes that show each rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mcptrace_proto import wire
from mcptrace_proto.model import Event, Link, Resource, ResourceSpans, Scope, ScopeSpans, SpanData
from mcptrace_proto.wire import DEFAULT_LIMITS, DecodeError, TooLarge


def delimited(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    assert len(body) < 128
    return bytes((tag, len(body))) + body


def attribute(key: bytes, any_value: bytes) -> bytes:
    """A span's attribute."""
    return delimited(0x4A, delimited(0x0A, key), delimited(0x12, any_value))


def value_of(any_value: bytes) -> object:
    return wire.decode_span(attribute(b"a", any_value)).attributes["a"]


def test_nothing_is_a_span_of_defaults() -> None:
    assert wire.decode_span(b"") == SpanData()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("0a0201ff", {"trace_id": b"\x01\xff"}),
        ("12010a", {"span_id": b"\x0a"}),
        ("1a0161", {"trace_state": "a"}),
        ("22010b", {"parent_span_id": b"\x0b"}),
        ("2a03e282ac", {"name": "\u20ac"}),
        ("3003", {"kind": 3}),
        ("3063", {"kind": 99}),
        ("30ffffffffffffffffff01", {"kind": -1}),
        ("39ffffffffffffffff", {"start_time_unix_nano": (1 << 64) - 1}),
        ("410100000000000080", {"end_time_unix_nano": (1 << 63) + 1}),
        ("50ffffffff0f", {"dropped_attributes_count": (1 << 32) - 1}),
        ("6002", {"dropped_events_count": 2}),
        ("7003", {"dropped_links_count": 3}),
        ("7a0512016d1802", {"status_message": "m", "status_code": 2}),
        ("8501010300ff", {"flags": 0xFF000301}),
        ("5a00", {"events": [Event()]}),
        ("6a00", {"links": [Link()]}),
        ("6a0d0a010112010228013501000000", {"links": [Link(b"\x01", b"\x02", "", {}, 1, 1)]}),
    ],
)
def test_a_field_is_read(field: str, expected: dict[str, Any]) -> None:
    assert wire.decode_span(bytes.fromhex(field)) == SpanData(**expected)


def test_an_event_is_read() -> None:
    event = delimited(
        0x5A,
        b"\x09" + (5).to_bytes(8, "little"),
        delimited(0x12, b"e"),
        delimited(0x1A, delimited(0x0A, b"k"), delimited(0x12, b"\x10\x01")),
        b"\x20\x07",
    )
    assert wire.decode_span(event).events == [Event(5, "e", {"k": True}, 7)]


@pytest.mark.parametrize(
    ("any_value", "value"),
    [
        ("", None),
        ("0a00", ""),
        ("0a0178", "x"),
        ("1000", False),
        ("1001", True),
        ("10808080808001", True),
        ("1800", 0),
        ("18ffffffffffffffffff01", -1),
        ("1880808080808080808001", -(1 << 63)),
        ("21000000000000f87f", math.nan),
        ("210000000000000080", -0.0),
        ("2a00", []),
        ("2a020a00", [None]),
        ("2a060a0218010a00", [1, None]),
        ("3200", {}),
        ("32020a00", {"": None}),
        ("32070a050a016b1200", {"k": None}),
        ("3a0200ff", b"\x00\xff"),
        ("4005", None),
        ("0a01784005", None),
        ("9a06024005", None),
    ],
)
def test_a_value_is_read_by_its_kind(any_value: str, value: object) -> None:
    assert repr(value_of(bytes.fromhex(any_value))) == repr(value)


@pytest.mark.parametrize(
    ("any_value", "value"),
    [
        ("0a0178 1805", 5),
        ("1805 0a0178", "x"),
        ("2a040a021801 2a040a021802", [1, 2]),
        ("2a040a021801 1805 2a040a021802", [2]),
        ("32050a030a0161 32050a030a0162", {"a": None, "b": None}),
        ("0a0178 2d00000000", "x"),
    ],
)
def test_the_last_kind_of_a_value_wins_and_containers_merge(any_value: str, value: object) -> None:
    assert value_of(bytes.fromhex(any_value)) == value


def test_a_value_given_in_two_parts_is_merged() -> None:
    parts = [delimited(0x12, bytes.fromhex(part)) for part in ("2a040a021801", "2a040a021802")]
    span = delimited(0x4A, delimited(0x0A, b"a"), *parts)
    assert wire.decode_span(span).attributes == {"a": [1, 2]}


def test_the_last_of_a_scalar_and_of_a_key_wins() -> None:
    assert wire.decode_span(b"\x2a\x01a\x2a\x01b").name == "b"
    twice = attribute(b"k", b"\x18\x01") + attribute(b"k", b"\x18\x02")
    assert wire.decode_span(twice).attributes == {"k": 2}


def test_a_status_given_twice_is_merged() -> None:
    span = wire.decode_span(b"\x7a\x02\x18\x02" + b"\x7a\x03\x12\x01m")
    assert (span.status_code, span.status_message) == (2, "m")


def test_fields_may_come_in_any_order() -> None:
    key_last = delimited(0x4A, b"\x12\x02\x18\x05", b"\x0a\x01k")
    assert wire.decode_span(key_last + b"\x0a\x01t") == SpanData(trace_id=b"t", attributes={"k": 5})


def test_a_known_field_of_a_foreign_wire_type_is_unknown() -> None:
    assert wire.decode_span(b"\x28\x05" + b"\x0d\x00\x00\x00\x00" + b"\x4b\x4c") == SpanData()


def test_a_tag_may_be_written_in_long_form_anywhere() -> None:
    assert wire.decode_span(b"\xaa\x80\x00\x01n") == SpanData(name="n")
    key, value = b"\x8a\x00\x01k", b"\x92\x80\x00\x03" + b"\x98\x00\x05"
    assert wire.decode_span(delimited(0x4A, key, value)).attributes == {"k": 5}


def test_a_request_is_read_with_its_groups() -> None:
    scope = delimited(0x0A, b"\x0a\x01s\x12\x01v\x20\x03", delimited(0x1A, b"\x0a\x01k"))
    spans = delimited(0x12, b"\x2a\x01n") + delimited(0x12)
    scope_spans = delimited(0x12, scope, spans, b"\x1a\x01u")
    resource = delimited(0x0A, delimited(0x0A, b"\x0a\x01r"), b"\x10\x04")
    assert wire.decode_request(delimited(0x0A, resource, scope_spans, b"\x1a\x01w")) == [
        ResourceSpans(
            Resource({"r": None}, 4),
            [ScopeSpans(Scope("s", "v", {"k": None}, 3), [SpanData(name="n"), SpanData()], "u")],
            "w",
        )
    ]


@pytest.mark.parametrize(
    ("body", "reason", "position"),
    [
        ("0a", "truncated varint", 1),
        ("0a05", "length 5 runs past the end", 1),
        ("0a02 1205", "length 5 runs past the end", 3),
        ("0a04 1202 1201", "length 1 runs past the end", 5),
        ("0a06 1204 1202 2a05", "length 5 runs past the end", 7),
        ("0a07 1205 1203 2a01ff", "invalid UTF-8", 8),
        ("0a06 1204 1202 3980", "truncated 64-bit field", 7),
        ("0a04 0a02 0a7f", "length 127 runs past the end", 5),
        ("00", "field number 0", 0),
        ("0c", "end of a group that was not started", 1),
    ],
)
def test_a_fault_has_its_position_in_the_whole_body(body: str, reason: str, position: int) -> None:
    with pytest.raises(DecodeError) as caught:
        wire.decode_request(bytes.fromhex(body))
    assert (caught.value.reason, caught.value.position) == (reason, position)
    assert str(caught.value) == f"{reason} at byte {position}"


UNKNOWN = bytes.fromhex("d205027878")  # field 90


@pytest.mark.parametrize("tag", [0x4A, 0x5A, 0x6A, 0x7A])
def test_unknown_fields_are_stepped_over_in_every_message_of_a_span(tag: int) -> None:
    assert wire.decode_span(UNKNOWN + delimited(tag, UNKNOWN)) == wire.decode_span(delimited(tag))


@pytest.mark.parametrize(
    ("any_value", "value"),
    [(UNKNOWN, None), (delimited(0x2A, UNKNOWN), []), (delimited(0x32, UNKNOWN), {})],
)
def test_unknown_fields_are_stepped_over_in_every_kind_of_value(
    any_value: bytes, value: object
) -> None:
    assert value_of(any_value) == value


def test_unknown_fields_are_stepped_over_in_every_group() -> None:
    scope = delimited(0x0A, UNKNOWN, b"\x0a\x01s")
    scope_spans = delimited(0x12, UNKNOWN, scope)
    resource = delimited(0x0A, UNKNOWN, b"\x10\x01")
    body = UNKNOWN + delimited(0x0A, UNKNOWN, resource, scope_spans)
    assert wire.decode_request(body) == [
        ResourceSpans(Resource({}, 1), [ScopeSpans(Scope("s"))]),
    ]


def test_a_resource_and_a_scope_are_read_by_themselves() -> None:
    assert wire.decode_resource(bytes.fromhex("0a030a0161 1002")) == Resource({"a": None}, 2)
    assert wire.decode_scope(bytes.fromhex("0a0173 120176 1a030a0161 2002")) == Scope(
        "s", "v", {"a": None}, 2
    )


def test_a_link_is_read_with_its_state_and_attributes() -> None:
    link = delimited(0x6A, b"\x1a\x01s", b"\x22\x03\x0a\x01a")
    assert wire.decode_span(link).links == [Link(trace_state="s", attributes={"a": None})]


# --- limits -----------------------------------------------------------------------------

TWO_SPANS = delimited(0x0A, delimited(0x12, delimited(0x12), delimited(0x12)))


def nested_arrays(depth: int) -> bytes:
    value: object = 1
    for _ in range(depth - 1):
        value = [value]
    return wire.encode_span(SpanData(attributes={"a": value}))  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("limit", "most", "body", "what", "size"),
    [
        ("max_spans", 2, TWO_SPANS, "number of spans", 2),
        ("max_groups", 2, TWO_SPANS, "number of resource and scope groups", 2),
        ("max_groups", 3, b"\x0a\x00" * 3, "number of resource and scope groups", 3),
    ],
)
def test_a_request_at_its_limit_is_read_and_over_it_refused(
    limit: str, most: int, body: bytes, what: str, size: int
) -> None:
    for read in (wire.decode_request, wire.split_request):
        read(body, replace(DEFAULT_LIMITS, **{limit: most}))
        with pytest.raises(TooLarge) as caught:
            read(body, replace(DEFAULT_LIMITS, **{limit: most - 1}))
        assert (caught.value.what, caught.value.size, caught.value.limit) == (
            what,
            size,
            most - 1,
        )


@pytest.mark.parametrize(
    ("limit", "most", "span", "what"),
    [
        (
            "max_attributes",
            2,
            attribute(b"a", b"") + attribute(b"b", b""),
            "number of attributes",
        ),
        (
            "max_attributes",
            2,
            delimited(0x5A, b"\x1a\x03\x0a\x01a\x1a\x03\x0a\x01b"),
            "number of attributes",
        ),
        (
            "max_attributes",
            2,
            attribute(b"a", delimited(0x32, b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b")),
            "number of attributes",
        ),
        ("max_events", 3, b"\x5a\x00" * 3, "number of events"),
        ("max_links", 3, b"\x6a\x00" * 3, "number of links"),
        (
            "max_array_values",
            2,
            attribute(b"a", delimited(0x2A, b"\x0a\x00\x0a\x00")),
            "length of an array",
        ),
        ("max_depth", 3, nested_arrays(3), "nesting depth of a value"),
        (
            "max_depth",
            2,
            attribute(b"a", delimited(0x32, b"\x0a\x02\x12\x00")),
            "nesting depth of a value",
        ),
    ],
)
def test_a_span_at_its_limit_is_read_and_over_it_refused(
    limit: str, most: int, span: bytes, what: str
) -> None:
    wire.decode_span(span, replace(DEFAULT_LIMITS, **{limit: most}))
    with pytest.raises(TooLarge) as caught:
        wire.decode_span(span, replace(DEFAULT_LIMITS, **{limit: most - 1}))
    assert (caught.value.what, caught.value.size, caught.value.limit) == (what, most, most - 1)
    assert str(caught.value) == f"{what} is {most}, over the limit of {most - 1}"


def test_one_attribute_given_often_is_one_attribute() -> None:
    span = attribute(b"a", b"\x18\x01") * 9
    assert wire.decode_span(span, replace(DEFAULT_LIMITS, max_attributes=1)).attributes == {"a": 1}


def test_values_nest_as_deep_as_the_ceiling_when_allowed() -> None:
    deepest = wire.decode_span(nested_arrays(100), replace(DEFAULT_LIMITS, max_depth=100))
    assert repr(deepest.attributes["a"]) == "[" * 99 + "1" + "]" * 99


@pytest.mark.parametrize("depth", [0, 101, -1])
def test_a_depth_that_python_could_not_follow_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        replace(DEFAULT_LIMITS, max_depth=depth)
