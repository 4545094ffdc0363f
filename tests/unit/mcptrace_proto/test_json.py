"""OTLP/JSON by the smallest documents that show each rule, and hostile ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from mcptrace_proto.json import (
    decode_request_json,
    decode_response_json,
    encode_request_json,
    encode_response_json,
    encode_status_json,
)
from mcptrace_proto.model import Event, Link, Resource, ResourceSpans, Scope, ScopeSpans, SpanData
from mcptrace_proto.wire import DEFAULT_LIMITS, DecodeError, TooLarge

SPAN_PATH = "resourceSpans[0].scopeSpans[0].spans[0]"


def body_of(span: str) -> bytes:
    """A request with one span, given as JSON text."""
    return ('{"resourceSpans":[{"scopeSpans":[{"spans":[' + span + "]}]}]}").encode()


def span_of(text: str) -> SpanData:
    return decode_request_json(body_of(text))[0].scope_spans[0].spans[0]


def value_of(any_value: str) -> Any:
    return span_of('{"attributes":[{"key":"a","value":' + any_value + "}]}").attributes["a"]


def reason_of(body: bytes) -> str:
    with pytest.raises(DecodeError) as caught:
        decode_request_json(body)
    return caught.value.reason


# --- rules of OTLP ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{"traceId":"0aFf","spanId":"","parentSpanId":null}', {"trace_id": b"\x0a\xff"}),
        ('{"kind":3,"status":{"code":2,"message":"m"}}', {"kind": 3, "status_code": 2}),
        ('{"kind":99}', {"kind": 99}),
        ('{"kind":-1}', {"kind": -1}),
        ('{"kind":2.0}', {"kind": 2}),
        ('{"startTimeUnixNano":"18446744073709551615"}', {"start_time_unix_nano": 2**64 - 1}),
        ('{"endTimeUnixNano":1}', {"end_time_unix_nano": 1}),
        ('{"endTimeUnixNano":1e18}', {"end_time_unix_nano": 10**18}),
        ('{"flags":"257","droppedLinksCount":4294967295}', {"flags": 257}),
        ('{"trace_id":"00","start_time_unix_nano":1,"Name":"n"}', {}),
        ('{"name":"n","unknown":[{"deep":[null,1e400]}]}', {"name": "n"}),
        ('{"events":[{}],"links":null}', {"events": [Event()]}),
        (
            '{"links":[{"traceId":"01","spanId":"02","traceState":"s","flags":1}]}',
            {"links": [Link(b"\x01", b"\x02", "s", flags=1)]},
        ),
        (
            '{"attributes":[{"key":"k"},{"value":{"intValue":1}}]}',
            {"attributes": {"k": None, "": 1}},
        ),
        (
            '{"attributes":[{"key":"k","value":{"intValue":1}},{"key":"k"}]}',
            {"attributes": {"k": None}},
        ),
    ],
)
def test_a_span_is_read(text: str, expected: dict[str, Any]) -> None:
    found = span_of(text)
    assert {name: getattr(found, name) for name in expected} == expected
    if not expected:
        assert found == SpanData()


@pytest.mark.parametrize(
    ("any_value", "value"),
    [
        ("{}", None),
        ("null", None),
        ('{"stringValue":null,"intValue":"5"}', 5),
        ('{"stringValue":""}', ""),
        ('{"boolValue":false}', False),
        ('{"intValue":"-9223372036854775808"}', -(1 << 63)),
        ('{"intValue":5}', 5),
        ('{"doubleValue":5}', 5.0),
        ('{"doubleValue":"-1.5e3"}', -1500.0),
        ('{"doubleValue":"NaN"}', math.nan),
        ('{"doubleValue":"-Infinity"}', -math.inf),
        ('{"bytesValue":"AAE="}', b"\x00\x01"),
        ('{"bytesValue":"-_8"}', b"\xfb\xff"),
        ('{"arrayValue":{}}', []),
        ('{"arrayValue":{"values":[{"intValue":1},{}]}}', [1, None]),
        ('{"kvlistValue":{"values":[{"key":"k","value":{"boolValue":true}}]}}', {"k": True}),
        ('{"string_value":"x"}', None),
    ],
)
def test_a_value_is_read_by_its_kind(any_value: str, value: object) -> None:
    assert repr(value_of(any_value)) == repr(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"kind":"SPAN_KIND_SERVER"}', ".kind must be an integer"),
        ('{"kind":"2"}', ".kind must be an integer"),
        ('{"kind":2.5}', ".kind must be an integer"),
        ('{"kind":true}', ".kind must be an integer"),
        ('{"kind":2147483648}', ".kind must be from -2147483648 to 2147483647"),
        ('{"status":{"code":"STATUS_CODE_OK"}}', ".status.code must be an integer"),
        ('{"status":[]}', ".status must be an object"),
        ('{"flags":-1}', ".flags must be from 0 to 4294967295"),
        ('{"flags":" 7"}', ".flags must be an integer"),
        ('{"flags":"1e2"}', ".flags must be an integer"),
        ('{"flags":"\\uff17"}', ".flags must be an integer"),
        ('{"flags":1e400}', ".flags must be an integer"),
        (
            '{"startTimeUnixNano":"18446744073709551616"}',
            ".startTimeUnixNano must be from 0 to 18446744073709551615",
        ),
        ('{"traceId":"abc"}', ".traceId must be a string of hex digits"),
        ('{"traceId":"ab cd"}', ".traceId must be a string of hex digits"),
        ('{"traceId":5}', ".traceId must be a string of hex digits"),
        ('{"name":5}', ".name must be a string"),
        ('{"name":"\\ud800"}', ".name must be free of lone surrogates"),
        ('{"events":{}}', ".events must be an array"),
        ('{"events":[{},null]}', ".events[1] must be an object"),
        ('{"attributes":[{"key":7}]}', ".attributes[0].key must be a string"),
        ("[]", " must be an object"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_path(text: str, reason: str) -> None:
    assert reason_of(body_of(text)) == SPAN_PATH + reason


@pytest.mark.parametrize(
    ("any_value", "reason"),
    [
        ('"x"', " must be an object"),
        (
            '{"stringValue":"x","intValue":1}',
            " must be one kind of value, not stringValue and intValue",
        ),
        ('{"boolValue":"true"}', ".boolValue must be true or false"),
        ('{"boolValue":1}', ".boolValue must be true or false"),
        ('{"intValue":true}', ".intValue must be an integer"),
        (
            '{"intValue":9223372036854775808}',
            f".intValue must be from {-(1 << 63)} to {(1 << 63) - 1}",
        ),
        ('{"intValue":' + "9" * 5000 + "}", ".intValue must be an integer"),
        ('{"intValue":"' + "9" * 5000 + '"}', ".intValue must be an integer"),
        ('{"doubleValue":true}', ".doubleValue must be a number"),
        ('{"doubleValue":"inf"}', ".doubleValue must be a number"),
        ('{"doubleValue":" 1"}', ".doubleValue must be a number"),
        ('{"doubleValue":1e400}', ".doubleValue must be a number that a double can hold"),
        ('{"doubleValue":"1e400"}', ".doubleValue must be a number that a double can hold"),
        (
            '{"doubleValue":' + "9" * 5000 + "}",
            ".doubleValue must be a number that a double can hold",
        ),
        ('{"bytesValue":"A"}', ".bytesValue must be base64"),
        ('{"bytesValue":"A A="}', ".bytesValue must be base64"),
        ('{"bytesValue":"AA==="}', ".bytesValue must be base64"),
        ('{"arrayValue":[]}', ".arrayValue must be an object"),
        ('{"arrayValue":{"values":[null]}}', ".arrayValue.values[0] must be an object"),
        (
            '{"kvlistValue":{"values":[{"value":5}]}}',
            ".kvlistValue.values[0].value must be an object",
        ),
    ],
)
def test_a_bad_attribute_value_is_refused_with_its_path(any_value: str, reason: str) -> None:
    body = body_of('{"attributes":[{"key":"a","value":' + any_value + "}]}")
    assert reason_of(body) == f"{SPAN_PATH}.attributes[0].value{reason}"


# --- hostile text -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason", "position"),
    [
        (b"", "Expecting value", 0),
        (b"{", "Expecting property name enclosed in double quotes", 1),
        (b"{} x", "Extra data", 3),
        (b"\xef\xbb\xbf{}", "Unexpected UTF-8 BOM (decode using utf-8-sig)", 0),
        (b'{"a":"\xff"}', "invalid UTF-8", 6),
        ('{"\u20ac":tru}'.encode(), "Expecting value", 7),
        (b'{"a":"\x00"}', "Invalid control character", 6),
        (b'{"a":NaN}', "NaN without quotes", 0),
        (b'{"a":-Infinity}', "-Infinity without quotes", 0),
        (b'{"a":1,"a":1}', "a key is given twice in one object", 0),
        (b'{"a":1,"\\u0061":1}', "a key is given twice in one object", 0),
        (b"[]", "the body must be an object", 0),
        (b"null", "the body must be an object", 0),
        (b"[" * 100_000, "JSON nested too deeply", 0),
        (b'{"a":' * 100_000, "JSON nested too deeply", 0),
        (b'{"resourceSpans":5}', "resourceSpans must be an array", 0),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_text_that_is_not_a_request_is_refused(body: bytes, reason: str, position: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_request_json(body)
    assert (caught.value.reason, caught.value.position) == (reason, position)
    with pytest.raises(DecodeError):
        decode_response_json(body.replace(b'{"resourceSpans"', b'{"partialSuccess"'))


def test_surrogate_pairs_are_one_character_and_unknown_names_may_be_anything() -> None:
    assert span_of('{"name":"\\ud83d\\ude00","\\ud800":"\\ud800"}').name == "\U0001f600"


@pytest.mark.parametrize(
    ("limit", "most", "text", "what"),
    [
        ("max_spans", 2, "{},{}", "number of spans"),
        ("max_groups", 2, "{}", "number of resource and scope groups"),
        ("max_events", 2, '{"events":[{},{}]}', "number of events"),
        ("max_links", 2, '{"links":[{},{}]}', "number of links"),
        ("max_attributes", 2, '{"attributes":[{"key":"a"},{"key":"b"}]}', "number of attributes"),
        (
            "max_array_values",
            2,
            '{"attributes":[{"value":{"arrayValue":{"values":[{},{}]}}}]}',
            "length of an array",
        ),
        (
            "max_depth",
            2,
            '{"attributes":[{"value":{"arrayValue":{"values":[{}]}}}]}',
            "nesting depth of a value",
        ),
        (
            "max_depth",
            2,
            '{"attributes":[{"value":{"kvlistValue":{"values":[{}]}}}]}',
            "nesting depth of a value",
        ),
    ],
)
def test_a_request_at_its_limit_is_read_and_over_it_refused(
    limit: str, most: int, text: str, what: str
) -> None:
    body = body_of(text)
    decode_request_json(body, replace(DEFAULT_LIMITS, **{limit: most}))
    with pytest.raises(TooLarge) as caught:
        decode_request_json(body, replace(DEFAULT_LIMITS, **{limit: most - 1}))
    assert (caught.value.what, caught.value.size, caught.value.limit) == (what, most, most - 1)


# --- writing ----------------------------------------------------------------------------


def test_a_request_is_written_as_otlp_has_it() -> None:
    span = SpanData(
        trace_id=b"\xab\xcd",
        name="\u20ac",
        kind=2,
        start_time_unix_nano=(1 << 64) - 1,
        attributes={
            "i": 1 << 62,
            "f": -0.0,
            "n": math.nan,
            "b": b"\xfb\xff",
            "t": True,
            "l": ["", None],
            "d": {},
        },
        events=[Event()],
        status_code=2,
        flags=257,
    )
    groups = [ResourceSpans(Resource({"r": ""}), [ScopeSpans(Scope("s"), [span], "u")])]
    assert encode_request_json(groups).decode() == (
        '{"resourceSpans":[{"resource":{"attributes":[{"key":"r","value":{"stringValue":""}}]},'
        '"scopeSpans":[{"scope":{"name":"s"},"spans":[{"traceId":"abcd","flags":257,'
        '"name":"\u20ac","kind":2,"startTimeUnixNano":"18446744073709551615","attributes":['
        '{"key":"i","value":{"intValue":"4611686018427387904"}},'
        '{"key":"f","value":{"doubleValue":-0.0}},'
        '{"key":"n","value":{"doubleValue":"NaN"}},'
        '{"key":"b","value":{"bytesValue":"+/8="}},'
        '{"key":"t","value":{"boolValue":true}},'
        '{"key":"l","value":{"arrayValue":{"values":[{"stringValue":""},{}]}}},'
        '{"key":"d","value":{"kvlistValue":{"values":[]}}}],'
        '"events":[{}],"status":{"code":2}}],"schemaUrl":"u"}]}]}'
    )


def test_links_and_infinities_are_written_as_otlp_has_them() -> None:
    link = Link(b"\x01", b"\x02", "s", {"a": -math.inf, "b": math.inf}, 3, 4)
    spans = [SpanData(links=[link])]
    body = encode_request_json([ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])])
    assert json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"] == [
        {
            "traceId": "01",
            "spanId": "02",
            "traceState": "s",
            "attributes": [
                {"key": "a", "value": {"doubleValue": "-Infinity"}},
                {"key": "b", "value": {"doubleValue": "Infinity"}},
            ],
            "droppedAttributesCount": 3,
            "flags": 4,
        }
    ]


def test_nothing_is_the_empty_object() -> None:
    assert encode_request_json([]) == b"{}"
    assert encode_response_json() == b"{}"
    assert encode_status_json(0, "") == b"{}"


def test_lone_surrogates_become_question_marks() -> None:
    span = SpanData(name="\ud800", attributes={"\ud800": "\udfff!"})
    body = encode_request_json([ResourceSpans(scope_spans=[ScopeSpans(spans=[span])])])
    found = decode_request_json(body)[0].scope_spans[0].spans[0]
    assert found == SpanData(name="?", attributes={"?": "?!"})


@pytest.mark.parametrize(
    ("value", "error"),
    [(1 << 63, TooLarge), (-(1 << 63) - 1, TooLarge), ({1}, TypeError), (1j, TypeError)],
)
def test_what_cannot_be_written_is_refused(value: Any, error: type[Exception]) -> None:
    span = SpanData(attributes={"a": value})
    with pytest.raises(error):
        encode_request_json([ResourceSpans(scope_spans=[ScopeSpans(spans=[span])])])


def test_values_nested_over_the_ceiling_are_refused() -> None:
    value: Any = []
    value.append(value)
    with pytest.raises(TooLarge):
        encode_request_json([ResourceSpans(Resource({"a": value}))])


# --- answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"{}", (0, "")),
        (b'{"partialSuccess":null}', (0, "")),
        (b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"m"}}', (3, "m")),
        (b'{"partialSuccess":{"rejectedSpans":3}}', (3, "")),
    ],
)
def test_a_response_is_read(body: bytes, answer: tuple[int, str]) -> None:
    assert decode_response_json(body) == answer


def test_a_response_is_written_with_its_count_as_a_string() -> None:
    assert json.loads(encode_response_json(3, "m")) == {
        "partialSuccess": {"rejectedSpans": "3", "errorMessage": "m"}
    }


@pytest.mark.parametrize(
    ("seconds", "delay"), [(0.0, "0s"), (2.0, "2s"), (0.5, "0.500000000s"), (-1.0, "0s")]
)
def test_a_status_is_written_with_its_delay(seconds: float, delay: str) -> None:
    assert json.loads(encode_status_json(14, "busy", seconds)) == {
        "code": 14,
        "message": "busy",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}],
    }
