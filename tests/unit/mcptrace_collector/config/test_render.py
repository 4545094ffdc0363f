"""A configuration shown can be run again, and shows no secret."""

from __future__ import annotations

from pathlib import Path

from mcptrace_collector.config import (
    CollectorConfig,
    ExporterConfig,
    NormalizeConfig,
    TlsClientConfig,
    load,
    render_docs,
    render_example,
    render_yaml,
)
from mcptrace_collector.config.load import env_names


def _loaded(text: str, tmp_path: Path) -> CollectorConfig:
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environ={})


def test_print_config_loads_to_the_same_configuration(tmp_path: Path) -> None:
    config = CollectorConfig(
        data_dir="a ${b} \"c\" #d: 'é'",
        normalize=NormalizeConfig(vllm_model="null-ish", model_aliases={"a: b": "c # d"}),
        exporters={
            "up": ExporterConfig(
                type="otlp_grpc",
                endpoint="up.example:4317",
                tls=TlsClientConfig(server_name="other.example"),
                batch_bytes_max=12345,
            )
        },
    )
    assert _loaded(render_yaml(config), tmp_path) == config


def test_secrets_are_redacted() -> None:
    up = ExporterConfig(
        type="otlp_http", endpoint="https://up.example", headers={"authorization": "s3cret"}
    )
    shown = render_yaml(CollectorConfig(exporters={"up": up}))
    assert "s3cret" not in shown
    assert '      "authorization": "(redacted)"\n' in shown


def test_the_annotated_example_is_the_defaults(tmp_path: Path) -> None:
    assert _loaded(render_example(), tmp_path) == CollectorConfig()


def test_every_setting_is_documented_with_its_variable() -> None:
    docs = render_docs()
    assert [name for name in env_names() if f"`{name}`" not in docs] == []


def test_what_yaml_does_not_print_is_escaped_and_comes_back(tmp_path: Path) -> None:
    config = load(None, ["data_dir=\u0080 \u00e9\u4e16 \U000187f8"], environ={})
    file = tmp_path / "collector.yaml"
    file.write_text(render_yaml(config), encoding="utf-8")
    assert load(file, [], environ={}) == config
