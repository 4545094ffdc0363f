"""Loading: argument over environment over file over default, then checked.

The only place of the collector that reads the environment and its configuration file.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcptrace_collector.errors import ConfigError

from .check import check
from .node import Section, Text, parse_yaml, put
from .read import read_section
from .setting import scalar_paths
from .substitute import substitute
from .tree import CollectorConfig

log = logging.getLogger(__name__)

ENV_PREFIX = "MCPTRACE_COLLECTOR_"
CONFIG_BYTES_MAX = 1 << 20

# What an orchestrator sets by itself in every container for a service named mcptrace-collector.
_SERVICE_DISCOVERY = re.compile(r"SERVICE_(HOST|PORT.*)|PORT(_.*)?")


def load(
    file: Path | None = None,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> CollectorConfig:
    """Build the configuration; without a file the defaults are good to run.

    ``arguments`` are ``path.of.key=value``.  ``environ`` is the process's unless given.
    Raises ConfigError, whose text is one sentence for the operator.
    """
    environ = os.environ if environ is None else environ
    source = str(file) if file is not None else "configuration"
    tree = parse_yaml(_text(file), source) if file is not None else Section(source)
    for name, path in env_names().items():
        if name in environ:
            put(tree, path, Text(environ[name], f"environment variable {name}"))
    _warn_of_unknown(environ)
    for argument in arguments:
        put(tree, *_argument(argument))
    resolved = substitute(tree, environ)
    assert isinstance(resolved, Section)
    if resolved.get("exporters") == {}:
        raise ConfigError(f"{source}: exporters is empty; name a destination, or leave it out")
    config = read_section(CollectorConfig, resolved)
    check(config, source)
    return config


def env_names() -> dict[str, tuple[str, ...]]:
    """The environment variable of every setting that has one."""
    return {env_name(path): path for path in scalar_paths(CollectorConfig)}


def env_name(path: Sequence[str]) -> str:
    return ENV_PREFIX + "_".join(path).upper()


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{file} is over {CONFIG_BYTES_MAX} bytes, too long for a configuration")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start})") from error


def _argument(argument: str) -> tuple[tuple[str, ...], Text]:
    key, equals, value = argument.partition("=")
    path: tuple[str, ...] = tuple(key.split("."))
    if not equals or not all(path):
        raise ConfigError(
            f"--set {argument!r} is not path.of.key=value, such as sampling.rate_max=0.05"
        )
    return path, Text(value, f"--set {key}")


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    known = env_names()
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX) or name in known:
            continue
        if _SERVICE_DISCOVERY.fullmatch(name[len(ENV_PREFIX) :]):
            continue
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        log.warning("environment variable %s is not a setting and does nothing%s", name, hint)
