"""Throw damaged requests at the wire and let official protobuf judge, for as long as you like.

    python tests/fuzz/fuzz_wire.py [--seconds 60] [--seed N]

Originals are the captures of real servers and requests made up here; each is damaged a few
times at random.  For every body:

  * whatever is raised is DecodeError or TooLarge;
  * we refuse what protobuf refuses and read the same where both read (the differences that
    are meant are listed in tests/differential/test_wire_bytes.py);
  * what was read comes back the same when written and read again, in protobuf and in JSON;
  * splitting and joining keep every span's bytes;
  * changing a span changes what was asked for and nothing else.

Ends with 1 and the body in hex when a claim fails.  The seed replays a run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from google.protobuf.message import DecodeError as OfficialError
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from oracle import RequestJudge, exact, groups_of, parse_otlp_json, span_of
from strategies import mutate, varint

from mcptrace_proto import wire
from mcptrace_proto.json import decode_request_json, encode_request_json
from mcptrace_proto.wire import DecodeError, TooLarge

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
BODY_BYTES_MAX = 1 << 14
DAMAGES_MAX = 4
DEPTH_MAX = 9


def made_up(chance: random.Random, depth: int = 0) -> bytes:
    """A message of no particular type: well framed, with the field numbers OTLP uses."""
    if depth > DEPTH_MAX or chance.random() < 0.15:
        return chance.choice([b"", b"a", "\u20ac".encode(), b"\xff", chance.randbytes(16)])
    return b"".join(_field(chance, depth) for _ in range(chance.choice([1, 1, 2, 4])))


def _field(chance: random.Random, depth: int) -> bytes:
    # Groups of a request and keys and values are 1 and 2; most of a span's weight is in 9.
    number = chance.choice([1, 1, 2, 2, 2, 3, 5, 6, 9, 9, chance.randrange(1, 18), 900])
    wire_type = chance.choice([2] * 12 + [0] * 4 + [1, 5, 3, chance.randrange(8)])
    padding = chance.choice([0] * 40 + [1, 3, 4])
    tag = varint(number << 3 | wire_type, padding)
    if wire_type == 0:
        return tag + varint(chance.getrandbits(chance.choice([1, 7, 8, 31, 32, 63, 64])), padding)
    if wire_type == 1:
        return tag + chance.randbytes(8)
    if wire_type == 5:
        return tag + chance.randbytes(4)
    inner = made_up(chance, depth + 1)
    if wire_type == 2:
        return tag + varint(len(inner), padding) + inner
    return tag + inner + varint(number << 3 | 4) if wire_type == 3 else tag


def damaged(body: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randrange(DAMAGES_MAX + 1)):
        body = mutate(body, chance)
    return body


def outcome(read: Callable[[bytes], Any], body: bytes) -> Any:
    """What was read, or the error; anything but the errors of the contract gets through."""
    try:
        return read(body)
    except (DecodeError, TooLarge) as error:
        return error


def official(message: Any, body: bytes) -> Any:
    try:
        return message.FromString(body)
    except OfficialError:
        return None


def check_request(body: bytes) -> str:
    groups = outcome(wire.decode_request, body)
    theirs = official(RequestJudge, body)
    split = outcome(wire.split_request, body)
    if isinstance(groups, TooLarge):
        return "too large"
    if isinstance(groups, DecodeError):
        assert 0 <= groups.position <= len(body)
        assert theirs is None or groups.reason == "field number 0", "protobuf reads it"
        return "refused"
    assert theirs is not None, "protobuf refuses it"
    expected = exact(groups)
    assert expected == exact(groups_of(theirs)), "protobuf reads something else"
    assert exact(wire.decode_request(wire.encode_request(groups))) == expected, "round trip"
    written = encode_request_json(groups)
    assert exact(decode_request_json(written)) == expected, "round trip as JSON"
    assert exact(groups_of(parse_otlp_json(json.loads(written)))) == expected, "JSON as theirs"
    spans = [span for group in split for span in group.spans]
    again = wire.split_request(wire.join_request(split))
    assert [span for group in again for span in group.spans] == spans, "split and join"
    for span in spans:
        check_span(span)
    return "read"


def check_span(body: bytes) -> str:
    span = outcome(wire.decode_span, body)
    theirs = official(Span, body)
    if isinstance(span, TooLarge):
        return "too large"
    if isinstance(span, DecodeError):
        assert theirs is None or span.reason == "field number 0", "protobuf reads it"
        return "refused"
    assert theirs is not None, "protobuf refuses it"
    assert exact(span) == exact(span_of(theirs)), "protobuf reads something else"
    names = set(list(span.attributes)[:2])
    kept = [pair for pair in theirs.attributes if pair.key not in names]
    theirs.trace_state = "ot=th:8"
    del theirs.attributes[:]
    theirs.attributes.extend(kept)
    theirs.attributes.add(key="fuzz").value.int_value = -1
    ours = wire.set_trace_state(wire.remove_attributes(body, names), "ot=th:8")
    ours = wire.append_attributes(ours, {"fuzz": -1})
    assert Span.FromString(ours) == theirs, "a changed span is something else"
    return "read"


def check_answer(body: bytes) -> str:
    """Answers and JSON: here only the errors of the contract are checked."""
    outcomes = [
        outcome(read, body)
        for read in (wire.decode_response, wire.decode_status, decode_request_json)
    ]
    return "refused" if any(isinstance(found, DecodeError) for found in outcomes) else "read"


def fuzz(seconds: float, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    captures = [path.read_bytes() for path in sorted(CAPTURES.rglob("*.pb"))]
    originals = [body for body in captures if len(body) < BODY_BYTES_MAX]
    documents = [
        encode_request_json(wire.decode_request(body)) for body in originals if len(body) < 2048
    ]
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for kind, check, body in (
            ("capture", check_request, damaged(chance.choice(originals), chance)),
            ("made up", check_request, damaged(made_up(chance), chance)),
            ("span", check_span, damaged(made_up(chance, 3), chance)),
            ("answer", check_answer, damaged(made_up(chance, 5), chance)),
            ("json", check_answer, damaged(chance.choice(documents), chance)),
        ):
            try:
                counts[f"{kind}, {check(body)}"] += 1
            except Exception:
                print(f"seed {seed}, {kind}: {body.hex()}", file=sys.stderr)
                raise
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    counts = fuzz(options.seconds, seed)
    print(f"seed {seed}: {counts.total()} bodies")
    for name, count in sorted(counts.items()):
        print(f"{count:9} {name}")


if __name__ == "__main__":
    main()
