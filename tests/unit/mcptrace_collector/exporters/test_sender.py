"""The sender over a real queue in memory, with destinations that answer as told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from mcptrace_collector.durable import Store
from mcptrace_collector.errors import Permanent, RequestTooLarge, Retryable
from mcptrace_collector.exporters.sender import Sender, SenderSettings
from mcptrace_collector.pipeline import Settlement

FAST = SenderSettings(retry_initial_seconds=0.001, retry_max_seconds=0.001)


class SteppingClock:
    """Goes on by ``step_seconds`` each time it is asked."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        self.now = 0.0
        self.step_seconds = step_seconds

    def monotonic(self) -> float:
        self.now += self.step_seconds
        return self.now

    def unix_nano(self) -> int:
        return 0


class Destination:
    """Delivers, unless ``answer`` raises or says how many spans it refuses."""

    def __init__(self, answer: Callable[[bytes], int] = lambda body: 0) -> None:
        self.answer = answer
        self.delivered: list[bytes] = []
        self.attempts = 0
        self.in_flight = 0
        self.in_flight_max = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> None: ...

    async def export(self, body: bytes, spans: int) -> int:
        self.attempts += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await self.gate.wait()
            rejected = self.answer(body)
        finally:
            self.in_flight -= 1
        self.delivered.append(body)
        return rejected

    async def shutdown(self) -> None: ...


class Line:
    """A store, a sender and a destination."""

    def __init__(
        self, destination: Destination, settings: SenderSettings, clock: SteppingClock
    ) -> None:
        self.store = Store(None, journal_bytes_max=1 << 20)
        self.outcomes: list[str] = []
        self.sender = Sender(
            "peer",
            destination,
            self.store,
            clock,
            settings,
            attempted=lambda name, outcome: self.outcomes.append(outcome),
        )

    async def put(self, *bodies: bytes, spans: int = 1) -> None:
        payloads = [("peer", body, spans) for body in bodies]
        await self.store.settle(Settlement(payloads=payloads))
        self.sender.wake()


def run(
    test: Callable[[Line], Coroutine[Any, Any, None]],
    destination: Destination,
    settings: SenderSettings = FAST,
    clock: SteppingClock | None = None,
) -> None:
    async def whole() -> None:
        line = Line(destination, settings, clock or SteppingClock())
        line.store.start()
        try:
            await test(line)
        finally:
            await line.sender.shutdown(0.0)
            await line.store.close()

    asyncio.run(asyncio.wait_for(whole(), 30.0))


def test_a_sender_that_never_started_keeps_nobody_waiting() -> None:
    async def test(line: Line) -> None:
        await line.put(b"a")
        assert not await asyncio.wait_for(line.sender.shutdown(3600.0), 5.0)

    run(test, Destination())


def test_what_was_queued_before_the_start_is_sent_in_one_batch() -> None:
    destination = Destination()

    async def test(line: Line) -> None:
        await line.put(b"one", b"two", b"three")
        await line.sender.start()
        assert await line.sender.shutdown(10.0)
        assert destination.delivered == [b"onetwothree"]
        balance = line.store.balance
        assert (balance.forwarded, balance.failed, balance.queued) == (
            {"peer": 3},
            {},
            {"peer": 0},
        )
        assert line.outcomes == ["success"]

    run(test, destination)


@pytest.mark.parametrize("bound", [{"batch_spans_max": 4}, {"batch_bytes_max": 6}])
def test_a_batch_keeps_within_spans_and_bytes(bound: dict[str, int]) -> None:
    destination = Destination()

    async def test(line: Line) -> None:
        await line.put(b"aaa", b"bbb", b"ccc", spans=2)
        await line.sender.start()
        assert await line.sender.shutdown(10.0)
        assert destination.delivered == [b"aaabbb", b"ccc"]

    run(test, destination, replace(FAST, in_flight_max=1, **bound))


def test_so_many_requests_are_in_flight_and_no_more() -> None:
    destination = Destination()

    async def test(line: Line) -> None:
        destination.gate.clear()
        await line.put(*[b"%d" % number for number in range(8)])
        await line.sender.start()
        while destination.in_flight < 3:
            await asyncio.sleep(0)
        destination.gate.set()
        assert await line.sender.shutdown(10.0)
        assert destination.in_flight_max == 3
        assert sorted(destination.delivered) == [b"%d" % number for number in range(8)]

    run(test, destination, replace(FAST, batch_spans_max=1, in_flight_max=3))


def test_later_is_tried_until_it_is_yes() -> None:
    answers: list[Exception | int] = [Retryable("busy", 0.0), Retryable("busy", 0.0), 0]

    def answer(body: bytes) -> int:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    destination = Destination(answer)

    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"one")
        assert await line.sender.shutdown(10.0)
        assert destination.delivered == [b"one"]
        assert line.outcomes == ["retryable", "retryable", "success"]
        assert line.store.balance.forwarded == {"peer": 1}

    run(test, destination)


def raising(error: Exception) -> Callable[[bytes], int]:
    def answer(body: bytes) -> int:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "spans", "forwarded", "failed"),
    [
        (lambda body: 3, 5, 2, {"peer rejected": 3}),
        (lambda body: 99, 5, 0, {"peer rejected": 5}),
        (raising(Permanent("no")), 5, 0, {"peer permanent": 5}),
        (raising(RequestTooLarge("big")), 5, 0, {"peer too_large": 5}),
    ],
)
def test_a_final_word_takes_the_spans_off_the_queue_and_counts_them(
    answer: Callable[[bytes], int], spans: int, forwarded: int, failed: dict[str, int]
) -> None:
    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"body", spans=spans)
        assert await line.sender.shutdown(10.0)
        balance = line.store.balance
        assert balance.forwarded.get("peer", 0) == forwarded
        assert (balance.failed, balance.queued) == (failed, {"peer": 0})

    run(test, Destination(answer))


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    def answer(body: bytes) -> int:
        if len(body) > 2:
            raise RequestTooLarge("more than 2 bytes")
        return 0

    destination = Destination(answer)

    async def test(line: Line) -> None:
        await line.put(b"a", b"b", b"c", b"ddd", b"e")
        await line.sender.start()
        assert await line.sender.shutdown(10.0)
        assert destination.delivered == [b"ab", b"c", b"e"]
        balance = line.store.balance
        assert (balance.forwarded, balance.failed) == ({"peer": 4}, {"peer too_large": 1})

    run(test, destination)


def test_retrying_ends_at_its_limit_when_there_is_one() -> None:
    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"one", spans=2)
        assert await line.sender.shutdown(10.0)
        assert line.store.balance.failed == {"peer retry_exhausted": 2}
        assert len(line.outcomes) > 1

    settings = replace(FAST, retry_elapsed_max_seconds=5.0)
    run(test, Destination(raising(Retryable("busy", 0.0))), settings, SteppingClock(1.0))


def test_without_a_limit_a_dead_destination_keeps_its_spans_on_the_queue() -> None:
    destination = Destination(raising(Retryable("dead", 0.0)))

    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"one", spans=2)
        while destination.attempts < 20:
            await asyncio.sleep(0)
        assert not await line.sender.shutdown(0.01)
        balance = line.store.balance
        assert (balance.forwarded, balance.failed, balance.queued) == ({}, {}, {"peer": 2})

    run(test, destination)


def test_a_fault_in_an_exporter_keeps_the_spans_and_the_sender() -> None:
    def answer(body: bytes) -> int:
        if body == b"fault":
            raise KeyError("a bug")
        return 0

    destination = Destination(answer)

    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"fault")
        while not destination.attempts or destination.in_flight:
            await asyncio.sleep(0)
        await line.put(b"next")
        assert await line.sender.shutdown(10.0)
        assert destination.delivered == [b"next"]
        assert line.store.balance.queued == {"peer": 1}

    run(test, destination)


def test_trouble_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    destination = Destination(raising(Retryable("dead", 0.0)))

    async def test(line: Line) -> None:
        await line.sender.start()
        await line.put(b"one")
        while destination.attempts < 20:
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING), suppress(asyncio.TimeoutError):
        run(test, destination)
    assert [record.getMessage() for record in caplog.records] == [
        "destination peer is not taking spans, trying again: dead"
    ]
