"""How much one message may ask for before it is refused.

Sizes in bytes are not here: who reads a body caps it before and after decompression.  These
limits bound what a small body can blow up to: an empty span is two bytes on the wire and
half a kilobyte as a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcptrace_proto.errors import TooLarge

# Every reader and writer here recurses once per level; official protobuf stops at 100 too.
DEPTH_CEILING = 100


@dataclass(slots=True, frozen=True)
class Limits:
    """Counts; passing one raises TooLarge.

    ``max_depth`` is how deep attribute values may nest: a plain value is at depth 1, a value
    in an array at depth 2.  At most DEPTH_CEILING.  The other limits are for one request
    (spans, and ResourceSpans and ScopeSpans together), one attribute set, one array and
    one span.
    """

    max_depth: int = 32
    max_spans: int = 1 << 17
    max_groups: int = 1 << 16
    max_attributes: int = 1 << 14
    max_array_values: int = 1 << 18
    max_events: int = 1 << 14
    max_links: int = 1 << 14

    def __post_init__(self) -> None:
        if not 1 <= self.max_depth <= DEPTH_CEILING:
            raise ValueError(f"max_depth is {self.max_depth}; it must be 1 to {DEPTH_CEILING}")


DEFAULT_LIMITS = Limits()


class Counter:
    """Spans and groups of one request so far, against its limits."""

    __slots__ = ("groups", "limits", "spans")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.groups = 0
        self.spans = 0

    def group(self) -> None:
        self.groups += 1
        if self.groups > self.limits.max_groups:
            raise TooLarge(
                "number of resource and scope groups", self.groups, self.limits.max_groups
            )

    def span(self) -> None:
        self.spans += 1
        if self.spans > self.limits.max_spans:
            raise TooLarge("number of spans", self.spans, self.limits.max_spans)
