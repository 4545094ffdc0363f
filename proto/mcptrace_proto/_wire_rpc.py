"""What a receiver answers: ExportTraceServiceResponse and google.rpc.Status.

The only detail of a Status that is read or written is RetryInfo, which OTLP uses to tell a
client when to come back; other details are stepped over.
"""

from __future__ import annotations

from mcptrace_proto import _wire_tags as tags
from mcptrace_proto._wire_encode import delimited, integer, utf8
from mcptrace_proto._wire_varint import (
    read_delimited,
    read_int32,
    read_int64,
    read_tag,
    read_text,
    skip,
)

RETRY_INFO_TYPE = "google.rpc.RetryInfo"
RETRY_INFO_URL = f"type.googleapis.com/{RETRY_INFO_TYPE}"
DURATION_SECONDS_MAX = 315_576_000_000  # google/protobuf/duration.proto: about 10,000 years
NANOS_PER_SECOND = 1_000_000_000


def encode_response(rejected_spans: int = 0, error_message: str = "") -> bytes:
    """Encode an ExportTraceServiceResponse; full success is the empty message."""
    parts: list[bytes] = []
    if rejected_spans:
        parts += integer(tags.PARTIAL_REJECTED_SPANS, rejected_spans)
    if error_message:
        parts += delimited(tags.PARTIAL_ERROR_MESSAGE, utf8(error_message))
    return b"".join(delimited(tags.RESPONSE_PARTIAL_SUCCESS, b"".join(parts))) if parts else b""


def decode_response(response: bytes) -> tuple[int, str]:
    """Decode an ExportTraceServiceResponse to (rejected spans, error message)."""
    rejected, message = 0, ""
    pos, end = 0, len(response)
    while pos < end:
        tag, pos = read_tag(response, pos, end)
        if tag != tags.RESPONSE_PARTIAL_SUCCESS:
            pos = skip(response, tag, pos, end)
            continue
        pos, stop = read_delimited(response, pos, end)
        while pos < stop:
            tag, pos = read_tag(response, pos, stop)
            if tag == tags.PARTIAL_REJECTED_SPANS:
                rejected, pos = read_int64(response, pos, stop)
            elif tag == tags.PARTIAL_ERROR_MESSAGE:
                message, pos = read_text(response, pos, stop)
            else:
                pos = skip(response, tag, pos, stop)
    return rejected, message


def encode_status(code: int, message: str, retry_after_seconds: float | None = None) -> bytes:
    """Encode a google.rpc.Status, with RetryInfo when ``retry_after_seconds`` is given."""
    parts: list[bytes] = []
    if code:
        parts += integer(tags.RPC_STATUS_CODE, code)
    if message:
        parts += delimited(tags.RPC_STATUS_MESSAGE, utf8(message))
    if retry_after_seconds is not None:
        parts += delimited(tags.RPC_STATUS_DETAILS, _packed_retry_info(retry_after_seconds))
    return b"".join(parts)


def split_duration(seconds: float) -> tuple[int, int]:
    """A delay as Duration's (seconds, nanos); below zero and NaN are no delay."""
    if not seconds > 0:
        return 0, 0
    nanos = round(min(seconds, float(DURATION_SECONDS_MAX)) * NANOS_PER_SECOND)
    return divmod(nanos, NANOS_PER_SECOND)


def _packed_retry_info(seconds: float) -> bytes:
    whole, nanos = split_duration(seconds)
    duration: list[bytes] = []
    if whole:
        duration += integer(tags.DURATION_SECONDS, whole)
    if nanos:
        duration += integer(tags.DURATION_NANOS, nanos)
    retry_info = b"".join(delimited(tags.RETRY_INFO_DELAY, b"".join(duration)))
    return b"".join(
        (
            *delimited(tags.PACKED_TYPE_URL, utf8(RETRY_INFO_URL)),
            *delimited(tags.PACKED_VALUE, retry_info),
        )
    )


def decode_status(status: bytes) -> tuple[int, str, float | None]:
    """Decode a google.rpc.Status to (code, message, retry delay in seconds or None).

    A RetryInfo without a delay is a delay of 0.0; so is a negative one.
    """
    code, message = 0, ""
    retry_after_seconds: float | None = None
    pos, end = 0, len(status)
    while pos < end:
        tag, pos = read_tag(status, pos, end)
        if tag == tags.RPC_STATUS_CODE:
            code, pos = read_int32(status, pos, end)
        elif tag == tags.RPC_STATUS_MESSAGE:
            message, pos = read_text(status, pos, end)
        elif tag == tags.RPC_STATUS_DETAILS:
            start, pos = read_delimited(status, pos, end)
            delay = _read_detail(status, start, pos)
            retry_after_seconds = delay if delay is not None else retry_after_seconds
        else:
            pos = skip(status, tag, pos, end)
    return code, message, retry_after_seconds


def _read_detail(buf: bytes, pos: int, end: int) -> float | None:
    """Read one Any; returns its delay when it is a RetryInfo."""
    type_url = ""
    start = stop = pos
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag == tags.PACKED_TYPE_URL:
            type_url, pos = read_text(buf, pos, end)
        elif tag == tags.PACKED_VALUE:
            start, stop = read_delimited(buf, pos, end)
            pos = stop
        else:
            pos = skip(buf, tag, pos, end)
    if type_url.rpartition("/")[2] != RETRY_INFO_TYPE:
        return None
    return _read_retry_info(buf, start, stop)


def _read_retry_info(buf: bytes, pos: int, end: int) -> float:
    seconds = nanos = 0
    while pos < end:
        tag, pos = read_tag(buf, pos, end)
        if tag != tags.RETRY_INFO_DELAY:
            pos = skip(buf, tag, pos, end)
            continue
        pos, stop = read_delimited(buf, pos, end)
        while pos < stop:
            tag, pos = read_tag(buf, pos, stop)
            if tag == tags.DURATION_SECONDS:
                seconds, pos = read_int64(buf, pos, stop)
            elif tag == tags.DURATION_NANOS:
                nanos, pos = read_int32(buf, pos, stop)
            else:
                pos = skip(buf, tag, pos, stop)
    return max(0.0, seconds + nanos / NANOS_PER_SECOND)
