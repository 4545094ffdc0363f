"""What holds for every trace: critical ones are kept, and no threshold of others is undercut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_proto.model import STATUS_ERROR, STATUS_OK, Event, SpanData
from mcptrace_proto.sampling.threshold import adjusted_count, ot_threshold, randomness
from mcptrace_proto.sampling.verdict import SamplingSettings, TraceSampler
from mcptrace_proto.schema import InferenceSpan

spans = st.builds(
    SpanData,
    name=st.sampled_from(["chat", "POST /"]),
    status_code=st.sampled_from([0, STATUS_OK, STATUS_ERROR]),
    parent_span_id=st.sampled_from([b"", b"12345678"]),
    events=st.lists(
        st.sampled_from([Event(1, "exception", {"exception.type": "TimeoutError"}), Event(2, "x")]),
        max_size=1,
    ),
)
views = st.none() | st.builds(
    InferenceSpan,
    st.sampled_from(["a", "b"]),
    inference_latency_ms=st.none() | st.floats(0.0, 1e6),
    finish_reason=st.sampled_from([None, "stop", "timeout", "error"]),
)
traces = st.tuples(
    st.binary(min_size=16, max_size=16),
    st.sampled_from(
        ["", "ot=th:8", "ot=th:ffbe77", "ot=th:0", "ot=th:bad", "ot=rv:00000000000001"]
    ),
    st.lists(st.tuples(spans, views), max_size=3),
    st.none() | st.just("forced"),
    st.floats(0.0, 10.0),
)


def failed(trace: list[tuple[SpanData, InferenceSpan | None]]) -> bool:
    return any(
        span.status_code == STATUS_ERROR
        or any(event.name == "exception" for event in span.events)
        or (view is not None and view.finish_reason in ("timeout", "error"))
        for span, view in trace
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(traces, max_size=12))
def test_verdicts(sequence):
    sampler = TraceSampler(SamplingSettings(latency_warmup=3))
    now = 0.0
    for trace_id, state, trace, forced, step in sequence:
        now += step
        found = sampler.decide(trace_id, state, trace, now, forced)
        upstream = ot_threshold(state)
        if failed(trace):
            assert found.keep
            assert found.reason in ("error", "timeout")
        if found.reason == "forced":
            assert (found.keep, found.threshold, found.adjusted_count) == (True, None, 1.0)
            continue
        assert found.threshold is not None
        assert found.threshold >= (upstream or 0)
        assert found.adjusted_count == adjusted_count(found.threshold)
        if found.reason in ("probability", "sampled_out"):
            assert found.keep is (randomness(trace_id, state) >= found.threshold)
            assert found.keep is (found.reason == "probability")
        else:
            assert found.threshold == (upstream or 0)
