"""Puts oracle.py and strategies.py, which the fuzzer uses as well, within reach."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
