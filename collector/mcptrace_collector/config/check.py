"""What single fields cannot say: settings that must agree with each other or with the disk.

Raises ConfigError only.  Touches the disk only to see that named files can be read.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcptrace_collector.errors import ConfigError

from .setting import fields_of
from .tree import CollectorConfig, ExporterConfig, ReceiverConfig


def check(config: CollectorConfig, source: str) -> None:
    """Refuse a tree that cannot be run; ``source`` is what the operator would edit."""
    try:
        _check_receiver("receivers.otlp_grpc", config.receivers.otlp_grpc)
        _check_receiver("receivers.otlp_http", config.receivers.otlp_http)
        parse_endpoint("admin.endpoint", config.admin.endpoint)
        _check_same_port(config)
        _check_sampling(config)
        for name, exporter in config.exporters.items():
            _check_exporter(f"exporters.{name}", exporter)
        _check_paths(config)
        _check_files("", config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def parse_endpoint(path: str, endpoint: str) -> tuple[str, int]:
    """``host:port`` taken apart; IPv6 addresses stand in brackets.  Raises ConfigError."""
    host, _, port = endpoint.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(
            f"{path} is {endpoint!r}, but must be host:port, such as 127.0.0.1:4317, [::1]:4317, "
            f"or 0.0.0.0:4317 for all addresses"
        )
    return host, int(port)


def join_endpoint(host: str, port: int) -> str:
    """The ``host:port`` that parse_endpoint takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine can reach.  Names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_receiver(path: str, receiver: ReceiverConfig) -> None:
    host, _ = parse_endpoint(f"{path}.endpoint", receiver.endpoint)
    if (
        receiver.enabled
        and receiver.tls is None
        and not receiver.insecure
        and not is_loopback(host)
    ):
        raise ConfigError(
            f"{path}.endpoint is {receiver.endpoint!r}, which other machines can reach, and there "
            f"is no {path}.tls; add it, or say {path}.insecure: true on purpose"
        )


def _check_same_port(config: CollectorConfig) -> None:
    taken: dict[tuple[str, int], str] = {}
    for path, server in (
        ("receivers.otlp_grpc", config.receivers.otlp_grpc),
        ("receivers.otlp_http", config.receivers.otlp_http),
        ("admin", config.admin),
    ):
        address = parse_endpoint(path, server.endpoint)
        if not server.enabled or address[1] == 0:
            continue
        if address in taken:
            raise ConfigError(
                f"{path}.endpoint is {server.endpoint!r}, and so is {taken[address]}.endpoint; "
                f"give each its own port"
            )
        taken[address] = path


def _check_sampling(config: CollectorConfig) -> None:
    sampling = config.sampling
    if sampling.rate_min > sampling.rate_max:
        raise ConfigError(
            f"sampling.rate_min is {sampling.rate_min}, above sampling.rate_max, which is "
            f"{sampling.rate_max}; lower the first or raise the second"
        )


def _check_exporter(path: str, exporter: ExporterConfig) -> None:
    if exporter.retry_initial_seconds > exporter.retry_max_seconds:
        raise ConfigError(
            f"{path}.retry_initial_seconds is {exporter.retry_initial_seconds}, above "
            f"{path}.retry_max_seconds, which is {exporter.retry_max_seconds}"
        )
    if exporter.type == "json_lines":
        if not exporter.path:
            raise ConfigError(f"{path}.path is missing; name the file to write, or another type")
        if exporter.endpoint:
            raise ConfigError(f"{path}.endpoint means nothing for json_lines; remove it")
        return
    if exporter.path:
        raise ConfigError(f"{path}.path is for json_lines only; remove it, or use that type")
    _check_headers(path, exporter)
    host = _exporter_host(f"{path}.endpoint", exporter)
    if exporter.plaintext and exporter.tls is not None:
        raise ConfigError(
            f"{path} has tls, but sends plain text by its endpoint {exporter.endpoint!r} or by "
            f"insecure; use https:// or remove tls"
        )
    if exporter.plaintext and not exporter.insecure and not is_loopback(host):
        raise ConfigError(
            f"{path}.endpoint is {exporter.endpoint!r}, to which spans would travel in plain text; "
            f"use https://, or say {path}.insecure: true on purpose"
        )
    tls = exporter.tls
    if tls is not None and (tls.cert_file is None) != (tls.key_file is None):
        raise ConfigError(f"{path}.tls needs cert_file and key_file together, or neither")


def _check_headers(path: str, exporter: ExporterConfig) -> None:
    for name in exporter.headers:
        if not name or not name.isascii() or any(c.isspace() or c == ":" for c in name):
            raise ConfigError(f"{path}.headers has the name {name!r}, which is no header name")


def _exporter_host(path: str, exporter: ExporterConfig) -> str:
    endpoint = exporter.endpoint
    if not endpoint:
        raise ConfigError(f"{path} is missing; say where {exporter.type} sends to")
    if "://" not in endpoint and exporter.type == "otlp_grpc":
        return parse_endpoint(path, endpoint)[0]
    wrong = ConfigError(
        f"{path} is {_without_userinfo(endpoint)!r}, but must be a URL such as "
        f"https://backend.example:4318 (http:// or https://)"
    )
    try:
        url = urlsplit(endpoint)
        host, _ = url.hostname, url.port
    except ValueError:
        raise wrong from None
    if url.scheme not in ("http", "https") or not host:
        raise wrong
    if url.username is not None or url.password is not None:
        raise ConfigError(f"{path} carries a user or password; put credentials into headers")
    if exporter.type == "otlp_grpc" and (url.path.strip("/") or url.query):
        raise ConfigError(f"{path} is {endpoint!r}, but an otlp_grpc endpoint has no path")
    return host


def _without_userinfo(endpoint: str) -> str:
    head, at, tail = endpoint.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else endpoint


def _check_paths(config: CollectorConfig) -> None:
    if not config.data_dir:
        raise ConfigError("data_dir is empty; name a directory")
    if Path(config.data_dir).exists() and not Path(config.data_dir).is_dir():
        raise ConfigError(f"data_dir is {config.data_dir!r}, which is not a directory")
    written: dict[Path, str] = {}
    for name, exporter in config.exporters.items():
        if exporter.type != "json_lines":
            continue
        file = Path(exporter.path).absolute()
        if file in written:
            raise ConfigError(
                f"exporters.{name}.path is {exporter.path!r}, and so is "
                f"exporters.{written[file]}.path; give each its own file"
            )
        written[file] = name


def _check_files(path: str, section: Any) -> None:
    for field in fields_of(type(section)):
        value = getattr(section, field.name)
        where = f"{path}.{field.name}" if path else field.name
        if field.setting.file and value is not None:
            try:
                with Path(value).open("rb"):
                    pass
            except OSError as error:
                raise ConfigError(
                    f"{where} is {value!r}, which cannot be read: {error.strerror}"
                ) from error
        elif field.entries is not None:
            for name, entry in value.items():
                _check_files(f"{where}.{name}", entry)
        elif dataclasses.is_dataclass(value):
            _check_files(where, value)
