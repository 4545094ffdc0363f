"""What mcptrace-run can switch on: our adapters, and opentelemetry-instrumentation's parts.

Both are found by entry points, so that nothing here imports an adapter or an instrumentation
by name.  Looking (``find``) imports no framework; only ``switch_on`` does.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from mcptrace.guard import Counters, guard

ADAPTER_GROUP = "mcptrace_adapter"
INSTRUMENTOR_GROUP = "opentelemetry_instrumentor"
ADAPTER, INSTRUMENTOR = "adapter", "instrumentor"

FRAMEWORKS = {"pytorch": "torch", "vllm": "vllm", "triton": "tritonclient"}
"""The module that must be there for an adapter; an adapter not listed needs one of its name."""


@dataclass(slots=True)
class Candidate:
    """One thing that could be instrumented.  ``reason`` says why it is not, or what was found."""

    kind: str
    name: str
    wanted: bool
    reason: str
    entry_point: EntryPoint


def find(switched_off: Iterable[str], disabled: str) -> list[Candidate]:
    """Adapters, then instrumentors, each in alphabetical order.

    ``switched_off`` names adapters, ``disabled`` is OTEL_PYTHON_DISABLED_INSTRUMENTATIONS.
    """
    off = set(switched_off)
    disabled_names = {name.strip() for name in disabled.split(",")}
    found = [_adapter(point, off) for point in _points(ADAPTER_GROUP)]
    found += [_instrumentor(point, disabled_names) for point in _points(INSTRUMENTOR_GROUP)]
    return found


def switch_on(candidates: Sequence[Candidate], counters: Counters) -> None:
    """Install what is wanted.  One that fails is logged and does not stop the others."""
    for candidate in candidates:
        if candidate.wanted:
            with guard(f"{candidate.kind} {candidate.name}", counters):
                loaded: Any = candidate.entry_point.load()
                if candidate.kind == ADAPTER:
                    loaded()
                else:
                    loaded().instrument(skip_dep_check=True)


def _points(group: str) -> list[EntryPoint]:
    """Entry points by name; an editable install and a wheel may both list the same one."""
    return sorted({point.name: point for point in entry_points(group=group)}.values())


def _adapter(point: EntryPoint, off: set[str]) -> Candidate:
    framework = FRAMEWORKS.get(point.name, point.name)
    if point.name in off:
        return Candidate(ADAPTER, point.name, False, "switched off by --no-adapter", point)
    if not _is_installed(framework):
        return Candidate(ADAPTER, point.name, False, f"{framework} is not installed", point)
    return Candidate(ADAPTER, point.name, True, f"{framework} is installed", point)


def _instrumentor(point: EntryPoint, disabled: set[str]) -> Candidate:
    if point.name in disabled or "*" in disabled:
        reason = "switched off by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
        return Candidate(INSTRUMENTOR, point.name, False, reason, point)
    conflict = _conflict(point)
    if conflict:
        return Candidate(INSTRUMENTOR, point.name, False, conflict, point)
    return Candidate(INSTRUMENTOR, point.name, True, "what it instruments is installed", point)


def _conflict(point: EntryPoint) -> str:
    """Why the instrumented library is not there, or not in a version that fits."""
    try:
        dependencies = importlib.import_module("opentelemetry.instrumentation.dependencies")
    except ImportError:
        return "opentelemetry-instrumentation is not installed"
    reason = "its requirements cannot be read"
    with guard(f"requirements of {point.name}"):
        conflict = dependencies.get_dist_dependency_conflicts(point.dist)
        reason = "" if conflict is None else _explained(conflict)
    return reason


def _explained(conflict: Any) -> str:
    # The fields for "any of" came later than the class.
    needed = [conflict.required] if conflict.required else getattr(conflict, "required_any", None)
    found = [conflict.found] if conflict.found else getattr(conflict, "found_any", None)
    needs = " or ".join(str(one).split(";")[0].strip() for one in needed or ())
    return f"needs {needs}, found {', '.join(str(one) for one in found or ()) or 'none'}"


def _is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it.

    A folder of that name on the path is a namespace package without origin, and no framework.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # it is imported already, by a test's stand-in without a spec
        return True
    return spec is not None and spec.origin is not None
