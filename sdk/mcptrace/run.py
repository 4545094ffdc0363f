"""``mcptrace-run``: run a Python program with tracing set up, without a change to it.

Sets up mcptrace from options and environment, switches on the adapters and instrumentations
whose frameworks are there, and runs the program in the same process (see launch.py).  Child
processes that the program starts anew (subprocess, spawn) are not instrumented; forked ones are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from mcptrace.config import ConfigError, load_config
from mcptrace.guard import Counters
from mcptrace.instrumentation import Candidate, find, switch_on
from mcptrace.launch import USAGE, LaunchError, Program, find_program, module_program
from mcptrace.setup import init

DESCRIPTION = "Run a Python program with tracing."
EXAMPLES = """\
examples:
  mcptrace-run --service-name chat python app.py --port 8000
  mcptrace-run --endpoint http://collector:4318 -m uvicorn app:app
  mcptrace-run --check python app.py

Every option has an environment variable as well (OTEL_SERVICE_NAME ...); the option wins.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program that the command line names; its exit code is the process's own.

    Returns only where no program ran, or where it ended without SystemExit.
    """
    options = _parser().parse_args(arguments)
    settings = {
        "service_name": options.service_name,
        "endpoint": options.endpoint,
        "protocol": options.protocol,
        "sampler": options.sampler,
        "insecure": options.insecure or None,
    }
    try:
        program, problem = _program(options)
        config = load_config(settings)
        candidates = find(options.no_adapter, config.disabled_instrumentations)
        if options.check:
            _print_check(settings, candidates, program)
            return 0 if problem is None else _fail(str(problem), problem.exit_code)
        if problem is not None:
            raise problem
        if program is None:
            raise LaunchError("no program; see mcptrace-run --help", USAGE)
        init(**settings)
    except LaunchError as error:
        return _fail(str(error), error.exit_code)
    except ConfigError as error:
        return _fail(str(error), USAGE)
    switch_on(candidates, Counters())
    try:
        program.run()
    except LaunchError as error:  # a module that is not there is known only now
        return _fail(str(error), error.exit_code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcptrace-run",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="mcptrace-run [options] [--] (python ... | script | tool | -m module) [args]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--service-name", metavar="NAME", help="service.name of the resource")
    add("--endpoint", metavar="URL", help="OTLP receiver, such as http://localhost:4318")
    add("--protocol", help="http/protobuf, http/json or grpc")
    add(
        "--insecure",
        action="store_true",
        help="gRPC without TLS where the endpoint has no http:// or https://",
    )
    add("--sampler", help="mcptrace_adaptive, always_on, parentbased_always_on ...")
    add(
        "--no-adapter",
        metavar="NAME",
        action="append",
        default=[],
        help="leave an adapter alone (pytorch, vllm, triton); may be repeated",
    )
    add("--check", action="store_true", help="say what would be instrumented, and run nothing")
    add("-m", dest="module", nargs=argparse.REMAINDER, help="run a module")
    add("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _program(options: argparse.Namespace) -> tuple[Program | None, LaunchError | None]:
    """The program, or why it cannot be run; neither where none is named."""
    arguments = options.program
    if arguments and arguments[0] == "--":  # which some versions of argparse leave there
        arguments = arguments[1:]
    try:
        if options.module is not None:
            return module_program(options.module), None
        if arguments and arguments[0] == "-m":
            return module_program(arguments[1:]), None
        return (find_program(arguments) if arguments else None), None
    except LaunchError as error:
        return None, error


def _print_check(
    settings: dict[str, Any], candidates: Sequence[Candidate], program: Program | None
) -> None:
    config = load_config(settings)
    sys.stdout.write(f"python           {sys.executable}\n")
    for name in ("service_name", "traces_exporter", "endpoint", "protocol", "sampler"):
        sys.stdout.write(f"{name:<16} {getattr(config, name)}\n")
    if program is not None:
        sys.stdout.write(f"program          {program.describe}\n")
    rows = [(row.kind, row.name, "yes" if row.wanted else "no", row.reason) for row in candidates]
    header = ("KIND", "NAME", "ON", "WHY")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(3)]
    sys.stdout.write("\n")
    for row in (header, *rows):
        cells = [text.ljust(width) for text, width in zip(row[:3], widths, strict=True)]
        sys.stdout.write("  ".join((*cells, row[3])) + "\n")


def _fail(message: str, exit_code: int) -> int:
    sys.stderr.write(f"mcptrace-run: {message}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
