"""Texts of environment variables as values.  Pure; every function raises ValueError.

The messages complete the sentence "NAME=value: ..." and say what would be accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

TRACES_PATH = "/v1/traces"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
SAMPLERS = (
    "mcptrace_adaptive",
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
INSTANT_MAX_SECONDS = 366 * 86400.0
"""No waiting time is longer than a year; also keeps infinities out."""


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    """Only true is true (environment variable specification, "Boolean value")."""
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def number(value: str) -> float:
    try:
        result = float(value)
    except ValueError:
        raise ValueError("expected a number") from None
    if not 0.0 <= result < float("inf"):
        raise ValueError("expected a finite number of 0 or more")
    return result


def positive_number(value: str) -> float:
    result = number(value)
    if result == 0.0:
        raise ValueError("expected a number above 0")
    return result


def probability(value: str) -> float:
    result = number(value)
    if not 0.0 < result <= 1.0:
        raise ValueError("expected a probability above 0, up to 1")
    return result


def natural(value: str) -> int:
    try:
        result = int(value)
    except ValueError:
        raise ValueError("expected a whole number") from None
    if result < 0:
        raise ValueError("expected a whole number of 0 or more")
    return result


def positive(value: str) -> int:
    result = natural(value)
    if result == 0:
        raise ValueError("expected a whole number of 1 or more")
    return result


def milliseconds(value: str) -> float:
    """Milliseconds, as seconds."""
    return seconds(number(value) / 1000.0)


def seconds(value: float) -> float:
    if not 0.0 <= value <= INSTANT_MAX_SECONDS:
        raise ValueError("expected a time between 0 and a year")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def parser(value: str) -> str:
        lowered = value.lower()
        if lowered not in choices:
            raise ValueError("expected one of " + ", ".join(choices) + nearest(lowered, choices))
        return lowered

    return parser


def key_values(value: str) -> dict[str, str]:
    """``k=v,k2=v2`` with URL-encoded values (Resource SDK, OTEL_RESOURCE_ATTRIBUTES)."""
    pairs: dict[str, str] = {}
    for part in value.split(","):
        if not part.strip():
            continue
        key, equals, content = part.partition("=")
        if not equals or not key.strip():
            raise ValueError("expected key=value pairs, separated by commas")
        pairs[unquote(key.strip())] = unquote(content.strip())
    return pairs


def headers(value: str) -> dict[str, str]:
    """Like ``key_values``; names lower-cased, and only what HTTP can carry after decoding."""
    pairs = {key.lower(): content for key, content in key_values(value).items()}
    for key, content in pairs.items():
        if any(not 32 <= ord(char) <= 255 for char in key + content):
            raise ValueError("expected headers of Latin-1 without control characters")
        if _HEADER_NAME.fullmatch(key) is None:
            raise ValueError(f"expected names of headers, not {key!r}")
    return pairs


def endpoint(value: str) -> str:
    """An http(s) address, or host:port (gRPC)."""
    address = value if "://" in value else "//" + value
    parts = urlsplit(address)
    if parts.scheme not in ("", "http", "https") or not parts.hostname:
        raise ValueError("expected http://host:port, https://host:port or host:port")
    if parts.port is not None and parts.port == 0:
        raise ValueError("expected a port between 1 and 65535")
    return value


def as_base(value: str) -> str:
    """Mark a base address: over HTTP the signal's path is appended to it."""
    return value.rstrip("/") + "/"


def as_is(value: str) -> str:
    """Mark the signal's own address: it is used as it is."""
    return value + "#"


def resolve_endpoint(value: str, protocol: str) -> str:
    """The address an exporter uses (OTLP exporter specification, "Endpoint URLs").

    >>> resolve_endpoint("http://collector:4318", "http/protobuf")
    'http://collector:4318/v1/traces'
    >>> resolve_endpoint("http://collector:4318/x/", "http/protobuf")
    'http://collector:4318/x/v1/traces'
    >>> resolve_endpoint("http://collector:4318/own", "http/protobuf")
    'http://collector:4318/own'
    """
    if protocol == "grpc":
        return value.rstrip("#/") or "http://localhost:4317"
    if not value:
        return "http://localhost:4318" + TRACES_PATH
    if "://" not in value:
        value = "http://" + value
    if value.endswith("#"):  # without a path, the root path
        return value[:-1] if urlsplit(value[:-1]).path else value[:-1] + "/"
    if value.endswith("/") or not urlsplit(value).path:
        return value.rstrip("/") + TRACES_PATH
    return value


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or nothing."""
    import difflib  # only for a message; keeps the import of the package light

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def argument(value: Any, parser: Callable[[str], object], unit: str) -> object:
    """Check a value given in code with the rules for its variable.

    Numbers in seconds are seconds here, not milliseconds; mappings are taken as they are.
    """
    if isinstance(value, Mapping):
        if parser not in (key_values, headers):
            raise ValueError("expected no mapping")
        if parser is headers:
            return {str(key).lower(): str(content) for key, content in value.items()}
        return dict(value)
    if isinstance(value, bool):
        if parser is not boolean:
            raise ValueError("expected no true or false")
        return value
    if parser is milliseconds:
        return seconds(number(str(value)))
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected {unit or 'text'}, not {type(value).__name__}")
    return parser(str(value))
