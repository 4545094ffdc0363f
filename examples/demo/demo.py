"""The whole line on one machine: `make demo`.

    load ─▶ service.py under mcptrace-run ─▶ mcptrace-collector ─▶ spans.jsonl + audit log
                       captured Triton requests ─▶ ┘

Starts everything on free ports below .demo/, shows what came out, checks the audit log, then
alters one byte of a copy of it and shows that this is found.  Takes under two minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import load
import results

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".demo"
BIN = Path(sys.executable).parent
CAPTURES = ROOT / "examples" / "triton_captures"
START_SECONDS = 30.0
SETTLE_SECONDS = 20.0

CONFIG = {
    "data_dir": str(WORK / "data"),
    "receivers": {
        "otlp_grpc": {"endpoint": "127.0.0.1:0"},
        "otlp_http": {"endpoint": "127.0.0.1:0"},
    },
    "admin": {"endpoint": "127.0.0.1:0"},
    "sampling": {"target_traces_per_second": 4.0, "decision_wait_seconds": 3.0},
}
SERVICE_ENVIRONMENT = {"MCPTRACE_TARGET_PER_SECOND": "4", "OTEL_BSP_SCHEDULE_DELAY": "500"}


class Part:
    """A process of the demo: started, waited for by a line of its output, stopped at the end."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._log = WORK / f"{name}.log"
        self._process = subprocess.Popen(
            command,
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
        )

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.output()):
                return match
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"{self.name} did not start; its output:\n{self.output()}")

    def output(self) -> str:
        return self._log.read_text()

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    (WORK / "collector.yaml").write_text(json.dumps(CONFIG, indent=2))  # JSON is YAML
    parts: list[Part] = []
    try:
        return _run(parts)
    finally:
        for part in reversed(parts):
            part.stop()


def _run(parts: list[Part]) -> int:
    say("starting the collector and, under mcptrace-run, a tiny transformer that streams tokens")
    collector = Part(
        "collector",
        [str(BIN / "mcptrace-collector"), "run", "--config", str(WORK / "collector.yaml")],
        {},
    )
    parts.append(collector)
    collector.wait_for("mcptrace-collector is ready")
    http = collector.wait_for(r"otlp_http listens on (\S+)")[1]
    admin = collector.wait_for(r"admin listens on (\S+)")[1]
    service = Part(
        "service",
        [
            str(BIN / "mcptrace-run"), "--service-name", "tiny-llm", "--endpoint", f"http://{http}",
            "python", str(ROOT / "examples/demo/service.py"), "--port", "0",
        ],
        SERVICE_ENVIRONMENT,
    )  # fmt: skip
    parts.append(service)
    port = int(service.wait_for(r"listening on (\d+)")[1])

    sent = load.drive(port, progress)
    end_progress()
    say("sending the requests captured from a real Triton server")
    captured = send_captures(http)
    say("stopping the service; waiting until every trace has its verdict")
    if service.stop() != 0:
        raise SystemExit(f"the service failed; its output:\n{service.output()}")
    wait_until_settled(admin)
    status = get_json(f"http://{admin}/status")
    code = collector.stop()
    print()
    print(results.table(sent, captured, status, WORK / "data" / "spans.jsonl"))
    print()
    balance = re.search(r"balance in spans.*", collector.output(), re.DOTALL)
    print(f"the collector's {balance[0].strip() if balance else 'balance is missing'}\n")
    return code or check_audit(WORK / "data" / "audit")


def check_audit(audit: Path) -> int:
    """Verify the log, then a copy with one byte altered, which must be found."""
    say(f"$ mcptrace audit verify {audit.relative_to(ROOT)}")
    genuine = verify(audit)
    copy = WORK / "altered-audit"
    shutil.copytree(audit, copy)
    segment = sorted(copy.glob("segment-*.jsonl"))[0]
    content = bytearray(segment.read_bytes())
    place = content.index(b'"kind":"inference"') + len(b'"kind":"inference","trace_id":"')
    content[place] = ord("0") if content[place] != ord("0") else ord("1")
    segment.write_bytes(content)
    say(f"one byte of a copy is altered: byte {place} of {segment.name}")
    say(f"$ mcptrace audit verify {copy.relative_to(ROOT)}")
    altered = verify(copy)
    found = genuine == 0 and altered == 1
    say("the genuine log verifies, the altered copy does not" if found else "UNEXPECTED RESULT")
    return 0 if found else 1


def verify(audit: Path) -> int:
    done = subprocess.run([str(BIN / "mcptrace"), "audit", "verify", str(audit)], check=False)
    say(f"exit code {done.returncode}")
    return done.returncode


def send_captures(http: str) -> int:
    """POST each captured body as the server sent it; returns how many."""
    bodies = sorted(path for path in CAPTURES.iterdir() if path.suffix in {".json", ".pb"})
    for path in bodies:
        kind = "application/json" if path.suffix == ".json" else "application/x-protobuf"
        request = urllib.request.Request(
            f"http://{http}/v1/traces", path.read_bytes(), {"Content-Type": kind}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
    return len(bodies)


def wait_until_settled(admin: str) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        balance = get_json(f"http://{admin}/status")["balance"]
        if balance["held"] == 0 and not any(balance["queued"].values()):
            return
        time.sleep(0.2)


def get_json(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def say(text: str) -> None:
    print(text, flush=True)


def progress(elapsed: float, requests: int) -> None:
    total = sum(seconds for seconds, _ in load.PHASES)
    done = min(1.0, elapsed / total)
    bar = "#" * int(30 * done)
    ends = "\r" if sys.stdout.isatty() else "\n"
    if sys.stdout.isatty() or int(elapsed * 2) % 8 == 0:
        print(f"  load [{bar:<30}] {elapsed:4.0f} s  {requests} requests", end=ends, flush=True)


def end_progress() -> None:
    if sys.stdout.isatty():
        print()


if __name__ == "__main__":
    sys.exit(main())
