"""Example actors on a chain of their own: called by two users, with everything that they leave behind at hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from loadgen.workloads.actor_program import source_of
from tests.validator.chains import ALICE, BOB, RICH, Chain, make_genesis
from validator.chain.block import CallbackReceipt, FireReceipt, MessageReceipt, TransactionReceipt
from validator.chain.genesis import GenesisActor
from validator.chain.transactions import Call, CancelTimer
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address
from validator.pvm.runtime.values import decode_value, encode_value
from validator.state.working_set import World
from validator.transition.transition import Outcome


@dataclass
class Bench:
    """A chain with these actors, which ALICE owns; ``runners`` answer jobs, and are accounts like others."""

    names: tuple[str, ...]
    runners: tuple[Address, ...] = ()
    funds: int = RICH
    """Of each actor."""
    sources: dict[str, str] = field(default_factory=dict)
    """Programs of names that do not ship."""
    chain: Chain = field(init=False)
    at: dict[str, Address] = field(init=False)

    def __post_init__(self) -> None:
        self.at = {name: Address(bytes([0xA0 + place]) * 20) for place, name in enumerate(self.names)}
        actors = {self.at[name]: GenesisActor(self.source(name), ALICE, self.funds) for name in self.names}
        accounts = {ALICE: RICH, BOB: RICH} | dict.fromkeys(self.runners, RICH)
        genesis = make_genesis(accounts=accounts, system_deployers=(ALICE,))
        self.chain = Chain(replace(genesis, actors=actors, runners=self.runners))

    def source(self, name: str) -> str:
        return self.sources.get(name) or source_of(name)

    def call(self, name: str, handler: str, payload: Any = None, sender: Address = ALICE, **fields: Any) -> str:
        """Call a handler in a block of its own; the error, empty where there is none."""
        receipt = self.calls((name, handler, payload, sender, fields)).receipts.transactions[0]
        return receipt.error

    def calls(self, *given: tuple[str, str, Any, Address, dict[str, Any]]) -> Outcome:
        """Call several handlers in one block."""
        nonces = dict(self.chain.nonces)
        made = []
        for name, handler, value, sender, fields in given:
            target = RUNNER_CONTRACT_ADDRESS if name == "runner contract" else self.at[name]
            action = Call(target, handler, encode_value(value))
            terms = {"nonce": nonces.get(sender, 0), "gas_limit": 1_000_000, "cells_limit": 60_000, **fields}
            made.append(self.chain.transaction(action, sender, **terms))
            nonces[sender] = nonces.get(sender, 0) + 1
        return self.chain.block(*made)

    def lose_timers(self) -> None:
        """Every timer ends without a fire, as one that cannot be paid for does."""
        for timer in self.chain.timers():
            receipt = self.chain.block(self.chain.system(CancelTimer(timer.timer_id))).receipts.transactions[0]
            assert receipt.ok
        assert not self.chain.timers()

    def wait(self, blocks: int) -> list[Outcome]:
        """Let blocks pass; every fire, message and callback in them succeeds."""
        outcomes = [self.chain.block() for _ in range(blocks)]
        failed = [found for outcome in outcomes for found in self.failures(outcome)]
        assert not failed, failed
        return outcomes

    @staticmethod
    def failures(outcome: Outcome) -> list[str]:
        receipts = outcome.receipts
        runs: tuple[FireReceipt | MessageReceipt | CallbackReceipt, ...]
        runs = (*receipts.fires, *receipts.messages, *receipts.callbacks)
        return [each.error for each in runs if not each.ok]

    def stored(self, name: str, key: str) -> Any:
        value = World(self.chain.view).storage_get(self.at[name], key)
        return None if value is None else decode_value(value)

    def balance(self, who: Address) -> int:
        return World(self.chain.view).balance(who)

    def events(self, name: str | None = None) -> list[tuple[str, str]]:
        """What was emitted so far, in order: names and data."""
        return [
            (event.name, dict(event.fields)["data"])
            for outcome in self.chain.blocks
            for event in outcome.events
            if [key for key, _ in event.fields] == ["data"] and (name is None or event.actor == self.at[name])
        ]

    def last(self) -> TransactionReceipt:
        return self.chain.blocks[-1].receipts.transactions[-1]

    def messages(self) -> list[MessageReceipt]:
        return list(self.chain.blocks[-1].receipts.messages)
