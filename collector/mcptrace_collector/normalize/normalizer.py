"""The room's work on one span, and on one trace: read, write down, judge.

Pure and total: no clock, no I/O; no span makes it raise.

Always true:
  * a span that is no inference leaves as it came, byte for byte;
  * an attribute that came with a span stays, but for MCP-Trace's own when they are wrong: a
    model name that has an alias, a recorded convention that is none, an older list of
    violations;
  * doing it twice is doing it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcptrace_collector.normalize import triton
from mcptrace_collector.normalize.dialects import NATIVE
from mcptrace_collector.normalize.read import TRANSLATED, convention_of, read
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv
from mcptrace_proto.model import Attributes
from mcptrace_proto.schema import (
    Enforcement,
    Verdict,
    enforce,
    inference_attributes,
    is_inference,
    read_inference,
    violation_attributes,
)

VLLM_MODEL = "normalize.vllm_model"
ALIAS = "alias:"
_FIELD_PREFIX = "mcptrace."
_MODEL_NAME_SOURCE = semconv.SOURCE_PREFIX + "model_name"


@dataclass(frozen=True, slots=True)
class Normalized:
    """What came of one span.  ``drop``: it violates the schema, and enforcement is strict.

    ``changes`` are kinds of change, for the metrics; see read.py.
    """

    violations: tuple[str, ...] = ()
    drop: bool = False
    changes: tuple[str, ...] = ()


_UNTOUCHED = Normalized()


class Normalizer:
    """Makes MCP-Trace inference spans of the inference spans of other conventions."""

    def __init__(
        self,
        *,
        enforcement: Enforcement = Enforcement.WARN,
        vllm_model: str | None = None,
        model_aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._enforcement = enforcement
        self._config = {VLLM_MODEL: vllm_model} if vllm_model else {}
        self._model_aliases = dict(model_aliases or {})

    def normalize(self, record: SpanRecord) -> Normalized:
        """Set ``record.inference`` and add what the span lacks, if it is an inference.

        A span that came with MCP-Trace names is judged as it came, and once more as it leaves;
        one that is translated only as it leaves.
        """
        attributes = record.data.attributes
        dialect = convention_of(attributes)
        if dialect is None:
            return _UNTOUCHED
        before = self._judge(record) if is_inference(attributes) else None
        reading = read(record, dialect, self._config)
        changes = list(reading.changes)
        if dialect is not NATIVE and before is None:
            changes.append(TRANSLATED)
        record.inference = view = reading.view
        view.token_usage = view.token_usage.completed()
        self._rename(record, reading.origins)
        added = inference_attributes(view, attributes)
        added |= _origins(reading.origins, added, attributes)
        recorded = attributes.get(semconv.SOURCE_CONVENTION)
        if recorded != dialect.name:
            if semconv.SOURCE_CONVENTION in attributes:
                record.remove({semconv.SOURCE_CONVENTION})
            added[semconv.SOURCE_CONVENTION] = dialect.name
        if added:
            record.annotate(added)
        return self._enforce(record, before, tuple(changes))

    def complete_trace(self, records: Sequence[SpanRecord]) -> None:
        """Add to inference spans what only the other spans of their trace say."""
        for record in triton.complete(records):
            if record.inference is not None:
                added = inference_attributes(record.inference, record.data.attributes)
                if added:
                    record.annotate(added)

    def _rename(self, record: SpanRecord, origins: dict[str, str]) -> None:
        """Give the model the name that the operator knows it by; once, and say what it was."""
        view, attributes = record.inference, record.data.attributes
        if view is None or view.model_name is None or _MODEL_NAME_SOURCE in attributes:
            return
        alias = self._model_aliases.get(view.model_name)
        if alias is None or alias == view.model_name:
            return
        origins["model_name"] = ALIAS + view.model_name
        view.model_name = alias
        if semconv.MODEL_NAME in attributes:
            record.remove({semconv.MODEL_NAME})

    def _judge(self, record: SpanRecord) -> Verdict:
        return enforce(self._enforcement, record.data, read_inference(record.data.attributes))

    def _enforce(
        self, record: SpanRecord, before: Verdict | None, changes: tuple[str, ...]
    ) -> Normalized:
        verdict = self._judge(record)
        if before is not None and before.violations:
            later = [code for code in verdict.violations if code not in before.violations]
            verdict = Verdict(verdict.export and before.export, (*before.violations, *later))
        if verdict.export:
            noted = violation_attributes(verdict, record.data.attributes)
            if noted and semconv.SCHEMA_VIOLATIONS in record.data.attributes:
                record.remove({semconv.SCHEMA_VIOLATIONS})
            if noted:
                record.annotate(noted)
        return Normalized(verdict.violations, not verdict.export, changes)


def _origins(origins: Mapping[str, str], added: Attributes, present: Attributes) -> Attributes:
    """``mcptrace.source.<field>`` for the fields that are written now."""
    wanted: Attributes = {
        semconv.SOURCE_PREFIX + field: label
        for field, label in origins.items()
        if _FIELD_PREFIX + field in added
    }
    return {name: label for name, label in wanted.items() if name not in present}
