"""The provider's life: forks, exits and deadlines."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from opentelemetry import trace

from mcptrace.testing import captured_spans

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


def _in_child(work: Any) -> str:
    """What ``work()`` returns in a forked child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = "failed"
        try:
            answer = work()
        finally:
            os.write(write_end, answer.encode())
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@needs_fork
def test_a_forked_child_has_its_own_ids_resource_and_counts() -> None:
    with captured_spans() as capture:
        provider = capture.provider
        provider.counters.add("something")
        provider.ids.span_id()
        before = list(getattr(provider.ids, "_words"))  # noqa: B009 - private on purpose
        instance = provider.resource.attributes["service.instance.id"]

        def child() -> str:
            span = capture.tracer.start_span("child")
            assert span.get_span_context().span_id not in before
            assert provider.resource.attributes["service.instance.id"] != instance
            assert provider.resource.attributes["process.pid"] == os.getpid()
            assert provider.stats() == {}
            span.end()
            return capture.spans[-1].name

        assert _in_child(child) == "child"
        assert provider.resource.attributes["service.instance.id"] == instance


@needs_fork
def test_a_trace_open_at_the_fork_stays_the_parents_and_goes_on_in_the_child() -> None:
    with captured_spans(sampler="parentbased_always_on") as capture:
        with capture.tracer.start_as_current_span("parent") as parent:
            capture.tracer.start_span("held").end()

            def child() -> str:
                with capture.tracer.start_as_current_span("work"):
                    pass
                parent.end()
                assert capture.provider.traces.spans_held == 0
                (work,) = capture.spans
                assert work.parent_span_id == parent.get_span_context().span_id.to_bytes(8, "big")
                assert capture.provider.stats() == {"inherited_after_fork": 1}
                return f"{work.name} {work.attributes['mcptrace.sampling.reason']}"

            assert _in_child(child) == "work parent"
        assert [data.name for data in capture.spans] == ["held", "parent"]


@needs_fork
def test_the_childs_copy_of_an_open_trace_is_not_delivered_when_it_is_collected() -> None:
    with captured_spans() as capture:
        open_traces = [capture.tracer.start_span("root")]
        context = trace.set_span_in_context(open_traces[0])
        capture.tracer.start_span("held", context=context).end()
        del context

        def child() -> str:
            open_traces.clear()
            gc.collect()
            capture.provider.force_flush()
            return f"{capture.spans} {capture.provider.traces.spans_held}"

        assert _in_child(child) == "[] 0"


@needs_fork
def test_a_lock_held_at_the_fork_does_not_hang_the_child() -> None:
    with captured_spans() as capture:

        def child() -> str:
            capture.tracer.start_span("work").end()
            return capture.spans[-1].name

        with capture.provider.traces.lock, capture.provider.counters._lock:
            assert _in_child(child) == "work"


@needs_fork
def test_a_fork_without_pythons_hooks_is_noticed_at_the_next_root() -> None:
    with captured_spans() as capture:
        traces = capture.provider.traces
        instance = capture.provider.resource.attributes["service.instance.id"]
        traces.generation = -1  # as after a fork by C code
        capture.tracer.start_span("work").end()
        assert traces.generation == os.getpid()
        assert capture.provider.resource.attributes["service.instance.id"] != instance
        assert len(capture.spans) == 1


PROGRAM = """
import mcptrace, sys
from opentelemetry import trace
tracer = mcptrace.init(service_name="x", sampler="always_on", endpoint=sys.argv[1])
root = tracer.start_span("never ended")
tracer.start_span("waiting", trace.set_span_in_context(root)).end()
tracer.start_inference("abandoned")
tracer.start_span("done").end()
"""

WORKERS = """
import multiprocessing, sys
import mcptrace
from opentelemetry import trace

tracer = mcptrace.init(service_name="x", sampler="always_on", endpoint=sys.argv[1])

def work(number):
    root = tracer.start_span("never ended")
    tracer.start_span(f"waiting{number}", trace.set_span_in_context(root)).end()

if __name__ == "__main__":
    workers = [multiprocessing.get_context("fork").Process(target=work, args=(n,)) for n in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


def _run(program: str, *arguments: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=60)
    return time.monotonic() - began


def test_what_waits_at_the_exit_of_a_program_is_sent(http_receiver: Any) -> None:
    _run(PROGRAM, http_receiver.endpoint)
    assert http_receiver.names() == ["chat abandoned", "done", "waiting"]


@needs_fork
def test_what_waits_at_the_exit_of_a_worker_process_is_sent(http_receiver: Any) -> None:
    _run(WORKERS, http_receiver.endpoint)
    assert http_receiver.names() == ["waitinga", "waitingb"]


def test_an_exit_does_not_wait_long_for_a_receiver_that_is_not_there() -> None:
    assert _run(PROGRAM, "http://127.0.0.1:9/v1/traces") < 15.0


def test_flush_and_shutdown_pass_on_what_is_left_of_their_time() -> None:
    seen: list[float] = []

    class Slow:
        def on_start(self, span: Any, parent_context: Any) -> None: ...
        def on_end(self, span: Any) -> None: ...

        def force_flush(self, timeout_seconds: float) -> bool:
            seen.append(timeout_seconds)
            return True

        def shutdown(self, timeout_seconds: float) -> None:
            seen.append(timeout_seconds)

    with captured_spans(processors=[Slow()]) as capture:
        assert capture.provider.force_flush(1000) is True
        capture.provider.shutdown(2.0)
        capture.provider.shutdown(2.0)
    flush, stop = seen
    assert 0.5 < flush <= 1.0
    assert 1.5 < stop <= 2.0


def test_processors_added_later_see_later_spans() -> None:
    names: list[str] = []

    class Late:
        def on_start(self, span: Any, parent_context: Any) -> None: ...
        def on_end(self, span: Any) -> None:
            names.append(span.data.name)

        def shutdown(self, timeout_seconds: float) -> None: ...

    with captured_spans() as capture:
        capture.tracer.start_span("before").end()
        capture.provider.add_span_processor(Late())
        capture.tracer.start_span("after", trace.set_span_in_context(trace.INVALID_SPAN)).end()
        assert names == ["after"]
