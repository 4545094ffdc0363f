from __future__ import annotations

import pytest

from mcptrace_collector.audit import AuditChain, ChainState, LayoutError
from mcptrace_collector.audit.layout import ZERO_HASH, decode_record
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import leaf_hash
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import wire
from mcptrace_proto.model import SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision
from mcptrace_proto.schema import InferenceSpan, TokenUsage

LOG = "cd" * 16
KEPT = Decision(True, "error", 0, 1.0, "")


def span(inference: InferenceSpan | None) -> SpanRecord:
    data = SpanData(trace_id=b"t" * 16, span_id=b"s" * 8)
    return SpanRecord(wire.encode_span(data), data, SpanSource(), {}, inference=inference)


def test_records_follow_from_each_other():
    chain = AuditChain(LOG)
    first = chain.next("start", {"version": "1"}, 10)
    second = chain.next("stop", {"version": "1"}, 11)
    assert [decode_record(line.line)["prev"] for line in (first, second)] == [
        ZERO_HASH.hex(),
        leaf_hash(first.line, sm3).hex(),
    ]
    assert [line.index for line in (first, second)] == [0, 1]
    assert second.leaf_hash == leaf_hash(second.line, sm3)
    assert chain.snapshot() == ChainState(2, second.leaf_hash)


def test_restoring_a_snapshot_gives_the_index_again():
    chain = AuditChain(LOG, 5, b"h" * 32)
    before = chain.snapshot()
    chain.next("start", {"lost": True}, 10)
    chain.restore(before)
    again = chain.next("start", {"lost": False}, 10)
    assert again == AuditChain(LOG, 5, b"h" * 32).next("start", {"lost": False}, 10)


def test_a_refused_record_changes_nothing():
    chain = AuditChain(LOG)
    with pytest.raises(LayoutError):
        chain.next("start", {"x": float("inf")}, 1)
    assert chain.snapshot() == ChainState(0, ZERO_HASH)


def test_a_span_is_recorded_by_what_it_is():
    usage = TokenUsage(input=1, output=2, total=3)
    view = InferenceSpan("m", None, "chat", None, None, "stop", 1.0, None, None, None, usage)
    chain = AuditChain(LOG)
    inference = decode_record(chain.next_inference(span(view), KEPT, 1, tenant="a").line)
    other = decode_record(chain.next_inference(span(None), KEPT, 2).line)
    assert (inference["kind"], inference["model_name"], inference["tenant"]) == (
        "inference",
        "m",
        "a",
    )
    assert (other["kind"], other["span_hash"]) == ("span", sm3(span(None).raw).hex())
