"""System instructions, the phase before activation, agents and messages, by examples: what each leaves in state.

The rules themselves are held against a model of their own in :mod:`tests.kits.conform.specification`.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest

from tests.validator.chains import (
    ACTOR,
    ALICE,
    BOB,
    OTHER,
    PRICE,
    RICH,
    SMALL,
    Chain,
    carried,
    fired,
    make_genesis,
    number,
    schedule,
)
from validator.chain.genesis import GenesisAgent, Policy
from validator.chain.records import BidMemory, bid_memory_key, message_key
from validator.chain.transactions import CancelTimer, ExtendTimer, Instruction, UpdateTimerConfig
from validator.primitives.types import SYSTEM_PARAMETERS_ADDRESS
from validator.state.working_set import World
from validator.transition.transition import Outcome, Transition

UNKNOWN = bytes(32)

# --- outcomes ---------------------------------------------------------------------------------------------------------


def test_an_outcome_does_not_keep_the_working_set_of_its_block_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[weakref.ref[World]] = []
    finish = Transition.finish

    def noted(self: Transition) -> Outcome:
        worlds.append(weakref.ref(self.world))
        return finish(self)

    monkeypatch.setattr(Transition, "finish", noted)
    chain = Chain(make_genesis(SMALL))
    chain.run(schedule(1))
    chain.block()
    assert [len(outcome.receipts.fires) for outcome in chain.blocks] == [0, 1]
    assert [world() for world in worlds] == [None, None]


# --- system instructions ----------------------------------------------------------------------------------------------


def system_chain(**params: Any) -> Chain:
    return Chain(make_genesis({**SMALL, **params}, system_deployers=(BOB,)))


def instruct(chain: Chain, instruction: Instruction, **fields: Any) -> str:
    """The error of a system instruction of BOB's, in a block of its own."""
    return chain.block(chain.system(instruction, **{"sender": BOB, **fields})).receipts.transactions[0].error


def test_only_system_deployers_give_instructions_and_each_costs_the_base() -> None:
    chain = system_chain()
    for instruction in (CancelTimer(UNKNOWN), ExtendTimer(UNKNOWN, 9), UpdateTimerConfig("{}")):
        assert instruct(chain, instruction, sender=ALICE) == "NotSystemDeployer"
        receipt = chain.blocks[-1].receipts.transactions[0]
        assert (receipt.cycles, receipt.cells) == (1_000, 0)
    assert instruct(chain, CancelTimer(UNKNOWN)) == "", "an unknown id is ok and does nothing"
    assert instruct(chain, ExtendTimer(UNKNOWN, 9)) == "NotFound"


def test_anyones_timer_is_cancelled_and_extended() -> None:
    chain = system_chain(MAX_TTL=50)
    chain.run(schedule(9, expires_at=20), schedule(9, expires_at=20))
    first, second = chain.timers()
    assert instruct(chain, CancelTimer(first.timer_id)) == ""
    assert instruct(chain, ExtendTimer(second.timer_id, 20)) == "TimerExpiryInvalid"
    assert instruct(chain, ExtendTimer(second.timer_id, 10**9)) == ""
    assert [(timer.sequence, timer.expires_at) for timer in chain.timers()] == [(1, 4 + 50)]


def test_a_change_is_in_force_from_the_next_block_and_stands_in_storage() -> None:
    chain = system_chain(LANE_FEE_MULTIPLIER_MILLI=1_000)
    chain.run(*[schedule(ahead) for ahead in (1, 2)])
    assert (
        instruct(chain, UpdateTimerConfig('{"LANE_FEE_MULTIPLIER_MILLI": "500", "PRIORITY_TIERS": [1, 2, 3, 4]}')) == ""
    )
    assert chain.blocks[-1].prices.lane_price == chain.blocks[-1].basefee_lane_timer
    outcome = chain.block()
    assert outcome.prices.lane_price == outcome.basefee_lane_timer // 2
    world = chain.world()
    stored = {
        name: world.storage_get(SYSTEM_PARAMETERS_ADDRESS, f"system:cip1:{name}")
        for name in ("lane_fee_multiplier_milli", "priority_tiers", "max_ttl")
    }
    assert stored == {"lane_fee_multiplier_milli": b"500", "priority_tiers": b"[1,2,3,4]", "max_ttl": b"2592000"}


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[]",
        "{",
        '{"SCAN_LIMIT": 5}',
        '{"max_ttl": 5}',
        '{"MAX_TTL": 0}',
        '{"MAX_TTL": true}',
        '{"MAX_TTL": 5, "MAX_TTL": 5}',
        '{"MAX_TTL": 5, "LANE_BASEFEE_SLOPE": 9}',
        '{"LANE_TIMER_CYCLES": 7999}',
        '{"PRIORITY_TIERS": [1, 2, 3]}',
        '{"TIMER_GC_CYCLES": 1999}',
    ],
)
def test_a_change_is_made_whole_or_not_at_all(config: str) -> None:
    chain = system_chain()
    before = list(chain.view.scan(b"s" + SYSTEM_PARAMETERS_ADDRESS))
    assert instruct(chain, UpdateTimerConfig(config)) == "ConfigInvalid"
    assert list(chain.view.scan(b"s" + SYSTEM_PARAMETERS_ADDRESS)) == before


def test_earlier_changes_of_the_block_count() -> None:
    chain = system_chain()
    lower = UpdateTimerConfig('{"MAX_CYCLES_PER_FIRE": 4000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 4000}')
    lane = UpdateTimerConfig('{"LANE_TIMER_CYCLES": 5000}')
    assert instruct(chain, lane) == "ConfigInvalid"
    both = [chain.system(lower, sender=BOB), replace(chain.system(lane, sender=BOB), nonce=2)]
    assert [receipt.error for receipt in chain.block(*both).receipts.transactions] == ["", ""]


# --- before activation ------------------------------------------------------------------------------------------------


def test_the_first_phase_is_first_in_first_out_at_the_cycle_price() -> None:
    chain = Chain(make_genesis(SMALL, policy=Policy.FIFO))
    dear = {"max_priority_fee_per_cycle": 10**6, "max_fee_per_cycle": 2**80}
    chain.run(*[schedule(1, ["burn", 6_000]) for _ in range(3)], schedule(1, gas_limit=1_000, **dear))
    outcome = chain.block()
    assert fired(outcome) == [(2, 0), (2, 1)], "the third does not fit, and nothing behind it is tried"
    assert carried(outcome) == ["lane_full"] * 2
    fire = outcome.receipts.fires[0]
    assert (number(fire.burned), fire.tip) == (fire.cycles * outcome.prices.basefee_cycle, b"")
    assert chain.globals.burned_timer_lane == 0
    assert list(chain.view.scan(b"f")) == list(chain.view.scan(b"p")) == []
    assert [key for key, _ in fired(chain.block())] == [2, 2]


def test_activation_begins_with_an_empty_window_and_the_cycles_price() -> None:
    chain = Chain(make_genesis({**SMALL, "ACTIVATION_HEIGHT": 3}))
    chain.run(*[schedule(ahead, ["burn", 5_000]) for ahead in (1, 2, 3, 3)])
    for _ in range(2):
        outcome = chain.block()
        assert len(outcome.receipts.fires) == 1
        assert outcome.basefee_lane_timer == outcome.prices.basefee_cycle
        assert outcome.prices.lane_price == 0
    outcome = chain.block()
    assert outcome.receipts.height == 4
    assert outcome.prices.lane_price == outcome.basefee_lane_timer == outcome.prices.basefee_cycle
    assert (outcome.prices.p50_tip, len(outcome.receipts.fires)) == (0, 2)
    assert chain.index.parties.fires.by_account == {ACTOR: 2}
    chain.block()
    assert chain.blocks[-1].basefee_lane_timer != chain.blocks[-1].prices.basefee_cycle


# --- agents -----------------------------------------------------------------------------------------------------------


AGENT = GenesisAgent("builtin:fixed", 3 * PRICE, 11)


def agent_chain(**params: Any) -> Chain:
    return Chain(make_genesis({**SMALL, **params}, agents={ACTOR: AGENT}))


def memory_of(chain: Chain) -> BidMemory | None:
    memory: BidMemory | None = chain.world().get(bid_memory_key(ACTOR))
    return memory


def test_an_agents_answer_prices_its_timers_and_is_paid_for() -> None:
    chain = agent_chain(MIN_BASEFEE=PRICE)
    chain.run(schedule(1), schedule(1, max_fee_per_cycle=2**40, max_priority_fee_per_cycle=1), schedule(9))
    before = chain.balance(ACTOR)
    outcome = chain.block()
    (query,) = outcome.receipts.queries
    tips = sorted(number(fire.tip_per_cycle) for fire in outcome.receipts.fires)
    assert (query.outcome, query.cycles, tips) == ("ok", 100, [1, 11])
    assert number(query.burned) == 100 * PRICE == chain.globals.burned_bidding
    paid = sum(number(fire.burned) + number(fire.tip) for fire in outcome.receipts.fires)
    assert chain.balance(ACTOR) == before - paid - 100 * PRICE
    assert memory_of(chain) == BidMemory(2, 0, 2, 3 * PRICE, 11)
    chain.require_conservation()


def test_who_cannot_pay_is_left_to_the_default_agent_for_a_while() -> None:
    params = {**SMALL, "GBA_UNPAID_PAUSE": 2, "MIN_BASEFEE": PRICE, "INITIAL_BASEFEE": PRICE, "SCAN_LIMIT": 1}
    chain = Chain(make_genesis(params, actors={ACTOR: 5, OTHER: RICH}, agents={ACTOR: AGENT}))
    dear = {"max_fee_per_cycle": 2**80, "max_priority_fee_per_cycle": 2**40}
    mine = schedule(1, fee_payer="sender", payer_cap=10**15)
    chain.block(
        chain.call(mine, mine, timer_allowance=RICH // 2),
        replace(chain.call(*[schedule(ahead, **dear) for ahead in (1, 2, 3, 4)], actor=OTHER), nonce=1),
    )
    asked = [[query.outcome for query in chain.block().receipts.queries] for _ in range(4)]
    assert asked == [["unpaid"], [], [], ["unpaid"]]
    assert [chain.supplied(timer) for timer in chain.timers()] == [2 * PRICE] * 2
    assert memory_of(chain) == BidMemory(5, 5, 0, None, None)


# --- messages ---------------------------------------------------------------------------------------------------------


def send(to: bytes, *operations: Any, **fields: Any) -> list[Any]:
    given = {"to": "0x" + to.hex(), "handler": "run", "payload": list(operations), "cycles": 5_000, "cells": 200}
    return ["send", {**given, **fields}]


def test_messages_run_in_the_order_of_sending_after_the_timers() -> None:
    chain = Chain()
    chain.run(schedule(1, send(OTHER, ["emit", "third", ""])))
    chain.block(chain.call(send(OTHER, ["emit", "first", ""]), send(ACTOR, ["emit", "second", ""])))
    messages = chain.blocks[-1].receipts.messages
    names = [event.name for message in messages for event in message.effects.events]
    assert names == ["first", "second", "third"]
    assert [(message.to, message.sender, message.cycles) for message in messages] == [
        (OTHER, ACTOR, 1_050),
        (ACTOR, ACTOR, 1_050),
        (OTHER, ACTOR, 1_050),
    ]


def test_a_run_is_paid_by_its_sender_in_advance_and_costs_nobody_when_it_comes() -> None:
    chain = Chain()
    message = send(OTHER, ["burn", 100])
    receipt = chain.run(message)
    assert receipt.cycles == 1_000 + 80 + 5_000
    assert chain.balance(OTHER) == RICH
    assert chain.globals.burned_user == number(receipt.burned)
    chain.require_conservation()


def test_what_does_not_fit_waits_in_the_mailbox() -> None:
    chain = Chain(make_genesis({"LANE_DEFERRED_CYCLES": 12_000, "MESSAGE_CYCLES": 12_000}))
    chain.run(*[send(OTHER, ["burn", 3_900]) for _ in range(4)])
    assert len(chain.blocks[-1].receipts.messages) == 2
    actor = chain.world().actor(OTHER)
    assert actor is not None
    assert actor.mailbox_bytes == 2 * len(b'[["burn",3900]]')
    assert [key for key, _ in chain.view.scan(b"m")] == [message_key(2), message_key(3)]
    assert len(chain.block().receipts.messages) == 2
    assert list(chain.view.scan(b"m")) == []
    assert (chain.globals.first_message, chain.globals.next_message) == (4, 4)


class RunsNewMessagesAtOnce(Transition):
    """A planted fault: what messages send runs in the same block."""

    def run_messages(self) -> None:
        first = -1
        while first != self.world.globals.first_message:
            first = self.world.globals.first_message
            super().run_messages()


@pytest.mark.parametrize(("kind", "blocks"), [(Transition, [1, 1]), (RunsNewMessagesAtOnce, [2, 0])])
def test_one_sent_by_a_message_runs_in_a_later_block(kind: type[Transition], blocks: list[int]) -> None:
    chain = Chain(transition=kind)
    chain.run(send(OTHER, send(ACTOR, ["emit", "late", ""], cycles=2_000, cells=10)))
    chain.block()
    assert [len(outcome.receipts.messages) for outcome in chain.blocks] == blocks
    late = [message for outcome in chain.blocks for message in outcome.receipts.messages][1]
    assert (late.to, late.sender, late.effects.events[0].name) == (ACTOR, OTHER, "late")


def test_a_message_that_reverts_is_spent() -> None:
    chain = Chain()
    chain.run(send(OTHER, ["set", "k", "v"], ["fail", ""]))
    (message,) = chain.blocks[-1].receipts.messages
    assert (message.error, message.effects.events) == ("ScriptFailed", ())
    assert chain.block().receipts.messages == ()
    assert list(chain.view.scan(b"s" + OTHER)) == []
