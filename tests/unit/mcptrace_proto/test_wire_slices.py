"""Spans as bytes: splitting, joining, and changing one thing of a span."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcptrace_proto import wire
from mcptrace_proto._wire_varint import varint
from mcptrace_proto.model import RawSpans, Resource, ResourceSpans, Scope, ScopeSpans, SpanData
from mcptrace_proto.model import SpanSource as Source
from mcptrace_proto.wire import DEFAULT_LIMITS, DecodeError, TooLarge

UNKNOWN = bytes.fromhex("d20503787878 d80501 e3050801e405")  # fields 90, 91 and a group 92


def span(name: str) -> bytes:
    return wire.encode_span(SpanData(name=name))


def test_a_request_is_split_by_scope_with_its_sources() -> None:
    groups = [
        ResourceSpans(
            Resource({"r": 1}),
            [
                ScopeSpans(Scope("s"), [SpanData(name="a"), SpanData(name="b")], "scope-url"),
                ScopeSpans(Scope("t"), []),
            ],
            "resource-url",
        ),
        ResourceSpans(Resource({"r": 2})),
    ]
    resource = wire.encode_resource(Resource({"r": 1}))
    assert wire.split_request(wire.encode_request(groups)) == [
        RawSpans(
            Source(resource, "resource-url", wire.encode_scope(Scope("s")), "scope-url"),
            [span("a"), span("b")],
        ),
        RawSpans(Source(resource, "resource-url", wire.encode_scope(Scope("t"))), []),
    ]


def test_the_resource_counts_wherever_it_stands_and_is_merged_when_given_twice() -> None:
    body = bytes.fromhex("0a0e 1204 1202 2a00 0a021001 0a021002")
    assert wire.split_request(body) == [RawSpans(Source(bytes.fromhex("10011002")), [b"\x2a\x00"])]


def test_many_parts_of_a_resource_are_merged_in_linear_time() -> None:
    parts = 200_000  # 20 GB of copying, were each part added to a growing whole
    group = b"\x0a\x02\x10\x01" * parts + b"\x12\x00"
    found = wire.split_request(b"\x0a" + varint(len(group)) + group)
    assert [len(raw.source.resource) for raw in found] == [2 * parts]


@pytest.mark.parametrize(
    ("body", "reason", "position"),
    [
        ("0a", "truncated varint", 1),
        ("0a05", "length 5 runs past the end", 1),
        ("0a04 1202 1201", "length 1 runs past the end", 5),
        ("0a03 1a01ff", "invalid UTF-8", 4),
        ("0a05 1203 1a01ff", "invalid UTF-8", 6),
        ("0a01 0c", "end of a group that was not started", 3),
    ],
)
def test_a_fault_of_framing_has_its_position_in_the_whole_body(
    body: str, reason: str, position: int
) -> None:
    with pytest.raises(DecodeError) as caught:
        wire.split_request(bytes.fromhex(body))
    assert (caught.value.reason, caught.value.position) == (reason, position)


def test_what_is_inside_a_span_is_not_looked_at() -> None:
    assert wire.split_request(bytes.fromhex("0a05 1203 12010e"))[0].spans == [b"\x0e"]


def test_empty_groups_count_against_the_limits_before_anything_is_built() -> None:
    body = b"\x0a\x00" * (DEFAULT_LIMITS.max_groups + 1)
    with pytest.raises(TooLarge) as caught:
        wire.split_request(body)
    assert caught.value.size == caught.value.limit + 1 == 65_537
    assert wire.split_request(b"\x0a\x00" * 5, replace(DEFAULT_LIMITS, max_groups=5)) == []


def test_joining_regroups_neighbours_of_one_source() -> None:
    one, other_scope, other = Source(b"", "r"), Source(b"", "r", b"\x0a\x01s"), Source(b"", "q")
    joined = wire.join_request(
        [
            RawSpans(one, [b"\x2a\x01a"]),
            RawSpans(one, [b"\x2a\x01b"]),
            RawSpans(other_scope, [b"\x2a\x01c"]),
            RawSpans(other, [b"\x2a\x01d"]),
            RawSpans(one, [b"\x2a\x01e"]),
        ]
    )
    assert wire.split_request(joined) == [
        RawSpans(one, [b"\x2a\x01a", b"\x2a\x01b"]),
        RawSpans(other_scope, [b"\x2a\x01c"]),
        RawSpans(other, [b"\x2a\x01d"]),
        RawSpans(one, [b"\x2a\x01e"]),
    ]
    assert joined.count(b"\x1a\x01r") == 2
    assert wire.join_request([]) == b""


# --- one span ---------------------------------------------------------------------------


def test_attributes_are_appended_after_everything_else() -> None:
    before = span("n") + UNKNOWN
    assert wire.append_attributes(before, {"k": 1}) == before + bytes.fromhex("4a070a016b12021801")
    assert wire.append_attributes(before, {}) == before


def test_attributes_are_removed_wherever_and_however_often_they_stand() -> None:
    cut, kept = bytes.fromhex("4a070a016b12021801"), bytes.fromhex("4a070a016c12021801")
    whole = cut + UNKNOWN + kept + cut + span("n") + cut
    assert wire.remove_attributes(whole, {"k", "absent"}) == UNKNOWN + kept + span("n")
    assert wire.remove_attributes(whole, {"absent"}) is whole
    assert wire.remove_attributes(whole, set()) is whole
    assert wire.remove_attributes(cut, {"k"}) == b""


def test_the_last_key_of_an_attribute_is_its_key() -> None:
    twice = bytes.fromhex("4a060a016b0a016c")  # key k, then key l
    assert wire.remove_attributes(twice, {"k"}) == twice
    assert wire.remove_attributes(twice, {"l"}) == b""


def test_an_attribute_without_a_key_has_the_empty_key() -> None:
    assert wire.remove_attributes(b"\x4a\x00", {""}) == b""


def test_a_trace_state_is_replaced_in_place_and_once() -> None:
    old = bytes.fromhex("1a016f")
    around = (span("n"), UNKNOWN, b"\x0a\x01t")
    twice = around[0] + old + around[1] + old + around[2]
    assert wire.set_trace_state(twice, "new") == (
        around[0] + b"\x1a\x03new" + around[1] + around[2]
    )
    assert wire.set_trace_state(twice, "") == b"".join(around)


def test_a_trace_state_that_was_not_there_is_appended() -> None:
    assert wire.set_trace_state(span("n") + UNKNOWN, "s") == span("n") + UNKNOWN + b"\x1a\x01s"
    assert wire.set_trace_state(span("n"), "") == span("n")
    assert wire.set_trace_state(b"", "s\ud800") == b"\x1a\x02s?"


@pytest.mark.parametrize("damaged", [b"\x2a\x05n", b"\x0f", b"\x4a\x03\x0a\x01\xff", b"\x4a"])
def test_a_damaged_span_is_refused_by_what_changes_attributes(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        wire.remove_attributes(damaged, {"k"})


def test_lengths_of_more_than_one_byte_are_stepped_over_whole() -> None:
    long = wire.encode_span(SpanData(name="n" * 300, attributes={"k": "v" * 200, "l": 1}))
    without = wire.encode_span(SpanData(name="n" * 300, attributes={"l": 1}))
    assert wire.remove_attributes(long, {"k"}) == without
    padded = b"\xaa\x80\x00\x81\x00n"  # tag and length in long form
    assert wire.remove_attributes(padded + b"\x4a\x03\x0a\x01k", {"k"}) == padded
