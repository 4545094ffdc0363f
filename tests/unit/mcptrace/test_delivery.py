"""Filters, the schema and processors: what passes, what is counted, and that nothing raises."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrace.testing import captured_spans
from mcptrace_proto.model import SpanData

VIOLATIONS = "mcptrace.schema.violations"


def test_the_filter_drops_and_counts() -> None:
    with captured_spans(span_filter=lambda span: span.name != "/healthz") as capture:
        capture.tracer.start_span("/healthz").end()
        capture.tracer.start_span("/chat").end()
        assert [data.name for data in capture.spans] == ["/chat"]
        assert capture.provider.stats() == {"filtered": 1}


def test_a_filter_that_raises_keeps_the_span() -> None:
    def broken(span: SpanData) -> bool:
        raise ValueError("broken")

    with captured_spans(span_filter=broken, reraise=False) as capture:
        capture.tracer.start_span("s").end()
        assert len(capture.spans) == 1
        assert capture.provider.stats() == {"internal_error": 1}


@pytest.mark.parametrize(
    ("level", "exported", "violations", "counts"),
    [
        ("strict", 0, None, {"schema_violation": 1, "schema_refused": 1}),
        ("warn", 1, ["model_name:empty"], {"schema_violation": 1}),
        ("off", 1, None, {}),
    ],
)
def test_a_non_conforming_inference_is_refused_marked_or_left(
    level: str, exported: int, violations: Any, counts: dict[str, int]
) -> None:
    with captured_spans(schema_enforcement=level) as capture:
        with capture.tracer.start_inference("") as span:
            span.record_tokens(input=1, output=1)
        assert len(capture.spans) == exported
        assert [data.attributes.get(VIOLATIONS) for data in capture.spans] == [violations][
            :exported
        ]
        assert capture.provider.stats() == counts


def test_spans_that_are_no_inference_pass_a_strict_schema_with_the_stamp() -> None:
    with captured_spans(schema_enforcement="strict") as capture:
        capture.tracer.start_span("s").end()
        assert [data.attributes["mcptrace.protocol_version"] for data in capture.spans] == ["v2.3"]


class Broken:
    """A processor of which everything raises."""

    def on_start(self, span: Any, parent_context: Any) -> None:
        raise ValueError("on_start")

    def on_end(self, span: Any) -> None:
        raise ValueError("on_end")

    def force_flush(self, timeout_seconds: float) -> bool:
        raise ValueError("force_flush")

    def shutdown(self, timeout_seconds: float) -> None:
        raise ValueError("shutdown")


def test_a_processor_that_raises_disturbs_neither_the_program_nor_the_others() -> None:
    with captured_spans(processors=[Broken()], reraise=False) as capture:
        with capture.tracer.start_as_current_span("s"):
            pass
        assert [data.name for data in capture.spans] == ["s"]
        assert capture.provider.force_flush() is False
        capture.provider.shutdown()
        assert capture.provider.stats() == {"internal_error": 4}


def test_processors_see_starts_with_their_context_and_only_kept_ends() -> None:
    seen: list[tuple[str, Any]] = []

    class Recorder(Broken):
        def on_start(self, span: Any, parent_context: Any) -> None:
            span.set_attribute("seen", True)
            seen.append(("start", span.name))

        def on_end(self, span: Any) -> None:
            seen.append(("end", span.data.attributes["seen"]))

        def shutdown(self, timeout_seconds: float) -> None:
            seen.append(("shutdown", timeout_seconds <= 5.0))

    with captured_spans(
        sampler="traceidratio", sampler_arg=1e-12, processors=[Recorder()]
    ) as capture:
        capture.tracer.start_span("dropped").end()
        with pytest.raises(ValueError, match="x"), capture.tracer.start_span("kept"):
            raise ValueError("x")
    assert seen == [
        ("start", "dropped"),
        ("start", "kept"),
        ("end", True),
        ("shutdown", True),
    ]
