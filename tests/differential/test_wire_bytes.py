"""Bytes of any kind: refused by us and by official protobuf, or read alike by both.

Justified differences, each with a test of its own in tests/unit/mcptrace_proto: our limits
(TooLarge) are lower than protobuf's one of 100 levels, which counts messages and groups of
all kinds together where we count the nesting of values, and that of groups, by themselves;
we refuse field number 0 inside a group too, which protobuf's C parser steps over; and we do
not look into a Resource's entity_refs (oracle.RequestJudge does not either).
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError as OfficialError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1 import trace_pb2
from oracle import RequestJudge, exact, groups_of, span_of
from strategies import messages, mutated, requests, spans

from mcptrace_proto import wire
from mcptrace_proto.wire import DecodeError, TooLarge

REFUSED = "refused"

span_bytes = spans.map(wire.encode_span)
request_bytes = requests.map(wire.encode_request)


def outcome(read: Any, body: bytes) -> Any:
    try:
        return read(body)
    except (DecodeError, OfficialError):
        return REFUSED


def read_official_span(body: bytes) -> Any:
    return exact(span_of(trace_pb2.Span.FromString(body)))


def read_official_request(body: bytes) -> Any:
    return exact(groups_of(RequestJudge.FromString(body)))


def assert_same_outcome(ours: Any, theirs: Any, body: bytes) -> None:
    try:
        found = ours(body)
    except TooLarge:
        return
    except DecodeError as error:
        if error.reason == "field number 0":
            return
        found = REFUSED
    assert found == outcome(theirs, body)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=30), messages, mutated(span_bytes), mutated(messages)))
def test_any_bytes_are_a_span_to_us_when_they_are_to_protobuf(body: bytes) -> None:
    assert_same_outcome(lambda raw: exact(wire.decode_span(raw)), read_official_span, body)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=30), messages, mutated(request_bytes), mutated(messages)))
def test_any_bytes_are_a_request_to_us_when_they_are_to_protobuf(body: bytes) -> None:
    assert_same_outcome(lambda raw: exact(wire.decode_request(raw)), read_official_request, body)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=30), messages, mutated(messages)))
def test_any_bytes_are_a_response_to_us_when_they_are_to_protobuf(body: bytes) -> None:
    def official(raw: bytes) -> tuple[int, str]:
        partial = ExportTraceServiceResponse.FromString(raw).partial_success
        return partial.rejected_spans, partial.error_message

    assert_same_outcome(wire.decode_response, official, body)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=30), messages, mutated(messages)))
def test_any_bytes_as_a_status_are_read_or_refused(body: bytes) -> None:
    # Protobuf does not look into the details; a RetryInfo that is not one is refused here.
    try:
        code, message, delay = wire.decode_status(body)
    except (DecodeError, TooLarge):
        return
    assert isinstance(code, int)
    assert isinstance(message, str)
    assert delay is None or delay >= 0


@settings(max_examples=200, deadline=None)
@given(st.one_of(messages, mutated(request_bytes), mutated(messages)))
def test_split_requests_hold_the_spans_that_protobuf_finds(body: bytes) -> None:
    # Splitting does not look into spans, so it may take what decoding refuses; never less.
    try:
        groups = wire.split_request(body)
    except (DecodeError, TooLarge):
        assert outcome(wire.decode_request, body) == REFUSED
        return
    official = outcome(RequestJudge.FromString, body)
    if official == REFUSED:
        return
    assert exact(
        [
            (
                wire.decode_resource(group.source.resource),
                group.source.resource_schema_url,
                wire.decode_scope(group.source.scope),
                group.source.scope_schema_url,
                [wire.decode_span(span) for span in group.spans],
            )
            for group in groups
        ]
    ) == exact(
        [
            (
                group.resource,
                group.schema_url,
                inner.scope,
                inner.schema_url,
                inner.spans,
            )
            for group in groups_of(official)
            for inner in group.scope_spans
        ]
    )
