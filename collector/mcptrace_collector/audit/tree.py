"""The Merkle tree over the log's records, as RFC 6962 and RFC 9162 section 2.1 define it.

    leaf  = H(0x00 || record)          the two prefixes keep a node from posing
    node  = H(0x01 || left || right)   as a record
    empty = H("")

    size 7 = 4 + 2 + 1:        root
                             ┌───┴────┐
                             ●        │
                         ┌───┴───┐  ┌─┴──┐
                        [A]         [B] [C]      A, B, C: the nodes a CompactRange keeps,
                      0 1 2 3       4 5  6       one perfect subtree for each 1 in binary 7

Pure: no files, no clock, and no opinion about H, which is always an argument.

Always true: a range of ``size`` leaves keeps exactly as many nodes as ``size`` has ones in
binary, largest subtree first; so a log of 2**63 records needs at most 63 hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

HashFunction: TypeAlias = Callable[[bytes], bytes]


def leaf_hash(record: bytes, hash_function: HashFunction) -> bytes:
    """Hash of one record's stored bytes."""
    return hash_function(b"\x00" + record)


def node_hash(left: bytes, right: bytes, hash_function: HashFunction) -> bytes:
    """Hash of an inner node with two children; a node with one child does not exist."""
    return hash_function(b"\x01" + left + right)


class CompactRange:
    """The tree of the first ``size`` leaves, kept as the roots of its perfect subtrees."""

    __slots__ = ("_hash", "_nodes", "_size")

    def __init__(
        self, hash_function: HashFunction, size: int = 0, nodes: Sequence[bytes] = ()
    ) -> None:
        if size < 0 or len(nodes) != size.bit_count():
            raise ValueError(f"a range of {size} leaves does not have {len(nodes)} nodes")
        self._hash = hash_function
        self._size = size
        self._nodes = list(nodes)

    @property
    def size(self) -> int:
        return self._size

    @property
    def nodes(self) -> tuple[bytes, ...]:
        """Roots of the perfect subtrees, largest first: all there is to store."""
        return tuple(self._nodes)

    def append(self, leaf: bytes) -> None:
        """Add the hash of the next leaf: two hashes on average, log2(size) at worst."""
        node = leaf
        carry = self._size
        while carry & 1:
            node = node_hash(self._nodes.pop(), node, self._hash)
            carry >>= 1
        self._nodes.append(node)
        self._size += 1

    def root(self) -> bytes:
        """Root hash of the leaves so far; the hash of nothing while there are none."""
        if not self._nodes:
            return self._hash(b"")
        root = self._nodes[-1]
        for node in reversed(self._nodes[:-1]):
            root = node_hash(node, root, self._hash)
        return root

    def copy(self) -> CompactRange:
        """An independent range in the same state."""
        return CompactRange(self._hash, self._size, self._nodes)
