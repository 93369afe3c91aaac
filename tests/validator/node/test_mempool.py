"""The mempool: what it takes and refuses, what makes room, in which order it offers, and what leaves it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.watches.mempool_watch import PlainMempool
from tests.validator.chains import CHAIN_ID, KEYS, PRICE, RICH, USERS, make_genesis
from validator.chain.block import Header
from validator.chain.records import Account
from validator.chain.transactions import (
    PRICE_BUMP_PERCENT,
    CancelTimer,
    System,
    Transaction,
    Transfer,
    least_replacement_fee,
    sign,
    transaction_hash,
)
from validator.node.limits import DEFAULT_POOL_LIMITS, PoolLimits
from validator.node.mempool import Departed, Departure, Mempool, PoolSizes, Refusal, Refused
from validator.node.offers import MAX_OFFERED_TRANSACTIONS
from validator.primitives.codec import pack_uint, tagged_hash
from validator.primitives.types import ZERO_HASH, Address, Hash
from validator.transition.transition import PreparedTransaction

TO = bytes(range(20))
MAX_NONCES, NEAR_NONCES = DEFAULT_POOL_LIMITS.max_nonces, DEFAULT_POOL_LIMITS.near_nonces
MAX_BLOCKS_WAITING = DEFAULT_POOL_LIMITS.max_blocks_waiting
GENESIS = make_genesis(system_deployers=(USERS[3],))
PARAMETERS = GENESIS.parameters
FUNDED = Account(RICH, 0)
CALL: dict[str, Any] = {
    "gas_limit": 10**6,
    "cells_limit": 0,
    "max_fee_per_cycle": 10**9,
    "max_priority_fee_per_cycle": 5,
    "max_fee_per_cell": 10**9,
}


def transaction(user: int = 0, nonce: int = 0, tip: int = 5, **fields: Any) -> Transaction:
    given = {"action": Transfer(TO), **CALL, "max_priority_fee_per_cycle": tip, **fields}
    return Transaction(USERS[user], nonce, **given)


def wire(user: int = 0, nonce: int = 0, tip: int = 5, chain_id: str = CHAIN_ID, **fields: Any) -> bytes:
    return sign(KEYS[user], chain_id, transaction(user, nonce, tip, **fields))


def add(pool: Mempool, data: bytes, account: Account = FUNDED) -> list[Departed]:
    """Through all the rules, with the account that the pool knows or else this one."""
    prepared = pool.check(data)
    return pool.add(prepared, pool.account_of(prepared.transaction.sender) or account)


def filled(*wires: bytes, account: Account = FUNDED, **limits: int) -> Mempool:
    pool = Mempool(GENESIS, PoolLimits(**limits))
    for item in wires:
        assert add(pool, item, account) == []
    return pool


def header(height: int, basefee_cycle: int = PRICE, basefee_cell: int = PRICE) -> Header:
    cycle, cell, lane = map(pack_uint, (basefee_cycle, basefee_cell, PRICE))
    return Header(
        CHAIN_ID, height, height, ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, ZERO_HASH, cycle, cell, lane, 0, 0, 0, 0
    )


def settle(pool: Mempool, height: int, *final: bytes, accounts: dict[Address, Account] | None = None) -> list[Departed]:
    return pool.settle(header(height), [transaction_hash(item) for item in final], accounts or {})


def offered(pool: Mempool, most: int = 99) -> list[tuple[int, int]]:
    """``(user, nonce)`` of the candidates."""
    found = pool.candidates(most)
    return [(USERS.index(item.transaction.sender), item.transaction.nonce) for item in found]


def refusal(pool: Mempool, data: bytes, account: Account = FUNDED) -> tuple[Refusal, str]:
    """Why it is refused; nothing may change by that."""
    before = offered(pool)
    with pytest.raises(Refused) as caught:
        add(pool, data, account)
    assert offered(pool) == before
    line = str(caught.value)
    assert line and "\n" not in line
    return caught.value.reason, line


# --- what is refused --------------------------------------------------------------------------------------------------


def test_it_takes_a_transaction_once() -> None:
    pool, data = filled(wire()), wire()
    assert len(pool) == 1
    assert transaction_hash(data) in pool
    prepared = pool.get(transaction_hash(data))
    assert prepared is not None
    assert (prepared.wire, prepared.hash, prepared.transaction.sender) == (data, transaction_hash(data), USERS[0])
    assert refusal(pool, data) == (Refusal.ALREADY_KNOWN, "already known")


def badly_signed() -> bytes:
    data = bytearray(wire())
    data[40] ^= 1
    return bytes(data)


CANCEL = System(CancelTimer(bytes(32)))
NEVER_RUNNABLE: dict[str, tuple[bytes, Account, Refusal]] = {
    "nothing": (b"", FUNDED, Refusal.MALFORMED),
    "no transaction": (b"\xc1", FUNDED, Refusal.MALFORMED),
    "cut short": (wire()[:-1], FUNDED, Refusal.MALFORMED),
    "of another chain": (wire(chain_id="other"), FUNDED, Refusal.WRONG_CHAIN),
    "badly signed": (badly_signed(), FUNDED, Refusal.BAD_SIGNATURE),
    "a spent nonce": (wire(nonce=6), Account(RICH, 7), Refusal.STALE_NONCE),
    "the last nonce of all": (wire(nonce=2**64 - 1), FUNDED, Refusal.NONCE_TOO_HIGH),
    "a nonce behind the window": (wire(nonce=7 + MAX_NONCES), Account(RICH, 7), Refusal.NONCE_TOO_HIGH),
    "gas below the base": (wire(gas_limit=999), FUNDED, Refusal.GAS_TOO_LOW),
    "gas above the lane": (wire(gas_limit=PARAMETERS.lane_user_cycles + 1), FUNDED, Refusal.GAS_TOO_HIGH),
    "system gas above its lane": (wire(3, gas_limit=500_001, action=CANCEL), FUNDED, Refusal.GAS_TOO_HIGH),
    "cells above the lane": (wire(cells_limit=PARAMETERS.lane_user_cells + 1), FUNDED, Refusal.CELLS_TOO_HIGH),
    "no fee": (wire(max_fee_per_cycle=0), FUNDED, Refusal.FEE_TOO_LOW),
    "less than half the basefee": (wire(max_fee_per_cycle=PRICE // 2 - 1), FUNDED, Refusal.FEE_TOO_LOW),
    "less than half the cell basefee": (wire(max_fee_per_cell=PRICE // 2 - 1), FUNDED, Refusal.FEE_TOO_LOW),
    "a value that nobody has": (wire(value=10**30), FUNDED, Refusal.UNAFFORDABLE),
    "no funds": (wire(), Account(), Refusal.UNAFFORDABLE),
    "funds for all but one unit": (wire(), Account(10**15 - 1, 0), Refusal.UNAFFORDABLE),
    "no system deployer": (wire(gas_limit=10**5, action=CANCEL), FUNDED, Refusal.NOT_SYSTEM_DEPLOYER),
}


@pytest.mark.parametrize("name", NEVER_RUNNABLE)
def test_what_can_never_run_is_refused_with_its_reason_and_the_right_one_is_taken_then(name: str) -> None:
    data, account, reason = NEVER_RUNNABLE[name]
    pool = Mempool(GENESIS)
    pool.note_final(header(1))
    assert refusal(pool, data, account)[0] is reason
    right = wire(nonce=account.nonce)
    assert add(pool, right, Account(RICH, account.nonce)) == []
    assert offered(pool) == [(0, account.nonce)]


@pytest.mark.parametrize(
    ("data", "account"),
    [
        (wire(nonce=7), Account(RICH, 7)),
        (wire(nonce=6 + MAX_NONCES), Account(RICH, 7)),
        (wire(gas_limit=1_000), FUNDED),
        (wire(gas_limit=PARAMETERS.lane_user_cycles), FUNDED),
        (wire(cells_limit=PARAMETERS.lane_user_cells), FUNDED),
        (wire(3, gas_limit=500_000, action=CANCEL), FUNDED),
        (wire(max_fee_per_cycle=PRICE // 2, max_fee_per_cell=PRICE // 2), FUNDED),
        (wire(), Account(10**15, 0)),
    ],
)
def test_what_may_just_run_is_taken(data: bytes, account: Account) -> None:
    pool = Mempool(GENESIS)
    pool.note_final(header(1))
    assert add(pool, data, account) == []


def test_the_floor_of_fees_follows_the_basefee_down_to_the_least_there_is() -> None:
    pool, low = Mempool(GENESIS), PARAMETERS.min_basefee
    assert refusal(pool, wire(max_fee_per_cycle=low))[0] is Refusal.FEE_TOO_LOW
    pool.note_final(header(9, low, low))
    reason, line = refusal(pool, wire(max_fee_per_cycle=low - 1))
    assert (reason, line) == (
        Refusal.FEE_TOO_LOW,
        f"max_fee_per_cycle: {low - 1}, expected at least {low} while the basefee is {low}",
    )
    assert add(pool, wire(max_fee_per_cycle=low)) == []


def test_a_senders_transactions_must_be_paid_for_together() -> None:
    pool = filled(wire(nonce=0), wire(nonce=1), account=Account(2 * 10**15 + 7, 0))
    assert refusal(pool, wire(nonce=2))[0] is Refusal.UNAFFORDABLE
    costly = wire(nonce=1, tip=6, max_fee_per_cycle=11 * 10**8)
    assert refusal(pool, costly)[0] is Refusal.UNAFFORDABLE, "what it would replace is not counted twice"
    cheaper = wire(nonce=1, tip=6, max_fee_per_cycle=11 * 10**8, gas_limit=900_000)
    assert [reason for _, reason in add(pool, cheaper)] == [Departure.REPLACED]


def test_a_senders_share_of_the_bytes_is_bounded() -> None:
    pool = filled(wire(nonce=0), wire(nonce=1), max_sender_bytes=3 * len(wire(nonce=0)) - 1)
    assert refusal(pool, wire(nonce=2))[0] is Refusal.SENDER_LIMIT
    assert add(pool, wire(1, nonce=0)) == [], "it is each sender's own"


# --- replacement ------------------------------------------------------------------------------------------------------


def test_a_transaction_is_replaced_by_one_that_pays_a_tenth_more() -> None:
    first = wire(nonce=0, tip=100)
    pool = filled(first, wire(nonce=1))
    enough: dict[str, Any] = {"max_fee_per_cycle": 11 * 10**8, "tip": 110}
    for fields in ({"max_fee_per_cycle": 11 * 10**8 - 1}, {"tip": 109}, {"max_fee_per_cell": 10**9 - 1}):
        assert refusal(pool, wire(**{**enough, **fields}))[0] is Refusal.REPLACEMENT_UNDERPRICED
    better = wire(**enough)
    assert add(pool, better) == [Departed(transaction_hash(first), Departure.REPLACED)]
    assert transaction_hash(better) in pool and transaction_hash(first) not in pool
    assert offered(pool) == [(0, 0), (0, 1)]
    assert refusal(pool, first)[0] is Refusal.REPLACEMENT_UNDERPRICED, "there is no way back"


@given(st.integers(0, 2**96 - 1))
def test_a_replacement_always_pays_more(fee: int) -> None:
    least = least_replacement_fee(fee)
    assert least > fee and 100 * least >= 110 * fee > 100 * (least - 1) - 110 * (fee == 0) - 100


# --- a full pool ------------------------------------------------------------------------------------------------------


def test_a_better_payer_gets_into_a_full_pool_and_the_worst_leaves() -> None:
    pool = filled(wire(0, tip=5), wire(1, tip=7), wire(2, tip=5), max_transactions=3)
    assert refusal(pool, wire(3, tip=5))[0] is Refusal.MEMPOOL_FULL
    assert add(pool, wire(3, tip=6)) == [Departed(transaction_hash(wire(2, tip=5)), Departure.EVICTED)], "the younger"
    assert offered(pool) == [(1, 0), (3, 0), (0, 0)]
    assert add(pool, wire(2, tip=6)) == [Departed(transaction_hash(wire(0, tip=5)), Departure.EVICTED)]
    assert refusal(pool, wire(0, tip=5))[0] is Refusal.MEMPOOL_FULL


def test_a_promise_that_no_block_takes_up_evicts_nothing() -> None:
    """A high tip over a low limit, a missing nonce before it, or a cheap transaction before it."""
    pool = filled(wire(0, tip=5), wire(1, tip=5), wire(2, tip=6), max_transactions=3)
    low: dict[str, Any] = {"max_fee_per_cycle": PRICE - 1}
    for data in (wire(3, tip=900, **low), wire(3, nonce=1, tip=900), wire(3, tip=900, max_fee_per_cell=PRICE - 1)):
        assert refusal(pool, data)[0] is Refusal.MEMPOOL_FULL
    assert refusal(pool, wire(2, nonce=1, tip=4))[0] is Refusal.MEMPOOL_FULL
    assert add(pool, wire(2, nonce=1, tip=900)) == [Departed(transaction_hash(wire(1, tip=5)), Departure.EVICTED)]
    assert refusal(pool, wire(3, tip=5))[0] is Refusal.MEMPOOL_FULL
    assert len(add(pool, wire(3, tip=6))) == 1, "behind a tip of 6, 900 are 6: but 5 is the worst"
    shared = add(pool, wire(1, tip=6))
    assert [departed.hash for departed in shared] == [transaction_hash(wire(2, nonce=1, tip=900))], "a first of 6"
    assert refusal(pool, wire(0, tip=6))[0] is Refusal.MEMPOOL_FULL


def test_what_cannot_run_now_leaves_first_and_a_queue_is_not_torn() -> None:
    pool = filled(wire(0, nonce=0, tip=1), wire(0, nonce=1, tip=90), wire(1, nonce=3, tip=99), max_transactions=3)
    assert add(pool, wire(2, tip=1)) == [Departed(transaction_hash(wire(1, nonce=3, tip=99)), Departure.EVICTED)]
    assert [departed.hash for departed in add(pool, wire(3, tip=2))] == [transaction_hash(wire(0, nonce=1, tip=90))]
    assert add(pool, wire(1, tip=2)) == [Departed(transaction_hash(wire(2, tip=1)), Departure.EVICTED)]
    assert offered(pool) == [(3, 0), (1, 0), (0, 0)]


def test_a_sender_holds_few_places_while_others_want_one() -> None:
    most = NEAR_NONCES + 4
    pool = filled(*[wire(0, nonce, tip=90) for nonce in range(most)], max_transactions=most)
    assert refusal(pool, wire(0, NEAR_NONCES + 4, tip=99))[0] is Refusal.MEMPOOL_FULL
    for nonce in range(4):
        left = wire(0, NEAR_NONCES + 3 - nonce, tip=90)
        assert add(pool, wire(1, nonce, tip=1)) == [Departed(transaction_hash(left), Departure.EVICTED)]
    assert refusal(pool, wire(1, 4, tip=1))[0] is Refusal.MEMPOOL_FULL
    assert refusal(pool, wire(0, NEAR_NONCES, tip=99))[0] is Refusal.MEMPOOL_FULL, "nor are others pushed out by it"


def test_room_in_bytes_is_made_by_a_few_of_the_worst_or_not_at_all() -> None:
    size = len(wire(0, 0, tip=3))
    wires = wire(0, 0, tip=3), wire(0, 1, tip=3), wire(1, 0, tip=4), wire(2, 0, tip=9)
    pool = filled(*wires, max_bytes=4 * size + 10, max_evictions=2)
    large = PreparedTransaction(Hash(b"l" * 32), bytes(2 * size + 11), transaction(3, tip=8))
    with pytest.raises(Refused, match="full"):
        pool.add(large, FUNDED)
    assert len(pool) == 4, "three would have to leave"
    pool = filled(*wires, max_bytes=4 * size + 10, max_evictions=3)
    departed = pool.add(large, FUNDED)
    assert [item.hash for item in departed] == [
        transaction_hash(item) for item in (wire(0, 1, tip=3), wire(0, 0, tip=3), wire(1, 0, tip=4))
    ]


def test_what_was_not_replaced_for_want_of_room_can_still_be_evicted() -> None:
    pool = filled(wire(0, tip=1), wire(1, tip=9), max_bytes=2 * len(wire(0, tip=1)))
    dearer = transaction(0, tip=2, max_fee_per_cycle=2 * 10**9)
    larger = PreparedTransaction(Hash(b"l" * 32), bytes(2 * len(wire(0, tip=1))), dearer)
    with pytest.raises(Refused, match="full"):
        pool.add(larger, FUNDED)
    assert add(pool, wire(2, tip=5)) == [Departed(transaction_hash(wire(0, tip=1)), Departure.EVICTED)]


def test_who_is_refused_for_want_of_room_makes_no_look_at_all_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each offer of an unknown sender its account is read, and the header that is the newest comes with it."""
    places: list[Transaction] = []
    place = Mempool._place

    def noted(pool: Mempool, looked_at: Transaction, sender: Any) -> Any:
        places.append(looked_at)
        return place(pool, looked_at, sender)

    monkeypatch.setattr(Mempool, "_place", noted)
    pool = filled(wire(0, tip=5), wire(1, tip=7), wire(2, tip=6), max_transactions=3)
    counts = []
    for _ in range(3):
        pool.note_final(header(1))
        places.clear()
        assert refusal(pool, wire(3, tip=5))[0] is Refusal.MEMPOOL_FULL
        counts.append(len(places))
    assert counts == [5, 2, 2], "its own and the worst; and once all of them"


def test_twenty_requests_of_unfunded_senders_leave_the_pool_open() -> None:
    pool = filled(max_transactions=40)
    for nonce in range(20):
        for user in range(1, 4):
            assert refusal(pool, wire(user, nonce, tip=10**6), Account())[0] is Refusal.UNAFFORDABLE
    assert (len(pool), pool._senders, pool._idle) == (0, {}, {})
    assert add(pool, wire(0)) == []


# --- order ------------------------------------------------------------------------------------------------------------


def test_senders_go_by_the_tip_of_their_next_then_by_arrival() -> None:
    pool = filled(wire(0, 0, tip=5), wire(1, 0, tip=9), wire(2, 0, tip=5), wire(3, 0, tip=7))
    assert offered(pool) == [(1, 0), (3, 0), (0, 0), (2, 0)]
    low: dict[str, Any] = {"max_fee_per_cycle": PRICE + 6}
    pool = filled(wire(0, 0, tip=900, **low), wire(1, 0, tip=9))
    assert offered(pool) == [(1, 0), (0, 0)], "what is paid counts, not what is promised"


def test_a_senders_own_order_is_that_of_nonces_whatever_the_tips_and_arrivals() -> None:
    pool = filled(wire(0, 2, tip=99), wire(0, 0, tip=1), wire(1, 0, tip=3), wire(0, 1, tip=50), wire(1, 1, tip=60))
    assert offered(pool) == [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]
    assert offered(pool, most=2) == [(1, 0), (1, 1)]
    assert offered(pool, most=0) == []


def test_what_cannot_run_yet_comes_last() -> None:
    pool = filled(wire(0, 1, tip=99), wire(1, 0, tip=2), wire(1, 2, tip=50), wire(2, 0, tip=98), wire(3, 0, tip=1))
    pool.settle(header(1, 2 * PRICE), [], {})
    assert add(pool, wire(2, 1, tip=98, max_fee_per_cycle=PRICE)) == []
    assert offered(pool) == [(2, 0), (1, 0), (3, 0), (0, 1), (1, 2), (2, 1)]


def test_offering_changes_nothing() -> None:
    pool = filled(wire(0, 0), wire(1, 0))
    assert offered(pool) == offered(pool)
    assert len(pool) == 2


def test_refused_senders_come_after_all_others_for_a_while() -> None:
    pool = filled(wire(user=0), wire(user=1, tip=9))
    assert offered(pool) == [(1, 0), (0, 0)]
    pool.refuse([USERS[1], USERS[2]])
    assert offered(pool) == [(0, 0), (1, 0)]
    settle(pool, 1, accounts={USERS[1]: FUNDED})
    assert offered(pool) == [(1, 0), (0, 0)], "its account changed"
    pool.refuse([USERS[1]])
    settle(pool, 2 + DEFAULT_POOL_LIMITS.max_blocks_refused)
    assert offered(pool) == [(1, 0), (0, 0)], "some blocks have passed"


# --- what leaves ------------------------------------------------------------------------------------------------------


def test_what_became_final_or_spent_is_forgotten() -> None:
    pool = filled(*[wire(0, nonce) for nonce in range(4)], wire(1, 0), wire(1, 5))
    departed = settle(pool, 1, wire(0, 1), accounts={USERS[0]: Account(RICH, 2), USERS[2]: Account(RICH, 7)})
    assert departed == [Departed(transaction_hash(wire(0, 0)), Departure.STALE_NONCE)]
    assert offered(pool) == [(0, 2), (0, 3), (1, 0), (1, 5)]
    departed = settle(pool, 2, accounts={USERS[0]: Account(RICH, 9), USERS[1]: Account(RICH, 9)})
    assert Counter(reason for _, reason in departed) == {Departure.STALE_NONCE: 4}
    assert (len(pool), offered(pool), pool._bytes) == (0, [], 0)
    assert pool.account_of(USERS[1]) == Account(RICH, 9) and pool.account_of(USERS[2]) is None


def test_what_its_sender_cannot_pay_any_more_leaves_the_last_first() -> None:
    pool = filled(*[wire(0, nonce) for nonce in range(4)], wire(1, 0))
    departed = settle(pool, 1, accounts={USERS[0]: Account(25 * 10**14, 0)})
    assert departed == [Departed(transaction_hash(wire(0, nonce)), Departure.UNAFFORDABLE) for nonce in (3, 2)]
    assert offered(pool) == [(0, 0), (0, 1), (1, 0)]
    assert refusal(pool, wire(0, 2))[0] is Refusal.UNAFFORDABLE
    settle(pool, 2, accounts={USERS[0]: Account(30 * 10**14, 0)})
    assert add(pool, wire(0, 2)) == []


def test_what_waits_too_long_expires() -> None:
    pool = filled(wire(0, 7))
    settle(pool, 5)
    add(pool, wire(1, 7))
    assert settle(pool, MAX_BLOCKS_WAITING) == []
    assert settle(pool, MAX_BLOCKS_WAITING + 1) == [Departed(transaction_hash(wire(0, 7)), Departure.EXPIRED)]
    assert offered(pool) == [(1, 7)]
    settle(pool, MAX_BLOCKS_WAITING + 6)
    assert len(pool) == 0


def test_only_so_many_idle_senders_are_remembered() -> None:
    pool = filled(wire(0), wire(1), wire(2), max_idle_senders=1)
    settle(pool, 1, wire(1), accounts={USERS[1]: Account(RICH, 1)})
    settle(pool, 2, wire(0), accounts={USERS[0]: Account(RICH, 1)})
    known = [pool.account_of(user) for user in USERS]
    assert known == [Account(RICH, 1), None, FUNDED, None]


# --- what the documents say -------------------------------------------------------------------------------------------


def test_the_documents_have_every_reason_and_number() -> None:
    docs = Path(__file__).parents[3] / "docs"
    rules = (docs / "protocol.md").read_text().split("### Mempool")[1].split("\n## ")[0]
    served = (docs / "http.md").read_text()
    for reason in [*Refusal, *Departure]:
        assert f"`{reason}`" in rules and f"`{reason}`" in served, reason
    most = (DEFAULT_POOL_LIMITS.max_transactions, MAX_OFFERED_TRANSACTIONS)
    for number in (*most, MAX_NONCES, NEAR_NONCES, MAX_BLOCKS_WAITING):
        assert f"{number:,} " in rules
    assert f"{PRICE_BUMP_PERCENT} %" in rules


# --- against a plain model --------------------------------------------------------------------------------------------

LIMITS = PoolLimits(
    max_transactions=7,
    max_bytes=1_500,
    max_nonces=5,
    near_nonces=2,
    max_sender_bytes=900,
    max_evictions=2,
    max_idle_senders=1,
    max_blocks_refused=2,
    max_blocks_waiting=4,
)
"""So small that a few transactions meet every one."""
Accounts = dict[Address, Account]
"""Of all users, as they are now."""


def some_transaction(random: Random, model: PlainMempool, accounts: Accounts, number: int) -> PreparedTransaction:
    user = random.randrange(4)
    first = accounts[USERS[user]].nonce
    next_nonce = first + sum(row.sender == USERS[user] for row in model.rows.values())
    drawn = transaction(
        user,
        random.choice((next_nonce, next_nonce, next_nonce, first, first + random.randrange(5), max(0, first - 1))),
        tip=random.choice((0, 1, 2, 3, 50)),
        max_fee_per_cycle=random.choice((10**4, PRICE // 2, PRICE, PRICE + 2, *[n * PRICE for n in range(2, 7)])),
        max_fee_per_cell=random.choice((PRICE // 2, PRICE, *[2 * PRICE] * 6)),
        cells_limit=random.choice((0, 10)),
        value=random.choice((0, 0, 10**11)),
    )
    if model.rows and random.random() < 0.1:
        return random.choice(list(model.rows.values())).prepared
    size = random.choice((100, 150, 150, 200, 500))
    return PreparedTransaction(Hash(tagged_hash(b"test", number.to_bytes(4, "big"))), bytes(size), drawn)


def some_final_block(random: Random, model: PlainMempool, accounts: Accounts) -> tuple[list[Hash], Accounts]:
    """What became final, and the accounts that were changed; some by what was never in the pool."""
    final: list[Hash] = []
    changed: Accounts = {}
    for user in USERS:
        if random.random() < 0.5:
            continue
        account = accounts[user]
        for row in sorted((row for row in model.rows.values() if row.sender == user), key=lambda row: row.nonce):
            if row.nonce == account.nonce and random.random() < 0.6:
                final.append(row.hash)
                account = replace(account, nonce=account.nonce + 1)
        account = replace(account, nonce=account.nonce + (random.random() < 0.1))
        balances = (*[account.balance] * 4, *[RICH] * 4, 5 * 10**12, 0)
        changed[user] = replace(account, balance=random.choice(balances))
    return final, changed


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_it_is_a_plain_pool(seed: int) -> None:
    assert play(Random(seed), 60)["added"], "otherwise nothing was tried"


def test_the_play_meets_every_rule() -> None:
    seen = sum((play(Random(seed), 60) for seed in range(40)), Counter[str]())
    expected = {"stale_nonce", "nonce_too_high", "fee_too_low", "replacement_underpriced", "sender_limit"}
    expected |= {"unaffordable", "mempool_full", "already_known", "added", "forgotten"}
    assert expected | {f"left {reason}" for reason in Departure} == set(seen)


def play(random: Random, steps: int) -> Counter[str]:
    """Both pools side by side. Counts what happened."""
    seen: Counter[str] = Counter()
    accounts: Accounts = dict.fromkeys(USERS, FUNDED)
    model, pool = PlainMempool(GENESIS, LIMITS), Mempool(GENESIS, LIMITS)
    for number in range(steps):
        known = set(model.senders)
        if random.random() < 0.85:
            drawn = some_transaction(random, model, accounts, number)
            account = accounts[drawn.transaction.sender]
            expected, got = model.add(drawn, account), added(pool, drawn, account)
            seen[expected if isinstance(expected, str) else "added"] += 1
        elif random.random() < 0.7:
            basefees = (random.choice((PRICE, PRICE + 1, 2 * PRICE)), random.choice((PRICE, PRICE, 2 * PRICE)))
            final, changed = some_final_block(random, model, accounts)
            accounts.update(changed)
            block = header(model.height + 1, *basefees)
            got = list(pool.settle(block, final, changed))
            model.note_final(block.height, basefees)
            expected = model.settle(final, changed)
        else:
            user = random.choice(USERS)
            pool.refuse([user])
            model.refuse([user])
            expected = got = []
        assert got == expected
        if not isinstance(expected, str):
            seen.update(f"left {reason}" for _, reason in expected)
        seen["forgotten"] += bool(known - model.senders.keys())
        assert [item.hash for item in pool.candidates(99)] == model.candidates()
        assert [item.hash for item in pool.candidates(3)] == model.candidates()[:3]
        assert pool.sizes == PoolSizes(len(model.rows), model.size, len(model.idle))
        assert {user: pool.account_of(user) for user in model.senders} == {
            u: s.account for u, s in model.senders.items()
        }
    return seen


def added(pool: Mempool, prepared: PreparedTransaction, account: Account) -> str | list[tuple[Hash, str]]:
    try:
        return list(pool.add(prepared, account))
    except Refused as refusal:
        return refusal.reason.value
