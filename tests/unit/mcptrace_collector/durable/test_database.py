"""The database: every change and the ledger move together, and a restart finds what was left."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcptrace_collector.durable.database import (
    SAMPLED_OUT_KEYS_MAX,
    Database,
    JournalRecord,
    StoreLocked,
)
from mcptrace_collector.pipeline import Origin, Settlement


def committed(database: Database, *calls: object) -> list[object]:
    database.begin()
    results = [call(database) for call in calls]  # type: ignore[operator]
    database.committed()
    return results


def test_a_request_is_held_until_its_last_span_has_a_verdict(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    (position,) = committed(database, lambda db: db.journal(b"body", 3, "http"))
    half = Settlement(
        settled=[Origin(position, 0), Origin(position, 2)], dropped={"sampled_out": 2}
    )
    committed(database, lambda db: db.settle(half))
    assert database.balance().held == 1
    assert database.unfinished() == [position]
    assert database.row(position) == JournalRecord(position, b"body", 3, 0b101)
    rest = Settlement(
        settled=[Origin(position, 1)], kept={"error": 1}, payloads=[("jaeger", b"out", 1)]
    )
    committed(database, lambda db: db.settle(rest))
    balance = database.balance()
    assert database.unfinished() == []
    assert (balance.held, balance.journal_bytes, balance.received) == (0, 0, {"http": 3})
    assert (balance.kept, balance.dropped) == ({"error": 1}, {"sampled_out": 2})
    assert balance.queued == {"jaeger": 1}
    assert balance.exact


def test_two_settlements_of_one_request_in_one_commit_add_up(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    (position,) = committed(database, lambda db: db.journal(b"b", 2, "grpc"))
    committed(
        database,
        lambda db: db.settle(Settlement(settled=[Origin(position, 0)], dropped={"x": 1})),
        lambda db: db.settle(Settlement(settled=[Origin(position, 1)], dropped={"x": 1})),
    )
    assert database.unfinished() == []
    assert database.balance().exact


def test_a_rollback_leaves_neither_disk_nor_memory_changed(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    database.begin()
    database.journal(b"body", 3, "http")
    database.settle(Settlement(payloads=[("jaeger", b"out", 1)], kept={"error": 1}))
    database.rolled_back()
    balance = database.balance()
    assert (balance.held, balance.received, balance.kept, balance.queued) == (0, {}, {}, {})
    assert database.unfinished() == []


def test_what_was_sampled_out_is_kept_by_key_within_a_bound_until_it_is_mentioned(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path / "state.db")
    labels = [f"|GET /user/{n} sampled_out" for n in range(SAMPLED_OUT_KEYS_MAX + 5)]
    for label in labels:
        out = Settlement(sampled_out={label: 2})
        committed(database, lambda db, out=out: db.settle(out))
    counts = database.balance().sampled_out
    assert counts == dict.fromkeys(labels[:-5], 2) | {"_OTHER sampled_out": 10}
    mention = Settlement(sampled_out={label: -spans for label, spans in counts.items()})
    committed(database, lambda db: db.settle(mention))
    assert database.balance().sampled_out == {}
    committed(database, lambda db: db.settle(Settlement(sampled_out={labels[-1]: 1})))
    database.close()
    assert Database(tmp_path / "state.db").balance().sampled_out == {labels[-1]: 1}


def test_take_stops_at_either_bound_but_always_gives_one(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    bodies = [("jaeger", b"x" * 10, 5)] * 3 + [("other", b"y", 1)]
    committed(database, lambda db: db.settle(Settlement(payloads=bodies)))
    assert len(database.take("jaeger", 0, 1, 1)) == 1
    assert len(database.take("jaeger", 0, 10, 1000)) == 2
    assert len(database.take("jaeger", 0, 1000, 20)) == 2
    assert len(database.take("jaeger", 0, 1000, 1000)) == 3
    first, second, third = database.take("jaeger", 0, 1000, 1000)
    assert database.take("jaeger", second.position, 1000, 1000) == [third]
    assert first.position < second.position < third.position


def test_released_items_are_forwarded_but_for_the_failed(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    committed(database, lambda db: db.settle(Settlement(payloads=[("jaeger", b"x", 5)])))
    items = database.take("jaeger", 0, 100, 100)
    committed(database, lambda db: db.release("jaeger", items, {"rejected": 2}))
    balance = database.balance()
    assert balance.forwarded == {"jaeger": 3}
    assert balance.failed == {"jaeger rejected": 2}
    assert (balance.queued, balance.queued_bytes) == ({"jaeger": 0}, {"jaeger": 0})
    assert balance.exact


def test_a_restart_counts_what_it_takes_up_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = Database(path)
    (position,) = committed(first, lambda db: db.journal(b"body", 3, "http"))
    committed(
        first,
        lambda db: db.settle(
            Settlement(
                settled=[Origin(position, 1)], kept={"p99": 1}, payloads=[("jaeger", b"out", 1)]
            )
        ),
    )
    first.close()
    second = Database(path)
    balance = second.balance()
    assert (balance.held, balance.replayed, balance.requeued) == (2, 2, {"jaeger": 1})
    assert balance.received == {"http": 3}
    assert balance.exact
    (again,) = committed(second, lambda db: db.journal(b"new", 1, "http"))
    assert again > position, "a position is never used twice"


def test_positions_are_not_reused_after_everything_was_settled(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    (position,) = committed(database, lambda db: db.journal(b"b", 1, "http"))
    committed(database, lambda db: db.settle(Settlement(settled=[Origin(position, 0)])))
    (later,) = committed(database, lambda db: db.journal(b"b", 1, "http"))
    assert later == position + 1


def test_the_outbox_keeps_order_and_is_cleared_below(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    lines = [(7, b"seven"), (8, b"eight"), (9, b"nine")]
    committed(database, lambda db: db.settle(Settlement(audit_lines=lines)))
    committed(database, lambda db: db.clear_outbox(9))
    assert database.outbox() == [(9, b"nine")]


def test_a_second_process_is_told_that_the_directory_is_taken(tmp_path: Path) -> None:
    first = Database(tmp_path / "state.db")
    with pytest.raises(StoreLocked, match="in use by another process"):
        Database(tmp_path / "state.db")
    first.close()
