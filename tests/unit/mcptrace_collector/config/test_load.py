"""Loading a configuration: precedence, and what is refused with which sentence."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mcptrace_collector.config import (
    CollectorConfig,
    ExporterConfig,
    ReceiverConfig,
    TlsServerConfig,
    load,
)
from mcptrace_collector.errors import ConfigError

OTLP = "exporters: {up: {type: otlp_http, endpoint: 'https://up.example:4318'}}\n"


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        file = tmp_path / "c.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def refusal(file: Path | None, *arguments: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, arguments, environ)
    message = str(caught.value)
    return message.replace(f"{file}", "c.yaml") if file else message


def test_without_a_file_the_defaults_are_complete() -> None:
    config = load(environ={})
    assert config == CollectorConfig()
    assert config.receivers.otlp_http == ReceiverConfig(endpoint="127.0.0.1:4318")
    assert config.audit.directory == "mcptrace-data/audit"
    assert config.exporters == {
        "file": ExporterConfig(type="json_lines", path="mcptrace-data/spans.jsonl")
    }


def test_paths_follow_the_data_directory() -> None:
    config = load(arguments=["data_dir=/var/lib/m"], environ={})
    assert config.audit.directory == "/var/lib/m/audit"
    assert config.exporters["file"].path == "/var/lib/m/spans.jsonl"


def test_argument_beats_environment_beats_file_beats_default(written) -> None:
    file = written("sampling: {rate_max: 0.2, rate_min: 0.02, settle_seconds: 2}\n")
    environ = {
        "MCPTRACE_COLLECTOR_SAMPLING_RATE_MAX": "0.3",
        "MCPTRACE_COLLECTOR_SAMPLING_RATE_MIN": "0.03",
    }
    sampling = load(file, ["sampling.rate_max=0.4"], environ).sampling
    assert (sampling.rate_max, sampling.rate_min) == (0.4, 0.03)
    assert (sampling.settle_seconds, sampling.decision_wait_seconds) == (2.0, 10.0)


def test_a_part_of_a_section_keeps_the_defaults_of_its_place(written) -> None:
    config = load(written("receivers: {otlp_http: {max_request_bytes: 1MiB}}"), environ={})
    assert config.receivers.otlp_http == ReceiverConfig(
        endpoint="127.0.0.1:4318", max_request_bytes=1 << 20
    )


def test_values_are_read_by_their_type_and_not_by_their_looks(written) -> None:
    config = load(
        written(
            "schema: {enforcement: off}\n"
            "normalize: {model_aliases: {007: no}, vllm_model: 1.0}\n"
            "sampling: {timeout_limit_ms: null, enabled: false}\n"
            "limits:\n"
        ),
        environ={},
    )
    assert config.schema.enforcement == "off"
    assert config.normalize.model_aliases == {"007": "no"}
    assert config.normalize.vllm_model == "1.0"
    assert config.sampling.timeout_limit_ms is None
    assert config.sampling.enabled is False
    assert config.limits == CollectorConfig().limits


def test_references_are_replaced_once(written, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret ${env:NOT_LOOKED_AT}\n")
    config = load(
        written(
            "exporters:\n"
            "  up:\n"
            "    type: otlp_http\n"
            "    endpoint: https://${env:HOST}:${env:PORT:-4318}\n"
            "    timeout_seconds: ${env:SECONDS}\n"
            f"    headers: {{authorization: 'Bearer ${{file:{token}}}', literal: '$${{x}}'}}\n"
        ),
        environ={"HOST": "up.example", "PORT": "", "SECONDS": "2.5"},
    )
    up = config.exporters["up"]
    assert (up.endpoint, up.timeout_seconds) == ("https://up.example:4318", 2.5)
    assert up.headers == {
        "authorization": "Bearer s3cret ${env:NOT_LOOKED_AT}",
        "literal": "${x}",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sampling: {rate_maks: 0.1}",
            "c.yaml: sampling.rate_maks is not a setting; did you mean 'rate_max'?",
        ),
        (
            "admin: {qqq: 1}",
            "c.yaml: admin.qqq is not a setting; known here are enabled, endpoint",
        ),
        (
            "durability: disc",
            "c.yaml: durability is 'disc', but must be 'disk' or 'memory'; did you mean 'disk'?",
        ),
        (
            "sampling: {rate_max: many}",
            "c.yaml: sampling.rate_max is 'many', but must be a number from 1e-06 to 1",
        ),
        (
            "sampling: {rate_max: nan}",
            "c.yaml: sampling.rate_max is 'nan', but must be a number from 1e-06 to 1",
        ),
        (
            "limits: {in_flight_bytes: 1kB}",
            "c.yaml: limits.in_flight_bytes is '1kB', but must be a whole number of bytes "
            "(or such as 64MiB), at least 1048576",
        ),
        (
            "sampling: {latency_warmup_spans: 0}",
            "c.yaml: sampling.latency_warmup_spans is '0', but must be a whole number of spans, "
            "at least 1",
        ),
        ("audit: {enabled: yes}", "c.yaml: audit.enabled is 'yes', but must be true or false"),
        (
            'data_dir: "a\\0b"',
            "c.yaml: data_dir is 'a\\x00b', but must be text without control characters",
        ),
        ("limits: 5", "c.yaml: limits is '5', but must be a mapping"),
        ("data_dir: {a: b}", "c.yaml: data_dir is a mapping, but must be one value"),
        (
            "exporters: [a]",
            "c.yaml: exporters is a list; no setting is one, write `name: value`",
        ),
        ("[a]", "c.yaml must hold a mapping of settings at its top"),
        ("data_dir: a\ndata_dir: b", "c.yaml, line 2: 'data_dir' is written twice"),
        ("exporters: {}", "c.yaml: exporters is empty; name a destination, or leave it out"),
        (
            "exporters: {Up: {}}",
            "c.yaml: exporters has the name 'Up'; names are lower-case letters, digits and _, "
            "begin with a letter and are at most 63 long",
        ),
        (
            "exporters: {up: {type: json_lines}}",
            "c.yaml: exporters.up.path is missing; name the file to write, or another type",
        ),
        (
            "exporters: {up: {type: otlp_http}}",
            "c.yaml: exporters.up.endpoint is missing; say where otlp_http sends to",
        ),
        (
            "exporters: {up: {type: otlp_grpc, endpoint: up.example}}",
            "c.yaml: exporters.up.endpoint is 'up.example', but must be host:port, such as "
            "127.0.0.1:4317, [::1]:4317, or 0.0.0.0:4317 for all addresses",
        ),
        (
            "exporters: {up: {type: otlp_http, endpoint: 'https://u:p@up.example'}}",
            "c.yaml: exporters.up.endpoint carries a user or password; put credentials into "
            "headers",
        ),
        (
            "exporters: {up: {type: otlp_http, endpoint: 'ftp://u:p@up.example'}}",
            "c.yaml: exporters.up.endpoint is 'ftp://...@up.example', but must be a URL such as "
            "https://backend.example:4318 (http:// or https://)",
        ),
        (
            "exporters: {up: {type: otlp_http, endpoint: 'http://up.example:4318'}}",
            "c.yaml: exporters.up.endpoint is 'http://up.example:4318', to which spans would "
            "travel in plain text; use https://, or say exporters.up.insecure: true on purpose",
        ),
        (
            "exporters: {a: {type: json_lines, path: x}, b: {type: json_lines, path: ./x}}",
            "c.yaml: exporters.b.path is './x', and so is exporters.a.path; give each its own file",
        ),
        (
            "receivers: {otlp_grpc: {endpoint: '0.0.0.0:4317'}}",
            "c.yaml: receivers.otlp_grpc.endpoint is '0.0.0.0:4317', which other machines can "
            "reach, and there is no receivers.otlp_grpc.tls; add it, or say "
            "receivers.otlp_grpc.insecure: true on purpose",
        ),
        (
            "receivers: {otlp_grpc: {endpoint: ':4317'}}",
            "c.yaml: receivers.otlp_grpc.endpoint is ':4317', but must be host:port, such as "
            "127.0.0.1:4317, [::1]:4317, or 0.0.0.0:4317 for all addresses",
        ),
        (
            "receivers: {otlp_grpc: {endpoint: '127.0.0.1:4318'}}",
            "c.yaml: receivers.otlp_http.endpoint is '127.0.0.1:4318', and so is "
            "receivers.otlp_grpc.endpoint; give each its own port",
        ),
        (
            "receivers: {otlp_grpc: {tls: {cert_file: nowhere.pem, key_file: k}}}",
            "c.yaml: receivers.otlp_grpc.tls.cert_file is 'nowhere.pem', which cannot be read: "
            "No such file or directory",
        ),
        (
            "receivers: {otlp_grpc: {tls: {cert_file: a.pem}}}",
            "c.yaml: receivers.otlp_grpc.tls.key_file is missing; PEM private key that belongs "
            "to `cert_file`.",
        ),
        (
            "sampling: {rate_min: 0.5}",
            "c.yaml: sampling.rate_min is 0.5, above sampling.rate_max, which is 0.1; lower the "
            "first or raise the second",
        ),
        (
            "data_dir: '${env:NOWHERE}'",
            "c.yaml: data_dir refers to the environment variable NOWHERE, which is not set; set "
            "it or write ${env:NOWHERE:-default}",
        ),
        (
            "data_dir: '${file:/nowhere/at/all}'",
            "c.yaml: data_dir refers to the file /nowhere/at/all, which cannot be read: No such "
            "file or directory",
        ),
        (
            "data_dir: '${HOME}'",
            "c.yaml: data_dir refers to ${HOME}, which is neither ${env:NAME}, "
            "${env:NAME:-default} nor ${file:/path}; write $${ for a literal ${",
        ),
        (
            "data_dir: '${env:X'",
            "c.yaml: data_dir has a ${ without its }; write $${ for a literal ${",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(written, text: str, message: str) -> None:
    assert refusal(written(text)) == message


def test_broken_yaml_is_located(written) -> None:
    message = refusal(written("a: [1\nb: }"))
    assert message.startswith("c.yaml is not YAML: ")
    assert "line 2" in message


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "? [a]\n: b", "a: " + "[" * 100_000])
def test_hostile_yaml_is_refused(written, text: str) -> None:
    assert refusal(written(text)).startswith("c.yaml")


def test_bytes_that_are_not_text_are_refused(written) -> None:
    assert refusal(written(b"data_dir: \xff")) == "c.yaml is not UTF-8 text (byte 10)"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml") == "c.yaml cannot be read: No such file or directory"


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    assert refusal(None, MCPTRACE_COLLECTOR_DURABILITY="ram") == (
        "environment variable MCPTRACE_COLLECTOR_DURABILITY: durability is 'ram', but must be "
        "'disk' or 'memory'"
    )


def test_a_mistake_in_an_argument_names_the_argument() -> None:
    assert refusal(None, "sampling.rate=1") == (
        "--set sampling.rate: sampling.rate is not a setting; did you mean 'rate_min'?"
    )
    assert refusal(None, "sampling") == (
        "--set 'sampling' is not path.of.key=value, such as sampling.rate_max=0.05"
    )


def test_a_secret_is_not_shown_in_a_refusal(written) -> None:
    text = OTLP.replace("}}", ', headers: {a: "s3cret\\r\\nx: y"}}}')
    message = refusal(written(text))
    assert "s3cret" not in message
    assert message.startswith("c.yaml: exporters.up.headers.a is a value that is not shown")
    assert "s3cret" not in refusal(written(OTLP.replace("}}", ", headers: s3cret}}")))


def test_an_unknown_variable_of_ours_is_warned_of_but_not_those_of_an_orchestrator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        load(
            environ={
                "MCPTRACE_COLLECTOR_DURABILTY": "memory",
                "MCPTRACE_COLLECTOR_PORT": "tcp://10.0.0.1:4317",
                "MCPTRACE_COLLECTOR_SERVICE_HOST": "10.0.0.1",
                "MCPTRACE_COLLECTOR_PORT_4317_TCP_ADDR": "10.0.0.1",
            }
        )
    assert caplog.messages == [
        "environment variable MCPTRACE_COLLECTOR_DURABILTY is not a setting and does nothing; "
        "did you mean MCPTRACE_COLLECTOR_DURABILITY?"
    ]


@pytest.mark.parametrize(
    ("endpoint", "insecure", "plaintext"),
    [
        ("http://a:1", False, True),
        ("https://a:1", True, False),
        ("a:1", False, False),
        ("a:1", True, True),
    ],
)
def test_the_scheme_decides_on_tls_and_without_one_insecure_does(
    endpoint: str, insecure: bool, plaintext: bool
) -> None:
    config = ExporterConfig(type="otlp_grpc", endpoint=endpoint, insecure=insecure)
    assert config.plaintext is plaintext


def test_beyond_loopback_is_fine_with_tls_or_on_purpose(written, tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("")
    config = load(
        written(
            "receivers:\n"
            f"  otlp_grpc: {{endpoint: '[::]:4317', tls: {{cert_file: {pem}, key_file: {pem}}}}}\n"
            "  otlp_http: {endpoint: '0.0.0.0:4318', insecure: true}\n"
        ),
        environ={},
    )
    assert config.receivers.otlp_grpc.tls == TlsServerConfig(cert_file=str(pem), key_file=str(pem))
    assert config.receivers.otlp_http.insecure is True
