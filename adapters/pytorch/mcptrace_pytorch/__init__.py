"""The PyTorch adapter: a span for every inference that a module runs in this process.

    mcptrace.init(service_name="ranker")
    mcptrace_pytorch.install()

Importing this changes nothing.  ``install`` and ``uninstall`` may be called any number of
times, before or after torch is imported; neither imports it.
"""

from __future__ import annotations

from mcptrace_pytorch.hooks import install, uninstall

__all__ = ["install", "uninstall"]
