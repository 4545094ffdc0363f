"""The admin server over a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcptrace_collector.admin import AdminServer, prometheus_text
from mcptrace_collector.errors import ConfigError
from mcptrace_collector.telemetry import METRICS, Telemetry
from mcptrace_proto.schema import InferenceSpan


def _get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers["Content-Type"], answer.read()


def ask(
    *paths: str,
    not_ready: Callable[[], list[str]] = lambda: [],
    telemetry: Telemetry | None = None,
) -> list[tuple[int, str, bytes]]:
    """Start a server, ask for the paths, stop it."""
    telemetry = telemetry or Telemetry()

    async def session() -> list[tuple[int, str, bytes]]:
        server = AdminServer(
            "127.0.0.1:0",
            not_ready=not_ready,
            metrics=prometheus_text(telemetry),
            status=telemetry.snapshot,
        )
        await server.start()
        try:
            return [
                await asyncio.to_thread(_get, f"http://{server.endpoint}{path}") for path in paths
            ]
        finally:
            await server.shutdown()
            await server.shutdown()

    return asyncio.run(session())


def test_alive_and_ready_are_two_questions() -> None:
    alive, ready = ask("/healthz", "/readyz", not_ready=lambda: ["the store cannot be written"])
    assert (alive[0], json.loads(alive[2])) == (200, {"status": "alive"})
    assert (ready[0], json.loads(ready[2])) == (
        503,
        {"status": "not ready", "reasons": ["the store cannot be written"]},
    )


def test_ready_without_reasons() -> None:
    ((status, _, body),) = ask("/readyz")
    assert (status, json.loads(body)) == (200, {"status": "ready"})


def test_metrics_are_what_prometheus_reads() -> None:
    telemetry = Telemetry()
    telemetry.count("refused_requests_total", 2, transport="grpc", reason='odd "\n\\ reason')
    span = InferenceSpan(model_name="m", operation="chat", inference_latency_ms=50.0)
    telemetry.inference(span, error=False)
    ((status, content_type, body),) = ask("/metrics", telemetry=telemetry)
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert {m.full_name.removesuffix("_total") for m in METRICS} <= set(families)
    (refused,) = [
        sample
        for sample in families["mcptrace_collector_refused_requests"].samples
        if sample.name.endswith("_total")
    ]
    assert (refused.labels, refused.value) == (
        {"transport": "grpc", "reason": 'odd "\n\\ reason'},
        2.0,
    )
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["mcptrace_collector_inference_latency_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert (buckets["0.04"], buckets["0.08"], buckets["+Inf"]) == (0.0, 1.0, 1.0)


def test_status_is_the_snapshot() -> None:
    telemetry = Telemetry()
    telemetry.count("late_spans_total", 4)
    ((status, content_type, body),) = ask("/status", telemetry=telemetry)
    assert (status, content_type.partition(";")[0]) == (200, "application/json")
    assert json.loads(body) == json.loads(json.dumps(telemetry.snapshot()))


def test_other_paths_are_not_found() -> None:
    ((status, _, _),) = ask("/v1/traces")
    assert status == 404


def test_a_taken_address_is_a_configuration_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        server = AdminServer(endpoint, not_ready=list, metrics=lambda: b"", status=dict)
        with pytest.raises(ConfigError, match=f"admin.endpoint is '{endpoint}', which cannot be"):
            asyncio.run(server.start())
