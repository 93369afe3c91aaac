"""The ledger on agents' queries, messages, system instructions and the phase before activation: right ones pass in
silence, each planted fault is named. Real blocks first, then made ones with one fault each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from cluster.audit.ledger.context import BOUNDS, CHAIN, CONSERVATION, TIMERS
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.ledger.timer_phase import TimerState
from tests.cluster.records import ACTOR, BIDDER, FUNDS, OTHER, PRICE, USER_ADDRESS, ChainMaker, make_genesis
from tests.validator import chains as small
from tests.validator.executors import Author, wire
from tests.validator.fixed_chain import ACTIVATION, AGENTS, POOR, alices_script, messages
from validator.chain.block import Cancelled, Effects, Event, Extended, Movement, Sent
from validator.chain.genesis import Policy
from validator.chain.receipts import NOTHING_BURNED
from validator.chain.records import ACCOUNT, TIMER, decode_record
from validator.chain.transactions import Call, CancelTimer, ExtendTimer, Instruction, System, UpdateTimerConfig
from validator.execution.governance import parameters_in_force
from validator.node.executor.jobs import Finalized
from validator.primitives.codec import pack_uint
from validator.state import View
from validator.state.working_set import World

# --- real blocks ------------------------------------------------------------------------------------------------------


def author_of(policy: Policy, **params: Any) -> Author:
    genesis = small.make_genesis(
        {**small.SMALL, **ACTIVATION, "MAX_TTL": 12, "MESSAGE_CELLS": 20_000, **params},
        actors={small.ACTOR: small.RICH, small.OTHER: small.RICH, POOR: 10**9},
        agents=AGENTS,
        policy=policy,
        system_deployers=(small.BOB,),
    )
    return Author(genesis)


def wires_of(author: Author, height: int) -> list[bytes]:
    """Calls with timers of every kind, messages, and a system instruction, signed."""
    pending = [decode_record(*item).timer_id for item in author.executor.final_view.scan(TIMER)]
    instructions: dict[int, Instruction] = {
        0: UpdateTimerConfig(json.dumps({"LANE_FEE_MULTIPLIER_MILLI": 900 + 10 * height, "MAX_TTL": 12 + height})),
        1: CancelTimer(pending[-1] if pending else bytes(32)),
        2: ExtendTimer(pending[0] if pending else bytes(32), height + 50),
        3: UpdateTimerConfig('{"LANE_TIMER_CYCLES": 10}'),
        4: UpdateTimerConfig(json.dumps({"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 7_000 + height, "MAX_TTL": 12})),
    }
    rich: dict[str, Any] = {"gas_limit": 500_000, "cells_limit": 20_000}
    sender = 0 if height % 7 == 0 else 1
    nonces = [author.executor.pages.account(user)["nonce"] for user in small.USERS]
    system = wire(nonces[sender] + 2 * (1 - sender), user=sender, action=System(instructions[height % 5]))
    other = [small.schedule(1), small.schedule(2, expires_at=height + 3), small.schedule(2, ["burn", 6_000])]
    third = small.script(small.schedule(1), small.schedule(3))
    return [
        wire(nonces[0], *alices_script(height), timer_allowance=10**12),
        wire(nonces[0] + 1, *messages(height), **rich),
        system,
        wire(nonces[1] + sender, user=1, action=Call(small.OTHER, "run", small.script(*other))),
        wire(nonces[1] + sender + 1, user=1, action=Call(POOR, "run", third)),
    ]


def walk(author: Author, heights: int) -> Ledger:
    """Build blocks, and enter each into the books; after each they agree with the state."""
    ledger, burned = Ledger(author.genesis), NOTHING_BURNED
    for height in range(1, heights + 1):
        built = author.build(None, *wires_of(author, height))
        assert len(built.block.transactions) == 5
        final = author.finalize(built.digest)
        assert isinstance(final, Finalized)
        burned = burned.plus(final.burned)
        archived = author.executor.archive.get(height)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
        assert ledger.log.violations == []
        require_agreement(ledger, author.executor.final_view)
        assert burned == (ledger.accounts.burned_cycle, ledger.accounts.burned_cell, ledger.accounts.burned_lane_timer)
    return ledger


def require_agreement(ledger: Ledger, view: View) -> None:
    held = {key[1:]: decode_record(key, value).balance for key, value in view.scan(ACCOUNT)}
    assert {at: balance for at, balance in ledger.accounts.balances.items() if balance} == {
        at: b for at, b in held.items() if b
    }
    timers = {key[1:]: decode_record(key, value).expires_at for key, value in view.scan(TIMER)}
    assert {key: life.expires_at for key, life in ledger.timers.pending.items()} == timers
    world = World(view)
    assert ledger.accounts.burned == world.globals.burned
    assert ledger.accounts.burned_lane_timer == world.globals.burned_timer_lane
    assert ledger.accounts.minted == ledger.accounts.held() + ledger.accounts.burned
    governed = ledger.instructions.changed_by("{}")
    assert governed == parameters_in_force(world, ledger.genesis.parameters)


@pytest.mark.parametrize("policy", list(Policy))
def test_the_books_follow_real_blocks_with_everything_in_them(policy: Policy) -> None:
    ledger = walk(author_of(policy), 20)
    assert ledger.timers.fires > 30
    assert ledger.messages > 30
    assert ledger.timers.states[TimerState.CANCELLED] and ledger.timers.states[TimerState.EXPIRED]
    assert (ledger.queries > 10) == (policy in (Policy.CIP1, Policy.GBA_AUCTION))
    assert sum(figures.messages for figures in ledger.blocks) == ledger.messages
    assert sum(figures.queries for figures in ledger.blocks) == ledger.queries


def test_books_with_the_genesis_parameters_for_ever_are_caught() -> None:
    author = author_of(Policy.CIP1)
    real = Ledger(author.genesis)
    blind = Ledger(author.genesis)
    blind.instructions.change = lambda parameters: None  # type: ignore[method-assign]
    walk(author, 12)
    for height in range(1, 13):
        archived = author.executor.archive.get(height)
        assert archived is not None
        for ledger in (real, blind):
            ledger.apply(archived.block, archived.receipts)
    assert real.log.violations == []
    assert any("burned" in violation.what for violation in blind.log.violations)


# --- made blocks ------------------------------------------------------------------------------------------------------

Plant = Callable[[ChainMaker], Any]


def words(maker: ChainMaker, check: str) -> str:
    """All violations of a check but that a timer waits."""
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    found = (violation.what for violation in ledger.log.violations if violation.check == check)
    return "\n".join(what for what in found if "was due and passed over" not in what)


def all_words(maker: ChainMaker) -> str:
    return "".join(words(maker, check) for check in (CHAIN, TIMERS, CONSERVATION, BOUNDS))


def maker_with(params: dict[str, Any] | None = None, policy: Policy = Policy.CIP1) -> ChainMaker:
    return ChainMaker(make_genesis(params, policy))


def require_named(maker: ChainMaker, plant: Plant, check: str, expected: str) -> None:
    plant(maker)
    maker.seal()
    assert expected in words(maker, check)


# --- queries


def test_right_queries_pass_and_their_actor_pays() -> None:
    maker = ChainMaker()
    timers = (maker.bidders(1), maker.bidders(1))
    maker.seal()
    for timer in timers:
        maker.query(timer)
    maker.fire(min(timers, key=lambda timer: timer.timer_id), tip=5, fee_payer=BIDDER)
    maker.seal()
    assert all_words(maker) == ""
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    assert ledger.accounts.balances[BIDDER] == FUNDS - 200 * PRICE - (2_000 * 2 * PRICE + 10 * PRICE) - 10_000
    assert ledger.queries == 2


def due(maker: ChainMaker) -> Any:
    """A timer that is due in the block that is being made."""
    timer = maker.bidders(1)
    maker.seal()
    return timer


def other_actors(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.query(timer)


def early_query(maker: ChainMaker) -> None:
    maker.query(maker.bidders(2))


def stolen_query(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.query(timer, actor=BIDDER)


def query_after_its_end(maker: ChainMaker) -> None:
    timer = due(maker)
    maker.fire(timer, fee_payer=BIDDER)
    maker.seal()
    maker.query(timer)


def query_twice(maker: ChainMaker) -> None:
    timer = due(maker)
    maker.query(timer)
    maker.query(timer)


def too_many_queries(maker: ChainMaker) -> None:
    timers = [maker.bidders(1) for _ in range(17)]
    maker.seal()
    for timer in timers:
        maker.query(timer)


def query_after_unpaid(maker: ChainMaker) -> None:
    timers = [maker.bidders(2), maker.bidders(2)]
    maker.seal()
    maker.transact(Call(BIDDER, "run", b"[]"), Effects(movements=(Movement(BIDDER, OTHER, pack_uint(FUNDS)),)))
    maker.seal()
    maker.query(timers[0], outcome="unpaid", cycles=0, burned=b"")
    maker.query(timers[1], outcome="unpaid", cycles=0, burned=b"")


def changed_query(**changes: Any) -> Plant:
    return lambda maker: maker.query(due(maker), **changes) and None


QUERIES: list[tuple[Plant, str, str]] = [
    (other_actors, CONSERVATION, "was made of an actor without an agent"),
    (early_query, TIMERS, "is about none that was due and its actor's"),
    (stolen_query, TIMERS, "is about none that was due and its actor's"),
    (query_after_its_end, TIMERS, "is about none that was due and its actor's"),
    (query_twice, CONSERVATION, "was made twice in one block"),
    (too_many_queries, CONSERVATION, "is one more than its actor may have in a block"),
    (query_after_unpaid, CONSERVATION, "though its actor could not pay at height 3"),
    (changed_query(burned=pack_uint(5)), CONSERVATION, "burned 5 where its use and prices give 100000000"),
    (changed_query(burned=b""), CONSERVATION, "burned 0 where its use and prices give 100000000"),
    (changed_query(cycles=99), CONSERVATION, "used 99 cycles, expected 100 to 100"),
    (changed_query(cycles=101), CONSERVATION, "used 101 cycles, expected 100 to 100"),
    (changed_query(outcome="failed"), CONSERVATION, "failed, which a fixed bid never does"),
    (changed_query(outcome="maybe"), CONSERVATION, "came to 'maybe', which is no outcome"),
    (changed_query(outcome="unpaid", cycles=0, burned=b""), CONSERVATION, "was unpaid, though its actor could pay"),
    (changed_query(outcome="unpaid"), CONSERVATION, "used 100 cycles, expected 0 to 0"),
]


@pytest.mark.parametrize(("plant", "check", "expected"), QUERIES, ids=[expected for _, _, expected in QUERIES])
def test_a_query_that_breaks_a_rule_is_named(plant: Plant, check: str, expected: str) -> None:
    require_named(ChainMaker(), plant, check, expected)


def test_a_query_beyond_the_budget_is_named() -> None:
    maker = maker_with({"GBA_MAX_CYCLES": 100, "GBA_BUDGET_CYCLES": 250})
    timers = [maker.bidders(1) for _ in range(3)]
    maker.seal()
    for timer in timers[:2]:
        maker.query(timer)
    maker.seal()
    assert all_words(maker) == ""
    for timer in timers:
        maker.query(timer)
    maker.seal()
    assert "was made beyond the block's budget" in words(maker, CONSERVATION)


def test_who_cannot_pay_is_asked_again_after_the_pause() -> None:
    maker = maker_with({"GBA_UNPAID_PAUSE": 2})
    timer = maker.bidders(1)
    maker.transact(Call(BIDDER, "run", b"[]"), Effects(movements=(Movement(BIDDER, OTHER, pack_uint(FUNDS)),)))
    maker.seal()
    for height in (2, 3, 4, 5):
        if height in (2, 5):
            maker.query(timer, outcome="unpaid", cycles=0, burned=b"")
        maker.seal()
    assert all_words(maker) == ""


def test_a_paid_query_of_who_could_not_pay_is_named() -> None:
    maker = ChainMaker()
    timer = maker.bidders(1)
    left = pack_uint(FUNDS - 10_000 * PRICE + 1)
    maker.transact(Call(BIDDER, "run", b"[]"), Effects(movements=(Movement(BIDDER, OTHER, left),)))
    maker.seal()
    maker.query(timer)
    maker.seal()
    assert "was made, though its actor could not pay" in words(maker, CONSERVATION)


# --- messages


def test_right_messages_move_schedule_and_cost_nothing() -> None:
    maker = ChainMaker()
    doomed = maker.schedule(5)
    new = maker.scheduled(2, b"[]")
    paid = Effects((Movement(ACTOR, OTHER, pack_uint(9)),), (new,), (Cancelled(doomed.timer_id),))
    maker.message(paid)
    maker.message(ok=False, error="ScriptFailed", cycles=1_000)
    maker.seal()
    maker.seal()
    maker.fire(new)
    maker.seal()
    assert all_words(maker) == ""
    ledger = Ledger(maker.genesis)
    ledger.apply(maker.blocks[0].block, maker.blocks[0].receipts)
    assert (ledger.accounts.balances[ACTOR], ledger.accounts.balances[OTHER]) == (FUNDS - 9, 9)
    assert set(ledger.timers.pending) == {new.timer_id}
    assert ledger.messages == 2
    assert ledger.blocks[0].scheduled == 2


def stolen_by_message(maker: ChainMaker) -> None:
    maker.message(Effects(movements=(Movement(USER_ADDRESS, ACTOR, pack_uint(1)),)))


def reverted_message(maker: ChainMaker) -> None:
    maker.message(Effects(events=(Event("kept", ACTOR, ()),)), ok=False, error="ScriptFailed")


def overspent_by_message(maker: ChainMaker) -> None:
    maker.message(Effects(movements=(Movement(ACTOR, OTHER, pack_uint(FUNDS + 1)),)))


def others_timer(maker: ChainMaker) -> None:
    timer = maker.schedule(4)
    maker.message(Effects(timer_changes=(Cancelled(timer.timer_id),)), to=BIDDER)


def message_for_now(maker: ChainMaker) -> None:
    maker.message(Effects(scheduled=(maker.scheduled(0, b""),)))


def changed_message(**changes: Any) -> Plant:
    return lambda maker: maker.message(**changes) and None


MESSAGES: list[tuple[Plant, str, str]] = [
    (stolen_by_message, CONSERVATION, "which it does not own"),
    (reverted_message, CONSERVATION, "reverted but left effects behind"),
    (overspent_by_message, CONSERVATION, "spent what it never had"),
    (others_timer, TIMERS, "was changed by 0x" + BIDDER.hex()),
    (message_for_now, TIMERS, "was scheduled for height 1"),
    (changed_message(to=OTHER), CHAIN, "ran, where there is no actor"),
    (changed_message(cycles=999), CONSERVATION, "used 999 cycles, which none can"),
    (changed_message(cycles=100_001), CONSERVATION, "used 100001 cycles, which none can"),
    (changed_message(cells=10_001), CONSERVATION, "used 10001 cells, which none can"),
    (changed_message(ok=True, error="BadScript"), CHAIN, "succeeded with error 'BadScript'"),
]


@pytest.mark.parametrize(("plant", "check", "expected"), MESSAGES, ids=[expected for _, _, expected in MESSAGES])
def test_a_message_that_breaks_a_rule_is_named(plant: Plant, check: str, expected: str) -> None:
    require_named(ChainMaker(), plant, check, expected)


# --- system instructions


def update(**config: Any) -> UpdateTimerConfig:
    return UpdateTimerConfig(json.dumps(config))


def test_right_instructions_change_anyones_timers() -> None:
    maker = ChainMaker()
    first, second = maker.schedule(3), maker.bidders(3)
    maker.instruct(CancelTimer(bytes(32)))
    maker.instruct(CancelTimer(second.timer_id), Cancelled(second.timer_id), value=0)
    maker.instruct(ExtendTimer(first.timer_id, 10**12), Extended(first.timer_id, 1 + 2_592_000))
    maker.instruct(CancelTimer(first.timer_id), ok=False, error="NotSystemDeployer")
    maker.seal()
    assert all_words(maker) == ""


def test_a_changed_multiplier_is_in_force_from_the_next_block() -> None:
    maker = ChainMaker()
    early = maker.schedule(1)
    first, second = sorted((maker.schedule(2), maker.schedule(2)), key=lambda timer: timer.timer_id)
    maker.seal()
    maker.instruct(update(LANE_FEE_MULTIPLIER_MILLI=2_000))
    maker.fire(early)
    maker.seal()
    tripled = pack_uint(2_000 * 3 * PRICE + 10 * PRICE)
    maker.fire(first, burned=tripled)
    maker.seal()
    assert all_words(maker) == ""
    maker.fire(second)
    maker.seal()
    assert "burned 4010000000 where its use and prices give 6010000000" in words(maker, CONSERVATION)


def test_updates_of_one_block_add_up() -> None:
    maker = ChainMaker()
    maker.instruct(update(LANE_TIMER_CYCLES=550_000, MAX_CYCLES_PER_FIRE=540_000))
    maker.instruct(update(LANE_TIMER_CYCLES=540_000))
    maker.instruct(update(LANE_TIMER_CYCLES=539_999), ok=False, error="ConfigInvalid")
    maker.seal()
    assert all_words(maker) == ""


def foreign(maker: ChainMaker, instruction: Any, *changes: Any) -> None:
    maker.instruct(instruction, *changes)


def left_undone(maker: ChainMaker) -> None:
    maker.instruct(CancelTimer(maker.schedule(4).timer_id))


def done_to_another(maker: ChainMaker) -> None:
    one, two = maker.schedule(4), maker.schedule(4)
    maker.instruct(CancelTimer(one.timer_id), Cancelled(two.timer_id))


def extended_too_far(maker: ChainMaker) -> None:
    timer = maker.schedule(4)
    maker.instruct(ExtendTimer(timer.timer_id, 10**12), Extended(timer.timer_id, 10**12))


def extended_otherwise(maker: ChainMaker) -> None:
    timer = maker.schedule(4)
    maker.instruct(ExtendTimer(timer.timer_id, 20_000), Extended(timer.timer_id, 20_001))


def cancelled_by_a_call(maker: ChainMaker) -> None:
    timer = maker.bidders(4)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=(Cancelled(timer.timer_id),)))


def ended_later_than_any(maker: ChainMaker) -> None:
    maker.schedule(4, expires_at=1 + 2_592_001)


def later_than_the_new_limit(maker: ChainMaker) -> None:
    maker.instruct(update(MAX_TTL=100))
    maker.seal()
    maker.schedule(4, expires_at=103)


INSTRUCTIONS: list[tuple[Plant, str, str]] = [
    (left_undone, TIMERS, "did something else than its system instruction says"),
    (done_to_another, TIMERS, "did something else than its system instruction says"),
    (extended_otherwise, TIMERS, "did something else than its system instruction says"),
    (extended_too_far, TIMERS, "was given the end 1000000000000, the latest is 2592001"),
    (cancelled_by_a_call, TIMERS, "was changed by 0x" + ACTOR.hex()),
    (ended_later_than_any, TIMERS, "was given the end 2592002, the latest is 2592001"),
    (later_than_the_new_limit, TIMERS, "was given the end 103, the latest is 102"),
    (partial(foreign, instruction=update(SCAN_LIMIT=5)), CHAIN, "changed parameters in a way that is not allowed"),
    (partial(foreign, instruction=update(LANE_TIMER_CYCLES=9)), CHAIN, "changed parameters in a way that is not"),
    (partial(foreign, instruction=UpdateTimerConfig("[")), CHAIN, "changed parameters in a way that is not allowed"),
    (
        lambda maker: maker.instruct(update(MAX_TTL=7), ok=False, error="ConfigInvalid") and None,
        CHAIN,
        "was refused a change of parameters that is allowed",
    ),
]


@pytest.mark.parametrize(("plant", "check", "expected"), INSTRUCTIONS)
def test_an_instruction_that_breaks_a_rule_is_named(plant: Plant, check: str, expected: str) -> None:
    require_named(ChainMaker(), plant, check, expected)


def test_an_instruction_of_anyone_else_is_named() -> None:
    maker = ChainMaker(replace(make_genesis(), system_deployers=(OTHER,)))
    maker.instruct(update(MAX_TTL=7))
    maker.seal()
    assert "gave a system instruction, which 0x" + USER_ADDRESS.hex() in words(maker, CHAIN)


# --- before activation


FIRST_IN = pack_uint(2_000 * PRICE + 10 * PRICE)
"""What a fire burns that pays no lane price."""


@pytest.mark.parametrize(("policy", "activation"), [(Policy.FIFO, 0), (Policy.CIP1, 9)])
def test_fires_of_the_first_phase_pay_no_lane_price_and_come_in_turn(policy: Policy, activation: int) -> None:
    maker = maker_with({"ACTIVATION_HEIGHT": activation}, policy)
    timers = [maker.schedule(2) for _ in range(3)]
    maker.seal(p50_tip=b"")
    maker.seal(p50_tip=b"")
    for timer in timers:
        maker.fire(timer, burned=FIRST_IN, tip=0)
    maker.seal(p50_tip=b"")
    assert all_words(maker) == ""


def test_the_auction_begins_after_the_activation_height() -> None:
    maker = maker_with({"ACTIVATION_HEIGHT": 2})
    timers = [maker.schedule(ahead) for ahead in (1, 2)]
    maker.seal(p50_tip=b"")
    maker.fire(timers[0], burned=FIRST_IN, tip=0)
    maker.seal(p50_tip=b"")
    maker.fire(timers[1])
    maker.seal(p50_tip=b"")
    maker.seal()
    assert all_words(maker) == ""


def pays_the_lane(maker: ChainMaker) -> None:
    fire_of_first_phase(maker, burned=pack_uint(2_000 * 2 * PRICE + 10 * PRICE))


def fire_of_first_phase(maker: ChainMaker, **changes: Any) -> None:
    timer = maker.schedule(1)
    maker.seal(p50_tip=b"")
    maker.fire(timer, **{"burned": FIRST_IN, "tip": 0, **changes})


def tips(maker: ChainMaker) -> None:
    fire_of_first_phase(maker, tip=2)


def out_of_turn(maker: ChainMaker) -> None:
    timers = [maker.schedule(2), maker.schedule(1)]
    maker.seal(p50_tip=b"")
    maker.seal(p50_tip=b"")
    for timer in timers:
        maker.fire(timer, burned=FIRST_IN, tip=0)


def asks_agents(maker: ChainMaker) -> None:
    maker.query(due_in_the_first_phase(maker))


def due_in_the_first_phase(maker: ChainMaker) -> Any:
    timer = maker.bidders(1)
    maker.seal(p50_tip=b"")
    return timer


def over_the_cap(maker: ChainMaker) -> None:
    fire_of_first_phase(maker, cycles=550_001, burned=pack_uint(550_011 * PRICE))


FIRST_PHASE: list[tuple[Plant, str, str]] = [
    (pays_the_lane, CONSERVATION, "burned 4010000000 where its use and prices give 2010000000"),
    (tips, CONSERVATION, "tipped in a block that runs first in, first out"),
    (out_of_turn, TIMERS, "came out of turn in a block that runs first in, first out"),
    (asks_agents, CONSERVATION, "was made in a block that runs first in, first out"),
    (over_the_cap, TIMERS, "used 550001 cycles of at most 550000"),
]


@pytest.mark.parametrize(("plant", "check", "expected"), FIRST_PHASE)
def test_what_breaks_a_rule_of_the_first_phase_is_named(plant: Plant, check: str, expected: str) -> None:
    maker = maker_with(policy=Policy.FIFO)
    plant(maker)
    maker.seal(p50_tip=b"")
    assert expected in words(maker, check)


def test_prices_that_the_first_phase_cannot_have_are_named() -> None:
    for activation, header, receipts, expected in (
        (2, {"basefee_lane_timer": pack_uint(5)}, {"p50_tip": b""}, "basefee_lane_timer is 5, the block before gives"),
        (2, {}, {"p50_tip": b"\1"}, "the median tip is 1, the fires of the block before give 0"),
    ):
        for height in (1, 2, 3):
            maker = maker_with({"ACTIVATION_HEIGHT": activation})
            for _ in range(1, height):
                maker.seal(p50_tip=b"")
            maker.seal(header, **receipts)
            assert expected in words(maker, CONSERVATION)


def test_fires_have_a_cap_in_every_phase() -> None:
    maker = ChainMaker()
    timers = [maker.schedule(1) for _ in range(9)]
    maker.seal()
    maker.fire(timers[0], cycles=250_001, cells=550_001)
    for timer in timers[1:]:
        maker.fire(timer, cycles=250_000)
    maker.seal()
    found = words(maker, TIMERS)
    assert "used 250001 cycles of at most 250000" in found
    assert "used 550001 cells of at most 550000" in found
    assert "the fires used more than the lane's 2000000 cycles" in found


# --- limits of the lanes ----------------------------------------------------------------------------------------------


def transfers(maker: ChainMaker) -> None:
    for amount in range(3):
        maker.transfer(1 + amount)


def instructions(maker: ChainMaker) -> None:
    for height in range(3):
        maker.instruct(UpdateTimerConfig(json.dumps({"MAX_TTL": 100 + height})))


def deferred(maker: ChainMaker) -> None:
    maker.message(cycles=60_000)
    maker.message(cycles=60_000)


def forwarded(maker: ChainMaker) -> None:
    """A message that passes its cycles on uses little of the lane: its reservation counts where it runs."""
    for _ in range(2):
        sent = Sent(ACTOR, "run", 50_000, 0)
        maker.message(Effects(messages=(sent,)), cycles=60_000, cells=20)


@pytest.mark.parametrize(
    ("params", "plant", "expected"),
    [
        ({"LANE_USER_CYCLES": 15_999}, transfers, "its lane comes to 16000 cycles of 15999"),
        ({"LANE_USER_CYCLES": 16_000}, transfers, ""),
        ({"LANE_USER_CELLS": 599}, transfers, "its lane comes to 600 cells of 599"),
        ({"LANE_USER_CELLS": 600}, transfers, ""),
        ({"LANE_SYSTEM_CYCLES": 15_999}, instructions, "its lane comes to 16000 cycles of 15999"),
        ({"LANE_SYSTEM_CYCLES": 16_000, "LANE_USER_CYCLES": 5_000}, instructions, ""),
        ({"LANE_DEFERRED_CYCLES": 119_999}, deferred, "took 120000 cycles, the deferred lane has 119999"),
        ({"LANE_DEFERRED_CYCLES": 120_000}, deferred, ""),
        ({"LANE_DEFERRED_CYCLES": 100_000}, forwarded, ""),
    ],
)
def test_each_lane_has_a_limit_of_its_own(params: dict[str, int], plant: Plant, expected: str) -> None:
    maker = maker_with(params)
    plant(maker)
    maker.seal()
    found = words(maker, BOUNDS)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_price_that_stands_still_while_a_timer_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Basefees of made chains never move, which is wrong unless they are at their greatest."""
    lane = {"LANE_TIMER_CYCLES": 2_000, "MAX_CYCLES_PER_FIRE": 2_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 2_000}
    for highest, expected in ((10**24, True), (PRICE, False)):
        maker = maker_with({**lane, "MIN_GAS_LIMIT_PER_TIMER": 500, "MAX_BASEFEE": highest})
        small = {"gas_limit": 500, "max_fee_per_cycle": pack_uint(2 * PRICE)}
        waiting = msgspec.structs.replace(maker.scheduled(1, b"[]"), **small)
        maker.transact(Call(ACTOR, "run", b"[]"), Effects(scheduled=(waiting,)))
        for _ in range(12):
            better = msgspec.structs.replace(maker.scheduled(1, b"[]"), max_priority_fee_per_cycle=pack_uint(50))
            maker.transact(Call(ACTOR, "run", b"[]"), Effects(scheduled=(better,)))
            maker.seal()
            maker.fire(better, tip=50)
        assert ("blocks in a row" in words(maker, BOUNDS)) is expected
