from __future__ import annotations

import pytest

from mcptrace_collector.audit import AuditChain, finish_span, span_matches, span_mismatch
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv, wire
from mcptrace_proto.model import Event, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision

DATA = SpanData(
    trace_id=b"t" * 16,
    span_id=b"s" * 8,
    name="chat",
    attributes={"a": 1, "b": "x"},
    events=[Event(1, "first token")],
)
RAW = wire.encode_span(DATA)
CHAIN = AuditChain("ef" * 16, 41, b"h" * 32)
LINE = CHAIN.next_inference(
    SpanRecord(RAW, DATA, SpanSource(), {}), Decision(True, "error", 0, 1.0, ""), 5
)
FINISHED = finish_span(RAW, LINE.leaf_hash, LINE.index)


def test_a_forwarded_span_carries_its_record_as_its_last_two_attributes():
    attributes = wire.decode_span(FINISHED).attributes
    assert list(attributes.items())[-2:] == [
        (semconv.AUDIT_LEAF_HASH, LINE.leaf_hash.hex()),
        (semconv.AUDIT_LOG_INDEX, 41),
    ]
    assert span_matches(LINE.line, FINISHED)


def test_a_span_written_again_in_field_order_still_matches():
    tail = FINISHED[len(RAW) :]
    events = RAW.index(wire.encode_span(SpanData(events=DATA.events)))
    assert span_matches(LINE.line, RAW[:events] + tail + RAW[events:])


@pytest.mark.parametrize("position", range(len(FINISHED)))
def test_any_altered_byte_of_a_span_is_noticed(position):
    altered = bytearray(FINISHED)
    altered[position] ^= 1
    assert not span_matches(LINE.line, bytes(altered))


def test_the_reason_of_a_mismatch_is_named():
    stop = AuditChain("ef" * 16).next("stop", {}, 1)
    assert [
        span_mismatch(LINE.line, RAW),
        span_mismatch(LINE.line, b"x" + FINISHED),
        span_mismatch(stop.line, FINISHED),
        span_mismatch(b"{}", FINISHED),
    ] == [
        "the span does not carry this record's leaf hash and index",
        "the span's bytes are not those that were recorded",
        "a record of kind stop is not about one span",
        "a record without the fields every record begins with",
    ]


def test_the_span_of_another_record_does_not_match():
    other = AuditChain("ef" * 16, 42, b"h" * 32).next_inference(
        SpanRecord(RAW, DATA, SpanSource(), {}), Decision(True, "error", 0, 1.0, ""), 5
    )
    assert not span_matches(other.line, FINISHED)
