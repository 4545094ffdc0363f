"""The chain of records as values: what the next line is, and what it hashes to.

Pure: no files, no clock.  One task owns a chain.  ``snapshot`` and ``restore`` undo lines
whose commit failed, so that no index is ever given to two different records.

Always true: ``head`` is the leaf hash of record ``size - 1``, or zeros when there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcptrace_collector.audit.layout import ZERO_HASH, encode_record
from mcptrace_collector.audit.records import inference_fields, span_fields
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import leaf_hash

if TYPE_CHECKING:
    from mcptrace_collector.pipeline import SpanRecord
    from mcptrace_proto.sampling.decision import Decision


@dataclass(slots=True, frozen=True)
class AuditLine:
    """One record: its place, its stored bytes (no newline) and their leaf hash."""

    index: int
    line: bytes
    leaf_hash: bytes


@dataclass(slots=True, frozen=True)
class ChainState:
    """Where a chain stands."""

    size: int
    head: bytes


class AuditChain:
    """Gives records their index and their link to the record before."""

    __slots__ = ("_head", "_size", "log_id")

    def __init__(self, log_id: str, size: int = 0, head: bytes = ZERO_HASH) -> None:
        self.log_id = log_id
        self._size = size
        self._head = head

    def next_inference(
        self,
        record: SpanRecord,
        decision: Decision,
        now_unix_nano: int,
        *,
        tenant: str | None = None,
    ) -> AuditLine:
        """The record of one kept span, hashed as ``record.raw`` is now.

        The kind is ``inference`` for a span with an inference view and ``span`` for any other,
        so that every forwarded span can have its record.
        """
        if record.inference is None:
            return self.next("span", span_fields(record, decision, tenant), now_unix_nano)
        fields = inference_fields(record, record.inference, decision, tenant)
        return self.next("inference", fields, now_unix_nano)

    def next(self, kind: str, fields: Mapping[str, Any], now_unix_nano: int) -> AuditLine:
        """The next record of any kind.  Raises LayoutError and changes nothing if it cannot be."""
        index = self._size
        line = encode_record(
            self.log_id,
            index,
            self._head,
            time_unix_nano=now_unix_nano,
            kind=kind,
            fields=fields,
        )
        self._head = leaf_hash(line, sm3)
        self._size = index + 1
        return AuditLine(index, line, self._head)

    def snapshot(self) -> ChainState:
        """Where the chain stands now."""
        return ChainState(self._size, self._head)

    def restore(self, state: ChainState) -> None:
        """Go back to a snapshot; the lines made since then must not be stored."""
        self._size = state.size
        self._head = state.head
