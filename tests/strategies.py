"""Hypothesis strategies for anything the wire can carry, and for bytes that come close.

Every field may be at its default, at an edge of its type or anywhere between.  Values nest
a few levels; how deep they may go is tested by hand.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from mcptrace_proto.model import (
    Event,
    Link,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanData,
)

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

int64 = st.one_of(
    st.sampled_from([0, 1, -1, 127, 128, 16383, 16384, INT64_MIN, INT64_MAX]),
    st.integers(INT64_MIN, INT64_MAX),
)
uint64 = st.one_of(st.just(0), st.integers(0, (1 << 64) - 1))
uint32 = st.one_of(st.just(0), st.integers(0, (1 << 32) - 1))
enums = st.one_of(st.integers(0, 6), st.integers(INT32_MIN, INT32_MAX))
texts = st.text(max_size=12)
long_texts = st.one_of(texts, st.integers(100, 200).map("é".__mul__))
ids = st.one_of(st.binary(min_size=16, max_size=16), st.binary(max_size=20))

scalars = st.one_of(st.none(), st.booleans(), int64, st.floats(), long_texts, st.binary(max_size=9))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
attributes = st.dictionaries(texts, values, max_size=4)

events = st.builds(Event, uint64, texts, attributes, uint32)
links = st.builds(Link, ids, ids, texts, attributes, uint32, uint32)
spans = st.builds(
    SpanData,
    trace_id=ids,
    span_id=ids,
    parent_span_id=ids,
    name=long_texts,
    kind=enums,
    start_time_unix_nano=uint64,
    end_time_unix_nano=uint64,
    attributes=attributes,
    events=st.lists(events, max_size=2),
    links=st.lists(links, max_size=2),
    status_code=enums,
    status_message=texts,
    trace_state=texts,
    flags=uint32,
    dropped_attributes_count=uint32,
    dropped_events_count=uint32,
    dropped_links_count=uint32,
)
resources = st.builds(Resource, attributes, uint32)
scopes = st.builds(Scope, texts, texts, attributes, uint32)
scope_spans = st.builds(ScopeSpans, scopes, st.lists(spans, max_size=2), texts)
requests = st.lists(
    st.builds(ResourceSpans, resources, st.lists(scope_spans, max_size=2), texts), max_size=2
)


# --- bytes ------------------------------------------------------------------------------


def varint(value: int, padding: int = 0) -> bytes:
    """A varint, longer than it needs to be by ``padding`` bytes."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    if padding:
        out[-1] |= 0x80
        out += b"\x80" * (padding - 1) + b"\x00"
    return bytes(out)


def _field(number: int, padding: int, content: tuple[int, Any]) -> bytes:
    wire_type, payload = content
    tag = varint(number << 3 | wire_type, padding)
    if wire_type == 2:
        return tag + varint(len(payload), padding) + payload
    if wire_type == 3:
        return tag + bytes(payload) + varint(number << 3 | 4)
    return tag + bytes(payload)


# Long forms of varints are seldom: a message of many fields would seldom be valid.
_padding = st.sampled_from([0] * 30 + [1, 3, 4, 5, 8, 9])
_varints = st.builds(varint, uint64, _padding)


def _fields(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    content = st.one_of(
        st.tuples(st.just(2), inner),
        st.tuples(st.just(2), inner),
        st.tuples(st.just(0), _varints),
        st.tuples(st.just(1), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(5), st.binary(min_size=4, max_size=4)),
        st.tuples(st.just(3), inner),
    )
    field = st.builds(_field, st.integers(1, 17), _padding, content)
    return st.lists(field, max_size=4).map(b"".join)


# Well-formed messages of no particular type, field numbers as in a span: known fields with
# foreign wire types, messages given twice, groups, text that is not UTF-8.
messages = st.recursive(st.binary(max_size=4), _fields, max_leaves=8)


@st.composite
def mutated(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of ``originals`` with a few faults in them."""
    body = draw(originals)
    for seed in draw(st.lists(st.integers(0, 1 << 32), min_size=1, max_size=3)):
        body = mutate(body, random.Random(seed))
    return body


def mutate(body: bytes, chance: random.Random) -> bytes:
    """One fault: bytes changed, put in, cut out, moved or said twice."""
    start = chance.randrange(len(body) + 1)
    stop = min(len(body), start + chance.choice([1, 1, 2, 4, 10, 60]))
    piece = body[start:stop]
    fault = chance.randrange(7)
    if fault == 0:
        piece = bytes(byte ^ 1 << chance.randrange(8) for byte in piece)
    elif fault == 1:
        piece = chance.randbytes(len(piece))
    elif fault == 2:
        piece = b""
    elif fault == 3:
        piece += chance.randbytes(chance.choice([1, 2, 8]))
    elif fault == 4:
        piece += piece
    elif fault == 5:
        at = chance.randrange(len(body) + 1)
        piece = body[at : at + chance.choice([1, 4, 30])]
    else:
        return body[:start]
    return body[:start] + piece + body[stop:]
