"""The command line: exit codes, and one sentence for whatever is wrong."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

from mcptrace_collector import cli
from mcptrace_collector.config import CollectorConfig, load, render_example
from mcptrace_collector.errors import CollectorError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == metadata.version("mcptrace") + "\n"


def test_validate_says_yes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("durability: memory\n")
    assert cli.main(["validate", "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is valid\n"


def test_validate_says_what_is_wrong_and_exits_with_78(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("durabilty: memory\n")
    assert cli.main(["validate", "--config", str(file)]) == 78
    assert capsys.readouterr() == (
        "",
        f"mcptrace-collector: {file}: durabilty is not a setting; did you mean 'durability'?\n",
    )


def test_print_config_shows_what_would_be_run(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file.write_text("sampling: {rate_max: 0.2}\n")
    assert cli.main(["print-config", "--config", str(file), "--set", "data_dir=/d"]) == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert load(shown, environ={}) == load(file, ["data_dir=/d"], environ={})


def test_print_config_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["print-config", "--example"]) == 0
    assert capsys.readouterr().out == render_example()


@pytest.mark.parametrize("arguments", [[], ["runn"], ["validate"], ["run", "--log-level", "loud"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2


@pytest.mark.parametrize(
    ("outcome", "code", "sentence"),
    [
        (0, 0, ""),
        (1, 1, ""),
        (CollectorError("the store is in use"), 1, "mcptrace-collector: the store is in use\n"),
        (
            ModuleNotFoundError("No module named 'grpc'", name="grpc"),
            1,
            "mcptrace-collector: grpc is not installed; run: pip install 'mcptrace[collector]'\n",
        ),
    ],
)
def test_run_hands_the_configuration_to_the_service(
    outcome: int | Exception,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: list[CollectorConfig] = []

    def run(config: CollectorConfig) -> int:
        given.append(config)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    service = types.ModuleType("mcptrace_collector.service")
    service.run = run
    monkeypatch.setitem(sys.modules, "mcptrace_collector.service", service)
    monkeypatch.setattr("mcptrace_collector.service", service, raising=False)
    assert cli.main(["run", "--set", "durability=memory"]) == code
    assert given == [load(arguments=["durability=memory"])]
    assert capsys.readouterr().err == sentence


def test_a_wrong_configuration_leaves_no_traceback(file: Path) -> None:
    file.write_text("receivers: {otlp_grpc: {tls: {cert_file: /none.pem, key_file: /none.key}}}\n")
    ended = subprocess.run(
        [sys.executable, "-m", "mcptrace_collector", "run", "--config", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr == (
        f"mcptrace-collector: {file}: receivers.otlp_grpc.tls.cert_file is '/none.pem', which "
        "cannot be read: No such file or directory\n"
    )
