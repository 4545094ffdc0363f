"""Verdicts are remembered up to a number, the least recently used forgotten first."""

from __future__ import annotations

from mcptrace_collector.sampling import Verdicts
from mcptrace_proto.sampling.decision import Decision

KEPT = Decision(True, "error", 0, 1.0, "m|chat")
DROPPED = Decision(False, "sampled_out", 1, 1.0, "m|chat")


def test_the_verdict_used_least_recently_is_forgotten() -> None:
    verdicts = Verdicts(2)
    verdicts.remember(b"a", KEPT)
    verdicts.remember(b"b", DROPPED)
    assert verdicts.recall(b"a") == KEPT
    verdicts.remember(b"c", KEPT)
    assert verdicts.recall(b"b") is None
    assert verdicts.recall(b"a") == KEPT
    assert len(verdicts) == 2


def test_a_later_verdict_replaces_an_earlier_one() -> None:
    verdicts = Verdicts(2)
    verdicts.remember(b"a", DROPPED)
    verdicts.remember(b"a", KEPT)
    assert (verdicts.recall(b"a"), len(verdicts)) == (KEPT, 1)
