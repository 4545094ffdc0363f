"""For adapters: patches on a framework's classes, put on when it is imported and taken off again.

Knows no framework: an adapter names the modules and says what to replace in each.

What always holds:
  * nothing happens before ``install``, and no module of a framework is ever imported here;
  * ``install`` and ``uninstall`` may be called any number of times, from any thread, before or
    after the framework is imported; nothing is patched twice.  Only an import that another
    thread is in the middle of may be missed, until the next ``install``;
  * where somebody has patched over us, ours stays: taking it out would take his out as well;
  * an error while patching is logged and reaches neither the caller nor the import.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import wrapt

from mcptrace.deferred import DeferredTracer
from mcptrace.guard import guard
from mcptrace.resource import VERSION
from mcptrace.setup import get_tracer
from mcptrace.tracer import Tracer


class _Patched(NamedTuple):
    owner: Any
    name: str
    before: Any
    ours: Any


class Patches:
    """What one adapter has replaced in this process, and whose provider makes its spans.

    ``patch`` is called with each of ``modules`` that is imported, at once or when it is, and
    calls ``replace``.  A replacement that is still called after ``uninstall`` is to pass
    through: ``active`` is then false and ``tracer`` gives None.
    """

    def __init__(self, modules: Iterable[str], patch: Callable[[ModuleType], None]) -> None:
        self.active = False
        self._modules = tuple(modules)
        self._patch = patch
        # Re-entrant: wrapt calls at once for a module that was imported in between.
        self._lock = threading.RLock()
        self._tracer_provider: Any = None
        self._awaited: set[str] = set()
        self._patched: list[_Patched] = []

    def install(self, tracer_provider: Any = None) -> None:
        """Patch from now on; spans go to ``init``'s provider unless another one is given."""
        with self._lock:
            self._tracer_provider = tracer_provider
            self.active = True
            for name in self._modules:
                module = sys.modules.get(name)
                if module is not None:
                    self._imported(module)
                elif name not in self._awaited:
                    self._awaited.add(name)
                    wrapt.register_post_import_hook(self._imported, name)

    def uninstall(self) -> None:
        """Put back what was there, except under the patches of somebody else."""
        with self._lock:
            self.active = False
            buried = []
            for patched in self._patched:
                if vars(patched.owner).get(patched.name) is patched.ours:
                    setattr(patched.owner, patched.name, patched.before)
                else:
                    buried.append(patched)
            self._patched = buried

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put ``make(what is there)`` in its place; None from ``make`` leaves it alone.

        Does nothing where ours is there already.  Raises KeyError where ``owner`` itself, a
        class or a module, has no such attribute.
        """
        with self._lock:
            if any(done.owner is owner and done.name == name for done in self._patched):
                return
            before = vars(owner)[name]
            ours = make(before)
            if ours is not None:
                setattr(owner, name, ours)
                self._patched.append(_Patched(owner, name, before, ours))

    def tracer(self, scope: str) -> Tracer | None:
        """None after ``uninstall``, and where the program has no provider of ours (yet)."""
        if not self.active:
            return None
        provider = self._tracer_provider
        find = get_tracer if provider is None else provider.get_tracer
        tracer = find(scope, VERSION)
        # Until ``init`` a deferred one would make spans of another SDK's provider.
        if isinstance(tracer, DeferredTracer) or not isinstance(tracer, Tracer):
            return None
        return tracer

    def _imported(self, module: ModuleType) -> None:
        with self._lock:
            if self.active:
                with guard(f"patching of {module.__name__}"):
                    self._patch(module)
