"""A tracer taken at import records nothing before ``init`` and everything after it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import mcptrace
from mcptrace.testing import InMemoryExporter
from opentelemetry import trace

early = mcptrace.get_tracer("module", "1.2")
with early.start_inference(model="m", operation="chat") as before:
    before.record_tokens(input=1, output=1)
    before.finish("stop")
assert not before.is_recording()
with early.start_as_current_span("plain"):
    pass

exporter = InMemoryExporter()
mcptrace.init(service_name="s", exporter=exporter, sampler="always_on")
with early.start_as_current_span("parent") as parent:
    with early.start_inference(model="m", operation="chat") as inference:
        inference.record_tokens(input=1, output=2)
mcptrace.force_flush()
names = [(s.data.name, s.scope.name, s.scope.version) for s in exporter.finished]
assert names == [("chat m", "module", "1.2"), ("parent", "module", "1.2")], names
assert mcptrace.get_tracer("module", "1.2") is mcptrace.get_tracer("module", "1.2")
mcptrace.shutdown()
"""


def test_an_early_tracer_comes_alive_with_init() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
