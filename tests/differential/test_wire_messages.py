"""The codec against official protobuf: anything we write, anything they write."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1 import trace_pb2
from oracle import (
    exact,
    groups_of,
    request_message,
    resource_message,
    resource_of,
    scope_message,
    scope_of,
    span_message,
    span_of,
)
from strategies import enums, int64, requests, resources, scopes, spans, texts

from mcptrace_proto import _wire_tags as tags
from mcptrace_proto import wire
from mcptrace_proto.model import Resource, ResourceSpans, Scope, SpanData

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").rglob("*.pb"))

modest = settings(max_examples=60, deadline=None)


@modest
@given(spans)
def test_official_protobuf_reads_the_span_we_wrote(span: SpanData) -> None:
    assert exact(span_of(trace_pb2.Span.FromString(wire.encode_span(span)))) == exact(span)


@modest
@given(spans)
def test_we_read_the_span_official_protobuf_wrote(span: SpanData) -> None:
    assert exact(wire.decode_span(span_message(span).SerializeToString())) == exact(span)


@modest
@given(resources)
def test_resources_are_written_and_read_as_by_official_protobuf(resource: Resource) -> None:
    ours = wire.encode_resource(resource)
    theirs = resource_message(resource).SerializeToString()
    assert exact(resource_of(ResourceMessage.FromString(ours))) == exact(resource)
    assert exact(wire.decode_resource(theirs)) == exact(resource)


@modest
@given(scopes)
def test_scopes_are_written_and_read_as_by_official_protobuf(scope: Scope) -> None:
    ours = wire.encode_scope(scope)
    theirs = scope_message(scope).SerializeToString()
    assert exact(scope_of(InstrumentationScope.FromString(ours))) == exact(scope)
    assert exact(wire.decode_scope(theirs)) == exact(scope)


@modest
@given(requests)
def test_requests_are_written_and_read_as_by_official_protobuf(
    groups: list[ResourceSpans],
) -> None:
    ours = wire.encode_request(groups)
    theirs = request_message(groups).SerializeToString()
    assert exact(groups_of(ExportTraceServiceRequest.FromString(ours))) == exact(groups)
    assert exact(wire.decode_request(theirs)) == exact(groups)
    assert exact(wire.decode_request(ours)) == exact(groups)


@modest
@given(requests)
def test_output_is_byte_for_byte_that_of_official_protobuf(groups: list[ResourceSpans]) -> None:
    assert wire.encode_request(groups) == request_message(groups).SerializeToString()


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_real_servers_sent_decodes_as_by_official_protobuf(capture: Path) -> None:
    body = capture.read_bytes()
    message = ExportTraceServiceRequest.FromString(body)
    groups = wire.decode_request(body)
    assert exact(groups) == exact(groups_of(message))
    assert wire.encode_request(groups) == request_message(groups).SerializeToString()
    joined = wire.join_request(wire.split_request(body))
    assert ExportTraceServiceRequest.FromString(joined) == message


def test_captures_are_there() -> None:
    assert {path.parent.name for path in CAPTURES} == {"triton", "vllm"}


# --- answers ----------------------------------------------------------------------------


@modest
@given(int64, texts)
def test_responses_are_written_and_read_as_by_official_protobuf(
    rejected: int, message: str
) -> None:
    theirs = ExportTraceServiceResponse()
    if rejected or message:
        theirs.partial_success.rejected_spans = rejected
        theirs.partial_success.error_message = message
    ours = wire.encode_response(rejected, message)
    assert ours == theirs.SerializeToString()
    assert wire.decode_response(ours) == (rejected, message)


@modest
@given(enums, texts, st.none() | st.floats(0, 1e6))
def test_statuses_are_written_as_by_official_protobuf(
    code: int, message: str, delay: float | None
) -> None:
    theirs = status_pb2.Status(code=code, message=message)
    if delay is not None:
        nanos = round(delay * 1e9)
        duration = duration_pb2.Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        theirs.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=duration))
    assert wire.encode_status(code, message, delay) == theirs.SerializeToString()


@modest
@given(enums, texts, st.none() | st.integers(-(10**15), 10**15))
def test_statuses_of_official_protobuf_are_read(code: int, message: str, nanos: int | None) -> None:
    status = status_pb2.Status(code=code, message=message)
    status.details.add().Pack(error_details_pb2.BadRequest())
    expected = None
    if nanos is not None:
        retry_info = error_details_pb2.RetryInfo()
        retry_info.retry_delay.FromNanoseconds(nanos)
        status.details.add().Pack(retry_info)
        expected = pytest.approx(max(0, nanos) / 1e9)
    assert wire.decode_status(status.SerializeToString()) == (code, message, expected)


# --- field numbers ----------------------------------------------------------------------

_WIRE_TYPES = {1: 1, 2: 5, 3: 0, 4: 0, 5: 0, 6: 1, 7: 5, 8: 0, 9: 2, 11: 2, 12: 2, 13: 0, 14: 0}


def _tag(descriptor: object, name: str) -> int:
    field = descriptor.fields_by_name[name]  # type: ignore[attr-defined]
    return field.number << 3 | _WIRE_TYPES[field.type]


@pytest.mark.parametrize(
    ("message", "prefix", "fields"),
    [
        (
            trace_pb2.Span,
            "SPAN",
            "trace_id span_id trace_state parent_span_id name kind start_time_unix_nano:START_TIME"
            " end_time_unix_nano:END_TIME attributes events links status flags"
            " dropped_attributes_count:DROPPED_ATTRIBUTES dropped_events_count:DROPPED_EVENTS"
            " dropped_links_count:DROPPED_LINKS",
        ),
        (
            trace_pb2.Span.Event,
            "EVENT",
            "time_unix_nano:TIME name attributes dropped_attributes_count:DROPPED_ATTRIBUTES",
        ),
        (
            trace_pb2.Span.Link,
            "LINK",
            "trace_id span_id trace_state attributes flags"
            " dropped_attributes_count:DROPPED_ATTRIBUTES",
        ),
        (trace_pb2.Status, "STATUS", "message code"),
        (status_pb2.Status, "RPC_STATUS", "code message details"),
    ],
)
def test_every_field_has_its_official_number_and_type(
    message: type, prefix: str, fields: str
) -> None:
    descriptor = message.DESCRIPTOR  # type: ignore[attr-defined]
    names = dict((*field.split(":"), field.upper())[:2] for field in fields.split())
    assert set(names) == set(descriptor.fields_by_name)
    assert {name: getattr(tags, f"{prefix}_{ours}") for name, ours in names.items()} == {
        name: _tag(descriptor, name) for name in names
    }
