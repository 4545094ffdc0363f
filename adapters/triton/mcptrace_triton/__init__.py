"""The Triton adapter: a client span for every inference that a tritonclient asks for.

    mcptrace.init(service_name="frontend")
    mcptrace_triton.install()

The trace goes on in the server: its spans become children of the client's.  Importing this
changes nothing.  ``install`` and ``uninstall`` may be called any number of times, before or
after tritonclient is imported; neither imports it.
"""

from __future__ import annotations

from mcptrace_triton.hooks import install, uninstall

__all__ = ["install", "uninstall"]
