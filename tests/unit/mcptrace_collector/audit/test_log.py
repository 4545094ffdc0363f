from __future__ import annotations

import errno
import multiprocessing
import resource
import shutil
from pathlib import Path

import pytest

from mcptrace_collector.audit import AuditChain, AuditError, AuditLog, Status, log, verify_log
from mcptrace_collector.audit.files import DiskFiles
from mcptrace_collector.audit.layout import CHECKPOINT_FILE, decode_checkpoint, decode_state


def offered(chain: AuditChain, count: int) -> list[tuple[int, bytes]]:
    lines = [chain.next("config_change", {"n": n}, 1_000) for n in range(count)]
    return [(line.index, line.line) for line in lines]


def stored(directory: Path) -> list[bytes]:
    segments = sorted(directory.glob("segment-*.jsonl"))
    return b"".join(segment.read_bytes() for segment in segments).splitlines()


@pytest.fixture
def opened(tmp_path):
    opened_log = AuditLog(tmp_path / "log", 3)
    opened_log.open()
    yield opened_log
    opened_log.close()


def test_a_new_log_is_empty_and_verifies(tmp_path):
    fresh = AuditLog(tmp_path / "a" / "log")
    recovery = fresh.open()
    fresh.close()
    assert (recovery.created, recovery.size, recovery.messages) == (True, 0, ())
    assert verify_log(tmp_path / "a" / "log").status is Status.OK


def test_appended_records_are_stored_and_proven(tmp_path, opened):
    lines = offered(opened.chain(), 7)
    opened.append(lines[:2])
    opened.append(lines[2:])
    directory = tmp_path / "log"
    assert stored(directory) == [line for _, line in lines]
    assert [path.name for path in sorted(directory.glob("segment-*"))] == [
        "segment-000000000000.jsonl",
        "segment-000000000003.jsonl",
        "segment-000000000006.jsonl",
    ]
    report = verify_log(directory)
    assert (report.status, report.records, report.size) == (Status.OK, 7, 7)
    assert opened.size == 7


def test_a_log_goes_on_where_it_ended(tmp_path):
    all_lines = []
    for _ in range(4):
        again = AuditLog(tmp_path, 3)
        again.open()
        lines = offered(again.chain(), 2)
        again.append(lines)
        again.close()
        all_lines += lines
    assert [index for index, _ in all_lines] == list(range(8))
    assert stored(tmp_path) == [line for _, line in all_lines]
    assert verify_log(tmp_path).status is Status.OK


def test_a_log_may_be_reopened_with_another_segment_size(tmp_path, build):
    build(tmp_path, 4, 3)
    again = AuditLog(tmp_path, 2)
    again.open()
    again.append(offered(again.chain(), 3))
    again.close()
    assert (verify_log(tmp_path).status, len(stored(tmp_path))) == (Status.OK, 7)


def test_records_stored_already_are_skipped(tmp_path, opened):
    lines = offered(opened.chain(), 8)
    opened.append(lines[:5])
    opened.append(lines[1:])
    opened.append(lines)
    opened.append([])
    assert stored(tmp_path / "log") == [line for _, line in lines]


def test_a_different_record_in_a_taken_place_is_refused(opened):
    lines = offered(opened.chain(), 5)
    opened.append(lines)
    with pytest.raises(AuditError, match="record 3 is stored already"):
        opened.append([(3, lines[4][1])])


def test_gaps_and_disorder_are_refused_and_nothing_is_stored(tmp_path, opened):
    lines = offered(opened.chain(), 4)
    opened.append(lines[:1])
    for bad, why in [
        (lines[2:], "record 2 offered, 1 expected"),
        ([lines[1], lines[3]], "not consecutive"),
        ([lines[2], lines[1]], "not consecutive"),
        ([(1, lines[2][1])], "does not follow"),
        ([(1, lines[1][1] + b"\n")], "not one line"),
    ]:
        with pytest.raises(AuditError, match=why):
            opened.append(bad)
    assert stored(tmp_path / "log") == [lines[0][1]]


def test_records_of_another_log_are_refused(opened):
    with pytest.raises(AuditError, match="does not follow"):
        opened.append(offered(AuditChain("00" * 16), 1))


def test_a_closed_log_takes_nothing(tmp_path):
    closed = AuditLog(tmp_path)
    for use in (closed.chain, lambda: closed.append([])):
        with pytest.raises(AuditError, match="not open"):
            use()
    closed.close()


def test_a_log_is_opened_once(tmp_path, opened):
    with pytest.raises(AuditError, match="open already"):
        opened.open()
    with pytest.raises(AuditError, match="another process"):
        AuditLog(tmp_path / "log").open()


def _open_elsewhere(directory: Path, answer) -> None:
    try:
        AuditLog(directory).open()
    except AuditError as error:
        answer.send(str(error))


def test_a_second_process_is_kept_out(tmp_path, opened):
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_open_elsewhere, args=(tmp_path / "log", theirs))
    process.start()
    assert mine.poll(60)
    assert "another process writes this audit log" in mine.recv()
    process.join(60)
    assert process.exitcode == 0
    mine.close()
    theirs.close()


def test_an_incomplete_last_line_is_cut(tmp_path, build):
    lines = build(tmp_path, 4)
    segment = tmp_path / "segment-000000000003.jsonl"
    segment.write_bytes(segment.read_bytes() + b'{"v":1,"log":')
    again = AuditLog(tmp_path, 3)
    recovery = again.open()
    again.close()
    assert (recovery.size, recovery.cut_bytes) == (4, 13)
    assert recovery.messages == ("cut 13 bytes of an unfinished append: record 4 is incomplete",)
    assert stored(tmp_path) == lines


def test_torn_pages_beyond_the_checkpoint_are_cut_with_all_that_follows(tmp_path, build):
    lines = build(tmp_path, 3)
    (tmp_path / "segment-000000000003.jsonl").write_bytes(bytes(100) + b"\n")
    (tmp_path / "segment-000000000006.jsonl").write_bytes(b"more\n")
    again = AuditLog(tmp_path, 3)
    assert again.open().cut_bytes == 101
    again.close()
    assert stored(tmp_path) == lines
    assert not (tmp_path / "segment-000000000006.jsonl").exists()


def test_whole_records_without_a_checkpoint_are_kept_and_proven(tmp_path, build):
    lines = build(tmp_path / "long", 5)
    build(tmp_path / "short", 4)
    for name in (CHECKPOINT_FILE, "state.json"):
        shutil.copy(tmp_path / "short" / name, tmp_path / "long" / name)
    assert verify_log(tmp_path / "long").status is Status.UNPROVEN
    again = AuditLog(tmp_path / "long", 3)
    recovery = again.open()
    again.close()
    assert (recovery.size, recovery.rehashed_records) == (5, 1)
    assert stored(tmp_path / "long") == lines
    assert verify_log(tmp_path / "long").status is Status.OK


class Recorder(DiskFiles):
    """Notes what was synced and renamed, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.steps.append(("sync", path.name))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.steps.append(("replace", target.name))


def test_records_found_without_a_checkpoint_are_synced_before_they_get_one(tmp_path, build):
    build(tmp_path / "long", 5)
    build(tmp_path / "short", 2)
    for name in (CHECKPOINT_FILE, "state.json"):
        shutil.copy(tmp_path / "short" / name, tmp_path / "long" / name)
    files = Recorder()
    again = AuditLog(tmp_path / "long", 3, files=files)
    again.open()
    again.close()
    assert files.steps[:4] == [
        ("sync", "segment-000000000000.jsonl"),
        ("sync", "segment-000000000003.jsonl"),
        ("sync", "checkpoint.tmp"),
        ("replace", "checkpoint"),
    ]


def test_a_start_reads_from_the_stored_state_on(tmp_path, build):
    build(tmp_path, 9)
    again = AuditLog(tmp_path, 3)
    assert again.open().rehashed_records == 0
    again.append(offered(again.chain(), 2))
    again._release_lock()  # as a kill would: the state of the last close stays
    third = AuditLog(tmp_path, 3)
    assert third.open().rehashed_records == 2
    third.close()


def test_the_state_trails_by_a_bounded_number_of_records(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(log, "STATE_RECORDS", 4)
    chain = opened.chain()
    sizes = []
    for _ in range(6):
        opened.append(offered(chain, 1))
        state = tmp_path / "log" / "state.json"
        sizes.append(decode_state(state.read_bytes()).size if state.exists() else 0)
    assert sizes == [0, 0, 0, 4, 4, 4]


@pytest.mark.parametrize("content", [None, b"", b"{}\n"])
def test_a_lost_or_damaged_state_costs_time_only(tmp_path, build, content):
    lines = build(tmp_path, 5)
    state = tmp_path / "state.json"
    if content is None:
        state.unlink()
    else:
        state.write_bytes(content)
    again = AuditLog(tmp_path, 3)
    assert again.open().rehashed_records == 5
    again.close()
    assert stored(tmp_path) == lines
    assert verify_log(tmp_path).status is Status.OK


def test_the_state_of_another_log_is_not_used(tmp_path, build):
    build(tmp_path / "a", 5, nonce=b"a")
    build(tmp_path / "b", 5, nonce=b"b")
    shutil.copy(tmp_path / "b" / "state.json", tmp_path / "a" / "state.json")
    again = AuditLog(tmp_path / "a", 3)
    assert again.open().rehashed_records == 5
    again.close()


def _cut(directory: Path) -> None:
    segment = directory / "segment-000000000003.jsonl"
    segment.write_bytes(segment.read_bytes().splitlines(keepends=True)[0])


def _edit(directory: Path) -> None:
    (directory / "state.json").unlink()
    segment = directory / "segment-000000000000.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"n":1}', b'"n":9}'))


def _edit_last(directory: Path) -> None:
    (directory / "state.json").unlink()
    segment = directory / "segment-000000000003.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"n":4}', b'"n":9}'))


def _drop(name: str):
    return lambda directory: (directory / name).unlink()


def _damage(name: str):
    return lambda directory: (directory / name).write_bytes(b"x")


def _foreign_checkpoint(directory: Path) -> None:
    checkpoint = directory / CHECKPOINT_FILE
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"sm3/", b"sm3/0"))


def _drop_middle(directory: Path) -> None:
    (directory / "state.json").unlink()
    (directory / "segment-000000000000.jsonl").unlink()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_cut, "is shorter than the stored state"),
        (_edit, "record 2 does not follow from the record before, before the end"),
        (_edit_last, "do not add up to the checkpoint"),
        (_drop_middle, "does not follow on, before the end"),
        (_drop("segment-000000000003.jsonl"), "is shorter than|the log holds"),
        (_drop(CHECKPOINT_FILE), "no checkpoint"),
        (_damage(CHECKPOINT_FILE), "a checkpoint is three lines"),
        (_foreign_checkpoint, "of another log"),
        (_drop("log.json"), "segments but no log.json"),
        (_damage("log.json"), "log.json is incomplete"),
    ],
)
def test_a_log_that_lost_proven_records_is_not_continued(tmp_path, build, damage, why):
    build(tmp_path, 5)
    damage(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    damaged = AuditLog(tmp_path, 3)
    with pytest.raises(AuditError, match=why):
        damaged.open()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(AuditError, match=why):  # the lock was given back
        damaged.open()


def test_a_file_that_cannot_grow_keeps_whole_lines_and_a_retry_succeeds(tmp_path, opened):
    lines = offered(opened.chain(), 3)
    opened.append(lines[:1])
    size = len(lines[0][1]) + 1
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            opened.append(lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "log" / "segment-000000000000.jsonl").stat().st_size == size
    opened.append(lines)
    assert stored(tmp_path / "log") == [line for _, line in lines]


class NoSpace(DiskFiles):
    """Writes half and fails, ``failures`` times; truncating fails the first time."""

    def __init__(self) -> None:
        self.failures = 0
        self.truncations_to_fail = 0

    def write_at_end(self, path: Path, content: bytes) -> None:
        if self.failures:
            self.failures -= 1
            super().write_at_end(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at_end(path, content)

    def truncate(self, path: Path, size: int) -> None:
        if self.truncations_to_fail:
            self.truncations_to_fail -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(path, size)


def test_what_a_failed_append_left_is_removed_by_the_next(tmp_path):
    files = NoSpace()
    disk = AuditLog(tmp_path, 3, files=files)
    disk.open()
    lines = offered(disk.chain(), 8)
    disk.append(lines[:2])
    files.failures, files.truncations_to_fail = 1, 1
    with pytest.raises(OSError, match="No space"):
        disk.append(lines)
    assert stored(tmp_path) != [line for _, line in lines[:2]]
    disk.append(lines)
    disk.close()
    assert stored(tmp_path) == [line for _, line in lines]
    assert verify_log(tmp_path).status is Status.OK


def test_a_checkpoint_that_could_not_be_written_is_written_by_the_next_append(tmp_path):
    files = NoSpace()
    disk = AuditLog(tmp_path, files=files)
    disk.open()
    lines = offered(disk.chain(), 3)

    class CheckpointFails(NoSpace):
        def replace(self, source: Path, target: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

    disk._files = CheckpointFails()
    with pytest.raises(OSError, match="Input/output"):
        disk.append(lines)
    assert decode_checkpoint((tmp_path / CHECKPOINT_FILE).read_bytes()).size == 0
    disk._files = files
    disk.append(lines)
    disk.close()
    assert decode_checkpoint((tmp_path / CHECKPOINT_FILE).read_bytes()).size == 3
    assert stored(tmp_path) == [line for _, line in lines]


def test_a_segment_holds_at_least_one_record(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        AuditLog(tmp_path, 0)
