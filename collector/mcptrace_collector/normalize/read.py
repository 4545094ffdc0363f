"""Which convention a span speaks, and what it says in it.

Pure and total.  Applies the table of dialects.py; knows no convention itself.

Always true:
  * what a span says in MCP-Trace's own names is never replaced, only completed;
  * a span that was read once and then carries our names reads the same again: its convention
    is the one that was recorded, and its own names win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mcptrace_collector.normalize import values
from mcptrace_collector.normalize.cells import DURATIONS, FLAGS, TEXTS, TOKENS
from mcptrace_collector.normalize.dialects import DIALECTS, NATIVE, OTHER_OPERATIONS, Dialect
from mcptrace_collector.normalize.sources import Place, Source, fetch
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv
from mcptrace_proto.model import Attributes, AttributeValue
from mcptrace_proto.schema import (
    COUNTS,
    INVALID,
    InferenceSpan,
    TokenUsage,
    is_inference,
    read_inference,
)

# What the normaliser did to a value; each is also a kind of change in the metrics.
TRANSLATED = "translated"
COUNT_INVALID = "count_invalid"
INPUT_MADE_INCLUSIVE = "input_made_inclusive"
OUTPUT_MADE_INCLUSIVE = "output_made_inclusive"
TOTAL_REPLACED = "total_replaced"

_BY_NAME = {dialect.name: dialect for dialect in (NATIVE, *DIALECTS)}
_ROOTS = frozenset(
    name.partition(".")[0]
    for dialect in DIALECTS
    for name in (*dialect.names, *(root + "." for root in dialect.roots))
)


@dataclass(slots=True)
class Reading:
    """What a span says.  ``origins`` names the source of each field whose value is from one that
    is neither the first of its cell nor a constant; ``changes`` are what was done to values."""

    view: InferenceSpan
    origins: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)


def convention_of(attributes: Attributes) -> Dialect | None:
    """The convention in which the span describes an inference; None when it describes none."""
    if is_inference(attributes):
        recorded = attributes.get(semconv.SOURCE_CONVENTION)
        return _BY_NAME.get(recorded, NATIVE) if isinstance(recorded, str) else NATIVE
    roots = {name.partition(".")[0] for name in attributes}
    if roots.isdisjoint(_ROOTS):
        return None
    for dialect in DIALECTS:
        if _speaks(dialect, attributes, roots):
            return dialect if _describes_inference(dialect, attributes) else None
    return None


def _speaks(dialect: Dialect, attributes: Attributes, roots: set[str]) -> bool:
    if dialect.names.isdisjoint(attributes) and dialect.roots.isdisjoint(roots):
        return False
    return dialect.also <= attributes.keys()


def _describes_inference(dialect: Dialect, attributes: Attributes) -> bool:
    if attributes.get(semconv.GEN_AI_OPERATION_NAME) in _OTHER_OPERATIONS_LIST:
        return False
    kind = attributes.get(dialect.kind_name)
    if isinstance(kind, str) and kind.strip():
        if kind.strip().lower() in dialect.kinds:
            return True
        if dialect.kinds_closed:
            return False
    return not dialect.evidence.isdisjoint(attributes)


# A list, because the value looked up may be one that cannot be hashed.
_OTHER_OPERATIONS_LIST = sorted(OTHER_OPERATIONS)


def read(record: SpanRecord, dialect: Dialect, config: Mapping[str, str]) -> Reading:
    """What the span says, its own MCP-Trace names first and then the cells of ``dialect``."""
    view = read_inference(record.data.attributes)
    reading = Reading(view)
    for name in (*TEXTS, *DURATIONS, *FLAGS):
        if getattr(view, name) is None:
            setattr(view, name, _first(reading, name, record, dialect, config))
    if not _speaks_of_counts(record.data.attributes):
        _read_usage(reading, record, dialect, config)
    return reading


def _speaks_of_counts(attributes: Attributes) -> bool:
    """Whether one of our count names is there, whatever its value.

    Counts are taken from one place, so that a total is never of one and its parts of another.
    """
    return any(
        name.startswith(semconv.TOKEN_USAGE_PREFIX) and name != semconv.TOKENS_ESTIMATED
        for name in attributes
    )


def _first(
    reading: Reading,
    name: str,
    record: SpanRecord,
    dialect: Dialect,
    config: Mapping[str, str],
) -> str | float | bool | None:
    """The first source of a cell that says something readable."""
    for position, source in enumerate(dialect.cells.get(name, ())):
        value = _convert(name, source, fetch(source, record, config))
        if value is not None:
            if position > 0 and source.place is not Place.CONSTANT:
                reading.origins[name] = source.label
            return value
    return None


def _convert(name: str, source: Source, value: AttributeValue) -> str | float | bool | None:
    if name in DURATIONS:
        return values.milliseconds(value, source.scale)
    return values.flag(value) if name in FLAGS else values.text(value)


def _read_usage(
    reading: Reading, record: SpanRecord, dialect: Dialect, config: Mapping[str, str]
) -> None:
    counts: dict[str, int | None] = dict.fromkeys(TOKENS)
    unknown: dict[str, str] = {}
    for name in TOKENS:
        for position, source in enumerate(dialect.cells.get(name, ())):
            value = fetch(source, record, config)
            if values.is_empty(value):
                continue
            counts[name] = values.count(value)
            if counts[name] is None and name in COUNTS:
                unknown[name] = INVALID
                reading.changes.append(COUNT_INVALID)
            elif position > 0 and name in COUNTS:
                reading.origins["token_usage." + name] = source.label
            break
    _make_inclusive(reading, counts)
    _settle_total(reading, counts)
    reported = {name: counts[name] for name in COUNTS}
    estimated = reading.view.token_usage.estimated
    usage = TokenUsage(**reported, estimated=estimated, unknown=unknown)
    reading.view = replace(reading.view, token_usage=usage)


def _make_inclusive(reading: Reading, counts: dict[str, int | None]) -> None:
    """Add a subset that is larger than its whole: the whole was counted without it.

    Some emitters count the input without what was read from or written to the cache, and the
    output without the reasoning.
    """
    whole, cached, written = counts["input"], counts["cached"], counts["cache_written"]
    if whole is not None and cached is not None and cached > whole:
        counts["input"] = whole + cached + (written or 0)
        reading.origins["token_usage.input"] = "sum:input+cached"
        reading.changes.append(INPUT_MADE_INCLUSIVE)
    whole, reasoning = counts["output"], counts["reasoning"]
    if whole is not None and reasoning is not None and reasoning > whole:
        counts["output"] = whole + reasoning
        reading.origins["token_usage.output"] = "sum:output+reasoning"
        reading.changes.append(OUTPUT_MADE_INCLUSIVE)


def _settle_total(reading: Reading, counts: dict[str, int | None]) -> None:
    """The total is input + output; a reported one counts only where one of these is unknown."""
    total = counts["total"]
    parts = [counts[name] for name in ("input", "output")]
    known = [part for part in parts if part is not None]
    reading.origins.pop("token_usage.total", None)
    if total is None or (len(known) == 1 and total >= known[0]) or not known:
        return
    counts["total"] = None
    if len(known) == 2 and total != sum(known):
        reading.origins["token_usage.total"] = "sum:input+output"
        reading.changes.append(TOTAL_REPLACED)
