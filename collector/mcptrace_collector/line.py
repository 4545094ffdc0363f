"""The main road: from a request at the door to a verdict that is true on disk.

    consume ─▶ admit ─▶ journal ─▶ (answer)
                           └─▶ inbox ─▶ normalize ─▶ trace table ┐
                                                                 ▼
    senders ◀─ wake ◀─ audit files ◀─ one commit ◀─ settle ◀─ verdict ◀─ due

One task (``run``) settles; ``consume`` runs for many requests at once on the same loop.

Always true:
  * consume returns only after the journal has the request, and waits for nothing else;
  * what the journal has is in the inbox, also when the client has gone meanwhile;
  * a settlement, once built, is committed exactly once, however often it has to be tried;
  * nothing is forwarded before its audit record is committed;
  * when settling stalls, consume says "later" before memory passes its bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from mcptrace_collector.audit import AuditLog
from mcptrace_collector.clock import Clock, Seldom
from mcptrace_collector.durable import JournalRecord, Store
from mcptrace_collector.errors import Retryable
from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.pipeline import (
    Admitted,
    DecidedTrace,
    Origin,
    Settlement,
    SpanRecord,
)
from mcptrace_collector.receivers import admit, admit_json
from mcptrace_collector.sampling import OpenTrace, TraceTable, Verdicts
from mcptrace_collector.sampling.table import estimated_bytes
from mcptrace_collector.settle import Settler
from mcptrace_collector.telemetry import Telemetry
from mcptrace_proto.model import STATUS_ERROR
from mcptrace_proto.sampling.decision import FORCED, Decision
from mcptrace_proto.sampling.threshold import adjusted_count, ot_threshold
from mcptrace_proto.sampling.verdict import TraceSampler

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
SAMPLED_OUT_INTERVAL_SECONDS = 60.0
# What one commit settles at most: no commit holds up the journal for long, and the room it
# needs on the disk stays far below limits.disk_reserve_bytes.
SETTLEMENT_SPANS_MAX = 1000
SETTLEMENT_BYTES_MAX = 4 * 1024 * 1024
SPANS_PER_TURN = 50  # spans worked on before other tasks of the loop get their turn
WEIGHT_MAX = 1e6  # inferences that one span may stand for in the metrics, whatever it claims
DUPLICATE = "duplicate"
SCHEMA = "schema"
PART_SPANS_MAX, PART_BYTES_MAX = 1000, 1024 * 1024
STALLED_RETRY_SECONDS = 1.0


class Line:
    """Owns the trace table and the verdicts; the store and the audit log are handed in."""

    def __init__(
        self,
        *,
        store: Store,
        normalizer: Normalizer,
        sampler: TraceSampler,
        keep_all: bool,
        table: TraceTable,
        verdicts: Verdicts,
        settler: Settler,
        audit_log: AuditLog | None,
        clock: Clock,
        telemetry: Telemetry,
        backlog_bytes_max: int,
        queue_has_room: Callable[[], bool],
        settled: Callable[[], None],
    ) -> None:
        """``keep_all``: the sampler only finds the reasons.  ``settled`` follows each commit."""
        self._store = store
        self._normalizer = normalizer
        self._sampler = sampler
        self._keep_all = keep_all
        self._table = table
        self._verdicts = verdicts
        self._settler = settler
        self._audit_log = audit_log
        self._clock = clock
        self._telemetry = telemetry
        self._backlog_bytes_max = backlog_bytes_max
        self._queue_has_room = queue_has_room
        self._settled = settled
        self._inbox: deque[tuple[SpanRecord, float, int]] = deque()  # arrival, estimated bytes
        self._decided: deque[DecidedTrace] = deque()
        self._waiting_bytes = 0  # of both, estimated
        self._taking: set[asyncio.Task[None]] = set()
        self._noted_unix_nano = clock.unix_nano()
        self._noted_at = clock.monotonic()
        self._finishing = False
        self._refusals = Seldom(clock)

    # -- in: called by the receivers -------------------------------------------------------

    @property
    def backlogged(self) -> bool:
        """Whether so much waits to be settled that nothing more is taken."""
        # While settling stalls nothing leaves the table either: what it has too much is backlog.
        return self._waiting_bytes + self._table.bytes_over > self._backlog_bytes_max

    async def consume(self, body: bytes, *, transport: str, json: bool) -> Admitted:
        """Admit one request; see pipeline.Intake for what is raised."""
        if self.backlogged:
            raise Retryable("verdicts wait to be written", STALLED_RETRY_SECONDS)
        admitted = admit_json(body) if json else admit(body)
        if admitted.rejected:
            self._telemetry.count("rejected_spans_total", admitted.rejected, transport=transport)
        if admitted.records:
            # A client that hangs up cancels us, but not what the journal has begun to take.
            taking = asyncio.create_task(self._take(admitted, transport))
            self._taking.add(taking)
            taking.add_done_callback(self._taken)
            await asyncio.shield(taking)
        return admitted

    def replay(self, row: JournalRecord) -> None:
        """Take up a journal row of an earlier run, but for the spans that have their verdict."""
        records = admit(row.body).records
        decided = row.decided
        self._enter([r for r in records if not decided >> r.origin.ordinal & 1], row.position)

    async def _take(self, admitted: Admitted, transport: str) -> None:
        spans = len(admitted.records)
        position = await self._store.journal(admitted.body, spans, transport)
        self._enter(admitted.records, position)

    def _taken(self, taking: asyncio.Task[None]) -> None:
        self._taking.discard(taking)
        if not taking.cancelled():
            taking.exception()  # consume has raised it, or there is nobody to tell any more

    def _enter(self, records: Iterable[SpanRecord], position: int) -> None:
        now = self._clock.monotonic()
        for record in records:
            record.origin = Origin(position, record.origin.ordinal)
            cost = estimated_bytes(record)
            self._inbox.append((record, now, cost))
            self._waiting_bytes += cost

    # -- through: one task -----------------------------------------------------------------

    async def _place_inbox(self) -> None:
        """Normalise what came in and hold it by trace, a turn of the loop at a time."""
        while self._inbox:
            for _ in range(min(len(self._inbox), SPANS_PER_TURN)):
                record, arrived, cost = self._inbox.popleft()
                self._waiting_bytes -= cost
                self._place(record, arrived)
            await asyncio.sleep(0)

    def _place(self, record: SpanRecord, now: float) -> None:
        """Normalise one span and put it where its verdict will be found."""
        found = self._normalizer.normalize(record)
        for violation in found.violations:
            self._telemetry.count("schema_violations_total", violation=violation)
        if record.inference is not None:
            upstream = ot_threshold(record.data.trace_state)
            self._telemetry.inference(
                record.inference,
                error=record.data.status_code == STATUS_ERROR,
                weight=min(adjusted_count(upstream or 0), WEIGHT_MAX),
            )
        trace_id = record.data.trace_id
        for change in found.changes:
            self._telemetry.count("normalized_changes_total", change=change)
        if found.drop:
            self._say_refused(found.violations)
            self._decide([record], Decision(False, SCHEMA, None, 1.0, ""))
        elif not self._table.holds(trace_id) and (known := self._verdicts.recall(trace_id)):
            if known.has(record.data.span_id):
                self._drop_duplicate(record)
            else:
                self._verdicts.add_span(trace_id, record.data.span_id)
                self._decide([record], self._late(record, known.decision))
        elif not self._table.add(record, now):
            self._drop_duplicate(record)

    def _say_refused(self, violations: Sequence[str]) -> None:
        """One line a minute; the metrics have the counts."""
        if self._refusals.due():
            log.warning("a span violates the schema and is dropped: %s", ", ".join(violations))

    def _drop_duplicate(self, record: SpanRecord) -> None:
        """A client that did not get its answer has sent the span again."""
        self._telemetry.count("duplicate_spans_total")
        self._decide([record], Decision(False, DUPLICATE, None, 1.0, ""))

    def _late(self, record: SpanRecord, known: Decision) -> Decision:
        """A late span follows its trace, but a critical one is kept even when its trace was not."""
        self._telemetry.count("late_spans_total")
        view = (record.data, record.inference)
        reason = self._sampler.critical([view], self._clock.monotonic())
        if known.keep or reason is None:
            return known
        return Decision(True, reason, 0, 1.0, known.key)

    async def run(self) -> None:
        """Settle what is due until ``finish``, and say from time to time what was not kept."""
        while not self._finishing:
            await self.settle_due()
            if self._clock.monotonic() - self._noted_at > SAMPLED_OUT_INTERVAL_SECONDS:
                await self.note_sampled_out()
            await asyncio.sleep(TICK_SECONDS)

    def finish(self) -> None:
        """Let ``run`` return after what it is settling now; a settlement is never cut short."""
        self._finishing = True

    async def settle_due(self) -> None:
        """Place what came in; decide and settle everything that is due now."""
        await self._place_inbox()
        await self._judge(self._table.due(self._clock.monotonic()))
        early = self._table.overflow()
        if early:
            self._telemetry.count("early_decisions_total", len(early))
            await self._judge(early)
        while self._decided:
            await self._settle_some()

    async def drain(self) -> None:
        """Decide and settle everything that was accepted, for shutdown."""
        await asyncio.gather(*self._taking, return_exceptions=True)
        await self._place_inbox()
        await self._judge(self._table.drain())
        await self.settle_due()

    async def note(self, kind: str, fields: dict[str, object]) -> None:
        """Commit one audit record that is not about a span."""
        settlement = Settlement()
        self._settler.note(settlement, kind, fields, self._clock.unix_nano())
        if settlement.audit_lines:
            await self._commit(settlement)

    async def note_sampled_out(self) -> None:
        """Commit one audit record of what was not kept since the last such record."""
        now = self._clock.unix_nano()
        settlement = self._settler.sampled_out(self._store.balance, self._noted_unix_nano, now)
        self._noted_unix_nano = now
        self._noted_at = self._clock.monotonic()
        if settlement.audit_lines:
            await self._commit(settlement)

    async def _judge(self, traces: Iterable[OpenTrace]) -> None:
        spans = 0
        for trace in traces:
            spans += len(trace.records)
            if spans >= SPANS_PER_TURN:
                spans = 0
                await asyncio.sleep(0)
            self._normalizer.complete_trace(trace.records)
            decision = self._verdict(trace)
            self._verdicts.remember(trace.trace_id, decision, trace.spans)
            self._telemetry.count("decided_traces_total", reason=decision.reason)
            self._decide(trace.records, decision)

    def _verdict(self, trace: OpenTrace) -> Decision:
        spans = [(record.data, record.inference) for record in trace.records]
        # Every span of a trace should carry the same ot member; the first one that has any wins.
        states = [data.trace_state for data, _ in spans if data.trace_state]
        state = next((text for text in states if "ot=" in text), "")
        decision = self._sampler.decide(trace.trace_id, state, spans, self._clock.monotonic())
        if self._keep_all and not decision.keep:
            # Somebody upstream kept it against its own threshold; the probability is not known.
            return Decision(True, FORCED, None, 1.0, decision.key)
        return decision

    def _decide(self, records: Sequence[SpanRecord], decision: Decision) -> None:
        """Queue a verdict for settling, a large trace in parts that each fit into a commit."""
        for part in _parts(records):
            cost = sum(estimated_bytes(record) for record in part)
            self._decided.append(DecidedTrace(part[0].data.trace_id, part, decision, cost))
            self._waiting_bytes += cost

    async def _settle_some(self) -> None:
        traces: list[DecidedTrace] = []
        spans, size, memory = 0, 0, 0
        while self._decided and spans < SETTLEMENT_SPANS_MAX and size < SETTLEMENT_BYTES_MAX:
            trace = self._decided.popleft()
            spans += len(trace.records)
            size += sum(len(record.raw) for record in trace.records)
            memory += trace.bytes_held
            traces.append(trace)
        while not self._queue_has_room():
            self._telemetry.count("stalls_total")
            await asyncio.sleep(STALLED_RETRY_SECONDS)
        await self._commit(self._settler.settle(traces, self._clock.unix_nano()))
        self._waiting_bytes -= memory

    async def _commit(self, settlement: Settlement) -> None:
        """Make it true on disk, then let the audit files follow.  Tries until it is done."""
        await self._persist(lambda: self._store.settle(settlement))
        self._settled()
        if self._audit_log is not None and settlement.audit_lines:
            lines = settlement.audit_lines
            audit_log = self._audit_log
            await self._persist(lambda: asyncio.to_thread(audit_log.append, lines))
            await self._persist(lambda: self._store.clear_outbox(lines[-1][0] + 1))
            self._telemetry.count("audit_records_total", len(lines))

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except (Retryable, OSError) as later:
                self._telemetry.count("stalls_total")
                log.warning("settling waits: %s", later)
                await asyncio.sleep(STALLED_RETRY_SECONDS)


def _parts(records: Sequence[SpanRecord]) -> Iterable[list[SpanRecord]]:
    part: list[SpanRecord] = []
    size = 0
    for record in records:
        if part and (len(part) >= PART_SPANS_MAX or size + len(record.raw) > PART_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record.raw)
    if part:
        yield part
