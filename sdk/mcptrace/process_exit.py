"""What runs when this process ends, whichever way Python ends it.

An ordinary process and a child of os.fork end with atexit.  Children of multiprocessing
(and of billiard, its copy in Celery) end with os._exit after their own finalizers, so the
hook is registered there as well.  A process killed by a signal runs neither.

Always true:
  * nothing is registered before the first ``call_at_exit`` of a process;
  * callbacks run once, in the order in which they were given: who feeds another comes first.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

# Below every priority that people use: their finalizers may still end spans.
FINALIZER_PRIORITY = -100


class _Hooks:
    """Process-wide: the callbacks, and the process in which the hooks were registered."""

    callbacks: list[Callable[[], None]] = []  # noqa: RUF012 - one list for the whole process
    pid: int | None = None


def call_at_exit(callback: Callable[[], None]) -> None:
    """Run ``callback`` when this process ends; a second call with the same one does nothing.

    Call it again in a forked child: its ways of ending are not its parent's.
    """
    pid = os.getpid()
    if _Hooks.pid != pid:
        forked = _Hooks.pid is not None
        _Hooks.pid = pid
        _register(forked)
    if callback not in _Hooks.callbacks:
        _Hooks.callbacks.append(callback)


def forget(callback: Callable[[], None]) -> None:
    """Undo ``call_at_exit``."""
    if callback in _Hooks.callbacks:
        _Hooks.callbacks.remove(callback)


def _register(forked: bool) -> None:
    # A forked child inherits the registration, or had it cleared by multiprocessing.
    atexit.unregister(_run)
    atexit.register(_run)
    for package in ("multiprocessing", "billiard"):
        util = sys.modules.get(f"{package}.util")
        if util is not None and (forked or _is_child(package)):
            util.Finalize(None, _run, exitpriority=FINALIZER_PRIORITY)


def _is_child(package: str) -> bool:
    """Whether multiprocessing started this process; a fork server's child never forked here."""
    parent_process = getattr(sys.modules.get(package), "parent_process", None)
    return parent_process is not None and parent_process() is not None


def _run() -> None:
    while _Hooks.callbacks:
        _Hooks.callbacks.pop(0)()
