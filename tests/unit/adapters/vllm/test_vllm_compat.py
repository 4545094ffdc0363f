"""Which versions of vLLM are hooked."""

from __future__ import annotations

import pytest

from mcptrace_vllm import compat


@pytest.mark.parametrize("version", ["0.10.0", "0.32.0+cpu", "1.0", "0.11.1rc2"])
def test_these_versions_are_hooked(version: str) -> None:
    assert compat.refusal(version) == ""


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.9.2", "vLLM 0.9.2 is not traced: 0.10 or newer is needed"),
        ("dev", "vLLM is not traced: its version 'dev' cannot be read"),
    ],
)
def test_others_are_refused_with_the_reason(version: str, reason: str) -> None:
    assert compat.refusal(version) == reason
