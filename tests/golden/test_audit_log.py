"""The audit format does not change by accident."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcptrace_collector.audit import AuditLog, Status, span_matches, verify_log

HERE = Path(__file__).parent
DATA = HERE / "data"
GOLDEN = DATA / "audit-log"


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def lines() -> list[bytes]:
    segments = sorted(GOLDEN.glob("segment-*.jsonl"))
    return b"".join(segment.read_bytes() for segment in segments).splitlines()


def test_the_script_writes_the_golden_log_byte_for_byte(tmp_path):
    subprocess.run([sys.executable, HERE / "rebuild_audit_log.py", tmp_path], check=True)
    golden = {name: content for name, content in files(DATA).items() if name.startswith("audit-")}
    assert files(tmp_path) == golden


def test_the_golden_log_verifies_and_has_every_kind():
    report = verify_log(GOLDEN)
    assert (report.status, report.records) == (Status.OK, 7)
    assert [json.loads(line)["kind"] for line in lines()] == [
        "start",
        "inference",
        "span",
        "sampled_out",
        "config_change",
        "recovery",
        "stop",
    ]


def test_the_golden_span_is_the_one_of_its_record():
    span = (DATA / "audit-span.bin").read_bytes()
    assert [span_matches(line, span) for line in lines()] == [
        False,
        True,
        False,
        False,
        False,
        False,
        False,
    ]


def test_the_golden_log_can_be_continued(tmp_path):
    directory = tmp_path / "log"
    shutil.copytree(GOLDEN, directory)
    log = AuditLog(directory, 3)
    assert log.open().rehashed_records == 0
    log.append([(line.index, line.line) for line in [log.chain().next("start", {}, 1)]])
    log.close()
    assert (verify_log(directory).status, verify_log(directory).records) == (Status.OK, 8)


def test_the_tree_follows_from_the_records_by_the_rfc_alone():
    """The root once more, with nothing of ours: hashlib and RFC 9162 section 2.1.1."""
    try:
        hashlib.new("sm3")
    except ValueError:
        pytest.skip("this Python's OpenSSL has no SM3")

    def digest(data: bytes) -> bytes:
        return hashlib.new("sm3", data).digest()

    def root(records: list[bytes]) -> bytes:
        if len(records) == 1:
            return digest(b"\x00" + records[0])
        split = 1 << (len(records) - 1).bit_length() - 1
        return digest(b"\x01" + root(records[:split]) + root(records[split:]))

    assert root(lines()).hex() == verify_log(GOLDEN).root


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_a_link_can_be_checked_by_hand_with_openssl():
    """What docs/audit.md tells an auditor to type."""
    script = (
        r"(printf '\000'; head -n 1 segment-000000000000.jsonl | tr -d '\n') | openssl dgst -sm3"
    )
    answer = subprocess.run(
        ["sh", "-c", script], cwd=GOLDEN, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split()[-1] == json.loads(lines()[1])["prev"]
