"""The vLLM adapter: a span for every request of an ``LLM`` in this process.

    mcptrace.init(service_name="batch")
    mcptrace_vllm.install()

A vLLM server makes spans of its own, and the collector understands them: see
docs/adapters.md.  Importing this changes nothing.  ``install`` and ``uninstall`` may be
called any number of times, before or after vLLM is imported; neither imports it.
"""

from __future__ import annotations

from mcptrace_vllm.hooks import install, uninstall

__all__ = ["install", "uninstall"]
