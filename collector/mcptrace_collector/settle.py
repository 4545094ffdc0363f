"""From verdicts to one settlement: what is forwarded, what is recorded, what is counted.

    kept span   ─▶ trace state and sampling attributes ─▶ audit record ─▶ audit attributes ─▶ queue
    dropped span ─▶ counted by reason

Pure: no I/O, no clock.  The audit chain is advanced here; the settlement that comes out is
committed as it is, again and again if need be, and never built twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mcptrace_collector.audit import AuditChain, finish_span, sampled_out_fields
from mcptrace_collector.durable import Balance
from mcptrace_collector.pipeline import DecidedTrace, Settlement, SpanRecord
from mcptrace_proto import semconv, wire
from mcptrace_proto.model import RawSpans, SpanSource
from mcptrace_proto.sampling.decision import SAMPLED_OUT, Decision, sampling_attributes
from mcptrace_proto.sampling.threshold import adjusted_count, ot_threshold, with_threshold

# What one queue item holds at most; senders put items together again up to their own bounds.
ITEM_SPANS_MAX = 512


class Settler:
    """Builds settlements.  ``chain`` None writes no audit records."""

    def __init__(
        self, destinations: Sequence[str], item_bytes_max: int, chain: AuditChain | None
    ) -> None:
        self._destinations = tuple(destinations)
        self._item_bytes_max = item_bytes_max
        self._chain = chain

    def settle(self, traces: Iterable[DecidedTrace], now_unix_nano: int) -> Settlement:
        """One settlement for all of ``traces``; advances the audit chain."""
        settlement = Settlement()
        kept: dict[SpanSource, list[bytes]] = {}
        for trace in traces:
            decision = trace.decision
            for record in trace.records:
                settlement.settled.append(record.origin)
                if decision.keep:
                    raw = self._finish(record, decision, now_unix_nano, settlement)
                    kept.setdefault(record.source, []).append(raw)
            counts = settlement.kept if decision.keep else settlement.dropped
            counts[decision.reason] = counts.get(decision.reason, 0) + len(trace.records)
            if not decision.keep:
                label = f"{decision.key} {decision.reason}"
                settlement.sampled_out[label] = settlement.sampled_out.get(label, 0) + len(
                    trace.records
                )
        for body, spans in self._items(kept):
            settlement.payloads += [(name, body, spans) for name in self._destinations]
        return settlement

    def note(
        self, settlement: Settlement, kind: str, fields: Mapping[str, object], now_unix_nano: int
    ) -> None:
        """Add an audit record that is not about one span."""
        if self._chain is not None:
            line = self._chain.next(kind, fields, now_unix_nano)
            settlement.audit_lines.append((line.index, line.line))

    def sampled_out(self, balance: Balance, since_unix_nano: int, now_unix_nano: int) -> Settlement:
        """The record of what was not kept and is not recorded yet, which also makes it recorded."""
        settlement = Settlement()
        counts = {label: spans for label, spans in balance.sampled_out.items() if spans}
        if counts and self._chain is not None:
            by_key = {label.rpartition(" ")[::2]: spans for label, spans in counts.items()}
            fields = sampled_out_fields(by_key, since_unix_nano, now_unix_nano)
            self.note(settlement, SAMPLED_OUT, fields, now_unix_nano)
            settlement.sampled_out = {label: -spans for label, spans in counts.items()}
        return settlement

    def _finish(
        self,
        record: SpanRecord,
        decision: Decision,
        now_unix_nano: int,
        settlement: Settlement,
    ) -> bytes:
        decision = _own(record, decision)
        state_sampling(record, decision)
        if self._chain is None:
            return record.raw
        line = self._chain.next_inference(record, decision, now_unix_nano)
        settlement.audit_lines.append((line.index, line.line))
        return finish_span(record.raw, line.leaf_hash, line.index)

    def _items(self, kept: Mapping[SpanSource, Sequence[bytes]]) -> Iterable[tuple[bytes, int]]:
        """Queue bodies within both bounds, spans of one source together."""
        pending: list[RawSpans] = []
        spans, size = 0, 0
        for source, raws in kept.items():
            overhead = len(source.resource) + len(source.scope) + 64
            for raw in raws:
                full = spans >= ITEM_SPANS_MAX or size + len(raw) > self._item_bytes_max
                if pending and full:
                    yield wire.join_request(pending), spans
                    pending, spans, size = [], 0, 0
                if not pending or pending[-1].source is not source:
                    pending.append(RawSpans(source))
                    size += overhead
                pending[-1].spans.append(raw)
                spans += 1
                size += len(raw) + 8
        if pending:
            yield wire.join_request(pending), spans


def _own(record: SpanRecord, decision: Decision) -> Decision:
    """The verdict for one span of the trace: its own upstream threshold is never lowered."""
    upstream = ot_threshold(record.data.trace_state)
    if upstream is None or decision.threshold is None or upstream <= decision.threshold:
        return decision
    return replace(decision, threshold=upstream, adjusted_count=adjusted_count(upstream))


def state_sampling(record: SpanRecord, decision: Decision) -> None:
    """Write on a kept span why it was kept and what it stands for (``ot=th``, reason, count)."""
    data = record.data
    trace_state = with_threshold(data.trace_state, decision.threshold)
    if trace_state != data.trace_state:
        record.raw = wire.set_trace_state(record.raw, trace_state)
        data.trace_state = trace_state
    wanted = sampling_attributes(decision)
    missing = {name: value for name, value in wanted.items() if data.attributes.get(name) != value}
    # A collector before this one signed off in its own log; ours is the one to be checked here.
    stale = {semconv.AUDIT_LEAF_HASH, semconv.AUDIT_LOG_INDEX, *missing} & data.attributes.keys()
    if stale:
        record.remove(stale)
    if missing:
        record.annotate(missing)
