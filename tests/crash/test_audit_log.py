"""The audit log on a disk that fails, or dies, at every single step.

The caller's half of the promise is modelled by ``Outbox``: lines are committed there first
and leave it after ``append`` returned, as the collector's database does.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mcptrace_collector.audit import AuditLog, Status, verify_log
from mcptrace_collector.audit.files import DiskFiles

BATCHES = (1, 2, 5, 1, 4, 0, 3)  # records an append; segments of three records
SEGMENT_RECORDS = 3
STEPS_MAX = 200


class Died(BaseException):
    """The process is gone; not an Exception, so that nothing can survive it by accident."""


class FaultyDisk(DiskFiles):
    """A disk that fails its ``at``-th step, and forgets what was not synced when it dies.

    A failing write has written half.  With ``dies`` every later step fails too, and
    ``lose_unsynced`` then takes away what a loss of power may take.
    """

    def __init__(self, at: int | None, *, dies: bool) -> None:
        self.step = 0
        self.failed = False
        self._at = at
        self._dies = dies
        self._synced: dict[Path, bytes | None] = {}  # content that survives; None: no file
        self._names: dict[Path, bytes | None] = {}  # what a name held when its folder was synced

    def _count(self) -> bool:
        """Whether this step fails."""
        if self.failed and self._dies:
            raise Died
        self.step += 1
        if self.step != self._at:
            return False
        self.failed = True
        return True

    def _fail(self) -> None:
        if self._dies:
            raise Died
        raise OSError(errno.EIO, "Input/output error")

    def _remember(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else None
        self._synced.setdefault(path, content)
        self._names.setdefault(path, content)

    def write_at_end(self, path: Path, content: bytes) -> None:
        self._remember(path)
        if self._count():
            super().write_at_end(path, content[: len(content) // 2])
            self._fail()
        super().write_at_end(path, content)

    def truncate(self, path: Path, size: int) -> None:
        self._remember(path)
        if self._count():
            self._fail()
        super().truncate(path, size)

    def sync(self, path: Path) -> None:
        self._remember(path)
        if self._count():
            self._fail()
        super().sync(path)
        self._synced[path] = path.read_bytes()

    def replace(self, source: Path, target: Path) -> None:
        self._remember(target)
        if self._count():
            self._fail()
        super().replace(source, target)
        self._synced[target] = self._synced.pop(source)

    def remove(self, path: Path) -> None:
        self._remember(path)
        if self._count():
            self._fail()
        super().remove(path)
        self._synced[path] = None

    def sync_directory(self, path: Path) -> None:
        if self._count():
            self._fail()
        super().sync_directory(path)
        for name in [name for name in self._names if name.parent == path]:
            self._names[name] = self._synced.get(name)

    def lose_unsynced(self, *, renames_kept: bool) -> None:
        """What a loss of power may take: unsynced content, and names of unsynced folders.

        With ``renames_kept`` the renames happened to reach the disk all the same.
        """
        for path, content in self._synced.items():
            # A name whose folder was never synced since goes back to what it was.
            named = renames_kept and path.suffix != ".jsonl"
            survivor = content if named or self._names.get(path) is not None else None
            if path.suffix != ".jsonl" and not renames_kept:
                survivor = self._names.get(path)
            if survivor is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(survivor)


class Outbox:
    """The committed lines that may not be in the files yet, and all that ever were committed."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, bytes]] = []
        self.committed: list[bytes] = []

    def settle(self, log: AuditLog, batches: list[int]) -> None:
        """Commit and append batch after batch; a failed append is tried again."""
        self._redo(log)
        chain = log.chain()
        while batches:
            lines = [chain.next("config_change", {"n": n}, 1) for n in range(batches.pop(0))]
            self.waiting += [(line.index, line.line) for line in lines]
            self.committed += [line.line for line in lines]
            self._redo(log)

    def _redo(self, log: AuditLog) -> None:
        try:
            log.append(self.waiting)
        except OSError:
            log.append(self.waiting)
        self.waiting.clear()


def open_log(directory: Path, files: DiskFiles) -> AuditLog:
    log = AuditLog(directory, SEGMENT_RECORDS, files=files)
    log.open()
    return log


def check(directory: Path, outbox: Outbox) -> None:
    """Every committed record is stored once, in order, and the log verifies."""
    segments = sorted(directory.glob("segment-*.jsonl"))
    stored = b"".join(segment.read_bytes() for segment in segments).splitlines()
    assert stored == outbox.committed
    report = verify_log(directory)
    assert (report.status, report.records, report.size) == (
        Status.OK,
        sum(BATCHES),
        sum(BATCHES),
    ), report.text()


@pytest.fixture(autouse=True)
def state_often(monkeypatch):
    monkeypatch.setattr("mcptrace_collector.audit.log.STATE_RECORDS", 4)


def test_every_step_may_fail_once(tmp_path):
    for step in range(1, STEPS_MAX):
        disk = FaultyDisk(step, dies=False)
        directory = tmp_path / str(step)
        outbox = Outbox()
        try:
            log = open_log(directory, disk)
        except OSError:
            log = open_log(directory, disk)
        outbox.settle(log, list(BATCHES))
        log.close()
        check(directory, outbox)
        if not disk.failed:
            assert step > 50
            return
    pytest.fail("the workload takes more steps than were tried")


@pytest.mark.parametrize("power", ["kept", "lost", "lost after the renames"])
def test_the_process_may_die_at_every_step(tmp_path, power):
    for step in range(1, STEPS_MAX):
        directory = tmp_path / str(step)
        outbox, batches = Outbox(), list(BATCHES)
        survived = die_at(directory, outbox, batches, step, power=power)
        log = open_log(directory, DiskFiles())
        outbox.settle(log, batches)
        log.close()
        check(directory, outbox)
        if survived:
            assert step > 50
            return
    pytest.fail("the workload takes more steps than were tried")


def test_the_process_may_die_again_while_it_recovers(tmp_path):
    for step in range(1, 60, 3):
        for again in range(1, 20):
            directory = tmp_path / f"{step}-{again}"
            outbox, batches = Outbox(), list(BATCHES)
            die_at(directory, outbox, batches, step, power=("kept", "lost")[again % 2])
            die_at(directory, outbox, batches, again, power=("lost", "kept")[again % 3 == 0])
            log = open_log(directory, DiskFiles())
            outbox.settle(log, batches)
            log.close()
            check(directory, outbox)


def die_at(directory: Path, outbox: Outbox, batches: list[int], step: int, *, power: str) -> bool:
    """Run until the disk's ``step``-th call; False if the process died on the way."""
    disk = FaultyDisk(step, dies=True)
    log = AuditLog(directory, SEGMENT_RECORDS, files=disk)
    try:
        log.open()
        outbox.settle(log, batches)
        log.close()
    except Died:
        log._release_lock()  # the system does this for a process that is gone
        if power != "kept":
            disk.lose_unsynced(renames_kept=power == "lost after the renames")
        return False
    return True
