"""Write the golden audit log: one record of every kind, over three segments.

    python tests/golden/rebuild_audit_log.py [DIRECTORY]

The same bytes come out every time.  When they change, the format changed: logs already
written must still verify, and docs/audit.md must say what is new.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from mcptrace_collector.audit import (
    AuditChain,
    AuditLine,
    AuditLog,
    configuration_fields,
    finish_span,
    sampled_out_fields,
)
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv, wire
from mcptrace_proto.model import STATUS_ERROR, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision
from mcptrace_proto.schema import InferenceSpan, TokenUsage

DATA = Path(__file__).parent / "data"
LOG_NAME = "audit-log"
SPAN_NAME = "audit-span.bin"  # the span of record 1 as it is forwarded
SEGMENT_RECORDS = 3

_SECOND = 1_000_000_000
_START = 1_764_547_200 * _SECOND


class _Clock:
    def monotonic(self) -> float:
        return 0.0

    def unix_nano(self) -> int:
        return _START


def _inference() -> SpanRecord:
    data = SpanData(
        trace_id=bytes(range(16)),
        span_id=bytes(range(8, 16)),
        name="chat tiny",
        start_time_unix_nano=_START,
        end_time_unix_nano=_START + 250_000_000,
        status_code=STATUS_ERROR,
        attributes={
            semconv.PROTOCOL_VERSION: semconv.PROTOCOL_VERSION_VALUE,
            semconv.MODEL_NAME: "tiny",
            semconv.ERROR_TYPE: "TimeoutError",
            semconv.SOURCE_CONVENTION: "gen_ai",
        },
    )
    usage = TokenUsage(input=12, output=0, total=12, unknown={"cached": "not_reported"})
    view = InferenceSpan(
        model_name="tiny",
        model_version="1",
        operation="chat",
        provider="vllm",
        request_id=None,
        finish_reason="abandoned",
        inference_latency_ms=250.0,
        ttft_ms=31.25,
        queue_ms=None,
        streaming=True,
        token_usage=usage,
    )
    resource = {"service.name": "chat-é"}
    return SpanRecord(wire.encode_span(data), data, SpanSource(), resource, inference=view)


def _server_span() -> SpanRecord:
    data = SpanData(trace_id=bytes(range(16)), span_id=bytes(8), name="POST /v1/chat")
    return SpanRecord(wire.encode_span(data), data, SpanSource(), {})


def _lines(chain: AuditChain) -> list[AuditLine]:
    error = Decision(True, "error", None, 1.0, "tiny/chat")
    probability = Decision(True, "probability", 0xE6 << 48, 256 / 26, "tiny/chat")
    setup = configuration_fields("0.1.0", "durability: disk\n")
    other_setup = configuration_fields("0.1.0", "durability: memory\n")
    minute = _START + 60 * _SECOND
    unclean = {"journal_records": 2, "audit_log": ["cut 17 bytes of an unfinished append"]}
    out = {("tiny/chat", "probability"): 90, ("tiny/embed", "probability"): 4}
    return [
        chain.next("start", setup, _START),
        chain.next_inference(_inference(), error, _START + _SECOND, tenant="acme"),
        chain.next_inference(_server_span(), probability, _START + _SECOND),
        chain.next("sampled_out", sampled_out_fields(out, _START, minute), minute),
        chain.next("config_change", other_setup, _START + 61 * _SECOND),
        chain.next("recovery", unclean, _START + 62 * _SECOND),
        chain.next("stop", other_setup, _START + 63 * _SECOND),
    ]


def rebuild(directory: Path) -> None:
    """Write the golden files into ``directory``."""
    shutil.rmtree(directory / LOG_NAME, ignore_errors=True)
    log = AuditLog(
        directory / LOG_NAME,
        SEGMENT_RECORDS,
        clock=_Clock(),
        random_bytes=lambda count: bytes(range(count)),
    )
    log.open()
    lines = _lines(log.chain())
    log.append([(line.index, line.line) for line in lines])
    log.close()
    (directory / LOG_NAME / "lock").unlink()
    span = finish_span(_inference().raw, lines[1].leaf_hash, lines[1].index)
    (directory / SPAN_NAME).write_bytes(span)


if __name__ == "__main__":
    rebuild(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
