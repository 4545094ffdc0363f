"""A guest in the user's process: what an import does, and what it does not."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

WATCH = """
import json, os, socket, sys, threading
import opentelemetry.trace, opentelemetry.propagate
did = []
real_environ = os.environ

class Watched(dict):
    def __getitem__(self, key):
        did.append(f"read {key}")
        return real_environ[key]
    def get(self, key, default=None):
        did.append(f"read {key}")
        return real_environ.get(key, default)
    def __contains__(self, key):
        did.append(f"read {key}")
        return key in real_environ

os.environ = Watched()
os.getenv = lambda key, default=None: did.append(f"read {key}")
os.register_at_fork = lambda **hooks: did.append("register_at_fork")
threads = threading.active_count()
sys.addaudithook(lambda event, args: event.startswith("socket.") and did.append(event))
import mcptrace
if threading.active_count() != threads:
    did.append("thread")
heavy = ("grpc", "opentelemetry.sdk", "mcptrace.exporters", "mcptrace.processor", "requests")
print(json.dumps({"did": did, "heavy": [name for name in heavy if name in sys.modules]}))
"""

TIME = """
import time
import opentelemetry.trace
began = time.perf_counter()
import mcptrace
print(time.perf_counter() - began)
"""


def _run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_an_import_starts_no_thread_opens_no_socket_reads_no_environment() -> None:
    assert json.loads(_run(WATCH)) == {"did": [], "heavy": []}


def test_an_import_costs_less_than_fifty_milliseconds_over_the_api() -> None:
    # The median of a few: other tests share the machine.
    seconds = statistics.median(float(_run(TIME)) for _ in range(7))
    assert seconds < 0.050


def test_a_configured_tracer_does_not_load_the_stock_sdk_nor_grpc() -> None:
    code = (
        "import sys, mcptrace; t = mcptrace.init(service_name='x', traces_exporter='none');"
        "t.start_span('s').end(); mcptrace.shutdown();"
        "print([n for n in ('grpc', 'opentelemetry.sdk') if n in sys.modules])"
    )
    assert _run(code).strip() == "[]"
