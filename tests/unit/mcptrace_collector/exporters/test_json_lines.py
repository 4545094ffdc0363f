from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from mcptrace_collector.errors import ConfigError
from mcptrace_collector.exporters.json_lines import SCAN_BYTES, JsonLinesExporter, LineFile


def opened(path: Path, rotate_bytes: int = 1000, rotate_keep: int = 2) -> LineFile:
    file = LineFile(path, rotate_bytes, rotate_keep)
    file.open()
    return file


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_bytes(b"one\n")
    file = opened(path)
    file.append(b"two\n")
    file.close()
    assert files(tmp_path) == {"spans.jsonl": b"one\ntwo\n"}


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (b"", b""),
        (b"whole\n", b"whole\n"),
        (b"whole\ntorn", b"whole\n"),
        (b"torn", b""),
        (b"whole\n" + b"x" * (3 * SCAN_BYTES), b"whole\n"),
        (b"y" * SCAN_BYTES + b"\n" + b"x" * (SCAN_BYTES - 1), b"y" * SCAN_BYTES + b"\n"),
        (b"x" * (2 * SCAN_BYTES), b""),
    ],
)
def test_a_torn_last_line_is_cut_at_the_start(tmp_path: Path, found: bytes, left: bytes) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_bytes(found)
    file = opened(path, rotate_bytes=10 * SCAN_BYTES)
    assert path.read_bytes() == left
    file.append(b"next\n")
    file.close()
    assert path.read_bytes() == left + b"next\n"


def test_a_full_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = opened(tmp_path / "s", rotate_bytes=10)
    for number in range(7):
        file.append(b"line%d\n" % number)  # 6 bytes: one fits, two do not
    file.close()
    assert files(tmp_path) == {"s": b"line6\n", "s.1": b"line5\n", "s.2": b"line4\n"}


def test_a_file_is_filled_to_its_size_and_no_further(tmp_path: Path) -> None:
    file = opened(tmp_path / "s", rotate_bytes=12)
    for number in range(5):
        file.append(b"line%d\n" % number)
    file.close()
    assert files(tmp_path) == {
        "s": b"line4\n",
        "s.1": b"line2\nline3\n",
        "s.2": b"line0\nline1\n",
    }


def test_a_line_longer_than_a_file_has_one_for_itself(tmp_path: Path) -> None:
    file = opened(tmp_path / "s", rotate_bytes=4)
    for line in (b"a long line\n", b"b\n"):
        file.append(line)
    file.close()
    assert files(tmp_path) == {"s": b"b\n", "s.1": b"a long line\n"}


def test_keeping_none_keeps_none(tmp_path: Path) -> None:
    file = opened(tmp_path / "s", rotate_bytes=4, rotate_keep=0)
    for line in (b"one\n", b"two\n"):
        file.append(line)
    file.close()
    assert files(tmp_path) == {"s": b"two\n"}


def test_a_rotation_that_fails_loses_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "s", rotate_bytes=4, rotate_keep=1)
    file.append(b"one\n")
    (tmp_path / "s.1").mkdir()  # a file cannot replace a directory
    for _ in range(2):
        with pytest.raises(OSError, match="directory"):
            file.append(b"two\n")
    assert (tmp_path / "s").read_bytes() == b"one\n"
    (tmp_path / "s.1").rmdir()
    file.append(b"two\n")
    file.close()
    assert files(tmp_path) == {"s": b"two\n", "s.1": b"one\n"}


def test_after_closing_nothing_is_written(tmp_path: Path) -> None:
    file = opened(tmp_path / "s")
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.append(b"late\n")
    assert files(tmp_path) == {"s": b""}


def test_others_cannot_read_the_file(tmp_path: Path) -> None:
    opened(tmp_path / "s").close()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) & 0o007 == 0


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    before = descriptors()
    file = opened(tmp_path / "s", rotate_bytes=4)
    for line in (b"one\n", b"two\n", b"six\n"):
        file.append(line)
    file.close()
    assert descriptors() == before


def test_a_file_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    exporter = JsonLinesExporter(tmp_path / "file" / "spans.jsonl")
    with pytest.raises(ConfigError, match=r"spans\.jsonl"):
        asyncio.run(exporter.start())
