"""The built wheel, installed alone: does what a user would try first work?

    python -I tests/wheel_smoke.py bare         without any extra
    python -I tests/wheel_smoke.py collector    with the collector's

Run by ``make test-wheel`` with the Python of a fresh environment; imports no test library.
"""

from __future__ import annotations

import importlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PACKAGES = (
    "mcptrace_proto",
    "mcptrace",
    "mcptrace_pytorch",
    "mcptrace_vllm",
    "mcptrace_triton",
    "mcptrace_collector",
)
BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 30.0

REQUEST = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "chat tiny",
                            "kind": 3,
                            "startTimeUnixNano": "1764547200000000000",
                            "endTimeUnixNano": "1764547200250000000",
                            "status": {"code": 2},
                        }
                    ]
                }
            ]
        }
    ]
}


def check(condition: object, claim: str) -> None:
    if not condition:
        sys.exit(f"wheel smoke: it does not hold that {claim}")
    print(f"ok: {claim}")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [str(BIN / arguments[0]), *arguments[1:]]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)


def bare(directory: Path) -> None:
    for name in PACKAGES:
        module = importlib.import_module(name)
        home = Path(str(module.__file__)).parent
        check(home.is_relative_to(sys.prefix), f"{name} is imported from the wheel")
        check((home / "py.typed").exists(), f"{name} is typed")
    for program in ("mcptrace", "mcptrace-run", "mcptrace-collector"):
        shown = command(program, "--help")
        check(shown.returncode == 0 and "usage" in shown.stdout.lower(), f"{program} has help")
    check(
        command("mcptrace", "audit", "verify", str(directory)).returncode == 2,
        "what is no audit log is told so without the collector's libraries",
    )
    without = command("mcptrace-collector", "run")
    check(
        without.returncode == 1 and "mcptrace[collector]" in without.stderr,
        "the collector names the extra that it needs",
    )


def collector(directory: Path) -> None:
    shown = command("mcptrace-collector", "print-config")
    check(shown.returncode == 0 and "data_dir" in shown.stdout, "print-config shows the defaults")
    grpc, http, admin = (free_endpoint() for _ in range(3))
    arguments = [
        f"data_dir={directory}",
        f"receivers.otlp_grpc.endpoint={grpc}",
        f"receivers.otlp_http.endpoint={http}",
        f"admin.endpoint={admin}",
        "sampling.settle_seconds=0.1",
    ]
    program = [str(BIN / "mcptrace-collector"), "run"]
    for argument in arguments:
        program += ["--set", argument]
    running = subprocess.Popen(program)
    try:
        until_ready(f"http://{admin}/readyz", running)
        answer = post(f"http://{http}/v1/traces", REQUEST)
        check(answer == 200, "a span sent as OTLP/JSON is accepted")
        running.send_signal(signal.SIGTERM)
        check(running.wait(DEADLINE_SECONDS) == 0, "the collector stops when told to")
    finally:
        running.kill()
        running.wait()
    lines = (directory / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    check(any("chat tiny" in line for line in lines), "the span is in the file")
    verified = command("mcptrace", "audit", "verify", str(directory / "audit"))
    check(verified.returncode == 0, f"the audit log is intact: {verified.stdout.strip()}")


def free_endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def until_ready(url: str, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and running.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    check(False, "the collector becomes ready")


def post(url: str, request: dict[str, Any]) -> int:
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
        status: int = answer.status
        return status


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        {"bare": bare, "collector": collector}[sys.argv[1]](Path(temporary))
