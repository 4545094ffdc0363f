"""Ids are random where it matters, and Python's own randomness is left alone."""

from __future__ import annotations

import random
import threading

import pytest

from mcptrace import ids
from mcptrace.ids import WORDS_PER_REFILL, RandomIds


def test_ids_have_their_widths_and_are_never_zero() -> None:
    source = RandomIds()
    spans = [source.span_id() for _ in range(3 * WORDS_PER_REFILL)]
    traces = [source.trace_id() for _ in range(WORDS_PER_REFILL)]
    assert all(0 < item < 1 << 64 for item in spans)
    assert all(0 < item < 1 << 128 for item in traces)
    assert len(set(spans)) == len(spans)


def test_a_zero_from_the_system_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [b"\0" * 8 * WORDS_PER_REFILL, b"\x01" + b"\0" * (8 * WORDS_PER_REFILL - 1)]
    monkeypatch.setattr(ids.os, "urandom", lambda size: blocks.pop(0))
    assert RandomIds().span_id() == 1


def test_the_programs_random_sequence_is_not_disturbed_nor_used() -> None:
    random.seed(7)
    first = RandomIds().trace_id()
    state = random.getstate()
    random.seed(7)
    assert random.getstate() == state
    assert RandomIds().trace_id() != first


def test_threads_never_get_the_same_id() -> None:
    source = RandomIds()
    found: list[list[int]] = []

    def draw() -> None:
        found.append([source.span_id() for _ in range(2000)])

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [item for drawn in found for item in drawn]
    assert len(set(everything)) == 16_000


def test_a_child_of_a_fork_draws_anew() -> None:
    source = RandomIds()
    source.span_id()
    before = list(source._words)
    source.reset_after_fork()
    assert source.span_id() not in before
