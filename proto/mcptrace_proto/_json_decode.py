"""OTLP/JSON to the records of model.py.

OTLP's own rules on top of proto3 JSON: ids are hex, enums are numbers only, field names
are lowerCamelCase only.  Unknown fields are ignored, null is absent (but not in an array),
64-bit integers may be strings or numbers.  A key given twice in one object is refused.

Every fault is a DecodeError or TooLarge.  A fault of the JSON text has its byte position;
a fault of a value has position 0 and its path in the reason.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from mcptrace_proto.errors import DecodeError, TooLarge
from mcptrace_proto.limits import DEFAULT_LIMITS, Counter, Limits
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

Object: TypeAlias = "dict[str, object]"
# Where a value is, from the inside out; written out only when something is wrong with it.
Path: TypeAlias = "tuple[Path, str | int] | None"

DIGITS_MAX = 40  # longer whole numbers are read as floats: no field can hold them
_WHOLE = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NAMED_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_URL_SAFE = str.maketrans("-_", "+/")


def decode_request_json(body: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ResourceSpans]:
    """Decode one ExportTraceServiceRequest in OTLP/JSON."""
    counter = Counter(limits)
    return [
        _resource_spans(item, path, counter)
        for item, path in _objects(load(body), "resourceSpans", None)
    ]


def decode_response_json(body: bytes) -> tuple[int, str]:
    """Decode an ExportTraceServiceResponse to (rejected spans, error message)."""
    partial, path = _object(load(body), "partialSuccess", None)
    return _int64(partial, "rejectedSpans", path), _text(partial, "errorMessage", path)


def load(body: bytes) -> Object:
    """Parse JSON text, which must be an object."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("invalid UTF-8", error.start) from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_parse_int,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")  # some of the messages expect a position next
        raise DecodeError(reason, len(text[: error.pos].encode())) from None
    except RecursionError:
        raise DecodeError("JSON nested too deeply", 0) from None
    if not isinstance(value, dict):
        _refuse("an object", None)
    return value


def _unique(pairs: list[tuple[str, object]]) -> Object:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise DecodeError("a key is given twice in one object", 0)
    return unique


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError(f"{name} without quotes", 0)


# --- messages ---------------------------------------------------------------------------


def _resource_spans(item: Object, path: Path, counter: Counter) -> ResourceSpans:
    counter.group()
    resource, at = _object(item, "resource", path)
    return ResourceSpans(
        Resource(
            _attributes(resource, at, counter.limits),
            _uint32(resource, "droppedAttributesCount", at),
        ),
        [_scope_spans(*found, counter) for found in _objects(item, "scopeSpans", path)],
        _text(item, "schemaUrl", path),
    )


def _scope_spans(item: Object, path: Path, counter: Counter) -> ScopeSpans:
    counter.group()
    scope, at = _object(item, "scope", path)
    return ScopeSpans(
        Scope(
            _text(scope, "name", at),
            _text(scope, "version", at),
            _attributes(scope, at, counter.limits),
            _uint32(scope, "droppedAttributesCount", at),
        ),
        [_span(*found, counter) for found in _objects(item, "spans", path)],
        _text(item, "schemaUrl", path),
    )


def _span(item: Object, path: Path, counter: Counter) -> SpanData:
    counter.span()
    limits = counter.limits
    status, status_path = _object(item, "status", path)
    events = _objects(item, "events", path)
    if len(events) > limits.max_events:
        raise TooLarge("number of events", len(events), limits.max_events)
    links = _objects(item, "links", path)
    if len(links) > limits.max_links:
        raise TooLarge("number of links", len(links), limits.max_links)
    return SpanData(
        trace_id=_id(item, "traceId", path),
        span_id=_id(item, "spanId", path),
        parent_span_id=_id(item, "parentSpanId", path),
        name=_text(item, "name", path),
        kind=_enum(item, "kind", path),
        start_time_unix_nano=_uint64(item, "startTimeUnixNano", path),
        end_time_unix_nano=_uint64(item, "endTimeUnixNano", path),
        attributes=_attributes(item, path, limits),
        events=[_event(*found, limits) for found in events],
        links=[_link(*found, limits) for found in links],
        status_code=_enum(status, "code", status_path),
        status_message=_text(status, "message", status_path),
        trace_state=_text(item, "traceState", path),
        flags=_uint32(item, "flags", path),
        dropped_attributes_count=_uint32(item, "droppedAttributesCount", path),
        dropped_events_count=_uint32(item, "droppedEventsCount", path),
        dropped_links_count=_uint32(item, "droppedLinksCount", path),
    )


def _event(item: Object, path: Path, limits: Limits) -> Event:
    return Event(
        _uint64(item, "timeUnixNano", path),
        _text(item, "name", path),
        _attributes(item, path, limits),
        _uint32(item, "droppedAttributesCount", path),
    )


def _link(item: Object, path: Path, limits: Limits) -> Link:
    return Link(
        _id(item, "traceId", path),
        _id(item, "spanId", path),
        _text(item, "traceState", path),
        _attributes(item, path, limits),
        _uint32(item, "droppedAttributesCount", path),
        _uint32(item, "flags", path),
    )


def _attributes(
    item: Object, path: Path, limits: Limits, name: str = "attributes", depth: int = 1
) -> Attributes:
    attributes: Attributes = {}
    for pair, at in _objects(item, name, path):
        value, value_path = _object(pair, "value", at)
        attributes[_text(pair, "key", at)] = _any_value(value, value_path, limits, depth)
    if len(attributes) > limits.max_attributes:
        raise TooLarge("number of attributes", len(attributes), limits.max_attributes)
    return attributes


def _any_value(item: Object, path: Path, limits: Limits, depth: int) -> AttributeValue:
    if depth > limits.max_depth:
        raise TooLarge("nesting depth of a value", depth, limits.max_depth)
    present = [name for name in _VALUE_FIELDS if item.get(name) is not None]
    if len(present) > 1:
        _refuse("one kind of value, not " + " and ".join(present), path)
    if not present:
        return None
    name = present[0]
    if name in _SCALAR_VALUES:
        return _SCALAR_VALUES[name](item, name, path)
    inner, at = _object(item, name, path)
    if name == "kvlistValue":
        return _attributes(inner, at, limits, "values", depth + 1)
    values = _objects(inner, "values", at)
    if len(values) > limits.max_array_values:
        raise TooLarge("length of an array", len(values), limits.max_array_values)
    return [_any_value(*found, limits, depth + 1) for found in values]


# --- fields -----------------------------------------------------------------------------


def _refuse(expected: str, path: Path) -> NoReturn:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    where = "".join(reversed(steps)).removeprefix(".") or "the body"
    raise DecodeError(f"{where} must be {expected}", 0)


def _object(item: Object, name: str, path: Path) -> tuple[Object, Path]:
    value = item.get(name)
    at = (path, name)
    if value is None:
        return {}, at
    if not isinstance(value, dict):
        _refuse("an object", at)
    return value, at


def _objects(item: Object, name: str, path: Path) -> list[tuple[Object, Path]]:
    values = item.get(name)
    if values is None:
        return []
    array_path = (path, name)
    if not isinstance(values, list):
        _refuse("an array", array_path)
    found: list[tuple[Object, Path]] = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            _refuse("an object", (array_path, index))
        found.append((value, (array_path, index)))
    return found


def _text(item: Object, name: str, path: Path) -> str:
    value = item.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse("a string", (path, name))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse("free of lone surrogates", (path, name))
    return value


def _id(item: Object, name: str, path: Path) -> bytes:
    value = item.get(name)
    if value is None:
        return b""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        _refuse("a string of hex digits", (path, name))
    return bytes.fromhex(value)


def _enum(item: Object, name: str, path: Path) -> int:
    if isinstance(item.get(name), str):
        _refuse("an integer", (path, name))
    return _int(item, name, path, -(1 << 31), (1 << 31) - 1)


def _uint32(item: Object, name: str, path: Path) -> int:
    return _int(item, name, path, 0, (1 << 32) - 1)


def _uint64(item: Object, name: str, path: Path) -> int:
    return _int(item, name, path, 0, (1 << 64) - 1)


def _int(item: Object, name: str, path: Path, least: int, most: int) -> int:
    value = item.get(name)
    if value is None:
        return 0
    if isinstance(value, str):
        value = int(value) if _WHOLE.fullmatch(value) else None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse("an integer", (path, name))
    if not least <= value <= most:
        _refuse(f"from {least} to {most}", (path, name))
    return value


def _int64(item: Object, name: str, path: Path) -> int:
    return _int(item, name, path, -(1 << 63), (1 << 63) - 1)


def _bool(item: Object, name: str, path: Path) -> bool:
    value = item[name]
    if not isinstance(value, bool):
        _refuse("true or false", (path, name))
    return value


def _double(item: Object, name: str, path: Path) -> float:
    value = item[name]
    if isinstance(value, str):
        if value in _NAMED_FLOATS:
            return _NAMED_FLOATS[value]
        if not _FLOAT.fullmatch(value):
            _refuse("a number", (path, name))
        value = float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        _refuse("a number", (path, name))
    number = float(value)
    if not math.isfinite(number):
        _refuse("a number that a double can hold", (path, name))
    return number


def _bytes(item: Object, name: str, path: Path) -> bytes:
    value = item[name]
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        _refuse("base64", (path, name))
    digits = value.rstrip("=").translate(_URL_SAFE)
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4))
    except binascii.Error:
        _refuse("base64", (path, name))


_SCALAR_VALUES: dict[str, Callable[[Object, str, Path], AttributeValue]] = {
    "stringValue": _text,
    "intValue": _int64,
    "doubleValue": _double,
    "boolValue": _bool,
    "bytesValue": _bytes,
}
_VALUE_FIELDS = (*_SCALAR_VALUES, "arrayValue", "kvlistValue")
