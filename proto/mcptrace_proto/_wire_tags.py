"""Field numbers and wire types of every OTLP message that is read or written here.

A tag is ``field number << 3 | wire type``.  Readers compare whole tags, so a known field
with a foreign wire type is an unknown field, as in every protobuf implementation.
Source: opentelemetry-proto 1.11 (trace/v1, common/v1, resource/v1, collector/trace/v1) and
google.rpc (status, error_details), google.protobuf (any, duration).
"""

from __future__ import annotations

VARINT, FIXED64, DELIMITED, GROUP_START, GROUP_END, FIXED32 = range(6)

# ExportTraceServiceRequest, ResourceSpans, ScopeSpans
REQUEST_RESOURCE_SPANS = 1 << 3 | DELIMITED
GROUP_SOURCE = 1 << 3 | DELIMITED  # ResourceSpans.resource and ScopeSpans.scope
GROUP_ITEMS = 2 << 3 | DELIMITED  # ResourceSpans.scope_spans and ScopeSpans.spans
GROUP_SCHEMA_URL = 3 << 3 | DELIMITED

SPAN_TRACE_ID = 1 << 3 | DELIMITED
SPAN_SPAN_ID = 2 << 3 | DELIMITED
SPAN_TRACE_STATE = 3 << 3 | DELIMITED
SPAN_PARENT_SPAN_ID = 4 << 3 | DELIMITED
SPAN_NAME = 5 << 3 | DELIMITED
SPAN_KIND = 6 << 3 | VARINT
SPAN_START_TIME = 7 << 3 | FIXED64
SPAN_END_TIME = 8 << 3 | FIXED64
SPAN_ATTRIBUTES = 9 << 3 | DELIMITED
SPAN_DROPPED_ATTRIBUTES = 10 << 3 | VARINT
SPAN_EVENTS = 11 << 3 | DELIMITED
SPAN_DROPPED_EVENTS = 12 << 3 | VARINT
SPAN_LINKS = 13 << 3 | DELIMITED
SPAN_DROPPED_LINKS = 14 << 3 | VARINT
SPAN_STATUS = 15 << 3 | DELIMITED
SPAN_FLAGS = 16 << 3 | FIXED32

EVENT_TIME = 1 << 3 | FIXED64
EVENT_NAME = 2 << 3 | DELIMITED
EVENT_ATTRIBUTES = 3 << 3 | DELIMITED
EVENT_DROPPED_ATTRIBUTES = 4 << 3 | VARINT

LINK_TRACE_ID = 1 << 3 | DELIMITED
LINK_SPAN_ID = 2 << 3 | DELIMITED
LINK_TRACE_STATE = 3 << 3 | DELIMITED
LINK_ATTRIBUTES = 4 << 3 | DELIMITED
LINK_DROPPED_ATTRIBUTES = 5 << 3 | VARINT
LINK_FLAGS = 6 << 3 | FIXED32

STATUS_MESSAGE = 2 << 3 | DELIMITED
STATUS_CODE = 3 << 3 | VARINT

RESOURCE_ATTRIBUTES = 1 << 3 | DELIMITED
RESOURCE_DROPPED_ATTRIBUTES = 2 << 3 | VARINT

SCOPE_NAME = 1 << 3 | DELIMITED
SCOPE_VERSION = 2 << 3 | DELIMITED
SCOPE_ATTRIBUTES = 3 << 3 | DELIMITED
SCOPE_DROPPED_ATTRIBUTES = 4 << 3 | VARINT

KEY_VALUE_KEY = 1 << 3 | DELIMITED
KEY_VALUE_VALUE = 2 << 3 | DELIMITED
LIST_VALUES = 1 << 3 | DELIMITED  # ArrayValue.values and KeyValueList.values

ANY_STRING = 1 << 3 | DELIMITED
ANY_BOOL = 2 << 3 | VARINT
ANY_INT = 3 << 3 | VARINT
ANY_DOUBLE = 4 << 3 | FIXED64
ANY_ARRAY = 5 << 3 | DELIMITED
ANY_KEY_VALUES = 6 << 3 | DELIMITED
ANY_BYTES = 7 << 3 | DELIMITED
ANY_STRING_INDEX = 8 << 3 | VARINT  # profiles only: an index into a table that traces lack

# ExportTraceServiceResponse, ExportTracePartialSuccess
RESPONSE_PARTIAL_SUCCESS = 1 << 3 | DELIMITED
PARTIAL_REJECTED_SPANS = 1 << 3 | VARINT
PARTIAL_ERROR_MESSAGE = 2 << 3 | DELIMITED

# google.rpc.Status, google.protobuf.Any, google.rpc.RetryInfo, google.protobuf.Duration
RPC_STATUS_CODE = 1 << 3 | VARINT
RPC_STATUS_MESSAGE = 2 << 3 | DELIMITED
RPC_STATUS_DETAILS = 3 << 3 | DELIMITED
PACKED_TYPE_URL = 1 << 3 | DELIMITED
PACKED_VALUE = 2 << 3 | DELIMITED
RETRY_INFO_DELAY = 1 << 3 | DELIMITED
DURATION_SECONDS = 1 << 3 | VARINT
DURATION_NANOS = 2 << 3 | VARINT
