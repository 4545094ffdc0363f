"""A sender releases an item only after the receiver's final word on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.durable import Store
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_collector.exporters.sender import Sender, SenderSettings
from mcptrace_collector.pipeline import Settlement

Answer = Callable[[bytes, int], int]
FAST = SenderSettings(
    batch_spans_max=4, in_flight_max=2, retry_initial_seconds=0.001, retry_max_seconds=0.002
)


class Destination:
    """An exporter whose answers the test gives, one a call, the last one for ever."""

    def __init__(self, *answers: int | Exception | Answer) -> None:
        self.bodies: list[bytes] = []
        self._answers: list[int | Exception | Answer] = list(answers)

    async def start(self) -> None: ...

    async def export(self, body: bytes, spans: int) -> int:
        await asyncio.sleep(0)
        self.bodies.append(body)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, int) else answer(body, spans)

    async def shutdown(self) -> None: ...


def deliver(
    destination: Destination,
    items: Sequence[tuple[bytes, int]],
    settings: SenderSettings = FAST,
    timeout_seconds: float = 5.0,
) -> tuple[bool, Store]:
    """Queue items, run a sender until it is drained, and return its verdict and the store."""

    async def run() -> tuple[bool, Store]:
        store = Store(None, journal_bytes_max=1 << 20)
        store.start()
        sender = Sender("peer", destination, store, SystemClock(), settings)
        await sender.start()
        await store.settle(Settlement(payloads=[("peer", body, spans) for body, spans in items]))
        drained = await sender.shutdown(timeout_seconds)
        await store.close()
        return drained, store

    return asyncio.run(run())


def test_items_are_sent_end_to_end_in_batches_within_the_bound() -> None:
    destination = Destination(0)
    drained, store = deliver(destination, [(b"a", 2), (b"b", 2), (b"c", 2)])
    assert (drained, sorted(destination.bodies)) == (True, [b"ab", b"c"])
    assert store.balance.forwarded == {"peer": 6}
    assert store.balance.exact


def test_a_retryable_answer_is_tried_again_until_it_is_taken() -> None:
    destination = Destination(Retryable("later", 0.0), Retryable("later", 0.0), 0)
    drained, store = deliver(destination, [(b"a", 1)])
    assert (drained, destination.bodies) == (True, [b"a"] * 3)
    assert (store.balance.forwarded, store.balance.failed) == ({"peer": 1}, {})


def test_a_permanent_refusal_is_counted_and_never_repeated() -> None:
    destination = Destination(Permanent("no"), 0)
    drained, store = deliver(destination, [(b"a", 4), (b"b", 1)])
    assert drained
    assert sorted(destination.bodies) == [b"a", b"b"]
    assert store.balance.failed == {"peer permanent": 4}
    assert store.balance.forwarded == {"peer": 1}
    assert store.balance.exact


def test_spans_of_a_partial_success_are_counted_as_rejected() -> None:
    drained, store = deliver(Destination(3), [(b"a", 4)])
    assert drained
    assert store.balance.failed == {"peer rejected": 3}
    assert store.balance.forwarded == {"peer": 1}


def test_a_batch_too_large_is_halved_down_to_single_items() -> None:
    def at_most_two_bytes(body: bytes, spans: int) -> int:
        if len(body) > 2:
            raise RequestTooLarge("too large")
        return 0

    destination = Destination(at_most_two_bytes)
    drained, store = deliver(destination, [(b"a", 1), (b"b", 1), (b"ccc", 1), (b"d", 1)])
    assert drained
    assert [body for body in destination.bodies if len(body) <= 2] == [b"ab", b"d"]
    assert store.balance.failed == {"peer too_large": 1}
    assert store.balance.forwarded == {"peer": 3}


def test_giving_up_is_counted_when_a_limit_is_set() -> None:
    settings = SenderSettings(
        retry_initial_seconds=0.001, retry_max_seconds=0.001, retry_elapsed_max_seconds=0.0001
    )
    drained, store = deliver(Destination(Retryable("later", 0.01)), [(b"a", 2)], settings)
    assert drained
    assert store.balance.failed == {"peer retry_exhausted": 2}


def test_what_cannot_be_sent_before_the_deadline_stays_queued() -> None:
    drained, store = deliver(
        Destination(Retryable("later", 60.0)), [(b"a", 2)], timeout_seconds=0.2
    )
    assert not drained
    assert store.balance.queued == {"peer": 2}
    assert store.balance.exact


@pytest.mark.parametrize("in_flight", [1, 3])
def test_no_more_requests_are_under_way_than_allowed(in_flight: int) -> None:
    running, most = 0, 0

    class Slow(Destination):
        async def export(self, body: bytes, spans: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1
            return 0

    settings = SenderSettings(batch_spans_max=1, in_flight_max=in_flight)
    drained, _ = deliver(Slow(0), [(b"x", 1)] * 10, settings)
    assert (drained, most) == (True, in_flight)
