"""Signed transactions: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from Crypto.Hash import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey, VerifyKey

from tests.validator.chains import ALICE, CHAIN_ID, KEYS
from validator.chain import transactions
from validator.chain.transactions import (
    MAX_TRANSACTION_BYTES,
    SIGNING_DOMAIN,
    Call,
    CancelTimer,
    Deploy,
    ExtendTimer,
    System,
    Transaction,
    TransactionError,
    Transfer,
    UpdateTimerConfig,
    address_of,
    deployed_address,
    parse,
    sign,
    transaction_hash,
)
from validator.primitives.cache import SizedCache
from validator.primitives.types import Address

KEY = KEYS[0]
TO = bytes(range(20))
ID = bytes(range(32))

PRICES = st.integers(0, 2**96 - 1)
AMOUNTS = st.integers(0, 2**128 - 1)
U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(min_size=1, max_size=64).filter(lambda text: text.isprintable())
ACTIONS = st.one_of(
    st.builds(Transfer, st.binary(min_size=20, max_size=20)),
    st.just(Deploy("builtin:script")),
    st.builds(Call, st.binary(min_size=20, max_size=20), NAMES, st.binary(max_size=80)),
    st.builds(
        System,
        st.one_of(
            st.builds(CancelTimer, st.binary(min_size=32, max_size=32)),
            st.builds(UpdateTimerConfig, st.text(max_size=80)),
            st.builds(ExtendTimer, st.binary(min_size=32, max_size=32), U64),
        ),
    ),
)
TRANSACTIONS = st.builds(
    Transaction, st.just(ALICE), U64, U64, U64, PRICES, PRICES, PRICES, ACTIONS, AMOUNTS, AMOUNTS
)  # fmt: skip

SAMPLE = Transaction(ALICE, 7, 50_000, 100, 2**95, 3, 5, Call(TO, "run", b"[]"), 9, 11)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TRANSACTIONS)
def test_what_is_signed_comes_back(transaction: Transaction) -> None:
    assert parse(sign(KEY, CHAIN_ID, transaction), CHAIN_ID) == transaction


def test_the_sender_is_the_keys_account() -> None:
    public = bytes(KEY.verify_key)
    assert ALICE == address_of(public) == keccak.new(digest_bits=256, data=public).digest()[-20:]
    stolen = replace(SAMPLE, sender=Address(TO))
    assert parse(sign(KEY, CHAIN_ID, stolen), CHAIN_ID).sender == ALICE, "a sender cannot be claimed"


def test_a_deployed_address_follows_from_sender_and_nonce() -> None:
    expected = keccak.new(digest_bits=256, data=ALICE + (258).to_bytes(8, "big")).digest()[-20:]
    assert deployed_address(ALICE, 258) == expected
    assert deployed_address(ALICE, 259) != expected


@pytest.mark.parametrize(
    "action", [Transfer(TO), Deploy("builtin:script"), Call(TO, "h", b"x"), System(ExtendTimer(ID, 9))]
)
def test_every_flipped_bit_is_refused(action: Any) -> None:
    wire = sign(KEY, CHAIN_ID, replace(SAMPLE, action=action))
    for place in range(len(wire)):
        for bit in range(0, 8, 3):
            flipped = bytearray(wire)
            flipped[place] ^= 1 << bit
            with pytest.raises(TransactionError):
                parse(bytes(flipped), CHAIN_ID)
    for cut in (wire[:-1], wire + b"\0", b"", wire[:40]):
        with pytest.raises(TransactionError):
            parse(cut, CHAIN_ID)


FIELDS = (
    *("chain_id", "nonce", "gas_limit", "cells_limit"),
    *("max_fee", "priority", "max_fee_per_cell", "value", "allowance", "action"),
)


def resigned(body: bytes, key: SigningKey = KEY) -> bytes:
    """A wire form with a good signature over any body."""
    signature = key.sign(SIGNING_DOMAIN + body).signature
    return bytes(msgpack.packb([bytes(key.verify_key), signature, body]))


def body_with(**changes: Any) -> bytes:
    """The sample's body with fields replaced in the plain MessagePack."""
    _, _, body = msgpack.unpackb(sign(KEY, CHAIN_ID, SAMPLE))
    plain = dict(zip(FIELDS, msgpack.unpackb(body), strict=True))
    assert set(changes) <= set(plain)
    return bytes(msgpack.packb(list({**plain, **changes}.values())))


WELL_SIGNED_BUT_WRONG = [
    ("nonce: -1 is out of range", {"nonce": -1}),
    ("malformed", {"nonce": "7"}),
    ("malformed", {"nonce": True}),
    ("malformed", {"gas_limit": 1.0}),
    ("malformed", {"max_fee": 5}),
    ("malformed", {"max_fee": b"\0\1"}),
    ("malformed", {"max_fee": b"\1" + bytes(12)}),
    ("malformed", {"priority": b"\1" + bytes(12)}),
    ("malformed", {"max_fee_per_cell": b"\1" + bytes(12)}),
    ("malformed", {"value": b"\1" + bytes(16)}),
    ("malformed", {"allowance": b"\1" + bytes(16)}),
    ("malformed", {"action": ["burn", TO]}),
    ("malformed", {"action": ["transfer"]}),
    ("malformed", {"action": ["transfer", TO, TO]}),
    ("malformed", {"action": ["call", TO, b"h", b""]}),
    ("malformed", {"action": None}),
    ("to: 19 bytes", {"action": ["transfer", TO[1:]]}),
    ("to: 21 bytes", {"action": ["call", TO + b"\1", "h", b""]}),
    ("handler", {"action": ["call", TO, "", b""]}),
    ("handler", {"action": ["call", TO, "é" * 129, b""]}),
    ("code", {"action": ["deploy", "builtin:nothing"]}),
    ("malformed", {"action": ["system", [47, ID]]}),
    ("malformed", {"action": ["system", [48]]}),
    ("malformed", {"action": ["system", [48, ID, 9]]}),
    ("malformed", {"action": ["system", [49, b"{}"]]}),
    ("malformed", {"action": ["system", [50, ID, "9"]]}),
    ("timer_id: 31 bytes", {"action": ["system", [48, ID[1:]]]}),
    ("timer_id: 33 bytes", {"action": ["system", [50, ID + b"x", 9]]}),
    ("new_expires_at: -1 is out of range", {"action": ["system", [50, ID, -1]]}),
    ("chain", {"chain_id": "other"}),
]


@pytest.mark.parametrize(("reason", "changes"), WELL_SIGNED_BUT_WRONG)
def test_a_good_signature_does_not_help(reason: str, changes: dict[str, Any]) -> None:
    for is_signed in (True, False):
        with pytest.raises(TransactionError, match=reason):
            parse(resigned(body_with(**changes)), CHAIN_ID, is_signed)


def test_the_helper_signs_what_is_accepted() -> None:
    assert parse(resigned(body_with(nonce=8)), CHAIN_ID) == replace(SAMPLE, nonce=8)
    action = parse(resigned(body_with(action=["call", TO, "é" * 128, b""])), CHAIN_ID).action
    assert isinstance(action, Call) and action.handler == "é" * 128


def test_a_body_that_is_not_canonical_is_refused_though_signed() -> None:
    body = body_with()
    plain = msgpack.unpackb(body)
    longer = body.replace(msgpack.packb(plain[1]), b"\xcc\x07", 1)
    assert msgpack.unpackb(longer) == plain
    with pytest.raises(TransactionError, match="canonical"):
        parse(resigned(longer), CHAIN_ID)


def test_a_signature_by_another_key_or_over_another_domain_is_refused() -> None:
    key, signature, body = msgpack.unpackb(sign(KEY, CHAIN_ID, SAMPLE))
    _, foreign, _ = msgpack.unpackb(sign(KEYS[1], CHAIN_ID, SAMPLE))
    bare = KEY.sign(body).signature
    for bad in (foreign, bare, bytes(64), signature[:-1], signature + b"\0", b""):
        with pytest.raises(TransactionError, match="bad signature"):
            parse(msgpack.packb([key, bad, body]), CHAIN_ID)
    for bad_key in (bytes(32), key[:-1], key + b"\0", b"", b"\1" + bytes(31)):
        with pytest.raises(TransactionError, match="bad signature"):
            parse(msgpack.packb([bad_key, signature, body]), CHAIN_ID)


def test_a_good_signature_is_remembered_for_the_very_same_bytes_alone() -> None:
    wire = sign(KEY, CHAIN_ID, SAMPLE)
    assert parse(wire, CHAIN_ID) == parse(wire, CHAIN_ID) == SAMPLE
    _, signature, body = msgpack.unpackb(wire)
    for other in ([bytes(KEYS[1].verify_key), signature, body], [bytes(KEY.verify_key), bytes(64), body]):
        for _ in range(2):
            with pytest.raises(TransactionError, match="bad signature"):
                parse(msgpack.packb(other), CHAIN_ID)


def test_a_transaction_that_is_not_signed_is_checked_but_for_its_signature() -> None:
    key, _, body = msgpack.unpackb(sign(KEY, CHAIN_ID, SAMPLE))
    unsigned = msgpack.packb([key, bytes(64), body])
    assert parse(unsigned, CHAIN_ID, is_signed=False) == SAMPLE
    with pytest.raises(TransactionError, match="bad signature"):
        parse(unsigned, CHAIN_ID)  # it is not remembered as well signed


def test_no_more_signatures_are_remembered_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert transactions._well_signed.most == transactions.REMEMBERED_SIGNATURES
    wires = [sign(KEY, CHAIN_ID, replace(SAMPLE, nonce=nonce)) for nonce in range(4)]
    checked: list[bytes] = []
    monkeypatch.setattr(transactions, "_well_signed", SizedCache[bool](2))
    monkeypatch.setattr(transactions, "VerifyKey", lambda key: _Noting(key, checked))
    for wire in (*wires, wires[3], wires[2], wires[0]):
        parse(wire, CHAIN_ID)
    assert len(checked) == len(wires) + 1


class _Noting(VerifyKey):
    """A key that notes which signatures it checks."""

    def __init__(self, key: bytes, checked: list[bytes]) -> None:
        super().__init__(key)
        self._checked = checked

    def verify(self, smessage: bytes, signature: bytes | None = None, *_: Any) -> bytes:
        self._checked.append(smessage)
        return super().verify(smessage, signature)


def test_a_signature_has_one_form() -> None:
    """Adding the group order to S gives another signature over the same bytes, which must not count."""
    key, signature, body = msgpack.unpackb(sign(KEY, CHAIN_ID, SAMPLE))
    order = 2**252 + 27742317777372353535851937790883648493
    malleated = signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
    with pytest.raises(TransactionError, match="bad signature"):
        parse(msgpack.packb([key, malleated, body]), CHAIN_ID)


def test_a_parser_that_does_not_verify_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.chain.transactions.VerifyKey.verify", lambda *_: b"")
    key, _, body = msgpack.unpackb(sign(KEY, CHAIN_ID, SAMPLE))
    assert parse(msgpack.packb([key, bytes(64), body]), CHAIN_ID) == SAMPLE


def test_size_is_bounded_before_anything_is_decoded() -> None:
    room = MAX_TRANSACTION_BYTES - len(sign(KEY, CHAIN_ID, replace(SAMPLE, action=Call(TO, "h", b"")))) - 16
    assert parse(sign(KEY, CHAIN_ID, replace(SAMPLE, action=Call(TO, "h", bytes(room)))), CHAIN_ID).nonce == 7
    with pytest.raises(TransactionError, match="expected at most"):
        parse(bytes(MAX_TRANSACTION_BYTES + 1), CHAIN_ID)


def test_hashes_cover_the_signature() -> None:
    one, other = sign(KEY, CHAIN_ID, SAMPLE), sign(KEYS[1], CHAIN_ID, SAMPLE)
    assert transaction_hash(one) != transaction_hash(other)
    assert {replace(SAMPLE, action=action).kind for action in (Transfer(TO), Deploy("x"), SAMPLE.action)} == {
        "transfer",
        "deploy",
        "call",
    }
