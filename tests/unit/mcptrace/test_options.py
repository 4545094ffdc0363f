"""Setting up: by options, by ``init``, once, and with clear words for what cannot work."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace

import mcptrace
from mcptrace import (
    ConfigError,
    NewTracer,
    WithEndpoint,
    WithExporter,
    WithHeaders,
    WithProcessor,
    WithProtocol,
    WithResource,
    WithSampler,
    WithSchemaEnforcement,
    WithServiceName,
    WithSetting,
    WithSpanFilter,
    WithTimeoutLimit,
    WithVersion,
)
from mcptrace.testing import ImmediateProcessor, InMemoryExporter


def test_options_become_settings_and_the_global_provider_is_left_alone() -> None:
    before = trace.get_tracer_provider()
    exporter = InMemoryExporter()
    tracer = NewTracer(
        WithServiceName("chat"),
        WithVersion("v2.3"),
        WithSpanFilter(lambda span: span.name != "noise"),
        WithEndpoint("http://127.0.0.1:1"),
        WithProtocol("http/protobuf"),
        WithHeaders({"X-Key": "k"}),
        WithSampler("always_on"),
        WithProcessor(ImmediateProcessor(exporter)),
        WithResource({"deployment.environment.name": "test"}),
        WithSchemaEnforcement("strict"),
        WithTimeoutLimit(2000),
        WithSetting("traces_exporter", "none"),
    )
    tracer.start_span("noise").end()
    tracer.start_span("signal").end()
    (span,) = exporter.finished
    assert span.data.name == "signal"
    assert span.resource.attributes["service.name"] == "chat"
    assert span.resource.attributes["deployment.environment.name"] == "test"
    config = tracer.config
    assert (config.endpoint, config.headers) == ("http://127.0.0.1:1/v1/traces", {"x-key": "k"})
    assert (config.schema_enforcement, config.timeout_limit_ms) == ("strict", 2000)
    assert trace.get_tracer_provider() is before
    tracer.provider.shutdown()


def test_spans_leave_over_real_http(http_receiver: Any) -> None:
    tracer = NewTracer(
        WithServiceName("chat"), WithEndpoint(http_receiver.endpoint), WithSampler("always_on")
    )
    with tracer.start_inference("m") as span:
        span.record_tokens(input=1, output=2)
    assert tracer.provider.force_flush()
    assert http_receiver.names() == ["chat m"]
    assert tracer.provider.stats() == {"exported": 1}
    tracer.provider.shutdown()


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (WithVersion("v3"), "version='v3': this package speaks v2.3 only"),
        (WithSpanFilter("no function"), "expected a function of a span"),  # type: ignore[arg-type]
        (WithExporter(object()), "has no export and no shutdown"),
        (WithProcessor(object()), "processors: .* has no on_start"),
        (WithSampler("allways_on"), "did you mean 'always_on'"),
        (WithSetting("no_such", 1), "unknown setting 'no_such'"),
        ("WithServiceName", "is no option"),
    ],
)
def test_what_cannot_work_is_said_at_construction(option: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        NewTracer(option)


PROGRAM = """
import mcptrace
from opentelemetry import trace
from mcptrace.testing import ImmediateProcessor, InMemoryExporter

early = trace.get_tracer("early")
assert mcptrace.stats() == {} and mcptrace.force_flush()
mcptrace.shutdown()
assert not mcptrace.get_tracer("before").start_span("s").is_recording()
memory = InMemoryExporter()
tracer = mcptrace.init(
    service_name="x", sampler="always_on", traces_exporter="none",
    processors=[ImmediateProcessor(memory)],
)
assert mcptrace.init() is mcptrace.init(service_name="x", exporter=None) is tracer
assert trace.get_tracer_provider() is tracer.provider
assert isinstance(trace.get_tracer("late"), mcptrace.Tracer)
with early.start_as_current_span("early"):
    mcptrace.get_tracer("late").start_span("late").end()
assert [span.name for span in memory.spans] == ["late", "early"]
assert mcptrace.force_flush(1.0)
mcptrace.shutdown(1.0)
mcptrace.shutdown()
assert mcptrace.stats() == {}
print("done")
"""


def test_init_sets_up_the_program_once() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


AGAIN = """
import mcptrace
from mcptrace.testing import InMemoryExporter

memory = InMemoryExporter()
mcptrace.init(service_name="x", exporter=memory, endpoint="http://c:4318", span_filter=len)
for bad in (
    {"service_nme": "x"},
    {"version": "v3"},
    {"endpoint": "ftp://x"},
    {"sampler": object()},
    {"exporter": object()},
):
    try:
        mcptrace.init(**bad)
    except mcptrace.ConfigError:
        continue
    print("took", bad)
mcptrace.init(service_name="x", exporter=memory, endpoint="http://c:4318/", span_filter=len)
mcptrace.init(service_name="y", exporter=InMemoryExporter(), endpoint="http://c:4318")
mcptrace.init(service_name="z")
"""


def test_a_second_init_is_checked_and_says_once_what_it_does_not_change() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AGAIN],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (
        "",
        "mcptrace: tracing is set up already; init changes nothing about exporter, service_name\n",
    )


def test_the_public_names_are_those_listed() -> None:
    assert all(hasattr(mcptrace, name) for name in mcptrace.__all__)
