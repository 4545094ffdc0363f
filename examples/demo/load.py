"""The demo's clients: a bursty load with some failures in it, counted as it was sent."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CLIENTS = 8
# (seconds, requests a second): quiet, a burst of ten times that, quiet again.
PHASES = ((8.0, 15.0), (14.0, 150.0), (10.0, 15.0))
ERROR_EVERY, TIMEOUT_EVERY, SLOW_EVERY = 50, 80, 60


@dataclass
class Sent:
    """What the clients know of their own requests."""

    requests: int = 0
    errors: int = 0
    timeouts: int = 0
    slow: int = 0
    unanswered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def request(number: int) -> tuple[str, dict[str, object]]:
    """The n-th request and which of Sent's counters it belongs to."""
    draw = random.Random(number)
    body: dict[str, object] = {
        "model": "tiny-chat" if number % 3 else "tiny-code",
        "prompt": "".join(draw.choices("abcdefgh ", k=draw.randint(4, 10))),
        "max_tokens": draw.randint(3, 7),
    }
    if number % ERROR_EVERY == 7:
        return "errors", body | {"prompt": "\x00"}
    if number % TIMEOUT_EVERY == 11:
        return "timeouts", body | {"max_tokens": 400, "timeout_ms": 20}
    if number % SLOW_EVERY == 13:
        return "slow", body | {"max_tokens": 150}
    return "", body


def drive(port: int, progress: Callable[[float, int], None]) -> Sent:
    """Send all phases; ``progress`` is told the elapsed seconds and the requests so far."""
    sent = Sent()
    started = time.monotonic()
    schedule = iter(_schedule())
    schedule_lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        while True:
            with schedule_lock:
                number, due = next(schedule, (-1, 0.0))
            if number < 0:
                connection.close()
                return
            time.sleep(max(0.0, started + due - time.monotonic()))
            _send(connection, number, sent)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        progress(time.monotonic() - started, sent.requests)
        threads[0].join(0.5)
        time.sleep(0.01)
    return sent


def _schedule() -> list[tuple[int, float]]:
    out: list[tuple[int, float]] = []
    begin = 0.0
    for seconds, rate in PHASES:
        for step in range(int(seconds * rate)):
            out.append((len(out), begin + step / rate))
        begin += seconds
    return out


def _send(connection: http.client.HTTPConnection, number: int, sent: Sent) -> None:
    counter, body = request(number)
    try:
        connection.request("POST", "/v1/generate", json.dumps(body))
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        connection.close()
        counter = "unanswered"
    with sent.lock:
        sent.requests += 1
        if counter:
            setattr(sent, counter, getattr(sent, counter) + 1)
