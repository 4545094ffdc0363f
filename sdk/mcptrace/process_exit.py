"""What runs when this process ends, whichever way Python ends it.

An ordinary process and a child of os.fork end with atexit.  Children of multiprocessing
(and of billiard, its copy in Celery) end with os._exit after their own finalizers, so the
hook is registered there as well.  A process killed by a signal runs neither.

Always true:
  * nothing is registered before the first ``call_at_exit``;
  * callbacks run once, in the order in which they were given: who feeds another comes first.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import ModuleType

# Below every priority that people use: their finalizers may still end spans.
FINALIZER_PRIORITY = -100


class _Hooks:
    """Process-wide: the callbacks, and the process in which the hooks were registered."""

    callbacks: list[Callable[[], None]] = []  # noqa: RUF012 - one list for the whole process
    pid: int | None = None


def call_at_exit(callback: Callable[[], None]) -> None:
    """Run ``callback`` when this process ends; a second call with the same one does nothing.

    Children that are forked later inherit it.
    """
    pid = os.getpid()
    if _Hooks.pid is None:
        atexit.register(_run)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_in_child)
        if _started_by_multiprocessing():
            _finalize(sys.modules["multiprocessing.util"])
    elif _Hooks.pid != pid:  # forked by C code, which runs no Python hooks
        for util in _utils():
            _finalize(util)
    _Hooks.pid = pid
    if callback not in _Hooks.callbacks:
        _Hooks.callbacks.append(callback)


def forget(callback: Callable[[], None]) -> None:
    """Undo ``call_at_exit``."""
    if callback in _Hooks.callbacks:
        _Hooks.callbacks.remove(callback)


def _in_child() -> None:
    _Hooks.pid = os.getpid()
    for util in _utils():
        # A worker clears the finalizers of its parent first and then runs these.
        util.register_after_fork(_Hooks, lambda _, util=util: _finalize(util))


def _utils() -> list[ModuleType]:
    """The process libraries that are in use."""
    names = ("multiprocessing.util", "billiard.util")
    return [sys.modules[name] for name in names if name in sys.modules]


def _started_by_multiprocessing() -> bool:
    """Whether this process is a worker already; a fork server's child never forked here."""
    parent_process = getattr(sys.modules.get("multiprocessing"), "parent_process", None)
    return parent_process is not None and parent_process() is not None


def _finalize(util: ModuleType) -> None:
    util.Finalize(None, _run, exitpriority=FINALIZER_PRIORITY)


def _run() -> None:
    while _Hooks.callbacks:
        _Hooks.callbacks.pop(0)()
