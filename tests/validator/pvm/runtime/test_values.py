"""Values have one encoding each; whatever else somebody writes is refused, and paid for before it is looked into."""

# ruff: noqa: E501  # tables, one case a line
from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validator.pvm.running import nothing
from validator.primitives.errors import HandlerFailure, OutOfCycles
from validator.primitives.limits import DICT_KEY_LIMIT, INTEGER_LIMIT, MAX_VALUE_BYTES, MAX_VALUE_DEPTH
from validator.pvm.compiler.weights import VALUE_NODE
from validator.pvm.runtime.operations import hidden_key, shown_key
from validator.pvm.runtime.tasks import Task
from validator.pvm.runtime.values import pack, unpack

integers = st.one_of(
    st.integers(-INTEGER_LIMIT + 1, INTEGER_LIMIT - 1),
    st.sampled_from([bits + shift for exponent in (0, 5, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255) for shift in (-1, 0, 1)
                     for bits in (2**exponent, -(2**exponent))]),
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
scalars = st.one_of(st.none(), st.booleans(), integers, texts, st.binary(max_size=300))
keys = st.one_of(st.booleans(), st.integers(-DICT_KEY_LIMIT + 1, DICT_KEY_LIMIT - 1), texts, st.binary(max_size=40))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner), st.lists(inner, min_size=14, max_size=18), st.dictionaries(keys, inner)),
    max_leaves=30,
)


def held(value: Any) -> Any:
    """A value as programs hold it."""
    if isinstance(value, list):
        return [held(part) for part in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str | bytes) else hidden_key(key): held(part) for key, part in value.items()}
    return value


def shown(value: Any) -> Any:
    if isinstance(value, list):
        return [shown(part) for part in value]
    return {shown_key(key): shown(part) for key, part in value.items()} if isinstance(value, dict) else value


def kind_of(value: Any) -> Any:
    """A value with the classes of all its parts, so that 1 is not True."""
    if isinstance(value, list):
        return [kind_of(part) for part in value]
    if isinstance(value, dict):
        return {(type(key).__name__, key): kind_of(part) for key, part in value.items()}
    return (type(value).__name__, value)


def failure(encoded: bytes) -> str:
    with pytest.raises(HandlerFailure) as failed:
        unpack(encoded, nothing)
    return failed.value.name


@given(values)
def test_what_is_packed_comes_back(value: Any) -> None:
    encoded = pack(held(value), nothing)
    again = unpack(encoded, nothing)
    assert kind_of(shown(again)) == kind_of(value)
    assert pack(again, nothing) == encoded


@given(values)
def test_packing_and_unpacking_cost_by_what_there_is(value: Any) -> None:
    packing: list[int] = []
    unpacking: list[int] = []
    unpack(pack(held(value), packing.append), unpacking.append)

    def nodes(part: Any) -> int:
        if isinstance(part, list):
            return 1 + sum(map(nodes, part))
        return 1 + sum(1 + nodes(each) for each in part.values()) if isinstance(part, dict) else 1

    assert sum(cycles == VALUE_NODE or cycles > VALUE_NODE for cycles in packing) >= nodes(value)
    assert sum(packing) >= VALUE_NODE * nodes(value) <= sum(unpacking)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_the_one_encoding_of_a_value(encoded: bytes) -> None:
    try:
        value = unpack(encoded, nothing)
    except HandlerFailure as failed:
        name = failed.name
    else:
        name = "BadPayload"
        assert pack(value, nothing) == encoded or not encoded
    assert name == "BadPayload"


@given(values, st.data())
def test_an_encoding_with_a_byte_changed_is_another_values_or_none(value: Any, data: Any) -> None:
    encoded = bytearray(pack(held(value), nothing))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = unpack(bytes(encoded), nothing)
    except HandlerFailure as failed:
        name = failed.name
    else:
        name = "BadPayload"
        assert pack(found, nothing) == bytes(encoded)
    assert name in ("BadPayload", "ValueTooLarge")


@pytest.mark.slow
@given(values.filter(lambda value: "Ext" not in repr(value)))
def test_msgspec_reads_the_same(value: Any) -> None:
    """It is MessagePack: integers that this has no form for apart."""
    encoded = pack(held(value), nothing)

    def plain(part: Any) -> Any:
        if isinstance(part, msgspec.msgpack.Ext):
            magnitude = int.from_bytes(bytes(part.data)[1:], "big")
            return -magnitude if bytes(part.data)[0] else magnitude
        if isinstance(part, list):
            return [plain(each) for each in part]
        return {key: plain(each) for key, each in part.items()} if isinstance(part, dict) else part

    assert plain(msgspec.msgpack.decode(encoded)) == value


def extension(code: int, data: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data))


LARGE = (2**200).to_bytes(26, "big")
NOT_CANONICAL: dict[str, bytes] = {
    "small number in a byte": b"\xcc\x05",
    "small number in two": b"\xcd\x00\xff",
    "small number in four": b"\xce\x00\x00\xff\xff",
    "small number in eight": b"\xcf" + struct.pack(">Q", 2**32 - 1),
    "signed small number": b"\xd0\x05",
    "signed -32": b"\xd0\xe0",
    "signed -128 in two": b"\xd1\xff\x80",
    "signed number in four": b"\xd2\xff\xff\x80\x00",
    "signed number in eight": b"\xd3" + struct.pack(">q", -(2**31)),
    "positive number with a sign": b"\xd3" + struct.pack(">q", 2**40),
    "short text in a byte": b"\xd9\x01a",
    "short text in two": b"\xda\x00\x01a",
    "short text in four": b"\xdb\x00\x00\x00\x01a",
    "short bytes in two": b"\xc5\x00\x01a",
    "short bytes in four": b"\xc6\x00\x00\x00\x01a",
    "short list in two": b"\xdc\x00\x01\x01",
    "short list in four": b"\xdd\x00\x00\x00\x01\x01",
    "short dict in two": b"\xde\x00\x01\x01\x01",
    "short dict in four": b"\xdf\x00\x00\x00\x01\x01\x01",
    "keys out of order": b"\x82\xa1b\x01\xa1a\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x02",
    "True and 1": b"\x82\x01\x01\xc3\x01",
    "False and 0": b"\x82\x00\x01\xc2\x01",
    "a list as a key": b"\x81\x90\x01",
    "None as a key": b"\x81\xc0\x01",
    "a large key": b"\x81\xcf" + struct.pack(">Q", 2**60) + b"\x01",
    "a larger key": b"\x81" + extension(1, b"\x00" + LARGE) + b"\x01",
    "float": b"\xca\x00\x00\x00\x00",
    "double": b"\xcb" + struct.pack(">d", 1.5),
    "never used": b"\xc1",
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "another extension": extension(2, b"\x00" + LARGE),
    "an empty extension": b"\xc7\x00\x01",
    "a tiny extension": b"\xd4\x01\x00",
    "a sign alone": b"\xd5\x01\x00\x05",
    "an extension that has a shorter form": extension(1, b"\x00" + (2**64 - 1).to_bytes(8, "big")),
    "a negative one that has a shorter form": extension(1, b"\x01" + (2**63).to_bytes(8, "big")),
    "an odd sign": extension(1, b"\x02" + LARGE),
    "leading zeros": extension(1, b"\x00\x00" + LARGE),
    "257 bits": extension(1, b"\x00\x01" + bytes(32)),
    "16 bytes in a longer form": b"\xc7\x10\x01\x00" + b"\x01" + bytes(14),
    "a long extension": b"\xc8\x00\x1b\x01\x00" + LARGE,
    "a longer extension": b"\xc9\x00\x00\x00\x1b\x01\x00" + LARGE,
    "no UTF-8": b"\xa1\xff",
    "a lone surrogate": b"\xa3\xed\xa0\x80",
    "a long form of a character": b"\xa2\xc0\x80",
    "nothing behind a length": b"\xd9",
    "a length without a text": b"\xd9\x20",
    "a list of billions": b"\xdd\xff\xff\xff\xff",
    "a dict of billions": b"\xdf\xff\xff\xff\xff",
    "a text of billions": b"\xdb\xff\xff\xff\xff",
    "half a list": b"\x92\x01",
    "half a dict": b"\x81\x01",
    "two values": b"\x01\x01",
    "too deep": b"\x91" * (MAX_VALUE_DEPTH + 1) + b"\x01",
    "far too deep": b"\x91" * 100_000,
    "dicts too deep": b"\x81\x01" * (MAX_VALUE_DEPTH + 1) + b"\x01",
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_every_other_form_is_refused(name: str) -> None:
    assert failure(NOT_CANONICAL[name]) == "BadPayload"


def test_a_huge_length_is_not_paid_for_by_the_host() -> None:
    paid: list[int] = []
    with pytest.raises(HandlerFailure):
        unpack(b"\xdd\xff\xff\xff\xff" + b"\x01" * 10, paid.append)
    assert sum(paid) < 20 * VALUE_NODE


def test_bytes_that_are_not_there_are_not_paid_for() -> None:
    paid: list[int] = []
    with pytest.raises(HandlerFailure, match="BadPayload"):
        unpack(b"\xdb\xff\xff\xff\xff" + b"a" * 100, paid.append)
    assert not paid


def test_who_cannot_pay_sees_nothing() -> None:
    left = [10 * VALUE_NODE]

    def charge(cycles: int) -> None:
        left[0] -= cycles
        if left[0] < 0:
            raise OutOfCycles

    with pytest.raises(OutOfCycles):
        unpack(pack([1] * 100, nothing), charge)


def test_nothing_and_none_are_none() -> None:
    assert unpack(b"", nothing) is None is unpack(b"\xc0", nothing)


@pytest.mark.parametrize("value", [Task, object(), 1.5, {1, 2}, range(3)])
def test_what_is_no_value_does_not_cross(value: Any) -> None:
    for each in (value, [value], {"a": value}):
        with pytest.raises(HandlerFailure, match="ValueInvalid"):
            pack(each, nothing)


def test_depth_and_size_are_bounded() -> None:
    deep: Any = 1
    for _ in range(MAX_VALUE_DEPTH):
        deep = [deep]
    assert unpack(pack(deep, nothing), nothing) == deep
    with pytest.raises(HandlerFailure, match="ValueInvalid"):
        pack([deep], nothing)
    pack(bytes(MAX_VALUE_BYTES - 1), nothing)
    for large in (bytes(MAX_VALUE_BYTES), ["a" * 1_000] * 1_100, [None] * MAX_VALUE_BYTES):
        with pytest.raises(HandlerFailure, match="ValueTooLarge"):
            pack(large, nothing)


def test_tuples_become_lists_and_dicts_are_in_the_order_of_their_keys() -> None:
    given = {hidden_key(5): (1, 2), "b": 1, "a": 2, b"z": 3, hidden_key(True): 4, hidden_key(-1): 5}
    again = unpack(pack(given, nothing), nothing)
    assert [shown_key(key) for key in again] == [5, "a", "b", True, b"z", -1]
    assert again[hidden_key(5)] == [1, 2]
