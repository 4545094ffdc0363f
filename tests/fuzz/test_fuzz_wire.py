"""Three seconds of fuzzing in the default run; longer by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("fuzz_wire.py")


def test_damaged_requests_are_judged_as_by_official_protobuf() -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    for kind in ("capture", "made up", "span"):
        assert f"{kind}, read" in ran.stdout
        assert f"{kind}, refused" in ran.stdout
