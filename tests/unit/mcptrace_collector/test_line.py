"""The main road: what is acknowledged is held, and every span finds one verdict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcptrace_collector.audit import AuditLog, verify_log
from mcptrace_collector.durable import JournalRecord, Store
from mcptrace_collector.errors import BadRequest, Retryable
from mcptrace_collector.line import WEIGHT_MAX, Line
from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.sampling import TraceTable, Verdicts
from mcptrace_collector.settle import Settler
from mcptrace_collector.telemetry import Telemetry
from mcptrace_proto import wire
from mcptrace_proto.model import STATUS_ERROR, ResourceSpans, ScopeSpans, SpanData
from mcptrace_proto.sampling.verdict import SamplingSettings, TraceSampler
from mcptrace_proto.schema import Enforcement

LOW_R, HIGH_R = b"\x01" * 9 + bytes(7), b"\x01" * 9 + b"\xff" * 7


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def unix_nano(self) -> int:
        return int(self.now * 1e9)


class Rig:
    """A line with real rooms around it: a store in memory, an audit log on disk."""

    def __init__(
        self,
        directory: Path,
        *,
        sampler: TraceSampler | None = None,
        enforcement: Enforcement = Enforcement.WARN,
        table_bytes: int = 1 << 30,
        backlog_bytes: int = 1 << 30,
    ) -> None:
        self.clock = Clock()
        self.store = Store(None, journal_bytes_max=1 << 30)
        self.audit_log = AuditLog(directory)
        self.audit_log.open()
        self.telemetry = Telemetry()
        self.room = True
        self.line = Line(
            store=self.store,
            normalizer=Normalizer(enforcement=enforcement),
            sampler=sampler or TraceSampler(SamplingSettings(rate_min=1.0, rate_max=1.0)),
            keep_all=sampler is None,
            table=TraceTable(decision_wait_seconds=10, settle_seconds=1, bytes_max=table_bytes),
            verdicts=Verdicts(100),
            settler=Settler(["peer"], 1 << 20, self.audit_log.chain()),
            audit_log=self.audit_log,
            clock=self.clock,
            telemetry=self.telemetry,
            backlog_bytes_max=backlog_bytes,
            queue_has_room=lambda: self.room,
            settled=lambda: None,
        )

    async def send(self, *spans: SpanData) -> None:
        request = [ResourceSpans(scope_spans=[ScopeSpans(spans=list(spans))])]
        await self.line.consume(wire.encode_request(request), transport="http", json=False)

    async def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        await self.line.settle_due()

    async def queued(self) -> list[SpanData]:
        items = await self.store.take("peer", 0, 1 << 20, 1 << 30)
        return [
            wire.decode_span(raw)
            for item in items
            for group in wire.split_request(item.body)
            for raw in group.spans
        ]


def span(trace_id: bytes, number: int, **fields: Any) -> SpanData:
    return SpanData(trace_id=trace_id, span_id=number.to_bytes(8, "big"), name="op", **fields)


def run(tmp_path: Path, test: Callable[[Rig], Coroutine[Any, Any, None]], **settings: Any) -> Rig:
    rig = Rig(tmp_path / "audit", **settings)

    async def main() -> None:
        rig.store.start()
        try:
            await test(rig)
            assert rig.store.balance.exact
        finally:
            await rig.store.close()
            rig.audit_log.close()

    asyncio.run(main())
    return rig


def ten_percent() -> TraceSampler:
    return TraceSampler(SamplingSettings(rate_min=0.1, rate_max=0.1))


def test_a_span_is_held_until_its_trace_is_due_and_then_queued(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1))
        assert rig.store.balance.held == 1
        await rig.pass_time(0.9)
        assert await rig.queued() == []
        await rig.pass_time(0.2)
        (forwarded,) = await rig.queued()
        assert forwarded.attributes["mcptrace.sampling.reason"] == "probability"
        assert rig.store.balance.held == 0

    rig = run(tmp_path, test)
    report = verify_log(tmp_path / "audit")
    assert (report.status.exit_code, report.records, rig.audit_log.size) == (0, 1, 1)


def test_a_critical_span_keeps_its_whole_trace(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        failed = span(LOW_R, 2, parent_span_id=bytes(7) + b"\x01", status_code=STATUS_ERROR)
        await rig.send(span(LOW_R, 1), failed)
        await rig.pass_time(2)
        reasons = [s.attributes["mcptrace.sampling.reason"] for s in await rig.queued()]
        assert reasons == ["error", "error"]
        assert rig.store.balance.kept == {"error": 2}

    run(tmp_path, test, sampler=ten_percent())


def test_ordinary_traces_are_kept_by_their_randomness(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1), span(HIGH_R, 2))
        await rig.pass_time(2)
        (kept,) = await rig.queued()
        assert (kept.trace_id, kept.trace_state) == (HIGH_R, "ot=th:e666")
        assert rig.store.balance.dropped == {"sampled_out": 1}

    run(tmp_path, test, sampler=ten_percent())


def test_a_late_span_follows_its_trace_unless_it_failed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1), span(HIGH_R, 2))
        await rig.pass_time(2)
        late = [
            span(LOW_R, 3),
            span(HIGH_R, 4),
            span(LOW_R, 5, status_code=STATUS_ERROR),
        ]
        await rig.send(*late)
        await rig.pass_time(0.1)
        kept = {s.span_id[-1]: s.attributes["mcptrace.sampling.reason"] for s in await rig.queued()}
        assert kept == {2: "probability", 4: "probability", 5: "error"}
        assert rig.store.balance.dropped == {"sampled_out": 2}

    run(tmp_path, test, sampler=ten_percent())


def test_a_late_span_that_an_sdk_kept_as_critical_is_kept(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1))
        await rig.pass_time(2)
        stated = {"mcptrace.sampling.reason": "p99"}
        await rig.send(span(LOW_R, 2, attributes=stated, trace_state="ot=th:8"))
        await rig.pass_time(0.1)
        (kept,) = await rig.queued()
        assert kept.attributes["mcptrace.sampling.reason"] == "p99"
        assert (kept.trace_state, kept.attributes["mcptrace.sampling.adjusted_count"]) == (
            "ot=th:8", 2.0
        )  # fmt: skip

    run(tmp_path, test, sampler=ten_percent())


def test_the_same_span_twice_is_forwarded_once_and_counted(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1))
        await rig.send(span(LOW_R, 1))
        await rig.pass_time(2)
        assert len(await rig.queued()) == 1
        assert rig.store.balance.dropped == {"duplicate": 1}

    run(tmp_path, test)


def test_with_sampling_off_everything_is_kept_and_still_says_why(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        against_its_own_threshold = span(LOW_R, 2, trace_state="ot=th:e666")
        await rig.send(span(HIGH_R, 1, status_code=STATUS_ERROR), against_its_own_threshold)
        await rig.pass_time(2)
        assert rig.store.balance.kept == {"error": 1, "forced": 1}

    run(tmp_path, test)


def test_metrics_count_what_a_span_stands_for(tmp_path: Path) -> None:
    names = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}

    async def test(rig: Rig) -> None:
        sampled = span(HIGH_R, 1, attributes=dict(names), trace_state="ot=th:c")
        absurd = span(HIGH_R, 2, attributes=dict(names), trace_state="ot=th:ffffffffffffff")
        await rig.send(sampled, span(LOW_R, 3, attributes=dict(names)), absurd)
        await rig.pass_time(2)

    rig = run(tmp_path, test)
    (counted,) = rig.telemetry.snapshot()["inference_requests_total"]  # type: ignore[misc]
    assert counted["value"] == 4 + 1 + WEIGHT_MAX


def test_a_span_sent_again_after_its_verdict_is_known(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1))
        await rig.pass_time(2)
        await rig.send(span(LOW_R, 1), span(LOW_R, 2))
        await rig.pass_time(0.1)
        await rig.send(span(LOW_R, 2))
        await rig.pass_time(0.1)
        assert [s.span_id[-1] for s in await rig.queued()] == [1, 2]
        assert rig.store.balance.dropped == {"duplicate": 2}

    run(tmp_path, test)


def test_a_client_that_hangs_up_loses_nothing_that_the_journal_took(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        sending = asyncio.create_task(rig.send(span(LOW_R, 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await rig.line.drain()
        assert len(await rig.queued()) == 1
        assert rig.store.balance.held == 0

    run(tmp_path, test)


def test_strict_drops_an_inference_that_violates_the_schema_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        nameless = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
        await rig.send(span(LOW_R, 1), span(LOW_R, 2, attributes=nameless))
        await rig.pass_time(2)
        assert [s.span_id[-1] for s in await rig.queued()] == [1]
        assert rig.store.balance.dropped == {"schema": 1}

    run(tmp_path, test, enforcement=Enforcement.STRICT)
    assert [record.getMessage() for record in caplog.records] == [
        "a span violates the schema and is dropped: model_name:missing"
    ]


def test_a_full_table_decides_early_and_loses_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for number in range(1, 21):
            await rig.send(span(bytes(15) + bytes([number]), number))
        await rig.line.settle_due()
        early = len(await rig.queued())
        assert 0 < early < 20
        await rig.pass_time(2)
        assert len(await rig.queued()) == 20

    rig = run(tmp_path, test, table_bytes=20_000)
    assert rig.telemetry.snapshot()["early_decisions_total"] != 0


def test_a_replay_takes_up_only_what_had_no_verdict(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        request = [ResourceSpans(scope_spans=[ScopeSpans(spans=[span(LOW_R, 1), span(LOW_R, 2)])])]
        body = wire.encode_request(request)
        position = await rig.store.journal(body, 2, "http")
        rig.line.replay(JournalRecord(position, body, 2, 0b01))
        await rig.pass_time(2)
        assert [s.span_id[-1] for s in await rig.queued()] == [2]
        assert rig.store.balance.held == 1

    run(tmp_path, test)


def test_bad_bytes_are_refused_and_count_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(BadRequest, match="not OTLP protobuf"):
            await rig.line.consume(b"\xff", transport="http", json=False)
        assert rig.store.balance.received == {}

    run(tmp_path, test)


def test_an_unwritten_backlog_makes_clients_wait(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.room = False
        await rig.send(span(LOW_R, 1))
        rig.clock.now += 2
        settling = asyncio.create_task(rig.line.settle_due())
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(Retryable, match="wait to be written"):
            await rig.send(span(LOW_R, 2))
        rig.room = True
        await settling
        await rig.send(span(LOW_R, 3))

    run(tmp_path, test, backlog_bytes=100)


def test_while_settling_stalls_the_table_keeps_its_bound_too(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.room = False
        await rig.send(span(LOW_R, 1))
        rig.clock.now += 2
        settling = asyncio.create_task(rig.line.settle_due())
        for _ in range(5):
            await asyncio.sleep(0)
        for number in range(1, 30):
            with suppress(Retryable):
                await rig.send(span(bytes(15) + bytes([number]), number))
        assert 1 < rig.store.balance.held < 29
        rig.room = True
        await settling
        await rig.send(span(LOW_R, 3))

    run(tmp_path, test, table_bytes=20_000, backlog_bytes=20_000)


def test_what_was_sampled_out_is_recorded_in_the_audit_log_once(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.send(span(LOW_R, 1))
        await rig.pass_time(2)
        await rig.line.note_sampled_out()
        await rig.line.note_sampled_out()

    run(tmp_path, test, sampler=ten_percent())
    (segment,) = (tmp_path / "audit").glob("segment-*.jsonl")
    (record,) = map(json.loads, segment.read_text().splitlines())
    assert record["counts"] == [{"key": "|op", "reason": "sampled_out", "spans": 1}]
