"""Spans into a local file: one OTLP/JSON ExportTraceServiceRequest per line.

    spans.jsonl        being written
    spans.jsonl.1      set aside last
    spans.jsonl.2 …    older, ``rotate_keep`` in all

The format of OpenTelemetry's file exporter, so that other tools can read it.

Always true: an export that returned is on disk; the file ends with a whole line after every
call, failed ones too, and after a start that follows a crash.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from mcptrace_collector.errors import ConfigError, Permanent, Retryable
from mcptrace_proto.errors import WireError
from mcptrace_proto.json import encode_request_json
from mcptrace_proto.wire import decode_request

DEFAULT_ROTATE_BYTES = 256 * 1024 * 1024
DEFAULT_ROTATE_KEEP = 4
FILE_MODE = 0o640  # spans may say what nobody else on the machine is to read
SCAN_BYTES = 64 * 1024
DISK_RETRY_SECONDS = 5.0


class JsonLinesExporter:
    """An Exporter over a LineFile; all work on the file is done in threads."""

    def __init__(
        self,
        path: Path,
        *,
        rotate_bytes: int = DEFAULT_ROTATE_BYTES,
        rotate_keep: int = DEFAULT_ROTATE_KEEP,
    ) -> None:
        self._file = LineFile(path, rotate_bytes, rotate_keep)

    async def start(self) -> None:
        """Open the file.  Raises ConfigError when that cannot be done."""
        try:
            await asyncio.to_thread(self._file.open)
        except OSError as error:
            raise ConfigError(
                f"the span file {str(self._file.path)!r} cannot be written: {error.strerror}"
            ) from error

    async def export(self, body: bytes, spans: int) -> int:
        """Append one line; see pipeline.Exporter."""
        await asyncio.to_thread(self._append, body)
        return 0

    async def shutdown(self) -> None:
        await asyncio.to_thread(self._file.close)

    def _append(self, body: bytes) -> None:
        try:
            line = encode_request_json(decode_request(body)) + b"\n"
        except WireError as error:
            raise Permanent(f"the spans cannot be written as OTLP/JSON: {error}") from error
        try:
            self._file.append(line)
        except OSError as error:
            raise Retryable(
                f"{self._file.path}: {error.strerror or error}", DISK_RETRY_SECONDS
            ) from error


class LineFile:
    """A file of whole lines.  May be used from any thread, one at a time.

    ``rotate_bytes`` is where a file is set aside, unless a single line is longer;
    ``rotate_keep`` is how many of those stay.
    """

    def __init__(self, path: Path, rotate_bytes: int, rotate_keep: int) -> None:
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._rotate_keep = rotate_keep
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0
        self._closed = False

    def open(self) -> None:
        """Open or make the file, and cut a last line that a crash left unfinished."""
        with self._lock:
            self._closed = False
            self._open()

    def append(self, line: bytes) -> None:
        """Add one line, and return when it is on disk.

        Raises OSError, after which the file is as it was before.
        """
        with self._lock:
            if self._closed:
                raise OSError("the file is closed")
            if self._descriptor is None:
                self._open()
            if self._size and self._size + len(line) > self._rotate_bytes:
                self._rotate()
            assert self._descriptor is not None
            try:
                _write(self._descriptor, line)
                os.fsync(self._descriptor)
            except OSError:
                self._undo()
                raise
            self._size += len(line)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE
        )
        try:
            self._size = _end_of_last_line(descriptor)
            os.ftruncate(descriptor, self._size)
            _sync_directory(self.path.parent)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _undo(self) -> None:
        """Take back a line that was not written to its end."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            self._let_go()  # the next append opens the file anew and cuts it there

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _rotate(self) -> None:
        self._let_go()
        if self._rotate_keep == 0:
            self.path.unlink()
        for number in range(self._rotate_keep, 0, -1):
            younger = self._aside(number - 1) if number > 1 else self.path
            if younger.exists():
                younger.replace(self._aside(number))
        self._open()

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _write(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _end_of_last_line(descriptor: int) -> int:
    """Offset after the last newline; 0 when there is none."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - SCAN_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _sync_directory(directory: Path) -> None:
    """Make names as durable as contents."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
