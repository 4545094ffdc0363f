"""The .proto files say what the code does: same fields, same attributes, same audit lines."""

from __future__ import annotations

import dataclasses
from importlib import resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

from mcptrace_collector.audit import AuditChain, configuration_fields, sampled_out_fields
from mcptrace_collector.audit.layout import KINDS, decode_record
from mcptrace_collector.audit.layout import Checkpoint as DiskCheckpoint
from mcptrace_collector.pipeline import SpanRecord
from mcptrace_proto import semconv
from mcptrace_proto.model import STATUS_ERROR, SpanData, SpanSource
from mcptrace_proto.sampling.decision import Decision
from mcptrace_proto.schema import COUNTS, InferenceSpan, TokenUsage

SCHEMA = Path(__file__).parents[3] / "proto" / "schema"
PACKAGE = "mcptrace.v2_3"
FILES = sorted(path.relative_to(SCHEMA).as_posix() for path in SCHEMA.rglob("*.proto"))

TRACE_ID, SPAN_ID = bytes(range(1, 17)), bytes(range(1, 9))
VIEW = InferenceSpan(
    model_name="tiny",
    model_version="3",
    operation="chat",
    provider="pytorch",
    finish_reason="stop",
    inference_latency_ms=12.5,
    ttft_ms=3.0,
    token_usage=TokenUsage(
        input=2**53 + 1, output=0, total=2**53 + 1, unknown={"cached": "not_reported"}
    ),
)
KEPT = Decision(True, "error", 0xE666 << 40, 9.99938968568813, "tiny|chat")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pool.DescriptorPool:
    """What protoc makes of the files, apart from the pool that everybody shares."""
    compiled = tmp_path_factory.mktemp("descriptors") / "set.bin"
    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{SCHEMA}", f"-I{well_known}", "--include_imports"]
    assert protoc.main([*arguments, f"--descriptor_set_out={compiled}", *FILES]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file:
        pool.Add(file)
    return pool


def _fields(pool: descriptor_pool.DescriptorPool, message: str) -> list[str]:
    descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.{message}")
    return [field.name for field in descriptor.fields]


def _parsed(pool: descriptor_pool.DescriptorPool, message: str, line: bytes):
    descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.{message}")
    return json_format.Parse(line, message_factory.GetMessageClass(descriptor)())


def test_there_is_one_file_for_each_subject() -> None:
    assert [f"mcptrace/v2_3/{name}.proto" for name in ("audit", "inference", "sampling")] == FILES


def test_token_usage_has_the_fields_of_the_record_in_their_order(pool) -> None:
    record = [field.name for field in dataclasses.fields(TokenUsage)]
    assert _fields(pool, "TokenUsage") == record


def test_counts_tell_zero_from_absent(pool) -> None:
    descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.TokenUsage")
    assert {name: descriptor.fields_by_name[name].has_presence for name in COUNTS} == dict.fromkeys(
        COUNTS, True
    )


def test_inference_span_has_the_record_and_what_the_span_itself_carries(pool) -> None:
    record = [field.name for field in dataclasses.fields(InferenceSpan)]
    assert _fields(pool, "InferenceSpan") == ["trace_id", "span_id", *record, "protocol_version"]


def test_every_field_of_an_inference_is_an_attribute_with_its_name(pool) -> None:
    names = {value for value in vars(semconv).values() if isinstance(value, str)}
    in_span = set(_fields(pool, "InferenceSpan")) - {"trace_id", "span_id", "token_usage"}
    in_usage = set(_fields(pool, "TokenUsage")) - {"unknown"}
    wanted = {f"mcptrace.{name}" for name in in_span}
    wanted |= {f"mcptrace.token_usage.{name}" for name in in_usage}
    assert wanted - names == set()


def test_sampling_decision_has_what_the_code_decides(pool) -> None:
    decision = {field.name for field in dataclasses.fields(Decision)}
    # keep is what being there says; the key names a budget and is in sampled_out records.
    assert set(_fields(pool, "SamplingDecision")) == decision - {"keep", "key"}


def test_checkpoint_has_what_stands_on_disk_and_what_is_known_beside_it(pool) -> None:
    on_disk = [field.name for field in dataclasses.fields(DiskCheckpoint)]
    assert on_disk == ["origin", "size", "root"]
    assert _fields(pool, "Checkpoint") == [
        "origin",
        "size",
        "root_hash",
        "head_hash",
        "time_unix_nano",
    ]


def _record(view: InferenceSpan | None) -> SpanRecord:
    attributes = {
        semconv.SOURCE_CONVENTION: "mcptrace",
        semconv.SCHEMA_VIOLATIONS: ["model_name:empty"],
        semconv.ERROR_TYPE: "timeout",
    }
    data = SpanData(TRACE_ID, SPAN_ID, attributes=attributes, status_code=STATUS_ERROR)
    resource = {"service.name": "demo"}
    return SpanRecord(b"raw", data, SpanSource(), resource, inference=view)


def _lines() -> dict[str, bytes]:
    """One line of each kind, as the collector writes them."""
    chain = AuditChain("ab" * 16)
    configuration = configuration_fields("0.1.0", "a: 1\n")
    recovery = {"journal_records": 2, "audit_log": ["cut 3 bytes"]}
    lines = {
        "inference": chain.next_inference(_record(VIEW), KEPT, 7, tenant="acme"),
        "span": chain.next_inference(_record(None), KEPT, 8),
        "sampled_out": chain.next(
            "sampled_out", sampled_out_fields({("tiny|chat", "sampled_out"): 5}, 1, 9), 9
        ),
        "recovery": chain.next("recovery", recovery, 10),
    }
    for kind in ("start", "stop", "config_change"):
        lines[kind] = chain.next(kind, configuration, 11)
    return {kind: line.line for kind, line in lines.items()}


LINES = _lines()


def test_every_kind_of_record_is_tried_here() -> None:
    assert LINES.keys() == KINDS


@pytest.mark.parametrize("kind", sorted(LINES))
def test_an_audit_line_is_an_audit_record(pool, kind: str) -> None:
    parsed = _parsed(pool, "AuditRecord", LINES[kind])
    back = json_format.MessageToDict(parsed, preserving_proto_field_name=True)
    assert _plain(back) == _said(decode_record(LINES[kind]))


GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "audit-log"
GOLDEN_LINES = [
    line
    for segment in sorted(GOLDEN.glob("segment-*.jsonl"))
    for line in segment.read_bytes().splitlines()
]


@pytest.mark.parametrize("line", GOLDEN_LINES, ids=lambda line: decode_record(line)["kind"])
def test_a_line_of_the_golden_log_is_an_audit_record(pool, line: bytes) -> None:
    back = json_format.MessageToDict(
        _parsed(pool, "AuditRecord", line), preserving_proto_field_name=True
    )
    assert _plain(back) == _said(decode_record(line))


def _said(value):
    """A line's values without those that mean "not known" or nothing."""
    if isinstance(value, dict):
        said = {key: _said(item) for key, item in value.items()}
        return {key: item for key, item in said.items() if item or type(item) in (int, float)}
    return [_said(item) for item in value] if isinstance(value, list) else value


_INT64 = {
    *("index", "time_unix_nano", "from_unix_nano", "to_unix_nano", "spans", "journal_records"),
    *COUNTS,
}


def _plain(value):
    """protobuf's JSON has 64-bit integers as text, and leaves a zero out without presence."""
    if not isinstance(value, dict):
        return [_plain(item) for item in value] if isinstance(value, list) else value
    plain = {
        key: int(item)
        if key in _INT64 and isinstance(item, str) and item.isdigit()
        else _plain(item)
        for key, item in value.items()
    }
    return {"index": 0, **plain} if "log" in plain else plain
