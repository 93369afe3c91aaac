"""Attacks on the mempool and on the builder that it feeds, by name; for each, the planted fault that lets it through.

Each attack is a function that plays both sides and asserts what honest senders are owed. It runs twice: against the
mempool as it is, and against one in which the rule is broken that holds the attack off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar, Final, NamedTuple

import pytest
from nacl.signing import SigningKey

from tests.validator.chains import ACTOR, CHAIN_ID, PRICE, make_genesis, script
from tests.validator.executors import Author
from validator.chain import transactions as wires
from validator.chain.block import Header
from validator.chain.records import Account
from validator.chain.transactions import Call, Deploy, Transaction, Transfer, address_of, sign, transaction_hash
from validator.node import mempool as module
from validator.node.blocks import proposals
from validator.node.executor import executor
from validator.node.executor.jobs import Build, Built
from validator.node.limits import PoolLimits
from validator.node.mempool import Departed, Departure, Mempool, Place, Refusal, Refused
from validator.primitives.codec import pack_uint
from validator.primitives.types import ZERO_HASH
from validator.transition.transition import NotAdmitted, Outcome, PreparedTransaction, Transition

LIMITS: Final = {"max_transactions": 60, "max_nonces": 10, "near_nonces": 3, "max_evictions": 2}
"""So small that some hundred transactions are a flood."""
KEYS: Final = [SigningKey(bytes([number + 1]) * 32) for number in range(120)]
SENDERS: Final = [address_of(bytes(key.verify_key)) for key in KEYS]
HONEST: Final = range(80, 120)
"""Senders; those below are the attacker's."""
FUNDED: Final = Account(10**20, 0)
GENESIS: Final = make_genesis(accounts=dict.fromkeys(SENDERS, FUNDED.balance))
LANE: Final = GENESIS.parameters.lane_user_cycles
TIP: Final = 5
"""What everybody pays."""


def wire(sender: int, nonce: int = 0, tip: int = TIP, **fields: Any) -> bytes:
    given: dict[str, Any] = {
        "gas_limit": 1_000,
        "cells_limit": 0,
        "max_fee_per_cycle": 10**9,
        "max_fee_per_cell": 10**9,
        "action": Transfer(bytes(range(20))),
        **fields,
    }
    return sign(KEYS[sender], CHAIN_ID, Transaction(SENDERS[sender], nonce, max_priority_fee_per_cycle=tip, **given))


def call(payload: bytes, **fields: Any) -> dict[str, Any]:
    return {"action": Call(ACTOR, "run", payload), "cells_limit": len(payload), **fields}


@dataclass
class Siege:
    """A mempool between honest senders and an attacker."""

    limits: ClassVar[PoolLimits] = PoolLimits(**LIMITS)
    pool: Mempool = field(default_factory=lambda: Mempool(GENESIS, Siege.limits))
    departed: list[Departed] = field(default_factory=list)
    height: int = 0

    def offer(self, data: bytes, account: Account = FUNDED) -> Refusal | None:
        """Why a transaction is refused, or ``None``."""
        try:
            prepared = self.pool.check(data)
            self.departed += self.pool.add(prepared, self.pool.account_of(prepared.transaction.sender) or account)
        except Refused as refusal:
            return refusal.reason
        assert len(self.pool) <= self.limits.max_transactions and self.pool._bytes <= self.limits.max_bytes
        return None

    def settle(self, *final: bytes, basefee: int = PRICE, **accounts: Account) -> None:
        """A block is final; ``accounts`` by sender, as in ``sender_3``."""
        self.height += 1
        fee = pack_uint(basefee)
        zeros = (ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, ZERO_HASH)
        header = Header(CHAIN_ID, self.height, self.height, *zeros, fee, fee, fee, 0, 0, 0, 0)
        changed = {SENDERS[int(name.removeprefix("sender_"))]: account for name, account in accounts.items()}
        self.departed += self.pool.settle(header, [transaction_hash(item) for item in final], changed)

    def waiting(self, *senders: int) -> list[tuple[int, int]]:
        """``(sender, nonce)`` of what waits of these senders."""
        found = ((SENDERS.index(one.transaction.sender), one.transaction.nonce) for one in self.pool.candidates(10**6))
        return sorted(one for one in found if one[0] in senders)

    def honest_in(self) -> int:
        return len(self.waiting(*HONEST))

    def build(self, transition: type[Transition] = Transition) -> Built:
        """The block that a builder makes of the pool."""
        author = Author(GENESIS)
        author.executor = executor.Executor(author.disk, GENESIS, transition)
        candidates = self.pool.candidates(proposals.MAX_CANDIDATES)
        built = author.executor.run(Build(1, author.executor.final_digest, 0, candidates))
        assert isinstance(built, Built)
        return built


# --- the attacks ------------------------------------------------------------------------------------------------------


def one_sender_fills_the_pool() -> None:
    siege = Siege()
    taken = [siege.offer(wire(0, nonce, tip=99)) for nonce in range(LIMITS["max_transactions"])]
    assert taken.count(None) == LIMITS["max_nonces"] and taken.count(Refusal.NONCE_TOO_HIGH) == len(taken) - 10
    assert [siege.offer(wire(sender)) for sender in HONEST] == [None] * len(HONEST)


def one_sender_fills_the_bytes() -> None:
    siege, large = Siege(), call(bytes(50_000))
    taken = [siege.offer(wire(0, nonce, tip=99, **large)) for nonce in range(10)]
    assert taken == [None] * 3 + [Refusal.SENDER_LIMIT] * 7
    assert [siege.offer(wire(sender, **large)) for sender in HONEST[:5]] == [None] * 5


def sybils_at_the_going_tip() -> None:
    """They were first, and each holds as many places as may push others out."""
    siege = Siege()
    for sender in range(20):
        assert [siege.offer(wire(sender, nonce)) for nonce in range(3)] == [None] * 3
    assert [siege.offer(wire(sender)) for sender in HONEST] == [None] * 40
    assert siege.waiting(*range(20)) == [(sender, 0) for sender in range(20)], "one of each sender"


def sybils_above_the_going_tip() -> None:
    """What they pay is what it takes to get in, and no more."""
    siege = Siege()
    for sender in range(60):
        assert siege.offer(wire(sender, tip=TIP + 4)) is None
    assert {siege.offer(wire(sender, tip=TIP + 4)) for sender in HONEST} == {Refusal.MEMPOOL_FULL}
    assert {siege.offer(wire(sender, tip=TIP + 5)) for sender in HONEST} == {None}
    assert {siege.offer(wire(sender, tip=TIP + 4)) for sender in range(60, 80)} == {Refusal.MEMPOOL_FULL}
    assert siege.honest_in() == 40


def nonce_gaps_crowd_out_what_can_run() -> None:
    siege = Siege()
    for sender in range(7):
        for nonce in range(1, 10):
            siege.offer(wire(sender, nonce, tip=10**6))
    assert len(siege.pool) == 60
    assert {siege.offer(wire(sender, tip=0)) for sender in HONEST} == {None}
    assert {siege.offer(wire(7, nonce, tip=10**6)) for nonce in range(1, 10)} == {Refusal.MEMPOOL_FULL}
    assert siege.honest_in() == 40


def low_fee_limits_crowd_out_what_can_run() -> None:
    """Above the floor of the fee, below the basefee: no block takes them, and they cost nothing."""
    siege = Siege()
    for sender in range(60):
        assert siege.offer(wire(sender, tip=10**6, max_fee_per_cycle=PRICE - 1)) is None
    assert {siege.offer(wire(sender, tip=0)) for sender in HONEST} == {None}
    assert siege.honest_in() == 40


def small_gaps_keep_a_large_transaction_out() -> None:
    """The pool is full of bytes of what never runs; a large one needs the room of many."""
    siege, junk = Siege(), call(bytes(3_000))
    for sender in range(6):
        for nonce in range(1, 10):
            assert siege.offer(wire(sender, nonce, tip=10**6, **junk)) is None
    assert siege.offer(wire(HONEST[0], tip=0, **call(bytes(100_000)))) is None
    assert siege.honest_in() == 1


def a_large_transaction_pushes_many_out() -> None:
    """One that pays a little more per cycle is not worth many that pay."""
    siege = Siege()
    for sender in HONEST:
        assert siege.offer(wire(sender, **call(bytes(4_000)))) is None
    assert siege.offer(wire(0, tip=TIP + 1, **call(bytes(30_000)))) is Refusal.MEMPOOL_FULL
    assert siege.honest_in() == 40


def replacement_churn() -> None:
    """A sender replaces its transaction again and again: each time costs a tenth more, and its balance ends it."""
    siege = Siege()
    for sender in HONEST:
        assert siege.offer(wire(sender)) is None
    account = Account(10**13, 0)
    fee, tip, replaced = PRICE, 1, 0
    while siege.offer(wire(0, tip=tip, max_fee_per_cycle=fee), account) is None:
        assert siege.offer(wire(0, tip=tip, max_fee_per_cycle=fee + 1), account) is Refusal.REPLACEMENT_UNDERPRICED
        fee, tip = wires.least_replacement_fee(fee), wires.least_replacement_fee(tip)
        replaced += 1
        assert replaced <= math.log(account.balance / (1_000 * PRICE), 1.1) + 1
    assert replaced > 50, "otherwise nothing was tried"
    assert (len(siege.pool), siege.honest_in()) == (41, 40)
    assert {reason for _, reason in siege.departed} == {Departure.REPLACED}


def fee_escalation() -> None:
    """A sender outbids a pool of honest transactions with all that it may have waiting."""
    siege = Siege()
    for sender in HONEST[:30]:
        for nonce in range(2):
            siege.offer(wire(sender, nonce))
    assert len(siege.pool) == 60
    taken = [siege.offer(wire(0, nonce, tip=99)) for nonce in range(10)]
    assert taken.count(None) == LIMITS["near_nonces"] == len(siege.departed)
    assert siege.honest_in() == 60 - LIMITS["near_nonces"]
    assert [sender for sender, nonce in siege.waiting(*HONEST) if nonce == 0] == list(HONEST[:30])


def senders_that_cannot_pay() -> None:
    siege = Siege()
    for sender in range(40):
        assert siege.offer(wire(sender, tip=99), Account()) is Refusal.UNAFFORDABLE
    one = Account(1_000 * 10**9, 0)
    taken = [siege.offer(wire(sender, nonce, tip=99), one) for sender in range(40) for nonce in range(3)]
    assert taken.count(None) == 40 and taken.count(Refusal.UNAFFORDABLE) == 80
    assert {siege.offer(wire(sender, tip=100)) for sender in HONEST} == {None}


def a_drained_sender_pushed_others_out() -> None:
    """It outbids, and another validator's block takes its money away: it holds its places no longer than that."""
    siege = Siege()
    for sender in HONEST[:30]:
        for nonce in range(2):
            siege.offer(wire(sender, nonce))
    for nonce in range(3):
        assert siege.offer(wire(0, nonce, tip=99)) is None
    lost = [departed.hash for departed in siege.departed]
    assert len(lost) == 3
    siege.settle(sender_0=Account(0, 1))
    assert siege.waiting(0) == []
    again = [data for data in (wire(sender, 1) for sender in HONEST[:30]) if transaction_hash(data) in lost]
    assert [siege.offer(data) for data in again] == [None] * 3
    assert siege.honest_in() == 60


def early_nonces_are_pushed_out() -> None:
    """Of each honest sender the first transaction pays least. If it went, the later ones could not run."""
    siege = Siege()
    for sender in HONEST[:20]:
        for nonce in range(3):
            assert siege.offer(wire(sender, nonce, tip=1 + 50 * nonce)) is None
    for sender in range(50):
        siege.offer(wire(sender, tip=40))
    assert siege.departed
    for sender in HONEST:
        nonces = [nonce for _, nonce in siege.waiting(sender)]
        assert nonces == list(range(len(nonces)))


def lane_hogs_fill_the_offer() -> None:
    """Each asks for a whole lane and uses next to nothing: a block has room for the first alone."""
    siege = Siege()
    for sender in range(5):
        for nonce in range(10):
            assert siege.offer(wire(sender, nonce, tip=TIP + 1, gas_limit=LANE)) is None
    for sender in HONEST[:10]:
        assert siege.offer(wire(sender)) is None
    assert len(siege.build().block.transactions) == 11


def lane_hogs_fill_the_offers_bytes(transition: type[Transition] = Transition) -> None:
    siege, large = Siege(), call(bytes(300_000), gas_limit=LANE)
    for sender in range(8):
        assert siege.offer(wire(sender, tip=TIP + 1, **large)) is None
    for sender in HONEST[:10]:
        assert siege.offer(wire(sender)) is None
    assert len(siege.build(transition).block.transactions) == 11


def a_full_lane_sets_senders_back(transition: type[Transition] = Transition) -> None:
    """Whoever has two waiting while the lane is full did nothing wrong, and keeps its turn."""
    siege, dear = Siege(), call(script(["burn", 998_000]), gas_limit=1_000_000)
    for sender in range(5):
        assert siege.offer(wire(sender, tip=TIP + 1, **dear)) is None
    for nonce in range(2):
        assert siege.offer(wire(HONEST[0], nonce, gas_limit=10_000)) is None
    built = siege.build(transition)
    assert len(built.block.transactions) == 5
    assert built.refused == ()


def bytes_that_nobody_pays_for() -> None:
    """A payload that its cells do not cover fails before it is looked at, and the block carries it for a base fee."""
    siege = Siege()
    free: list[dict[str, Any]] = [
        {"action": Call(ACTOR, "run", bytes(1_000_000)), "cells_limit": 999_999},
        {"action": Call(ACTOR, "run", b"x")},
        {"action": Deploy("x" * 16_000), "cells_limit": 15_999, "gas_limit": LANE},
        {"action": Deploy("x" * 16_000), "cells_limit": 16_000, "gas_limit": 1_000},
    ]
    refused = [siege.offer(wire(0, tip=99, **fields)) for fields in free]
    assert refused == [Refusal.CELLS_TOO_LOW] * 3 + [Refusal.GAS_TOO_LOW]
    paid: dict[str, Any] = {"action": Deploy("x" * 16_000), "cells_limit": 16_000, "gas_limit": LANE}
    assert [siege.offer(wire(0, **call(b"x"))), siege.offer(wire(1, **paid))] == [None, None]


# --- the planted faults -----------------------------------------------------------------------------------------------

PLACE: Final = Mempool._place


def place_without_its_depth(pool: Mempool, transaction: Transaction, sender: Any) -> Place:
    return PLACE(pool, transaction, sender)._replace(minus_ahead=0)


def place_by_its_tip_alone(pool: Mempool, transaction: Transaction, sender: Any) -> Place:
    return Place(True, True, transaction.max_priority_fee_per_cycle, 0)


def place_that_counts_like_one_that_runs(pool: Mempool, transaction: Transaction, sender: Any) -> Place:
    return PLACE(pool, transaction, sender)._replace(is_runnable=True)


def first_but(sender: Any, gone: Any) -> Any:
    staying = (one for _, one in sorted(sender.queue.items()) if one.prepared.hash not in gone)
    return next(staying, None)


class FormerSelection(Transition):
    """A builder that looks at the first candidates up to a block's bytes, and is set back by a full lane."""

    def select(self, candidates: Any, most: int, most_bytes: int) -> tuple[list[Any], tuple[Any, ...], Outcome]:
        self.start()
        taken: list[PreparedTransaction] = []
        refused: dict[Any, bool] = {}
        size = 0
        for prepared in takewhile(lambda _: len(taken) < most, candidates):
            size += len(prepared.wire)
            if size > most_bytes:
                break
            try:
                self.execute(prepared)
            except NotAdmitted as refusal:
                if refusal.name != "LaneFull":
                    refused.setdefault(prepared.transaction.sender, True)
            else:
                taken.append(prepared)
                refused[prepared.transaction.sender] = False
        return taken, tuple(sender for sender, is_refused in refused.items() if is_refused), self.finish()


class Case(NamedTuple):
    attack: Callable[..., None]
    limits: dict[str, int]
    """Beside :data:`LIMITS`."""
    plant: tuple[Any, str, Any] | type[Transition] | dict[str, int]
    """The fault: an attribute and its wrong value, a builder, or limits that are none."""


CASES: Final = [
    Case(one_sender_fills_the_pool, {}, {"max_nonces": 10**6}),
    Case(one_sender_fills_the_bytes, {"max_sender_bytes": 160_000}, {"max_sender_bytes": 10**9}),
    Case(sybils_at_the_going_tip, {}, (Mempool, "_place", place_without_its_depth)),
    Case(sybils_above_the_going_tip, {}, (Mempool, "_worst_below", lambda *_: None)),
    Case(nonce_gaps_crowd_out_what_can_run, {}, (Mempool, "_place", place_by_its_tip_alone)),
    Case(low_fee_limits_crowd_out_what_can_run, {}, (Mempool, "_place", place_by_its_tip_alone)),
    Case(
        small_gaps_keep_a_large_transaction_out,
        {"max_bytes": 180_000},
        (Mempool, "_place", place_that_counts_like_one_that_runs),
    ),
    Case(a_large_transaction_pushes_many_out, {"max_bytes": 180_000}, {"max_evictions": 10**6}),
    Case(replacement_churn, {}, (wires, "PRICE_BUMP_PERCENT", 0)),
    Case(fee_escalation, {}, {"near_nonces": 10**6}),
    Case(senders_that_cannot_pay, {}, (module, "_require_share", lambda *_: None)),
    Case(a_drained_sender_pushed_others_out, {}, (Mempool, "_recheck", lambda *_: [])),
    Case(early_nonces_are_pushed_out, {}, (module, "_last_but", first_but)),
    Case(lane_hogs_fill_the_offer, {}, (proposals, "MAX_CANDIDATES", 40)),
    Case(lane_hogs_fill_the_offers_bytes, {}, FormerSelection),
    Case(a_full_lane_sets_senders_back, {}, FormerSelection),
    Case(bytes_that_nobody_pays_for, {}, (module, "_first_charge", lambda *_: (1_000, 0))),
]


def named(case: Case) -> str:
    return case.attack.__name__.replace("_", " ")


def limit(monkeypatch: pytest.MonkeyPatch, **others: int) -> None:
    monkeypatch.setattr(Siege, "limits", PoolLimits(**{**LIMITS, **others}))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_mempool_withstands(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, **case.limits)
    case.attack()


@pytest.mark.parametrize("case", CASES, ids=named)
def test_without_its_rule_the_attack_is_seen(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, **case.limits)
    arguments: tuple[Any, ...] = ()
    match case.plant:
        case tuple() as change:
            monkeypatch.setattr(*change)
        case dict() as limits:
            limit(monkeypatch, **{**case.limits, **limits})
        case builder:
            arguments = (builder,)
    with pytest.raises(AssertionError):
        case.attack(*arguments)
