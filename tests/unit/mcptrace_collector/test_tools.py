"""`mcptrace`: a log verified without the collector's libraries, and the books of a collector."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcptrace_collector import report, tools
from mcptrace_collector.admin import AdminServer
from mcptrace_collector.durable import Balance
from mcptrace_collector.telemetry import Telemetry

BOOKS = Balance(
    received={"grpc": 1200, "http": 34},
    kept={"error": 200},
    dropped={"sampled_out": 1000},
    held=34,
    enqueued={"up": 200},
    forwarded={"up": 150},
    failed={"up rejected": 20, "up too_large": 10},
    queued={"up": 20},
)


def ask(*arguments: str, books: Balance = BOOKS) -> int:
    telemetry = Telemetry()
    telemetry.attach_ledger(lambda: books)

    async def session() -> int:
        server = AdminServer(
            "127.0.0.1:0",
            not_ready=list,
            metrics=lambda: b"",
            status=lambda: report.status(books, telemetry),
        )
        await server.start()
        try:
            endpoint = f"http://{server.endpoint}"
            return await asyncio.to_thread(
                tools.main, ["status", "--endpoint", endpoint, *arguments]
            )
        finally:
            await server.shutdown()

    return asyncio.run(session())


def test_status_shows_the_books(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask() == 0
    assert capsys.readouterr().out.splitlines() == [
        "received           1,234   grpc 1,200, http 34",
        "kept                 200   error 200",
        "dropped            1,000   sampled_out 1,000",
        "held                  34",
        "books in order: received = kept + dropped + held, for every destination too",
        "to up: forwarded 150, waiting 20, failed 30",
    ]


def test_status_as_json_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("--json") == 0
    assert json.loads(capsys.readouterr().out)["queue_spans"] == [
        {"destination": "up", "value": 20}
    ]


def test_books_out_of_order_exit_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(books=Balance(received={"grpc": 1})) == 1
    assert "books NOT in order" in capsys.readouterr().out


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "file:///etc", "nonsense"])
def test_no_answer_is_one_sentence(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tools.main(["status", "--endpoint", endpoint]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"mcptrace: {endpoint}/status does not answer as a collector does")
    assert shown.err.count("\n") == 1


def test_what_is_no_log_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tools.main(["audit", "verify", str(tmp_path), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["records"], report["first_bad"]) == ("unreadable", 0, None)


def test_verifying_a_log_needs_none_of_the_collectors_libraries(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('aiohttp', 'grpc', 'yaml', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "from mcptrace_collector.tools import main\n"
        f"sys.exit(main(['audit', 'verify', {str(tmp_path)!r}]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (2, "")
