"""What a span costs on the wire: microseconds to encode, decode, split, join and append.

    python bench/bench_wire.py

Requests of 100 spans with 13 attributes, about 600 bytes a span, as an inference service
sends them.  Each row is the best of several rounds; the whole takes a few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from mcptrace_proto import semconv, wire
from mcptrace_proto.json import decode_request_json, encode_request_json
from mcptrace_proto.model import (
    KIND_SERVER,
    STATUS_OK,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanData,
)

SPANS = 100
ROUND_SECONDS = 0.1
ROUNDS = 5
START_UNIX_NANO = 1_764_547_200_000_000_000


def span(number: int) -> SpanData:
    return SpanData(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=(number + 1).to_bytes(8, "big"),
        name="chat llama-3-8b-instruct",
        kind=KIND_SERVER,
        start_time_unix_nano=START_UNIX_NANO + number,
        end_time_unix_nano=START_UNIX_NANO + number + 1_250_000_000,
        status_code=STATUS_OK,
        trace_state="ot=th:f",
        flags=0x101,
        attributes={
            semconv.PROTOCOL_VERSION: "v2.3",
            semconv.MODEL_NAME: "llama-3-8b-instruct",
            semconv.MODEL_VERSION: "2026-10-01",
            semconv.INFERENCE_LATENCY_MS: 1250.25 + number,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.response.id": f"chatcmpl-{number:032x}",
            "gen_ai.request.temperature": 0.7,
            "gen_ai.usage.input_tokens": 1024 + number,
            "gen_ai.usage.output_tokens": 256,
            "server.address": "inference-7d9c5b6f4-x2v8q",
            "http.response.status_code": 200,
            "mcptrace.streaming": True,
        },
    )


def request() -> list[ResourceSpans]:
    resource = Resource({"service.name": "inference", "service.instance.id": "a" * 36})
    spans = [span(number) for number in range(SPANS)]
    return [ResourceSpans(resource, [ScopeSpans(Scope("mcptrace", "0.1.0"), spans)])]


def best_seconds(work: Callable[[], object]) -> float:
    """Seconds of one call: the best round of ROUNDS, each of ROUND_SECONDS."""
    best = float("inf")
    for _ in range(ROUNDS):
        calls = 0
        start = now = time.perf_counter()
        while now - start < ROUND_SECONDS:
            work()
            calls += 1
            now = time.perf_counter()
        best = min(best, (now - start) / calls)
    return best


def main() -> None:
    groups = request()
    body = wire.encode_request(groups)
    body_json = encode_request_json(groups)
    raw = wire.split_request(body)
    spans = groups[0].scope_spans[0].spans
    encoded = raw[0].spans
    audit = {"mcptrace.audit.leaf": "0" * 64, "mcptrace.audit.index": 123_456}
    appended = [wire.append_attributes(one, audit) for one in encoded]
    rows: dict[str, Callable[[], object]] = {
        "encode_span": lambda: [wire.encode_span(one) for one in spans],
        "decode_span": lambda: [wire.decode_span(one) for one in encoded],
        "encode_request": lambda: wire.encode_request(groups),
        "decode_request": lambda: wire.decode_request(body),
        "split_request": lambda: wire.split_request(body),
        "join_request": lambda: wire.join_request(raw),
        "append_attributes (2)": lambda: [wire.append_attributes(one, audit) for one in encoded],
        "remove_attributes (2)": lambda: [
            wire.remove_attributes(one, audit.keys()) for one in appended
        ],
        "set_trace_state": lambda: [wire.set_trace_state(one, "ot=th:e") for one in encoded],
        "encode_request_json": lambda: encode_request_json(groups),
        "decode_request_json": lambda: decode_request_json(body_json),
    }
    print(
        f"Python {sys.version.split()[0]}, {SPANS} spans, {len(spans[0].attributes)} attributes,"
        f" {len(body) // SPANS} bytes a span ({len(body_json) // SPANS} as JSON)"
    )
    print(f"{'':24}us/span")
    for name, work in rows.items():
        print(f"{name:24}{best_seconds(work) / SPANS * 1e6:7.2f}")


if __name__ == "__main__":
    main()
