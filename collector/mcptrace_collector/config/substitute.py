"""`${env:NAME}`, `${env:NAME:-default}` and `${file:/path}` in values.

    $${ is a literal ${          nothing else is special; a substituted value is not looked at again

Pure but for reading the named file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mcptrace_collector.errors import ConfigError

from .node import Node, Section, Text

FILE_BYTES_MAX = 64 << 10  # a substituted file is a token or a name, not a document

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def substitute(node: Node, environ: Mapping[str, str], path: str = "") -> Node:
    """Resolve all references below a node.  Raises ConfigError naming the setting."""
    if isinstance(node, Section):
        prefix = f"{path}." if path else ""
        entries = {name: substitute(node[name], environ, f"{prefix}{name}") for name in node}
        return Section(node.source, entries)
    if "${" not in node.value:
        return node
    where = f"{node.source}: {path}"

    def resolve(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            raise ConfigError(f"{where} has a ${{ without its }}; write $${{ for a literal ${{")
        return _resolve(match[1], environ, where)

    return Text(_REFERENCE.sub(resolve, node.value), node.source)


def _resolve(reference: str, environ: Mapping[str, str], where: str) -> str:
    scheme, _, rest = reference.partition(":")
    if scheme == "file" and rest:
        return _file(Path(rest), where)
    name, has_default, default = rest.partition(":-")
    if scheme != "env" or not _ENV_NAME.fullmatch(name):
        raise ConfigError(
            f"{where} refers to ${{{reference}}}, which is neither ${{env:NAME}}, "
            f"${{env:NAME:-default}} nor ${{file:/path}}; write $${{ for a literal ${{"
        )
    value = environ.get(name, "")
    if value or has_default:
        return value or default
    state = "empty" if name in environ else "not set"
    raise ConfigError(
        f"{where} refers to the environment variable {name}, which is {state}; "
        f"set it or write ${{env:{name}:-default}}"
    )


def _file(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{where} refers to the file {path}, which cannot be read: {error.strerror}"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{where} refers to the file {path}, which is over {FILE_BYTES_MAX} bytes"
        )
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} refers to the file {path}, which is not UTF-8") from error
