"""OTLP traces on the protobuf wire: the one door to the codec.

Messages are bodies without an outer tag.  Bytes that come from outside raise DecodeError
or TooLarge and nothing else, whatever they are.  The code is in the _wire_* files: tags,
varint (the wire), decode, encode, slices (spans as bytes), rpc (answers).
"""

from __future__ import annotations

from mcptrace_proto._wire_decode import (
    decode_request,
    decode_resource,
    decode_scope,
    decode_span,
)
from mcptrace_proto._wire_encode import (
    append_attributes,
    encode_request,
    encode_resource,
    encode_scope,
    encode_span,
)
from mcptrace_proto._wire_rpc import (
    decode_response,
    decode_status,
    encode_response,
    encode_status,
)
from mcptrace_proto._wire_slices import (
    join_request,
    remove_attributes,
    set_trace_state,
    split_request,
)
from mcptrace_proto.errors import DecodeError, TooLarge, WireError
from mcptrace_proto.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "DEFAULT_LIMITS",
    "DecodeError",
    "Limits",
    "TooLarge",
    "WireError",
    "append_attributes",
    "decode_request",
    "decode_resource",
    "decode_response",
    "decode_scope",
    "decode_span",
    "decode_status",
    "encode_request",
    "encode_resource",
    "encode_response",
    "encode_scope",
    "encode_span",
    "encode_status",
    "join_request",
    "remove_attributes",
    "set_trace_state",
    "split_request",
]
