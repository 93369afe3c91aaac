"""The watch on promises names each one that is broken, and asks for nothing that could not be done."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.ledger import Ledger
from cluster.checks.run import check_run
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.run import LoadRecord, PromiseRecord
from cluster.scenario.model import LimitsSection
from cluster.watches import promise_watch
from cluster.watches.promise_watch import PromiseWatch
from tests.cluster.records import CHAIN_ID, FUNDS, OTHER, PRICE, USER, USER_ADDRESS, ChainMaker, make_record
from tests.cluster.watches.seen import make_machine
from validator.chain.messages import TransactionsMessage
from validator.chain.transactions import Transaction, Transfer, sign, transaction_hash
from validator.node.events import Run, TransactionDropped
from validator.node.executor.jobs import Build
from validator.node.mempool import Departure
from validator.primitives.params import Parameters
from validator.primitives.types import ZERO_HASH, Hash

LANE = Parameters().lane_user_cycles
TAKER = 1
"""Proposes the blocks of heights 1, 5, 9 …"""


class Bench:
    """A watch over four validators, and a chain that it is told of."""

    def __init__(self, **limits: int) -> None:
        self.maker = ChainMaker()
        self.ledger = Ledger(self.maker.genesis)
        names = [f"v{i}" for i in range(4)]
        self.watch = PromiseWatch(names, lambda: self.ledger, lambda: 7.0, LimitsSection(**limits))

    def offer(self, nonce: int = 0, **changes: Any) -> bytes:
        """The bytes of a transaction of the rich user."""
        fields: dict[str, Any] = {
            "sender": USER_ADDRESS,
            "nonce": nonce,
            "gas_limit": 30_000,
            "cells_limit": 100,
            "max_fee_per_cycle": 2 * PRICE,
            "max_priority_fee_per_cycle": 1,
            "max_fee_per_cell": 2 * PRICE,
            "action": Transfer(OTHER),
            "value": 5,
        }
        return sign(USER, CHAIN_ID, Transaction(**fields | changes))

    def take(self, wire: bytes, index: int = TAKER, life: int = 0, is_honest: bool = True) -> bytes:
        """A validator takes a transaction as it should; returns its hash."""
        digest = transaction_hash(wire)
        self.pass_on(wire, index=index)
        self.accept(wire, index=index, life=life, is_honest=is_honest)
        return digest

    def pass_on(self, *wires: bytes, index: int = TAKER, to: int | None = None) -> None:
        self.watch.sends(make_machine(index), to, b"", TransactionsMessage(wires))

    def accept(self, *wires: bytes, index: int = TAKER, life: int = 0, is_honest: bool = True) -> None:
        """A validator tells a client that it has taken transactions."""
        machine = make_machine(index, incarnation=life, byzantine=None if is_honest else "it is")
        machine.validator.node.height = self.ledger.height
        self.watch.takes(machine, {transaction_hash(wire): wire for wire in wires})

    def drop(self, digest: bytes, reason: str) -> None:
        self.watch.performs(make_machine(TAKER), TransactionDropped(Hash(digest), reason))

    def begin(self, index: int, view: int, life: int = 0) -> None:
        """A validator begins to build its block of a view."""
        self.watch.performs(make_machine(index, incarnation=life), Run(Build(view, ZERO_HASH, index, ())))

    def seal(self, life: int = 0, is_built: bool = True, **header: Any) -> None:
        """The next block is built and becomes final, with what was added to the chain."""
        height = self.maker.height
        if is_built:
            self.begin(height % 4, height, life)
        self.finish(**header)

    def finish(self, **header: Any) -> None:
        """The same, of one that was begun before."""
        record = self.maker.seal(**header)
        self.ledger.apply(record.block, record.receipts)
        for index in range(4):
            self.watch.finalizes(index, self.ledger.height, record.block)

    @property
    def told(self) -> list[str]:
        return self.watch.record().violations

    @property
    def counts(self) -> dict[str, int]:
        return self.watch.record().counts


def test_what_becomes_final_is_kept() -> None:
    bench = Bench()
    bench.maker.transfer(5)
    wire = bench.maker.wires[0]
    bench.take(wire)
    bench.take(wire, index=2)
    bench.seal()
    for _ in range(8):
        bench.seal()
    record = bench.watch.record()
    assert (record.violations, record.taken, record.final) == ([], 2, 2)
    assert record.counts == {"passed_on": 2, "kept": 2, "dropped": 0}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_block_of_a_view_long_after_the_final_one_has_no_room(is_late: bool) -> None:
    bench = Bench(max_held_blocks=9)
    bench.seal(view=5)
    height, view = bench.maker.height, 5 + 9 + is_late
    bench.take(bench.offer(), height % 4)
    bench.begin(height % 4, view)
    bench.finish(view=view)
    assert len(bench.told) == (not is_late)


def test_what_the_taker_leaves_out_of_its_block_breaks_its_promise_once() -> None:
    bench = Bench()
    digest = bench.take(bench.offer())
    for _ in range(9):
        bench.seal()
    assert bench.told == [
        f"7 ms: kept: v1 took transaction {digest.hex()[:16]} from a client and left it out of its block of height 1,"
        " in which it could have run"
    ]
    assert bench.counts["kept"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": 1},
        {"max_fee_per_cycle": PRICE - 1, "max_priority_fee_per_cycle": 0},
        {"max_fee_per_cell": PRICE - 1},
        {"value": FUNDS},
        {"gas_limit": LANE + 1},
        {"cells_limit": Parameters().lane_user_cells + 1},
        {"gas_limit": 1},
    ],
    ids=["nonce", "cycle", "cell", "funds", "cycles", "cells", "gas"],
)
def test_what_could_not_have_run_waits(changes: dict[str, Any]) -> None:
    bench = Bench()
    bench.take(bench.offer(**changes))
    bench.seal()
    assert bench.told == []


def test_room_is_what_the_block_left_and_money_what_its_own_transactions_left() -> None:
    for more, is_due in ((0, True), (1, False)):
        bench = Bench()
        left = LANE - bench.maker.transfer(5).cycles
        bench.take(bench.maker.wires[0])
        bench.take(bench.offer(1, max_fee_per_cycle=PRICE, gas_limit=left + more))
        bench.seal()
        assert bool(bench.told) is is_due
    most = (6_000 + 200) * 2 * PRICE + 5
    last = 30_000 * 2 * PRICE + 100 * 2 * PRICE
    for value, is_due in ((FUNDS - most - last, True), (FUNDS - most - last + 1, False)):
        bench = Bench()
        bench.maker.transfer(5, gas_limit=6_000, cells_limit=200)
        bench.take(bench.maker.wires[0])
        bench.take(bench.offer(1, value=value))
        bench.seal()
        assert bool(bench.told) is is_due


def test_only_blocks_that_were_begun_later_in_the_same_life_count() -> None:
    early = Bench()
    early.begin(TAKER, 1)
    early.take(early.offer())
    early.finish()
    assert early.told == []
    restarted = Bench()
    restarted.take(restarted.offer())
    restarted.seal(life=1)
    assert restarted.told == []
    others = Bench()
    others.take(others.offer(), index=2)
    others.seal()
    assert others.told == []
    unknown = Bench()
    unknown.take(unknown.offer())
    unknown.seal(is_built=False)
    assert unknown.told == []


def test_who_is_not_to_be_honest_promises_nothing() -> None:
    bench = Bench()
    wire = bench.offer()
    bench.accept(wire, is_honest=False)
    bench.seal()
    assert bench.told == []
    assert bench.watch.record().taken == 0


def test_a_spent_nonce_is_no_promise() -> None:
    bench = Bench()
    bench.maker.transfer(5)
    wire = bench.maker.wires[0]
    bench.seal()
    bench.take(wire)
    assert bench.watch.record().taken == 0


def test_more_than_a_mempool_offers_may_leave_something_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promise_watch, "MAX_CANDIDATES", 1)
    bench = Bench()
    bench.take(bench.offer())
    bench.take(bench.offer(1))
    bench.seal()
    assert bench.told == []


@pytest.mark.parametrize("is_sent_to_one", [False, True])
def test_what_is_not_sent_to_all_others_is_told(is_sent_to_one: bool) -> None:
    bench = Bench()
    wire = bench.offer()
    if is_sent_to_one:
        bench.pass_on(wire, to=0)
    bench.accept(wire)
    assert len(bench.told) == bench.counts["passed_on"] == 1
    assert bench.told[0].endswith("from a client and did not send it to all others")


# --- dropped ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [*Departure, "bored"])
def test_a_transaction_that_is_dropped_for_no_reason_is_told(reason: str) -> None:
    bench = Bench()
    bench.drop(bench.take(bench.offer(1)), reason)
    bench.seal()
    assert len(bench.told) == bench.counts["dropped"] == 1
    assert bench.told[0].endswith(f"from a client and dropped it as {reason}, of which nothing shows")


def test_reasons_that_show() -> None:
    bench = Bench(max_transactions=5)
    bench.maker.transfer(5)
    bench.drop(bench.take(bench.offer()), Departure.STALE_NONCE)
    bench.drop(bench.take(bench.offer(2)), Departure.REPLACED)
    bench.take(bench.offer(2, max_priority_fee_per_cycle=9), index=2)
    bench.seal()
    assert (bench.told, bench.counts["dropped"]) == ([], 2)
    bench.drop(bench.take(bench.offer(3, value=FUNDS)), Departure.UNAFFORDABLE)
    bench.drop(bench.take(bench.offer(4)), Departure.EVICTED)
    bench.seal()
    assert (bench.told, bench.counts["dropped"]) == ([], 4)


@pytest.mark.parametrize(("heights", "is_told"), [(3, True), (4, False)])
def test_expired_is_what_waited_for_long(heights: int, is_told: bool) -> None:
    bench = Bench(max_blocks_waiting=3)
    digest = bench.take(bench.offer(7))
    for height in range(1, heights + 1):
        if height == heights:
            bench.drop(digest, Departure.EXPIRED)
        bench.seal()
    assert bool(bench.told) is is_told


@pytest.mark.parametrize("replaces", [True, False])
def test_a_transaction_may_be_replaced_before_its_client_hears_that_it_was_taken(replaces: bool) -> None:
    bench = Bench()
    first = bench.offer(5)
    second = bench.offer(5 if replaces else 6, max_fee_per_cycle=4 * PRICE)
    bench.pass_on(first, second)
    bench.drop(transaction_hash(first), Departure.REPLACED)
    bench.accept(first, second)
    bench.seal()
    assert len(bench.told) == (0 if replaces else 1), "another one with its nonce must have been taken"
    assert bench.counts["dropped"] == 1


@pytest.mark.parametrize("is_sent", [True, False])
def test_what_was_dropped_before_the_request_counts_no_more(is_sent: bool) -> None:
    bench = Bench()
    wire = bench.offer(0)
    if is_sent:
        bench.pass_on(wire)
    bench.drop(transaction_hash(wire), Departure.REPLACED)
    if is_sent:
        bench.take(bench.offer(9))  # the answer to the request that it was in
    bench.take(wire)
    while bench.maker.height % 4 != TAKER:
        bench.seal()
    bench.seal()
    assert [text.partition("client ")[2][:8] for text in bench.told] == ["and left"]


# --- the check --------------------------------------------------------------------------------------------------------


def judged(violations: list[str], taken: int, final: int, sent: int = 9) -> Check:
    record = make_record()
    counts = {"passed_on": taken, "kept": final, "dropped": 0}
    record.promises = PromiseRecord(violations, counts, taken, final)
    record.load = LoadRecord(transactions_sent=sent)
    return check_run(record).check("promises")


def test_the_check_says_what_the_watch_saw() -> None:
    passed = judged([], 7, 5)
    assert (passed.verdict, passed.detail) == (
        Outcome.PASS,
        "7 transactions taken, of which 5 became final; passed_on 7, kept 5, dropped 0",
    )
    failed = judged(["7 ms: kept: v1 took …"], 7, 5)
    assert (failed.verdict, failed.detail) == (Outcome.FAIL, "7 ms: kept: v1 took …")
    assert judged([], 7, 0).verdict is Outcome.INCONCLUSIVE
    assert judged([], 0, 0).verdict is Outcome.INCONCLUSIVE
    assert not judged([], 0, 0, sent=0).applies
    assert not check_run(make_record()).check("promises").applies


def test_rules_that_were_never_looked_at_prove_nothing() -> None:
    record = make_record()
    record.load = LoadRecord(transactions_sent=9)
    record.promises = PromiseRecord([], {"passed_on": 0, "kept": 3, "dropped": 0}, 3, 3)
    assert "promises: passed_on 0 times of 1" in check_run(record).check("coverage").detail
    record.promises = PromiseRecord([], {"passed_on": 3, "kept": 3, "dropped": 0}, 3, 3)
    assert check_run(record).check("coverage").verdict is Outcome.PASS


@pytest.mark.parametrize("is_honest", [True, False])
def test_what_no_block_may_have_is_not_to_be_taken(is_honest: bool) -> None:
    bench = Bench()
    bench.take(b"noise", is_honest=is_honest)
    found = [text.endswith("from a client that no block may have") for text in bench.watch.violations]
    assert found == [True] * is_honest
