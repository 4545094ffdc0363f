"""Verdicts are remembered up to a number, the least recently used forgotten first."""

from __future__ import annotations

from mcptrace_collector.sampling import Verdicts
from mcptrace_collector.sampling.verdicts import SPANS_REMEMBERED_MAX
from mcptrace_proto.sampling.decision import Decision

KEPT = Decision(True, "error", 0, 1.0, "m|chat")
DROPPED = Decision(False, "sampled_out", 1, 1.0, "m|chat")


def test_the_verdict_used_least_recently_is_forgotten() -> None:
    verdicts = Verdicts(2)
    verdicts.remember(b"a", KEPT, [])
    verdicts.remember(b"b", DROPPED, [])
    assert verdicts.recall(b"a") == (KEPT, b"")
    verdicts.remember(b"c", KEPT, [])
    assert verdicts.recall(b"b") is None
    assert verdicts.recall(b"a") == (KEPT, b"")
    assert len(verdicts) == 2


def test_a_later_verdict_replaces_an_earlier_one() -> None:
    verdicts = Verdicts(2)
    verdicts.remember(b"a", DROPPED, [])
    verdicts.remember(b"a", KEPT, [])
    assert (verdicts.recall(b"a"), len(verdicts)) == ((KEPT, b""), 1)


def test_the_spans_of_a_verdict_are_known_again_and_no_others() -> None:
    verdicts = Verdicts(2)
    verdicts.remember(b"a", KEPT, [b"\x01" * 8, b"\x02" * 8])
    verdicts.add_span(b"a", b"\x03" * 8)
    verdict = verdicts.recall(b"a")
    assert verdict is not None
    assert [verdict.has(bytes([n]) * 8) for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert not verdict.has(b"\x01" * 4 + b"\x02" * 4), "bytes across two ids are no id"


def test_the_spans_remembered_of_one_trace_are_bounded() -> None:
    verdicts = Verdicts(1)
    verdicts.remember(b"a", KEPT, (n.to_bytes(8, "big") for n in range(5000)))
    verdicts.add_span(b"a", b"x" * 8)
    verdict = verdicts.recall(b"a")
    assert verdict is not None
    assert len(verdict.span_ids) == 8 * SPANS_REMEMBERED_MAX
