from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan
from mcptrace.config import load_config
from mcptrace.exporters import build_exporter
from mcptrace.exporters.console import ConsoleExporter
from mcptrace.exporters.otlp import OtlpExporter

Make = Callable[..., FinishedSpan]


def test_each_batch_is_one_line_of_otlp_json(
    finished: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    exporter = ConsoleExporter()
    assert exporter.export([finished("a"), finished("b")], 1.0) == ExportResult(
        ExportOutcome.DELIVERED
    )
    exporter.export([finished("c")], 1.0)
    exporter.shutdown()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [
        [span["name"] for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        for line in lines
    ]
    assert names == [["a", "b"], ["c"]]


def test_closed_stream_is_a_rejected_batch(finished: Make) -> None:
    stream = io.StringIO()
    stream.close()
    result = ConsoleExporter(stream).export([finished()], 1.0)
    assert result.outcome is ExportOutcome.REJECTED


def test_span_that_cannot_be_encoded_is_counted(finished: Make) -> None:
    span = finished(attributes={"o": object()})
    result = ConsoleExporter(io.StringIO()).export([span], 1.0)
    assert dict(result.dropped) == {"encode": 1}


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, ConsoleExporter),
        ({}, OtlpExporter),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, OtlpExporter),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, OtlpExporter),
    ],
)
def test_configuration_names_the_exporter(variables: dict[str, str], kind: type) -> None:
    assert type(build_exporter(load_config(environment=variables))) is kind
