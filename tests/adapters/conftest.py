"""What the adapters' tests share: a framework that is not there skips, or fails where promised."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def framework() -> Callable[[str, str], Any]:
    """``framework(module, group)`` imports a module of the group's environment."""

    def load(module: str, group: str) -> Any:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            missing = f"{module} is not installed (make test-{group.lower()} installs it)"
            assert not os.environ.get(f"MCPTRACE_REQUIRE_{group}"), missing
            pytest.skip(missing)
        return importlib.import_module(module)

    return load
