from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.audit import layout
from mcptrace_collector.audit.layout import (
    ZERO_HASH,
    Checkpoint,
    Identity,
    LayoutError,
    State,
    decode_checkpoint,
    decode_identity,
    decode_record,
    decode_state,
    encode_record,
    segment_first_index,
    segment_name,
)

LOG = "ab" * 16
IDENTITY = Identity(1_764_547_200_000_000_000, b"n" * 16)
STATE = State(LOG, 3, b"h" * 32, (b"a" * 32, b"b" * 32))
CHECKPOINT = Checkpoint(layout.origin(LOG), 3, b"r" * 32)


def record(**fields) -> bytes:
    return encode_record(LOG, 7, ZERO_HASH, time_unix_nano=5, kind="start", fields=fields)


def test_a_record_has_one_spelling():
    assert record(version="1.0", name="é", n=1 << 62, x=0.5, none=None) == (
        b'{"v":1,"log":"abababababababababababababababab","index":7,'
        b'"prev":"0000000000000000000000000000000000000000000000000000000000000000",'
        b'"time_unix_nano":5,"kind":"start","version":"1.0","name":"\\u00e9",'
        b'"n":4611686018427387904,"x":0.5,"none":null}'
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(max_size=6).map(lambda key: "f" + key), json_values, max_size=4))
def test_every_record_reads_back_as_it_was_written(fields):
    line = record(**fields)
    read = decode_record(line)
    assert b"\n" not in line
    assert {key: read[key] for key in fields} == fields
    assert (read["index"], read["kind"]) == (7, "start")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"n":1', b'"n":1,"n":1'),
        (b'"n":1', b'"n":1.00'),
        (b'"n":1', b'"n": 1'),
        (b'"n":1', b'"n":1e0'),
        (b'"n":1', b'"n":NaN'),
        (b'"n":1', b'"n":1e999'),
        (b'"n":1', b'"n":"\xc3\xa9"'),
        (b'"n":1', b'"n":"\\u0041"'),
        (b'"index":7', b'"index":-7'),
        (b'"index":7', b'"index":true'),
        (b'"index":7', b'"index":"7"'),
        (b'"index":7', b'"index":99999999999999999999'),
        (b'"time_unix_nano":5', b'"time_unix_nano":null'),
        (b'"kind":"start"', b'"kind":"begin"'),
        (b'"v":1', b'"v":2'),
        (b'"prev":"00', b'"prev":"0G'),
        (b'"v":1,', b""),
        (b'{"v":1', b'[{"v":1'),
        (b"}", b""),
        (b'"n":1', b'"n":' + b"[" * 100_000),
    ],
)
def test_every_other_spelling_is_refused(old, new):
    line = record(n=1)
    assert old in line
    with pytest.raises(LayoutError):
        decode_record(line.replace(old, new))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_and_nothing_worse(content):
    for decode in (decode_record, decode_identity, decode_state, decode_checkpoint):
        with pytest.raises(LayoutError):
            decode(content)


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("party", {}, "unknown kind"),
        ("start", {"index": 1}, "header field"),
        ("start", {"x": math.nan}, "not representable"),
        ("start", {"x": b"bytes"}, "not representable"),
        ("start", {"x": "y" * layout.LINE_BYTES_MAX}, "at most"),
    ],
)
def test_what_a_record_cannot_hold_is_refused(kind, fields, why):
    with pytest.raises(LayoutError, match=why):
        encode_record(LOG, 0, ZERO_HASH, time_unix_nano=0, kind=kind, fields=fields)


def test_a_record_over_the_limit_is_not_parsed():
    with pytest.raises(LayoutError, match="more than"):
        decode_record(b" " * (layout.LINE_BYTES_MAX + 1))


def test_a_checkpoint_is_three_lines_and_a_blank():
    assert CHECKPOINT.encode() == (
        b"mcptrace/sm3/abababababababababababababababab\n3\n"
        b"cnJycnJycnJycnJycnJycnJycnJycnJycnJycnJycnI=\n\n"
    )


@pytest.mark.parametrize(
    ("value", "decode"),
    [(IDENTITY, decode_identity), (STATE, decode_state), (CHECKPOINT, decode_checkpoint)],
    ids=["identity", "state", "checkpoint"],
)
def test_small_files_read_back_and_no_other_length_does(value, decode):
    content = value.encode()
    assert decode(content) == value
    for other in (content[:-1], content + b"\n", content.replace(b"\n", b"\r\n"), b""):
        with pytest.raises(LayoutError):
            decode(other)


@pytest.mark.parametrize(
    "content",
    [
        b"o\n03\n" + b"A" * 43 + b"=\n\n",
        b"o\n-3\n" + b"A" * 43 + b"=\n\n",
        b"o\n1_0\n" + b"A" * 43 + b"=\n\n",
        b"o\n3\n" + b"A" * 42 + b"B=\n\n",  # bits beyond the last byte
        b"o\n3\nAAAA\n\n",
        b"o\n3\n" + b"A" * 43 + b"=\n\nsignature\n",
    ],
)
def test_a_checkpoint_has_one_spelling(content):
    with pytest.raises(LayoutError):
        decode_checkpoint(content)


def test_the_log_id_vouches_for_the_whole_identity():
    assert IDENTITY.log_id != Identity(IDENTITY.created_unix_nano + 1, IDENTITY.nonce).log_id
    content = IDENTITY.encode()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1
        with pytest.raises(LayoutError):
            decode_identity(bytes(altered))


@pytest.mark.parametrize("index", [0, 65536, 10**12, 10**15])
def test_segment_names_say_their_first_index(index):
    assert segment_first_index(segment_name(index)) == index


@pytest.mark.parametrize(
    "name", ["segment-0.jsonl", "segment-000000000000.json", "segment-0000000000001.jsonl", "x"]
)
def test_other_names_are_no_segments(name):
    assert segment_first_index(name) is None


def test_segments_sort_by_name():
    assert segment_name(0) == "segment-000000000000.jsonl"
    assert sorted([segment_name(65536), segment_name(9)]) == [segment_name(9), segment_name(65536)]


def test_a_state_whose_nodes_do_not_fit_its_size_is_refused():
    with pytest.raises(LayoutError, match="does not fit"):
        decode_state(State(LOG, 3, b"h" * 32, (b"a" * 32,)).encode())
