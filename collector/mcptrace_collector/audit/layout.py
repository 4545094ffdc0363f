"""The audit log on disk: file names and the exact bytes of everything in them.

    log.json                     who this log is; its id is a hash of the rest of the file
    segment-000000000000.jsonl   records, one JSON object a line; named by its first index
    segment-000000065536.jsonl
    checkpoint                   origin, size and root hash: what the records must add up to
    state.json                   where the writer may start from without reading it all
    lock                         held by the one writer; always empty

A record's stored bytes, without the newline, are what is hashed; nothing is ever
serialised again in order to check it.  ``{"v":1,"log":…,"index":…,"prev":…,`` stands first
in every record, so that it can be checked as bytes:

    {"v":1,"log":"<id>","index":7,"prev":"<leaf hash of 6>","time_unix_nano":…,"kind":…,…}

Everything here has one spelling: fields in a fixed order, no spaces, ASCII, no NaN, 64-bit
integers as plain numbers.  The decoders refuse every other spelling (duplicate keys, 1.0
for 1, other escapes), by encoding what they read once more and comparing.

Pure.  Knows the format, not the disk, and not what the fields of a record mean.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcptrace_collector.audit.sm3 import DIGEST_BYTES, sm3
from mcptrace_collector.errors import CollectorError

FORMAT_VERSION: Final = 1
HASH_NAME: Final = "sm3"

IDENTITY_FILE: Final = "log.json"
CHECKPOINT_FILE: Final = "checkpoint"
STATE_FILE: Final = "state.json"
LOCK_FILE: Final = "lock"
TEMPORARY_SUFFIX: Final = ".tmp"  # a file about to take the name before the suffix

SEGMENT_RECORDS: Final = 65536
LINE_BYTES_MAX: Final = 1 << 20  # a record without its newline
SMALL_FILE_BYTES_MAX: Final = 1 << 16  # any file that is not a segment

ZERO_HASH: Final = bytes(DIGEST_BYTES)
NONCE_BYTES: Final = 16
LOG_ID_BYTES: Final = 16

KINDS: Final = frozenset(
    {"inference", "span", "sampled_out", "start", "stop", "recovery", "config_change"}
)
HEADER: Final = ("v", "log", "index", "prev", "time_unix_nano", "kind")

_INT64_MAX: Final = (1 << 63) - 1
_HEX_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SEGMENT: Final = re.compile(r"segment-([0-9]{12,})\.jsonl")

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class LayoutError(ValueError):
    """Bytes that this format does not have, or a record it cannot hold."""


class AuditError(CollectorError):
    """The log on disk cannot be continued; the text says why and what an operator can do."""


@dataclass(slots=True, frozen=True)
class Identity:
    """Who a log is.  ``log_id`` is derived, so every record vouches for the whole of it."""

    created_unix_nano: int
    nonce: bytes

    @property
    def log_id(self) -> str:
        return sm3(_encode(self._fields()))[:LOG_ID_BYTES].hex()

    def _fields(self) -> dict[str, Any]:
        return {
            "v": FORMAT_VERSION,
            "hash": HASH_NAME,
            "created_unix_nano": self.created_unix_nano,
            "nonce": self.nonce.hex(),
        }

    def encode(self) -> bytes:
        return _encode({**self._fields(), "log": self.log_id}) + b"\n"


@dataclass(slots=True, frozen=True)
class Checkpoint:
    """The root of the tree over the first ``size`` records of the log named by ``origin``.

    The body of a C2SP tlog-checkpoint.  That format fixes SHA-256, so the origin names SM3.
    The empty line at the end is where the signatures of a signed note would follow.
    """

    origin: str
    size: int
    root: bytes

    def encode(self) -> bytes:
        root = base64.b64encode(self.root).decode("ascii")
        return f"{self.origin}\n{self.size}\n{root}\n\n".encode("ascii")


@dataclass(slots=True, frozen=True)
class State:
    """The writer's state after ``size`` records: last leaf hash and the tree's subtrees."""

    log_id: str
    size: int
    head: bytes
    nodes: tuple[bytes, ...]

    def encode(self) -> bytes:
        fields = {
            "v": FORMAT_VERSION,
            "log": self.log_id,
            "size": self.size,
            "head": self.head.hex(),
            "nodes": [node.hex() for node in self.nodes],
        }
        return _encode(fields) + b"\n"


def origin(log_id: str) -> str:
    """First line of a checkpoint of this log."""
    return f"mcptrace/{HASH_NAME}/{log_id}"


def segment_name(first_index: int) -> str:
    return f"segment-{first_index:012d}.jsonl"


def segment_first_index(name: str) -> int | None:
    """The index a segment's name promises for its first record; None for other files."""
    match = _SEGMENT.fullmatch(name)
    if match is None or segment_name(int(match[1])) != name:
        return None
    return int(match[1])


def record_prefix(log_id: str, index: int, prev: bytes) -> bytes:
    """What the record at ``index`` must begin with."""
    return (
        f'{{"v":{FORMAT_VERSION},"log":"{log_id}","index":{index},"prev":"{prev.hex()}",'
    ).encode("ascii")


def encode_record(
    log_id: str,
    index: int,
    prev: bytes,
    *,
    time_unix_nano: int,
    kind: str,
    fields: Mapping[str, Any],
) -> bytes:
    """The stored bytes of a record, without a newline.

    Raises LayoutError for an unknown kind, a field with the name of a header field, a value
    JSON does not have, or a record of more than LINE_BYTES_MAX.
    """
    if kind not in KINDS:
        raise LayoutError(f"unknown kind of record: {kind!r}")
    if not fields.keys().isdisjoint(HEADER):
        raise LayoutError(f"a field of {kind!r} has the name of a header field")
    rest = _encode({"time_unix_nano": time_unix_nano, "kind": kind, **fields})
    line = record_prefix(log_id, index, prev) + rest[1:]
    if len(line) > LINE_BYTES_MAX:
        raise LayoutError(f"a {kind!r} record of {len(line)} bytes; at most {LINE_BYTES_MAX}")
    return line


def decode_record(line: bytes) -> dict[str, Any]:
    """The fields of a record.  Raises LayoutError for anything encode_record cannot write."""
    if len(line) > LINE_BYTES_MAX:
        raise LayoutError(f"a record of more than {LINE_BYTES_MAX} bytes")
    record = _decode(line, "record")
    if tuple(record)[: len(HEADER)] != HEADER:
        raise LayoutError("a record without the fields every record begins with")
    if record["v"] != FORMAT_VERSION or record["kind"] not in KINDS:
        raise LayoutError(f"version {record['v']!r} or kind {record['kind']!r} is not known")
    _require_count(record["index"], "index")
    _require_count(record["time_unix_nano"], "time_unix_nano")
    _hash_of(record["prev"], "prev")
    return record


def decode_identity(content: bytes) -> Identity:
    """Raises LayoutError unless ``content`` is an Identity with the id that follows from it."""
    record = _decode_file(content, IDENTITY_FILE)
    try:
        nonce = bytes.fromhex(record["nonce"])
        identity = Identity(record["created_unix_nano"], nonce)
    except (KeyError, TypeError, ValueError):
        raise LayoutError(f"{IDENTITY_FILE} does not say who the log is") from None
    if len(nonce) != NONCE_BYTES or identity.encode() != content:
        raise LayoutError(f"{IDENTITY_FILE} does not fit the log id in it")
    return identity


def decode_state(content: bytes) -> State:
    """Raises LayoutError unless ``content`` is a possible State of some log."""
    record = _decode_file(content, STATE_FILE)
    try:
        nodes = tuple(_hash_of(node, "node") for node in record["nodes"])
        state = State(record["log"], record["size"], _hash_of(record["head"], "head"), nodes)
    except (KeyError, TypeError):
        raise LayoutError(f"{STATE_FILE} lacks a field") from None
    _require_count(state.size, "size")
    if state.encode() != content or len(nodes) != state.size.bit_count():
        raise LayoutError(f"{STATE_FILE} does not fit its own size")
    return state


def decode_checkpoint(content: bytes) -> Checkpoint:
    """Raises LayoutError unless ``content`` is three lines, origin, size, root, and a blank."""
    try:
        origin_line, size, root, *_ = content.decode("ascii").split("\n")
        checkpoint = Checkpoint(origin_line, int(size), base64.b64decode(root, validate=True))
    except (ValueError, binascii.Error):
        raise LayoutError("a checkpoint is three lines: origin, size, root") from None
    _require_count(checkpoint.size, "size")
    if len(checkpoint.root) != DIGEST_BYTES or checkpoint.encode() != content:
        raise LayoutError("a checkpoint with another spelling than the format's")
    return checkpoint


def _encode(value: object) -> bytes:
    try:
        return _encoder.encode(value).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise LayoutError(f"not representable in a record: {error}") from None


def _decode(content: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        raise LayoutError(f"{what} is not JSON") from None
    if not isinstance(value, dict) or _encode(value) != content:
        raise LayoutError(f"{what} is not spelled as this format spells it")
    return value


def _decode_file(content: bytes, what: str) -> dict[str, Any]:
    if not content.endswith(b"\n"):
        raise LayoutError(f"{what} is incomplete")
    return _decode(content[:-1], what)


def _require_count(value: object, what: str) -> None:
    if type(value) is not int or not 0 <= value <= _INT64_MAX:
        raise LayoutError(f"{what} is not a count: {value!r:.80}")


def _hash_of(value: object, what: str) -> bytes:
    if not isinstance(value, str) or _HEX_HASH.fullmatch(value) is None:
        raise LayoutError(f"{what} is not a hash in hex: {value!r:.80}")
    return bytes.fromhex(value)
