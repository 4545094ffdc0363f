"""What holds for every inference: it reads back as written, and no input breaks the reading."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_proto.model import SpanData
from mcptrace_proto.schema import (
    COUNTS,
    VIOLATION_CODES,
    InferenceSpan,
    TokenUsage,
    inference_attributes,
    read_inference,
    validate,
)

EXAMPLES = settings(max_examples=150, deadline=None)

text = st.none() | st.text(max_size=20)
number = st.none() | st.floats() | st.integers(-5, 1 << 70)
count = st.none() | st.integers(-2, (1 << 63) + 2)
reasons = st.dictionaries(st.sampled_from(COUNTS), st.sampled_from(["aborted", "own_reason"]))
usages = st.builds(TokenUsage, count, count, count, count, count, st.booleans(), reasons)
views = st.builds(
    InferenceSpan, text, text, text, text, text, text, number, number, number,
    st.none() | st.booleans(), usages,
)  # fmt: skip

NAMES = sorted(
    inference_attributes(
        InferenceSpan(
            "m", "1", "o", "p", "r", "f", 1.0, 1.0, 1.0, True, TokenUsage(1, 1, 2, 1, 1, True)
        ),
        {},
    )
) + [f"mcptrace.token_usage.unknown.{name}" for name in COUNTS]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
anything = st.dictionaries(st.sampled_from(NAMES), values, max_size=12)


def usable(value: float | None) -> float | None:
    """What can be written of a duration."""
    if value is None or not 0 <= value < math.inf:
        return None
    return float(value)


@EXAMPLES
@given(views)
def test_an_inference_reads_back_as_it_was_written(view):
    read = read_inference(inference_attributes(view, {}))
    assert read == InferenceSpan(
        view.model_name,
        view.model_version,
        view.operation,
        view.provider,
        view.request_id,
        view.finish_reason,
        usable(view.inference_latency_ms),
        usable(view.ttft_ms),
        usable(view.queue_ms),
        view.streaming,
        view.token_usage.completed(),
    )


@EXAMPLES
@given(usages)
def test_completing_twice_changes_nothing_and_no_count_has_two_states(usage):
    once = usage.completed()
    assert once.completed() == once
    assert [name for name in once.unknown if once.count(name) is not None] == []
    assert [n for n in ("input", "output", "total") if once.count(n) is None] == [
        n for n in ("input", "output", "total") if n in once.unknown
    ]


@EXAMPLES
@given(anything, st.binary(max_size=9))
def test_anything_at_all_can_be_read_and_judged(attributes, span_id):
    view = read_inference(attributes)
    found = validate(SpanData(span_id=span_id, attributes=attributes), view)
    assert set(found) <= VIOLATION_CODES
    assert len(found) == len(set(found))


@EXAMPLES
@given(anything, views)
def test_adding_never_touches_what_is_there_and_adding_twice_adds_nothing(attributes, view):
    added = inference_attributes(view, attributes)
    assert added.keys().isdisjoint(attributes)
    assert inference_attributes(view, {**attributes, **added}) == {}


@EXAMPLES
@given(views)
def test_what_we_write_is_invalid_only_where_the_view_was(view):
    added = inference_attributes(view, {})
    found = validate(SpanData(span_id=b"12345678", attributes=added), read_inference(added))
    wrong_counts = {
        f"token_usage.{name}:invalid"
        for name in COUNTS
        if view.token_usage.completed().unknown.get(name) == "invalid"
    }
    expected = {"model_name:missing", "model_name:empty", "inference_latency_ms:missing"}
    expected |= {
        "token_usage.total:conflict",
        "token_usage.cached:exceeds_input",
        "token_usage.reasoning:exceeds_output",
    }
    assert wrong_counts <= set(found) <= wrong_counts | expected
