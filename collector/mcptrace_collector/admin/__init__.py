"""The operators' door: alive, ready, metrics and status over HTTP."""

from .exposition import prometheus_text
from .server import AdminServer

__all__ = ["AdminServer", "prometheus_text"]
