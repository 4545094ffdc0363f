"""What `mcptrace` offers is reviewed: a new or vanished name changes public_names.txt too.

python tests/house/test_public_names.py     writes the list anew
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import mcptrace

LIST = Path(__file__).with_name("public_names.txt")


def public_names() -> list[str]:
    """Names of `mcptrace`, and of its public classes' own members, sorted."""
    offered = getattr(mcptrace, "__all__", None) or [
        name
        for name, value in vars(mcptrace).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    names = set(offered)
    for name in offered:
        value = getattr(mcptrace, name)
        if inspect.isclass(value) and value.__module__.startswith("mcptrace"):
            names |= {f"{name}.{member}" for member in vars(value) if not member.startswith("_")}
    return sorted(names)


def test_public_names_are_the_reviewed_ones() -> None:
    assert public_names() == LIST.read_text(encoding="utf-8").split()


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in public_names()), encoding="utf-8")
