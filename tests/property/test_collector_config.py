"""Whatever is written, loading answers with a configuration or a ConfigError."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.config import CollectorConfig, load, render_yaml
from mcptrace_collector.config.load import env_names
from mcptrace_collector.config.setting import scalar_paths
from mcptrace_collector.errors import ConfigError

PATHS = [".".join(path) for path in scalar_paths(CollectorConfig)]
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "\0",
            "\udc80",
            "null",
            "true",
            "-1",
            "1e400",
            "nan",
            "64MiB",
            "${",
            "${env:A}",
            "[::1]:1",
        ]
    ),
    st.integers().map(str),
)


def loaded(content: bytes, arguments: list[str], environ: dict[str, str]) -> CollectorConfig | None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "c.yaml"
        file.write_bytes(content)
        try:
            return load(file, arguments, environ)
        except ConfigError:
            return None


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(string.printable, max_size=60).map(str.encode)))
def test_any_file_is_a_configuration_or_refused(content: bytes) -> None:
    loaded(content, [], {})


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(sorted(env_names())), VALUES, max_size=3),
)
def test_any_values_are_a_configuration_that_shows_itself_or_refused(
    arguments: dict[str, str], environ: dict[str, str]
) -> None:
    config = loaded(b"", [f"{path}={value}" for path, value in arguments.items()], environ)
    if config is not None:
        assert loaded(render_yaml(config).encode(), [], {}) == config
