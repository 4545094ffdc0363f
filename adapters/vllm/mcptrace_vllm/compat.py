"""Which vLLM is hooked, and where.

Pure: the version comes as text and is judged, nothing is imported.  It is the one that the
module states itself: builds of vLLM go by several distribution names.
"""

from __future__ import annotations

import re

MODULE = "vllm.entrypoints.llm"
"""Hooked when it is imported, whenever that is."""

CLASS = "LLM"
METHODS = {"generate": "text_completion", "chat": "chat"}
"""Hooked methods, and the operation that each is."""

OLDEST = (0, 10)

_VERSION = re.compile(r"(\d+)\.(\d+)")


def refusal(version: str) -> str:
    """Why this version is left alone; empty when it is not."""
    found = _VERSION.match(version)
    if found is None:
        return f"vLLM is not traced: its version {version!r} cannot be read"
    if (int(found[1]), int(found[2])) < OLDEST:
        return f"vLLM {version} is not traced: {OLDEST[0]}.{OLDEST[1]} or newer is needed"
    return ""
