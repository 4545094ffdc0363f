"""The room that makes MCP-Trace inference spans of what servers and libraries send.

    SpanRecord ─▶ convention_of (dialects.py) ─▶ read (cells.py, sources.py, values.py)
               ─▶ attributes added ─▶ judged by mcptrace_proto.schema ─▶ Normalized
    whole trace ─▶ complete_trace (triton.py)

Knows nothing of receivers, sampling or the disk.
"""

from __future__ import annotations

from mcptrace_collector.normalize.describe import markdown_table
from mcptrace_collector.normalize.normalizer import Normalized, Normalizer

__all__ = ["Normalized", "Normalizer", "markdown_table"]
