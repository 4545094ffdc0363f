"""Which PyTorch and Transformers are hooked, and where.

Pure: versions come as text and are judged, nothing is imported.
"""

from __future__ import annotations

import re

TORCH = "torch"
GENERATION = "transformers.generation.utils"
MODULES = (TORCH, GENERATION)
"""Hooked when they are imported, whenever that is."""

OLDEST = {TORCH: (2, 2), GENERATION: (4, 38)}

_VERSION = re.compile(r"(\d+)\.(\d+)")


def refusal(module: str, version: str) -> str:
    """Why this version of a module of MODULES is left alone; empty when it is not."""
    found = _VERSION.match(version)
    package = module.partition(".")[0]
    if found is None:
        return f"{package} is not traced: its version {version!r} cannot be read"
    major, minor = OLDEST[module]
    if (int(found[1]), int(found[2])) < (major, minor):
        return f"{package} {version} is not traced: {major}.{minor} or newer is needed"
    return ""
