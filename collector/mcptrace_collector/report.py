"""The books as people and programs read them: a few lines at the end, JSON while running.

Pure.
"""

from __future__ import annotations

from dataclasses import asdict

from mcptrace_collector.durable import Balance
from mcptrace_collector.telemetry import Telemetry


def status(balance: Balance, telemetry: Telemetry) -> dict[str, object]:
    """The body of ``/status``."""
    return {
        "balance": {**asdict(balance), "exact": balance.exact},
        "metrics": telemetry.snapshot(),
    }


def balance_text(balance: Balance) -> str:
    """The balance in spans: received = kept + dropped + held, and each destination's part."""
    kept, dropped = sum(balance.kept.values()), sum(balance.dropped.values())
    lines = [
        "balance in spans, since the data directory was made:",
        f"  received  {sum(balance.received.values())}{_parts(balance.received)}",
        f"  kept      {kept}{_parts(balance.kept)}",
        f"  dropped   {dropped}{_parts(balance.dropped)}",
        f"  held      {balance.held}",
    ]
    for destination, enqueued in balance.enqueued.items():
        failed = {
            label.partition(" ")[2]: spans
            for label, spans in balance.failed.items()
            if label.partition(" ")[0] == destination
        }
        forwarded = balance.forwarded.get(destination, 0)
        lines.append(
            f"  {destination}: {enqueued} enqueued = {forwarded} forwarded"
            f" + {sum(failed.values())} failed{_parts(failed)}"
            f" + {balance.queued.get(destination, 0)} queued"
        )
    lines.append("  the balance is exact" if balance.exact else "  THE BALANCE IS NOT EXACT")
    return "\n".join(lines)


def _parts(counts: dict[str, int]) -> str:
    if not counts:
        return ""
    return " (" + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) + ")"
