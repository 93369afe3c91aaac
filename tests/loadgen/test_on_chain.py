"""The workloads on a real chain of one validator: what they cost there, and that they do what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.disks.memory import MemoryDisk
from loadgen.workloads import LoadPlan, LoadUser, Observation
from loadgen.workloads.actor_program import source_of
from validator.chain.block import BlockReceipts, FireReceipt, TransactionReceipt
from validator.chain.genesis import Genesis
from validator.chain.transactions import Call, System, Transaction, parse
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import AccountsRead, Build, Built, Finalize, Finalized, ReadAccounts
from validator.node.mempool import Mempool
from validator.primitives.codec import decode
from validator.primitives.params import DEFAULTS, Parameters
from validator.primitives.types import Hash

CHAIN_ID = "chain"
SEED = 5
BLOCKS = 60
TURN_EVERY = 2
"""Blocks between two turns of each user."""


class Chain:
    """One validator that makes every block final at once."""

    def __init__(self, plan: LoadPlan, parameters: Parameters = DEFAULTS) -> None:
        genesis = Genesis(
            chain_id=CHAIN_ID,
            validators=(bytes(32),),
            parameters=parameters,
            accounts=plan.genesis_accounts(SEED),
            actors=plan.genesis_actors(SEED),
            system_deployers=tuple(plan.genesis_deployers(SEED)),
        )
        self.executor = Executor(MemoryDisk(), genesis)
        self.mempool = Mempool(genesis)

    def observation(self, user: LoadUser) -> Observation:
        header = self.executor.final_header
        return Observation(
            header.height,
            self.executor.pages.account(user.address)["nonce"],
            int.from_bytes(header.basefee_cycle, "big"),
            int.from_bytes(header.basefee_cell, "big"),
            int.from_bytes(header.basefee_lane_timer, "big"),
            live_timers=self.executor.pages.account(user.actor)["live_timers"],
        )

    def offer(self, wire: bytes) -> Hash:
        """The mempool must take it."""
        prepared = self.mempool.check(wire)
        read = self.executor.run(ReadAccounts((prepared.transaction.sender,)))
        assert isinstance(read, AccountsRead)
        self.mempool.add(prepared, read.accounts[prepared.transaction.sender])
        return prepared.hash

    def make_block(self) -> BlockReceipts:
        view = self.executor.final_header.view + 1
        built = self.executor.run(Build(view, self.executor.final_digest, 0, self.mempool.candidates(2_048)))
        assert isinstance(built, Built)
        final = self.executor.run(Finalize(built.digest, b""))
        assert isinstance(final, Finalized)
        self.mempool.settle(final.header, final.transactions, final.accounts)
        archived = self.executor.archive.get(final.header.height)
        assert archived is not None
        return decode(archived.receipts, BlockReceipts)


class Played:
    """What became of a load."""

    def __init__(self, plan: LoadPlan) -> None:
        chain = Chain(plan)
        self.users = plan.build_users(SEED, CHAIN_ID)
        self.sent: dict[bytes, Transaction] = {}
        self.transactions: list[TransactionReceipt] = []
        self.fires: list[FireReceipt] = []
        self.late = 0
        """Fires after their trigger height."""
        self.ends: Counter[str] = Counter()
        for number in range(BLOCKS):
            if number % TURN_EVERY == 0:
                for user in self.users:
                    self._take_turn(user, chain)
            receipts = chain.make_block()
            self.transactions += receipts.transactions
            self.fires += receipts.fires
            self.late += sum(fire.trigger_height < receipts.height for fire in receipts.fires)
            self.ends += Counter(destroyed.reason for destroyed in receipts.destroyed)
        self.unconfirmed = sum(len(user._sent) for user in self.users)

    def _take_turn(self, user: LoadUser, chain: Chain) -> None:
        for wire in user.next_transactions(chain.observation(user)):
            transaction = parse(wire, CHAIN_ID)
            self.sent[chain.offer(wire)] = transaction

    def receipts(self) -> Iterator[tuple[Transaction, TransactionReceipt]]:
        for receipt in self.transactions:
            yield self.sent[receipt.transaction_hash], receipt

    def caught(self) -> Counter[str]:
        events = [event for receipt in self.transactions for event in receipt.effects.events]
        return Counter(dict(event.fields)["error"] for event in events if event.name == "ScriptCaught")


@pytest.fixture(scope="module")
def easy() -> Played:
    """Users of every kind that the lane has room for."""
    workloads = ("heartbeat", "flood", "churn", "transfer")
    return Played(LoadPlan.model_validate({"users": [{"workload": name, "count": 3} for name in workloads]}))


@pytest.fixture(scope="module")
def hard() -> Played:
    """More timers than the lane has room for."""
    options = {"timers": 100, "burn": 40_000, "spread_blocks": 6}
    users = [{"workload": "flood", "count": 3, "options": options}, {"workload": "heartbeat", "count": 2}]
    return Played(LoadPlan.model_validate({"users": users}))


def test_limits_are_exactly_the_cost(easy: Played) -> None:
    assert len(easy.transactions) == BLOCKS // TURN_EVERY * len(easy.users)
    for transaction, receipt in easy.receipts():
        assert (receipt.ok, receipt.error) == (True, "")
        assert (receipt.cycles, receipt.cells) == (transaction.gas_limit, transaction.cells_limit)


def test_every_timer_is_taken_and_gets_through(easy: Played) -> None:
    assert not easy.caught() and not easy.ends and not easy.late
    assert len(easy.fires) > 1_000
    assert all(fire.ok for fire in easy.fires)


def test_every_kind_of_change_and_payer_is_there(easy: Played) -> None:
    changes = Counter(
        type(change).__name__ for receipt in easy.transactions for change in receipt.effects.timer_changes
    )
    assert changes["Cancelled"] > 100 and changes["Extended"] > 100
    payers = Counter(fire.fee_payer == fire.actor for fire in easy.fires)
    assert payers[True] > 1_000 and payers[False] > 100
    assert sum(len(receipt.effects.movements) for receipt in easy.transactions) >= BLOCKS // TURN_EVERY * 3


def test_nothing_is_left_behind(easy: Played) -> None:
    assert easy.unconfirmed <= len(easy.users)


def test_a_crowded_lane_defers_and_most_still_succeeds(hard: Played) -> None:
    scheduled = sum(len(receipt.effects.scheduled) for receipt in hard.transactions)
    assert all(receipt.ok for receipt in hard.transactions)
    assert sum(hard.caught().values()) < scheduled // 10
    assert all(fire.ok for fire in hard.fires)
    assert hard.late > 100
    assert scheduled - len(hard.fires) > 1_000


@pytest.fixture(scope="module")
def governed() -> Played:
    """A user that governs beside one that does not, and so finds nothing but what the genesis says."""
    deploys = ["token", {"name": "mine", "source": source_of("heartbeat")}]
    governance = {"workload": "governance", "options": {"deploys": deploys, "refused_percent": 25}}
    return Played(LoadPlan.model_validate({"users": [governance, {"workload": "heartbeat"}]}))


def test_governance_does_what_it_is_for(governed: Played) -> None:
    """Each instruction is done, but for the changes that are to be refused."""
    done = Counter((_kind_of(transaction), receipt.error) for transaction, receipt in governed.receipts())
    turns = BLOCKS // TURN_EVERY
    assert done["deploy", ""] == 2 * turns, "a script actor and a program a turn"
    assert done["UpdateTimerConfig", ""] + done["UpdateTimerConfig", "ConfigInvalid"] == turns
    assert done["UpdateTimerConfig", "ConfigInvalid"] > 2
    assert done["CancelTimer", ""] + done["ExtendTimer", ""] == 4 * (turns - 1)
    assert {error for _, error in done} == {"", "ConfigInvalid"}, "no timer that is not found, no cycles too few"
    changes = Counter(
        type(change).__name__ for receipt in governed.transactions for change in receipt.effects.timer_changes
    )
    assert changes["Cancelled"] == done["CancelTimer", ""] > 20, "every cancelled one was there"
    assert changes["Extended"] == done["ExtendTimer", ""] > 20
    assert len({receipt.created for receipt in governed.transactions if receipt.created}) == 2 * turns


def _kind_of(transaction: Transaction) -> str:
    action = transaction.action
    return type(action.instruction).__name__ if isinstance(action, System) else transaction.kind


def test_only_those_that_govern_may(governed: Played) -> None:
    governor, other = governed.users
    plan = LoadPlan.model_validate({"users": [{"workload": "governance"}, {"workload": "heartbeat"}]})
    assert plan.genesis_deployers(SEED) == [governor.address] != [other.address]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"configs": [{"SCAN_LIMIT": 5}]}, "[0]: SCAN_LIMIT is not governed; known: FAIRNESS_WINDOW_BLOCKS, "),
        ({"configs": [{}, {"MAX_TTL": 0}]}, "[1]: MAX_TTL: 0 is out of range, expected 1 to 1000000000"),
        ({"deploys": ["tokn"]}, "unknown program 'tokn'; known: bidding_agent, escrow, "),
    ],
)
def test_what_governance_cannot_do_is_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        LoadPlan.model_validate({"users": [{"workload": "governance", "options": options}]})
    assert line in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(("lane", "payload_bytes"), [(1_000_000, 999_805), (1_100_000, 1_048_576)])
def test_payload_abuse_reaches_a_mebibyte_if_the_lane_is_wide_enough(lane: int, payload_bytes: int) -> None:
    parameters = Parameters.from_names({"LANE_USER_CELLS": lane})
    plan = LoadPlan.model_validate({"users": [{"workload": "payload-abuse", "options": {"ahead_blocks": 3}}]})
    chain = Chain(plan, parameters)
    (user,) = plan.build_users(SEED, CHAIN_ID, parameters)
    chain.make_block()
    (wire,) = user.next_transactions(chain.observation(user))
    chain.offer(wire)
    action = parse(wire, CHAIN_ID).action
    assert isinstance(action, Call)
    (sent,) = chain.make_block().transactions
    assert sent.error == "" and sent.cells == len(action.payload) + payload_bytes
    fires = [fire for _ in range(4) for fire in chain.make_block().fires]
    assert [fire.error for fire in fires] == [""], "it is read when it fires"
