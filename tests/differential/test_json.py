"""OTLP/JSON against protobuf's own JSON, with ids in hex and enums as numbers.

Where the two differ we are the stricter: names of enums, numbers with signs, spaces,
fractions or exponents inside strings, true for 1, ids with spaces and base64 with foreign
characters are refused (tests/unit/mcptrace_proto/test_json.py).  What we take, they take
and read alike.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from oracle import exact, groups_of, otlp_json, parse_otlp_json, request_message
from strategies import enums, int64, mutated, requests, texts, uint32, uint64

from mcptrace_proto.json import (
    decode_request_json,
    decode_response_json,
    encode_request_json,
    encode_response_json,
    encode_status_json,
)
from mcptrace_proto.model import ResourceSpans
from mcptrace_proto.wire import DecodeError, TooLarge

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").rglob("*.pb"))

modest = settings(max_examples=60, deadline=None)

assert error_details_pb2.RetryInfo  # registered, so that json_format knows the type by its name


@modest
@given(requests)
def test_official_protobuf_reads_the_json_we_wrote(groups: list[ResourceSpans]) -> None:
    fields = json.loads(encode_request_json(groups))
    assert exact(groups_of(parse_otlp_json(fields))) == exact(groups)


@modest
@given(requests)
def test_we_read_the_json_official_protobuf_wrote(groups: list[ResourceSpans]) -> None:
    fields = otlp_json(request_message(groups))
    assert exact(decode_request_json(json.dumps(fields).encode())) == exact(groups)
    assert exact(decode_request_json(encode_request_json(groups))) == exact(groups)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_captures_are_the_same_in_both_encodings(capture: Path) -> None:
    message = ExportTraceServiceRequest.FromString(capture.read_bytes())
    expected = exact(groups_of(message))
    assert exact(decode_request_json(json.dumps(otlp_json(message)).encode())) == expected
    as_sent = capture.with_suffix(".json")
    if as_sent.exists():
        assert exact(decode_request_json(as_sent.read_bytes())) == expected


# --- anything that looks like OTLP/JSON --------------------------------------------------

FIELDS = {
    "": ("resourceSpans*",),
    "resourceSpans": ("resource", "scopeSpans*", "schemaUrl"),
    "resource": ("attributes*", "droppedAttributesCount"),
    "scopeSpans": ("scope", "spans*", "schemaUrl"),
    "scope": ("name", "version", "attributes*", "droppedAttributesCount"),
    "spans": (
        *("traceId", "spanId", "parentSpanId", "traceState", "name", "kind", "flags", "status"),
        *("startTimeUnixNano", "endTimeUnixNano", "attributes*", "events*", "links*"),
        *("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"),
    ),
    "events": ("timeUnixNano", "name", "attributes*", "droppedAttributesCount"),
    "links": ("traceId", "spanId", "traceState", "attributes*", "droppedAttributesCount", "flags"),
    "status": ("message", "code"),
    "attributes": ("key", "value"),
    "value": (
        *("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue"),
        *("arrayValue", "kvlistValue"),
    ),
    "kvlistValue": ("values*",),
    "arrayValue": ("values*",),
}

_odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.integers(0, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["0", "5", "-1", "007", "1e3", "1.0", " 1", "+1", "0x1", str(1 << 64)]),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "nan", "inf", "1.5", "-2E-3", ".5"]),
    st.sampled_from(
        ["AAE=", "-_8", "A", "ab", "ABCDEF", "ab cd", "abc", "\ud800", "1_0", "\uff11"]
    ),
    st.just([]),
    st.just({}),
)

_right = {
    "boolValue": st.booleans(),
    "intValue": int64 | int64.map(str),
    "doubleValue": st.floats(allow_nan=False, allow_infinity=False),
    "bytesValue": st.binary(max_size=4).map(lambda raw: base64.b64encode(raw).decode()),
    "startTimeUnixNano": uint64.map(str),
    "endTimeUnixNano": uint64,
    "timeUnixNano": uint64.map(str),
    **dict.fromkeys(["traceId", "spanId", "parentSpanId"], st.binary(max_size=9).map(bytes.hex)),
    **dict.fromkeys(["kind", "code"], enums),
    **dict.fromkeys(["flags", "droppedAttributesCount", "droppedEventsCount"], uint32),
    "droppedLinksCount": uint32.map(str),
}


@st.composite
def documents(draw: st.DrawFn, name: str = "", within: str = "", depth: int = 0) -> Any:
    """Objects with OTLP's field names; most values are of the right type, some are not."""
    shape = {"arrayValue": "value", "kvlistValue": "attributes"}.get(within, name)
    if draw(st.integers(0, 30)) == 0:
        return draw(_odd)
    if shape not in FIELDS or depth > 12:
        return draw(_right.get(name, texts))
    most = 3 if depth else 1
    fields = {}
    for field in draw(st.lists(st.sampled_from(FIELDS[shape]), max_size=most, unique=True)):
        plain = field.removesuffix("*")
        inner = documents(plain, shape if plain != "values" else name, depth + 1)
        fields[plain] = draw(st.lists(inner, max_size=2) if field.endswith("*") else inner)
    return fields


@settings(max_examples=400, deadline=None)
@given(documents())
def test_what_we_take_official_protobuf_takes_and_reads_alike(document: Any) -> None:
    try:
        groups = decode_request_json(json.dumps(document).encode())
    except (DecodeError, TooLarge):
        return
    assert exact(groups) == exact(groups_of(parse_otlp_json(document)))


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=20),
        st.text(max_size=20).map(str.encode),
        mutated(requests.map(encode_request_json)),
    )
)
def test_bytes_that_are_not_json_are_refused_like_json_refuses_them(body: bytes) -> None:
    try:
        decode_request_json(body)
    except (DecodeError, TooLarge):
        return
    json.loads(body)


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
    ours = encode_response_json(rejected, message)
    assert json.loads(ours) == json_format.MessageToDict(theirs)
    assert decode_response_json(ours) == (rejected, message)


@modest
@given(enums, texts, st.none() | st.floats(0, 1e6))
def test_statuses_are_read_by_official_protobuf(
    code: int, message: str, delay: float | None
) -> None:
    status = json_format.Parse(encode_status_json(code, message, delay), status_pb2.Status())
    assert (status.code, status.message) == (code, message)
    if delay is None:
        assert not status.details
        return
    retry_info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(retry_info)
    assert retry_info.retry_delay.ToNanoseconds() == round(delay * 1e9)


def test_ids_are_hex_and_not_base64() -> None:
    # The one place where OTLP/JSON is not protobuf's JSON; hex digits are base64 as well.
    trace_id = bytes(range(16))
    span = {"traceId": trace_id.hex()}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    found = decode_request_json(body)[0].scope_spans[0].spans[0].trace_id
    assert found == trace_id != base64.b64decode(trace_id.hex())
