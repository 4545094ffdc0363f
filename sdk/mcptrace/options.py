"""``NewTracer(WithServiceName("chat"), WithVersion("v2.3"), ...)``: tracing set up by options.

Every option only names a setting; what it means is said at the field of SdkConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mcptrace.config import ConfigError, SdkConfig, load_config
from mcptrace.delivery import SpanFilter
from mcptrace.provider import TracerProvider
from mcptrace.sampling import build_sampler
from mcptrace.tracer import Tracer
from mcptrace_proto.semconv import PROTOCOL_VERSION_VALUE

SCOPE = "mcptrace"


@dataclass(slots=True, frozen=True)
class Option:
    """One setting by name; ``many`` options of a name are collected."""

    name: str
    value: Any
    many: bool = False


def WithServiceName(name: str) -> Option:
    return Option("service_name", name)


def WithVersion(version: str) -> Option:
    """The version of the protocol that the spans speak; only v2.3 exists."""
    return Option("version", version)


def WithSpanFilter(keep: SpanFilter) -> Option:
    """``keep(span)`` sees every sampled span (a SpanData); False drops it."""
    return Option("span_filter", keep)


def WithEndpoint(endpoint: str) -> Option:
    return Option("endpoint", endpoint)


def WithProtocol(protocol: str) -> Option:
    return Option("protocol", protocol)


def WithHeaders(headers: Mapping[str, str]) -> Option:
    return Option("headers", headers)


def WithSampler(sampler: Any) -> Option:
    """A name (see SdkConfig.sampler), a Sampler, or a sampler of the stock SDK."""
    return Option("sampler", sampler)


def WithExporter(exporter: Any) -> Option:
    """An exporter of ours or of the stock SDK, instead of the configured one."""
    return Option("exporter", exporter)


def WithProcessor(processor: Any) -> Option:
    """A further processor, of ours or of the stock SDK."""
    return Option("processors", processor, many=True)


def WithResource(attributes: Mapping[str, str]) -> Option:
    return Option("resource_attributes", attributes)


def WithSchemaEnforcement(level: str) -> Option:
    return Option("schema_enforcement", level)


def WithTimeoutLimit(milliseconds: float) -> Option:
    return Option("timeout_limit_ms", milliseconds)


def WithSetting(name: str, value: Any) -> Option:
    """Any other field of SdkConfig."""
    return Option(name, value)


def NewTracer(*options: Option) -> Tracer:
    """A tracer with a provider of its own; the global provider is left alone.

    Raises ConfigError for an option that cannot be used.
    """
    arguments: dict[str, Any] = {}
    for option in options:
        if not isinstance(option, Option):
            raise ConfigError(f"{option!r} is no option; use WithServiceName(...) and the like")
        if option.many:
            arguments.setdefault(option.name, []).append(option.value)
        else:
            arguments[option.name] = option.value
    return build_provider(arguments).get_tracer(SCOPE)


class _Parts(NamedTuple):
    """Arguments taken apart and checked: settings by name, and objects."""

    settings: dict[str, Any]
    sampler: Any
    exporter: Any
    processors: tuple[Any, ...]
    span_filter: SpanFilter | None


def build_provider(arguments: Mapping[str, Any]) -> TracerProvider:
    """A provider from arguments by name.  Raises ConfigError."""
    parts = _parts(arguments)
    return TracerProvider(
        load_config(parts.settings),
        sampler=parts.sampler,
        exporter=parts.exporter,
        processors=parts.processors,
        span_filter=parts.span_filter,
    )


def unheeded(
    arguments: Mapping[str, Any], first: Mapping[str, Any], config: SdkConfig
) -> list[str]:
    """Names of the arguments that ask for something else than a provider that is there.

    It was built from the arguments ``first`` and has ``config``.  Raises ConfigError for
    arguments that could not be used in any case.
    """
    asked, built = _parts(arguments), _parts(first)
    settings = {name: value for name, value in asked.settings.items() if value is not None}
    # No environment: it was read, and complained of, the first time.
    wanted = load_config({"protocol": config.protocol, **settings}, {})
    build_sampler(wanted, asked.sampler)
    names = [name for name in settings if getattr(wanted, name) != getattr(config, name)]
    for name in ("sampler", "exporter", "span_filter"):
        part = getattr(asked, name)
        if part is not None and part is not getattr(built, name):
            names.append(name)
    if any(all(part is not other for other in built.processors) for part in asked.processors):
        names.append("processors")
    return sorted(names)


def _parts(arguments: Mapping[str, Any]) -> _Parts:
    """Raises ConfigError for an object that is not what it is given as."""
    given = dict(arguments)
    version = given.pop("version", None) or PROTOCOL_VERSION_VALUE
    if version != PROTOCOL_VERSION_VALUE:
        raise ConfigError(f"version={version!r}: this package speaks {PROTOCOL_VERSION_VALUE} only")
    span_filter = given.pop("span_filter", None)
    if span_filter is not None and not callable(span_filter):
        raise ConfigError(f"span_filter={span_filter!r}: expected a function of a span")
    exporter = given.pop("exporter", None)
    processors = tuple(given.pop("processors", None) or ())
    sampler = given.get("sampler")
    if sampler is not None and not isinstance(sampler, str):
        given.pop("sampler")
    else:
        sampler = None
    for what, parts, methods in (
        ("exporter", [exporter] if exporter is not None else [], ("export", "shutdown")),
        ("processors", processors, ("on_start", "on_end", "shutdown")),
    ):
        for part in parts:
            missing = [name for name in methods if not callable(getattr(part, name, None))]
            if missing:
                raise ConfigError(f"{what}: {part!r} has no {' and no '.join(missing)}")
    return _Parts(given, sampler, exporter, processors, span_filter)
