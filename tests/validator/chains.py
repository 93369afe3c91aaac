"""A chain in memory without consensus and signatures: what tests of the transition stand on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nacl.signing import SigningKey

from cluster.disks.memory import MemoryDisk
from validator.chain.block import FireReceipt, TransactionReceipt
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, Policy
from validator.chain.records import ACCOUNT, TIMER, Account, Globals, Timer, decode_record, supply_key
from validator.chain.transactions import Action, Call, Instruction, System, Transaction, Transfer, address_of
from validator.primitives.codec import tagged_hash
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Height
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, View
from validator.state.working_set import World
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, NotAdmitted, Outcome, PreparedTransaction, Transition

CHAIN_ID = "test-chain"
KEYS = tuple(SigningKey(bytes([i + 1]) * 32) for i in range(4))
"""Of the users."""
USERS = tuple(address_of(bytes(key.verify_key)) for key in KEYS)
VALIDATOR_KEYS = tuple(SigningKey(bytes([i + 101]) * 32) for i in range(4))
PROPOSER = Address(b"\xcc" * 20)
ACTORS = tuple(Address(bytes([0xA0 + i]) * 20) for i in range(4))
ALICE, BOB = USERS[:2]
ACTOR, OTHER = ACTORS[:2]
RICH = 10**18
PRICE = 1_000_000
"""Every basefee at the start, where a test does not say otherwise."""

SMALL: dict[str, int] = {
    "LANE_TIMER_CYCLES": 20_000,
    "MAX_CYCLES_PER_FIRE": 8_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000,
    "MAX_CELLS_PER_FIRE": 500,
    "SCAN_LIMIT": 5,
    "TIMER_GC_CYCLES": 2_400,
    "LANE_TIMER_CELLS": 800,
}
"""Lanes so small that a handful of timers meets every limit."""


def make_genesis(
    params: Mapping[str, Any] | None = None,
    preset: str | None = None,
    accounts: Mapping[Address, int] | None = None,
    actors: Mapping[Address, int] | None = None,
    agents: Mapping[Address, GenesisAgent] | None = None,
    policy: Policy = Policy.CIP1,
    system_deployers: tuple[Address, ...] = (),
    deployers: Mapping[Address, Address] | None = None,
) -> Genesis:
    """Two rich users and two rich actors, unless said otherwise. ``agents`` are those actors' gas bidding agents.

    ``deployers``: the deployers of actors that another one than Alice deployed.
    """
    accounts = {ALICE: RICH, BOB: RICH} if accounts is None else accounts
    actors = {ACTOR: RICH, OTHER: RICH} if actors is None else actors
    return Genesis(
        chain_id=CHAIN_ID,
        validators=tuple(bytes(key.verify_key) for key in VALIDATOR_KEYS),
        parameters=Parameters.from_names(params or {}, preset),
        accounts=dict(accounts),
        actors={
            address: GenesisActor(
                "builtin:script", (deployers or {}).get(address, ALICE), balance, (agents or {}).get(address)
            )
            for address, balance in actors.items()
        },
        policy=policy,
        preset=preset,
        system_deployers=system_deployers,
    )


def prepare(transaction: Transaction, salt: int = 0) -> PreparedTransaction:
    """A transaction as if it had come signed over the wire."""
    return PreparedTransaction(tagged_hash(b"test", f"{salt} {transaction}".encode()), b"", transaction)


def script(*operations: Any) -> bytes:
    """A payload for ``builtin:script``."""
    return json.dumps(list(operations), separators=(",", ":")).encode()


def schedule(delay: int, *operations: Any, **fields: Any) -> list[Any]:
    """The operation that schedules a script in ``delay`` blocks."""
    return ["schedule", {"in": delay, "payload": list(operations), **fields}]


@dataclass
class Chain:
    """Applies one block after the other, and reads the state."""

    genesis: Genesis = field(default_factory=make_genesis)
    transition: type[Transition] = Transition
    outcome: Outcome | None = None
    blocks: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = LogStateStore.open(MemoryDisk())
        self.view: View = store.final.derive(Height(0), genesis_batch(self.genesis))
        self.index = SchedulerIndex.rebuild(self.genesis, self.view)
        self.nonces: dict[Address, int] = {}

    @property
    def height(self) -> int:
        return self.view.height

    @property
    def parameters(self) -> Parameters:
        return self.genesis.parameters

    def payload_of(self, timer: Timer) -> bytes:
        """What a live timer brings along."""
        return World(self.view).payload_of(timer)

    def block(self, *transactions: Transaction) -> Outcome:
        """Apply the next block; it counts only where nothing is raised."""
        context = BlockContext(Height(self.height + 1), PROPOSER, self.genesis, explains=True)
        prepared = [prepare(transaction, salt) for salt, transaction in enumerate(transactions)]
        try:
            outcome = self.transition(self.view, self.index, context).apply(prepared)
        except NotAdmitted:
            self.index.abandon()
            raise
        for transaction in transactions:
            self.nonces[transaction.sender] = transaction.nonce + 1
        return self._extend(outcome)

    def offer(self, *transactions: Transaction) -> tuple[list[str], Outcome]:
        """Apply the next block with those that are admitted; each one's refusal, empty where there is none."""
        context = BlockContext(Height(self.height + 1), PROPOSER, self.genesis, explains=True)
        block = self.transition(self.view, self.index, context)
        block.start()
        refusals = []
        for salt, transaction in enumerate(transactions):
            try:
                block.execute(prepare(transaction, salt))
            except NotAdmitted as refusal:
                refusals.append(refusal.name)
            else:
                refusals.append("")
                self.nonces[transaction.sender] = transaction.nonce + 1
        return refusals, self._extend(block.finish())

    def _extend(self, outcome: Outcome) -> Outcome:
        self.index.advance(outcome.changes)
        self.view, self.outcome = outcome.view, outcome
        self.blocks.append(outcome)
        return outcome

    def empty(self, count: int) -> Outcome:
        """Apply so many empty blocks; the last one's outcome."""
        return [self.block() for _ in range(count)][-1]

    def run(self, *operations: Any, actor: Address = ACTOR, **fields: Any) -> TransactionReceipt:
        """Apply a block with one call of a script; its receipt."""
        return self.block(self.call(*operations, actor=actor, **fields)).receipts.transactions[0]

    def call(self, *operations: Any, actor: Address = ACTOR, **fields: Any) -> Transaction:
        return self.transaction(Call(actor, "run", script(*operations)), **fields)

    def system(self, instruction: Instruction, **fields: Any) -> Transaction:
        return self.transaction(System(instruction), **fields)

    def transfer(self, to: Address, value: int, **fields: Any) -> Transaction:
        return self.transaction(Transfer(to), value=value, **fields)

    def transaction(self, action: Action, sender: Address = ALICE, **fields: Any) -> Transaction:
        """A transaction with the sender's next nonce and room in every limit."""
        given: dict[str, Any] = {
            "nonce": self.nonces.get(sender, 0),
            "gas_limit": 200_000,
            "cells_limit": 20_000,
            "max_fee_per_cycle": 10**9,
            "max_priority_fee_per_cycle": 0,
            "max_fee_per_cell": 10**9,
        }
        return Transaction(sender=sender, action=action, **{**given, **fields})

    # --- reading --------------------------------------------------------------------------------------------------

    def world(self) -> World:
        return World(self.view)

    @property
    def globals(self) -> Globals:
        return self.world().globals

    def balance(self, address: Address) -> int:
        return self.world().balance(address)

    def timers(self) -> list[Timer]:
        """Live timers by ``(trigger_height, seq)``."""
        timers: list[Timer] = [decode_record(key, value) for key, value in self.view.scan(TIMER)]
        return sorted(timers, key=lambda timer: (timer.trigger_height, timer.sequence))

    def supplied(self, timer: Timer) -> int | None:
        """The default agent's ``max_fee`` for a timer of an actor without an agent, by what stands in state."""
        if timer.max_fee_per_cycle is not None or timer.default_max_fee is not None:
            return timer.default_max_fee
        first = max(timer.trigger_height, self.parameters.activation_height + 1)
        stored = self.view.get(supply_key(first)) if first <= self.height else None
        return None if stored is None else number(stored)

    def accounts(self) -> dict[Address, Account]:
        return {Address(key[1:]): decode_record(key, value) for key, value in self.view.scan(ACCOUNT)}

    def require_conservation(self) -> None:
        """Minted = balances + burned, exactly."""
        held = sum(account.balance for account in self.accounts().values())
        assert self.globals.minted == held + self.globals.burned


def fired(outcome: Outcome) -> list[tuple[int, int]]:
    """``(trigger_height, seq)`` of a block's fires, in firing order."""
    return [(fire.trigger_height, fire.sequence) for fire in outcome.receipts.fires]


def carried(outcome: Outcome) -> list[str]:
    """Why timers were carried, in the order of the phase."""
    return list(outcome.carried.values())


def fee(receipt: TransactionReceipt | FireReceipt) -> int:
    """Burned and tip together."""
    return number(receipt.burned) + number(receipt.tip)


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def errors(receipts: Sequence[TransactionReceipt]) -> list[str]:
    return [receipt.error for receipt in receipts]


def index_contents(index: SchedulerIndex) -> tuple[Any, ...]:
    """Everything that a state determines of its index, in a fixed order."""
    rows = index.timers_rows().copy()
    actors = [index.parties.numbers.address(int(number)) for number in rows["actor"]]
    rows["actor"] = 0
    fires, standing = index.parties.fires.by_account, index.supplies.standing
    figures = (fires, standing, index.parties.weights)
    return rows.tobytes(), actors, *(sorted(each.items()) for each in figures), index.fire_heights_below(2**63)
