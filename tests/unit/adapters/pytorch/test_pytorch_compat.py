"""Which versions of PyTorch and Transformers are hooked."""

from __future__ import annotations

import pytest

from mcptrace_pytorch import compat


@pytest.mark.parametrize("version", ["2.2.0", "2.13.0+cpu", "3.0", "2.10.0a0+git1234"])
def test_these_versions_of_torch_are_hooked(version: str) -> None:
    assert compat.refusal("torch", version) == ""


@pytest.mark.parametrize(
    ("module", "version", "reason"),
    [
        ("torch", "2.1.2", "torch 2.1.2 is not traced: 2.2 or newer is needed"),
        ("torch", "1.13", "torch 1.13 is not traced: 2.2 or newer is needed"),
        ("torch", "", "torch is not traced: its version '' cannot be read"),
        (
            "transformers.generation.utils",
            "4.9.0",
            "transformers 4.9.0 is not traced: 4.38 or newer is needed",
        ),
    ],
)
def test_others_are_refused_with_the_reason(module: str, version: str, reason: str) -> None:
    assert compat.refusal(module, version) == reason
