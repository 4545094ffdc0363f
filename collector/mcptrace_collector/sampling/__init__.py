"""Spans gathered by trace until a verdict is due, and the verdicts remembered for late spans.

One door: ``TraceTable`` holds, ``Verdicts`` remembers.  The verdict itself is arithmetic
shared with the SDK (mcptrace_proto.sampling).
"""

from .table import OpenTrace, TraceTable
from .verdicts import Verdicts

__all__ = ["OpenTrace", "TraceTable", "Verdicts"]
