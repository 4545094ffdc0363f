from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.audit.sm3 import sm3
from mcptrace_collector.audit.tree import CompactRange, leaf_hash, node_hash

LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
SM3_ROOTS = [
    "1ab21d8355cfa17f8e61194831e81a8f22bec8c728fefb747ed035eb5082aa2b",
    "2daef60e7a0b8f5e024c81cd2ab3109f2b4f155cf83adeb2ae5532f74a157fdf",
    "0b990fe0c7ad70f1bf1a1262f2c7908ea48146b14253a6db99f2917ab1f5cc4d",
    "209ec96a210d662a964772680e8544d18cab7b88ffec3e00962220349b56ea56",
    "28e4e307ef6d2d0c62d84b11ef96e835efe490f35b93c8f024ecfe38c8dd4377",
    "bb10c996aeebbcdc69be3715fc847344de77442d37a5ab8213da9f41785b103b",
    "8723c1ab1f82ddfba4a3733ac0c80d936d9f4c208c7dbc8cc81ca9fff8584f66",
    "bd36c22a1ac6ff4308e0c3cc1a85bf0ffa30538ec60a55c70413ab15d45db4d2",
    "bc48ba7a709184b5f2a631e1adeb8dc2a0d4c018c1d6cc89b5664fe154c93b38",
]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def reference_root(leaves: list[bytes], hash_function) -> bytes:
    """RFC 9162 section 2.1.1, word for word: split at the largest power of two below n."""
    if not leaves:
        return hash_function(b"")
    if len(leaves) == 1:
        return leaf_hash(leaves[0], hash_function)
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(
        reference_root(leaves[:split], hash_function),
        reference_root(leaves[split:], hash_function),
        hash_function,
    )


def range_of(leaves: list[bytes], hash_function) -> CompactRange:
    tree = CompactRange(hash_function)
    for leaf in leaves:
        tree.append(leaf_hash(leaf, hash_function))
    return tree


@pytest.mark.parametrize("size", range(9))
def test_sm3_roots_of_the_usual_leaves(size):
    assert range_of(LEAVES[:size], sm3).root().hex() == SM3_ROOTS[size]
    assert reference_root(LEAVES[:size], sm3).hex() == SM3_ROOTS[size]


def test_the_same_code_makes_the_known_sha256_root():
    assert (
        range_of(LEAVES, sha256).root().hex()
        == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 300))
def test_a_compact_range_has_the_root_of_the_definition(size):
    leaves = [n.to_bytes(2, "big") for n in range(size)]
    tree = range_of(leaves, sm3)
    assert tree.root() == reference_root(leaves, sm3)
    assert len(tree.nodes) == size.bit_count()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100), st.integers(0, 100))
def test_a_stored_range_goes_on_where_it_was(before, more):
    leaves = [n.to_bytes(2, "big") for n in range(before + more)]
    half = range_of(leaves[:before], sm3)
    resumed = CompactRange(sm3, half.size, half.nodes)
    for leaf in leaves[before:]:
        resumed.append(leaf_hash(leaf, sm3))
    assert resumed.root() == range_of(leaves, sm3).root()
    assert half.size == before


def test_a_copy_is_independent():
    tree = range_of(LEAVES[:3], sm3)
    copy = tree.copy()
    copy.append(leaf_hash(LEAVES[3], sm3))
    assert (tree.root().hex(), copy.root().hex()) == (SM3_ROOTS[3], SM3_ROOTS[4])


def test_nodes_that_do_not_fit_the_size_are_refused():
    with pytest.raises(ValueError, match="does not have 1 nodes"):
        CompactRange(sm3, 3, [bytes(32)])


def test_a_record_cannot_pose_as_a_node():
    left, right = (leaf_hash(leaf, sm3) for leaf in LEAVES[:2])
    assert leaf_hash(left + right, sm3) != node_hash(left, right, sm3)
