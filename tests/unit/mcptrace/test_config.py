"""Argument, then environment, then default; and what happens to bad values."""

from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from mcptrace.config import ConfigError, SdkConfig, describe, load_config
from mcptrace.parse import resolve_endpoint


def test_with_nothing_given_the_defaults_stand() -> None:
    assert load_config({}, {}) == load_config(None, {})
    config = load_config({}, {})
    assert config.endpoint == "http://localhost:4318/v1/traces"
    assert (config.protocol, config.sampler) == ("http/protobuf", "mcptrace_adaptive")


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("OTEL_SERVICE_NAME", "chat", "service_name", "chat"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=x%20y", "resource_attributes", {"a": "1", "b": "x y"}),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=s", "service_name", "s"),
        ("OTEL_SDK_DISABLED", "TRUE", "disabled", True),
        ("OTEL_TRACES_EXPORTER", "console", "traces_exporter", "console"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "protocol", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%3Db", "headers", {"api-key": "a=b"}),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "compression", "gzip"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500", "timeout_seconds", 2.5),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem", "certificate", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k.pem", "client_key", "/k.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c.pem", "client_certificate", "/c.pem"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true", "insecure", True),
        ("OTEL_BSP_SCHEDULE_DELAY", "200", "schedule_delay_seconds", 0.2),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1000", "export_timeout_seconds", 1.0),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "4096", "queue_spans_max", 4096),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "64", "batch_spans_max", 64),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3", "attributes_max", 3),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "4", "attributes_max", 4),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "4", "event_attributes_max", 4),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "99", "attribute_length_max", 99),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "5", "events_max", 5),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "6", "links_max", 6),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "sampler", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25", "sampler_arg", 0.25),
    ],
)
def test_the_specified_variables_are_read(
    variable: str, text: str, field: str, value: object
) -> None:
    assert getattr(load_config({}, {variable: text}), field) == value


def test_an_argument_beats_the_environment_and_the_traces_variable_beats_the_common_one() -> None:
    environment = {
        "OTEL_SERVICE_NAME": "from-environment",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2000",
    }
    config = load_config({"service_name": "from-code", "timeout_seconds": None}, environment)
    assert (config.service_name, config.timeout_seconds) == ("from-code", 2.0)


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/mine"}, "https://c/mine/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, "http://c:4318/"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own/"}, "http://c/own/"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://base",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own",
            },
            "http://c/own",
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1"},
            "https://c:1",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://localhost:4317"),
    ],
)
def test_endpoints_follow_the_specification(environment: dict[str, str], endpoint: str) -> None:
    assert load_config({}, environment).endpoint == endpoint


def test_an_address_in_code_is_a_base_unless_it_has_a_path() -> None:
    assert load_config({"endpoint": "http://c:4318"}, {}).endpoint == "http://c:4318/v1/traces"
    assert load_config({"endpoint": "http://c:4318/own"}, {}).endpoint == "http://c:4318/own"
    assert resolve_endpoint("c:4317", "grpc") == "c:4317"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "abc"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "inf"),
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_TRACES_SAMPLER", "traceidratoi"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0D%0Ac"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api key=b"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=\u2603"),
        ("MCPTRACE_TARGET_PER_SECOND", "0"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://c"),
        ("OTEL_RESOURCE_ATTRIBUTES", "novalue"),
        ("MCPTRACE_RATE_MAX", "2"),
    ],
)
def test_a_bad_variable_is_logged_once_and_the_default_stands(
    variable: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mcptrace"):
        assert load_config({}, {variable: text}) == load_config({}, {})
    assert len(caplog.records) == 1
    assert variable in caplog.text


def test_a_variable_that_is_no_probability_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio"}
    with caplog.at_level(logging.WARNING, logger="mcptrace"):
        config = load_config({}, {**ratio, "OTEL_TRACES_SAMPLER_ARG": "5"})
    assert config == load_config({}, ratio)
    assert "OTEL_TRACES_SAMPLER_ARG" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"servce_name": "x"}, "unknown setting 'servce_name'; did you mean 'service_name'"),
        ({"protocol": "http"}, "protocol='http': expected one of http/protobuf"),
        ({"queue_spans_max": 0}, "queue_spans_max=0: expected a whole number of 1 or more"),
        ({"timeout_seconds": -1}, "timeout_seconds=-1: expected"),
        ({"timeout_seconds": True}, "timeout_seconds=True: expected no true or false"),
        ({"service_name": ["x"]}, r"service_name=\['x'\]: expected text, not list"),
        ({"rate_min": 0.5, "rate_max": 0.1}, "rate_min=0.5 is above rate_max=0.1"),
        ({"endpoint": "http://"}, "endpoint='http://': expected http://host:port"),
        ({"service_name": {"a": 1}}, "expected no mapping"),
        ({"target_per_second": 0}, "target_per_second=0: expected a number above 0"),
    ],
)
def test_a_bad_argument_is_refused_with_what_would_do(
    arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_config(arguments, {})


def test_times_in_code_are_seconds_and_mappings_are_copied() -> None:
    headers = {"X-Key": "v"}
    config = load_config({"timeout_seconds": 2, "headers": headers}, {})
    headers["late"] = "x"
    assert (config.timeout_seconds, config.headers) == (2.0, {"x-key": "v"})


def test_a_batch_is_never_larger_than_the_queue() -> None:
    assert load_config({"queue_spans_max": 10}, {}).batch_spans_max == 10


def test_every_setting_is_described_for_the_reference() -> None:
    settings = list(describe())
    assert [item.name for item in settings] == list(SdkConfig.__dataclass_fields__)
    assert all(item.doc.endswith(".") for item in settings)
    names = [name for item in settings for name in item.env]
    assert all(name.startswith(("OTEL_", "MCPTRACE_")) for name in names)


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        load_config({}, {}).service_name = "other"  # type: ignore[misc]
