"""Verdicts that outlive their trace, so that a late span follows the spans before it.

With the verdict go the ids of the spans it was reached on: the same span sent once more, by a
client that did not get its answer, is known again.

Pure.  Bounded by number; the verdict used least recently is forgotten first, and a span
that comes later still opens its trace anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from mcptrace_proto.model import SPAN_ID_BYTES
from mcptrace_proto.sampling.decision import Decision

SPANS_REMEMBERED_MAX = 1000  # span ids of one trace


class Verdict(NamedTuple):
    """``span_ids`` are end to end: eight bytes a span, and no object."""

    decision: Decision
    span_ids: bytes

    def has(self, span_id: bytes) -> bool:
        """Whether the verdict was reached on this span."""
        found = self.span_ids.find(span_id)
        while found > 0 and found % SPAN_ID_BYTES:  # across the border of two ids
            found = self.span_ids.find(span_id, found + 1)
        return found >= 0


class Verdicts:
    """At most ``remembered_max`` verdicts by trace id."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def remember(self, trace_id: bytes, decision: Decision, span_ids: Iterable[bytes]) -> None:
        joined = b"".join(islice(span_ids, SPANS_REMEMBERED_MAX))
        self._verdicts[trace_id] = Verdict(decision, joined)
        self._verdicts.move_to_end(trace_id)
        if len(self._verdicts) > self._remembered_max:
            self._verdicts.popitem(last=False)

    def add_span(self, trace_id: bytes, span_id: bytes) -> None:
        """A late span has followed the verdict, which must still be remembered."""
        decision, span_ids = self._verdicts[trace_id]
        if len(span_ids) < SPANS_REMEMBERED_MAX * SPAN_ID_BYTES:
            self._verdicts[trace_id] = Verdict(decision, span_ids + span_id)

    def recall(self, trace_id: bytes) -> Verdict | None:
        verdict = self._verdicts.get(trace_id)
        if verdict is not None:
            self._verdicts.move_to_end(trace_id)
        return verdict
