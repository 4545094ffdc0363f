from __future__ import annotations

from pathlib import Path

import pytest

from mcptrace_collector.clock import SystemClock
from mcptrace_collector.config import ExporterConfig
from mcptrace_collector.exporters import (
    JsonLinesExporter,
    OtlpGrpcExporter,
    OtlpHttpExporter,
    build_exporter,
)
from mcptrace_collector.exporters.build import grpc_target, traces_url


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ExporterConfig(type="otlp_http", endpoint="http://127.0.0.1:4318"), OtlpHttpExporter),
        (ExporterConfig(type="otlp_grpc", endpoint="127.0.0.1:4317"), OtlpGrpcExporter),
    ],
)
def test_every_type_has_its_exporter(config: ExporterConfig, kind: type) -> None:
    assert type(build_exporter("peer", config, SystemClock())) is kind


def test_building_opens_nothing(tmp_path: Path) -> None:
    config = ExporterConfig(type="json_lines", path=str(tmp_path / "spans.jsonl"))
    assert type(build_exporter("file", config, SystemClock())) is JsonLinesExporter
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("https://host/", "https://host/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
        ("https://host?key=1", "https://host/v1/traces?key=1"),
    ],
)
def test_only_a_url_without_path_gets_one(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("host:4317", "host:4317"),
        ("[::1]:4317", "[::1]:4317"),
        ("https://host", "host:4317"),
        ("http://host:1234", "host:1234"),
        ("http://[::1]:1234/", "[::1]:1234"),
    ],
)
def test_a_grpc_endpoint_may_be_a_url(endpoint: str, target: str) -> None:
    assert grpc_target(endpoint) == target
