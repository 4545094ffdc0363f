"""The attack table: what was done to a log, what the verifier says, and with which exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcptrace_collector.audit import AuditChain, Status, verify, verify_log
from mcptrace_collector.audit.layout import (
    CHECKPOINT_FILE,
    LINE_BYTES_MAX,
    Checkpoint,
    origin,
    segment_first_index,
    segment_name,
)
from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import CompactRange, leaf_hash

RECORDS, SEGMENT_RECORDS = 10, 4  # segments 0-3, 4-7, 8-9


class Log:
    """A log's lines by index, and the means to write others in their place."""

    def __init__(self, directory: Path, lines: list[bytes]) -> None:
        self.directory = directory
        self.lines = lines
        self.log_id = AuditLogId(directory)

    def write(self, lines: list[bytes]) -> None:
        """Lay ``lines`` out over the same segment files, whatever is in them."""
        for start in range(0, RECORDS, SEGMENT_RECORDS):
            last = start + SEGMENT_RECORDS >= RECORDS
            piece = lines[start:] if last else lines[start : start + SEGMENT_RECORDS]
            content = b"".join(line + b"\n" for line in piece)
            (self.directory / segment_name(start)).write_bytes(content)

    def checkpoint(self, lines: list[bytes]) -> None:
        tree = CompactRange(sm3)
        for line in lines:
            tree.append(leaf_hash(line, sm3))
        forged = Checkpoint(origin(self.log_id), len(lines), tree.root())
        (self.directory / CHECKPOINT_FILE).write_bytes(forged.encode())

    def forge(self, since: int) -> list[bytes]:
        """A history that is the same up to ``since`` and consistent with itself after it."""
        head = leaf_hash(self.lines[since - 1], sm3) if since else bytes(32)
        chain = AuditChain(self.log_id, since, head)
        forged = [
            chain.next("config_change", {"version": "1", "n": -n}, 1_000 + n).line
            for n in range(since, RECORDS)
        ]
        return self.lines[:since] + forged


def AuditLogId(directory: Path) -> str:  # noqa: N802
    return (directory / "log.json").read_text().split('"log":"')[1][:32]


@pytest.fixture
def audit_log(tmp_path, build) -> Log:
    directory = tmp_path / "log"
    return Log(directory, build(directory, RECORDS, SEGMENT_RECORDS))


def edit(log: Log, index: int, old: bytes, new: bytes) -> None:
    assert old in log.lines[index]
    altered = [*log.lines]
    altered[index] = altered[index].replace(old, new, 1)
    log.write(altered)


def delete(log: Log, index: int) -> None:
    log.write(log.lines[:index] + log.lines[index + 1 :])


def delete_within_segment(log: Log, index: int) -> None:
    start = index - index % SEGMENT_RECORDS
    segment = log.directory / segment_name(start)
    kept = [line for line in segment.read_bytes().splitlines(True) if line[:-1] != log.lines[index]]
    segment.write_bytes(b"".join(kept))


def duplicate(log: Log, index: int, at: int) -> None:
    log.write([*log.lines[:at], log.lines[index], *log.lines[at:]])


def swap(log: Log, a: int, b: int) -> None:
    lines = [*log.lines]
    lines[a], lines[b] = lines[b], lines[a]
    log.write(lines)


def replace_by_copy(log: Log, index: int, other: int) -> None:
    lines = [*log.lines]
    lines[index] = lines[other]
    log.write(lines)


def insert_forged(log: Log, at: int) -> None:
    log.write([*log.lines[:at], log.forge(at)[at], *log.lines[at:]])


def append_byte(log: Log, name: str, content: bytes) -> None:
    path = log.directory / name
    path.write_bytes(path.read_bytes() + content)


def drop(log: Log, name: str) -> None:
    (log.directory / name).unlink()


def cut_tail(log: Log, records: int, *, with_checkpoint: bool = False) -> None:
    log.write(log.lines[:-records])
    if with_checkpoint:
        (log.directory / "state.json").unlink()
        log.checkpoint(log.lines[:-records])


def rewrite(log: Log, since: int, *, with_checkpoint: bool) -> None:
    forged = log.forge(since)
    log.write(forged)
    (log.directory / "state.json").unlink()
    if with_checkpoint:
        log.checkpoint(forged)


def foreign_record(log: Log, index: int) -> None:
    prev = leaf_hash(log.lines[index - 1], sm3)
    lines = [*log.lines]
    lines[index] = AuditChain("00" * 16, index, prev).next("start", {}, 1).line
    log.write(lines)


def rename(log: Log, old: str, new: str) -> None:
    (log.directory / old).rename(log.directory / new)


def write_file(log: Log, name: str, content: bytes) -> None:
    (log.directory / name).write_bytes(content)


S0, S4, S8 = (segment_name(start) for start in (0, 4, 8))

# attack, first bad (index, segment, line) or None, words of the finding; all are exit code 1
TAMPERED: dict[str, tuple[Callable[[Log], None], tuple[int, str, int] | None, str]] = {
    "edit a value": (lambda log: edit(log, 5, b'"n":5', b'"n":6'), (5, S4, 2), "altered"),
    "edit the time": (lambda log: edit(log, 5, b":1005", b":1004"), (5, S4, 2), "altered"),
    "edit the kind": (lambda log: edit(log, 5, b"config_change", b"start"), (5, S4, 2), "altered"),
    "edit the version": (lambda log: edit(log, 5, b'"v":1', b'"v":2'), (5, S4, 2), "version"),
    "edit the log id": (lambda log: edit(log, 5, b'"log":"', b'"log":"x'), (5, S4, 2), "another"),
    "edit the index": (
        lambda log: edit(log, 5, b'"index":5', b'"index":7'),
        (5, S4, 2),
        "record 7",
    ),
    "edit the link": (
        lambda log: edit(log, 5, b'"prev":"', b'"prev":"0'),
        (5, S4, 2),
        "not a hash",
    ),
    "edit the last of a segment": (lambda log: edit(log, 3, b'"n":3', b'"n":4'), (3, S0, 4), "alt"),
    "edit the first of a segment": (
        lambda log: edit(log, 4, b'"n":4', b'"n":5'),
        (4, S4, 1),
        "alt",
    ),
    "edit the first": (lambda log: edit(log, 0, b'"n":0', b'"n":1'), (0, S0, 1), "altered"),
    "edit the last": (lambda log: edit(log, 9, b'"n":9', b'"n":8'), (9, S8, 2), "root"),
    "edit the last but one": (lambda log: edit(log, 8, b'"n":8', b'"n":7'), (8, S8, 1), "altered"),
    "add a space": (lambda log: edit(log, 5, b'"n":', b'"n": '), (5, S4, 2), "spelled"),
    "add a key again": (lambda log: edit(log, 5, b"}", b',"n":5}'), (5, S4, 2), "spelled"),
    "break a line": (lambda log: edit(log, 5, b'"n"', b'\n"n"'), (5, S4, 2), "not JSON"),
    "delete": (lambda log: delete_within_segment(log, 5), (5, S4, 2), "missing, up to 5"),
    "delete and close up": (lambda log: delete(log, 1), (1, S0, 2), "missing, up to 1"),
    "delete the first": (lambda log: delete_within_segment(log, 0), (0, S0, 1), "missing"),
    "delete the last of a segment": (
        lambda log: delete_within_segment(log, 3),
        (3, S4, 1),
        "should begin at 3",
    ),
    "insert a forged one": (lambda log: insert_forged(log, 5), (5, S4, 3), "claimed by two"),
    "duplicate": (lambda log: duplicate(log, 5, 6), (5, S4, 3), "stands here twice"),
    "duplicate far away": (lambda log: duplicate(log, 1, 6), (6, S4, 3), "record 1"),
    "swap neighbours": (lambda log: swap(log, 5, 6), (5, S4, 2), "reordered"),
    "swap far ones": (lambda log: swap(log, 1, 6), (1, S0, 2), "it says it is record 6"),
    "replace by a copy": (lambda log: replace_by_copy(log, 5, 4), (4, S4, 2), "twice"),
    "replace by a forged one": (
        lambda log: log.write([*log.lines[:5], log.forge(5)[5], *log.lines[6:]]),
        (5, S4, 2),
        "altered",
    ),
    "a record of another log": (lambda log: foreign_record(log, 5), (5, S4, 2), "another log"),
    "truncate the tail": (lambda log: cut_tail(log, 1), (9, S8, 2), "checkpoint proves 10"),
    "truncate inside a line": (
        lambda log: write_file(log, S8, (log.directory / S8).read_bytes()[:-5]),
        (9, S8, 2),
        "cut short",
    ),
    "truncate a middle segment": (
        lambda log: write_file(log, S4, (log.directory / S4).read_bytes()[:-5]),
        (7, S4, 4),
        "cut short",
    ),
    "truncate the head": (lambda log: drop(log, S0), (0, S4, 1), "should begin at 0"),
    "drop a middle segment": (lambda log: drop(log, S4), (4, S8, 1), "should begin at 4"),
    "drop the last segment": (lambda log: drop(log, S8), (8, S4, 5), "checkpoint proves 10"),
    "rename a segment": (
        lambda log: rename(log, S8, segment_name(9)),
        (8, segment_name(9), 1),
        "8",
    ),
    "slip in a segment": (
        lambda log: write_file(log, segment_name(2), log.lines[2] + b"\n"),
        (2, segment_name(2), 1),
        "should begin at 4",
    ),
    "rewrite everything since": (
        lambda log: rewrite(log, 5, with_checkpoint=False),
        (9, S8, 2),
        "do not have the root of the checkpoint",
    ),
    "replace the checkpoint's root": (
        lambda log: log.checkpoint(log.forge(3)),
        (9, S8, 2),
        "do not have the root of the checkpoint",
    ),
    "raise the checkpoint": (
        lambda log: log.checkpoint([*log.lines, b"more"]),
        (10, S8, 3),
        "checkpoint proves 11",
    ),
    "scribble on the checkpoint": (
        lambda log: append_byte(log, CHECKPOINT_FILE, b"x"),
        None,
        "spelling",
    ),
    "scribble on log.json": (lambda log: append_byte(log, "log.json", b"x"), None, "incomplete"),
    "scribble on state.json": (
        lambda log: append_byte(log, "state.json", b"x"),
        None,
        "incomplete",
    ),
    "drop log.json": (lambda log: drop(log, "log.json"), None, "log.json is missing"),
}


@pytest.mark.parametrize("attack", TAMPERED)
def test_tampering_is_found_and_named(audit_log, attack):
    act, place, words = TAMPERED[attack]
    act(audit_log)
    report = verify_log(audit_log.directory)
    bad = report.first_bad
    found = None if bad is None else (bad.index, bad.segment, bad.line)
    assert (report.status, report.status.exit_code, found) == (Status.TAMPERED, 1, place)
    assert words in report.text()


def test_a_whole_log_is_ok(audit_log):
    report = verify_log(audit_log.directory)
    tree = CompactRange(sm3)
    for line in audit_log.lines:
        tree.append(leaf_hash(line, sm3))
    assert report == verify.Report(
        status=Status.OK,
        log_id=audit_log.log_id,
        records=10,
        size=10,
        root=tree.root().hex(),
        messages=["the first 10 records are those of the checkpoint"],
    )
    assert report.text().splitlines()[0] == "ok: 10 records, 10 proven"


# --- only an anchor tells ----------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda log: cut_tail(log, 2, with_checkpoint=True),
        lambda log: rewrite(log, 0, with_checkpoint=True),
        lambda log: rewrite(log, 9, with_checkpoint=True),
    ],
    ids=["rollback", "rewrite of the whole log", "rewrite of the last record"],
)
def test_a_consistent_forgery_passes_without_an_anchor_and_fails_with_one(tmp_path, audit_log, act):
    anchor = tmp_path / "anchor"
    shutil.copy(audit_log.directory / CHECKPOINT_FILE, anchor)
    act(audit_log)
    assert verify_log(audit_log.directory).status is Status.OK
    report = verify_log(audit_log.directory, anchor)
    assert report.status is Status.TAMPERED
    assert "anchor" in report.text() or "a checkpoint proves 10" in report.text()


def test_an_older_anchor_proves_its_part(tmp_path, audit_log, build):
    build(tmp_path / "older", 6, SEGMENT_RECORDS)
    report = verify_log(audit_log.directory, tmp_path / "older" / CHECKPOINT_FILE)
    assert (report.status, report.messages[0]) == (
        Status.OK,
        "the first 6 records are those of the anchor",
    )


def test_an_anchor_stands_in_for_a_lost_checkpoint(tmp_path, audit_log):
    anchor = tmp_path / "anchor"
    shutil.move(audit_log.directory / CHECKPOINT_FILE, anchor)
    assert verify_log(audit_log.directory, anchor).status is Status.OK


def test_an_anchor_of_another_log_does_not_fit(tmp_path, audit_log, build):
    build(tmp_path / "other", RECORDS, nonce=b"x")
    report = verify_log(audit_log.directory, tmp_path / "other" / CHECKPOINT_FILE)
    assert (report.status, report.first_bad) == (Status.TAMPERED, None)
    assert "not of this log" in report.text()


def test_swapped_logs_do_not_fit_their_anchors(tmp_path, audit_log, build):
    anchor = tmp_path / "anchor"
    shutil.copy(audit_log.directory / CHECKPOINT_FILE, anchor)
    build(tmp_path / "other", RECORDS, nonce=b"x")
    assert verify_log(tmp_path / "other").status is Status.OK
    assert verify_log(tmp_path / "other", anchor).status is Status.TAMPERED


@pytest.mark.parametrize("name", [S4, CHECKPOINT_FILE, "log.json", "state.json"])
def test_a_file_of_another_log_is_noticed(tmp_path, audit_log, build, name):
    build(tmp_path / "other", RECORDS, SEGMENT_RECORDS, nonce=b"x")
    shutil.copy(tmp_path / "other" / name, audit_log.directory / name)
    assert verify_log(audit_log.directory).status is Status.TAMPERED


# --- unproven and unreadable -------------------------------------------------------------


def test_records_beyond_the_checkpoint_are_unproven(audit_log):
    audit_log.checkpoint(audit_log.lines[:7])
    (audit_log.directory / "state.json").unlink()
    report = verify_log(audit_log.directory)
    assert (report.status, report.status.exit_code, report.records, report.size) == (
        Status.UNPROVEN,
        3,
        10,
        7,
    )
    assert "no checkpoint speaks of what follows record 6" in report.text()


def test_a_log_without_a_checkpoint_is_unproven(audit_log):
    drop(audit_log, CHECKPOINT_FILE)
    report = verify_log(audit_log.directory)
    assert (report.status, report.records, report.size) == (Status.UNPROVEN, 10, 0)
    assert "there is no checkpoint" in report.text()


def test_an_incomplete_line_beyond_the_checkpoint_is_unproven_and_reported(audit_log):
    append_byte(audit_log, S8, b'{"v":1')
    report = verify_log(audit_log.directory)
    assert (report.status, report.records) == (Status.UNPROVEN, 10)
    assert f"{S8} ends in 6 bytes of an incomplete record 10" in report.messages


def test_a_line_over_the_limit_is_not_read_to_its_end(audit_log):
    append_byte(audit_log, S8, b"x" * (LINE_BYTES_MAX + 2))
    report = verify_log(audit_log.directory)
    assert report.status is Status.TAMPERED
    assert report.first_bad is not None
    assert (report.first_bad.index, "longer than" in report.text()) == (10, True)


@pytest.mark.parametrize("kind", ["absent", "empty", "a file"])
def test_what_is_no_log_is_unreadable(tmp_path, kind):
    directory = tmp_path / "x"
    if kind == "empty":
        directory.mkdir()
    elif kind == "a file":
        directory.write_text("x")
    report = verify_log(directory)
    assert (report.status, report.status.exit_code) == (Status.UNREADABLE, 2)


@pytest.mark.parametrize("content", [None, b"not a checkpoint"])
def test_an_anchor_that_cannot_be_read_is_no_verdict_on_the_log(tmp_path, audit_log, content):
    if content is not None:
        (tmp_path / "anchor").write_bytes(content)
    assert verify_log(audit_log.directory, tmp_path / "anchor").status is Status.UNREADABLE


def test_a_segment_that_cannot_be_read_is_unreadable(audit_log):
    drop(audit_log, S4)
    (audit_log.directory / S4).mkdir()
    assert verify_log(audit_log.directory).status is Status.UNREADABLE


# --- not tampering -----------------------------------------------------------------------


def test_leftovers_and_strangers_are_mentioned_at_most(audit_log):
    write_file(audit_log, "checkpoint.tmp", b"half")
    write_file(audit_log, "notes.txt", b"mine")
    report = verify_log(audit_log.directory)
    assert report.status is Status.OK
    assert report.messages[0] == "'notes.txt' is not part of a log; not looked at"


def test_a_log_without_its_state_is_ok(audit_log):
    drop(audit_log, "state.json")
    assert verify_log(audit_log.directory).status is Status.OK


def test_an_empty_segment_after_a_crash_is_ok(audit_log):
    write_file(audit_log, segment_name(10), b"")
    assert verify_log(audit_log.directory).status is Status.OK


def test_a_clock_that_went_back_is_mentioned(audit_log):
    lines = audit_log.lines[:8]
    chain = AuditChain(audit_log.log_id, 8, leaf_hash(lines[7], sm3))
    lines += [chain.next("start", {}, 5).line, chain.next("stop", {}, 6).line]
    audit_log.write(lines)
    audit_log.checkpoint(lines)
    drop(audit_log, "state.json")
    report = verify_log(audit_log.directory)
    assert (report.status, report.messages[-1]) == (
        Status.OK,
        "times the writer's clock went back: 1",
    )


# --- any byte ----------------------------------------------------------------------------


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_byte_of_a_log_can_be_flipped_unnoticed(audit_log, data):
    files = sorted(path for path in audit_log.directory.iterdir() if path.stat().st_size)
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(1, 255))
    altered = bytearray(content)
    altered[position] ^= flip
    path.write_bytes(altered)
    try:
        report = verify_log(audit_log.directory)
    finally:
        path.write_bytes(content)
    assert report.status is not Status.OK
    first = segment_first_index(path.name)
    if first is not None:
        assert report.first_bad is not None
        touched = first + content[:position].count(b"\n")
        # The last record and its link to the one before cannot be told apart.
        assert report.first_bad.index in {touched, min(touched, RECORDS - 2)}
