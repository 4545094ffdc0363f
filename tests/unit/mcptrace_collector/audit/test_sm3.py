from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrace_collector.audit import _sm3_py, sm3

VECTORS = {
    b"abc": "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
    b"abcd" * 16: "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732",
    b"": "1ab21d8355cfa17f8e61194831e81a8f22bec8c728fefb747ed035eb5082aa2b",
}
TWINS = pytest.mark.parametrize("digest", [sm3.sm3, _sm3_py.sm3], ids=["chosen", "python"])


@TWINS
@pytest.mark.parametrize("message", VECTORS, ids=["abc", "abcd x16", "empty"])
def test_the_vectors_of_the_standard_come_out(digest, message):
    assert digest(message).hex() == VECTORS[message]


def test_a_million_letters_come_out():
    assert (
        sm3.sm3(b"a" * 1_000_000).hex()
        == "c8aaf89429554029e231941a2acc0ad61ff2a5acd8fadd25847a3a732b3b02c3"
    )


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_the_twins_agree(message):
    assert sm3.sm3(message) == _sm3_py.sm3(message)


@pytest.mark.parametrize("length", [54, 55, 56, 57, 63, 64, 65, 119, 120])
def test_the_twins_agree_where_padding_starts_a_block(length):
    assert sm3.sm3(b"x" * length) == _sm3_py.sm3(b"x" * length)


def test_openssl_is_not_believed_without_the_known_answer():
    assert sm3.openssl_sm3("sha256") is None


def test_an_openssl_without_sm3_is_no_error():
    assert sm3.openssl_sm3("no-such-hash") is None


def test_the_slow_twin_is_announced_once(caplog):
    with caplog.at_level(logging.WARNING):
        assert sm3.choose(None) is _sm3_py.sm3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "1000 times slower" in caplog.text


def test_the_fast_twin_is_taken_when_there_is_one(caplog):
    assert sm3.choose(_sm3_py.sm3) is _sm3_py.sm3
    assert caplog.text == ""
