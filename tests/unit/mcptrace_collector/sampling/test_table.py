"""The trace table: one deadline a trace, a byte bound that holds, nothing handed out twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.pipeline import SpanRecord
from mcptrace_collector.sampling import TraceTable
from mcptrace_collector.sampling.table import estimated_bytes
from mcptrace_proto.model import SpanData, SpanSource

REMOTE_PARENT = 0x300


def record(
    trace: int, span: int, *, parent: int = 0, flags: int = 0, raw: bytes = b""
) -> SpanRecord:
    data = SpanData(
        trace_id=trace.to_bytes(16, "big"),
        span_id=span.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        flags=flags,
    )
    return SpanRecord(raw or b"%d/%d" % (trace, span), data, SpanSource(), {})


def table(bytes_max: int = 1 << 30) -> TraceTable:
    return TraceTable(decision_wait_seconds=10.0, settle_seconds=1.0, bytes_max=bytes_max)


def test_a_trace_without_a_root_waits_for_the_decision_wait() -> None:
    held = table()
    held.add(record(1, 2, parent=1), 100.0)
    held.add(record(1, 3, parent=1), 105.0)
    assert held.due(109.9) == []
    (trace,) = held.due(110.0)
    assert [r.data.span_id[-1] for r in trace.records] == [2, 3]
    assert (len(held), held.bytes_held, held.spans_held) == (0, 0, 0)


def test_a_local_root_shortens_the_wait_to_the_settle_time() -> None:
    held = table()
    held.add(record(1, 2, parent=1), 100.0)
    held.add(record(1, 1), 101.0)
    assert held.due(101.9) == []
    assert len(held.due(102.0)) == 1
    assert held.due(1000.0) == [], "the first deadline is not handed out again"


def test_a_remote_parent_makes_a_local_root() -> None:
    held = table()
    held.add(record(1, 2, parent=9, flags=REMOTE_PARENT), 100.0)
    assert len(held.due(101.0)) == 1


def test_a_root_never_lengthens_the_wait() -> None:
    held = table()
    held.add(record(1, 2, parent=1), 100.0)
    held.add(record(1, 1), 109.5)
    assert len(held.due(110.0)) == 1


def test_the_same_span_again_is_refused_and_another_with_its_id_is_held() -> None:
    held = table()
    assert held.add(record(1, 1), 0.0)
    assert not held.add(record(1, 1), 0.1)
    assert held.add(record(1, 1, raw=b"different"), 0.2)
    assert held.spans_held == 2


def test_over_the_byte_bound_the_nearest_deadlines_go_first() -> None:
    cost = estimated_bytes(record(1, 1))
    held = table(bytes_max=2 * cost)
    held.add(record(1, 2, parent=1), 0.0)
    held.add(record(2, 1), 0.5)
    held.add(record(3, 2, parent=1), 1.0)
    assert [trace.trace_id[-1] for trace in held.overflow()] == [2]
    assert held.bytes_held <= 2 * cost
    assert held.overflow() == []


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 6), st.booleans(), st.floats(0, 3)), max_size=60
    )
)
def test_every_span_is_handed_out_exactly_once(
    arrivals: list[tuple[int, int, bool, float]],
) -> None:
    held = table(bytes_max=8 * estimated_bytes(record(1, 1)))
    now, taken, out = 0.0, 0, 0
    for trace, span, root, wait in arrivals:
        now += wait
        taken += held.add(record(trace, span, parent=0 if root else 9), now)
        for handed in [*held.due(now), *held.overflow()]:
            assert not held.holds(handed.trace_id)
            out += len(handed.records)
        assert held.spans_held == taken - out
        assert (held.bytes_held == 0) == (len(held) == 0)
    out += sum(len(trace.records) for trace in held.drain())
    assert out == taken


def test_many_short_attributes_weigh_more_than_their_bytes() -> None:
    held = record(1, 1)
    before = estimated_bytes(held)
    held.data.attributes.update({f"k{n}": n for n in range(128)})
    assert estimated_bytes(held) - before == 128 * 64
