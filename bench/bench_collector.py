"""CPU of the collector per received span, durability disk against memory, alternating.

    python bench/bench_collector.py [--rounds N] [--spans N]

Each round starts a fresh collector for each variant, sends pre-serialised inference spans
(about 400 bytes, 11 attributes, 4 spans a trace) over OTLP/HTTP, waits until everything has
its verdict and is forwarded, and divides the process's CPU by the spans.  The received count
is checked against what was sent.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TICKS = os.sysconf("SC_CLK_TCK")
SPANS_PER_TRACE = 4


def body(spans: int, draw: random.Random) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    attribute = resource_spans.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", "bench"
    scope_spans = resource_spans.scope_spans.add()
    trace_id = b""
    for number in range(spans):
        span = scope_spans.spans.add()
        if number % SPANS_PER_TRACE == 0:
            trace_id = draw.randbytes(16)
        else:
            span.parent_span_id = b"\x01" * 8
        span.trace_id, span.span_id, span.name = trace_id, draw.randbytes(8), "chat tiny"
        span.start_time_unix_nano = 10**18
        span.end_time_unix_nano = 10**18 + int(draw.lognormvariate(17, 0.5))
        texts = {"gen_ai.provider.name": "openai", "gen_ai.operation.name": "chat",
                 "gen_ai.request.model": "tiny", "server.address": "10.0.0.1",
                 "user.tier": "gold", "region": "north", "build": "2026.12"}  # fmt: skip
        for key, text in texts.items():
            attribute = span.attributes.add()
            attribute.key, attribute.value.string_value = key, text
        for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "seed", "batch"):
            attribute = span.attributes.add()
            attribute.key, attribute.value.int_value = key, draw.randint(1, 4000)
    encoded: bytes = request.SerializeToString()
    return encoded


class Collector:
    def __init__(self, directory: Path, durability: str) -> None:
        settings = {
            "data_dir": str(directory / "data"),
            "durability": durability,
            "receivers": {
                "otlp_grpc": {"enabled": False},
                "otlp_http": {"endpoint": "127.0.0.1:0"},
            },
            "admin": {"endpoint": "127.0.0.1:0"},
            "sampling": {"settle_seconds": 0.1, "decision_wait_seconds": 0.5},
        }
        (directory / "collector.yaml").write_text(json.dumps(settings))
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mcptrace_collector", "run", "--config",
                 str(directory / "collector.yaml")],
                stderr=log,
            )  # fmt: skip
        while "is ready" not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        self.address = self._endpoint("otlp_http")

    def _endpoint(self, name: str) -> str:
        match = re.search(rf"{name} listens on (\S+)", self._log.read_text())
        assert match
        return match[1]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+)", status)
        return int(match[1]) / 1024 if match else 0.0

    def wait_until_done(self, spans: int) -> None:
        while True:
            with urllib.request.urlopen(f"http://{self._endpoint('admin')}/status") as answer:
                balance = json.load(answer)["balance"]
            if balance["held"] == 0 and not any(balance["queued"].values()):
                assert sum(balance["received"].values()) == spans, balance
                assert balance["exact"], balance
                return
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def measure(durability: str, bodies: list[bytes], spans: int) -> tuple[float, float, float]:
    """CPU µs a span, p99 of the client's call in ms, peak memory in MiB."""
    directory = Path(tempfile.mkdtemp())
    collector = Collector(directory, durability)
    try:
        before, calls = collector.cpu_seconds(), []
        connection = http.client.HTTPConnection(collector.address)
        for content in bodies:
            began = time.perf_counter()
            connection.request(
                "POST", "/v1/traces", content, {"Content-Type": "application/x-protobuf"}
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            calls.append(time.perf_counter() - began)
        connection.close()
        collector.wait_until_done(spans)
        cpu = collector.cpu_seconds() - before
        return cpu / spans * 1e6, statistics.quantiles(calls, n=100)[98] * 1e3, collector.peak_mib()
    finally:
        collector.stop()
        shutil.rmtree(directory)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--spans", type=int, default=20_000)
    options = arguments.parse_args()
    draw = random.Random(1)
    titles = ("spans/request", "durability", "CPU µs/span", "p99 call ms", "peak MiB")
    print("{:>14} {:<11}{:>12}{:>13}{:>10}".format(*titles))
    for per_request in (10, 100, 512):
        requests = max(2, options.spans // per_request // (10 if per_request == 10 else 1))
        bodies = [body(per_request, draw) for _ in range(requests)]
        samples: dict[str, list[tuple[float, float, float]]] = {"disk": [], "memory": []}
        for _ in range(options.rounds):
            for durability, values in samples.items():
                values.append(measure(durability, bodies, requests * per_request))
        for durability, values in samples.items():
            cpu, call, peak = (statistics.median(v[i] for v in values) for i in range(3))
            print(f"{per_request:>14} {durability:<11}{cpu:12.1f}{call:13.1f}{peak:10.0f}")


if __name__ == "__main__":
    main()
