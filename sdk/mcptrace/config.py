"""What can be set: one frozen record, each field with its doc, unit and environment names.

The only reader of OTEL_* and MCPTRACE_* variables, and only when ``load_config`` is called.
Precedence: argument, then environment (names in the order listed), then default.  A bad
argument raises ConfigError; a bad variable is logged once and the default stands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from mcptrace import parse

logger = logging.getLogger("mcptrace")


class ConfigError(ValueError):
    """An argument that cannot be used.  Raised at construction only."""


@dataclass(slots=True, frozen=True)
class Setting:
    """One line of the reference: what ``describe`` yields and docs are generated from."""

    name: str
    doc: str
    unit: str
    env: tuple[str, ...]
    default: object


def _setting(
    default: Any, doc: str, parser: Callable[[str], object], env: str = "", unit: str = ""
) -> Any:
    metadata = {"doc": doc, "unit": unit, "env": tuple(env.split()), "parser": parser}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(slots=True, frozen=True)
class SdkConfig:
    """Settings of one tracer provider.  Build it with ``load_config``."""

    service_name: str = _setting(
        "unknown_service:python",
        "Name of the service; service.name of the resource.",
        parse.text,
        "OTEL_SERVICE_NAME",
    )
    resource_attributes: Mapping[str, str] = _setting(
        {}, "Further resource attributes.", parse.key_values, "OTEL_RESOURCE_ATTRIBUTES"
    )
    disabled: bool = _setting(False, "Trace nothing at all.", parse.boolean, "OTEL_SDK_DISABLED")
    traces_exporter: str = _setting(
        "otlp",
        "Where spans go: otlp, console or none.",
        parse.one_of("otlp", "console", "none"),
        "OTEL_TRACES_EXPORTER",
    )
    protocol: str = _setting(
        "http/protobuf",
        "OTLP transport: http/protobuf, http/json or grpc.",
        parse.one_of("http/protobuf", "http/json", "grpc"),
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL OTEL_EXPORTER_OTLP_PROTOCOL",
    )
    endpoint: str = _setting(
        "",
        "Receiver.  A base address without a path gets /v1/traces over HTTP; the variable "
        "OTEL_EXPORTER_OTLP_ENDPOINT is always a base.  Empty: localhost, 4318 or 4317.",
        parse.endpoint,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    headers: Mapping[str, str] = _setting(
        {},
        "Headers (gRPC: metadata) sent with every export; k=v,k2=v2, values URL-encoded.",
        parse.headers,
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_HEADERS",
    )
    compression: str = _setting(
        "none",
        "Compression of exports: none or gzip.",
        parse.one_of("none", "gzip"),
        "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION OTEL_EXPORTER_OTLP_COMPRESSION",
    )
    timeout_seconds: float = _setting(
        10.0,
        "Longest time for one export request; the variables are in milliseconds.",
        parse.milliseconds,
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT OTEL_EXPORTER_OTLP_TIMEOUT",
        "seconds",
    )
    certificate: str = _setting(
        "",
        "File of trusted certificates (PEM).",
        parse.text,
        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE OTEL_EXPORTER_OTLP_CERTIFICATE",
    )
    client_key: str = _setting(
        "",
        "File of the client's private key (PEM).",
        parse.text,
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY OTEL_EXPORTER_OTLP_CLIENT_KEY",
    )
    client_certificate: str = _setting(
        "",
        "File of the client's certificate (PEM).",
        parse.text,
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    )
    insecure: bool = _setting(
        False,
        "gRPC without TLS where the endpoint names no scheme; such an endpoint is TLS "
        "otherwise, on loopback too.",
        parse.boolean,
        "OTEL_EXPORTER_OTLP_TRACES_INSECURE OTEL_EXPORTER_OTLP_INSECURE",
    )
    schedule_delay_seconds: float = _setting(
        5.0,
        "Longest time a span waits for its batch; the variable is in milliseconds.",
        parse.milliseconds,
        "OTEL_BSP_SCHEDULE_DELAY",
        "seconds",
    )
    export_timeout_seconds: float = _setting(
        30.0,
        "Longest time for one batch with its retries; the variable is in milliseconds.",
        parse.milliseconds,
        "OTEL_BSP_EXPORT_TIMEOUT",
        "seconds",
    )
    queue_spans_max: int = _setting(
        2048,
        "Spans waiting for export; further ones are dropped and counted.",
        parse.positive,
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "spans",
    )
    batch_spans_max: int = _setting(
        512,
        "Spans in one export; at most queue_spans_max.",
        parse.positive,
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "spans",
    )
    request_bytes_max: int = _setting(
        3_500_000,
        "Size of one export before compression; a larger batch is split.",
        parse.positive,
        "MCPTRACE_REQUEST_BYTES_MAX",
        "bytes",
    )
    queue_bytes_max: int = _setting(
        64 * 1024 * 1024,
        "Estimated bytes of spans waiting for export.",
        parse.positive,
        "MCPTRACE_QUEUE_BYTES_MAX",
        "bytes",
    )
    shutdown_timeout_seconds: float = _setting(
        5.0,
        "Longest time the exit of the program waits for spans to leave.",
        parse.milliseconds,
        "MCPTRACE_SHUTDOWN_TIMEOUT",
        "seconds",
    )
    attributes_max: int = _setting(
        128,
        "Attributes of a span.",
        parse.natural,
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT OTEL_ATTRIBUTE_COUNT_LIMIT",
        "attributes",
    )
    attribute_length_max: int | None = _setting(
        None,
        "Length of a string value; longer ones are cut.  Empty: no limit.",
        parse.natural,
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "characters",
    )
    events_max: int = _setting(
        128, "Events of a span.", parse.natural, "OTEL_SPAN_EVENT_COUNT_LIMIT", "events"
    )
    links_max: int = _setting(
        128, "Links of a span.", parse.natural, "OTEL_SPAN_LINK_COUNT_LIMIT", "links"
    )
    event_attributes_max: int = _setting(
        128,
        "Attributes of one event.",
        parse.natural,
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT OTEL_ATTRIBUTE_COUNT_LIMIT",
        "attributes",
    )
    link_attributes_max: int = _setting(
        128,
        "Attributes of one link.",
        parse.natural,
        "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT OTEL_ATTRIBUTE_COUNT_LIMIT",
        "attributes",
    )
    sampler: str = _setting(
        "mcptrace_adaptive",
        "mcptrace_adaptive, always_on, always_off, traceidratio, or parentbased_ and one of "
        "the last three.",
        parse.one_of(*parse.SAMPLERS),
        "OTEL_TRACES_SAMPLER",
    )
    sampler_arg: float | None = _setting(
        None,
        "Probability for traceidratio (default 1), target for mcptrace_adaptive.",
        parse.number,
        "OTEL_TRACES_SAMPLER_ARG",
        "probability, or traces per second",
    )
    target_per_second: float = _setting(
        10.0,
        "Traces the adaptive sampler aims to keep, beside the critical ones.",
        parse.positive_number,
        "MCPTRACE_TARGET_PER_SECOND",
        "traces per second",
    )
    rate_min: float = _setting(
        0.001, "Lowest adaptive rate.", parse.probability, "MCPTRACE_RATE_MIN", "probability"
    )
    rate_max: float = _setting(
        0.1, "Highest adaptive rate.", parse.probability, "MCPTRACE_RATE_MAX", "probability"
    )
    timeout_limit_ms: float | None = _setting(
        None,
        "An inference that took longer counts as a timeout and is kept.  Empty: no limit.",
        parse.number,
        "MCPTRACE_TIMEOUT_LIMIT",
        "milliseconds",
    )
    schema_enforcement: str = _setting(
        "warn",
        "What happens to an inference span that breaks the schema: strict (not exported), "
        "warn (exported, marked) or off.",
        parse.one_of("strict", "warn", "off"),
        "MCPTRACE_SCHEMA_ENFORCEMENT",
    )
    local_trace_spans_max: int = _setting(
        2048,
        "Finished spans one undecided trace may hold; then it is decided early.",
        parse.positive,
        "MCPTRACE_LOCAL_TRACE_SPANS_MAX",
        "spans",
    )
    local_traces_bytes_max: int = _setting(
        32 * 1024 * 1024,
        "Estimated bytes all undecided traces may hold; then the next one is decided early.",
        parse.positive,
        "MCPTRACE_LOCAL_TRACES_BYTES_MAX",
        "bytes",
    )
    capture_content: bool = _setting(
        False,
        "Let adapters record prompts and answers.  Messages and stack traces of exceptions are "
        "exported in any case, as OpenTelemetry prescribes: this does not govern them.",
        parse.boolean,
        "MCPTRACE_CAPTURE_CONTENT",
    )
    disabled_instrumentations: str = _setting(
        "",
        "Instrumentations that mcptrace-run leaves alone: names separated by commas, or * .",
        parse.text,
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS",
    )


def describe() -> Iterator[Setting]:
    """Every setting in order, for generated documentation."""
    defaults = SdkConfig()
    for item in fields(SdkConfig):
        yield Setting(
            item.name,
            item.metadata["doc"],
            item.metadata["unit"],
            item.metadata["env"],
            getattr(defaults, item.name),
        )


def load_config(
    arguments: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> SdkConfig:
    """Merge arguments over the environment (default: this process's) over defaults.

    Arguments that are None count as not given.  Raises ConfigError for an unknown name or
    a value of the wrong kind.
    """
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    variables = os.environ if environment is None else environment
    known = {item.name for item in fields(SdkConfig)}
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{parse.nearest(name, known)}")
    values: dict[str, Any] = {}
    for item in fields(SdkConfig):
        if item.name in given:
            values[item.name] = _checked_argument(item, given[item.name])
        else:
            values.update(_from_environment(item, variables))
    return _reconcile(values, given)


def _checked_argument(item: Field[Any], value: Any) -> object:
    try:
        return parse.argument(value, item.metadata["parser"], item.metadata["unit"])
    except ValueError as error:
        raise ConfigError(f"{item.name}={value!r}: {error}") from None


def _from_environment(item: Field[Any], variables: Mapping[str, str]) -> dict[str, object]:
    for name in item.metadata["env"]:
        text = variables.get(name, "").strip()
        if not text:
            continue
        try:
            value = item.metadata["parser"](text)
        except ValueError as error:
            logger.warning("mcptrace: %s=%r: %s; the default is used", name, text, error)
            return {}
        if name == "OTEL_EXPORTER_OTLP_ENDPOINT":
            return {item.name: parse.as_base(str(value))}
        if name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":
            return {item.name: parse.as_is(str(value))}
        return {item.name: value}
    return {}


def _reconcile(values: dict[str, Any], given: Mapping[str, Any]) -> SdkConfig:
    """Rules between fields: the endpoint follows the protocol, batch fits the queue."""
    attributes = values.get("resource_attributes", {})
    if "service_name" not in values and attributes.get("service.name"):
        values["service_name"] = attributes["service.name"]
    config = SdkConfig(**values)
    changes: dict[str, Any] = {
        "endpoint": parse.resolve_endpoint(config.endpoint, config.protocol),
        "batch_spans_max": min(config.batch_spans_max, config.queue_spans_max),
    }
    if config.rate_min > config.rate_max:
        if "rate_min" in given or "rate_max" in given:
            raise ConfigError(f"rate_min={config.rate_min} is above rate_max={config.rate_max}")
        logger.warning("mcptrace: MCPTRACE_RATE_MIN is above MCPTRACE_RATE_MAX; defaults are used")
        changes |= {"rate_min": 0.001, "rate_max": 0.1}
    if config.sampler.endswith("traceidratio") and (config.sampler_arg or 0.0) > 1.0:
        if "sampler_arg" in given:
            raise ConfigError(f"sampler_arg={config.sampler_arg}: expected a probability, 0 to 1")
        logger.warning("mcptrace: OTEL_TRACES_SAMPLER_ARG is no probability; the default is used")
        changes["sampler_arg"] = None
    return SdkConfig(**{**values, **changes})
