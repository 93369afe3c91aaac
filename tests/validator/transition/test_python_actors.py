"""Python actors on a chain: deployed, called, fired, bidding, sending; and what goes wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.validator.chains import ALICE, BOB, RICH, Chain, make_genesis
from validator.chain.genesis import Genesis, GenesisActor
from validator.chain.records import CODE, PYTHON_AGENT, PYTHON_CODE
from validator.chain.transactions import Action, Call, Deploy, Transaction, Transfer, deployed_address
from validator.primitives.types import Address
from validator.pvm.deployment import deploy_cycles
from validator.pvm.runtime.values import decode_value, encode_value
from validator.state.working_set import World

COUNTER = """
class Counter(Actor):
    STEP = 2

    def bump(self, payload):
        count = self.get("count", 0) + (payload or self.STEP)
        self.set("count", count)
        self.emit("bumped", count)

    def tick_every(self, payload):
        self.set("period", payload)
        self.schedule(self.height + payload, payload, "tick")

    def tick(self, payload):
        self.set("ticks", self.get("ticks", 0) + 1)
        self.schedule(self.height + payload, payload, "tick", tier=FAST)

    def fail(self, payload):
        self.set("count", 99)
        self.transfer(self.sender, 5)
        raise ActorError("not " + payload)

    def forever(self, payload):
        while True:
            pass

    def pay(self, payload):
        self.transfer(payload["to"], payload["amount"])

    def tell(self, payload):
        self.send(payload, "bump", 7)

    def helper(self, number):
        return number
"""
BIDDER = """
class Bidder(Actor):
    def start(self, payload):
        self.set("mode", payload)
        self.schedule(self.height + 1, None, "fire")

    def fire(self, payload):
        self.emit("fired", self.height)

    def get_gas_bid(self, context):
        mode = self.get("mode")
        if mode == "write":
            self.set("mode", "other")
        if mode == "loop":
            while True:
                pass
        if mode == "bad":
            return {"max_fee_per_cycle": -1, "max_priority_fee_per_cycle": 0}
        assert context["owner_actor_balance"] > 0 and context["current_block_height"] == self.height
        return {"max_fee_per_cycle": 9 * context["basefee_lane_timer"], "max_priority_fee_per_cycle": 1234}
"""
PYTHON = Address(b"\x61" * 20)
SECOND = Address(b"\x62" * 20)


def genesis(source: str, second: str | None = None) -> Genesis:
    found = {PYTHON: GenesisActor(source, ALICE, RICH)}
    if second is not None:
        found[SECOND] = GenesisActor(second, BOB, RICH)
    return replace(make_genesis(), actors=found)


def call(chain: Chain, handler: str, value: Any = None, to: Address = PYTHON, **fields: Any) -> Transaction:
    return transaction(chain, Call(to, handler, encode_value(value)), **fields)


def transaction(chain: Chain, action: Action, **fields: Any) -> Transaction:
    return chain.transaction(action, **{"gas_limit": 400_000, "cells_limit": 40_000, **fields})


def stored(chain: Chain, key: str, at: Address = PYTHON) -> Any:
    value = World(chain.view).storage_get(at, key)
    return None if value is None else decode_value(value)


def last_error(chain: Chain) -> str:
    assert chain.blocks
    return chain.blocks[-1].receipts.transactions[-1].error


def test_an_actor_keeps_what_its_handlers_store() -> None:
    chain = Chain(genesis(COUNTER))
    outcome = chain.block(call(chain, "bump", 5))
    assert stored(chain, "count") == 5
    assert [(event.name, dict(event.fields)["data"]) for event in outcome.events] == [("bumped", "5")]
    chain.block(call(chain, "bump"))
    assert stored(chain, "count") == 7


def test_a_deployed_program_is_stored_once_and_runs() -> None:
    chain = Chain(genesis(COUNTER))
    chain.block(transaction(chain, Deploy(BIDDER), gas_limit=1_000 + deploy_cycles(BIDDER)))
    at = deployed_address(ALICE, 0)
    first = World(chain.view).actor(at)
    assert first is not None and first.code.startswith(PYTHON_CODE)
    assert first.agent is not None and first.agent.code == PYTHON_AGENT
    chain.block(transaction(chain, Deploy(BIDDER), gas_limit=1_000 + deploy_cycles(BIDDER)))
    assert World(chain.view).actor(deployed_address(ALICE, 1)) == first
    assert len(list(chain.view.scan(CODE))) == 2, "the genesis's and this one"
    chain.block(call(chain, "start", "fine", at), transaction(chain, Transfer(at), value=RICH // 10, nonce=3))
    outcome = chain.block()
    assert [fire.ok for fire in outcome.receipts.fires] == [True]


@pytest.mark.parametrize("source", ["x = 1", "class A(Actor):\n def f(self, payload):\n  import os", "def f(): pass"])
def test_a_program_that_is_refused_is_not_deployed(source: str) -> None:
    chain = Chain(genesis(COUNTER))
    outcome = chain.block(transaction(chain, Deploy(source)))
    assert last_error(chain) == "ProgramInvalid"
    assert World(chain.view).actor(deployed_address(ALICE, 0)) is None
    assert outcome.receipts.transactions[0].cycles == 1_000 + deploy_cycles(source), "looking is paid for"


def test_deploying_is_paid_before_the_program_is_looked_at() -> None:
    chain = Chain(genesis(COUNTER))
    chain.block(transaction(chain, Deploy(COUNTER), gas_limit=1_000 + deploy_cycles(COUNTER) - 1))
    assert last_error(chain) == "OutOfCycles"


def test_a_dense_program_is_paid_by_its_tokens_too() -> None:
    dense = "class A(Actor):\n def f(self,payload):\n" + "  a=1;a=a+a*a-a;b=a\n" * 40
    tokens = 6 + 8 + 40 * 17
    assert deploy_cycles(dense) == 300 * len(dense) + 1_500 * (tokens - len(dense) // 4)
    chain = Chain(genesis(COUNTER))
    chain.block(transaction(chain, Deploy(dense), gas_limit=1_000 + deploy_cycles(dense) - 1))
    assert last_error(chain) == "OutOfCycles"
    outcome = chain.block(transaction(chain, Deploy(dense), gas_limit=1_000 + deploy_cycles(dense)))
    assert [(each.ok, each.cycles) for each in outcome.receipts.transactions] == [(True, 1_000 + deploy_cycles(dense))]


def test_a_failing_handler_reverts_everything_and_keeps_its_fees() -> None:
    chain = Chain(genesis(COUNTER))
    chain.block(call(chain, "bump", 3))
    before = World(chain.view).balance(PYTHON)
    chain.block(call(chain, "fail", "now"))
    assert last_error(chain) == "ActorError: not now"
    assert stored(chain, "count") == 3
    assert World(chain.view).balance(PYTHON) == before
    for handler, error in (("helper", "UnknownHandler"), ("nothing", "UnknownHandler"), ("forever", "OutOfCycles")):
        outcome = chain.block(call(chain, handler))
        assert last_error(chain) == error
    assert outcome.receipts.transactions[0].cycles == 400_000
    chain.block(transaction(chain, Call(PYTHON, "bump", b"\xc1")))
    assert last_error(chain) == "BadPayload"


def test_a_timer_reschedules_itself_for_ever() -> None:
    chain = Chain(genesis(COUNTER))
    chain.block(call(chain, "tick_every", 2))
    fires = sum(len(chain.block().receipts.fires) for _ in range(11))
    assert fires == stored(chain, "ticks") == 5


def test_messages_reach_another_python_actor() -> None:
    chain = Chain(genesis(COUNTER, second=COUNTER))
    outcome = chain.block(call(chain, "tell", SECOND))
    assert [(message.ok, message.error) for message in outcome.receipts.messages] == [(True, "")]
    assert stored(chain, "count", SECOND) == 7
    chain.block(call(chain, "pay", {"amount": 10, "to": BOB}))
    assert last_error(chain) == ""
    chain.block(call(chain, "pay", {"amount": 10 * RICH, "to": BOB}))
    assert last_error(chain) == "InsufficientBalance"


@pytest.mark.parametrize(
    ("mode", "result"), [("fine", "ok"), ("write", "failed"), ("loop", "failed"), ("bad", "failed"), (3, "ok")]
)
def test_a_program_bids_for_its_own_timers(mode: Any, result: str) -> None:
    chain = Chain(genesis(BIDDER))
    chain.block(call(chain, "start", mode))
    outcome = chain.block()
    (query,) = outcome.receipts.queries
    assert query.outcome == result
    (fire,) = outcome.receipts.fires
    if result == "ok":
        assert int.from_bytes(fire.tip_per_cycle, "big") == 1234
    else:
        assert [event.name for event in outcome.events][:1] == ["GbaFallback"]
    assert stored(chain, "mode") == mode, "nothing that a bid does lasts"
    limit = chain.parameters.gba_max_cycles
    assert (query.cycles == limit) is (mode == "loop")


def test_a_branch_that_is_executed_again_gives_the_same() -> None:
    def run() -> bytes:
        chain = Chain(genesis(COUNTER, second=BIDDER))
        chain.block(call(chain, "tick_every", 1), call(chain, "start", "fine", SECOND, nonce=1))
        return b"".join(chain.block().state_root for _ in range(5))

    assert run() == run()
