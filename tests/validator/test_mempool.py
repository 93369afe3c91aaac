"""The mempool: what it takes, what it refuses, in which order it offers, and what it forgets."""

from __future__ import annotations

import pytest

from tests.validator.chain import CHAIN_ID, KEYS, USERS
from validator import mempool as module
from validator.mempool import Mempool, Refused
from validator.transactions import Transaction, Transfer, sign, transaction_hash
from validator.types import Hash

TO = bytes(range(20))


def wire(user: int = 0, nonce: int = 0, tip: int = 0, value: int = 0, chain_id: str = CHAIN_ID) -> bytes:
    transaction = Transaction(USERS[user], nonce, 10**6, 0, 10**9, tip, 10**9, Transfer(TO), value)
    return sign(KEYS[user], chain_id, transaction)


def filled(*wires: bytes) -> Mempool:
    pool = Mempool(CHAIN_ID)
    for item in wires:
        pool.add(item)
    return pool


def offered(pool: Mempool, most: int = 99) -> list[tuple[int, int]]:
    """``(user, nonce)`` of the candidates."""
    found = pool.candidates(most)
    return [(USERS.index(item.transaction.sender), item.transaction.nonce) for item in found]


def test_it_takes_a_transaction_once() -> None:
    pool, data = filled(wire()), wire()
    assert len(pool) == 1
    assert transaction_hash(data) in pool
    prepared = pool.get(transaction_hash(data))
    assert prepared is not None
    assert (prepared.wire, prepared.hash, prepared.transaction.sender) == (data, transaction_hash(data), USERS[0])
    with pytest.raises(Refused, match="already known"):
        pool.add(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "malformed"), (b"\xc1", "malformed"), (wire(chain_id="other"), "chain"), (wire()[:-1], "malformed")],
)
def test_it_refuses_what_is_malformed_or_foreign(data: bytes, reason: str) -> None:
    pool = Mempool(CHAIN_ID)
    with pytest.raises(Refused, match=reason):
        pool.add(data)
    assert len(pool) == 0


def test_it_refuses_a_bad_signature() -> None:
    data = bytearray(wire())
    data[40] ^= 1
    with pytest.raises(Refused, match="bad signature"):
        Mempool(CHAIN_ID).add(bytes(data))


def test_one_transaction_a_nonce() -> None:
    pool = filled(wire(value=1))
    with pytest.raises(Refused, match="nonce 0"):
        pool.add(wire(value=2, tip=99))
    pool.settle([transaction_hash(wire(value=1))], {}, 1)
    pool.add(wire(value=2))


def test_it_is_bounded_in_number_bytes_and_per_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PER_SENDER", 2)
    pool = filled(wire(nonce=0), wire(nonce=1))
    with pytest.raises(Refused, match="the sender has 2"):
        pool.add(wire(nonce=2))
    monkeypatch.setattr(module, "MAX_TRANSACTIONS", 3)
    pool.add(wire(1))
    with pytest.raises(Refused, match="full"):
        pool.add(wire(2))
    monkeypatch.setattr(module, "MAX_TRANSACTIONS", 100)
    monkeypatch.setattr(module, "MAX_BYTES", sum(len(item.wire) for item in pool.candidates(9)) + len(wire(2)) - 1)
    with pytest.raises(Refused, match="full"):
        pool.add(wire(2))
    pool.settle([transaction_hash(wire(1))], {}, 1)
    pool.add(wire(2))


def test_senders_go_by_the_tip_of_their_next_then_by_arrival() -> None:
    pool = filled(wire(0, 0, tip=5), wire(1, 0, tip=9), wire(2, 0, tip=5), wire(3, 0, tip=7))
    assert offered(pool) == [(1, 0), (3, 0), (0, 0), (2, 0)]


def test_a_senders_own_order_is_that_of_nonces_whatever_the_tips_and_arrivals() -> None:
    pool = filled(wire(0, 2, tip=99), wire(0, 0, tip=1), wire(1, 0, tip=3), wire(0, 1, tip=50), wire(1, 1, tip=60))
    assert offered(pool) == [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]
    assert offered(pool, most=2) == [(1, 0), (1, 1)]
    assert offered(pool, most=0) == []


def test_what_became_final_or_stale_is_forgotten() -> None:
    pool = filled(*[wire(0, nonce) for nonce in range(4)], wire(1, 0), wire(1, 5))
    pool.settle([transaction_hash(wire(0, 3)), Hash(bytes(32))], {USERS[0]: 2, USERS[2]: 7}, 1)
    assert offered(pool) == [(0, 2), (1, 0), (1, 5)]
    pool.settle([], {USERS[0]: 9, USERS[1]: 9}, 2)
    assert (len(pool), offered(pool), pool._by_sender, pool._arrival, pool._bytes) == (0, [], {}, {}, 0)


def test_what_waits_too_long_expires() -> None:
    pool = filled(wire(0, 7))
    pool.settle([], {}, 5)
    pool.add(wire(1, 7))
    pool.settle([], {}, module.MAX_BLOCKS_WAITING)
    assert len(pool) == 2
    pool.settle([], {}, module.MAX_BLOCKS_WAITING + 1)
    assert offered(pool) == [(1, 7)]
    pool.settle([], {}, module.MAX_BLOCKS_WAITING + 6)
    assert len(pool) == 0


def test_offering_changes_nothing() -> None:
    pool = filled(wire(0, 0), wire(1, 0))
    assert offered(pool) == offered(pool)
    assert len(pool) == 2


# --- senders that cannot pay ------------------------------------------------------------------------------------------


def test_refused_senders_come_after_all_others_for_a_while() -> None:
    pool = filled(wire(user=0), wire(user=1, tip=9))
    assert offered(pool) == [(1, 0), (0, 0)]
    pool.refuse([USERS[1]])
    assert offered(pool) == [(0, 0), (1, 0)]
    pool.settle([], {USERS[1]: 0}, 1)
    assert offered(pool) == [(1, 0), (0, 0)], "its account changed"
    pool.refuse([USERS[1]])
    pool.settle([], {}, 2 + module.MAX_BLOCKS_REFUSED)
    assert offered(pool) == [(1, 0), (0, 0)], "some blocks have passed"
