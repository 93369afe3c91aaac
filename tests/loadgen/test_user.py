"""A load user's nonces, against mempools that reject, lose and forget."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.workloads import FUNDING, Intent, LoadPlan, LoadUser, Member, Observation, Options, Workload
from loadgen.workloads.base import Terms
from loadgen.workloads.measures import Sends, WorkloadSends, send_key
from loadgen.workloads.user import MAX_UNCONFIRMED, STALL_BLOCKS
from validator.chain.genesis import Genesis
from validator.chain.records import Account
from validator.chain.transactions import Transaction, Transfer, parse
from validator.node.limits import DEFAULT_POOL_LIMITS
from validator.node.mempool import Mempool

CHAIN_ID = "chain"
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000)


@pytest.fixture
def user() -> LoadUser:
    return new_user()


def new_user() -> LoadUser:
    return LoadPlan.model_validate({"users": [{"workload": "transfer"}]}).build_users(3, CHAIN_ID)[0]


def turn(user: LoadUser, observation: Observation) -> list[bytes]:
    return user.next_transactions(observation)


def nonces(wires: list[bytes]) -> list[int]:
    return [parse(wire, CHAIN_ID).nonce for wire in wires]


def test_nonces_run_on_while_nothing_is_confirmed_up_to_a_bound(user: LoadUser) -> None:
    wires = [wire for _ in range(MAX_UNCONFIRMED + 5) for wire in turn(user, START)]
    assert nonces(wires) == list(range(MAX_UNCONFIRMED))
    assert len(user._sent) == MAX_UNCONFIRMED
    assert nonces(turn(user, replace(START, confirmed_nonce=3))) == [MAX_UNCONFIRMED]
    assert len(user._sent) == MAX_UNCONFIRMED - 2


def test_what_a_user_has_under_way_fits_into_the_places_that_a_full_mempool_keeps_for_it() -> None:
    assert DEFAULT_POOL_LIMITS.near_nonces >= MAX_UNCONFIRMED


def test_a_user_that_starts_late_takes_up_the_accounts_nonce(user: LoadUser) -> None:
    assert nonces(turn(user, replace(START, confirmed_nonce=41))) == [41]


def test_an_observation_that_lags_is_harmless(user: LoadUser) -> None:
    turn(user, replace(START, height=9, confirmed_nonce=5))
    assert nonces(turn(user, replace(START, height=4, confirmed_nonce=2))) == [6]


def test_a_rejected_transaction_gives_its_nonce_back(user: LoadUser) -> None:
    wires = [turn(user, START)[0] for _ in range(4)]
    user.rejected(wires[2])
    assert nonces(turn(user, START)) == [2]
    assert nonces(turn(user, START)) == [3]
    user.rejected(b"not ours")
    assert nonces(turn(user, START)) == [4]


def test_what_may_not_have_arrived_is_sent_again_before_anything_new(user: LoadUser) -> None:
    wires = [turn(user, START)[0] for _ in range(3)]
    user.undelivered(wires[1:])
    assert turn(user, START) == wires[1:]
    assert nonces(turn(user, START)) == [3]


def test_one_sent_again_may_be_refused_once_as_known(user: LoadUser) -> None:
    (wire,) = turn(user, START)
    user.undelivered([wire])
    assert turn(user, START) == [wire]
    user.rejected(wire)
    assert nonces(turn(user, START)) == [1]
    user.rejected(wire)
    assert nonces(turn(user, START)) == [0]


def test_a_stalled_account_gets_everything_again(user: LoadUser) -> None:
    wires = [turn(user, START)[0] for _ in range(3)]
    before = replace(START, height=STALL_BLOCKS)
    assert nonces(turn(user, before)) == [3]
    stalled = replace(START, height=STALL_BLOCKS + 1, confirmed_nonce=0)
    assert turn(user, stalled)[:3] == wires
    assert nonces(turn(user, stalled)) == [4]
    assert nonces(turn(user, replace(stalled, height=2 * STALL_BLOCKS + 1, confirmed_nonce=1))) == [5]


@pytest.mark.parametrize("fee", ["basefee_cycle", "basefee_cell"])
def test_what_basefees_have_outgrown_is_signed_anew_and_takes_the_former_ones_place(user: LoadUser, fee: str) -> None:
    (wire,) = turn(user, START)
    user.undelivered([wire])
    fees: dict[str, Any] = {"basefee_cycle": START.basefee_cycle // 2, fee: 10 * START.basefee_cycle}
    risen = replace(START, **fees)
    (again,) = turn(user, risen)
    old, new = parse(wire, CHAIN_ID), parse(again, CHAIN_ID)
    assert (new.nonce, new.action, new.value) == (old.nonce, old.action, old.value)
    assert new.max_fee_per_cycle > risen.basefee_cycle and new.max_fee_per_cell > risen.basefee_cell
    pool = Mempool(Genesis(CHAIN_ID, ()))
    assert pool.add(pool.check(wire), Account(FUNDING)) == []
    assert [departed.reason for departed in pool.add(pool.check(again), Account(FUNDING))] == ["replaced"]


class Misbehaving(Workload[Options]):
    """Sends what it is given."""

    name = "misbehaving"
    options_type = Options

    def __init__(self, member: Member) -> None:
        super().__init__(Options(), member)
        self.next: list[Intent] = []
        self.lost: list[Intent] = []

    def intents(self, observation: Observation) -> list[Intent]:
        return self.next

    def dropped(self, intent: Intent) -> None:
        self.lost.append(intent)


def test_terms_of_a_workload_are_signed_as_they_stand_and_forgotten() -> None:
    user = new_user()
    workload = user._workload = Misbehaving(user._workload.member)
    usual = Intent(Transfer(user.address), 1_000, 0)
    stated = replace(usual, terms=Terms(41, 7, 5, 3))
    workload.next = [usual, stated, usual]
    wires = turn(user, START)
    assert nonces(wires) == [0, 41, 1], "the user's own nonces do not move"
    sent = parse(wires[1], CHAIN_ID)
    assert (sent.max_fee_per_cycle, sent.max_priority_fee_per_cycle, sent.max_fee_per_cell) == (7, 5, 3)
    user.rejected(wires[1])
    user.undelivered(wires)
    workload.next = []
    assert turn(user, START) == [wires[0], wires[2]], "it is not sent again"
    assert not workload.lost


def stated(*numbers: int) -> list[Intent]:
    """Payments with nonces that their workload states."""
    address = new_user().address
    return [Intent(Transfer(address), 1_000, 0, terms=Terms(nonce, 7, 5, 3)) for nonce in numbers]


def measured_user() -> tuple[LoadUser, Misbehaving, WorkloadSends, dict[str, int]]:
    """A user, its workload, what is noted of it, and the nonces that are found by key."""
    user, sends = new_user(), Sends(workloads={"misbehaving": WorkloadSends()})
    workload = user._workload = Misbehaving(user._workload.member)
    user.measure(sends, "misbehaving", 0)
    keys = {send_key(bytes(user._key.verify_key), nonce): nonce for nonce in range(64)}
    return user, workload, sends.workloads["misbehaving"], keys


def test_stated_nonces_are_measured_as_they_are_signed() -> None:
    user, workload, found, keys = measured_user()
    usual = Intent(Transfer(user.address), 1_000, 0)
    workload.next = [*stated(41, 43), usual]
    wires = user.next_transactions(START, 100)
    workload.next = [*stated(45), usual]
    wires += user.next_transactions(START, 200)
    assert nonces(wires) == [41, 43, 0, 45, 1]
    assert {keys[key]: due for key, due in found.due.items()} == {41: 100, 43: 100, 0: 100, 45: 200, 1: 200}
    assert found.sent == 5


def test_a_refused_stated_transaction_counts_as_rejected() -> None:
    user, workload, found, keys = measured_user()
    workload.next = stated(41, 43)
    wires = user.next_transactions(START, 100)
    user.rejected(wires[0])
    user.rejected(wires[0])
    assert (found.rejected, [keys[key] for key in found.due]) == (1, [43])
    workload.next = []
    user.next_transactions(START, 200)
    user.rejected(wires[1])
    assert found.rejected == 1, "it was answered before the user was asked again"


def test_a_replaced_nonce_is_measured_once_and_from_its_first_transaction() -> None:
    user, workload, found, keys = measured_user()
    first, again = stated(41, 41)
    workload.next = [first, replace(again, value=1)]
    wires = user.next_transactions(START, 100)
    user.rejected(wires[0])
    assert (found.rejected, [keys[key] for key in found.due]) == (1, [41]), "the other one may become final"
    workload.next = [replace(again, value=2)]
    wires = user.next_transactions(START, 200)
    user.rejected(wires[0])
    assert (found.sent, found.rejected, list(found.due.values())) == (3, 2, [100]), "the former one still waits"


def test_a_nonce_all_of_whose_transactions_are_refused_is_not_waited_for() -> None:
    user, workload, found, _ = measured_user()
    first, again = stated(41, 41)
    workload.next = [first, replace(again, value=1)]
    for wire in user.next_transactions(START, 100):
        user.rejected(wire)
    assert (found.sent, found.rejected, found.due) == (2, 2, {})


class RoughMempool:
    """Takes, refuses, loses and forgets at random; confirms in nonce order what it holds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rough = True
        self.held: dict[int, Transaction] = {}
        self.confirmed = 0
        self.height = 1

    def deliver(self, user: LoadUser, wires: list[bytes]) -> None:
        for wire in wires:
            fate = self.random.randrange(8) if self.rough else 7
            if fate == 0:
                user.undelivered([wire])
            elif fate == 1:
                self._take(wire)
                user.undelivered([wire])
            elif fate == 2 or not self._take(wire):
                user.rejected(wire)

    def _take(self, wire: bytes) -> bool:
        transaction = parse(wire, CHAIN_ID)
        known = transaction.nonce < self.confirmed or transaction.nonce in self.held
        if not known:
            self.held[transaction.nonce] = transaction
        return not known

    def make_block(self) -> None:
        self.height += 1
        if self.rough and self.random.randrange(4) == 0:
            self.held.clear()
        while self.confirmed in self.held:
            del self.held[self.confirmed]
            self.confirmed += 1

    def observation(self) -> Observation:
        lag = self.random.randrange(2) if self.rough else 0
        return replace(START, height=max(1, self.height - lag), confirmed_nonce=max(0, self.confirmed - lag))


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_a_user_recovers_from_whatever_happened(random: Random, rough_turns: int) -> None:
    user, mempool = new_user(), RoughMempool(random)
    for _ in range(rough_turns):
        mempool.deliver(user, turn(user, mempool.observation()))
        mempool.make_block()
    mempool.rough = False
    before = mempool.confirmed
    for _ in range(4 * STALL_BLOCKS):
        mempool.deliver(user, turn(user, mempool.observation()))
        mempool.make_block()
    assert mempool.confirmed >= before + STALL_BLOCKS
    assert len(user._sent) <= MAX_UNCONFIRMED
