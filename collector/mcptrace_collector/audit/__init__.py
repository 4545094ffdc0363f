"""The audit room: a tamper-evident log of what was inferred and what was decided.

    chain ─▶ the lines (pure)        verify ─▶ is a log what its writer wrote?
    log   ─▶ the files               spans  ─▶ is a span the one a record was written for?

layout is the format on disk, tree the Merkle tree, records the fields, sm3 the hash.
"""

from __future__ import annotations

from mcptrace_collector.audit.chain import AuditChain, AuditLine, ChainState
from mcptrace_collector.audit.layout import AuditError, LayoutError
from mcptrace_collector.audit.log import AuditLog, Recovery
from mcptrace_collector.audit.records import configuration_fields, sampled_out_fields
from mcptrace_collector.audit.spans import finish_span, span_matches, span_mismatch
from mcptrace_collector.audit.verify import Report, Status, verify_log

__all__ = [
    "AuditChain",
    "AuditError",
    "AuditLine",
    "AuditLog",
    "ChainState",
    "LayoutError",
    "Recovery",
    "Report",
    "Status",
    "configuration_fields",
    "finish_span",
    "sampled_out_fields",
    "span_matches",
    "span_mismatch",
    "verify_log",
]
