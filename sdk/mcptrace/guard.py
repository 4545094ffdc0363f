"""The one place where the SDK swallows an exception, and where it counts what it lost.

After construction nothing of ours may raise into the program that is being traced.  Code
that could (a user's filter, somebody else's processor) runs inside ``with guard(...)``:
the exception is counted in a ``Counters`` and logged in one line, at most once a minute, then
dropped; at level DEBUG the line has its traceback.
Under test the exception is raised again, so that no fault of ours hides behind the guard.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

LOG_INTERVAL_SECONDS = 60.0

logger = logging.getLogger("mcptrace")


class _Switch:
    """Process-wide state of the guard: set by tests, and when the next lines may be logged."""

    reraise = False
    next_log_seconds = 0.0
    next_warning_seconds = 0.0


def reraise_in_tests(on: bool) -> bool:
    """Make every guard raise again what it caught; for test suites.  Returns what it was."""
    before = _Switch.reraise
    _Switch.reraise = on
    return before


class Counters:
    """Counts by reason.  Exact from any thread; cheap because only losses are counted here."""

    def __init__(self) -> None:
        # Re-entrant: a finalizer may count on the thread that is counting just now.
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}

    def add(self, reason: str, count: int = 1) -> None:
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + count

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def reset_after_fork(self) -> None:
        """The child's losses are its own; the parent reports the parent's."""
        self._lock = threading.RLock()
        self._counts = {}


class guard:  # noqa: N801 - reads as a statement: with guard("span end", counters)
    """Swallow, count and sparingly log an Exception raised in the block.

    ``what`` names the block in the log.  The count is kept under ``internal_error``.
    BaseExceptions that are no Exceptions (KeyboardInterrupt, CancelledError) pass.
    """

    __slots__ = ("_counters", "_what")

    def __init__(self, what: str, counters: Counters | None = None) -> None:
        self._what = what
        self._counters = counters

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        if self._counters is not None:
            self._counters.add("internal_error")
        now = time.monotonic()
        if now >= _Switch.next_log_seconds:
            _Switch.next_log_seconds = now + LOG_INTERVAL_SECONDS
            logger.warning(
                "mcptrace: error in %s, ignored: %s: %s",
                self._what,
                type(error).__name__,
                text_of(error).partition("\n")[0],
                exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            )
        return not _Switch.reraise


def text_of(value: object) -> str:
    """``str(value)``; the name of its type where the object's own conversion raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"<{type(value).__name__}>"


def warn_rarely(message: str, *arguments: object) -> None:
    """Log a warning, at most one a minute; the guard's own do not use it up."""
    now = time.monotonic()
    if now >= _Switch.next_warning_seconds:
        _Switch.next_warning_seconds = now + LOG_INTERVAL_SECONDS
        logger.warning(message, *arguments)
