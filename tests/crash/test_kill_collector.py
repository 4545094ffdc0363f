"""kill -9 at random moments under load: what was acknowledged is forwarded or counted as dropped.

The clients send one span a request over HTTP and remember which requests were answered 200.
After each kill the collector starts again on the same directory.  At the end every
acknowledged span must be at the receiver; the ledger must be exact; the audit log must
verify and hold each span once.
"""

from __future__ import annotations

import collections
import hashlib
import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KILLS = 20
ERROR_EVERY = 10
CLIENTS = 4


def span_id(number: int) -> bytes:
    return (number + 1).to_bytes(8, "big")


def failed(number: int) -> bool:
    return number % ERROR_EVERY == 0


def body(number: int) -> bytes:
    """One inference span in a trace of its own; its ids follow from its number."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id = hashlib.sha256(span_id(number)).digest()[:16]
    span.span_id = span_id(number)
    if failed(number):
        span.status.code = span.status.STATUS_CODE_ERROR
    span.name = "chat tiny"
    span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 10**7
    for key, value in (("gen_ai.provider.name", "openai"), ("gen_ai.request.model", "tiny")):
        attribute = span.attributes.add()
        attribute.key, attribute.value.string_value = key, value
    encoded: bytes = request.SerializeToString()
    return encoded


class Load:
    """Clients that go on through kills; ``acknowledged`` are the numbers answered 200."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.address = ""
        self._numbers = iter(range(10_000_000))
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _client(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                number = next(self._numbers)
            connection = http.client.HTTPConnection(self.address, timeout=5)
            try:
                headers = {"Content-Type": "application/x-protobuf"}
                connection.request("POST", "/v1/traces", body(number), headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.add(number)
            except (OSError, http.client.HTTPException):
                self._stopping.wait(0.02)  # between two lives of the collector
            finally:
                connection.close()


def audited(directory: Path) -> collections.Counter[str]:
    """How often the log has a record for each span id."""
    return collections.Counter(
        record["span_id"]
        for segment in sorted(directory.glob("segment-*.jsonl"))
        for record in map(json.loads, segment.read_text().splitlines())
        if "span_id" in record
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sampled", [False, True], ids=["everything kept", "sampled"])
def test_nothing_acknowledged_is_lost(
    sampled: bool, receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    draw = random.Random(20261201)
    running = collector(
        exporters={
            "peer": {"type": "otlp_grpc", "endpoint": receiver.grpc_endpoint, "insecure": True}
        },
        sampling={"enabled": sampled, "settle_seconds": 0.05, "decision_wait_seconds": 0.2},
    )
    load = Load()
    load.address = running.endpoint("otlp_http")
    load.start()
    for _ in range(KILLS if not sampled else KILLS // 4):
        time.sleep(draw.uniform(0.05, 0.6))
        running.kill()
        running.start()
        load.address = running.endpoint("otlp_http")
    load.stop()
    wait_until(lambda: settled(running.status()["balance"]), "an empty journal and queue")
    balance = running.status()["balance"]
    assert running.stop() == 0

    assert balance["exact"]
    assert sum(balance["received"].values()) >= len(load.acknowledged) > KILLS
    arrived = collections.Counter(span.span_id for _, _, span in receiver.spans())
    kept, dropped = sum(balance["kept"].values()), sum(balance["dropped"].values())
    assert kept + dropped == sum(balance["received"].values())
    assert kept == balance["forwarded"]["peer"]
    assert len(arrived) == kept
    duplicates = sum(arrived.values()) - len(arrived)
    assert duplicates <= balance["requeued"].get("peer", 0)
    # Sampling may take ordinary spans away, and nothing else may.
    due = {span_id(n) for n in load.acknowledged if failed(n) or not sampled}
    assert due <= arrived.keys()
    assert (dropped > 0) == sampled
    records = audited(running.data_dir / "audit")
    assert set(records) == {span_id.hex() for span_id in arrived}
    assert max(records.values()) == 1
    verify = subprocess.run(
        [sys.executable, "-m", "mcptrace_collector.tools", "audit", "verify",
         str(running.data_dir / "audit")],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert verify.returncode == 0, verify.stdout + verify.stderr


def settled(balance: dict[str, Any]) -> bool:
    return balance["held"] == 0 and not any(balance["queued"].values())
