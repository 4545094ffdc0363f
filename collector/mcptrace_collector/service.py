"""The service: builds every room from the configuration, starts and stops them in order.

The only file that knows all rooms.

    start:  store ─▶ audit log (outbox redone) ─▶ senders ─▶ admin ─▶ replay ─▶ receivers ─▶ ready
    stop:   receivers ─▶ held traces decided and settled ─▶ senders drained ─▶ audit, store closed

Before start-up is complete anything wrong ends the process with one sentence; after it, no
input does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from mcptrace_collector.admin import AdminServer, prometheus_text
from mcptrace_collector.audit import AuditLog, configuration_fields
from mcptrace_collector.clock import Clock, SystemClock
from mcptrace_collector.config import CollectorConfig, ExporterConfig, render_yaml
from mcptrace_collector.durable import Balance, Store
from mcptrace_collector.exporters import build_exporter
from mcptrace_collector.exporters.sender import Sender, SenderSettings
from mcptrace_collector.line import TICK_SECONDS, Line
from mcptrace_collector.normalize import Normalizer
from mcptrace_collector.receivers import ByteBudget, OtlpGrpcReceiver, OtlpHttpReceiver
from mcptrace_collector.report import balance_text, status
from mcptrace_collector.sampling import TraceTable, Verdicts
from mcptrace_collector.settle import Settler
from mcptrace_collector.telemetry import Telemetry
from mcptrace_proto.sampling.verdict import SamplingSettings, TraceSampler
from mcptrace_proto.schema import Enforcement

log = logging.getLogger(__name__)

Receiver: TypeAlias = OtlpGrpcReceiver | OtlpHttpReceiver

EXIT_OK, EXIT_FAILURE = 0, 1
ORPHANED_RECORDS_FILE = "audit-orphaned.jsonl"
# Verdicts not yet on disk may hold this share of the trace table's bound before clients must wait.
BACKLOG_SHARE = 0.5


def run(config: CollectorConfig) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code.

    Raises CollectorError or OSError when it cannot start.
    """
    return asyncio.run(_run(config))


async def _run(config: CollectorConfig) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    service = Service(config, SystemClock())
    try:
        failed = False
        if await start_unless_told_to_stop(service, stopping):
            log.info("mcptrace-collector is ready")
            failed = await service.wait(stopping)
    finally:
        await service.stop()
    print(balance_text(service.balance), file=sys.stderr, flush=True)
    return EXIT_FAILURE if failed else EXIT_OK


async def start_unless_told_to_stop(service: Service, stopping: asyncio.Event) -> bool:
    """Start; False when told to stop before that was done (on a full disk it takes for ever)."""
    start = asyncio.create_task(service.start(), name="start")
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        await start
        return True
    log.warning("told to stop while starting")
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return False


class Service:
    """One collector.  ``stop`` may be called after a ``start`` that failed half-way."""

    def __init__(self, config: CollectorConfig, clock: Clock) -> None:
        """Open the store and the audit log.  Raises when either is in use or unusable."""
        self._config = config
        self._clock = clock
        self._telemetry = Telemetry()
        self._ready = False
        self._line_task: asyncio.Task[None] | None = None
        data_dir = Path(config.data_dir)
        self._store = Store(
            data_dir if config.durability == "disk" else None,
            journal_bytes_max=config.limits.journal_bytes_max,
            disk_reserve_bytes=config.limits.disk_reserve_bytes,
        )
        self._audit_log, self._recovered = self._open_audit_log()
        self._senders = [self._sender(name, part) for name, part in config.exporters.items()]
        self._table = self._trace_table()
        self._sampler = self._trace_sampler()
        self._line = self._build_line()
        budget = ByteBudget(config.limits.in_flight_bytes)
        self._receivers = self._build_receivers(budget)
        self._admin = AdminServer(
            config.admin.endpoint,
            not_ready=self._not_ready,
            metrics=prometheus_text(self._telemetry),
            status=lambda: status(self._store.balance, self._telemetry),
        )
        self._watch(budget)

    @property
    def balance(self) -> Balance:
        return self._store.balance

    # -- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what an earlier run left, then open the doors.  Raises CollectorError."""
        unfinished = self._store.unfinished()
        self._store.start()
        await self._line.note("start", self._configuration_fields())
        if self._recovered or unfinished:
            fields = {"journal_records": len(unfinished), "audit_log": self._recovered}
            await self._line.note("recovery", fields)
        for name, spans in self._store.balance.queued.items():
            if spans and name not in self._config.exporters:
                log.warning("%d spans wait for %s, which is no exporter any more", spans, name)
        for sender in self._senders:
            await sender.start()
            sender.wake()
        if self._config.admin.enabled:
            await self._admin.start()
            log.info("admin listens on %s", self._admin.endpoint)
        self._line_task = asyncio.create_task(self._line.run(), name="line")
        await self._replay(unfinished)
        for name, receiver in self._receivers.items():
            await receiver.start()
            log.info("%s listens on %s", name, receiver.endpoint)
        self._ready = True

    async def _replay(self, positions: Sequence[int]) -> None:
        """Take the journal up again, no faster than it can be settled."""
        assert self._line_task is not None
        for position in positions:
            while self._line.backlogged and not self._line_task.done():
                await asyncio.sleep(TICK_SECONDS)
            self._line.replay(await self._store.row(position))

    async def wait(self, stopping: asyncio.Event) -> bool:
        """Until told to stop; True when it is because settling itself failed."""
        assert self._line_task is not None
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait({stop, self._line_task}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not self._line_task.done():
            return False
        # What was accepted is safe in the journal; going on could only make it worse.
        log.critical("settling failed: %r", self._line_task.exception())
        return True

    async def stop(self) -> None:
        """Stop taking, finish within ``shutdown_timeout_seconds``, leave the rest on disk."""
        self._ready = False
        deadline = self._clock.monotonic() + self._config.shutdown_timeout_seconds
        for receiver in self._receivers.values():
            await receiver.shutdown(self._left(deadline))
        if self._line_task is not None and not self._line_task.done():
            await self._finish_line(deadline)
        await asyncio.gather(*[sender.shutdown(self._left(deadline)) for sender in self._senders])
        await self._admin.shutdown()
        await self._store.close()
        left = self.balance.held + sum(self.balance.queued.values())
        if left and self._config.durability == "memory":
            log.warning("%d spans are lost: held or queued, and durability is memory", left)
        if self._audit_log is not None:
            self._audit_log.close()

    async def _finish_line(self, deadline: float) -> None:
        try:
            await asyncio.wait_for(self._last_settlements(), self._left(deadline))
        except asyncio.TimeoutError:
            log.warning("not everything could be settled in time; it stays in the journal")

    async def _last_settlements(self) -> None:
        assert self._line_task is not None
        self._line.finish()
        await self._line_task
        await self._line.drain()
        await self._line.note_sampled_out()
        await self._line.note("stop", self._configuration_fields())

    def _left(self, deadline: float) -> float:
        return max(0.1, deadline - self._clock.monotonic())

    # -- wiring ------------------------------------------------------------------------------

    def _open_audit_log(self) -> tuple[AuditLog | None, list[str]]:
        """Open the log and redo what was committed but is not in its files yet.

        Also returns what had to be recovered, in sentences.
        """
        audit = self._config.audit
        if not audit.enabled:
            return None, []
        audit_log = AuditLog(Path(audit.directory), audit.segment_records, clock=self._clock)
        recovered = list(audit_log.open().messages)
        outbox = self._store.outbox()
        if outbox and not audit_log.owns(outbox[0][1]):
            recovered.append(self._set_aside(outbox))
        elif outbox:
            before = audit_log.size
            audit_log.append(outbox)
            if audit_log.size > before:
                recovered.append(f"{audit_log.size - before} committed records were added")
        for message in recovered:
            log.warning("audit log: %s", message)
        return audit_log, recovered

    def _set_aside(self, outbox: Sequence[tuple[int, bytes]]) -> str:
        """Keep records of a log that is not here any more; they cannot go into another one."""
        path = Path(self._config.data_dir) / ORPHANED_RECORDS_FILE
        with path.open("ab") as file:
            file.writelines(line + b"\n" for _, line in outbox)
            file.flush()
            os.fsync(file.fileno())
        self._store.forget_outbox()
        return f"{len(outbox)} records of another log, which is gone, are kept in {path}"

    def _configuration_fields(self) -> dict[str, object]:
        return configuration_fields(metadata.version("mcptrace"), render_yaml(self._config))

    def _trace_table(self) -> TraceTable:
        sampling = self._config.sampling
        return TraceTable(
            decision_wait_seconds=sampling.decision_wait_seconds,
            settle_seconds=sampling.settle_seconds,
            bytes_max=sampling.table_bytes_max,
        )

    def _trace_sampler(self) -> TraceSampler:
        sampling = self._config.sampling
        return TraceSampler(
            SamplingSettings(
                target_per_second=sampling.target_traces_per_second,
                rate_min=sampling.rate_min if sampling.enabled else 1.0,
                rate_max=sampling.rate_max if sampling.enabled else 1.0,
                timeout_ms=sampling.timeout_limit_ms,
                latency_quantile=sampling.latency_quantile,
                latency_warmup=sampling.latency_warmup_spans,
            )
        )

    def _sender(self, name: str, part: ExporterConfig) -> Sender:
        return Sender(
            name,
            build_exporter(name, part, self._clock),
            self._store,
            self._clock,
            SenderSettings(
                batch_spans_max=part.batch_spans_max,
                batch_bytes_max=part.batch_bytes_max,
                in_flight_max=part.in_flight_max,
                retry_initial_seconds=part.retry_initial_seconds,
                retry_max_seconds=part.retry_max_seconds,
                retry_elapsed_max_seconds=part.retry_elapsed_max_seconds,
            ),
            attempted=self._attempted,
        )

    def _attempted(self, destination: str, outcome: str) -> None:
        self._telemetry.count("export_attempts_total", destination=destination, outcome=outcome)

    def _refused(self, transport: str, reason: str) -> None:
        self._telemetry.count("refused_requests_total", transport=transport, reason=reason)

    def _build_receivers(self, budget: ByteBudget) -> dict[str, Receiver]:
        kinds = (
            ("otlp_grpc", OtlpGrpcReceiver, self._config.receivers.otlp_grpc),
            ("otlp_http", OtlpHttpReceiver, self._config.receivers.otlp_http),
        )
        return {
            name: kind(
                part.endpoint,
                self._line,
                budget,
                max_request_bytes=part.max_request_bytes,
                request_timeout_seconds=part.request_timeout_seconds,
                tls=part.tls,
                refused=self._refused,
            )
            for name, kind, part in kinds
            if part.enabled
        }

    def _build_line(self) -> Line:
        config = self._config
        chain = self._audit_log.chain() if self._audit_log else None
        item_bytes_max = min(part.batch_bytes_max for part in config.exporters.values())
        return Line(
            store=self._store,
            normalizer=Normalizer(
                enforcement=Enforcement(config.schema.enforcement),
                vllm_model=config.normalize.vllm_model,
                model_aliases=config.normalize.model_aliases,
            ),
            sampler=self._sampler,
            keep_all=not config.sampling.enabled,
            table=self._table,
            verdicts=Verdicts(config.sampling.decisions_remembered),
            settler=Settler(list(config.exporters), item_bytes_max, chain),
            audit_log=self._audit_log,
            clock=self._clock,
            telemetry=self._telemetry,
            backlog_bytes_max=int(config.sampling.table_bytes_max * BACKLOG_SHARE),
            queue_has_room=self._queue_has_room,
            settled=self._wake_senders,
        )

    def _queue_has_room(self) -> bool:
        bound = self._config.limits.queue_bytes_max
        waiting = self._store.balance.queued_bytes
        return all(waiting.get(name, 0) < bound for name in self._config.exporters)

    def _wake_senders(self) -> None:
        for sender in self._senders:
            sender.wake()

    def _not_ready(self) -> list[str]:
        reasons = [] if self._ready else ["starting or stopping"]
        if not self._queue_has_room():
            reasons.append("a destination's queue is full")
        if self._line.backlogged:
            reasons.append("verdicts wait to be written")
        reasons += [why for why in (self._store.no_room(), self._store.failing) if why is not None]
        return reasons

    def _watch(self, budget: ByteBudget) -> None:
        watch = self._telemetry.watch
        self._telemetry.attach_ledger(lambda: self._store.balance)
        watch("in_flight_bytes", lambda: budget.used)
        watch("trace_table_traces", lambda: len(self._table))
        watch("trace_table_spans", lambda: self._table.spans_held)
        watch("trace_table_bytes", lambda: self._table.bytes_held)
        watch("sampling_rate", self._sampler.rates)
