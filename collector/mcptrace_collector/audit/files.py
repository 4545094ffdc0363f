"""The few things the audit log asks of a disk, so that tests can make each of them fail.

Reading is not here: a log that cannot be read is not written to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

_FILE_MODE = 0o640


class Files(Protocol):
    """Every call may raise OSError, and may then have done its work or part of it."""

    def write_at_end(self, path: Path, content: bytes) -> None:
        """Append to a file, creating it."""

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to ``size`` bytes."""

    def sync(self, path: Path) -> None:
        """Return when the file's content is on the disk."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename, over an existing file."""

    def remove(self, path: Path) -> None:
        """Delete a file; one that is not there is fine."""

    def sync_directory(self, path: Path) -> None:
        """Return when creations, renames and removals in ``path`` are on the disk."""


class DiskFiles:
    """The operating system's files."""

    def write_at_end(self, path: Path, content: bytes) -> None:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE
        )
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def sync(self, path: Path) -> None:
        _sync(path, os.O_RDONLY)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
