"""The ledger follows right chains without a word, and names every wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from cluster.audit.ledger.context import CHAIN, CONSERVATION, TIMERS
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.ledger.timer_phase import TimerState
from cluster.audit.ledger.timer_register import NEWEST_HEIGHTS
from tests.cluster.records import (
    ACTOR,
    OTHER,
    PRICE,
    USER_ADDRESS,
    ChainMaker,
    edit_receipts,
    make_chain,
    make_genesis,
)
from validator.chain.block import Block, BlockReceipts, Cancelled, Effects, Event, Extended, Movement
from validator.chain.transactions import Call, Deploy, address_of, deployed_address
from validator.primitives.codec import decode, encode, pack_uint


def books_of(maker: ChainMaker) -> Ledger:
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    return ledger


def besides_waits(ledger: Ledger) -> list[str]:
    """All violations but that a timer waits."""
    return [v.what for v in ledger.log.violations if "was due and passed over" not in v.what]


def messages(maker: ChainMaker, check: str) -> str:
    return "\n".join(v.what for v in books_of(maker).log.violations if v.check == check)


def test_a_right_chain_leaves_no_violation_and_balanced_books() -> None:
    ledger = books_of(make_chain(20))
    assert ledger.log.violations == []
    assert ledger.height == 20
    assert ledger.accounts.minted == ledger.accounts.held() + ledger.accounts.burned
    assert ledger.accounts.balances[OTHER] == sum(1_000 + height for height in range(1, 21))
    assert ledger.timers.fires + len(ledger.timers.pending) == ledger.timers.scheduled == 40
    assert [figures.height for figures in ledger.blocks] == list(range(1, 21))


def test_a_timers_life_is_followed_from_schedule_to_end() -> None:
    maker = ChainMaker()
    late, fired = maker.schedule(2), maker.schedule(1)
    maker.seal()
    maker.fire(fired)
    maker.seal()
    maker.seal()
    maker.seal()
    ledger = books_of(maker)
    assert besides_waits(ledger) == []
    life = next(life for life in ledger.timers.newest if life.timer_id == fired.timer_id)
    assert (life.state, life.scheduled_at, life.ended_at) == (TimerState.FIRED, 1, 2)
    assert ledger.timers.pending[late.timer_id].trigger_height == 3
    assert [figures.backlog for figures in ledger.blocks] == [0, 0, 1, 1]
    assert ledger.timers.backlog == 1


def test_proposers_get_the_tips_and_the_rest_is_burned() -> None:
    maker = ChainMaker()
    maker.transfer(5, tip=7)
    maker.seal()
    ledger = books_of(maker)
    assert ledger.accounts.balances[address_of(maker.genesis.validators[1])] == ledger.accounts.tips == 7 * 5_000
    assert ledger.accounts.burned == 5_200 * PRICE
    assert (ledger.accounts.burned_cycle, ledger.accounts.burned_cell, ledger.accounts.burned_lane_timer) == (
        5_000 * PRICE,
        200 * PRICE,
        0,
    )
    assert ledger.accounts.balances[USER_ADDRESS] == maker.genesis.accounts[USER_ADDRESS] - 5 - 5_200 * PRICE - 35_000


def test_cancelled_extended_and_expired_timers() -> None:
    maker = ChainMaker()
    cancelled, extended, expired = (maker.schedule(2, expires_at=3) for _ in range(3))
    maker.seal()
    changes = (Cancelled(cancelled.timer_id), Extended(extended.timer_id, 9))
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=changes))
    maker.seal()
    maker.seal()
    maker.destroy(expired, "expired")
    maker.fire(extended)
    maker.seal()
    ledger = books_of(maker)
    assert besides_waits(ledger) == []
    assert (
        ledger.timers.states[TimerState.CANCELLED]
        == ledger.timers.states[TimerState.EXPIRED]
        == ledger.timers.states[TimerState.FIRED]
        == 1
    )


def test_a_deployed_script_actor_is_watched_too() -> None:
    maker = ChainMaker()
    created = deployed_address(USER_ADDRESS, 0)
    moved = Effects(movements=(Movement(USER_ADDRESS, created, pack_uint(50)),))
    maker.transact(Deploy("builtin:script"), moved, value=50, created=created)
    maker.seal()
    assert books_of(maker).log.violations == []
    wrong = ChainMaker()
    wrong.transact(Deploy("builtin:script"), created=OTHER)
    wrong.seal()
    assert "wrong address" in messages(wrong, CHAIN)


def test_a_receipt_of_a_deployment_that_is_no_program_is_named() -> None:
    maker = ChainMaker()
    maker.transact(Deploy("class Broken("), Effects(), created=deployed_address(USER_ADDRESS, 0))
    maker.seal()
    assert "deployed what is no program" in messages(maker, CHAIN)


# --- timers -----------------------------------------------------------------------------------------------------------


def early(maker: ChainMaker) -> None:
    timer = maker.schedule(3)
    maker.seal()
    maker.fire(timer)


def twice_in_one_block(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer)
    maker.fire(timer)


def twice_in_two_blocks(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer)
    maker.seal()
    maker.fire(timer)


def unknown(maker: ChainMaker) -> None:
    maker.fire(maker.scheduled(0, b"nobody"))


def after_cancel(maker: ChainMaker) -> None:
    timer = maker.schedule(2)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=(Cancelled(timer.timer_id),)))
    maker.seal()
    maker.seal()
    maker.fire(timer)


def after_destruction(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.destroy(timer, "insufficient_funds")
    maker.seal()
    maker.fire(timer)


def after_expiry(maker: ChainMaker) -> None:
    timer = maker.schedule(1, expires_at=2)
    maker.seal()
    maker.seal()
    maker.fire(timer)


def scheduled_for_the_past(maker: ChainMaker) -> None:
    maker.schedule(1, trigger_height=1)


def scheduled_twice(maker: ChainMaker) -> None:
    timer = maker.schedule(4)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(scheduled=(timer,)))


def other_trigger(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer, trigger_height=1)


def forgotten_when_expired(maker: ChainMaker) -> None:
    maker.schedule(1, expires_at=2)
    for _ in range(3):
        maker.seal()


def destroyed_before_its_end(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.destroy(timer, "expired")


def extended_backwards(maker: ChainMaker) -> None:
    timer = maker.schedule(4)
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(timer_changes=(Extended(timer.timer_id, 6),)))


def sequence_reused(maker: ChainMaker) -> None:
    maker.schedule(4)
    maker.schedule(5, sequence=0)


def turn_reused(maker: ChainMaker) -> None:
    maker.schedule(4)
    maker.schedule(4, sequence=0)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (early, "fired 2 blocks before its trigger height 4"),
        (twice_in_one_block, "fired, but had fired at height 2"),
        (twice_in_two_blocks, "fired, but had fired at height 2"),
        (unknown, "fired, but was never scheduled"),
        (after_cancel, "fired, but had been cancelled at height 1"),
        (after_destruction, "fired, but had been destroyed for insufficient funds"),
        (after_expiry, "fired after it expired at 2"),
        (scheduled_for_the_past, "was scheduled for height 1"),
        (scheduled_twice, "was scheduled a second time"),
        (other_trigger, "with another actor, trigger height or sequence"),
        (forgotten_when_expired, "was forgotten: it expired at 2"),
        (destroyed_before_its_end, "was destroyed as expired, but lives to"),
        (extended_backwards, "was extended to an earlier end"),
        (sequence_reused, "has sequence 0 after 0"),
        (turn_reused, "has sequence 0 after 0"),
    ],
)
def test_a_timer_that_breaks_a_rule_is_named(plant: Callable[[ChainMaker], None], expected: str) -> None:
    maker = ChainMaker()
    plant(maker)
    maker.seal()
    assert expected in messages(maker, TIMERS)


def test_more_expired_timers_than_the_budget_removes_are_named() -> None:
    params = {"SCAN_LIMIT": 2, "GC_CYCLES_PER_REMOVAL": 200, "TIMER_GC_CYCLES": 800}
    for number, is_right in ((2, True), (3, False)):
        maker = ChainMaker(make_genesis(params))
        timers = [maker.schedule(1, expires_at=2) for _ in range(number)]
        maker.seal()
        maker.seal(gc_cycles=800)
        for timer in timers:
            maker.destroy(timer, "expired")
        maker.seal()
        assert ("beyond the budget of 800" in messages(maker, TIMERS)) != is_right
    maker = ChainMaker()
    maker.destroy(maker.schedule(1, expires_at=2), "insufficient_funds")
    maker.seal(gc_cycles=0)
    assert "destroying 1 timers at 200 each counts 0 cycles only" in messages(maker, TIMERS)


def test_expired_timers_may_wait_for_the_collectors_budget() -> None:
    maker = ChainMaker()
    maker.schedule(1, expires_at=2)
    for _ in range(3):
        maker.seal(gc_cycles=maker.genesis.parameters.timer_gc_cycles)
    assert messages(maker, TIMERS) == ""
    maker.seal()
    assert "was forgotten" in messages(maker, TIMERS)


# --- amounts ----------------------------------------------------------------------------------------------------------


def overspent(maker: ChainMaker) -> None:
    maker.transfer(10**30)


def wrong_burn(maker: ChainMaker) -> None:
    maker.transfer(5, burned=pack_uint(1))


def wrong_tip(maker: ChainMaker) -> None:
    maker.transfer(5, tip=3)
    wire, receipt = maker.transactions[-1]
    maker.transactions[-1] = (wire, msgspec.structs.replace(receipt, tip=pack_uint(1)))


def wrong_fire_tip(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    receipt = maker.fire(timer)
    maker.fires[-1] = msgspec.structs.replace(receipt, tip=pack_uint(9))


def wrong_fire_burn(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer, burned=pack_uint(2_000 * PRICE))


def stolen(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer, effects=Effects(movements=(Movement(USER_ADDRESS, ACTOR, pack_uint(1)),)))


def value_not_moved(maker: ChainMaker) -> None:
    maker.transfer(5, effects=Effects())


def effects_after_revert(maker: ChainMaker) -> None:
    event = Event("kept", ACTOR, ())
    maker.transact(Call(ACTOR, "run", b"[]"), Effects(events=(event,)), ok=False, error="ScriptFailed")


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (overspent, "spent what it never had"),
        (wrong_burn, "burned 1 where its use and prices give"),
        (wrong_tip, "tipped 1 where its use and prices give 15000"),
        (wrong_fire_tip, "tipped 9 where its use and prices give 4000"),
        (wrong_fire_burn, "burned 2000000000 where its use and prices give"),
        (stolen, "which it does not own"),
        (value_not_moved, "did not move its value of 5"),
        (effects_after_revert, "reverted but left effects behind"),
    ],
)
def test_an_amount_that_breaks_a_rule_is_named(plant: Callable[[ChainMaker], None], expected: str) -> None:
    maker = ChainMaker()
    plant(maker)
    maker.seal()
    assert expected in messages(maker, CONSERVATION)


# --- the chain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parent_hash": bytes(32)}, "parent hash"),
        ({"chain_id": "other"}, "is for chain 'other'"),
        ({"transactions_root": bytes(32)}, "transactions_root"),
        ({"receipts_root": bytes(32)}, "receipts_root"),
        ({"proposer": 3}, "not to the proposer"),
        ({"proposer": 99}, "not to the proposer"),
        ({"lane_cycles": 5}, "lane's use"),
    ],
)
def test_a_header_that_does_not_hold_is_named(changes: dict[str, object], expected: str) -> None:
    maker = make_chain(1)
    maker.transfer(5)
    maker.seal(changes)
    assert expected in messages(maker, CHAIN)


def test_a_missing_height_ends_the_books() -> None:
    maker = make_chain(5)
    del maker.blocks[2]
    ledger = books_of(maker)
    assert ledger.broken
    assert ledger.height == 2
    assert [v.what for v in ledger.log.violations] == ["a block of height 4 where 3 is due"]


def test_a_replayed_transaction_is_named() -> None:
    maker = make_chain(1)
    maker.transfer(5)
    maker.transactions.append(maker.transactions[-1])
    maker.seal()
    assert "nonce" in messages(maker, CHAIN)


def test_receipts_changed_after_they_were_hashed_are_named() -> None:
    maker = make_chain(3)
    changed = edit_receipts(maker.blocks[1], lambda receipts: msgspec.structs.replace(receipts, p50_tip=pack_uint(77)))
    maker.blocks[1] = replace(maker.blocks[1], receipts=changed)
    assert "receipts_root" in messages(maker, CHAIN)


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x90", b"\x93\x01\x02\x03"])
def test_bytes_that_cannot_be_read_end_the_books_without_an_exception(garbage: bytes) -> None:
    maker = make_chain(1)
    for block, receipts in ((garbage, maker.blocks[0].receipts), (maker.blocks[0].block, garbage)):
        ledger = Ledger(maker.genesis)
        ledger.apply(block, receipts)
        assert ledger.broken
        assert "cannot be read" in ledger.log.violations[0].what


def test_amounts_that_are_no_numbers_end_the_books() -> None:
    maker = ChainMaker()
    maker.transfer(5, burned=b"\0\1")
    maker.seal()
    assert "cannot be read" in messages(maker, CHAIN)


def test_evidence_is_audited_with_the_prices_of_the_final_block() -> None:
    maker = ChainMaker()
    timer = maker.schedule(1)
    maker.seal()
    before = list(maker.blocks)
    maker.fire(timer)
    maker.fire(timer)
    evidence = encode(maker.receipts())
    maker.fires.pop()
    final = maker.seal()
    ledger = Ledger(maker.genesis)
    for record in before:
        ledger.apply(record.block, record.receipts)
    ledger.apply_evidence(evidence, final.block)
    assert [v.check for v in ledger.log.violations] == [TIMERS]
    assert "fired, but had fired at height 2" in ledger.log.violations[0].what


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_blocks_decode_to_what_the_maker_made() -> None:
    maker = make_chain(2)
    assert decode(maker.blocks[1].block, Block).header.height == 2
    assert decode(maker.blocks[1].receipts, BlockReceipts).height == 2


def test_ended_timers_are_forgotten_and_their_ids_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_before = 16
    monkeypatch.setattr("cluster.audit.ledger.timer_register.NEWEST_KEPT", kept_before)
    maker = ChainMaker()
    fired = maker.schedule(1)
    maker.seal()
    maker.fire(fired)
    maker.seal()
    for _ in range(NEWEST_HEIGHTS + 10):
        for _ in range(4):
            maker.schedule(80)
        maker.seal()
    ledger = books_of(maker)
    assert ledger.log.violations == []
    assert fired.timer_id not in {life.timer_id for life in ledger.timers.newest}
    assert len(ledger.timers.newest) == kept_before + 4 * NEWEST_HEIGHTS
    assert ledger.timers.scheduled == 1 + 4 * (NEWEST_HEIGHTS + 10)
    maker.fire(fired)
    maker.seal()
    assert "fired, but had fired at height 2" in messages(maker, TIMERS)


def test_an_id_of_a_forgotten_timer_is_not_scheduled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.audit.ledger.timer_register.NEWEST_KEPT", 0)
    monkeypatch.setattr("cluster.audit.ledger.timer_register.NEWEST_HEIGHTS", 1)
    maker = ChainMaker()
    fired = maker.schedule(1)
    maker.seal()
    maker.fire(fired)
    maker.seal()
    maker.seal()
    maker.schedule(1, timer_id=fired.timer_id)
    maker.seal()
    assert "was scheduled a second time" in messages(maker, TIMERS)
