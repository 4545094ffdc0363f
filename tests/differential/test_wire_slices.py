"""Spans as bytes: what is done to them, official protobuf sees done, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from oracle import key_values
from strategies import attributes, messages, requests, spans, texts, varint

from mcptrace_proto import wire
from mcptrace_proto.model import Attributes, ResourceSpans, SpanData

modest = settings(max_examples=50, deadline=None)

# Fields that no version of OTLP knows, of every wire type, to lie among the known ones.
unknown_fields = st.lists(
    st.one_of(
        st.integers(0, 1 << 63).map(lambda number: varint(90 << 3) + varint(number)),
        st.binary(min_size=8, max_size=8).map((varint(91 << 3 | 1)).__add__),
        st.binary(max_size=9).map(lambda b: varint(92 << 3 | 2) + varint(len(b)) + b),
        messages.map(lambda m: varint(93 << 3 | 2) + varint(len(m)) + m),
        st.binary(min_size=4, max_size=4).map((varint(94 << 3 | 5)).__add__),
        st.just(varint(95 << 3 | 3) + b"\x08\x01" + varint(95 << 3 | 4)),
    ),
    max_size=3,
).map(b"".join)


@st.composite
def strange_spans(draw: st.DrawFn) -> bytes:
    """Valid spans with unknown fields before, between and after two halves."""
    halves = [wire.encode_span(draw(spans)), wire.encode_span(draw(spans))]
    unknown = [draw(unknown_fields) for _ in range(3)]
    return unknown[0] + halves[0] + unknown[1] + halves[1] + unknown[2]


@modest
@given(requests)
def test_split_and_join_change_nothing_but_empty_groups(groups: list[ResourceSpans]) -> None:
    body = wire.encode_request(groups)
    joined = wire.join_request(wire.split_request(body))
    assert _flat(ExportTraceServiceRequest.FromString(joined)) == _flat(
        ExportTraceServiceRequest.FromString(body)
    )


def _flat(request: ExportTraceServiceRequest) -> list[tuple[bytes, ...]]:
    return [
        (
            group.resource.SerializeToString(),
            group.schema_url.encode(),
            inner.scope.SerializeToString(),
            inner.schema_url.encode(),
            span.SerializeToString(),
        )
        for group in request.resource_spans
        for inner in group.scope_spans
        for span in inner.spans
    ]


@modest
@given(st.lists(strange_spans(), max_size=4))
def test_spans_come_out_of_a_request_as_the_bytes_that_went_in(bodies: list[bytes]) -> None:
    request = b"".join(
        b"\x0a" + varint(len(group)) + group
        for group in (b"\x12" + varint(len(scope)) + scope for scope in map(_scope_spans, bodies))
    )
    groups = wire.split_request(request)
    assert [span for group in groups for span in group.spans] == bodies
    again = wire.split_request(wire.join_request(groups))
    assert [span for group in again for span in group.spans] == bodies


def _scope_spans(span: bytes) -> bytes:
    return b"\x12" + varint(len(span)) + span


@modest
@given(strange_spans(), attributes)
def test_appended_attributes_are_the_last_of_an_otherwise_equal_span(
    span: bytes, more: Attributes
) -> None:
    expected = trace_pb2.Span.FromString(span)
    expected.attributes.extend(key_values(more))
    appended = wire.append_attributes(span, more)
    assert appended.startswith(span)
    assert trace_pb2.Span.FromString(appended) == expected
    assert wire.decode_span(appended).attributes.keys() >= more.keys()


@modest
@given(strange_spans(), st.data())
def test_removed_attributes_are_gone_and_all_else_is_as_before(
    span: bytes, data: st.DataObject
) -> None:
    expected = trace_pb2.Span.FromString(span)
    present = sorted({pair.key for pair in expected.attributes})
    names = data.draw(st.sets(st.sampled_from([*present, "absent"])))
    kept = [pair for pair in expected.attributes if pair.key not in names]
    del expected.attributes[:]
    expected.attributes.extend(kept)
    removed = wire.remove_attributes(span, names)
    assert trace_pb2.Span.FromString(removed) == expected
    assert _unknown_bytes(removed) == _unknown_bytes(span)


@modest
@given(strange_spans(), attributes)
def test_removing_what_was_appended_gives_the_bytes_back(span: bytes, more: Attributes) -> None:
    fresh = {f"fresh.{key}": value for key, value in more.items()}
    present = wire.decode_span(span).attributes.keys()
    assert (
        wire.remove_attributes(wire.append_attributes(span, fresh), fresh.keys() - present) == span
    )


@modest
@given(strange_spans(), texts)
def test_a_trace_state_is_replaced_and_all_else_is_as_before(span: bytes, state: str) -> None:
    expected = trace_pb2.Span.FromString(span)
    expected.trace_state = state
    changed = wire.set_trace_state(span, state)
    assert trace_pb2.Span.FromString(changed) == expected
    assert _unknown_bytes(changed) == _unknown_bytes(span)
    assert wire.set_trace_state(changed, state) == changed


def _unknown_bytes(span: bytes) -> bytes:
    """The unknown fields of a span as official protobuf keeps them: their bytes, in order."""
    known = trace_pb2.Span.FromString(span)
    everything = known.SerializeToString()
    known.DiscardUnknownFields()
    return everything[len(known.SerializeToString()) :]


@modest
@given(spans)
def test_a_trace_state_is_set_where_it_was(span: SpanData) -> None:
    span.trace_state = "before"
    changed = wire.set_trace_state(wire.encode_span(span), "after")
    span.trace_state = "after"
    assert changed == wire.encode_span(span)
