"""``mcptrace``: tools for those who run a collector or check its audit log.

    mcptrace audit verify DIR     0 intact, 1 tampered, 2 cannot be read, 3 intact but its tail
                                  is not proven by a checkpoint
    mcptrace status               0 books in order, 1 not in order or no answer

Each tool imports what it needs and no more, so that a log can be verified on a machine that
has neither a collector nor its libraries.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXIT_OK = 0
EXIT_FAILURE = 1

STATUS_TIMEOUT_SECONDS = 10.0
STATUS_BYTES_MAX = 8 << 20

_BOOKS = (
    ("received", "received_spans_total", "transport"),
    ("kept", "kept_spans_total", "reason"),
    ("dropped", "dropped_spans_total", "reason"),
)
_DESTINATIONS = (
    ("forwarded", "forwarded_spans_total"),
    ("waiting", "queue_spans"),
    ("failed", "export_failed_spans_total"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one tool; returns its exit code."""
    arguments = _parser().parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def _audit_verify(arguments: argparse.Namespace) -> int:
    from mcptrace_collector.audit import verify_log

    report = verify_log(arguments.directory, arguments.anchor)
    if arguments.json:
        bad = report.first_bad
        shown = {
            "status": report.status.name.lower(),
            "log_id": report.log_id,
            "records": report.records,
            "size": report.size,
            "root": report.root,
            "first_bad": None if bad is None else dataclasses.asdict(bad),
            "messages": report.messages,
        }
        print(json.dumps(shown))
    else:
        print(report.text())
    return report.status.exit_code


def _status(arguments: argparse.Namespace) -> int:
    url = f"{arguments.endpoint.rstrip('/')}/status"
    try:
        status = _fetch(url)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"mcptrace: {url} does not answer as a collector does: {error}", file=sys.stderr)
        return EXIT_FAILURE
    if arguments.json:
        print(json.dumps(status))
    else:
        print(status_text(status))
    return EXIT_OK if status.get("balance_ok") else EXIT_FAILURE


def _fetch(url: str) -> dict[str, Any]:
    """GET the figures of ``/status``.  Raises OSError, HTTPException, or ValueError otherwise."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("an endpoint begins with http:// or https://")
    with urllib.request.urlopen(url, timeout=STATUS_TIMEOUT_SECONDS) as answer:
        status = json.loads(answer.read(STATUS_BYTES_MAX))
    figures = status.get("metrics") if isinstance(status, dict) else None
    if not isinstance(figures, dict) or "held_spans" not in figures:
        raise ValueError("the answer has no figures of a collector")
    return figures


def status_text(status: Mapping[str, Any]) -> str:
    """The books of a collector for people, one line a figure."""
    lines = []
    for title, name, label in _BOOKS:
        series = status.get(name, [])
        parts = ", ".join(f"{line[label]} {line['value']:,.0f}" for line in series)
        total = sum(line["value"] for line in series)
        lines.append(f"{title:<10}{total:>14,.0f}" + (f"   {parts}" if parts else ""))
    lines.append(f"{'held':<10}{status['held_spans']:>14,.0f}")
    verdict = "in order" if status.get("balance_ok") else "NOT in order"
    lines.append(f"books {verdict}: received = kept + dropped + held, for every destination too")
    for destination in _destinations(status):
        lines.append(_destination_line(status, destination))
    return "\n".join(lines)


def _destinations(status: Mapping[str, Any]) -> list[str]:
    names = {
        line["destination"]
        for name in ("enqueued_spans_total", *(name for _, name in _DESTINATIONS))
        for line in status.get(name, [])
    }
    return sorted(names)


def _destination_line(status: Mapping[str, Any], destination: str) -> str:
    figures = []
    for title, name in _DESTINATIONS:
        total = sum(
            line["value"] for line in status.get(name, []) if line["destination"] == destination
        )
        figures.append(f"{title} {total:,.0f}")
    return f"to {destination}: {', '.join(figures)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mcptrace", description="Tools beside the collector.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    audit = commands.add_parser("audit", help="tools for the audit log")
    audit_commands = audit.add_subparsers(required=True, metavar="COMMAND")
    verify = audit_commands.add_parser(
        "verify",
        help="check that a log is what its collector wrote",
        description="Recomputes the SM3 chain and tree of a log and names the first altered, "
        "missing or reordered record.",
        epilog="exit codes: 0 intact, 1 tampered, 2 cannot be read or wrong usage, 3 intact but "
        "its tail is not proven by a checkpoint",
    )
    verify.add_argument("directory", type=Path, metavar="DIR", help="directory of the log")
    verify.add_argument(
        "--anchor",
        type=Path,
        metavar="FILE",
        help="a checkpoint of this log kept elsewhere; shows also that it was not written anew",
    )
    verify.add_argument("--json", action="store_true", help="print the report as JSON")
    verify.set_defaults(run=_audit_verify)

    status = commands.add_parser(
        "status",
        help="show the books of a running collector",
        epilog="exit codes: 0 books in order, 1 not in order or no answer, 2 wrong usage",
    )
    status.add_argument(
        "--endpoint",
        default="http://127.0.0.1:13133",
        metavar="URL",
        help="the collector's admin endpoint (default: %(default)s)",
    )
    status.add_argument("--json", action="store_true", help="print all figures as JSON")
    status.set_defaults(run=_status)
    return parser


if __name__ == "__main__":
    sys.exit(main())
