"""``mcptrace-collector``: run, validate, print-config, version.

Everything up to a running service is here and in config; everything after is in service.
Whatever goes wrong is one sentence on stderr and an exit code, never a traceback:

    0   done; for ``run``, stopped on request with its books in order
    1   failed while starting or running
    2   wrong usage of the command line
    78  configuration that cannot be run (EX_CONFIG of sysexits.h)
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from mcptrace_collector.config import CollectorConfig, load, render_example, render_yaml
from mcptrace_collector.errors import CollectorError, ConfigError

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2  # argparse's own
EXIT_CONFIG = 78

_EXTRA = frozenset({"aiohttp", "grpc", "prometheus_client", "yaml"})
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=getattr(arguments, "log_level", "WARNING"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return _command(arguments)
    except ConfigError as error:
        _complain(str(error))
        return EXIT_CONFIG
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        _complain(f"{error.name} is not installed; run: pip install 'mcptrace[collector]'")
        return EXIT_FAILURE
    except (CollectorError, OSError) as error:
        _complain(str(error))
        return EXIT_FAILURE


def _command(arguments: argparse.Namespace) -> int:
    if arguments.command == "version":
        print(metadata.version("mcptrace"))
        return EXIT_OK
    if arguments.command == "print-config" and arguments.example:
        print(render_example(), end="")
        return EXIT_OK
    config = load(arguments.config, arguments.set)
    if arguments.command == "validate":
        print(f"{arguments.config} is valid")
    elif arguments.command == "print-config":
        print(render_yaml(config), end="")
    else:
        return _run(config)
    return EXIT_OK


def _run(config: CollectorConfig) -> int:
    # The service knows every room and all their libraries; the other commands need none of them.
    from mcptrace_collector import service

    return service.run(config)


def _complain(sentence: str) -> None:
    print(f"mcptrace-collector: {sentence}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcptrace-collector",
        description="Receives, normalises, samples, audits and forwards OpenTelemetry traces of "
        "model inference.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong usage, 78 configuration that cannot be run",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run until told to stop (SIGTERM or SIGINT)")
    _add_config(run, required=False)
    run.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="INFO", type=str.upper, help="default: INFO"
    )
    validate = commands.add_parser("validate", help="check a configuration file and stop")
    _add_config(validate, required=True)
    show = commands.add_parser("print-config", help="show what would be run, secrets redacted")
    _add_config(show, required=False)
    show.add_argument(
        "--example", action="store_true", help="show an annotated file with every default instead"
    )
    commands.add_parser("version", help="show the version")
    return parser


def _add_config(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", required=required, help="YAML file (docs/config.md)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting, over environment and file, such as sampling.rate_max=0.05; repeatable",
    )
