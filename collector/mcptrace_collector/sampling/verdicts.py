"""Verdicts that outlive their trace, so that a late span follows the spans before it.

Pure.  Bounded by number; the verdict used least recently is forgotten first, and a span
that comes later still opens its trace anew.
"""

from __future__ import annotations

from collections import OrderedDict

from mcptrace_proto.sampling.decision import Decision


class Verdicts:
    """At most ``remembered_max`` verdicts by trace id."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._verdicts: OrderedDict[bytes, Decision] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def remember(self, trace_id: bytes, decision: Decision) -> None:
        self._verdicts[trace_id] = decision
        self._verdicts.move_to_end(trace_id)
        if len(self._verdicts) > self._remembered_max:
            self._verdicts.popitem(last=False)

    def recall(self, trace_id: bytes) -> Decision | None:
        decision = self._verdicts.get(trace_id)
        if decision is not None:
            self._verdicts.move_to_end(trace_id)
        return decision
