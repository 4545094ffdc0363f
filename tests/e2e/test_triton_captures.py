"""What a real Triton server sent goes through the running collector, as it was sent."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CAPTURES = Path(__file__).parents[2] / "examples" / "triton_captures"
TYPES = {".json": "application/json", ".pb": "application/x-protobuf"}


def sent_spans(path: Path) -> list[Any]:
    """The spans of a capture as the official messages read them; JSON ids are hex there."""
    if path.suffix == ".pb":
        request = ExportTraceServiceRequest.FromString(path.read_bytes())
    else:
        request = json_format.Parse(
            path.read_text(), ExportTraceServiceRequest(), ignore_unknown_fields=True
        )
    return [s for r in request.resource_spans for ss in r.scope_spans for s in ss.spans]


def test_every_model_span_arrives_as_a_valid_inference_span_that_nothing_stretched(
    receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    running = collector(
        exporters={
            "peer": {"type": "otlp_grpc", "endpoint": receiver.grpc_endpoint, "insecure": True}
        }
    )
    bodies = [path for path in sorted(CAPTURES.iterdir()) if path.suffix in TYPES]
    sent = [span for path in bodies for span in sent_spans(path)]
    for path in bodies:
        connection = http.client.HTTPConnection(running.endpoint("otlp_http"), timeout=10)
        headers = {"Content-Type": TYPES[path.suffix]}
        connection.request("POST", "/v1/traces", path.read_bytes(), headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) in {(200, b""), (200, b"{}")}, path.name
        connection.close()
    received = wait_until(lambda: len(receiver.spans()) >= len(sent) and receiver.spans())
    spans = [span for _, _, span in received]

    def shape(span: Any) -> tuple[Any, ...]:
        events = tuple((event.name, event.time_unix_nano) for event in span.events)
        return (span.name, span.start_time_unix_nano, span.end_time_unix_nano, events)

    assert sorted(map(shape, spans)) == sorted(map(shape, sent)), "times and events as they came"
    model_spans = 0
    for span in spans:
        values = {attribute.key: attribute.value for attribute in span.attributes}
        if "triton.model_name" not in values:
            assert "mcptrace.model_name" not in values
            continue
        model_spans += 1
        assert "mcptrace.schema.violations" not in values
        assert values["mcptrace.model_name"] == values["triton.model_name"]
        assert values["mcptrace.protocol_version"].string_value == "v2.3"
        assert values["mcptrace.source.convention"].string_value == "triton"
        latency = values["mcptrace.inference_latency_ms"].double_value
        duration = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        assert 0 <= latency <= duration + 5
        for count in ("input", "output", "total"):
            assert values[f"mcptrace.token_usage.unknown.{count}"].string_value == "not_reported"
            assert f"mcptrace.token_usage.{count}" not in values
    assert model_spans > 20
    assert running.stop() == 0
