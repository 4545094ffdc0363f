"""The tie between a forwarded span and its record.

The record holds SM3 of the span's bytes (``span_hash``).  Then two attributes are appended,
the record's leaf hash and its index, in this order, as the span's last two.  A verifier
cuts them off and has the hashed bytes back.

Pure.
"""

from __future__ import annotations

from mcptrace_collector.audit.layout import LayoutError, decode_record
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import leaf_hash
from mcptrace_proto import semconv, wire


def finish_span(raw: bytes, leaf: bytes, index: int) -> bytes:
    """The span to forward: ``raw`` with its audit attributes at the end.

    ``raw`` must be what was hashed, and must not carry the two names already.
    """
    return raw + _tail(leaf, index)


def span_matches(line: bytes, span: bytes) -> bool:
    """Whether ``span`` (wire bytes, no outer tag) is the span this record was written for."""
    return span_mismatch(line, span) is None


def span_mismatch(line: bytes, span: bytes) -> str | None:
    """Why ``span`` is not the span of record ``line``; None if it is.

    The two attributes are looked for as the last ones with exactly the bytes this record
    calls for, so a span that a proxy wrote again in field order still matches when its
    other bytes are unchanged.
    """
    try:
        record = decode_record(line)
    except LayoutError as error:
        return str(error)
    expected = record.get("span_hash")
    if expected is None:
        return f"a record of kind {record['kind']} is not about one span"
    before, found, after = span.rpartition(_tail(leaf_hash(line, sm3), record["index"]))
    if not found:
        return "the span does not carry this record's leaf hash and index"
    if sm3(before + after).hex() != expected:
        return "the span's bytes are not those that were recorded"
    return None


def _tail(leaf: bytes, index: int) -> bytes:
    return wire.append_attributes(
        b"", {semconv.AUDIT_LEAF_HASH: leaf.hex(), semconv.AUDIT_LOG_INDEX: index}
    )
