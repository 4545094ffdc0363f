"""A second opinion on the wire: the official opentelemetry-proto messages and protobuf.

Turns records of model.py into official messages and back without any code of ours, and
compares exactly: 1, 1.0 and True are three values, 0.0 and -0.0 are two, and NaN is NaN.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from mcptrace_proto.model import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanData,
)

ID_FIELDS = {"traceId", "spanId", "parentSpanId"}


def exact(value: Any) -> Any:
    """A form of records, lists and values that compares equal only when nothing differs."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return type(value).__name__, [exact(getattr(value, field.name)) for field in fields]
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, float):
        return "float", struct.pack("<d", math.nan if math.isnan(value) else value)
    return type(value).__name__, value


def _judge() -> type[ExportTraceServiceRequest]:
    """The official request, but that a Resource's entity_refs are a field it does not know.

    Our records do not have them, so we do not look inside, and a fault there is not found.
    """
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, trace_pb2, trace_service_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            if message.name == "Resource":
                kept = [field for field in message.field if field.name != "entity_refs"]
                del message.field[:]
                message.field.extend(kept)
        pool.Add(file)
    name = ExportTraceServiceRequest.DESCRIPTOR.full_name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


RequestJudge = _judge()


# --- records to messages ----------------------------------------------------------------


def any_value_message(value: AttributeValue) -> common_pb2.AnyValue:
    message = common_pb2.AnyValue()
    if isinstance(value, str):
        message.string_value = value
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, bytes):
        message.bytes_value = value
    elif isinstance(value, list):
        message.array_value.SetInParent()
        message.array_value.values.extend(map(any_value_message, value))
    elif isinstance(value, dict):
        message.kvlist_value.SetInParent()
        message.kvlist_value.values.extend(key_values(value))
    return message


def key_values(attributes: Attributes) -> list[common_pb2.KeyValue]:
    return [
        common_pb2.KeyValue(key=key, value=any_value_message(value))
        for key, value in attributes.items()
    ]


def span_message(span: SpanData) -> trace_pb2.Span:
    message = trace_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        trace_state=span.trace_state,
        parent_span_id=span.parent_span_id,
        flags=span.flags,
        name=span.name,
        kind=span.kind,  # type: ignore[arg-type]
        start_time_unix_nano=span.start_time_unix_nano,
        end_time_unix_nano=span.end_time_unix_nano,
        attributes=key_values(span.attributes),
        dropped_attributes_count=span.dropped_attributes_count,
        dropped_events_count=span.dropped_events_count,
        dropped_links_count=span.dropped_links_count,
    )
    for event in span.events:
        message.events.add(
            time_unix_nano=event.time_unix_nano,
            name=event.name,
            attributes=key_values(event.attributes),
            dropped_attributes_count=event.dropped_attributes_count,
        )
    for link in span.links:
        message.links.add(
            trace_id=link.trace_id,
            span_id=link.span_id,
            trace_state=link.trace_state,
            attributes=key_values(link.attributes),
            dropped_attributes_count=link.dropped_attributes_count,
            flags=link.flags,
        )
    if span.status_code or span.status_message:
        message.status.code = span.status_code  # type: ignore[assignment]
        message.status.message = span.status_message
    return message


def resource_message(resource: Resource) -> resource_pb2.Resource:
    return resource_pb2.Resource(
        attributes=key_values(resource.attributes),
        dropped_attributes_count=resource.dropped_attributes_count,
    )


def scope_message(scope: Scope) -> common_pb2.InstrumentationScope:
    return common_pb2.InstrumentationScope(
        name=scope.name,
        version=scope.version,
        attributes=key_values(scope.attributes),
        dropped_attributes_count=scope.dropped_attributes_count,
    )


def request_message(groups: list[ResourceSpans]) -> ExportTraceServiceRequest:
    """Like ours, an empty Resource or Scope is not written."""
    request = ExportTraceServiceRequest()
    for group in groups:
        resource_spans = request.resource_spans.add(schema_url=group.schema_url)
        if group.resource != Resource():
            resource_spans.resource.CopyFrom(resource_message(group.resource))
        for scope_spans in group.scope_spans:
            inner = resource_spans.scope_spans.add(schema_url=scope_spans.schema_url)
            if scope_spans.scope != Scope():
                inner.scope.CopyFrom(scope_message(scope_spans.scope))
            inner.spans.extend(map(span_message, scope_spans.spans))
    return request


# --- messages to records ----------------------------------------------------------------


def value_of(message: common_pb2.AnyValue) -> AttributeValue:
    kind = message.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":  # means nothing in a trace
        return None
    if kind == "array_value":
        return [value_of(item) for item in message.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(message.kvlist_value.values)
    plain: AttributeValue = getattr(message, kind)
    return plain


def attributes_of(pairs: Any) -> Attributes:
    return {pair.key: value_of(pair.value) for pair in pairs}


def span_of(message: trace_pb2.Span) -> SpanData:
    return SpanData(
        trace_id=message.trace_id,
        span_id=message.span_id,
        parent_span_id=message.parent_span_id,
        name=message.name,
        kind=message.kind,
        start_time_unix_nano=message.start_time_unix_nano,
        end_time_unix_nano=message.end_time_unix_nano,
        attributes=attributes_of(message.attributes),
        events=[
            Event(
                event.time_unix_nano,
                event.name,
                attributes_of(event.attributes),
                event.dropped_attributes_count,
            )
            for event in message.events
        ],
        links=[
            Link(
                link.trace_id,
                link.span_id,
                link.trace_state,
                attributes_of(link.attributes),
                link.dropped_attributes_count,
                link.flags,
            )
            for link in message.links
        ],
        status_code=message.status.code,
        status_message=message.status.message,
        trace_state=message.trace_state,
        flags=message.flags,
        dropped_attributes_count=message.dropped_attributes_count,
        dropped_events_count=message.dropped_events_count,
        dropped_links_count=message.dropped_links_count,
    )


def resource_of(message: resource_pb2.Resource) -> Resource:
    return Resource(attributes_of(message.attributes), message.dropped_attributes_count)


def scope_of(message: common_pb2.InstrumentationScope) -> Scope:
    return Scope(
        message.name,
        message.version,
        attributes_of(message.attributes),
        message.dropped_attributes_count,
    )


def groups_of(request: ExportTraceServiceRequest) -> list[ResourceSpans]:
    return [
        ResourceSpans(
            resource_of(group.resource),
            [
                ScopeSpans(
                    scope_of(inner.scope),
                    [span_of(span) for span in inner.spans],
                    inner.schema_url,
                )
                for inner in group.scope_spans
            ],
            group.schema_url,
        )
        for group in request.resource_spans
    ]


# --- OTLP/JSON: protobuf's JSON, but for ids in hex and enums as numbers -------------------


def otlp_json(message: Message) -> Any:
    fields = json_format.MessageToDict(message, use_integers_for_enums=True)
    return _convert_ids(fields, lambda text: base64.b64decode(text).hex())


def parse_otlp_json(fields: Any) -> ExportTraceServiceRequest:
    """Raises json_format.ParseError, or ValueError for ids that are not hex."""
    converted = _convert_ids(fields, lambda text: base64.b64encode(bytes.fromhex(text)).decode())
    return json_format.ParseDict(converted, ExportTraceServiceRequest(), ignore_unknown_fields=True)


def _convert_ids(fields: Any, convert: Any) -> Any:
    if isinstance(fields, list):
        return [_convert_ids(item, convert) for item in fields]
    if not isinstance(fields, dict):
        return fields
    return {
        name: convert(value)
        if name in ID_FIELDS and isinstance(value, str)
        else _convert_ids(value, convert)
        for name, value in fields.items()
    }
