"""The normaliser on any span: it never raises, doing it twice is doing it once, nothing is lost."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.normalize.dialects import DIALECTS, NATIVE
from mcptrace_collector.normalize.sources import Place
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv, wire
from mcptrace_proto.model import Event, SpanData, SpanSource
from mcptrace_proto.schema import Enforcement, validate

ROWS = (NATIVE, *DIALECTS)
SOURCES = [source for row in ROWS for cell in row.cells.values() for source in cell]
NAMES = sorted(
    {source.key for source in SOURCES if source.place not in (Place.CONSTANT, Place.CONFIG)}
    | {name for row in ROWS for name in (*row.names, *row.also, row.kind_name)}
    | {value for key, value in vars(semconv).items() if key.isupper() and "." in value}
    | {semconv.TOKENS_UNKNOWN_PREFIX + name for name in ("input", "output", "total", "cached")}
    | {semconv.SOURCE_PREFIX + "model_name", "traceloop.x", "gen_ai.x"}
)
KINDS = sorted({kind for row in ROWS for kind in row.kinds} | {"LLM", "CHAIN", "invoke_agent"})
EVENTS = sorted({name for source in SOURCES for name in (source.key, source.detail) if name})
OURS_TO_REPLACE = {semconv.SOURCE_CONVENTION, semconv.SCHEMA_VIOLATIONS}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 200),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.sampled_from(
        [*KINDS, *(row.name for row in ROWS), "v2.3", "m", "7", "0.5", "true", "invalid", "Not ok"]
    ),
    st.sampled_from(['{"input": 5, "cache_read": -1}', '{"total": "x"}', '["stop"]', "[", "[1]"]),
    st.sampled_from(["2026-11-30T23:44:16Z", "9999-12-31T23:59:59-23:59", '"\\ud800"']),
)
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.sampled_from(["input", "output", "total", "cache_read"]), scalars),
)
times = st.one_of(st.integers(0, (1 << 64) - 1), st.integers(10**18, 10**18 + 10**9))
spans = st.builds(
    SpanData,
    trace_id=st.just(bytes(range(16))),
    span_id=st.sampled_from([b"", bytes(8), b"12345678"]),
    parent_span_id=st.sampled_from([b"", b"12345678"]),
    name=st.sampled_from(["", "chat m", "compute", "InferRequest", "llm_request"]),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    attributes=st.dictionaries(st.sampled_from(NAMES), values, max_size=12),
    events=st.lists(st.builds(Event, times, st.sampled_from(EVENTS)), max_size=4),
)
normalizers = st.builds(
    Normalizer,
    enforcement=st.sampled_from(Enforcement),
    vllm_model=st.sampled_from([None, "tiny"]),
    model_aliases=st.sampled_from([{}, {"m": "n", "n": "m", "7": "seven"}]),
)
resources = st.dictionaries(st.sampled_from(["service.name", semconv.MODEL_NAME]), scalars)


def record_of(span: SpanData, resource: dict[str, Any]) -> SpanRecord:
    raw = wire.encode_span(span)
    return SpanRecord(raw, wire.decode_span(raw), SpanSource(), resource)


@settings(max_examples=300, deadline=None)
@given(spans, resources, normalizers)
def test_any_span_is_taken_and_twice_is_once(
    span: SpanData, resource: dict[str, Any], normalizer: Normalizer
) -> None:
    record = record_of(span, resource)
    came = record.raw
    present = repr(record.data.attributes)
    first = normalizer.normalize(record)
    if record.inference is None:
        assert (record.raw, repr(record.data.attributes)) == (came, present)
        return
    # NaN is not equal to itself, so values are compared as written.
    assert repr(wire.decode_span(record.raw)) == repr(record.data)
    raw, view = record.raw, copy.deepcopy(record.inference)
    second = normalizer.normalize(record)
    assert (record.raw, record.inference) == (raw, view)
    assert set(second.violations) <= set(first.violations)


@settings(max_examples=300, deadline=None)
@given(spans, resources)
def test_no_attribute_is_lost_or_changed(span: SpanData, resource: dict[str, Any]) -> None:
    record = record_of(span, resource)
    came = {name: repr(value) for name, value in record.data.attributes.items()}
    Normalizer(vllm_model="tiny").normalize(record)
    left = {name: repr(value) for name, value in record.data.attributes.items()}
    assert came.keys() <= left.keys()
    for name in came.keys() - OURS_TO_REPLACE:
        assert left[name] == came[name]
    earlier, later = (each.get(semconv.SCHEMA_VIOLATIONS) for each in (came, left))
    assert earlier is None or later is not None


@settings(max_examples=200, deadline=None)
@given(spans, resources)
def test_what_is_said_to_conform_conforms(span: SpanData, resource: dict[str, Any]) -> None:
    record = record_of(span, resource)
    found = Normalizer().normalize(record)
    if record.inference is not None and not found.violations:
        assert validate(record.data, record.inference) == []


@settings(max_examples=150, deadline=None)
@given(st.lists(spans, max_size=5), resources)
def test_completing_any_trace_is_total_and_twice_is_once(
    trace: list[SpanData], resource: dict[str, Any]
) -> None:
    records = [record_of(span, resource) for span in trace]
    normalizer = Normalizer()
    for record in records:
        normalizer.normalize(record)
    normalizer.complete_trace(records)
    once = [record.raw for record in records]
    normalizer.complete_trace(records)
    assert [record.raw for record in records] == once
