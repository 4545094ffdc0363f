"""OTLP traces as JSON: the one door to that codec.

Bytes that come from outside raise DecodeError or TooLarge and nothing else.  Source:
opentelemetry-proto docs/specification.md, JSON Protobuf Encoding.
"""

from __future__ import annotations

from mcptrace_proto._json_decode import decode_request_json, decode_response_json
from mcptrace_proto._json_encode import (
    encode_request_json,
    encode_response_json,
    encode_status_json,
)

__all__ = [
    "decode_request_json",
    "decode_response_json",
    "encode_request_json",
    "encode_response_json",
    "encode_status_json",
]
