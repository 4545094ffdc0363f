"""A settlement forwards, records and counts the same spans, and says why on each of them."""

from __future__ import annotations

import json

from mcptrace_collector.audit import AuditChain, span_matches
from mcptrace_collector.durable import Balance
from mcptrace_collector.pipeline import DecidedTrace, Origin, SpanRecord
from mcptrace_collector.settle import ITEM_SPANS_MAX, Settler, state_sampling
from mcptrace_proto import wire
from mcptrace_proto.model import Attributes, Resource, Scope, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision

TENTH = Decision(True, "probability", 0xE6660000000000, 9.9994, "tiny|chat")
OUT = Decision(False, "sampled_out", 0xE6660000000000, 9.9994, "tiny|chat")
NOW = 1_800_000_000_000_000_000


def source(service: str) -> SpanSource:
    resource = wire.encode_resource(Resource({"service.name": service}))
    return SpanSource(resource, "", wire.encode_scope(Scope("scope", "1")), "")


def record(
    number: int, attributes: Attributes | None = None, *, service: str = "a", trace_state: str = ""
) -> SpanRecord:
    data = SpanData(
        trace_id=bytes(15) + b"\x01",
        span_id=number.to_bytes(8, "big"),
        name="chat",
        attributes=attributes or {},
        trace_state=trace_state,
    )
    raw = wire.encode_span(data)
    return SpanRecord(raw, data, source(service), {"service.name": service}, Origin(1, number))


def trace(decision: Decision, *records: SpanRecord) -> DecidedTrace:
    return DecidedTrace(records[0].data.trace_id, list(records), decision)


def test_a_kept_span_says_why_and_carries_its_audit_record_last() -> None:
    settler = Settler(["peer"], 10_000, AuditChain("log"))
    settlement = settler.settle([trace(TENTH, record(1, {"user": "attribute"}))], NOW)
    ((index, line),) = settlement.audit_lines
    ((destination, body, spans),) = settlement.payloads
    (group,) = wire.split_request(body)
    (raw,) = group.spans
    span = wire.decode_span(raw)
    assert (destination, spans, index) == ("peer", 1, 0)
    assert span.trace_state == "ot=th:e666"
    assert list(span.attributes)[:3] == [
        "user", "mcptrace.sampling.reason", "mcptrace.sampling.adjusted_count"
    ]  # fmt: skip
    assert list(span.attributes)[3:] == ["mcptrace.audit.leaf_hash", "mcptrace.audit.log_index"]
    assert span_matches(line, raw)
    assert json.loads(line)["sampling"]["reason"] == "probability"


def test_every_span_is_settled_and_counted_by_reason() -> None:
    settler = Settler(["peer", "other"], 10_000, AuditChain("log"))
    settlement = settler.settle([trace(TENTH, record(1), record(2)), trace(OUT, record(3))], NOW)
    assert settlement.settled == [Origin(1, 1), Origin(1, 2), Origin(1, 3)]
    assert (settlement.kept, settlement.dropped) == ({"probability": 2}, {"sampled_out": 1})
    assert settlement.sampled_out == {"tiny|chat sampled_out": 1}
    assert [(name, spans) for name, _, spans in settlement.payloads] == [("peer", 2), ("other", 2)]
    assert len(settlement.audit_lines) == 2


def test_spans_of_one_source_share_a_group_and_sources_stay_apart() -> None:
    settler = Settler(["peer"], 1_000_000, None)
    records = [record(1, service="a"), record(2, service="b"), record(3, service="a")]
    settlement = settler.settle([trace(TENTH, *records)], NOW)
    ((_, body, _),) = settlement.payloads
    groups = wire.split_request(body)
    assert [(g.source.resource == records[0].source.resource, len(g.spans)) for g in groups] == [
        (True, 2),
        (False, 1),
    ]


def test_items_stay_within_both_bounds_and_lose_nothing() -> None:
    many = [record(n) for n in range(1, 2 * ITEM_SPANS_MAX + 2)]
    by_count = Settler(["peer"], 1 << 30, None).settle([trace(TENTH, *many)], NOW)
    assert [spans for _, _, spans in by_count.payloads] == [ITEM_SPANS_MAX, ITEM_SPANS_MAX, 1]
    few = [record(n, {"text": "x" * 400}) for n in range(1, 12)]
    by_bytes = Settler(["peer"], 2000, None).settle([trace(TENTH, *few)], NOW)
    assert all(len(body) <= 2000 for _, body, _ in by_bytes.payloads)
    assert sum(spans for _, _, spans in by_bytes.payloads) == 11


def test_a_span_larger_than_the_bound_travels_alone() -> None:
    settlement = Settler(["peer"], 1000, None).settle(
        [trace(TENTH, record(1), record(2, {"text": "x" * 5000}), record(3))], NOW
    )
    assert [spans for _, _, spans in settlement.payloads] == [1, 1, 1]


def test_stating_the_same_decision_again_changes_nothing() -> None:
    span = record(1)
    state_sampling(span, TENTH)
    once = span.raw
    state_sampling(span, TENTH)
    assert span.raw == once


def test_an_upstream_collectors_audit_attributes_are_taken_off() -> None:
    span = record(1, {"mcptrace.audit.leaf_hash": "00", "mcptrace.audit.log_index": 7})
    settler = Settler(["peer"], 10_000, AuditChain("log"))
    settlement = settler.settle([trace(TENTH, span)], NOW)
    ((_, body, _),) = settlement.payloads
    (raw,) = wire.split_request(body)[0].spans
    assert raw.count(b"mcptrace.audit.leaf_hash") == 1
    assert span_matches(settlement.audit_lines[0][1], raw)


def test_what_was_sampled_out_is_recorded_once() -> None:
    settler = Settler(["peer"], 10_000, AuditChain("log"))
    balance = Balance(sampled_out={"my model|chat sampled_out": 5, "old|chat sampled_out": 0})
    settlement = settler.sampled_out(balance, NOW - 1, NOW)
    ((_, line),) = settlement.audit_lines
    assert json.loads(line)["counts"] == [
        {"key": "my model|chat", "reason": "sampled_out", "spans": 5}
    ]
    assert settlement.sampled_out == {"my model|chat sampled_out": -5}
    assert settler.sampled_out(Balance(), NOW, NOW + 1).audit_lines == []


def test_a_spans_own_upstream_threshold_is_never_lowered() -> None:
    kept = Decision(True, "error", 0, 1.0, "tiny|chat")
    records = [record(1), record(2, trace_state="ot=th:c;rv:00000000000001,vendor=x")]
    settlement = Settler(["peer"], 10_000, AuditChain("log")).settle([trace(kept, *records)], NOW)
    said = [json.loads(line)["sampling"] for _, line in settlement.audit_lines]
    assert [(s["threshold"], s["adjusted_count"]) for s in said] == [("0", 1.0), ("c", 4.0)]
    ((_, body, _),) = settlement.payloads
    (group,) = wire.split_request(body)
    spans = [wire.decode_span(raw) for raw in group.spans]
    assert [span.trace_state for span in spans] == [
        "ot=th:0", "ot=th:c;rv:00000000000001,vendor=x"
    ]  # fmt: skip
    counts = [span.attributes["mcptrace.sampling.adjusted_count"] for span in spans]
    assert counts == [1.0, 4.0]
