"""Critical traces are kept, the others consistently, and the counts come out right."""

from __future__ import annotations

import random

import pytest

from mcptrace_proto.model import STATUS_ERROR, SpanData
from mcptrace_proto.sampling.decision import Decision, sampling_attributes
from mcptrace_proto.sampling.threshold import MAX, adjusted_count, threshold_from_probability
from mcptrace_proto.sampling.verdict import (
    KEY_CHARS_MAX,
    SamplingSettings,
    TraceSampler,
    budget_key,
)
from mcptrace_proto.schema import InferenceSpan

HIGH = b"\xff" * 16  # R is the largest there is: kept by every threshold
LOW = bytes(16)  # R is 0: kept by no threshold but 0
TENTH = threshold_from_probability(0.1)
HALF = 1 << 55


def view(latency_ms: float | None = 10.0, **fields) -> InferenceSpan:
    return InferenceSpan("tiny", operation="chat", inference_latency_ms=latency_ms, **fields)


def inference(latency_ms: float | None = 10.0, **span) -> list[tuple[SpanData, InferenceSpan]]:
    return [(SpanData(name="chat tiny", **span), view(latency_ms))]


def failed() -> list[tuple[SpanData, InferenceSpan]]:
    return inference(status_code=STATUS_ERROR)


def decide(spans, trace_id=LOW, trace_state="", forced=None, **settings) -> Decision:
    return TraceSampler(SamplingSettings(**settings)).decide(
        trace_id, trace_state, spans, 0.0, forced
    )


def test_an_ordinary_trace_is_kept_by_its_randomness_alone():
    count = adjusted_count(TENTH)
    kept = Decision(True, "probability", TENTH, count, "tiny|chat")
    assert decide(inference(), HIGH) == kept
    assert decide(inference(), TENTH.to_bytes(16, "big")) == kept
    dropped = Decision(False, "sampled_out", TENTH, count, "tiny|chat")
    assert decide(inference(), LOW) == dropped
    assert decide(inference(), (TENTH - 1).to_bytes(16, "big")) == dropped
    assert decide(inference(), LOW, "ot=rv:ffffffffffffff") == kept


@pytest.mark.parametrize(
    ("spans", "settings", "reason"),
    [
        (failed(), {}, "error"),
        ([*inference(), (SpanData(status_code=STATUS_ERROR), None)], {}, "error"),
        ([(SpanData(attributes={"error.type": "timeout"}), None), *failed()], {}, "timeout"),
        (inference(5000.0), {"timeout_ms": 5000.0}, "timeout"),
        (inference(attributes={"mcptrace.sampling.reason": "p99"}), {}, "p99"),
        (inference(attributes={"mcptrace.sampling.reason": "error"}), {}, "error"),
    ],
    ids=["error", "error of another span", "timeout wins", "limit", "stated p99", "stated error"],
)
def test_what_is_critical_is_kept_whole_whatever_its_randomness(spans, settings, reason):
    key = budget_key(spans)
    assert decide(spans, **settings) == Decision(True, reason, 0, 1.0, key)
    assert decide(spans, forced="forced", **settings) == Decision(True, reason, 0, 1.0, key)


@pytest.mark.parametrize("stated", ["probability", "parent", "forced", "whatever", 3, None])
def test_other_reasons_of_a_sampler_before_us_keep_nothing(stated):
    assert decide(inference(attributes={"mcptrace.sampling.reason": stated})).keep is False


def test_a_forced_trace_has_no_probability():
    assert decide(inference(), forced="parent") == Decision(True, "parent", None, 1.0, "tiny|chat")


def test_a_threshold_that_was_applied_before_us_is_never_lowered():
    higher = threshold_from_probability(0.01)
    assert decide(inference(), HIGH, "ot=th:fd70a").threshold == higher
    assert decide(inference(), HIGH, "ot=th:8").threshold == TENTH
    # What was thinned cannot be called whole, not even where all that arrives is kept.
    assert decide(failed(), LOW, "ot=th:8") == Decision(True, "error", HALF, 2.0, "tiny|chat")
    assert decide(failed(), LOW, "ot=th:0") == Decision(True, "error", 0, 1.0, "tiny|chat")


def test_a_thinned_trace_is_charged_as_those_that_it_stands_for():
    whole, thinned = TraceSampler(SamplingSettings()), TraceSampler(SamplingSettings())
    for number in range(3000):
        whole.decide(LOW, "", inference(), number / 100)
        thinned.decide(LOW, "ot=th:e666", inference(), number / 100)
    assert whole.rates() == {"tiny|chat": pytest.approx(0.1, rel=0.1)}
    assert thinned.rates() == {"tiny|chat": pytest.approx(0.01, rel=0.1)}


def test_one_trace_in_a_hundred_is_over_p99_and_ordinary_ones_are_not():
    sampler = TraceSampler(SamplingSettings(rate_min=1e-6, rate_max=1e-6))
    rng = random.Random(3)
    reasons = [
        sampler.decide(LOW, "", inference(rng.lognormvariate(4, 0.5)), number / 100).reason
        for number in range(10_000)
    ]
    assert set(reasons) == {"sampled_out", "p99"}
    assert reasons.index("p99") >= 500
    assert 60 < reasons.count("p99") < 140


def test_every_latency_of_a_trace_is_learnt_from():
    sampler = TraceSampler(SamplingSettings(latency_warmup=4))
    spans = [(SpanData(), view(latency)) for latency in (1.0, 2.0, 3.0, 4.0, None)]
    assert sampler.decide(LOW, "", spans, 0.0).reason == "sampled_out"
    both = [(SpanData(), view(100.0)), (SpanData(), view(90.0))]
    assert sampler.decide(LOW, "", both, 2.0).reason == "p99"
    assert sampler.decide(LOW, "", [(SpanData(), view(89.0))], 4.0).reason == "sampled_out"


def test_streams_have_latencies_of_their_own():
    sampler = TraceSampler(SamplingSettings(latency_warmup=4))
    for _ in range(10):
        sampler.decide(LOW, "", [(SpanData(), view(1000.0, streaming=True))], 0.0)
        sampler.decide(LOW, "", inference(10.0), 0.0)
    assert sampler.decide(LOW, "", inference(500.0), 1.0).reason == "p99"


def test_two_samplers_with_the_same_threshold_agree_and_a_lower_one_keeps_a_superset():
    rng = random.Random(5)
    fixed = {"rate_min": 0.05, "rate_max": 0.05}
    one, other = (TraceSampler(SamplingSettings(**fixed)) for _ in range(2))
    wider = TraceSampler(SamplingSettings(rate_min=0.2, rate_max=0.2))
    for number in range(3000):
        trace_id = rng.randbytes(16)
        first = one.decide(trace_id, "", inference(), number / 10)
        assert other.decide(trace_id, "", inference(99.0), number / 3) == first
        assert first.keep <= wider.decide(trace_id, "", inference(), number / 10).keep


def test_the_adjusted_counts_add_up_to_the_traffic():
    """Errors exactly, and the whole within the noise of the sample, under a changing load."""
    rng = random.Random(11)
    sampler = TraceSampler(SamplingSettings(target_per_second=20.0))
    now, sent, errors, estimate, error_estimate, variance = 0.0, 0, 0, 0.0, 0.0, 0.0
    while now < 60.0:
        now += rng.expovariate(2000.0 if 20.0 < now < 30.0 else 200.0)
        is_error = rng.random() < 0.01
        spans = failed() if is_error else inference(rng.lognormvariate(3, 1))
        found = sampler.decide(rng.randbytes(16), "", spans, now)
        sent, errors = sent + 1, errors + is_error
        if found.keep:
            estimate += found.adjusted_count
            error_estimate += found.adjusted_count if found.reason == "error" else 0
            variance += found.adjusted_count * (found.adjusted_count - 1)  # Horvitz-Thompson
    assert error_estimate == errors
    assert abs(estimate - sent) < 4 * variance**0.5
    assert variance**0.5 < 0.05 * sent


def test_thinned_traffic_adds_up_too():
    rng = random.Random(13)
    sampler = TraceSampler(SamplingSettings(rate_min=0.1, rate_max=0.1))
    sent, estimate, variance = 40_000, 0.0, 0.0
    for number in range(sent):
        trace_id = rng.randbytes(16)
        if int.from_bytes(trace_id[-7:], "big") < HALF:
            continue  # dropped by a sampler before us
        spans = failed() if rng.random() < 0.1 else inference()
        found = sampler.decide(trace_id, "ot=th:8", spans, number / 100)
        if found.keep:
            estimate += found.adjusted_count
            variance += found.adjusted_count * (found.adjusted_count - 1)
    assert abs(estimate - sent) < 4 * variance**0.5


@pytest.mark.parametrize(
    ("spans", "key"),
    [
        ([], "|"),
        ([(SpanData(name="GET /", parent_span_id=b""), None), *inference()], "tiny|chat"),
        ([(SpanData(), InferenceSpan())], "|"),
        (
            [
                (SpanData(name="child", parent_span_id=b"12345678"), None),
                (SpanData(name="root", parent_span_id=bytes(8)), None),
            ],
            "|root",
        ),
        ([(SpanData(name="orphan", parent_span_id=b"12345678"), None)], "|orphan"),
        ([(SpanData(name="n" * 999), None)], "|" + "n" * (KEY_CHARS_MAX - 1)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_trace_is_charged_to_its_first_inference_or_its_root(spans, key):
    assert budget_key(spans) == key


def test_rates_are_shown_by_budget():
    sampler = TraceSampler(SamplingSettings())
    sampler.decide(LOW, "", inference(), 0.0)
    assert sampler.rates() == {"tiny|chat": 0.1}


@pytest.mark.parametrize(
    ("decision", "attributes"),
    [
        (
            Decision(True, "probability", HALF, 2.0, "k"),
            {"mcptrace.sampling.reason": "probability", "mcptrace.sampling.adjusted_count": 2.0},
        ),
        (
            Decision(True, "error", 0, 1.0, "k"),
            {"mcptrace.sampling.reason": "error", "mcptrace.sampling.adjusted_count": 1.0},
        ),
        (Decision(True, "forced", None, 1.0, "k"), {"mcptrace.sampling.reason": "forced"}),
    ],
    ids=["probability", "error", "forced"],
)
def test_a_kept_span_says_why_and_for_how_many_where_that_is_known(decision, attributes):
    assert sampling_attributes(decision) == attributes


def test_the_largest_threshold_can_be_weighed():
    found = decide(inference(), HIGH, "ot=th:ffffffffffffff")
    assert found == Decision(True, "probability", MAX - 1, float(MAX), "tiny|chat")
