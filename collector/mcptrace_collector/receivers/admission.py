"""How many bytes of requests may be in flight: one budget for all receivers.

Knows sizes only.  Nothing waits here: what does not fit is told to come back later, so that a
flood costs an answer and not memory (the client keeps its spans).

Always true: ``used`` is the sum of the open reservations and never passes ``limit``.
"""

from __future__ import annotations

from types import TracebackType

from mcptrace_collector.errors import RequestTooLarge, Retryable

BUSY_RETRY_SECONDS = 1.0


class ByteBudget:
    """``limit`` in bytes, counted after decompression.  For one event loop; there is no lock."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def reservation(self) -> Reservation:
        """An empty reservation, to be used as a context manager."""
        return Reservation(self)


class Reservation:
    """What one request holds of the budget, from its first byte to its answer."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0

    def grow(self, size: int) -> None:
        """Take ``size`` bytes more.

        Raises Retryable when others hold too much, RequestTooLarge when this request alone
        would not fit into an empty budget.
        """
        budget = self._budget
        if self.held + size > budget.limit:
            raise RequestTooLarge(
                f"the request needs more than the {budget.limit} bytes that may be in flight"
            )
        if budget.used + size > budget.limit:
            raise Retryable("too many bytes of requests are in flight", BUSY_RETRY_SECONDS)
        budget.used += size
        self.held += size

    def release(self) -> None:
        """Give everything back."""
        self._budget.used -= self.held
        self.held = 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
