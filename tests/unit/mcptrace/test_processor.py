from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value

from mcptrace import process_exit
from mcptrace.api import ExportOutcome, ExportResult, FinishedSpan, SpanExporter
from mcptrace.batch import BatchSettings
from mcptrace.exporters import build_otlp_exporter
from mcptrace.guard import Counters, reraise_in_tests
from mcptrace.processor import CONTENDED_SPANS_MAX, BatchProcessor, count_result

Make = Callable[..., FinishedSpan]
Processors = Callable[..., BatchProcessor]
NEVER = 600.0
"""A delay that no test waits for: what is exported before was asked for."""


@dataclass
class Gate:
    """An exporter that can be held in the middle of an export."""

    batches: list[list[str]] = field(default_factory=list)
    threads: set[threading.Thread] = field(default_factory=set)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    opened: threading.Event = field(default_factory=threading.Event)
    deadlines: list[float] = field(default_factory=list)
    suppressed: list[object] = field(default_factory=list)
    stubborn: bool = False

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        self.batches.append([span.data.name for span in spans])
        self.threads.add(threading.current_thread())
        self.deadlines.append(deadline_seconds)
        self.suppressed.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        self.entered.release()
        if not self.opened.wait(30):
            return ExportResult(ExportOutcome.EXHAUSTED)
        return ExportResult(ExportOutcome.DELIVERED)

    def shutdown(self) -> None:
        if not self.stubborn:
            self.opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def processor() -> Iterator[Processors]:
    made: list[BatchProcessor] = []

    def make(exporter: SpanExporter, **settings: Any) -> BatchProcessor:
        settings.setdefault("schedule_delay_seconds", NEVER)
        made.append(BatchProcessor(exporter, BatchSettings(**settings)))
        return made[-1]

    yield make
    for item in made:
        item.shutdown(2.0)


def test_construction_starts_no_thread(gate: Gate) -> None:
    before = threading.active_count()
    BatchProcessor(gate)
    assert threading.active_count() == before


def test_full_batch_leaves_without_waiting_for_the_delay(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    gate.opened.set()
    out = processor(gate, batch_spans_max=2)
    for name in ("a", "b", "c"):
        out.on_end(finished(name))
    assert gate.entered.acquire(timeout=10)
    assert gate.batches[0] == ["a", "b"]
    assert out.force_flush(10.0)
    assert gate.batches == [["a", "b"], ["c"]]
    (thread,) = gate.threads
    assert (thread.daemon, thread is threading.current_thread()) == (True, False)
    assert gate.suppressed == [True, True]
    assert get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


def test_partial_batch_leaves_after_the_delay(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    gate.opened.set()
    out = processor(gate, schedule_delay_seconds=0.05)
    out.on_end(finished("a"))
    assert gate.entered.acquire(timeout=10)
    assert gate.batches == [["a"]]


def test_full_queue_drops_the_newest_and_never_blocks(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    out = processor(gate, queue_spans_max=4, batch_spans_max=2)
    for name in "ab":
        out.on_end(finished(name))
    assert gate.entered.acquire(timeout=10)  # a and b are in flight, the queue is empty
    began = time.monotonic()
    for name in "cdefgh":
        out.on_end(finished(name))
    assert time.monotonic() - began < 5.0
    gate.opened.set()
    assert out.force_flush(10.0)
    assert gate.batches == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert out.counters.snapshot() == {"exported": 6, "queue_full": 2}


def test_queue_is_bounded_in_bytes(processor: Processors, gate: Gate, finished: Make) -> None:
    gate.opened.set()
    out = processor(gate, queue_bytes_max=10_000)
    for _ in range(5):
        out.on_end(finished("x" * 4000))
    assert out.force_flush(10.0)
    assert out.counters.snapshot() == {"exported": 2, "queue_full": 3}


def test_flush_honours_its_timeout(processor: Processors, gate: Gate, finished: Make) -> None:
    out = processor(gate)
    out.on_end(finished("a"))
    began = time.monotonic()
    assert out.force_flush(0.1) is False
    assert time.monotonic() - began < 5.0
    gate.opened.set()
    assert out.force_flush(10.0) is True


def test_flush_without_any_span_is_complete_and_starts_nothing(
    processor: Processors, gate: Gate
) -> None:
    before = threading.active_count()
    assert processor(gate).force_flush(1.0) is True
    assert threading.active_count() == before


def test_shutdown_exports_what_is_held_and_later_spans_are_counted(
    processor: Processors, gate: Gate, finished: Make, caplog: pytest.LogCaptureFixture
) -> None:
    gate.opened.set()
    out = processor(gate, batch_spans_max=2)
    for name in "abc":
        out.on_end(finished(name))
    out.shutdown(10.0)
    assert [name for batch in gate.batches for name in batch] == ["a", "b", "c"]
    assert caplog.records == []  # nothing was lost, nothing is said
    out.on_end(finished("late"))
    assert out.counters.snapshot() == {"exported": 3, "shutdown": 1}
    assert out.force_flush(1.0) is True
    out.shutdown(10.0)


@pytest.mark.parametrize("stubborn", [False, True])
def test_shutdown_keeps_its_deadline_and_every_span_is_counted_once(
    processor: Processors,
    gate: Gate,
    finished: Make,
    caplog: pytest.LogCaptureFixture,
    stubborn: bool,
) -> None:
    gate.stubborn = stubborn
    out = processor(gate, batch_spans_max=2)
    for name in "abc":
        out.on_end(finished(name))
    assert gate.entered.acquire(timeout=10)
    began = time.monotonic()
    out.shutdown(0.5)
    took = time.monotonic() - began
    gate.opened.set()
    for thread in gate.threads:
        thread.join(10)
    assert took < 3.0
    counts = {"shutdown": 3} if stubborn else {"exported": 2, "shutdown": 1}
    assert out.counters.snapshot() == counts
    assert len(caplog.records) == 1
    assert "shutdown" in caplog.records[0].getMessage()


def test_shutdown_ends_in_time_while_the_collector_is_down(
    processor: Processors, finished: Make
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"
        out = processor(build_otlp_exporter("http/protobuf", endpoint))
        out.on_end(finished())
        began = time.monotonic()
        out.shutdown(0.5)
        assert time.monotonic() - began < 3.0
    assert out.counters.snapshot() == {"retry_exhausted": 1}


def test_export_deadline_is_the_settings_and_at_shutdown_what_remains(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    gate.opened.set()
    out = processor(gate, export_timeout_seconds=7.0)
    out.on_end(finished())
    assert out.force_flush(10.0)
    out.on_end(finished())
    out.shutdown(3.0)
    assert gate.deadlines[0] == 7.0
    assert 0.0 < gate.deadlines[1] <= 3.0


def test_exporter_that_raises_costs_its_batch_only(processor: Processors, finished: Make) -> None:
    class Broken:
        batches = 0

        def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
            Broken.batches += 1
            if Broken.batches == 1:
                raise OSError("broken")
            return ExportResult(ExportOutcome.DELIVERED)

        def shutdown(self) -> None:
            return None

    reraise_in_tests(False)
    out = processor(Broken())
    for _ in range(2):
        out.on_end(finished())
        assert out.force_flush(10.0)
    assert out.counters.snapshot() == {"exported": 1, "internal_error": 1, "rejected": 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("outcome", ["none", "exit"])
def test_exporter_that_answers_nothing_costs_its_batch_only(
    processor: Processors, finished: Make, outcome: str
) -> None:
    class Odd:
        def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> Any:
            if outcome == "exit":
                raise SystemExit
            return None

        def shutdown(self) -> None:
            """Nothing to close."""

    before = reraise_in_tests(False)
    try:
        batches = processor(Odd(), batch_spans_max=1)
        for _ in range(2):
            batches.on_end(finished())
            thread = batches._thread
            assert thread is not None
            if outcome == "exit":
                thread.join(5.0)
            else:
                assert batches.force_flush(5.0)
    finally:
        reraise_in_tests(before)
    errors = {"internal_error": 2} if outcome == "none" else {}
    assert batches.counters.snapshot() == {"rejected": 2} | errors


def test_shutdown_in_a_signal_handler_ends_though_its_own_frame_holds_the_lock(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    batches = processor(gate)
    batches.on_end(finished())
    with batches._lock:  # as when the signal comes in the middle of on_end
        batches.shutdown(0.2)
    assert batches.counters.snapshot() == {"shutdown": 1}


def test_span_ended_while_the_lock_is_held_waits_beside_the_buffer(
    processor: Processors, gate: Gate, finished: Make
) -> None:
    gate.opened.set()
    out = processor(gate, queue_spans_max=CONTENDED_SPANS_MAX)
    out.on_end(finished("first"))
    with out._lock:
        for number in range(CONTENDED_SPANS_MAX + 1):
            out.on_end(finished(str(number)))
    assert out.force_flush(10.0)
    # One more than fits beside, and then one more than fits into the queue.
    assert out.counters.snapshot() == {"exported": CONTENDED_SPANS_MAX, "queue_full": 2}


def test_spans_of_many_threads_are_exported_or_counted_exactly(
    processor: Processors, http_receiver: Any, finished: Make
) -> None:
    exporter = build_otlp_exporter("http/protobuf", http_receiver.endpoint)
    out = processor(exporter, batch_spans_max=64, queue_spans_max=1 << 14)
    spans = [[finished(f"{thread}.{number}") for number in range(500)] for thread in range(8)]

    def end_all(mine: list[FinishedSpan]) -> None:
        for span in mine:
            out.on_end(span)

    threads = [threading.Thread(target=end_all, args=(mine,)) for mine in spans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out.force_flush(30.0)
    stats = out.counters.snapshot()
    names = http_receiver.names()
    assert stats["exported"] == len(names) == len(set(names))
    assert stats["exported"] + stats.get("queue_full", 0) == 4000


def test_shutdown_exports_itself_where_no_thread_can_start(
    processor: Processors, gate: Gate, finished: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    gate.opened.set()
    out = processor(gate)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        out.on_end(finished("a"))
        assert out.force_flush(1.0) is False
    out.shutdown(5.0)
    assert gate.batches == [["a"]]
    assert gate.threads == {threading.current_thread()}


def test_processor_that_is_dropped_is_collected(gate: Gate) -> None:
    import weakref

    reference = weakref.ref(BatchProcessor(gate))
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ExportResult(ExportOutcome.DELIVERED), {"exported": 5}),
        (ExportResult(ExportOutcome.REJECTED), {"rejected": 5}),
        (ExportResult(ExportOutcome.EXHAUSTED), {"retry_exhausted": 5}),
        (ExportResult(ExportOutcome.DELIVERED, 2), {"exported": 3, "partial_rejected": 2}),
        (ExportResult(ExportOutcome.DELIVERED, 9), {"partial_rejected": 5}),
        (ExportResult(ExportOutcome.DELIVERED, -1), {"exported": 5}),
        (
            ExportResult(ExportOutcome.DELIVERED, 1, "", {"encode": 1, "oversize": 1}),
            {"exported": 2, "partial_rejected": 1, "encode": 1, "oversize": 1},
        ),
        (ExportResult(ExportOutcome.DELIVERED, dropped={"encode": 5}), {"encode": 5}),
        (ExportResult(ExportOutcome.REJECTED, dropped={"encode": 4}), {"encode": 4, "rejected": 1}),
    ],
)
def test_every_span_of_a_batch_is_counted_once(
    result: ExportResult, expected: dict[str, int]
) -> None:
    counters = Counters()
    count_result(counters, result, 5)
    assert counters.snapshot() == expected


# --- processes: each script is a program of its own, as a user would run it ----------------

COMMON = textwrap.dedent("""
    import multiprocessing, os, sys
    from mcptrace.api import FinishedSpan
    from mcptrace.batch import BatchSettings
    from mcptrace.exporters import build_otlp_exporter
    from mcptrace.processor import BatchProcessor
    from mcptrace_proto.model import Resource, Scope, SpanData

    RESOURCE, SCOPE = Resource(), Scope()

    def span(name):
        data = SpanData(trace_id=b"t" * 16, span_id=b"s" * 8, name=name)
        return FinishedSpan(data, SCOPE, RESOURCE)

    def build():
        exporter = build_otlp_exporter("http/protobuf", sys.argv[1])
        return BatchProcessor(exporter, BatchSettings(schedule_delay_seconds=600.0))
""")

AT_EXIT = """
out = build()
for _ in range(3):
    out.on_end(span("main"))
"""

FORK = """
out = build()
for _ in range(3):
    out.on_end(span("parent"))
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        for _ in range(5):
            out.on_end(span("child"))
        sys.exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0, 0], codes
out.on_end(span("parent"))
"""

# The parent used its exporter first, so that a kept connection is there to be inherited.
FORK_AFTER_EXPORT = """
out = build()
out.on_end(span("parent"))
assert out.force_flush(10.0)
child = os.fork()
if child == 0:
    out.on_end(span("child"))
    assert out.force_flush(10.0)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
out.on_end(span("parent"))
"""

MULTIPROCESSING = """
out = None

def work(count):
    global out
    if out is None:  # spawn and forkserver import this file anew
        out = build()
    for _ in range(count):
        out.on_end(span("child"))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    out = build()
    out.on_end(span("parent"))
    workers = [context.Process(target=work, args=(4,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
"""


def run_program(tmp_path: Any, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(COMMON + body)
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def test_program_that_just_ends_exports_everything(tmp_path: Any, http_receiver: Any) -> None:
    run_program(tmp_path, AT_EXIT, http_receiver.endpoint)
    assert http_receiver.names() == ["main"] * 3


def test_program_ends_in_time_and_says_what_it_lost_without_a_collector(tmp_path: Any) -> None:
    began = time.monotonic()
    done = run_program(tmp_path, AT_EXIT, "http://127.0.0.1:1/v1/traces")
    assert time.monotonic() - began < 20.0
    lines = done.stderr.splitlines()
    assert lines[-1] == "mcptrace: 0 spans exported; not exported: retry_exhausted 3"
    assert len(lines) == 2  # and one about the receiver


@needs_fork
@pytest.mark.parametrize(
    ("body", "expected"),
    [(FORK, {"parent": 4, "child": 10}), (FORK_AFTER_EXPORT, {"parent": 2, "child": 1})],
)
def test_forked_children_export_their_own_spans_once(
    tmp_path: Any, http_receiver: Any, body: str, expected: dict[str, int]
) -> None:
    run_program(tmp_path, body, http_receiver.endpoint)
    assert Counter(http_receiver.names()) == expected


@needs_fork
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_workers_export_before_they_vanish(
    tmp_path: Any, http_receiver: Any, method: str
) -> None:
    run_program(tmp_path, MULTIPROCESSING, http_receiver.endpoint, method)
    assert Counter(http_receiver.names()) == {"parent": 1, "child": 8}


@needs_fork
def test_fork_that_ran_no_hooks_is_noticed_by_the_process_id(
    processor: Processors, gate: Gate, finished: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = processor(gate)
    out.on_end(finished("of the parent"))
    with monkeypatch.context() as patch:
        patch.setattr(process_exit._Hooks, "pid", process_exit._Hooks.pid)  # put back later
        patch.setattr(os, "getpid", lambda: -1)
        out.on_end(finished("of the child"))
        gate.opened.set()
        assert out.force_flush(10.0)
        assert gate.batches == [["of the child"]]
        out.shutdown(5.0)
