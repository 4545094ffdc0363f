"""Bad input at every door of the running program: the answer of the specification or one clear
sentence, the process lives, and nothing already accepted is lost."""

from __future__ import annotations

import gzip
import http.client
import os
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PROTOBUF, JSON = "application/x-protobuf", "application/json"
DISK_BYTES = 64 << 20


def span_body(number: int, padding: int = 0) -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = bytes(15) + b"\x01", number.to_bytes(8, "big")
    span.name = "x" * (1 + padding)
    encoded: bytes = request.SerializeToString()
    return encoded


def post(address: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/v1/traces", body, names)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_what_is_no_request_is_refused_and_what_follows_is_served(
    receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    running = collector(
        exporters={
            "peer": {"type": "otlp_http", "endpoint": receiver.http_endpoint, "insecure": True}
        }
    )
    address = running.endpoint("otlp_http")
    bomb = gzip.compress(bytes(100 << 20), 9)
    hostile = {
        "malformed protobuf": (b"\xff\xff\xff", {"Content_Type": PROTOBUF}, 400),
        "truncated protobuf": (span_body(1)[:-3], {"Content_Type": PROTOBUF}, 400),
        "malformed JSON": (b'{"resourceSpans": [', {"Content_Type": JSON}, 400),
        "JSON of another shape": (b'{"resourceSpans": 5}', {"Content_Type": JSON}, 400),
        "no content type": (span_body(1), {}, 415),
        "another content type": (span_body(1), {"Content_Type": "text/plain"}, 415),
        "another encoding": (
            span_body(1), {"Content_Type": PROTOBUF, "Content_Encoding": "br"}, 415
        ),
        "truncated gzip": (
            gzip.compress(span_body(1))[:-9],
            {"Content_Type": PROTOBUF, "Content_Encoding": "gzip"},
            400,
        ),
        "gzip bomb": (bomb, {"Content_Type": PROTOBUF, "Content_Encoding": "gzip"}, 413),
    }  # fmt: skip
    for name, (body, headers, expected) in hostile.items():
        status, answered, _ = post(address, body, **headers)
        assert status == expected, name
        spoken = PROTOBUF if headers.get("Content_Type") == PROTOBUF else JSON
        assert answered["Content-Type"] == spoken, name

    status, _, answer = post(address, span_body(1), Content_Type=PROTOBUF)
    assert (status, ExportTraceServiceResponse.FromString(answer).ByteSize()) == (200, 0)
    wait_until(lambda: len(receiver.spans()) == 1)
    refused = {
        entry["reason"]: entry["value"]
        for entry in running.status()["metrics"]["refused_requests_total"]
    }
    assert refused == {"malformed": 5, "unsupported_media": 3, "too_large": 1}
    assert running.stop() == 0


def test_spans_that_are_none_are_refused_one_by_one(
    receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    running = collector(
        exporters={
            "peer": {"type": "otlp_http", "endpoint": receiver.http_endpoint, "insecure": True}
        }
    )
    request = ExportTraceServiceRequest.FromString(span_body(7))
    bad = request.resource_spans[0].scope_spans[0].spans.add()
    bad.trace_id, bad.span_id, bad.name = b"short", bytes(8), "bad"
    status, _, answer = post(
        running.endpoint("otlp_http"), request.SerializeToString(), Content_Type=PROTOBUF
    )
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    assert (status, partial.rejected_spans) == (200, 1)
    assert "trace_id" in partial.error_message
    wait_until(lambda: [span.name for _, _, span in receiver.spans()] == ["x"])


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        ("recievers: {}", [], "recievers"),
        ("sampling: {rate_max: lots}", [], "sampling.rate_max"),
        ("sampling: {rate_max: 2}", [], "sampling.rate_max"),
        (": : :", [], "collector.yaml"),
        (
            "receivers: {otlp_http: {tls: {cert_file: /none.pem, key_file: /none.key}}}",
            [],
            "/none.pem",
        ),
        ("receivers: {otlp_http: {endpoint: '0.0.0.0:4318'}}", [], "insecure"),
        ("exporters: {a: {type: otlp_http}}", [], "endpoint"),
        ("{}", ["--set", "durabilty=disk"], "durability"),
    ],
)
def test_a_configuration_that_cannot_be_run_is_one_sentence(
    text: str, arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mcptrace_collector", "run", "--config", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 78
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == [file], "nothing was created"


def test_a_second_collector_on_the_same_directory_is_told_so(
    collector: Callable[..., Any], tmp_path: Path
) -> None:
    first = collector()
    done = subprocess.run(
        [sys.executable, "-m", "mcptrace_collector", "run", "--config", str(first.config_file)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "in use by another process" in done.stderr
    assert "Traceback" not in done.stderr
    assert first.stop() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of DISK_BYTES, which only root can make."""
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "CI runs as root"
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount)], check=True
    )
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_refuses_what_is_new_and_keeps_what_was_accepted(
    small_disk: Path, receiver: Any, collector: Callable[..., Any], wait_until: Any
) -> None:
    running = collector(
        data_dir=str(small_disk / "data"),
        limits={"disk_reserve_bytes": 32 << 20},
        exporters={
            "peer": {"type": "otlp_http", "endpoint": receiver.http_endpoint, "insecure": True}
        },
        sampling={"enabled": False, "settle_seconds": 600.0, "decision_wait_seconds": 600.0},
    )
    address = running.endpoint("otlp_http")
    accepted = 0
    for number in range(1, 1000):
        body = span_body(number, padding=100_000)
        status, headers, _ = post(address, body, Content_Type=PROTOBUF)
        if status != 200:
            break
        accepted += 1
    assert (status, accepted > 5) == (503, True)
    assert int(headers["Retry-After"]) >= 1
    with pytest.raises(urllib.error.HTTPError, match="503"):  # and /readyz says so
        running.get("/readyz")
    # Somebody else takes the rest of the disk as well.
    free = os.statvfs(small_disk)
    (small_disk / "other").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - (1 << 20))))
    assert post(address, span_body(1000), Content_Type=PROTOBUF)[0] == 503
    assert running.status()["balance"]["held"] == accepted
    running.kill()
    (small_disk / "other").unlink()
    running.start()
    assert running.status()["balance"]["held"] == accepted
    assert running.stop() == 0, running.log()
    wait_until(lambda: len({span.span_id for _, _, span in receiver.spans()}) == accepted)
    assert "the balance is exact" in running.log()
