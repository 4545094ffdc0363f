"""Spans as OTLP/JSON on a text stream, one line a batch: for looking, not for keeping."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from mcptrace.api import ENCODE, ExportOutcome, ExportResult, FinishedSpan
from mcptrace.exporters.otlp import encode_json
from mcptrace_proto.errors import WireError


class ConsoleExporter:
    """Writes to ``stream``; by default to what sys.stdout is at the time."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def export(self, spans: Sequence[FinishedSpan], deadline_seconds: float) -> ExportResult:
        stream = sys.stdout if self._stream is None else self._stream
        try:
            line = encode_json(spans).decode()
        except (WireError, TypeError) as error:
            dropped = {ENCODE: len(spans)}
            return ExportResult(ExportOutcome.DELIVERED, message=str(error), dropped=dropped)
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError) as error:  # a closed pipe, a closed stream
            return ExportResult(ExportOutcome.REJECTED, message=str(error))
        return ExportResult(ExportOutcome.DELIVERED)

    def shutdown(self) -> None:
        return None
